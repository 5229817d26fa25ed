//! The reconciliation of one member with its target assignment (KIP-848): a function of the member,
//! the target, what the client says it still owns, and what other members hold.
//!
//! The rule that keeps a partition with one owner: what a member must give up stays with it until the
//! client reports a set of partitions without it, and nobody is given a partition that another member
//! holds. Until it has given up, a member stays in its epoch.
//!
//! | state | what moves it |
//! |---|---|
//! | Stable | a new target epoch; a change of its own subscription |
//! | UnrevokedPartitions | the client reports what it owns, and nothing of it is to be given up |
//! | UnreleasedPartitions | every heartbeat: a partition may have become free |

use std::collections::{BTreeMap, BTreeSet};

use protocol::Uuid;

use super::member::{Member, MemberState, Owned};
use crate::assignor::Partitions;

/// What a member is reconciled with.
pub(super) struct Reconciliation<'a> {
    /// The epoch of the target assignment.
    pub target_epoch: i32,
    /// The member's part of it.
    pub target: &'a Partitions,
    /// The ids of the topics it subscribes to now.
    pub subscribed: &'a BTreeSet<Uuid>,
    /// Its subscription changed with this very request: topics it dropped are taken away at once,
    /// even before there is a new target.
    pub subscription_changed: bool,
    /// What the client says it owns, if it says.
    pub owned: Option<&'a Partitions>,
    /// Whether no member holds the partition.
    pub is_free: &'a dyn Fn(Uuid, i32) -> bool,
}

/// The member was written by a release that knows more states; it must start over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UnknownState;

/// What must go, what stays, what can be had, and whether something is still held by others.
struct Difference {
    stay: Owned,
    go: Owned,
    come: Owned,
    unreleased: bool,
}

impl Reconciliation<'_> {
    /// The member after this request. Equal to the one before when nothing changes.
    pub(super) fn apply(&self, member: &Member) -> Result<Member, UnknownState> {
        Ok(match member.state {
            MemberState::Stable if member.epoch != self.target_epoch => {
                self.next(member, member.epoch)
            }
            MemberState::Stable if self.subscription_changed => self.drop_unsubscribed(member),
            MemberState::Stable => member.clone(),
            MemberState::UnrevokedPartitions if self.client_owns(&member.revoking) => {
                if self.subscription_changed {
                    self.drop_unsubscribed(member)
                } else {
                    member.clone()
                }
            }
            MemberState::UnrevokedPartitions | MemberState::UnreleasedPartitions => {
                self.next(member, member.epoch)
            }
            MemberState::Unknown(_) => {
                if self.owned.is_none_or(|owned| !owned.is_empty()) {
                    return Err(UnknownState);
                }
                self.next(member, self.target_epoch)
            }
        })
    }

    /// Whether the client may still have any of these: it says so, or does not say.
    fn client_owns(&self, partitions: &Owned) -> bool {
        let Some(owned) = self.owned else { return true };
        owned.iter().any(|(topic, of_topic)| {
            partitions
                .get(topic)
                .is_some_and(|held| of_topic.iter().any(|at| held.contains_key(at)))
        })
    }

    fn next(&self, member: &Member, epoch: i32) -> Member {
        let Difference { mut stay, go, come, unreleased } = self.difference(member);
        let mut next = member.clone();
        if !go.is_empty() && self.client_owns(&go) {
            next.state = MemberState::UnrevokedPartitions;
            next.advance_to(epoch);
            next.assigned = stay;
            next.revoking = go;
            return next;
        }
        for (topic, partitions) in come {
            stay.entry(topic).or_default().extend(partitions);
        }
        next.state =
            if unreleased { MemberState::UnreleasedPartitions } else { MemberState::Stable };
        next.advance_to(self.target_epoch);
        next.assigned = stay;
        next.revoking = Owned::new();
        next
    }

    fn difference(&self, member: &Member) -> Difference {
        let mut difference = Difference {
            stay: Owned::new(),
            go: Owned::new(),
            come: Owned::new(),
            unreleased: false,
        };
        for (topic, partitions) in &member.assigned {
            let target = self.target_of(topic);
            for (partition, epoch) in partitions {
                let side = match target {
                    Some(target) if target.contains(partition) => &mut difference.stay,
                    _ => &mut difference.go,
                };
                side.entry(*topic).or_default().insert(*partition, *epoch);
            }
        }
        for topic in self.target.keys() {
            let Some(target) = self.target_of(topic) else { continue };
            let has = member.assigned.get(topic);
            for partition in target {
                if has.is_some_and(|has| has.contains_key(partition)) {
                    continue;
                }
                // What it gave up itself a moment ago is nobody else's.
                let own = member.revoking.get(topic).is_some_and(|of| of.contains_key(partition));
                if own || (self.is_free)(*topic, *partition) {
                    let come: &mut BTreeMap<i32, i32> = difference.come.entry(*topic).or_default();
                    come.insert(*partition, self.target_epoch);
                } else {
                    difference.unreleased = true;
                }
            }
        }
        difference
    }

    /// What the target gives of the topic; nothing once the member has unsubscribed.
    fn target_of(&self, topic: &Uuid) -> Option<&BTreeSet<i32>> {
        self.target.get(topic).filter(|_| self.subscribed.contains(topic))
    }

    /// Takes the topics away that the member no longer subscribes to; its epoch and the rest stay.
    fn drop_unsubscribed(&self, member: &Member) -> Member {
        let mut next = member.clone();
        for (topic, partitions) in &member.assigned {
            if !self.subscribed.contains(topic) {
                next.assigned.remove(topic);
                next.revoking.entry(*topic).or_default().extend(partitions);
            }
        }
        if next.assigned.len() == member.assigned.len() {
            return next;
        }
        next.advance_to(member.epoch);
        if self.client_owns(&next.revoking) {
            next.state = MemberState::UnrevokedPartitions;
        } else {
            next.revoking.clone_from(&member.revoking);
        }
        next
    }
}
