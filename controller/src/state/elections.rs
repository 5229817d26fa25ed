//! Leaders and ISRs when brokers come and go, and elections on demand (C03, C04, C05, C06).

use std::sync::Arc;

use protocol::ErrorCode;
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use protocol::messages::{ElectLeadersRequest, ElectLeadersResponse};
use protocol::types::{NodeId, TopicId};
use replication::bugs::{self, Bug};

use super::eligible::MIN_INSYNC_REPLICAS;
use super::partition_change::{Election, PartitionChangeBuilder};
use super::{ApiError, ControllerState, code_and_message};
use crate::config::{ConfigResource, ConfigValue};
use crate::image::PartitionImage;

impl ControllerState {
    /// Takes a broker that is about to go out of every ISR that has another member, and gives what
    /// it leads to somebody else.
    pub(super) fn remove_from_isrs(&mut self, id: NodeId) {
        let is_concerned =
            |partition: &PartitionImage| partition.isr.contains(&id) || partition.leader == id;
        for (topic, index) in self.partitions_where(is_concerned) {
            self.elect(topic, index, None, |builder| {
                builder.excluded = Some(id);
                builder.target_isr.retain(|member| *member != id);
            });
        }
    }

    /// Takes a broker whose last process did not end cleanly out of every ISR, and out of the eligible
    /// leader replicas too: its disk may lack what was committed (C06). Without those, as
    /// [`Self::remove_from_isrs`].
    pub(super) fn distrust(&mut self, id: NodeId) {
        if !self.is_elr_enabled() || bugs::is_on(Bug::UncleanReplicaStaysEligible) {
            return self.remove_from_isrs(id); // wrong with eligible leader replicas (KIP-966)
        }
        let is_concerned = |partition: &PartitionImage| {
            partition.isr.contains(&id) || partition.eligible_leader_replicas.contains(&id)
        };
        for (topic, index) in self.partitions_where(is_concerned) {
            self.elect(topic, index, None, |builder| {
                builder.excluded = Some(id);
                builder.unclean_shutdown = Some(id);
                builder.target_isr.retain(|member| *member != id);
            });
        }
    }

    /// After a broker came back: partitions that nobody leads may have found their leader.
    pub(super) fn elect_for_leaderless_partitions(&mut self) {
        for (topic, index) in self.partitions_where(|partition| !partition.has_leader()) {
            self.elect(topic, index, None, |_| {});
        }
    }

    /// Partitions without a leader in topics that allow an unclean election (C05).
    pub(super) fn elect_unclean_leaders(&mut self) {
        self.elect_for_leaderless_partitions();
    }

    /// Leadership goes back to first replicas that are in the ISR and active.
    pub(super) fn elect_preferred_leaders(&mut self) {
        for (topic, index) in self.partitions_where(|partition| !partition.has_preferred_leader()) {
            self.elect(topic, index, Some(Election::Preferred), |_| {});
        }
    }

    fn partitions_where(
        &self,
        is_concerned: impl Fn(&PartitionImage) -> bool,
    ) -> Vec<(TopicId, i32)> {
        let all = self.image.partitions();
        all.filter(|(_, _, partition)| is_concerned(partition))
            .map(|(topic, index, _)| (topic.id, index))
            .collect()
    }

    /// Decides one partition's step; false when there is none to make. Without an `election` the
    /// topic's config says whether it may be unclean.
    pub(super) fn elect(
        &mut self,
        topic: TopicId,
        index: i32,
        election: Option<Election>,
        set_targets: impl FnOnce(&mut PartitionChangeBuilder<'_>),
    ) -> bool {
        let Some(partition) = self.image.partition(topic, index).map(Arc::clone) else {
            return false;
        };
        let mut builder = PartitionChangeBuilder::new(&partition, topic, index);
        builder.election = election.unwrap_or_else(|| self.election_of(topic));
        builder.min_isr = self.is_elr_enabled().then(|| self.min_isr(topic));
        set_targets(&mut builder);
        match builder.build(&self.image) {
            Some(change) => {
                self.decide(change);
                true
            }
            None => false,
        }
    }

    fn election_of(&self, topic: TopicId) -> Election {
        if bugs::is_on(Bug::UncleanLeaderUnasked) {
            return Election::Unclean; // wrong (KIP-106): nobody gave up what was committed
        }
        if self.is_unclean_election_enabled(topic) { Election::Unclean } else { Election::Online }
    }

    /// `unclean.leader.election.enable` in force for a topic.
    pub(super) fn is_unclean_election_enabled(&self, topic: TopicId) -> bool {
        let value = self.topic_value(topic, "unclean.leader.election.enable");
        value.and_then(|value| value.as_bool()).unwrap_or(false)
    }

    /// `min.insync.replicas` in force for a topic.
    fn min_isr(&self, topic: TopicId) -> usize {
        let value = self.topic_value(topic, MIN_INSYNC_REPLICAS);
        let value = value.and_then(|value| value.as_i64());
        value.and_then(|value| usize::try_from(value).ok()).unwrap_or(1)
    }

    fn topic_value(&self, topic: TopicId, key: &str) -> Option<ConfigValue> {
        let name = self.image.topic_name(topic)?;
        let own = self.image.configs(&ConfigResource::topic(Arc::clone(name)));
        self.config_layers().borrow().topic_value(key, own)
    }

    pub(super) fn on_elect_leaders(
        &mut self,
        api_version: i16,
        request: &ElectLeadersRequest,
    ) -> ElectLeadersResponse {
        let election = match request.election_type {
            _ if api_version < 1 => Election::Preferred,
            0 => Election::Preferred,
            1 => Election::Unclean,
            unknown => return unknown_election(unknown, request.topic_partitions.as_deref()),
        };
        let results = match &request.topic_partitions {
            Some(topics) => {
                let wanted =
                    topics.iter().map(|topic| (topic.topic.clone(), topic.partitions.clone()));
                self.elect_each(wanted.collect(), election, false)
            }
            None => {
                let all = self.image.topics_by_name().map(|topic| {
                    (topic.name.to_string(), topic.partitions.keys().copied().collect())
                });
                self.elect_each(all.collect(), election, true)
            }
        };
        ElectLeadersResponse { replica_election_results: results, ..Default::default() }
    }

    /// With `omit_unneeded`, partitions that need no election are left out of the answer (C04).
    fn elect_each(
        &mut self,
        wanted: Vec<(String, Vec<i32>)>,
        election: Election,
        omit_unneeded: bool,
    ) -> Vec<ReplicaElectionResult> {
        let mut results = Vec::with_capacity(wanted.len());
        for (topic, partitions) in wanted {
            let mut partition_result = Vec::new();
            for partition_id in partitions {
                let outcome = self.elect_on_demand(&topic, partition_id, election);
                let (error_code, error_message) = code_and_message(outcome);
                if omit_unneeded && error_code == ErrorCode::ElectionNotNeeded.code() {
                    continue;
                }
                partition_result.push(PartitionResult {
                    partition_id,
                    error_code,
                    error_message,
                    ..Default::default()
                });
            }
            results.push(ReplicaElectionResult { topic, partition_result, ..Default::default() });
        }
        results
    }

    fn elect_on_demand(
        &mut self,
        topic: &str,
        index: i32,
        election: Election,
    ) -> Result<(), ApiError> {
        let unknown = |text| ApiError::new(ErrorCode::UnknownTopicOrPartition, text);
        let id = self
            .image
            .topic_id(topic)
            .ok_or_else(|| unknown(format!("No such topic as {topic}")))?;
        let partition = self
            .image
            .partition(id, index)
            .ok_or_else(|| unknown(format!("No such partition as {topic}-{index}")))?;
        let is_unneeded = match election {
            Election::Preferred => partition.has_preferred_leader(),
            Election::Online | Election::Unclean => partition.has_leader(),
        };
        if is_unneeded {
            return Err(ApiError::new(
                ErrorCode::ElectionNotNeeded,
                "Leader election not needed for topic partition.",
            ));
        }
        if self.elect(id, index, Some(election), |_| {}) {
            return Ok(());
        }
        Err(match election {
            Election::Preferred => ApiError::new(
                ErrorCode::PreferredLeaderNotAvailable,
                "The preferred leader was not available.",
            ),
            Election::Online | Election::Unclean => ApiError::new(
                ErrorCode::EligibleLeadersNotAvailable,
                "Eligible topic partition leaders are not available.",
            ),
        })
    }
}

/// An election of a type that does not exist: refused at the top and for each partition asked for. A
/// request that asks for none has nothing to refuse.
fn unknown_election(election_type: i8, wanted: Option<&[TopicPartitions]>) -> ElectLeadersResponse {
    let refused = |partition_id: &i32| PartitionResult {
        partition_id: *partition_id,
        error_code: ErrorCode::InvalidRequest.code(),
        error_message: Some(format!("Unknown election type {election_type}")),
        ..Default::default()
    };
    let results = wanted.unwrap_or_default().iter().map(|topic| ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic.partitions.iter().map(refused).collect(),
        ..Default::default()
    });
    let asks_for_nothing = wanted.is_some_and(<[_]>::is_empty);
    let error = if asks_for_nothing { ErrorCode::None } else { ErrorCode::InvalidRequest };
    ElectLeadersResponse {
        error_code: error.code(),
        replica_election_results: results.collect(),
        ..Default::default()
    }
}
