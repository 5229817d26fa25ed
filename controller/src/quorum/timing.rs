//! When a quorum member ticks, beats and gives up on a leader. The crate's own draw from thread
//! randomness is replaced by a function of (seed, node, term, round), so that a simulated run
//! repeats itself (design: no global randomness).

use protocol::types::NodeId;
use std::time::Duration;

use super::QuorumError;

/// The fixed facts about one member of the quorum.
#[derive(Clone, Debug)]
pub struct QuorumConfig {
    /// This member.
    pub node_id: NodeId,
    /// All voters with this one among them (`controller.quorum.voters`).
    pub voters: Vec<NodeId>,
    /// `controller.quorum.election.timeout.ms`: how long a candidate waits before it tries again,
    /// and the spread of the followers' patience.
    pub election_timeout: Duration,
    /// `controller.quorum.fetch.timeout.ms`: how long a follower waits for its leader, and how long
    /// a leader's lease lasts without a majority (Q03).
    pub fetch_timeout: Duration,
    /// Where this member's random timeouts come from.
    pub seed: u64,
    /// Upper bound of the entries in one message to a peer, in bytes.
    pub max_message_bytes: u64,
}

impl QuorumConfig {
    /// Kafka's default timeouts (1 s, 2 s) for `node_id` among `voters`.
    pub fn new(node_id: NodeId, voters: Vec<NodeId>) -> Self {
        Self {
            node_id,
            voters,
            election_timeout: Duration::from_millis(1000),
            fetch_timeout: Duration::from_millis(2000),
            seed: 0,
            max_message_bytes: 1024 * 1024,
        }
    }

    /// Sorts the voters and checks that they make a quorum with this member in it.
    pub(super) fn checked(mut self) -> Result<Self, QuorumError> {
        self.voters.sort_unstable();
        self.voters.dedup();
        if self.voters.iter().any(|voter| voter.get() < 0) {
            return Err(QuorumError::Config(format!("negative voter id in {:?}", self.voters)));
        }
        if !self.voters.contains(&self.node_id) {
            return Err(QuorumError::Config(format!(
                "node {} is not among the voters {:?}",
                self.node_id, self.voters
            )));
        }
        Ok(self)
    }

    /// How many voters were started before this one by id; the lowest has rank 0.
    pub(super) fn rank(&self) -> u32 {
        self.voters.iter().filter(|voter| **voter < self.node_id).count() as u32
    }

    /// How many voters make a majority.
    pub(super) fn majority(&self) -> usize {
        self.voters.len() / 2 + 1
    }

    /// The length of one tick of the consensus core: 100 ms at the default timeouts.
    pub fn tick_interval(&self) -> Duration {
        (self.fetch_timeout / 20).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }

    /// How often a leader makes itself heard: 500 ms at the default timeouts.
    pub fn heartbeat_interval(&self) -> Duration {
        self.tick_interval() * self.heartbeat_ticks() as u32
    }

    pub(super) fn heartbeat_ticks(&self) -> usize {
        let interval = (self.fetch_timeout / 4).min(Duration::from_millis(500));
        self.ticks(interval).max(1)
    }

    /// Ticks without a leader before a follower may be asked for its vote again, at least.
    pub(super) fn lease_ticks(&self) -> usize {
        self.ticks(self.fetch_timeout).max(self.heartbeat_ticks() + 1)
    }

    fn spread_ticks(&self) -> usize {
        self.ticks(self.election_timeout).max(1)
    }

    /// Exclusive upper bound of [`QuorumConfig::draw_election_ticks`].
    pub(super) fn max_election_ticks(&self) -> usize {
        self.lease_ticks() + self.spread_ticks() + 1
    }

    fn ticks(&self, duration: Duration) -> usize {
        (duration.as_micros() / self.tick_interval().as_micros().max(1)) as usize
    }

    /// This member's patience with a leader in `term`, after `round` elections seen in that term.
    pub(super) fn draw_election_ticks(&self, term: u64, round: u64) -> usize {
        let spread = self.spread_ticks() as u64 + 1;
        self.lease_ticks() + (self.draw(term, round) % spread) as usize
    }

    /// How long a candidate waits for votes: between one and two election timeouts.
    pub(super) fn draw_candidate_patience(&self, term: u64, round: u64) -> Duration {
        let micros = self.election_timeout.as_micros() as u64;
        let extra = self.draw(term, !round) % micros.max(1);
        self.election_timeout + Duration::from_micros(extra)
    }

    /// When this member may first ask for votes after it started, if no leader was heard until then.
    /// On an empty log the lowest voter asks at once. A member with history first leaves a running
    /// leader the time for a heartbeat; the others follow by rank, so that they do not split votes.
    pub(super) fn startup_patience(&self, empty_log: bool) -> Duration {
        let step = (self.election_timeout / 6).min(Duration::from_millis(150));
        let staggered = step * self.rank();
        if empty_log || self.voters.len() == 1 {
            staggered
        } else {
            self.heartbeat_interval() * 6 / 5 + staggered
        }
    }

    /// The pause between two early tries for votes, after `tries` of them.
    pub(super) fn startup_retry(tries: u32) -> Duration {
        if tries < 40 { Duration::from_millis(25) } else { Duration::from_millis(100) }
    }

    fn draw(&self, term: u64, round: u64) -> u64 {
        let mut word = self.seed;
        for part in [super::raft_id(self.node_id), term, round] {
            word = mix(word ^ part);
        }
        word
    }
}

/// The finalizer of SplitMix64: spreads every input bit over the whole word.
fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_timeouts_tick_slowly_and_beat_twice_a_second() {
        let config = QuorumConfig::new(NodeId(1), vec![NodeId(1), NodeId(2), NodeId(3)]);
        assert_eq!(config.tick_interval(), Duration::from_millis(100));
        assert_eq!(config.heartbeat_interval(), Duration::from_millis(500));
        assert_eq!(config.lease_ticks(), 20);
    }

    #[test]
    fn drawn_timeouts_stay_in_range_and_differ_between_nodes_and_terms() {
        let voters: Vec<_> = (0..3).map(NodeId).collect();
        let configs: Vec<_> =
            voters.iter().map(|id| QuorumConfig::new(*id, voters.clone())).collect();
        let mut seen = std::collections::BTreeSet::new();
        for config in &configs {
            for term in 0..100 {
                let ticks = config.draw_election_ticks(term, 0);
                assert!(ticks >= config.lease_ticks() && ticks < config.max_election_ticks());
                seen.insert(ticks);
            }
        }
        assert_eq!(seen.len(), 11, "every value of the spread occurs: {seen:?}");
        let same_everywhere = (0..100)
            .filter(|term| {
                configs[0].draw_election_ticks(*term, 0) == configs[1].draw_election_ticks(*term, 0)
            })
            .count();
        assert!(same_everywhere < 30, "two nodes draw alike in {same_everywhere} of 100 terms");
    }

    #[test]
    fn a_member_outside_the_voters_is_refused() {
        let config = QuorumConfig::new(NodeId(9), vec![NodeId(1), NodeId(2)]);
        assert!(matches!(config.checked(), Err(QuorumError::Config(_))));
    }
}
