//! What was told of each peer already, so that a thing that fails ten times a second is one line.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;

/// Peers that are remembered; beyond, all are forgotten and may be told of again.
const MOST_PEERS: usize = 1000;

/// The causes told of each peer since it last worked.
#[derive(Debug, Default)]
pub struct Told(Mutex<BTreeMap<String, BTreeSet<String>>>);

impl Told {
    /// Notes that `peer` fails by `cause`; whether that was not known.
    pub fn is_news(&self, peer: &str, cause: &str) -> bool {
        let mut told = self.0.lock();
        if told.len() >= MOST_PEERS && !told.contains_key(peer) {
            told.clear();
        }
        told.entry(peer.to_owned()).or_default().insert(cause.to_owned())
    }

    /// Notes that `peer` works; whether it did not before.
    pub fn is_mended(&self, peer: &str) -> bool {
        self.0.lock().remove(peer).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_peer_and_cause_is_told_once_until_it_was_right_in_between() {
        let told = Told::default();
        assert!(told.is_news("a", "expired"));
        assert!(told.is_news("a", "unknown"), "another cause");
        assert!(told.is_news("b", "expired"), "another peer");
        // Causes that take turns are no news either.
        assert!(!told.is_news("a", "expired") && !told.is_news("a", "unknown"));
        assert!(told.is_mended("a") && !told.is_mended("a"));
        assert!(told.is_news("a", "expired") && !told.is_news("b", "expired"));
    }

    #[test]
    fn peers_that_are_no_end_of_them_cost_a_bounded_room() {
        let told = Told::default();
        for peer in 0..10 * MOST_PEERS {
            assert!(told.is_news(&peer.to_string(), "expired"));
            assert!(told.0.lock().len() <= MOST_PEERS);
        }
    }
}
