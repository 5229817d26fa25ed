//! One direction of one connection: the frames that were read and not yet written, in order.
//!
//! Frames of one stream keep their order, and a frame that is held keeps back those of its stream that
//! come after it. A Kafka connection is one stream; of an HTTP/2 connection each request is one, so the
//! others go on. What a lane holds is bounded: past that its reader waits, as it does for a full socket.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::{FaultId, HeldFate};

/// Bytes in a lane past which nothing more is read into it.
const FULL_BYTES: usize = 8 << 20;

/// A frame on its way.
#[derive(Debug)]
pub(super) struct Item {
    /// What it belongs to; see the head of this file.
    pub(super) stream: u32,
    pub(super) bytes: Bytes,
    /// Not to be written before.
    pub(super) due: Instant,
    pub(super) held: Option<FaultId>,
    /// Whether the hold counts it: the first frame of a message.
    pub(super) counts: bool,
    /// Whether it is a part of a stream that goes on: no part of it can be missed.
    pub(super) is_endless: bool,
    /// What it takes of the sender's flow-control window, in bytes.
    pub(super) window: u32,
}

/// What a lane's writer does next.
#[derive(Debug)]
pub(super) enum Next {
    Write(Bytes),
    /// It is lost: it was held, and its hold ended so.
    Lose(Item),
    WaitUntil(Instant),
    Wait,
    End,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    bytes: usize,
    /// Nothing more comes.
    has_ended: bool,
    /// Nothing more can be written.
    is_broken: bool,
    last_due: Option<Instant>,
    /// Streams that lost a part of themselves: nothing more of them is worth anything.
    dead: BTreeSet<u32>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Lane {
    state: Mutex<State>,
    /// For the one writer.
    changed: Notify,
    /// For the one reader.
    room: Notify,
}

impl Lane {
    /// Waits until there is room; `false` when nobody writes any more.
    pub(super) async fn wait_for_room(&self) -> bool {
        loop {
            {
                let state = self.state.lock();
                if state.is_broken {
                    return false;
                }
                if state.bytes < FULL_BYTES {
                    return true;
                }
            }
            self.room.notified().await;
        }
    }

    /// Adds a frame. It is due no earlier than those before it, and held with those of its stream.
    pub(super) fn push(&self, mut item: Item) {
        let mut state = self.state.lock();
        if state.dead.contains(&item.stream) {
            return;
        }
        item.due = state.last_due.map_or(item.due, |last| last.max(item.due));
        state.last_due = Some(item.due);
        state.bytes += item.bytes.len();
        state.items.push_back(item);
        drop(state);
        self.changed.notify_one();
    }

    /// Nothing more comes.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_one();
    }

    /// Nothing more can be written.
    pub(super) fn break_off(&self) {
        self.state.lock().is_broken = true;
        self.room.notify_one();
    }

    /// Whether its reader has come to the end.
    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Waits until something was added or ended.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// The hold that keeps a stream back, if one does.
    pub(super) fn holds(&self, stream: u32) -> Option<FaultId> {
        let state = self.state.lock();
        state.items.iter().filter(|item| item.stream == stream).find_map(|item| item.held)
    }

    /// Takes out all frames of a stream from the first one that is held on; with `forever`, also
    /// whatever is added of it later.
    pub(super) fn purge(&self, stream: u32, forever: bool) -> Vec<Item> {
        let mut state = self.state.lock();
        if forever {
            state.dead.insert(stream);
        }
        let mut is_held = false;
        let (mut kept, mut purged) = (VecDeque::new(), Vec::new());
        for item in std::mem::take(&mut state.items) {
            is_held |= item.stream == stream && item.held.is_some();
            if item.stream == stream && (is_held || forever) {
                purged.push(item);
            } else {
                kept.push_back(item);
            }
        }
        state.items = kept;
        state.bytes -= purged.iter().map(|item| item.bytes.len()).sum::<usize>();
        drop(state);
        self.room.notify_one();
        purged
    }

    /// Everything that is still in it, when its connection ends.
    pub(super) fn empty(&self) -> Vec<Item> {
        let mut state = self.state.lock();
        state.is_broken = true;
        state.bytes = 0;
        std::mem::take(&mut state.items).into()
    }

    /// What the writer does next, `now`, by the fates of what is held.
    pub(super) fn next(&self, now: Instant, fate_of: impl Fn(FaultId) -> HeldFate) -> Next {
        let mut state = self.state.lock();
        let mut blocked = BTreeSet::new();
        let mut found = None;
        for (at, item) in state.items.iter().enumerate() {
            match item.held.map(&fate_of) {
                _ if blocked.contains(&item.stream) => {}
                Some(HeldFate::Waits) => {
                    blocked.insert(item.stream);
                }
                fate => {
                    found = Some((at, item.due, fate == Some(HeldFate::IsLost)));
                    break;
                }
            }
        }
        let Some((at, due, is_lost)) = found else {
            let is_over = state.has_ended && state.items.is_empty();
            return if is_over { Next::End } else { Next::Wait };
        };
        if due > now && !is_lost {
            return Next::WaitUntil(due);
        }
        let Some(item) = state.items.remove(at) else {
            return Next::Wait;
        };
        state.bytes -= item.bytes.len();
        drop(state);
        self.room.notify_one();
        if is_lost { Next::Lose(item) } else { Next::Write(item.bytes) }
    }
}
