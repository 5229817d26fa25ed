//! Random requests, ticks, restarts and controller failovers that lose what was not committed. After
//! every step [`Cluster`] checks the invariants; here, beside it, that committed leader epochs name
//! one leader each (I10).

use std::collections::VecDeque;

use proptest::prelude::*;
use protocol::messages::alter_partition_reassignments_request::{
    ReassignablePartition, ReassignableTopic,
};
use protocol::messages::elect_leaders_request::TopicPartitions;
use protocol::messages::{
    AlterPartitionReassignmentsRequest, CreatePartitionsRequest, DeleteTopicsRequest,
    ElectLeadersRequest, UnregisterBrokerRequest, create_partitions_request,
};
use rand::Rng;
use rand::seq::{IndexedRandom, SliceRandom};

use super::directories::dir;
use super::*;

const BROKERS: [i32; 5] = [1, 2, 3, 4, 5];
/// Every broker has these directories, unless it starts with one of them missing.
const DIRS: [u8; 2] = [1, 2];

struct Walk {
    cluster: Cluster,
    rng: StdRng,
    /// What is committed; the cluster's own image may be ahead by the batches behind it.
    committed: ClusterImage,
    uncommitted: VecDeque<ClusterImage>,
    leaders: BTreeMap<(TopicId, i32, i32), i32>,
    incarnation: u8,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut cluster = Cluster::empty();
        for id in BROKERS {
            cluster.join_with_dirs(id, &DIRS.map(|at| dir(id, at)));
        }
        let committed = cluster.follower.clone();
        Walk {
            cluster,
            rng: StdRng::seed_from_u64(seed),
            committed,
            uncommitted: VecDeque::new(),
            leaders: BTreeMap::new(),
            incarnation: 100,
        }
    }

    fn broker(&mut self) -> i32 {
        *BROKERS.choose(&mut self.rng).unwrap()
    }

    fn some_brokers(&mut self) -> Vec<i32> {
        let mut brokers = BROKERS.to_vec();
        brokers.shuffle(&mut self.rng);
        brokers.truncate(self.rng.random_range(1..=3));
        brokers
    }

    fn has_topic(&self) -> bool {
        self.cluster.follower.topic_id(TOPIC).is_some()
    }

    fn step(&mut self) {
        let before = self.cluster.follower.clone();
        match self.rng.random_range(0..18) {
            0..=3 => self.heartbeat(),
            4 => self.time(),
            5 => self.restart(),
            6..=8 if self.has_topic() => self.propose(),
            9 if self.has_topic() => self.reassign(),
            10 if self.has_topic() => self.elect(),
            11 if self.has_topic() => self.flip_unclean(),
            12 if self.has_topic() && self.rng.random_bool(0.5) => self.set_min_isr(),
            12 if self.rng.random_bool(0.1) => {
                let level = self.rng.random_range(0..2);
                self.cluster.set_elr(level);
            }
            12 => self.topics(),
            13 if self.rng.random_bool(0.2) => {
                let broker_id = self.broker();
                self.cluster.ask(0, UnregisterBrokerRequest { broker_id, ..Default::default() });
            }
            14 if self.rng.random_bool(0.3) => return self.fail_over(),
            15 if self.rng.random_bool(0.5) => {
                let (id, at) = (self.broker(), self.rng.random_range(1..=2));
                self.cluster.report_failed(id, &[dir(id, at)]);
            }
            16 if self.has_topic() => {
                let (id, at) = (self.broker(), self.rng.random_range(1..=2));
                self.cluster.assign(id, dir(id, at), &[0, 1]);
            }
            _ => {
                self.cluster.tick();
            }
        }
        if self.cluster.follower != before {
            self.uncommitted.push_back(self.cluster.follower.clone());
        }
        while self.uncommitted.len() > 3 || self.rng.random_bool(0.4) {
            let Some(image) = self.uncommitted.pop_front() else {
                break;
            };
            self.commit(image);
        }
    }

    fn commit(&mut self, image: ClusterImage) {
        for (topic, index, p) in image.partitions() {
            let key = (topic.id, index, p.leader_epoch.get());
            let leader = *self.leaders.entry(key).or_insert(p.leader.get());
            assert_eq!(leader, p.leader.get(), "two leaders of one epoch at {key:?}");
        }
        self.committed = image;
    }

    fn heartbeat(&mut self) {
        let id = self.broker();
        let newest = self.cluster.follower.offset().get();
        let wish = Wish {
            fence: self.rng.random_bool(0.1),
            shut_down: self.rng.random_bool(0.1),
            offset: Some(self.rng.random_range((newest - 5).max(0)..=newest)),
        };
        self.cluster.heartbeat(id, wish);
    }

    fn time(&mut self) {
        let millis = self.rng.random_range(0..6000);
        self.cluster.pass(millis);
        self.cluster.tick();
    }

    fn restart(&mut self) {
        let id = self.broker();
        self.incarnation = self.incarnation.wrapping_add(1);
        let mut dirs = DIRS.map(|at| dir(id, at)).to_vec();
        if self.rng.random_bool(0.2) {
            dirs.remove(self.rng.random_range(0..dirs.len()));
        }
        let is_clean = self.rng.random_bool(0.5);
        let error = self.cluster.register_with_dirs(id, self.incarnation, &dirs, is_clean);
        if error == 0 {
            self.cluster.heartbeat(id, Wish::default());
        }
    }

    fn propose(&mut self) {
        let p = self.cluster.partition(0);
        let (leader, mut isr): (i32, Vec<i32>) =
            (p.leader.get(), p.replicas.iter().map(|node| node.get()).collect());
        isr.retain(|member| *member == leader || self.rng.random_bool(0.7));
        let mut request = self.cluster.proposal(&isr);
        let partition = &mut request.topics[0].partitions[0];
        if self.rng.random_bool(0.2) {
            partition.partition_epoch += self.rng.random_range(-1..=1);
        }
        if self.rng.random_bool(0.5) {
            partition.leader_recovery_state = 0;
        }
        self.cluster.alter(request);
    }

    fn reassign(&mut self) {
        let replicas = self.rng.random_bool(0.7).then(|| self.some_brokers());
        let partition = ReassignablePartition { replicas, ..Default::default() };
        let partitions = vec![partition];
        let topic = ReassignableTopic { name: TOPIC.into(), partitions, ..Default::default() };
        let topics = vec![topic];
        self.cluster.ask(1, AlterPartitionReassignmentsRequest { topics, ..Default::default() });
    }

    fn elect(&mut self) {
        let topic =
            TopicPartitions { topic: TOPIC.into(), partitions: vec![0], ..Default::default() };
        let request = ElectLeadersRequest {
            election_type: self.rng.random_range(0..2),
            topic_partitions: Some(vec![topic]),
            ..Default::default()
        };
        self.cluster.ask(2, request);
    }

    fn flip_unclean(&mut self) {
        let value = if self.rng.random_bool(0.5) { "true" } else { "false" };
        let key = "unclean.leader.election.enable";
        configs::alter(&mut self.cluster, 2, TOPIC, key, 0, Some(value));
    }

    /// For the topic or for all brokers, while the feature is on or not (C06).
    fn set_min_isr(&mut self) {
        let value = self.rng.random_range(1..4).to_string();
        let (kind, name) = if self.rng.random_bool(0.7) { (2, TOPIC) } else { (4, "") };
        configs::alter(&mut self.cluster, kind, name, "min.insync.replicas", 0, Some(&value));
    }

    fn topics(&mut self) {
        if !self.has_topic() {
            let replicas = self.some_brokers();
            let topic = manual_topic(TOPIC, &[&replicas], &[]);
            let topics = vec![topic];
            self.cluster.ask(7, CreateTopicsRequest { topics, ..Default::default() });
        } else if self.rng.random_bool(0.2) {
            let topic_names = vec![TOPIC.to_owned()];
            self.cluster.ask(5, DeleteTopicsRequest { topic_names, ..Default::default() });
        } else {
            let topic = create_partitions_request::CreatePartitionsTopic {
                name: TOPIC.into(),
                count: self.rng.random_range(1..4),
                ..Default::default()
            };
            let topics = vec![topic];
            self.cluster.ask(3, CreatePartitionsRequest { topics, ..Default::default() });
        }
    }

    /// Another controller starts from what is committed; the rest is lost (Q07).
    fn fail_over(&mut self) {
        self.uncommitted.clear();
        self.cluster.follower = self.committed.clone();
        self.cluster.fail_over();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_sequence_of_requests_time_and_failovers_breaks_the_invariants(seed: u64) {
        let mut walk = Walk::new(seed);
        for _ in 0..300 {
            walk.step();
        }
    }
}
