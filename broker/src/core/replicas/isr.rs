//! The ISR's way to the controller: the timer that looks for laggards (H09), and AlterPartition. All
//! proposals that gather while one request is under way go together in the next; one that was not
//! answered for certain goes again after a pause (H13). At most one request is in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use protocol::messages::alter_partition_request::{BrokerState, PartitionData, TopicData};
use protocol::messages::{AlterPartitionRequest, AlterPartitionResponse};
use protocol::{
    ErrorCode, LeaderEpoch, NodeId, PartitionEpoch, RequestBody, ResponseBody, TopicIdPartition,
};
use replication::isr::{
    AlterPartitionResponse as IsrAnswer, ConfirmedPartition, IsrProposal, LeaderRecoveryState,
};
use replication::time::{Instant, Now};
use storage::Disk;

use super::ReplicaManager;
use crate::core::host::CallError;

/// The version spoken to the controller: topic ids and broker epochs of the proposed members.
pub(super) const ALTER_PARTITION_VERSION: i16 = 3;
/// How long the controller may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The pause before a proposal whose outcome is unknown goes again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

impl<D: Disk> ReplicaManager<D> {
    pub(super) fn enqueue_proposal(
        &self,
        partition: TopicIdPartition,
        proposal: IsrProposal,
        again: bool,
    ) {
        {
            let mut queue = self.alter_partition.lock();
            queue.put(partition, proposal);
            if again {
                let at = self.now().monotonic + RETRY_PAUSE;
                queue.hold_until(at);
                (self.host.wake_by)(at);
            }
        }
        // Sent from the next tick, so that nobody who holds a reply in hand waits for it.
        (self.host.wake_by)(self.now().monotonic);
    }

    /// Sends what waits, unless a request is under way; gives when to be called again.
    pub fn send_proposals(self: &Arc<Self>, now: Now) -> Option<Instant> {
        let taken = self.alter_partition.lock().take(usize::MAX, now.monotonic);
        let sent = match taken {
            Ok(sent) => sent,
            Err(again) => return again,
        };
        let request = self.alter_partition_request(&sent);
        let manager = Arc::downgrade(self);
        let reply = Box::new(move |answer: Result<ResponseBody, CallError>| {
            if let Some(manager) = manager.upgrade() {
                manager.on_alter_partition_answer(&sent, answer);
            }
        });
        self.host.controller.call(
            ALTER_PARTITION_VERSION,
            RequestBody::AlterPartition(request),
            TIMEOUT,
            reply,
        );
        None
    }

    fn alter_partition_request(
        &self,
        proposals: &BTreeMap<TopicIdPartition, IsrProposal>,
    ) -> AlterPartitionRequest {
        let mut topics: Vec<TopicData> = Vec::new();
        for (partition, proposal) in proposals {
            if topics.last().is_none_or(|topic| topic.topic_id != partition.topic_id) {
                topics.push(TopicData { topic_id: partition.topic_id, ..TopicData::default() });
            }
            let members = proposal.new_isr.iter().map(|member| BrokerState {
                broker_id: member.replica.get(),
                broker_epoch: member.broker_epoch.get(),
                ..BrokerState::default()
            });
            let data = PartitionData {
                partition_index: partition.topic_partition.partition,
                leader_epoch: proposal.leader_epoch.get(),
                new_isr_with_epochs: members.collect(),
                leader_recovery_state: proposal.leader_recovery_state.wire(),
                partition_epoch: proposal.partition_epoch.get(),
                ..PartitionData::default()
            };
            if let Some(topic) = topics.last_mut() {
                topic.partitions.push(data);
            }
        }
        AlterPartitionRequest {
            broker_id: self.config.node.get(),
            broker_epoch: self.directory().local_epoch.get(),
            topics,
            ..AlterPartitionRequest::default()
        }
    }

    fn on_alter_partition_answer(
        self: &Arc<Self>,
        sent: &BTreeMap<TopicIdPartition, IsrProposal>,
        answer: Result<ResponseBody, CallError>,
    ) {
        let mut answers = match answer {
            Ok(ResponseBody::AlterPartition(response)) if response.error_code == 0 => {
                partition_answers(&response)
            }
            Ok(ResponseBody::AlterPartition(response)) => {
                let error = ErrorCode::from_code(response.error_code);
                every(sent, &IsrAnswer::Error(error))
            }
            Ok(_) | Err(_) => every(sent, &IsrAnswer::Error(ErrorCode::RequestTimedOut)),
        };
        self.alter_partition.lock().answered();
        for (id, proposal) in sent {
            let key = (id.topic_id, id.topic_partition.partition);
            let lost = IsrAnswer::Error(ErrorCode::UnknownServerError);
            let answer = answers.remove(&key).unwrap_or(lost);
            self.on_proposal_answered(id, proposal, &answer);
        }
        let now = self.now();
        if let Some(at) = self.send_proposals(now) {
            (self.host.wake_by)(at);
        }
    }

    fn on_proposal_answered(
        &self,
        id: &TopicIdPartition,
        proposal: &IsrProposal,
        answer: &IsrAnswer,
    ) {
        let Ok(partition) = self.partition(&id.topic_partition, id.topic_id) else {
            return;
        };
        let directory = self.directory();
        let now = self.now();
        let mut replica = partition.lock();
        let facts = replica.facts();
        let effects = replica.state.on_alter_partition_response(
            proposal,
            answer,
            &facts,
            directory.as_ref(),
            now.monotonic,
        );
        let after = replica.carry_out(effects);
        drop(replica);
        match after {
            Ok(after) => self.after(&partition, after),
            Err(error) => self.on_storage_failure(&partition, &error),
        }
    }

    /// Looks at every partition led here for members that lag (H09).
    pub(super) fn shrink_isrs(&self, now: Now) {
        let directory = self.directory();
        for partition in self.online_partitions() {
            let mut replica = partition.lock();
            if !replica.state.is_leader() {
                continue;
            }
            let facts = replica.facts();
            let effects = replica.state.maybe_shrink_isr(&facts, directory.as_ref(), now.monotonic);
            let after = replica.carry_out(effects);
            drop(replica);
            match after {
                Ok(after) => self.after(&partition, after),
                Err(error) => self.on_storage_failure(&partition, &error),
            }
        }
    }
}

type Answers = BTreeMap<(protocol::TopicId, i32), IsrAnswer>;

fn every(sent: &BTreeMap<TopicIdPartition, IsrProposal>, answer: &IsrAnswer) -> Answers {
    sent.keys().map(|id| ((id.topic_id, id.topic_partition.partition), answer.clone())).collect()
}

fn partition_answers(response: &AlterPartitionResponse) -> Answers {
    let mut answers = Answers::new();
    for topic in &response.topics {
        for partition in &topic.partitions {
            let error = ErrorCode::from_code(partition.error_code);
            let answer = if error == ErrorCode::None {
                IsrAnswer::Success(ConfirmedPartition {
                    leader: NodeId(partition.leader_id),
                    leader_epoch: LeaderEpoch(partition.leader_epoch),
                    partition_epoch: PartitionEpoch(partition.partition_epoch),
                    isr: partition.isr.iter().copied().map(NodeId).collect(),
                    leader_recovery_state: LeaderRecoveryState::from_wire(
                        partition.leader_recovery_state,
                    )
                    .unwrap_or_default(),
                })
            } else {
                IsrAnswer::Error(error)
            };
            answers.insert((topic.topic_id, partition.partition_index), answer);
        }
    }
    answers
}
