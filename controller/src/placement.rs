//! Where the replicas of new partitions go: Kafka's striped placement.
//!
//! Leaders go round the racks and, within a rack, round its brokers. A partition's other replicas
//! take one broker from each further rack before any rack gives a second one. Fenced brokers serve
//! only when the others do not suffice, and never as the first replica. Once as many partitions are
//! placed as there are unfenced brokers, the order is drawn anew, so that later partitions do not
//! repeat the same sets of brokers.

use std::collections::BTreeMap;
use std::sync::Arc;

use protocol::types::NodeId;
use rand::rngs::StdRng;
use rand::{Rng, seq::SliceRandom};

/// A broker that replicas can be placed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsableBroker {
    /// Its id.
    pub id: NodeId,
    /// Its rack. All brokers without one share a rack.
    pub rack: Option<Arc<str>>,
    /// Whether it is fenced.
    pub fenced: bool,
}

/// Why no placement exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// Nobody could lead.
    #[error("All brokers are currently fenced or in controlled shutdown.")]
    AllFenced,
    /// Fewer brokers than replicas.
    #[error(
        "The target replication factor of {wanted} cannot be reached because only {registered} \
         broker(s) are registered or some brokers have all their log directories cordoned."
    )]
    TooFewBrokers {
        /// The replication factor.
        wanted: usize,
        /// The usable brokers, fenced ones included.
        registered: usize,
    },
}

/// Replicas for `partitions` partitions; the first of each is its preferred leader.
///
/// # Errors
/// When all brokers are fenced, or fewer than `replication_factor` exist.
pub fn place_replicas(
    brokers: &[UsableBroker],
    partitions: usize,
    replication_factor: usize,
    rng: &mut StdRng,
) -> Result<Vec<Vec<NodeId>>, PlacementError> {
    if brokers.iter().all(|broker| broker.fenced) {
        return Err(PlacementError::AllFenced);
    }
    if replication_factor > brokers.len() {
        return Err(PlacementError::TooFewBrokers {
            wanted: replication_factor,
            registered: brokers.len(),
        });
    }
    let mut racks = Racks::new(brokers, rng);
    Ok((0..partitions).map(|_| racks.place(replication_factor, rng)).collect())
}

/// Brokers given out in turn. With every partition the turn starts one broker further.
#[derive(Default)]
struct Ring {
    brokers: Vec<NodeId>,
    start: usize,
    given: usize,
    partition: Option<usize>,
}

impl Ring {
    fn next(&mut self, partition: usize) -> Option<NodeId> {
        if self.brokers.is_empty() {
            return None;
        }
        if self.partition != Some(partition) {
            self.partition = Some(partition);
            self.given = 0;
            self.start = (self.start + 1) % self.brokers.len();
        }
        if self.given == self.brokers.len() {
            return None;
        }
        let at = (self.start + self.given) % self.brokers.len();
        self.given += 1;
        Some(self.brokers[at])
    }

    fn shuffle(&mut self, rng: &mut StdRng) {
        self.brokers.shuffle(rng);
    }
}

#[derive(Default)]
struct Rack {
    unfenced: Ring,
    fenced: Ring,
}

struct Racks {
    racks: Vec<Rack>,
    unfenced_count: usize,
    first: usize,
    partition: usize,
}

impl Racks {
    fn new(brokers: &[UsableBroker], rng: &mut StdRng) -> Self {
        let mut by_name: BTreeMap<Option<&str>, Rack> = BTreeMap::new();
        for broker in brokers {
            let rack = by_name.entry(broker.rack.as_deref()).or_default();
            let ring = if broker.fenced { &mut rack.fenced } else { &mut rack.unfenced };
            ring.brokers.push(broker.id);
        }
        let mut racks: Vec<Rack> = by_name.into_values().collect();
        for rack in &mut racks {
            for ring in [&mut rack.unfenced, &mut rack.fenced] {
                ring.brokers.sort_unstable();
                if !ring.brokers.is_empty() {
                    ring.start = rng.random_range(0..ring.brokers.len());
                }
            }
        }
        racks.shuffle(rng);
        let unfenced_count = brokers.iter().filter(|broker| !broker.fenced).count();
        Racks { racks, unfenced_count, first: 0, partition: 0 }
    }

    /// The caller made sure that some broker is unfenced and enough brokers exist, so both loops end.
    fn place(&mut self, replication_factor: usize, rng: &mut StdRng) -> Vec<NodeId> {
        if self.unfenced_count > 1
            && self.partition > 0
            && self.partition.is_multiple_of(self.unfenced_count)
        {
            self.redraw(rng);
        }
        let partition = self.partition;
        let count = self.racks.len();
        let mut replicas = Vec::with_capacity(replication_factor);
        let mut leader_rack = self.first;
        loop {
            if let Some(leader) = self.racks[leader_rack].unfenced.next(partition) {
                replicas.push(leader);
                break;
            }
            leader_rack = (leader_rack + 1) % count;
        }
        // The leader's rack has its turn behind it in the first round.
        let mut skipped = Some(leader_rack);
        let mut at = self.first;
        while replicas.len() < replication_factor {
            if skipped == Some(at) {
                skipped = None;
            } else {
                let rack = &mut self.racks[at];
                let next = rack.unfenced.next(partition).or_else(|| rack.fenced.next(partition));
                replicas.extend(next);
            }
            at = (at + 1) % count;
        }
        self.partition += 1;
        self.first = (self.first + 1) % count;
        replicas
    }

    fn redraw(&mut self, rng: &mut StdRng) {
        self.racks.shuffle(rng);
        for rack in &mut self.racks {
            rack.unfenced.shuffle(rng);
            rack.fenced.shuffle(rng);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rand::SeedableRng;

    use super::*;

    fn broker(id: i32, rack: Option<&str>, fenced: bool) -> UsableBroker {
        UsableBroker { id: NodeId(id), rack: rack.map(Arc::from), fenced }
    }

    fn any_brokers() -> impl Strategy<Value = Vec<UsableBroker>> {
        prop::collection::vec((0..4usize, any::<bool>()), 1..9).prop_map(|kinds| {
            let rack = |kind| [None, Some("a"), Some("b"), Some("c")][kind];
            let all = kinds.iter().enumerate();
            all.map(|(id, (kind, fenced))| broker(id as i32, rack(*kind), *fenced && id > 0))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn each_broker_once_an_unfenced_leader_and_racks_before_repeats(
            brokers in any_brokers(),
            partitions in 1..20usize,
            wanted in 1..9usize,
            seed: u64,
        ) {
            let mut rng = StdRng::seed_from_u64(seed);
            let placed = place_replicas(&brokers, partitions, wanted, &mut rng);
            if wanted > brokers.len() {
                prop_assert!(placed.is_err());
                return Ok(());
            }
            let by_id: BTreeMap<NodeId, &UsableBroker> =
                brokers.iter().map(|broker| (broker.id, broker)).collect();
            let racks: BTreeSet<_> = brokers.iter().map(|broker| broker.rack.clone()).collect();
            for replicas in placed.unwrap() {
                prop_assert_eq!(replicas.len(), wanted);
                let distinct: BTreeSet<_> = replicas.iter().collect();
                prop_assert_eq!(distinct.len(), wanted);
                prop_assert!(!by_id[&replicas[0]].fenced);
                let used: BTreeSet<_> = replicas.iter().map(|id| by_id[id].rack.clone()).collect();
                prop_assert_eq!(used.len(), wanted.min(racks.len()));
                // Within a rack, a fenced broker serves only when every unfenced one does.
                for id in replicas.iter().filter(|id| by_id[id].fenced) {
                    let rack = &by_id[id].rack;
                    let idle = brokers.iter().any(|other| {
                        other.rack == *rack && !other.fenced && !replicas.contains(&other.id)
                    });
                    prop_assert!(!idle);
                }
            }
        }

        #[test]
        fn leaders_and_replicas_are_balanced_when_racks_are_even(seed: u64, rounds in 1..4usize) {
            let racks = ["a", "b", "c"];
            let brokers: Vec<_> =
                (0..6).map(|id| broker(id, Some(racks[id as usize % 3]), false)).collect();
            let mut rng = StdRng::seed_from_u64(seed);
            let placed = place_replicas(&brokers, 6 * rounds, 3, &mut rng).unwrap();
            for id in 0..6 {
                let leads = placed.iter().filter(|replicas| replicas[0] == NodeId(id)).count();
                prop_assert_eq!(leads, rounds);
            }
        }
    }

    #[test]
    fn a_cluster_without_unfenced_brokers_places_nothing() {
        let mut rng = StdRng::seed_from_u64(1);
        let all_fenced = [broker(1, None, true), broker(2, None, true)];
        assert_eq!(place_replicas(&all_fenced, 1, 1, &mut rng), Err(PlacementError::AllFenced));
        let two = [broker(1, None, false), broker(2, None, false)];
        assert_eq!(
            place_replicas(&two, 1, 3, &mut rng),
            Err(PlacementError::TooFewBrokers { wanted: 3, registered: 2 })
        );
    }
}
