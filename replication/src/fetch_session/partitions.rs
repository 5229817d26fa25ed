//! The partitions of one session, or of one full request, in the order in which they are read.
//!
//! An arena with a linked list through it and an index beside it: find, append, remove and "move to
//! the end" (rule S05) cost at most a tree lookup, and walking the list allocates nothing.
//!
//! Invariant: the list visits exactly the occupied places of the arena, and the index knows each.

use super::{PartitionFetch, PartitionKey, TopicKey};
use protocol::types::Offset;
use std::collections::BTreeMap;
use std::sync::Arc;

const NONE: u32 = u32::MAX;

/// A partition's place in its set; good until the set is changed by the session's next request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PartitionSlot(pub(super) u32);

/// A partition as the session remembers it.
#[derive(Clone, Debug)]
pub struct SessionPartition {
    /// How requests and answers name it.
    pub key: PartitionKey,
    /// The topic's name; `None` while the id is not known here (S07). Once resolved it stays, so a
    /// topic created anew under this name is told apart by its id (error 103).
    pub topic: Option<Arc<str>>,
    /// What is wanted of it.
    pub fetch: PartitionFetch,
    /// The high watermark last sent; -1 when the next answer must be sent (S04).
    pub(super) sent_high_watermark: Offset,
    /// The log start last sent; -1 before the first answer.
    pub(super) sent_log_start_offset: Offset,
}

#[derive(Clone, Debug)]
struct Node {
    partition: Option<SessionPartition>,
    previous: u32,
    next: u32,
}

/// Partitions in reading order.
#[derive(Clone, Debug)]
pub struct PartitionSet {
    nodes: Vec<Node>,
    free: Vec<u32>,
    index: BTreeMap<PartitionKey, u32>,
    head: u32,
    tail: u32,
}

impl Default for PartitionSet {
    fn default() -> Self {
        Self { nodes: Vec::new(), free: Vec::new(), index: BTreeMap::new(), head: NONE, tail: NONE }
    }
}

impl PartitionSet {
    /// How many partitions.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// The slot of a partition.
    pub fn find(&self, key: &PartitionKey) -> Option<PartitionSlot> {
        self.index.get(key).copied().map(PartitionSlot)
    }

    /// The partition at a slot; `None` when it was removed since.
    pub fn get(&self, slot: PartitionSlot) -> Option<&SessionPartition> {
        self.nodes.get(slot.0 as usize)?.partition.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: PartitionSlot) -> Option<&mut SessionPartition> {
        self.nodes.get_mut(slot.0 as usize)?.partition.as_mut()
    }

    /// Adds a partition at the end, or overwrites what is wanted of one that is here already (S06).
    pub(super) fn upsert(&mut self, key: PartitionKey, fetch: PartitionFetch) {
        if let Some(slot) = self.find(&key)
            && let Some(known) = self.get_mut(slot)
        {
            known.fetch = fetch;
            return;
        }
        let topic = match &key.topic {
            TopicKey::Name(name) => Some(name.clone()),
            TopicKey::Id(_) => None,
        };
        let partition = SessionPartition {
            key: key.clone(),
            topic,
            fetch,
            sent_high_watermark: Offset::NONE,
            sent_log_start_offset: Offset::NONE,
        };
        let node = Node { partition: Some(partition), previous: NONE, next: NONE };
        let place = match self.free.pop() {
            Some(place) => {
                self.nodes[place as usize] = node;
                place
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.index.insert(key, place);
        self.link_last(place);
    }

    /// Removes a partition; one that is not here is ignored (S06).
    pub(super) fn remove(&mut self, key: &PartitionKey) {
        if let Some(place) = self.index.remove(key) {
            self.unlink(place);
            self.nodes[place as usize].partition = None;
            self.free.push(place);
        }
    }

    /// Puts a partition behind all others (S05).
    pub(super) fn move_to_end(&mut self, slot: PartitionSlot) {
        if self.get(slot).is_some() && self.tail != slot.0 {
            self.unlink(slot.0);
            self.link_last(slot.0);
        }
    }

    /// Visits every partition in reading order; the visitor may change it.
    pub(super) fn for_each_mut(
        &mut self,
        mut visit: impl FnMut(PartitionSlot, &mut SessionPartition),
    ) {
        let mut place = self.head;
        while place != NONE {
            let node = &mut self.nodes[place as usize];
            let next = node.next;
            if let Some(partition) = node.partition.as_mut() {
                visit(PartitionSlot(place), partition);
            }
            place = next;
        }
    }

    /// The partitions in reading order.
    pub fn iter(&self) -> impl Iterator<Item = &SessionPartition> {
        let mut place = self.head;
        std::iter::from_fn(move || {
            let node = self.nodes.get(place as usize)?;
            place = node.next;
            node.partition.as_ref()
        })
    }

    fn link_last(&mut self, place: u32) {
        let tail = self.tail;
        let node = &mut self.nodes[place as usize];
        node.previous = tail;
        node.next = NONE;
        match tail {
            NONE => self.head = place,
            tail => self.nodes[tail as usize].next = place,
        }
        self.tail = place;
    }

    fn unlink(&mut self, place: u32) {
        let Node { previous, next, .. } = self.nodes[place as usize];
        match previous {
            NONE => self.head = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.tail = previous,
            next => self.nodes[next as usize].previous = previous,
        }
    }
}
