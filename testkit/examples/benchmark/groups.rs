//! A thousand consumer groups of ten members each (KIP-848, whose joins do not block): how long until all
//! have their partitions, and what their heartbeats cost the nodes.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, FindCoordinatorRequest,
};
use testkit::client::Client;

use crate::load::quantile;
use crate::machine;
use crate::measure::{Rows, both, memory};
use crate::system::{System, retry};

const GROUPS: usize = 1000;
const MEMBERS: usize = 10;
const TOPIC: &str = "groups";
const HEARTBEAT_VERSION: i16 = 1;
/// What Kafka's clients are told: `group.consumer.heartbeat.interval.ms`.
const INTERVAL: Duration = Duration::from_secs(5);
/// How long the settled groups are watched.
const WATCHED: Duration = Duration::from_secs(15);
/// COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR.
const COORDINATOR_NOT_READY: [i16; 3] = [14, 15, 16];
const LOADING_PATIENCE: Duration = Duration::from_secs(60);
const FORMING_PATIENCE: Duration = Duration::from_secs(180);
/// The pause between two looks at the members that have not settled.
const ROUND: Duration = Duration::from_millis(200);

/// A member as its client knows itself.
#[derive(Clone, Debug)]
struct Member {
    group: usize,
    id: String,
    epoch: i32,
    assigned: Vec<TopicPartitions>,
    /// What it owns is to be told with the next heartbeat.
    owes_answer: bool,
}

impl Member {
    fn partitions(&self) -> usize {
        self.assigned.iter().map(|topic| topic.partitions.len()).sum()
    }

    fn request(&mut self) -> ConsumerGroupHeartbeatRequest {
        let joins = self.epoch == 0;
        let owned = (joins || self.owes_answer).then(|| self.assigned.clone());
        self.owes_answer = false;
        ConsumerGroupHeartbeatRequest {
            group_id: group_name(self.group),
            member_id: self.id.clone(),
            member_epoch: self.epoch,
            rebalance_timeout_ms: if joins { 60_000 } else { -1 },
            subscribed_topic_names: joins.then(|| vec![TOPIC.to_owned()]),
            topic_partitions: owned,
            ..ConsumerGroupHeartbeatRequest::default()
        }
    }

    fn learn(&mut self, response: ConsumerGroupHeartbeatResponse) -> Result<()> {
        let error = response.error_code;
        ensure!(error == 0, "heartbeat: error {error} {:?}", response.error_message);
        self.epoch = response.member_epoch;
        if let Some(assignment) = response.assignment {
            let topics = assignment.topic_partitions.into_iter();
            self.assigned = topics
                .map(|topic| TopicPartitions {
                    topic_id: topic.topic_id,
                    partitions: topic.partitions,
                    ..TopicPartitions::default()
                })
                .collect();
            self.owes_answer = true;
        }
        Ok(())
    }
}

fn group_name(group: usize) -> String {
    format!("benchmark-{group}")
}

/// The members of one coordinator, and the connection that they share.
struct Coordinated {
    client: Client,
    members: Vec<Member>,
    latencies: Vec<Duration>,
}

impl Coordinated {
    /// A coordinator that still loads its partition is asked again, as a client would.
    fn heartbeat(&mut self, at: usize) -> Result<()> {
        let request = self.members[at].request();
        let deadline = Instant::now() + LOADING_PATIENCE;
        loop {
            let sent = Instant::now();
            let response = self.client.call(HEARTBEAT_VERSION, request.clone())?;
            if COORDINATOR_NOT_READY.contains(&response.error_code) && sent < deadline {
                thread::sleep(ROUND);
                continue;
            }
            self.latencies.push(sent.elapsed());
            return self.members[at].learn(response);
        }
    }

    /// Heartbeats of all members until every group's partitions are divided among them.
    fn form(&mut self) -> Result<()> {
        let deadline = Instant::now() + FORMING_PATIENCE;
        loop {
            let settled = self.settled_groups();
            let waiting: Vec<usize> = (0..self.members.len())
                .filter(|at| !settled.contains_key(&self.members[*at].group))
                .collect();
            if waiting.is_empty() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "{} members have not settled", waiting.len());
            for at in waiting {
                self.heartbeat(at)?;
            }
            thread::sleep(ROUND);
        }
    }

    fn settled_groups(&self) -> BTreeMap<usize, ()> {
        let mut groups: BTreeMap<usize, Vec<&Member>> = BTreeMap::new();
        for member in &self.members {
            groups.entry(member.group).or_default().push(member);
        }
        let is_settled = |members: &[&Member]| {
            members.iter().map(|member| member.partitions()).sum::<usize>() == MEMBERS
                && members.iter().all(|m| m.epoch == members[0].epoch && !m.owes_answer)
        };
        groups
            .into_iter()
            .filter(|(_, members)| is_settled(members))
            .map(|(g, _)| (g, ()))
            .collect()
    }

    /// Every member's heartbeat once per interval, evenly.
    fn watch(&mut self, length: Duration) -> Result<()> {
        self.latencies.clear();
        let begun = Instant::now();
        let pause = INTERVAL / self.members.len().max(1) as u32;
        for turn in 0.. {
            let due = begun + pause * turn;
            if due.duration_since(begun) >= length {
                return Ok(());
            }
            thread::sleep(due.saturating_duration_since(Instant::now()));
            self.heartbeat(turn as usize % self.members.len())?;
        }
        Ok(())
    }
}

/// Which node coordinates each group.
fn coordinators(system: &System) -> Result<Vec<usize>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    retry(deadline, "the groups' coordinators", || {
        let request = FindCoordinatorRequest {
            coordinator_keys: (0..GROUPS).map(group_name).collect(),
            ..FindCoordinatorRequest::default()
        };
        let response = system.client(1)?.call(4, request)?;
        response
            .coordinators
            .iter()
            .map(|found| {
                ensure!(found.error_code == 0, "error {}", found.error_code);
                Ok(usize::try_from(found.node_id)?)
            })
            .collect()
    })
}

/// Runs `work` for the members of every coordinator, each on a thread of its own.
fn on_all(
    all: Vec<Coordinated>,
    work: impl Fn(&mut Coordinated) -> Result<()> + Clone + Send + 'static,
) -> Result<Vec<Coordinated>> {
    let threads: Vec<_> = all
        .into_iter()
        .map(|mut coordinated| {
            let work = work.clone();
            thread::spawn(move || work(&mut coordinated).map(|()| coordinated))
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().ok().context("a client thread panicked")?)
        .collect()
}

/// Forms the groups and watches them.
pub fn groups(system: &System) -> Result<Rows> {
    system.create_topic(TOPIC, MEMBERS as i32)?;
    let mut by_node: BTreeMap<usize, Vec<Member>> = BTreeMap::new();
    for (group, node) in coordinators(system)?.into_iter().enumerate() {
        let members = (0..MEMBERS).map(|at| Member {
            group,
            id: format!("member-{group}-{at}"),
            epoch: 0,
            assigned: Vec::new(),
            owes_answer: false,
        });
        by_node.entry(node).or_default().extend(members);
    }
    // A coordinator may still be loading its empty partitions.
    thread::sleep(Duration::from_secs(2));
    let mut all = Vec::new();
    for (node, members) in by_node {
        all.push(Coordinated { client: system.client(node)?, members, latencies: Vec::new() });
    }
    let begun = Instant::now();
    let all = on_all(all, Coordinated::form)?;
    let formed = begun.elapsed();

    let pids = system.pids()?;
    let cpu =
        || -> Result<Vec<Duration>> { pids.iter().map(|pid| machine::cpu_time(*pid)).collect() };
    let before = cpu()?;
    let all = on_all(all, |coordinated| coordinated.watch(WATCHED))?;
    let shares: Vec<String> = before
        .iter()
        .zip(&cpu()?)
        .map(|(before, after)| {
            let used = after.saturating_sub(*before).as_secs_f64();
            format!("{:.1}", used / WATCHED.as_secs_f64() * 100.0)
        })
        .collect();
    let mut latencies: Vec<Duration> = all.into_iter().flat_map(|one| one.latencies).collect();
    let (p50, p99) = (quantile(&mut latencies, 0.5), quantile(&mut latencies, 0.99));
    let what = format!("{GROUPS} groups of {MEMBERS} members divided after");
    Ok(vec![
        (what, format!("{:.1} s", formed.as_secs_f64())),
        ("  CPU of a node, their heartbeats".into(), format!("{} % of a core", shares.join(" / "))),
        ("  heartbeat p50 / p99".into(), both(p50, p99)),
        ("  memory of a node with them".into(), memory(system)?),
    ])
}
