//! The client end of a fetch session: what the next request names, and what a response means.
//!
//! The owner states what it wants with [`FetchSessionHandler::set`] and
//! [`FetchSessionHandler::remove`] as it changes; a request then costs what changed since the last
//! one, whatever the session holds. Any failure throws the session away and the next request is full
//! again, which is always right and only costs bytes.
//!
//! Invariant: between a request and its response, `wanted[k].sent` is what the server holds for `k`
//! if the request arrives.

use super::context::{ERROR_NONE, FETCH_SESSION_ID_NOT_FOUND};
use super::{PartitionFetch, PartitionKey};
use protocol::types::{SessionEpoch, SessionId};
use std::collections::{BTreeMap, BTreeSet};

/// The session fields of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionMetadata {
    /// The session; 0 for none.
    pub id: SessionId,
    /// Its epoch.
    pub epoch: SessionEpoch,
}

impl SessionMetadata {
    /// Asks for a new session.
    pub const INITIAL: SessionMetadata =
        SessionMetadata { id: SessionId::NONE, epoch: SessionEpoch::INITIAL };

    /// Whether a request with these fields names every partition.
    pub fn is_full(&self) -> bool {
        self.epoch == SessionEpoch::INITIAL || self.epoch == SessionEpoch::FINAL
    }

    /// Closes this session and asks for a new one.
    fn close_and_reopen(self) -> SessionMetadata {
        SessionMetadata { id: self.id, epoch: SessionEpoch::INITIAL }
    }
}

/// What the next Fetch request carries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionFetch {
    /// Session id and epoch.
    pub metadata: SessionMetadata,
    /// Partitions to name: all of them in a full request, otherwise those new or changed.
    pub to_send: Vec<(PartitionKey, PartitionFetch)>,
    /// Partitions to forget; empty in a full request.
    pub to_forget: Vec<PartitionKey>,
}

/// What a response means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseVerdict {
    /// Use the partitions it carries.
    Accept,
    /// Use nothing of it; the next request is full.
    Reset,
}

#[derive(Clone, Debug)]
struct Wanted {
    fetch: PartitionFetch,
    /// What the last request, or an earlier one of the session, told the server.
    sent: Option<PartitionFetch>,
    /// Place in a full request: lower first.
    turn: u64,
}

/// The client end of one session with one broker.
#[derive(Clone, Debug)]
pub struct FetchSessionHandler {
    wanted: BTreeMap<PartitionKey, Wanted>,
    changed: BTreeSet<PartitionKey>,
    /// Partitions the server was told of and that are not wanted any more, with what it was told.
    unwanted: BTreeMap<PartitionKey, PartitionFetch>,
    next: SessionMetadata,
    next_turn: u64,
}

impl Default for FetchSessionHandler {
    fn default() -> Self {
        Self::new()
    }
}

impl FetchSessionHandler {
    /// No session yet, nothing wanted.
    pub fn new() -> Self {
        Self {
            wanted: BTreeMap::new(),
            changed: BTreeSet::new(),
            unwanted: BTreeMap::new(),
            next: SessionMetadata::INITIAL,
            next_turn: 0,
        }
    }

    /// Wants `fetch` of a partition from the next request on.
    pub fn set(&mut self, key: PartitionKey, fetch: PartitionFetch) {
        if let Some(wanted) = self.wanted.get_mut(&key) {
            if wanted.fetch != fetch {
                wanted.fetch = fetch;
                self.changed.insert(key);
            }
            return;
        }
        let turn = self.take_turn();
        // Taken back before the server was told of the removal: it still holds what it held.
        let sent = self.unwanted.remove(&key);
        self.wanted.insert(key.clone(), Wanted { fetch, sent, turn });
        self.changed.insert(key);
    }

    /// Wants nothing of a partition from the next request on.
    pub fn remove(&mut self, key: &PartitionKey) {
        if let Some(wanted) = self.wanted.remove(key) {
            self.changed.remove(key);
            if let Some(sent) = wanted.sent {
                self.unwanted.insert(key.clone(), sent);
            }
        }
    }

    /// Puts a partition behind the others in full requests, as the server does within a session
    /// (S05): without a session nobody else would rotate.
    pub fn move_to_end(&mut self, key: &PartitionKey) {
        let turn = self.next_turn;
        if let Some(wanted) = self.wanted.get_mut(key) {
            wanted.turn = turn;
            self.next_turn += 1;
        }
    }

    fn take_turn(&mut self) -> u64 {
        self.next_turn += 1;
        self.next_turn - 1
    }

    /// What the last request, or an earlier one of this session, asked of a partition: an answer for
    /// the partition is an answer to this.
    pub fn sent(&self, key: &PartitionKey) -> Option<&PartitionFetch> {
        self.wanted.get(key)?.sent.as_ref()
    }

    /// Whether the server is known to hold the partition in this session.
    fn server_holds(&self, key: &PartitionKey) -> bool {
        self.unwanted.contains_key(key) || self.sent(key).is_some()
    }

    /// How many partitions are wanted.
    pub fn len(&self) -> usize {
        self.wanted.len()
    }

    /// Whether no partition is wanted.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Whether the next request is full.
    pub fn next_is_full(&self) -> bool {
        self.next.is_full()
    }

    /// The next request. Must be followed by [`Self::on_response`] or [`Self::on_failure`].
    pub fn build(&mut self) -> SessionFetch {
        if self.next.is_full() { self.build_full() } else { self.build_incremental() }
    }

    fn build_full(&mut self) -> SessionFetch {
        self.changed.clear();
        self.unwanted.clear();
        if self.next.epoch == SessionEpoch::FINAL {
            return SessionFetch {
                metadata: self.next,
                to_send: Vec::new(),
                to_forget: Vec::new(),
            };
        }
        let mut in_turn: Vec<(u64, &PartitionKey, PartitionFetch)> = Vec::new();
        for (key, wanted) in &mut self.wanted {
            wanted.sent = Some(wanted.fetch);
            in_turn.push((wanted.turn, key, wanted.fetch));
        }
        in_turn.sort_unstable_by_key(|(turn, _, _)| *turn);
        let to_send = in_turn.into_iter().map(|(_, key, fetch)| (key.clone(), fetch)).collect();
        SessionFetch { metadata: self.next, to_send, to_forget: Vec::new() }
    }

    fn build_incremental(&mut self) -> SessionFetch {
        let mut to_send = Vec::with_capacity(self.changed.len());
        for key in std::mem::take(&mut self.changed) {
            if let Some(wanted) = self.wanted.get_mut(&key)
                && wanted.sent != Some(wanted.fetch)
            {
                wanted.sent = Some(wanted.fetch);
                to_send.push((key, wanted.fetch));
            }
        }
        let to_forget = std::mem::take(&mut self.unwanted).into_keys().collect();
        SessionFetch { metadata: self.next, to_send, to_forget }
    }

    /// Judges the response to the last request. `partitions` are those it answers.
    pub fn on_response<'a>(
        &mut self,
        error_code: i16,
        session_id: SessionId,
        throttled: bool,
        partitions: impl Iterator<Item = &'a PartitionKey>,
    ) -> ResponseVerdict {
        if error_code != ERROR_NONE {
            self.next = if error_code == FETCH_SESSION_ID_NOT_FOUND {
                SessionMetadata::INITIAL
            } else {
                self.next.close_and_reopen()
            };
            return ResponseVerdict::Reset;
        }
        let mut answered = 0;
        let mut all_known = true;
        for key in partitions {
            answered += 1;
            all_known &= self.server_holds(key);
        }
        if self.next.is_full() {
            self.on_full_response(session_id, throttled, answered, all_known)
        } else if !all_known {
            self.next = self.next.close_and_reopen();
            ResponseVerdict::Reset
        } else {
            self.next = if session_id == SessionId::NONE {
                SessionMetadata::INITIAL
            } else {
                SessionMetadata { id: self.next.id, epoch: self.next.epoch.next() }
            };
            ResponseVerdict::Accept
        }
    }

    fn on_full_response(
        &mut self,
        session_id: SessionId,
        throttled: bool,
        answered: usize,
        all_known: bool,
    ) -> ResponseVerdict {
        let expected = self.wanted.values().filter(|wanted| wanted.sent.is_some()).count()
            + self.unwanted.len();
        // A quota answers a full request with nothing (KIP-219); otherwise every partition is due.
        if (answered == 0 && throttled && expected > 0) || !all_known || answered != expected {
            self.next = SessionMetadata::INITIAL;
            return ResponseVerdict::Reset;
        }
        self.next = if session_id == SessionId::NONE {
            SessionMetadata::INITIAL
        } else {
            SessionMetadata { id: session_id, epoch: SessionEpoch::INITIAL.next() }
        };
        ResponseVerdict::Accept
    }

    /// The request failed or its answer was lost: whether the server took it is unknown.
    pub fn on_failure(&mut self) {
        self.next = self.next.close_and_reopen();
    }

    /// The next request closes the session and opens none.
    pub fn close(&mut self) {
        self.next = SessionMetadata { id: self.next.id, epoch: SessionEpoch::FINAL };
    }
}
