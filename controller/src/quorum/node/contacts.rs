//! What a leader knows of the other voters: whom it heard from when (its lease, Q03), who could take
//! over (Q02), and how far each one is (DescribeQuorum).

use std::collections::BTreeSet;

use protocol::types::NodeId;
use raft::StateRole;
use replication::time::{Instant, Now};

use super::QuorumNode;
use crate::quorum::{QuorumStorage, node_id, raft_id};

/// How far one voter is, as the leader sees it (DescribeQuorum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoterProgress {
    /// The voter.
    pub node_id: NodeId,
    /// The last offset known to be in its log; -1 when not known.
    pub last: i64,
    /// Wall clock of its last message, in milliseconds; -1 when none was heard.
    pub last_contact_ms: i64,
    /// Wall clock of the last time it had everything, in milliseconds; -1 when never.
    pub last_caught_up_ms: i64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Contact {
    at: Instant,
    at_ms: i64,
    caught_up_ms: i64,
}

impl<S: QuorumStorage> QuorumNode<S> {
    pub(super) fn note_contact(&mut self, from: u64, now: Now) {
        let last_index = self.raw.raft.raft_log.last_index();
        let matched = self.raw.raft.prs().get(from).map_or(0, |progress| progress.matched);
        let before = self.contacts.get(&from).map_or(-1, |contact| contact.caught_up_ms);
        let caught_up_ms = if matched == last_index { now.wall_clock_ms } else { before };
        let contact = Contact { at: now.monotonic, at_ms: now.wall_clock_ms, caught_up_ms };
        self.contacts.insert(from, contact);
    }

    /// Whether this leader heard from a majority within the fetch timeout, so that no other leader
    /// can have been elected unless voters restarted meanwhile (Q03). A single voter always has it.
    pub fn has_lease(&self, now: Now) -> bool {
        if self.raw.raft.state != StateRole::Leader {
            return false;
        }
        let fresh = |at: Instant| now.monotonic.since(at) < self.config.fetch_timeout;
        let heard = self.contacts.values().filter(|contact| fresh(contact.at)).count();
        fresh(self.leader_since) || heard + 1 >= self.config.majority()
    }

    /// Hands leadership to the voter that is furthest, if this member leads and another is heard
    /// from that is not in `lost`. Proposals are refused from now on until it is done or given up (one
    /// fetch timeout).
    pub fn resign(&mut self, lost: &BTreeSet<NodeId>, now: Now) -> Option<NodeId> {
        if self.raw.raft.state != StateRole::Leader {
            return None;
        }
        let fresh = |contact: &Contact| now.monotonic.since(contact.at) < self.config.fetch_timeout;
        let progress = self.raw.raft.prs();
        let successor = self
            .contacts
            .iter()
            .filter(|(id, contact)| {
                fresh(contact) && node_id(**id).is_some_and(|id| !lost.contains(&id))
            })
            .map(|(id, _)| (progress.get(*id).map_or(0, |progress| progress.matched), *id))
            .max_by_key(|(matched, id)| (*matched, std::cmp::Reverse(*id)))?
            .1;
        self.raw.transfer_leader(successor);
        self.after_input(now);
        node_id(successor)
    }

    /// Every voter's progress, this one's first by id order, as far as a leader knows it.
    pub fn voters(&self, now: Now) -> Vec<VoterProgress> {
        let raft = &self.raw.raft;
        let leads = raft.state == StateRole::Leader;
        let describe = |voter: &NodeId| {
            let id = raft_id(*voter);
            if id == raft.id {
                let last = raft.raft_log.last_index() as i64;
                let ms = now.wall_clock_ms;
                return VoterProgress {
                    node_id: *voter,
                    last,
                    last_contact_ms: ms,
                    last_caught_up_ms: ms,
                };
            }
            let contact = self.contacts.get(&id).filter(|_| leads);
            let matched = raft.prs().get(id).map(|progress| progress.matched as i64);
            VoterProgress {
                node_id: *voter,
                last: matched.filter(|_| contact.is_some()).unwrap_or(-1),
                last_contact_ms: contact.map_or(-1, |contact| contact.at_ms),
                last_caught_up_ms: contact.map_or(-1, |contact| contact.caught_up_ms),
            }
        };
        self.config.voters.iter().map(describe).collect()
    }
}
