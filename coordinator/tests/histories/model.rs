//! What must be true of every history, kept beside the shard in the plainest way.

use std::collections::BTreeMap;

/// What is known of a commit or a deletion that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// Acknowledged: nothing may take it back.
    Done,
    /// Refused: it must never be seen.
    Refused,
    /// Not answered, or the coordinator was lost meanwhile: it may be there or not.
    Unknown,
}

/// Something that changes the offsets of a group, in the order in which it was asked for.
#[derive(Clone, Debug)]
enum Change {
    Commit { partition: i32, offset: i64 },
    DeleteAll,
}

/// One group as its clients know it.
#[derive(Default, Debug)]
pub(crate) struct GroupModel {
    changes: Vec<(u64, Change, Fate)>,
    /// The assignment that each generation was given: which of the leader's requests made it.
    assignments: BTreeMap<i32, String>,
    /// Who has what, by generation: the part of the work, and the member or instance that got it.
    owners: BTreeMap<(i32, String), String>,
    last_generation: i32,
    /// How often the group was to be deleted: what was asked of an earlier one says nothing of this one.
    pub(crate) era: u32,
}

impl GroupModel {
    pub(crate) fn asks_to_commit(&mut self, token: u64, partition: i32, offset: i64) {
        self.changes.push((token, Change::Commit { partition, offset }, Fate::Unknown));
    }

    pub(crate) fn asks_to_delete(&mut self, token: u64) {
        self.changes.push((token, Change::DeleteAll, Fate::Unknown));
        // A group that is made anew begins its generations anew.
        self.assignments.clear();
        self.owners.clear();
        self.last_generation = 0;
        self.era += 1;
    }

    pub(crate) fn learns(&mut self, token: u64, fate: Fate) {
        for (own, _, known) in &mut self.changes {
            if *own == token {
                *known = fate;
            }
        }
    }

    /// An offset was read: it is the last that was acknowledged, or one that was asked for later.
    pub(crate) fn reads(&self, partition: i32, offset: i64) {
        let mut allowed = Vec::new();
        for (_, change, fate) in self.changes.iter().rev() {
            let value = match change {
                Change::Commit { partition: own, offset } if *own == partition => *offset,
                Change::Commit { .. } => continue,
                Change::DeleteAll => -1,
            };
            match fate {
                Fate::Refused => continue,
                Fate::Unknown => allowed.push(value),
                Fate::Done => {
                    allowed.push(value);
                    assert!(allowed.contains(&offset), "read {offset}, not one of {allowed:?}");
                    return;
                }
            }
        }
        allowed.push(-1);
        assert!(allowed.contains(&offset), "read {offset}, not one of {allowed:?}");
    }

    /// A member was told of a generation.
    pub(crate) fn joins(&self, generation: i32) {
        let last = self.last_generation;
        assert!(generation >= last, "generation {generation} after {last} had an assignment");
    }

    /// A member was given its assignment: `round` names the leader's request, `part` the work.
    pub(crate) fn is_assigned(&mut self, generation: i32, owner: &str, assignment: &str) {
        let last = self.last_generation;
        assert!(generation >= last, "an assignment of {generation} after one of {last}");
        self.last_generation = generation;
        let Some((round, part)) = assignment.split_once(':') else { return };
        let known = self.assignments.entry(generation).or_insert_with(|| round.to_owned());
        assert_eq!(known, round, "two assignments in generation {generation}");
        let key = (generation, part.to_owned());
        let known = self.owners.entry(key).or_insert_with(|| owner.to_owned());
        assert_eq!(known, owner, "{part} has two owners in generation {generation}");
    }
}
