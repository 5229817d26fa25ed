//! What clients may see: nothing beyond the watermark (I7), latest offsets that do not go back (I8),
//! and one history (I15).

use std::collections::BTreeMap;

use bytes::Bytes;
use protocol::{LeaderEpoch, Offset, TopicIdPartition};

use super::{FaultModel, Violation};

/// One answer to a consumer.
#[derive(Clone, Debug)]
pub struct ReadCheck<'a> {
    /// The consumer and its assignment: offsets of one assignment must grow.
    pub consumer: (u32, u32),
    /// The high watermark in the answer.
    pub high_watermark: Offset,
    /// First offsets of the batches in it.
    pub batch_bases: &'a [Offset],
    /// The records, from the offset asked for on.
    pub records: &'a [(Offset, Bytes)],
}

/// How a write ended, as its producer knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendOutcome {
    /// Acknowledged at this offset.
    Acked(Offset),
    /// Certainly not written.
    Failed,
    /// Perhaps written.
    Unknown,
}

/// A write as its producer knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SendRecord {
    /// The producer.
    pub producer: u32,
    /// Where to.
    pub partition: TopicIdPartition,
    /// The acks it asked for.
    pub acks: i16,
    /// The records' values, each unique in the run; empty for a tombstone.
    pub values: Vec<Bytes>,
    /// How it ended.
    pub outcome: SendOutcome,
    /// Whether it was sent more than once without a sequence: it may be there twice.
    pub may_repeat: bool,
}

#[derive(Debug, Default)]
pub(super) struct ClientMemory {
    /// The last offset each assignment has read.
    positions: BTreeMap<(u32, u32, TopicIdPartition), Offset>,
    /// The last answer each client got to "latest".
    latest: BTreeMap<(u32, TopicIdPartition), (LeaderEpoch, Offset)>,
    sends: Vec<SendRecord>,
    /// The last offset acknowledged to each producer, with acks other than 1 and 0.
    acked: BTreeMap<(u32, TopicIdPartition), Offset>,
}

fn broken(invariant: &'static str, what: String) -> Violation {
    Violation { invariant, what }
}

/// I7: no batch that begins at or beyond the watermark told with it.
pub(super) fn check_visibility(read: &ReadCheck<'_>, found: &mut Vec<Violation>) {
    let beyond = read.batch_bases.iter().find(|base| **base >= read.high_watermark);
    if let Some(base) = beyond {
        found.push(broken(
            "I7",
            format!("an answer with high watermark {} has a batch at {base}", read.high_watermark),
        ));
    }
}

impl ClientMemory {
    pub(super) fn on_read(
        &mut self,
        partition: &TopicIdPartition,
        read: &ReadCheck<'_>,
        found: &mut Vec<Violation>,
    ) {
        let key = (read.consumer.0, read.consumer.1, partition.clone());
        for (offset, _) in read.records {
            let before = self.positions.insert(key.clone(), *offset);
            if before.is_some_and(|before| before >= *offset) {
                found.push(broken(
                    "I15",
                    format!("consumer {:?} read {offset} after {before:?}", read.consumer),
                ));
            }
        }
    }

    pub(super) fn on_latest_offset(
        &mut self,
        client: u32,
        partition: &TopicIdPartition,
        epoch: LeaderEpoch,
        offset: Offset,
        found: &mut Vec<Violation>,
    ) {
        let key = (client, partition.clone());
        let before = self.latest.get(&key).copied();
        if let Some((known_epoch, known)) = before {
            // An answer of a leader that was deposed meanwhile says nothing about now.
            if epoch < known_epoch {
                return;
            }
            if offset < known {
                found.push(broken(
                    "I8",
                    format!(
                        "the latest offset went back from {known} (epoch {known_epoch}) to {offset} \
                         (epoch {epoch})"
                    ),
                ));
            }
        }
        self.latest.insert(key, (epoch, offset));
    }

    pub(super) fn on_send(
        &mut self,
        model: FaultModel,
        send: SendRecord,
        found: &mut Vec<Violation>,
    ) {
        if !model.unclean_elections
            && send.acks == -1
            && let SendOutcome::Acked(offset) = send.outcome
        {
            let key = (send.producer, send.partition.clone());
            let before = self.acked.insert(key, offset);
            if before.is_some_and(|before| before >= offset) && !send.may_repeat {
                found.push(broken(
                    "I15",
                    format!(
                        "producer {} was acknowledged at {offset} after {before:?}",
                        send.producer
                    ),
                ));
            }
        }
        self.sends.push(send);
    }

    /// I15 over the whole run, against what a reader finds at its end.
    pub(super) fn check_final(
        &self,
        model: FaultModel,
        partition: &TopicIdPartition,
        records: &[(Offset, Bytes)],
        is_replaced: &dyn Fn(Offset) -> bool,
        found: &mut Vec<Violation>,
    ) {
        let mut places: BTreeMap<&Bytes, Vec<Offset>> = BTreeMap::new();
        for (offset, value) in records {
            places.entry(value).or_default().push(*offset);
        }
        let at_offset: BTreeMap<Offset, &Bytes> =
            records.iter().map(|(offset, value)| (*offset, value)).collect();
        if at_offset.len() != records.len() {
            found.push(broken("I15", "an offset was read twice in one reading".into()));
        }
        for send in self.sends.iter().filter(|send| send.partition == *partition) {
            check_send(model, send, &places, &at_offset, is_replaced, found);
        }
    }
}

fn check_send(
    model: FaultModel,
    send: &SendRecord,
    places: &BTreeMap<&Bytes, Vec<Offset>>,
    at_offset: &BTreeMap<Offset, &Bytes>,
    is_replaced: &dyn Fn(Offset) -> bool,
    found: &mut Vec<Violation>,
) {
    for (at, value) in send.values.iter().enumerate() {
        // Tombstones are all alike.
        let times = places.get(value).filter(|_| !value.is_empty()).map_or(0, Vec::len);
        if times > 1 && !send.may_repeat {
            found.push(broken(
                "I15",
                format!("{value:?} is there {times} times: {:?}", places[value]),
            ));
        }
        match send.outcome {
            SendOutcome::Failed if times > 0 => {
                let what =
                    format!("{value:?} certainly failed, and is there at {:?}", places[value]);
                found.push(broken("I15", what));
            }
            SendOutcome::Acked(base) if send.acks == -1 && !model.unclean_elections => {
                let offset = Offset(base.get() + at as i64);
                let is_there = at_offset.get(&offset) == Some(&value);
                let was_cleaned = times == 0 && is_replaced(offset);
                if !is_there && !was_cleaned {
                    found.push(broken(
                        "I15",
                        format!(
                            "{value:?} was acknowledged at {offset}; there is {:?}",
                            at_offset.get(&offset)
                        ),
                    ));
                }
            }
            _ => {}
        }
    }
}
