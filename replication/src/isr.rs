//! The in-sync replicas and their pending change (KIP-497).
//!
//! One enum, so that a second AlterPartition in flight cannot be written down. Every variant knows
//! two sets:
//!
//! - the **maximal** ISR: all who may be in the ISR at the controller once the answer is known. The
//!   high watermark waits for all of them (H03), since any of them may be elected;
//! - the **effective** ISR: the last one the controller confirmed. Only it counts towards
//!   min.insync.replicas before an append (H03, H06).
//!
//! While an expansion is pending the maximal ISR has the newcomer already; while a shrink is pending
//! it still has those proposed to leave.

use std::collections::BTreeSet;

use protocol::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, Offset, PartitionEpoch};

use crate::bugs::{self, Bug};

/// Whether a leader that was elected uncleanly has recovered (KIP-704).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LeaderRecoveryState {
    /// The ordinary state; wire value 0.
    #[default]
    Recovered,
    /// Elected from outside the ISR and not confirmed yet; wire value 1.
    Recovering,
}

impl LeaderRecoveryState {
    /// The value in AlterPartition.
    pub fn wire(self) -> i8 {
        match self {
            LeaderRecoveryState::Recovered => 0,
            LeaderRecoveryState::Recovering => 1,
        }
    }

    /// Reads the value in AlterPartition; `None` for any but 0 and 1.
    pub fn from_wire(value: i8) -> Option<Self> {
        match value {
            0 => Some(LeaderRecoveryState::Recovered),
            1 => Some(LeaderRecoveryState::Recovering),
            _ => None,
        }
    }
}

/// A member of a proposed ISR exactly as it was judged (H11d).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProposedMember {
    /// The replica.
    pub replica: NodeId,
    /// The broker epoch of the state that was judged; [`BrokerEpoch::NONE`] for an ISR member that
    /// has not fetched from this leader yet.
    pub broker_epoch: BrokerEpoch,
    /// The log end of the state that was judged. Not sent; kept for the trace.
    pub log_end_offset: Offset,
}

/// What to ask of the controller: one AlterPartition entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsrProposal {
    /// The leader epoch under which it is asked.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch that the controller must still have.
    pub partition_epoch: PartitionEpoch,
    /// The new ISR, by node id.
    pub new_isr: Vec<ProposedMember>,
    /// Always recovered: a leader that can change its ISR has finished its recovery.
    pub leader_recovery_state: LeaderRecoveryState,
}

impl IsrProposal {
    /// The proposed members' ids.
    pub fn member_ids(&self) -> BTreeSet<NodeId> {
        self.new_isr.iter().map(|member| member.replica).collect()
    }
}

/// The answer to an [`IsrProposal`], as far as the leader's reaction differs (H03, H13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AlterPartitionResponse {
    /// Error 0: what the controller holds now.
    Success(ConfirmedPartition),
    /// The partition's or the whole request's error, or REQUEST_TIMED_OUT when no answer came.
    Error(ErrorCode),
}

/// A partition as a successful AlterPartition answer describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfirmedPartition {
    /// The leader.
    pub leader: NodeId,
    /// Its epoch.
    pub leader_epoch: LeaderEpoch,
    /// The partition epoch after the change.
    pub partition_epoch: PartitionEpoch,
    /// The ISR after the change.
    pub isr: Vec<NodeId>,
    /// The recovery state after the change.
    pub leader_recovery_state: LeaderRecoveryState,
}

/// What an error in an AlterPartition answer asks of the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AlterPartitionErrorKind {
    /// 107 INELIGIBLE_REPLICA, 55 OPERATION_NOT_ATTEMPTED: the change certainly did not happen; go
    /// back to the confirmed ISR.
    Revert,
    /// 3, 42, 74, 95, 100, 108: the controller knows better than we do; keep the maximal ISR until
    /// its metadata arrives.
    AwaitMetadata,
    /// 7, 41, 77 and all others: whether it happened is not known; ask the same again.
    Retry,
}

impl AlterPartitionErrorKind {
    /// The kind of an error.
    pub fn of(error: ErrorCode) -> Self {
        use AlterPartitionErrorKind::{AwaitMetadata, Retry, Revert};
        match error {
            ErrorCode::IneligibleReplica | ErrorCode::OperationNotAttempted => Revert,
            ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId
            | ErrorCode::InvalidRequest
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::InvalidUpdateVersion
            | ErrorCode::NewLeaderElected => AwaitMetadata,
            _ => Retry,
        }
    }
}

/// The ISR at the leader: confirmed, or with one change in flight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IsrState {
    /// Nothing is in flight.
    Committed {
        /// The ISR that the controller confirmed.
        isr: BTreeSet<NodeId>,
    },
    /// A replica was proposed to join.
    PendingExpand {
        /// The ISR that the controller confirmed.
        committed: BTreeSet<NodeId>,
        /// Who is to join.
        joining: NodeId,
        /// What was sent.
        proposal: IsrProposal,
    },
    /// Replicas were proposed to leave.
    PendingShrink {
        /// The ISR that the controller confirmed.
        committed: BTreeSet<NodeId>,
        /// Who is to leave.
        leaving: BTreeSet<NodeId>,
        /// What was sent.
        proposal: IsrProposal,
    },
}

impl IsrState {
    /// A confirmed ISR.
    pub fn committed(isr: impl IntoIterator<Item = NodeId>) -> Self {
        IsrState::Committed { isr: isr.into_iter().collect() }
    }

    /// The ISR that the controller confirmed last; what min.insync.replicas counts.
    pub fn effective(&self) -> &BTreeSet<NodeId> {
        match self {
            IsrState::Committed { isr } => isr,
            IsrState::PendingExpand { committed, .. }
            | IsrState::PendingShrink { committed, .. } => committed,
        }
    }

    /// Whether the controller may, now or after the pending answer, hold `replica` in the ISR.
    pub fn is_maximal_member(&self, replica: NodeId) -> bool {
        if bugs::is_on(Bug::WatermarkFromProposedIsr)
            && let IsrState::PendingShrink { leaving, .. } = self
        {
            // Wrong (KIP-497): the controller may refuse, and elect who was to leave.
            return self.effective().contains(&replica) && !leaving.contains(&replica);
        }
        if bugs::is_on(Bug::WatermarkFromCommittedIsr) {
            // Wrong (KIP-497): the controller may have agreed already, and elect who joined.
            return self.effective().contains(&replica);
        }
        self.effective().contains(&replica)
            || matches!(self, IsrState::PendingExpand { joining, .. } if *joining == replica)
    }

    /// All who may be in the controller's ISR.
    pub fn maximal(&self) -> BTreeSet<NodeId> {
        let mut maximal = self.effective().clone();
        if let IsrState::PendingExpand { joining, .. } = self {
            maximal.insert(*joining);
        }
        maximal
    }

    /// Size of the maximal ISR.
    pub fn maximal_len(&self) -> usize {
        self.effective().len() + usize::from(matches!(self, IsrState::PendingExpand { .. }))
    }

    /// The proposal in flight.
    pub fn in_flight(&self) -> Option<&IsrProposal> {
        match self {
            IsrState::Committed { .. } => None,
            IsrState::PendingExpand { proposal, .. } | IsrState::PendingShrink { proposal, .. } => {
                Some(proposal)
            }
        }
    }

    /// The state with `joining` proposed. Panics when a change is in flight or it is a member: both
    /// are for the caller to have checked.
    #[must_use]
    pub fn propose_expand(&self, joining: NodeId, proposal: IsrProposal) -> IsrState {
        let IsrState::Committed { isr } = self else {
            panic!("a second AlterPartition in flight: {self:?}, then {proposal:?}");
        };
        assert!(!isr.contains(&joining), "{joining} is in the ISR {isr:?} already");
        IsrState::PendingExpand { committed: isr.clone(), joining, proposal }
    }

    /// The state with `leaving` proposed to go. Panics when a change is in flight, or when nobody or
    /// a non-member would leave.
    #[must_use]
    pub fn propose_shrink(&self, leaving: BTreeSet<NodeId>, proposal: IsrProposal) -> IsrState {
        let IsrState::Committed { isr } = self else {
            panic!("a second AlterPartition in flight: {self:?}, then {proposal:?}");
        };
        assert!(
            !leaving.is_empty() && leaving.is_subset(isr),
            "{leaving:?} cannot leave the ISR {isr:?}"
        );
        IsrState::PendingShrink { committed: isr.clone(), leaving, proposal }
    }

    /// The confirmed ISR without the pending change.
    #[must_use]
    pub fn revert(&self) -> IsrState {
        IsrState::Committed { isr: self.effective().clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(ids: &[i32]) -> BTreeSet<NodeId> {
        ids.iter().map(|id| NodeId(*id)).collect()
    }

    fn proposal(members: &[i32]) -> IsrProposal {
        IsrProposal {
            leader_epoch: LeaderEpoch(1),
            partition_epoch: PartitionEpoch(4),
            new_isr: members
                .iter()
                .map(|id| ProposedMember {
                    replica: NodeId(*id),
                    broker_epoch: BrokerEpoch(1),
                    log_end_offset: Offset(10),
                })
                .collect(),
            leader_recovery_state: LeaderRecoveryState::Recovered,
        }
    }

    #[test]
    fn h03_a_pending_expansion_counts_for_the_watermark_but_not_for_min_isr() {
        let pending =
            IsrState::committed(ids(&[1, 2])).propose_expand(NodeId(3), proposal(&[1, 2, 3]));
        assert_eq!(pending.maximal(), ids(&[1, 2, 3]));
        assert_eq!(pending.maximal_len(), 3);
        assert_eq!(*pending.effective(), ids(&[1, 2]));
        assert_eq!(pending.revert(), IsrState::committed(ids(&[1, 2])));
    }

    #[test]
    fn h03_a_pending_shrink_keeps_those_who_are_to_leave() {
        let pending =
            IsrState::committed(ids(&[1, 2, 3])).propose_shrink(ids(&[2]), proposal(&[1, 3]));
        assert_eq!(pending.maximal(), ids(&[1, 2, 3]));
        assert_eq!(pending.effective().len(), 3);
        assert!(pending.is_maximal_member(NodeId(2)));
    }

    #[test]
    #[should_panic(expected = "second AlterPartition")]
    fn h03_a_second_proposal_in_flight_cannot_be_made() {
        let pending =
            IsrState::committed(ids(&[1, 2])).propose_expand(NodeId(3), proposal(&[1, 2, 3]));
        let _ = pending.propose_shrink(ids(&[2]), proposal(&[1]));
    }

    #[test]
    fn h13_every_error_code_has_its_reaction() {
        use AlterPartitionErrorKind::*;
        for (code, kind) in [
            (107, Revert),
            (55, Revert),
            (74, AwaitMetadata),
            (95, AwaitMetadata),
            (42, AwaitMetadata),
            (3, AwaitMetadata),
            (100, AwaitMetadata),
            (108, AwaitMetadata),
            (41, Retry),
            (7, Retry),
            (77, Retry),
            (-1, Retry),
        ] {
            assert_eq!(
                AlterPartitionErrorKind::of(ErrorCode::from_code(code)),
                kind,
                "code {code}"
            );
        }
    }
}
