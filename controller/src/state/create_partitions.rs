//! More partitions for a topic. Existing ones stay as they are.

use protocol::ErrorCode;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use protocol::types::NodeId;

use super::repeats::repeated;
use super::{ApiError, ControllerState, code_and_message};

/// More partitions for one topic in one request are refused.
const MAX_NEW_PARTITIONS: usize = 10_000;

impl ControllerState {
    pub(super) fn on_create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let results = self.deciding(request.validate_only, |state| {
            let mut results = Vec::with_capacity(request.topics.len());
            let repeated = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
            for topic in &request.topics {
                let outcome = if repeated.contains(topic.name.as_str()) {
                    Err(ApiError::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
                } else {
                    state.create_partitions(topic)
                };
                let (error_code, error_message) = code_and_message(outcome);
                results.push(CreatePartitionsTopicResult {
                    name: topic.name.clone(),
                    error_code,
                    error_message,
                    ..Default::default()
                });
            }
            results
        });
        CreatePartitionsResponse { results, ..Default::default() }
    }

    fn create_partitions(&mut self, wanted: &CreatePartitionsTopic) -> Result<(), ApiError> {
        let topic = self
            .image
            .topic_by_name(&wanted.name)
            .ok_or(ErrorCode::UnknownTopicOrPartition)?
            .clone();
        let existing = topic.partitions.len();
        let invalid = |text| Err(ApiError::new(ErrorCode::InvalidPartitions, text));
        let count = usize::try_from(wanted.count).unwrap_or(0);
        if count == existing {
            return invalid(format!("Topic already has {existing} partition(s)."));
        }
        if count < existing {
            return invalid(format!(
                "The topic {} currently has {existing} partition(s); {} would not be an increase.",
                wanted.name, wanted.count
            ));
        }
        let additional = count - existing;
        if additional > MAX_NEW_PARTITIONS {
            return invalid(format!("{additional} new partitions are too many for one request."));
        }
        let first = topic.partitions.values().next();
        let replication_factor = first.map_or(1, |partition| partition.replicas.len());
        let assignments = match &wanted.assignments {
            Some(given) if given.len() != additional => {
                return Err(ApiError::new(
                    ErrorCode::InvalidReplicaAssignment,
                    format!(
                        "Attempted to add {additional} additional partition(s), but only {} \
                         assignment(s) were specified.",
                        given.len()
                    ),
                ));
            }
            Some(given) => {
                let mut assignments = Vec::with_capacity(given.len());
                for (at, assignment) in given.iter().enumerate() {
                    let replicas: Vec<NodeId> =
                        assignment.broker_ids.iter().copied().map(NodeId).collect();
                    self.check_manual_replicas(&replicas, Some(replication_factor))?;
                    self.check_some_active(&replicas, (existing + at) as i32)?;
                    assignments.push(replicas);
                }
                assignments
            }
            None => self.place(additional, replication_factor)?,
        };
        for (at, replicas) in assignments.into_iter().enumerate() {
            let record = self.new_partition(replicas).to_record(topic.id, (existing + at) as i32);
            self.decide(record);
        }
        Ok(())
    }
}
