//! The ISR's changes: who may join (H05, H10, H11), who must leave (H09), and what the controller's
//! answer does (H03, H04, H13). At most one change is in flight; the enum in `isr.rs` sees to it.

use std::collections::BTreeSet;

use protocol::{BrokerEpoch, NodeId};

use super::leader::is_isr_eligible;
use super::{BrokerDirectory, Effects, LeaderState, LogFacts, PartitionState, Role};
use crate::bugs::{self, Bug};
use crate::isr::{
    AlterPartitionErrorKind, AlterPartitionResponse, ConfirmedPartition, IsrProposal, IsrState,
    LeaderRecoveryState, ProposedMember,
};
use crate::replica_state::ReplicaState;
use crate::time::Instant;
use crate::trace::{Event, Nodes, Why};

impl PartitionState {
    /// Proposes that `replica` join when it may: no change in flight, not a member, eligible by the
    /// metadata (H10, H11), and its log end has reached both the high watermark and the start of
    /// this leader's epoch (H05). The proposal carries the very states that were judged (H11d).
    pub fn maybe_expand_isr(
        &mut self,
        replica: NodeId,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
    ) -> Effects {
        let Some(leader) = self.leader_state() else {
            return Effects::default();
        };
        let IsrState::Committed { isr } = &leader.isr else {
            return Effects::default();
        };
        let Some(state) = leader.followers.get(&replica) else {
            return Effects::default();
        };
        let log_end = state.log_end.offset;
        let may_join = !isr.contains(&replica)
            && is_isr_eligible(replica, state, brokers)
            && log_end >= self.high_watermark.offset
            // Without this wrong (KIP-320): our high watermark may be behind what was committed.
            && (log_end >= leader.epoch_start || bugs::is_on(Bug::JoinsBelowEpochStart));
        if !may_join {
            return Effects::default();
        }
        let mut members = isr.clone();
        members.insert(replica);
        let proposal = self.proposal(leader, &members, log, brokers);
        let pending = leader.isr.propose_expand(replica, proposal.clone());
        self.propose(pending, proposal, Why::CaughtUpToEpochStart)
    }

    /// Proposes that ISR members leave which are behind the leader's end and have not been caught up
    /// within the lag limit (H09). Called by the host's timer, at half that limit.
    pub fn maybe_shrink_isr(
        &mut self,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> Effects {
        let Some(leader) = self.leader_state() else {
            return Effects::default();
        };
        let IsrState::Committed { isr } = &leader.isr else {
            return Effects::default();
        };
        let lag_time_max = self.settings.replica_lag_time_max;
        let leaving: BTreeSet<NodeId> =
            isr.iter()
                .copied()
                .filter(|id| *id != self.node)
                .filter(|id| {
                    leader.followers.get(id).is_none_or(|state| {
                        !state.is_caught_up(log.log_end.offset, now, lag_time_max)
                    })
                })
                .collect();
        if leaving.is_empty() {
            return Effects::default();
        }
        let members = isr - &leaving;
        let proposal = self.proposal(leader, &members, log, brokers);
        let pending = leader.isr.propose_shrink(leaving, proposal.clone());
        self.propose(pending, proposal, Why::LaggingTooLong)
    }

    fn proposal(
        &self,
        leader: &LeaderState,
        members: &BTreeSet<NodeId>,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
    ) -> IsrProposal {
        let new_isr = members
            .iter()
            .map(|id| match leader.followers.get(id) {
                _ if *id == self.node => ProposedMember {
                    replica: *id,
                    broker_epoch: brokers.local_epoch(),
                    log_end_offset: log.log_end.offset,
                },
                Some(state) => ProposedMember {
                    replica: *id,
                    broker_epoch: state.broker_epoch.unwrap_or(BrokerEpoch::NONE),
                    log_end_offset: state.log_end.offset,
                },
                None => panic!("ISR member {id} is not among the replicas {:?}", self.replicas),
            })
            .collect();
        IsrProposal {
            leader_epoch: self.leader_epoch,
            partition_epoch: self.partition_epoch,
            new_isr,
            leader_recovery_state: LeaderRecoveryState::Recovered,
        }
    }

    fn propose(&mut self, pending: IsrState, proposal: IsrProposal, why: Why) -> Effects {
        let event = Event::IsrProposed {
            partition: self.topic_partition.clone(),
            partition_epoch: self.partition_epoch,
            from: pending.effective().iter().collect(),
            to: members(&proposal),
            why,
        };
        self.set_isr(pending);
        Effects { propose: Some(proposal), events: vec![event], ..Effects::default() }
    }

    fn set_isr(&mut self, isr: IsrState) {
        if let Role::Leader(leader) = &mut self.role {
            leader.isr = isr;
        }
    }

    /// Takes the answer to the proposal that was `sent` (H03, H13). An answer to anything but the
    /// proposal now in flight is ignored: metadata has overtaken it. On success, and on a refusal
    /// that is certain, the high watermark is evaluated at once (H04).
    pub fn on_alter_partition_response(
        &mut self,
        sent: &IsrProposal,
        response: &AlterPartitionResponse,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> Effects {
        let Some(isr) = self.isr().filter(|isr| isr.in_flight() == Some(sent)) else {
            return Effects::default();
        };
        let error = match response {
            AlterPartitionResponse::Success(confirmed) => {
                return self.on_isr_confirmed(confirmed, log, brokers, now);
            }
            AlterPartitionResponse::Error(error) => *error,
        };
        let (next, why) = match AlterPartitionErrorKind::of(error) {
            AlterPartitionErrorKind::Revert => (isr.revert(), Why::ProposalRejected),
            AlterPartitionErrorKind::AwaitMetadata => (isr.clone(), Why::AwaitingMetadata),
            AlterPartitionErrorKind::Retry => (isr.clone(), Why::ProposalUncertain),
        };
        let mut effects = Effects {
            propose_again: (why == Why::ProposalUncertain).then(|| sent.clone()),
            events: vec![Event::IsrRejected {
                partition: self.topic_partition.clone(),
                error_code: error.code(),
                proposed: members(sent),
                maximal: Nodes(next.maximal().into_iter().collect()),
                why,
            }],
            ..Effects::default()
        };
        self.set_isr(next);
        if why == Why::ProposalRejected {
            effects = effects.then(self.maybe_increment_high_watermark(
                log,
                brokers,
                now,
                Why::ProposalRejected,
            ));
        }
        effects
    }

    fn on_isr_confirmed(
        &mut self,
        confirmed: &ConfirmedPartition,
        log: &LogFacts,
        brokers: &dyn BrokerDirectory,
        now: Instant,
    ) -> Effects {
        if confirmed.leader_epoch != self.leader_epoch
            || confirmed.partition_epoch < self.partition_epoch
        {
            return Effects::default();
        }
        let isr = IsrState::committed(confirmed.isr.iter().copied());
        let event = Event::IsrChanged {
            partition: self.topic_partition.clone(),
            partition_epoch: confirmed.partition_epoch,
            from: self.isr().map(|isr| isr.effective().iter().collect()).unwrap_or_default(),
            to: isr.effective().iter().collect(),
            why: Why::IsrConfirmed,
        };
        self.partition_epoch = confirmed.partition_epoch;
        if let Role::Leader(leader) = &mut self.role {
            for id in confirmed.isr.iter().filter(|id| **id != self.node) {
                leader.followers.entry(*id).or_insert(ReplicaState::UNKNOWN);
            }
        }
        self.set_isr(isr);
        // A smaller ISR may complete a produce with NOT_ENOUGH_REPLICAS_AFTER_APPEND, or commit it.
        let effects = Effects {
            wake: super::Wake { produce: true, ..super::Wake::NONE },
            events: vec![event],
            ..Effects::default()
        };
        if bugs::is_on(Bug::WatermarkWaitsForNextFetch) {
            return effects; // wrong (KAFKA-13091): there may be no other fetch
        }
        effects.then(self.maybe_increment_high_watermark(log, brokers, now, Why::IsrConfirmed))
    }
}

fn members(proposal: &IsrProposal) -> Nodes {
    proposal.new_isr.iter().map(|member| &member.replica).collect()
}
