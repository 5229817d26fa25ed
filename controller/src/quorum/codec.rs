//! Quorum messages as bytes. The consensus core's own encoding never meets the network: what a peer
//! sends is decoded here into Highwater's message, checked field by field, and only then handed on.

use bytes::Bytes;
use prost::Message as _;
use protocol::types::NodeId;
use raft::eraftpb::{ConfState, Message, MessageType, Snapshot};

use super::storage::{LogEntry, from_raft_entry, to_raft_entry};
use super::{QuorumError, node_id};
use crate::rpc::proto::{RaftEntry, RaftMessage, RaftSnapshot};

/// Longest context a message may carry; the only one in use is the mark of a handover (Q02).
const MAX_CONTEXT_BYTES: usize = 64;

/// The bytes of `message` for the node it goes to; `None` when it goes nowhere.
pub(super) fn encode(message: Message) -> Option<(NodeId, Bytes)> {
    let to = node_id(message.to)?;
    Some((to, Bytes::from(to_wire(message).encode_to_vec())))
}

fn to_wire(mut message: Message) -> RaftMessage {
    let entries = message.take_entries().into_iter().map(from_raft_entry);
    let snapshot = message.has_snapshot().then(|| {
        let mut snapshot = message.take_snapshot();
        let metadata = snapshot.take_metadata();
        RaftSnapshot { index: metadata.index, term: metadata.term, data: snapshot.data }
    });
    RaftMessage {
        kind: message.get_msg_type() as u32,
        to: message.to,
        from: message.from,
        term: message.term,
        log_term: message.log_term,
        index: message.index,
        entries: entries
            .map(|entry| RaftEntry { term: entry.term, index: entry.index, data: entry.data })
            .collect(),
        commit: message.commit,
        commit_term: message.commit_term,
        snapshot,
        request_snapshot: message.request_snapshot,
        reject: message.reject,
        reject_hint: message.reject_hint,
        context: message.take_context(),
    }
}

/// Reads a peer's message for the member `me` among `voters` (both in the core's numbering).
///
/// # Errors
/// [`QuorumError::BadMessage`] for anything that a correct voter would not have sent to `me`.
pub(super) fn decode(bytes: Bytes, me: u64, voters: &[u64]) -> Result<Message, QuorumError> {
    let wire = RaftMessage::decode(bytes)
        .map_err(|error| QuorumError::BadMessage(format!("undecodable: {error}")))?;
    check(&wire, me, voters).map_err(QuorumError::BadMessage)?;
    let Some(kind) = message_type(wire.kind) else {
        return Err(QuorumError::BadMessage(format!("kind {} is not for peers", wire.kind)));
    };
    let mut message = Message {
        msg_type: kind,
        to: wire.to,
        from: wire.from,
        term: wire.term,
        log_term: wire.log_term,
        index: wire.index,
        commit: wire.commit,
        commit_term: wire.commit_term,
        request_snapshot: wire.request_snapshot,
        reject: wire.reject,
        reject_hint: wire.reject_hint,
        context: wire.context,
        ..Default::default()
    };
    let entries: Vec<_> = wire
        .entries
        .into_iter()
        .map(|entry| {
            to_raft_entry(LogEntry { index: entry.index, term: entry.term, data: entry.data })
        })
        .collect();
    message.set_entries(entries.into());
    if let Some(snapshot) = wire.snapshot {
        message.set_snapshot(to_raft_snapshot(snapshot, voters));
    }
    Ok(message)
}

fn to_raft_snapshot(wire: RaftSnapshot, voters: &[u64]) -> Snapshot {
    let mut conf_state = ConfState::default();
    conf_state.set_voters(voters.to_vec());
    let mut snapshot = Snapshot { data: wire.data, ..Default::default() };
    let metadata = snapshot.mut_metadata();
    metadata.index = wire.index;
    metadata.term = wire.term;
    metadata.set_conf_state(conf_state);
    snapshot
}

/// The kinds that one voter sends to another. Proposals and reads are not forwarded (the leader's
/// node takes requests itself), and local kinds never come from outside.
fn message_type(kind: u32) -> Option<MessageType> {
    [
        MessageType::MsgAppend,
        MessageType::MsgAppendResponse,
        MessageType::MsgRequestVote,
        MessageType::MsgRequestVoteResponse,
        MessageType::MsgSnapshot,
        MessageType::MsgHeartbeat,
        MessageType::MsgHeartbeatResponse,
        MessageType::MsgTimeoutNow,
        MessageType::MsgRequestPreVote,
        MessageType::MsgRequestPreVoteResponse,
    ]
    .into_iter()
    .find(|known| *known as u32 == kind)
}

fn check(wire: &RaftMessage, me: u64, voters: &[u64]) -> Result<(), String> {
    if wire.to != me {
        return Err(format!("meant for {}, not for {me}", wire.to));
    }
    if wire.from == me || !voters.contains(&wire.from) {
        return Err(format!("from {}, no other voter of {voters:?}", wire.from));
    }
    if wire.term == 0 {
        return Err("without an epoch".to_owned());
    }
    if wire.context.len() > MAX_CONTEXT_BYTES {
        return Err(format!("context of {} bytes", wire.context.len()));
    }
    if wire.index.max(wire.commit).max(wire.reject_hint) >= u64::MAX / 2 {
        return Err("index out of range".to_owned());
    }
    check_entries(wire)?;
    let is_snapshot = wire.kind == MessageType::MsgSnapshot as u32;
    match &wire.snapshot {
        Some(snapshot) if is_snapshot && snapshot.index > 0 && snapshot.term <= wire.term => Ok(()),
        None if !is_snapshot => Ok(()),
        _ => Err("snapshot missing or out of place".to_owned()),
    }
}

fn check_entries(wire: &RaftMessage) -> Result<(), String> {
    let mut expected = (wire.index, wire.log_term);
    for entry in &wire.entries {
        if entry.index != expected.0 + 1 || entry.term < expected.1 || entry.term > wire.term {
            return Err(format!(
                "entry ({}, {}) after ({}, {}) at epoch {}",
                entry.index, entry.term, expected.0, expected.1, wire.term
            ));
        }
        expected = (entry.index, entry.term);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append() -> Message {
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgAppend);
        (message.from, message.to, message.term) = (1, 2, 3);
        (message.index, message.log_term, message.commit) = (7, 2, 6);
        let data = Bytes::from_static(b"decision");
        message.set_entries(vec![to_raft_entry(LogEntry { index: 8, term: 3, data })].into());
        message
    }

    #[test]
    fn a_message_reads_back_as_it_was_sent() {
        let (to, bytes) = encode(append()).expect("a receiver");
        assert_eq!(to, NodeId(1));
        assert_eq!(decode(bytes, 2, &[1, 2]).expect("valid"), append());
    }

    #[test]
    fn messages_of_strangers_for_others_or_with_holes_are_refused() {
        let bytes = encode(append()).expect("a receiver").1;
        assert!(decode(bytes.clone(), 1, &[1, 2]).is_err(), "not for us");
        assert!(decode(bytes, 2, &[2, 3]).is_err(), "not from a voter");
        let mut hole = append();
        hole.index = 6;
        assert!(decode(encode(hole).expect("a receiver").1, 2, &[1, 2]).is_err());
        let mut local = append();
        local.set_msg_type(MessageType::MsgPropose);
        assert!(decode(encode(local).expect("a receiver").1, 2, &[1, 2]).is_err());
        assert!(decode(Bytes::from_static(b"\xff\xff\xff"), 2, &[1, 2]).is_err());
    }
}
