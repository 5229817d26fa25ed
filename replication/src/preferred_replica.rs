//! Which replica a consumer should read from (KIP-392, K01): one in its own rack that has the offset,
//! the most caught up first. A pure choice among views.

use std::time::Duration;

use protocol::{NodeId, Offset};

/// A candidate: the leader, or an ISR member that is alive on the client's listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaView {
    /// The replica.
    pub id: NodeId,
    /// Its rack.
    pub rack: String,
    /// Its log start, as the leader knows it.
    pub log_start: Offset,
    /// Its log end, as the leader knows it.
    pub log_end: Offset,
    /// How long ago it was caught up.
    pub since_caught_up: Duration,
}

/// The replica to redirect to; `None` when the leader itself is the choice: no rack given, nobody in
/// that rack has the offset, or the leader is in it. Ties of the log end go to the one caught up
/// later, then to the greater id.
pub fn select_preferred_replica(
    candidates: &[ReplicaView],
    leader: NodeId,
    client_rack: &str,
    fetch_offset: Offset,
) -> Option<NodeId> {
    if client_rack.is_empty() {
        return None;
    }
    let near: Vec<&ReplicaView> = candidates
        .iter()
        .filter(|view| view.rack == client_rack)
        .filter(|view| view.log_start <= fetch_offset && fetch_offset <= view.log_end)
        .collect();
    if near.iter().any(|view| view.id == leader) {
        return None;
    }
    near.iter()
        .max_by_key(|view| (view.log_end, std::cmp::Reverse(view.since_caught_up), view.id))
        .map(|view| view.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(id: i32, rack: &str, log_start: i64, log_end: i64) -> ReplicaView {
        ReplicaView {
            id: NodeId(id),
            rack: rack.into(),
            log_start: Offset(log_start),
            log_end: Offset(log_end),
            since_caught_up: Duration::ZERO,
        }
    }

    #[test]
    fn k01_the_most_caught_up_replica_of_the_rack_is_chosen() {
        let views = [view(1, "a", 0, 20), view(2, "b", 0, 15), view(3, "b", 0, 18)];
        let choose =
            |rack, offset| select_preferred_replica(&views, NodeId(1), rack, Offset(offset));
        assert_eq!(choose("b", 10), Some(NodeId(3)));
        assert_eq!(choose("b", 19), None, "nobody in the rack has the offset");
        assert_eq!(choose("a", 10), None, "the leader is in the rack");
        assert_eq!(choose("c", 10), None);
        assert_eq!(choose("", 10), None);
    }

    #[test]
    fn k01_a_replica_that_starts_beyond_the_offset_is_not_chosen() {
        let views = [view(1, "a", 0, 20), view(2, "b", 0, 15), view(3, "b", 12, 18)];
        assert_eq!(select_preferred_replica(&views, NodeId(1), "b", Offset(10)), Some(NodeId(2)));
    }
}
