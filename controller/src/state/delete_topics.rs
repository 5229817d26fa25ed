//! Topics go, by name or by id (KIP-516). Of the names and ids that a request gives more than once, and of
//! a topic that it names both ways, nothing is deleted: each such name and id is refused once.

use std::collections::BTreeSet;

use protocol::ErrorCode;
use protocol::messages::delete_topics_response::DeletableTopicResult;
use protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use protocol::types::{TopicId, Uuid};

use super::repeats::repeated;
use super::{ApiError, ControllerState};
use crate::records::RemoveTopic;

const NO_SUCH_NAME: &str = "This server does not host this topic-partition.";
const NO_SUCH_ID: &str = "This server does not host this topic ID.";

impl ControllerState {
    pub(super) fn on_delete_topics(
        &mut self,
        api_version: i16,
        request: &DeleteTopicsRequest,
    ) -> DeleteTopicsResponse {
        let wanted: Vec<(Option<&str>, TopicId)> = if api_version >= 6 {
            request.topics.iter().map(|topic| (topic.name.as_deref(), topic.topic_id)).collect()
        } else {
            request.topic_names.iter().map(|name| (Some(name.as_str()), Uuid::ZERO)).collect()
        };
        let responses = if self.config.delete_topics {
            self.delete_each(&wanted)
        } else {
            let error = match api_version {
                ..3 => invalid("Topic deletion is disabled."),
                3.. => ErrorCode::TopicDeletionDisabled.into(),
            };
            wanted.iter().map(|(name, id)| not_deleted(*name, *id, error.clone())).collect()
        };
        DeleteTopicsResponse { responses, ..Default::default() }
    }

    fn delete_each(&mut self, wanted: &[(Option<&str>, TopicId)]) -> Vec<DeletableTopicResult> {
        let mut responses = Vec::with_capacity(wanted.len());
        let (mut names, mut ids) = (Vec::new(), Vec::new());
        for (name, id) in wanted {
            match name {
                Some(name) if id.is_zero() => names.push(*name),
                None if !id.is_zero() => ids.push(*id),
                Some(_) => responses.push(not_deleted(
                    *name,
                    *id,
                    invalid("You may not specify both topic name and topic id."),
                )),
                None => responses.push(not_deleted(
                    None,
                    *id,
                    invalid("Neither topic name nor id were specified."),
                )),
            }
        }
        let given_ids: BTreeSet<TopicId> = ids.iter().copied().collect();
        let repeated_names = repeated(names.iter().copied());
        let mut refused_ids = repeated(ids.iter().copied());
        for name in &repeated_names {
            responses.push(not_deleted(Some(name), Uuid::ZERO, invalid("Duplicate topic name.")));
        }
        for id in &refused_ids {
            responses.push(not_deleted(None, *id, invalid("Duplicate topic id.")));
        }
        for name in names.into_iter().filter(|name| !repeated_names.contains(name)) {
            match self.image.topic_id(name) {
                None => {
                    let error = ApiError::new(ErrorCode::UnknownTopicOrPartition, NO_SUCH_NAME);
                    responses.push(not_deleted(Some(name), Uuid::ZERO, error));
                }
                Some(id) if given_ids.contains(&id) => {
                    let text = "The provided topic name maps to an ID that was already supplied.";
                    responses.push(not_deleted(Some(name), id, invalid(text)));
                    refused_ids.insert(id);
                }
                Some(id) => responses.push(self.delete(id)),
            }
        }
        for id in given_ids.into_iter().filter(|id| !refused_ids.contains(id)) {
            responses.push(self.delete(id));
        }
        responses
    }

    fn delete(&mut self, id: TopicId) -> DeletableTopicResult {
        let Some(name) = self.image.topic_name(id).map(|name| name.to_string()) else {
            return not_deleted(None, id, ApiError::new(ErrorCode::UnknownTopicId, NO_SUCH_ID));
        };
        self.decide(RemoveTopic { topic_id: Some(id.into()) });
        DeletableTopicResult {
            name: Some(name),
            topic_id: id,
            error_message: None,
            ..Default::default()
        }
    }
}

fn invalid(text: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, text)
}

fn not_deleted(name: Option<&str>, topic_id: TopicId, error: ApiError) -> DeletableTopicResult {
    DeletableTopicResult {
        name: name.map(str::to_owned),
        topic_id,
        error_code: error.code.code(),
        error_message: error.message,
        ..Default::default()
    }
}
