//! More partitions for a topic. Existing ones stay as they are. A request for too many is refused as a
//! whole; names that it gives more than once are not counted for that.

use protocol::ErrorCode;
use protocol::messages::create_partitions_request::CreatePartitionsTopic;
use protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};
use protocol::types::NodeId;

use super::repeats::repeated;
use super::{ApiError, ControllerState, code_and_message};

/// More new partitions in one request are refused.
const MAX_NEW_PARTITIONS: i64 = 10_000;

impl ControllerState {
    pub(super) fn on_create_partitions(
        &mut self,
        request: &CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let repeated = repeated(request.topics.iter().map(|topic| topic.name.as_str()));
        let is_single = |topic: &&CreatePartitionsTopic| !repeated.contains(topic.name.as_str());
        let single: Vec<&CreatePartitionsTopic> = request.topics.iter().filter(is_single).collect();
        if self.new_partitions_wanted(&single) > MAX_NEW_PARTITIONS {
            let error = ApiError::new(
                ErrorCode::PolicyViolation,
                "Excessively large number of additional partitions per request.",
            );
            let results = request.topics.iter().map(|topic| told(&topic.name, Err(error.clone())));
            return CreatePartitionsResponse { results: results.collect(), ..Default::default() };
        }
        let mut results: Vec<CreatePartitionsTopicResult> =
            self.deciding(request.validate_only, |state| {
                let added =
                    single.iter().map(|topic| told(&topic.name, state.create_partitions(topic)));
                added.collect()
            });
        // A name that comes more than once is answered once, behind the others.
        results.extend(repeated.iter().map(|name| {
            let text = "Duplicate topic name.";
            told(name, Err(ApiError::new(ErrorCode::InvalidRequest, text)))
        }));
        CreatePartitionsResponse { results, ..Default::default() }
    }

    fn new_partitions_wanted(&self, topics: &[&CreatePartitionsTopic]) -> i64 {
        let wanted = topics.iter().filter_map(|topic| {
            let existing = self.image.topic_by_name(&topic.name)?.partitions.len() as i64;
            Some((i64::from(topic.count) - existing).max(0))
        });
        wanted.sum()
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

fn told(name: &str, outcome: Result<(), ApiError>) -> CreatePartitionsTopicResult {
    let (error_code, error_message) = code_and_message(outcome);
    CreatePartitionsTopicResult {
        name: name.to_owned(),
        error_code,
        error_message,
        ..Default::default()
    }
}
