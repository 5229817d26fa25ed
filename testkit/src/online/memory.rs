//! What was seen of a running cluster so far, and what must not be seen any more. Nothing in here asks a
//! broker: the looks come in, the broken invariants go out.

use std::collections::BTreeMap;

use protocol::Uuid;

use crate::invariants::Violation;

/// Batches that are remembered of one partition; the oldest are forgotten first.
const BATCHES: usize = 4096;

/// A partition of a topic, which may be deleted and made anew under its name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct WatchedPartition {
    /// The topic's id.
    pub topic_id: Uuid,
    /// The topic's name.
    pub topic: String,
    /// The partition's index.
    pub index: i32,
}

impl WatchedPartition {
    fn name(&self) -> String {
        format!("{}-{}", self.topic, self.index)
    }
}

/// What may happen to the records of a topic by intention.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promises {
    /// It is compacted: batches may change and go.
    pub is_compacted: bool,
    /// A leader may be elected that lacks committed records.
    pub unclean_elections: bool,
}

/// A batch as a reader can tell it from another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenBatch {
    /// Offset of its first record.
    pub base: i64,
    /// Offset behind its last record.
    pub next: i64,
    /// The leader epoch it was written in.
    pub epoch: i32,
    /// Its checksum.
    pub crc: u32,
}

/// One answer of one replica: the batches from an offset on, all of them below its high watermark.
#[derive(Clone, Debug)]
pub struct SeenRead<'a> {
    /// The broker that answered.
    pub node: i32,
    /// Its log start.
    pub log_start: i64,
    /// What it gave, in order and without holes in between.
    pub batches: &'a [SeenBatch],
}

#[derive(Debug, Default)]
struct Memory {
    /// Who led in each epoch, and who said so first.
    leaders: BTreeMap<i32, (i32, i32)>,
    /// The highest latest offset, the epoch of the leader that told it, and its id.
    latest: Option<(i64, i32, i32)>,
    /// Batches by base offset, and the broker that gave each first.
    batches: BTreeMap<i64, (SeenBatch, i32)>,
}

/// Watches what clients can see of a cluster: I1, I6, I8 and I10 of the list of rules.
#[derive(Debug, Default)]
pub struct OnlineChecker {
    partitions: BTreeMap<WatchedPartition, Memory>,
    batches_compared: u64,
}

impl OnlineChecker {
    /// How many batches were compared with what another replica, or the same one earlier, gave.
    pub fn batches_compared(&self) -> u64 {
        self.batches_compared
    }

    /// The oldest offset that can still be compared.
    pub fn oldest(&self, partition: &WatchedPartition) -> Option<i64> {
        Some(*self.partitions.get(partition)?.batches.first_key_value()?.0)
    }

    /// Forgets partitions that are not there any more.
    pub fn keep_only(&mut self, mut is_there: impl FnMut(&WatchedPartition) -> bool) {
        self.partitions.retain(|partition, _| is_there(partition));
    }

    /// Broker `asked` says that `leader` leads in `epoch` (I10: one leader in each epoch). Gives whether
    /// the epoch is new.
    pub fn on_leader(
        &mut self,
        partition: &WatchedPartition,
        asked: i32,
        leader: i32,
        epoch: i32,
        found: &mut Vec<Violation>,
    ) -> bool {
        if leader < 0 || epoch < 0 {
            return false;
        }
        let memory = self.partitions.entry(partition.clone()).or_default();
        let newest = memory.leaders.last_key_value().map(|(epoch, _)| *epoch);
        let (known, teller) = *memory.leaders.entry(epoch).or_insert((leader, asked));
        if known != leader {
            found.push(violation(
                "I10",
                partition,
                format!("in leader epoch {epoch} broker {known} leads as broker {teller} says, and broker {leader} as broker {asked} says"),
            ));
        }
        newest.is_none_or(|newest| epoch > newest)
    }

    /// The leader of `epoch` says what the latest offset is (I8, KIP-207: it does not go back).
    pub fn on_latest(
        &mut self,
        partition: &WatchedPartition,
        promises: Promises,
        (offset, epoch, node): (i64, i32, i32),
        found: &mut Vec<Violation>,
    ) {
        let memory = self.partitions.entry(partition.clone()).or_default();
        if let Some((highest, then, teller)) = memory.latest
            && offset < highest
        {
            if epoch >= then && !promises.unclean_elections {
                found.push(violation(
                    "I8",
                    partition,
                    format!("the latest offset was {highest} (broker {teller}, leader epoch {then}) and is {offset} now (broker {node}, leader epoch {epoch})"),
                ));
            }
            if epoch < then {
                return;
            }
        }
        memory.latest = Some((offset, epoch, node));
    }

    /// A replica gave committed batches. They are those that others gave (I1), and those that were there
    /// before (I6).
    pub fn on_read(
        &mut self,
        partition: &WatchedPartition,
        promises: Promises,
        read: &SeenRead<'_>,
        found: &mut Vec<Violation>,
    ) {
        let (Some(first), Some(last)) = (read.batches.first(), read.batches.last()) else {
            return;
        };
        if promises.is_compacted || promises.unclean_elections {
            return;
        }
        let memory = self.partitions.entry(partition.clone()).or_default();
        let node = read.node;
        for batch in read.batches {
            match memory.batches.get(&batch.base) {
                None => {}
                Some((known, _)) if known == batch => self.batches_compared += 1,
                Some((known, teller)) => found.push(violation(
                    if *teller == node { "I6" } else { "I1" },
                    partition,
                    format!(
                        "broker {teller} gave {} and broker {node} gives {}",
                        told(known),
                        told(batch)
                    ),
                )),
            }
        }
        let given =
            |base: &i64| read.batches.binary_search_by_key(base, |batch| batch.base).is_ok();
        let lost = memory.batches.range(first.base.max(read.log_start)..last.next);
        for (base, (known, teller)) in lost.filter(|(base, _)| !given(base)) {
            found.push(violation(
                "I6",
                partition,
                format!(
                    "broker {teller} gave {}, and broker {node} has nothing that begins at {base}",
                    told(known)
                ),
            ));
        }
        for batch in read.batches {
            memory.batches.entry(batch.base).or_insert((*batch, node));
        }
        while memory.batches.len() > BATCHES {
            memory.batches.pop_first();
        }
    }
}

fn told(batch: &SeenBatch) -> String {
    let SeenBatch { base, next, epoch, crc } = batch;
    format!("the batch [{base},{next}) of epoch {epoch} with checksum {crc:08x}")
}

fn violation(invariant: &'static str, partition: &WatchedPartition, what: String) -> Violation {
    Violation { invariant, what: format!("{}: {what}", partition.name()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Promises = Promises { is_compacted: false, unclean_elections: false };

    fn partition() -> WatchedPartition {
        WatchedPartition { topic_id: Uuid([1; 16]), topic: "t".into(), index: 0 }
    }

    fn batch(base: i64, next: i64, epoch: i32, crc: u32) -> SeenBatch {
        SeenBatch { base, next, epoch, crc }
    }

    fn ids(found: &[Violation]) -> Vec<&str> {
        found.iter().map(|violation| violation.invariant).collect()
    }

    #[test]
    fn i10_an_epoch_has_one_leader_whoever_is_asked() {
        let (mut checker, mut found) = (OnlineChecker::default(), Vec::new());
        assert!(checker.on_leader(&partition(), 1, 1, 4, &mut found));
        assert!(!checker.on_leader(&partition(), 2, 1, 4, &mut found));
        assert!(checker.on_leader(&partition(), 2, 2, 5, &mut found));
        // Nobody leads, or a broker that lags behind: no news.
        assert!(!checker.on_leader(&partition(), 3, -1, 6, &mut found));
        assert!(!checker.on_leader(&partition(), 3, 1, 4, &mut found));
        assert!(found.is_empty(), "{found:?}");
        checker.on_leader(&partition(), 3, 3, 5, &mut found);
        assert_eq!(ids(&found), ["I10"]);
        // A topic made anew begins anew.
        let anew = WatchedPartition { topic_id: Uuid([2; 16]), ..partition() };
        checker.on_leader(&anew, 3, 3, 5, &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn i8_latest_offsets_do_not_go_back_but_for_deposed_leaders_and_unclean_elections() {
        let (mut checker, mut found) = (OnlineChecker::default(), Vec::new());
        for latest in [(10, 1, 1), (10, 2, 2), (12, 2, 2), (11, 1, 1)] {
            checker.on_latest(&partition(), PLAIN, latest, &mut found);
        }
        assert!(found.is_empty(), "{found:?}");
        checker.on_latest(&partition(), PLAIN, (11, 3, 1), &mut found);
        assert_eq!(ids(&found), ["I8"]);
        // Told once; from there it counts on.
        checker.on_latest(&partition(), PLAIN, (11, 3, 1), &mut found);
        assert_eq!(found.len(), 1);
        let unclean = Promises { unclean_elections: true, ..PLAIN };
        checker.on_latest(&partition(), unclean, (3, 4, 1), &mut found);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn i1_i6_batches_are_the_same_on_every_replica_and_stay() {
        let (mut checker, mut found) = (OnlineChecker::default(), Vec::new());
        let mut read = |checker: &mut OnlineChecker, node, log_start, batches: &[SeenBatch]| {
            found.clear();
            let read = SeenRead { node, log_start, batches };
            checker.on_read(&partition(), PLAIN, &read, &mut found);
            ids(&found).join(" ")
        };
        let all = [batch(0, 5, 1, 7), batch(5, 6, 1, 8), batch(6, 9, 2, 9)];
        assert_eq!(read(&mut checker, 1, 0, &all), "");
        assert_eq!(read(&mut checker, 2, 0, &all[..2]), "");
        assert_eq!(checker.batches_compared(), 2);
        assert_eq!(read(&mut checker, 2, 0, &[batch(0, 5, 1, 6)]), "I1", "another checksum");
        assert_eq!(read(&mut checker, 2, 0, &[batch(0, 5, 2, 7)]), "I1", "another epoch");
        assert_eq!(read(&mut checker, 1, 0, &[batch(0, 5, 1, 6)]), "I6", "it was another before");
        assert_eq!(read(&mut checker, 1, 0, &[all[0], all[2]]), "I6", "the one between is gone");
        assert_eq!(read(&mut checker, 2, 0, &[batch(0, 9, 1, 7)]), "I1 I6 I6");
        assert_eq!(read(&mut checker, 1, 5, &all[1..]), "", "retention took the first");
        assert_eq!(read(&mut checker, 2, 6, &[batch(6, 9, 2, 9)]), "");
    }
}
