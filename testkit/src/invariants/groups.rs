//! What members of a consumer group may see: one owner of a partition in a generation (G1), generations
//! that do not go back for a member (G2), and committed offsets that do not go back once they were
//! acknowledged (G3).
//!
//! Nor does anybody read what another one reads (G4), whatever the protocol: a member may read on for its
//! session's time (or the time for giving partitions up, if that is shorter) after it last asked something
//! that the true coordinator has answered; then it must suppose that others read.
//!
//! G2 holds from a generation with an assignment on. One that is still being formed is in nobody's log, as
//! in Kafka; a failover forgets it, and the next one may have its number.
//!
//! G3 supposes members that commit growing offsets, and that begin anew under another member id when they
//! do not know how a commit ended: then no commit of theirs can arrive late and be taken.

use std::collections::BTreeMap;

use replication::time::Instant;

use super::Violation;

/// What a member of a group learned or did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupEvent {
    /// It joined a generation.
    Joined {
        /// The member.
        member: String,
        /// The generation.
        generation: i32,
    },
    /// It was given partitions.
    Assigned {
        /// The member.
        member: String,
        /// In this generation.
        generation: i32,
        /// Its partitions.
        partitions: Vec<i32>,
    },
    /// It came to an epoch of the new protocol (KIP-848).
    Epoch {
        /// The member.
        member: String,
        /// Its epoch.
        epoch: i32,
        /// It has joined with that: the group may be another one of the same name.
        joins: bool,
    },
    /// What it reads, from now on.
    Holds {
        /// The client, whatever member ids it had.
        owner: u32,
        /// The partitions.
        partitions: Vec<i32>,
        /// Now.
        now: Instant,
        /// Until when it may read them without another word from the coordinator, if that is new.
        until: Option<Instant>,
    },
    /// A commit was acknowledged.
    Committed {
        /// The partition.
        partition: i32,
        /// The offset.
        offset: i64,
    },
    /// An offset was read, that was asked for when `at_least` was acknowledged.
    Fetched {
        /// The partition.
        partition: i32,
        /// The offset; -1 for none.
        offset: i64,
        /// What had been acknowledged before the question was asked.
        at_least: i64,
    },
}

/// The memory of one group.
#[derive(Debug, Default)]
pub(super) struct GroupMemory {
    /// The last generation in which each member was given partitions, or none.
    generations: BTreeMap<String, i32>,
    owners: BTreeMap<(i32, i32), String>,
    committed: BTreeMap<i32, i64>,
    /// The last epoch of each member of the new protocol.
    epochs: BTreeMap<String, i32>,
    /// What each client reads, and until when it may.
    held: BTreeMap<u32, (Vec<i32>, Instant)>,
}

impl GroupMemory {
    /// The newest acknowledged offset of a partition; -1 for none.
    pub(super) fn committed(&self, partition: i32) -> i64 {
        self.committed.get(&partition).copied().unwrap_or(-1)
    }

    pub(super) fn on_event(&mut self, event: GroupEvent, found: &mut Vec<Violation>) {
        let mut broken = |invariant, what| found.push(Violation { invariant, what });
        match event {
            GroupEvent::Joined { member, generation } => {
                let before = self.generations.get(&member);
                if let Some(before) = before.filter(|before| **before > generation) {
                    broken("G2", format!("{member} went from generation {before} to {generation}"));
                }
            }
            GroupEvent::Assigned { member, generation, partitions } => {
                self.generations.insert(member.clone(), generation);
                for partition in partitions {
                    let key = (generation, partition);
                    let owner = self.owners.entry(key).or_insert_with(|| member.clone());
                    if *owner != member {
                        let what = format!(
                            "partition {partition} belongs to {owner} and {member} in generation \
                             {generation}"
                        );
                        broken("G1", what);
                    }
                }
            }
            GroupEvent::Epoch { member, epoch, joins } => {
                let before = self.epochs.insert(member.clone(), epoch);
                if let Some(before) = before.filter(|before| !joins && *before > epoch) {
                    broken("G2", format!("{member} went from epoch {before} to {epoch}"));
                }
            }
            GroupEvent::Holds { owner, partitions, now, until } => {
                let held = self.held.entry(owner).or_insert((Vec::new(), Instant::ZERO));
                held.0.clone_from(&partitions);
                held.1 = until.unwrap_or(held.1).max(held.1);
                if held.1 <= now {
                    return;
                }
                for (other, (theirs, until)) in &self.held {
                    let both = partitions.iter().find(|partition| theirs.contains(partition));
                    if let Some(both) = both.filter(|_| *other != owner && *until > now) {
                        let what = format!(
                            "partition {both} is read by client {owner}, and by client {other} who \
                             may do so until {:?}",
                            until.0
                        );
                        broken("G4", what);
                    }
                }
            }
            GroupEvent::Committed { partition, offset } => {
                let known = self.committed.entry(partition).or_insert(-1);
                *known = offset.max(*known);
            }
            GroupEvent::Fetched { partition, offset, at_least } => {
                if offset < at_least {
                    let what = format!(
                        "offset {offset} of partition {partition} was read after {at_least} had \
                         been acknowledged"
                    );
                    broken("G3", what);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(events: &[GroupEvent]) -> Vec<&'static str> {
        let mut memory = GroupMemory::default();
        let mut found = Vec::new();
        for event in events {
            memory.on_event(event.clone(), &mut found);
        }
        found.into_iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn g1_a_partition_has_one_owner_in_a_generation_and_may_have_another_in_the_next() {
        let assigned = |member: &str, generation, partitions: &[i32]| GroupEvent::Assigned {
            member: member.into(),
            generation,
            partitions: partitions.to_vec(),
        };
        let fine = [assigned("a", 1, &[0, 1]), assigned("a", 1, &[0, 1]), assigned("b", 2, &[1])];
        assert!(found(&fine).is_empty());
        assert_eq!(found(&[assigned("a", 1, &[0, 1]), assigned("b", 1, &[1])]), ["G1"]);
    }

    #[test]
    fn g2_a_members_generation_does_not_go_back_once_it_had_an_assignment() {
        let joined =
            |member: &str, generation| GroupEvent::Joined { member: member.into(), generation };
        let assigned = |member: &str, generation| GroupEvent::Assigned {
            member: member.into(),
            generation,
            partitions: Vec::new(),
        };
        let fine = [joined("a", 3), assigned("a", 3), joined("a", 3), joined("b", 1)];
        assert!(found(&fine).is_empty());
        assert!(found(&[joined("a", 3), joined("a", 2)]).is_empty(), "forgotten by a failover");
        assert_eq!(found(&[joined("a", 3), assigned("a", 3), joined("a", 2)]), ["G2"]);
    }

    #[test]
    fn g2_a_members_epoch_does_not_go_back_until_it_joins_anew() {
        let at =
            |member: &str, epoch, joins| GroupEvent::Epoch { member: member.into(), epoch, joins };
        let [first, later] = [at("a", 3, true), at("a", 5, false)];
        let again = at("a", 1, true);
        assert!(found(&[first.clone(), at("b", 1, true), later.clone(), again]).is_empty());
        assert_eq!(found(&[first, later, at("a", 4, false)]), ["G2"]);
    }

    #[test]
    fn g4_nobody_reads_what_another_one_may_still_read() {
        let second = |seconds| Instant(std::time::Duration::from_secs(seconds));
        let holds = |owner, partitions: &[i32], now, until: Option<u64>| GroupEvent::Holds {
            owner,
            partitions: partitions.to_vec(),
            now: second(now),
            until: until.map(second),
        };
        let first = holds(1, &[0, 1], 1, Some(5));
        let given_up = holds(1, &[0], 2, None);
        let fine = [first.clone(), given_up, holds(2, &[1], 3, Some(9))];
        assert!(found(&fine).is_empty());
        let late = [first.clone(), holds(2, &[1], 5, Some(9))];
        assert!(found(&late).is_empty(), "the first one's time is up");
        assert_eq!(found(&[first.clone(), holds(2, &[1], 4, Some(9))]), ["G4"]);
        let not_renewed = [first.clone(), holds(2, &[2], 4, Some(9)), holds(2, &[0], 4, None)];
        assert_eq!(found(&not_renewed), ["G4"]);
    }

    #[test]
    fn g3_an_acknowledged_offset_is_not_taken_back() {
        let fetched = |offset, at_least| GroupEvent::Fetched { partition: 0, offset, at_least };
        assert!(found(&[fetched(5, 5), fetched(7, 5), fetched(-1, -1)]).is_empty());
        assert_eq!(found(&[fetched(4, 5)]), ["G3"]);
        assert_eq!(found(&[fetched(-1, 0)]), ["G3"]);
    }
}
