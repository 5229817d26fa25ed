//! The coordinator of a group dies by SIGKILL: in a stream of commits, in each part of a rebalance, and while its
//! successor is still loading. Members find the new one, no acknowledged commit goes back, and no
//! partition is owned twice in one generation.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use protocol::ErrorCode;
use protocol::messages::OffsetCommitRequest;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use testkit::group::{GroupClient, Owned, RawMember};
use testkit::real::{Cluster, NodeId};

use crate::alone;
use crate::clients::script;
use crate::groups::with_quick_groups;

const TOPIC: &str = "work";
const PARTITIONS: i32 = 4;
const OFFSETS: &str = "__consumer_offsets";
const PATIENCE: Duration = Duration::from_secs(90);

/// All groups of this cluster have the same coordinator.
fn cluster_of_one_coordinator(load_buffer_bytes: usize) -> Cluster {
    let mut cluster = with_quick_groups()
        .set("offsets.topic.num.partitions", 1)
        .set("offsets.load.buffer.size", load_buffer_bytes)
        .set("broker.session.timeout.ms", 1500)
        .set("broker.heartbeat.interval.ms", 300)
        .set("controller.quorum.election.timeout.ms", 300)
        .set("controller.quorum.fetch.timeout.ms", 600)
        .set("replica.lag.time.max.ms", 3000)
        .set("replica.fetch.backoff.ms", 100)
        .patience(PATIENCE)
        .start()
        .expect("a cluster");
    let replicas: &[&[NodeId]] = &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 2, 3]];
    cluster.create_topic(TOPIC, replicas, &[]).expect("a topic");
    let mut client = GroupClient::new(&cluster.bootstrap(), "first");
    let none = client.committed(TOPIC, 0, PATIENCE).expect("a coordinator");
    assert_eq!(none, -1);
    cluster.wait_for_isr(OFFSETS, 0, &[1, 2, 3]).expect("a full ISR");
    cluster
}

/// Kills who coordinates; gives the node.
fn kill_coordinator(cluster: &mut Cluster) -> NodeId {
    let victim = cluster.leader(OFFSETS, 0).expect("a leader");
    cluster.kill(victim).expect("killed");
    victim
}

fn bring_back(cluster: &mut Cluster, node: NodeId) {
    cluster.start(node).expect("started again");
    cluster.wait_for_isr(OFFSETS, 0, &[1, 2, 3]).expect("in the ISR again");
}

/// Somebody who commits one offset after the other, on a thread of its own.
struct Stream {
    stop: Arc<AtomicBool>,
    count: Arc<AtomicUsize>,
    thread: JoinHandle<i64>,
}

impl Stream {
    /// `step` commits an offset until it is acknowledged.
    fn start(mut step: impl FnMut(i64) + Send + 'static) -> Stream {
        let stop = Arc::new(AtomicBool::new(false));
        let count = Arc::new(AtomicUsize::new(0));
        let (told, counter) = (stop.clone(), count.clone());
        let thread = std::thread::spawn(move || {
            let mut last = 0;
            while !told.load(Ordering::SeqCst) {
                step(last + 1);
                last += 1;
                counter.store(last as usize, Ordering::SeqCst);
            }
            last
        });
        Stream { stop, count, thread }
    }

    /// Offsets from outside the group. Every tenth is read back at once.
    fn without_member(bootstrap: &str, group: &str) -> Stream {
        let mut client = GroupClient::new(bootstrap, group);
        Stream::start(move |offset| {
            let error = client.commit(TOPIC, 0, offset, None, PATIENCE).expect("an answer");
            assert_eq!(error, ErrorCode::None);
            if offset % 10 == 0 {
                let committed = client.committed(TOPIC, 0, PATIENCE).expect("an answer");
                assert_eq!(committed, offset, "what was acknowledged went back");
            }
        })
    }

    /// Offsets of a member, whose generation outlives its coordinators.
    fn of_a_member(bootstrap: &str, group: &str) -> Stream {
        let mut member = RawMember::new(bootstrap, group, 1, Duration::from_secs(60));
        member.enter(PATIENCE).expect("a generation");
        Stream::start(move |offset| {
            let generation = member.owned().expect("a generation").generation;
            let id = member.id().to_owned();
            let error = member.client.commit(TOPIC, 0, offset, Some((&id, generation)), PATIENCE);
            assert_eq!(error.expect("an answer"), ErrorCode::None);
            if offset % 10 == 0 {
                assert!(member.heartbeat(PATIENCE).expect("an answer"), "the generation ended");
                let committed = member.client.committed(TOPIC, 0, PATIENCE).expect("an answer");
                assert_eq!(committed, offset, "what was acknowledged went back");
            }
        })
    }

    /// Waits for this many more acknowledgements.
    fn wait_for_more(&self, more: usize) {
        let wanted = self.count.load(Ordering::SeqCst) + more;
        let deadline = Instant::now() + PATIENCE;
        while self.count.load(Ordering::SeqCst) < wanted {
            assert!(!self.thread.is_finished(), "the stream of commits broke off");
            assert!(Instant::now() < deadline, "no {more} more commits within {PATIENCE:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The offset that was acknowledged last.
    fn finish(self) -> i64 {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("the stream ends without a panic")
    }
}

/// librdkafka's members, told by testkit/clients/group_confluent.py.
struct Members(Child);

impl Members {
    fn start(bootstrap: &str, story: &str) -> Option<Members> {
        let name = "group_confluent.py";
        let mut command = script(name, "confluent_kafka", bootstrap, &[story])?;
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut members = Members(child.expect("the script starts"));
        let out = members.0.stdout.as_mut().expect("a pipe");
        let mut line = String::new();
        BufReader::with_capacity(1, out).read_line(&mut line).expect("a line");
        assert_eq!(line.trim(), "ready");
        Some(members)
    }

    /// They read to the end and check what happened to them.
    fn finish(mut self) {
        self.0.stdin.take().expect("a pipe").write_all(b"\n").expect("it reads");
        let mut out = String::new();
        self.0.stdout.take().expect("a pipe").read_to_string(&mut out).expect("text");
        let status = self.0.wait().expect("it ends");
        assert!(status.success() && out.trim().ends_with("ok"), "{status}: {out}");
        println!("{out}");
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        // Both fail only when it is gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The coordinator dies twice while commits stream in and librdkafka's members read.
fn commits_survive(story: &str) {
    let mut cluster = cluster_of_one_coordinator(5 << 20);
    let bootstrap = cluster.bootstrap();
    let outside = Stream::without_member(&bootstrap, "outside");
    let member = Stream::of_a_member(&bootstrap, "member");
    let members = Members::start(&bootstrap, story);
    for _ in 0..2 {
        outside.wait_for_more(50);
        member.wait_for_more(50);
        let victim = kill_coordinator(&mut cluster);
        outside.wait_for_more(50);
        member.wait_for_more(50);
        bring_back(&mut cluster, victim);
    }
    for (stream, group) in [(outside, "outside"), (member, "member")] {
        let last = stream.finish();
        let mut client = GroupClient::new(&bootstrap, group);
        let committed = client.committed(TOPIC, 0, PATIENCE).expect("an answer");
        assert_eq!(committed, last, "the acknowledged commits of {group}");
        println!("{group}: {last} commits");
    }
    if let Some(members) = members {
        members.finish();
    }
}

#[test]
fn a_stream_of_commits_survives_its_coordinators_beside_eager_members() {
    let _alone = alone();
    commits_survive("endures-range");
}

#[test]
fn a_stream_of_commits_survives_its_coordinators_beside_cooperative_members() {
    let _alone = alone();
    commits_survive("endures-cooperative");
}

#[test]
fn a_stream_of_commits_survives_its_coordinators_beside_members_of_kip_848() {
    let _alone = alone();
    commits_survive("endures-consumer");
}

/// Where in a rebalance the coordinator dies.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// One has asked to join, the others have not heard of it.
    Joining,
    /// All have joined; the followers wait for what the leader makes of it.
    Syncing,
    /// The leader has just sent that, and nobody has read an answer.
    Sent,
}

/// Members of one group and what they committed.
struct Crowd {
    members: Vec<RawMember>,
    acknowledged: BTreeMap<i32, i64>,
}

impl Crowd {
    /// All of them take part, each in its own time, until they agree on a generation.
    fn settle(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let board = Mutex::new(vec![None; self.members.len()]);
        let agreed = AtomicBool::new(false);
        loop {
            agreed.store(false, Ordering::SeqCst);
            std::thread::scope(|scope| {
                for (at, member) in self.members.iter_mut().enumerate() {
                    let (board, agreed) = (&board, &agreed);
                    scope.spawn(move || {
                        while !agreed.load(Ordering::SeqCst) {
                            take_part(member, at, board, agreed);
                            std::thread::sleep(Duration::from_millis(50));
                        }
                    });
                }
            });
            if self.all_hold() {
                return;
            }
            assert!(Instant::now() < deadline, "no common generation within {PATIENCE:?}");
        }
    }

    fn all_hold(&mut self) -> bool {
        self.members.iter_mut().all(|member| member.heartbeat(PATIENCE).expect("an answer"))
    }

    /// Everybody commits the next offset of each partition that it owns.
    fn commit(&mut self) {
        for member in &mut self.members {
            let Owned { generation, member_id, partitions } =
                member.owned().expect("a generation").clone();
            for partition in partitions {
                let offset = self.acknowledged.get(&partition).copied().unwrap_or(0) + 1;
                let by = Some((member_id.as_str(), generation));
                let error = member.client.commit(TOPIC, partition, offset, by, PATIENCE);
                assert_eq!(error.expect("an answer"), ErrorCode::None);
                self.acknowledged.insert(partition, offset);
            }
        }
    }

    /// Nothing went back, and no generation gave a partition to two.
    fn check(&mut self) {
        for (partition, offset) in &self.acknowledged {
            let client = &mut self.members[0].client;
            let committed = client.committed(TOPIC, *partition, PATIENCE).expect("an answer");
            assert_eq!(committed, *offset, "the commit of partition {partition}");
        }
        let mut owners = BTreeMap::new();
        for owned in self.members.iter().flat_map(|member| &member.history) {
            for partition in &owned.partitions {
                let owner = owners.entry((owned.generation, *partition)).or_insert(owned);
                assert_eq!(owner.member_id, owned.member_id, "{owned:?} and {owner:?}");
            }
        }
        let last = self.members[0].owned().expect("a generation").generation;
        let covered = (0..PARTITIONS).all(|partition| owners.contains_key(&(last, partition)));
        assert!(covered, "generation {last} leaves partitions out: {owners:?}");
    }

    /// A rebalance whose coordinator dies at this moment; gives the node that died.
    fn rebalance_and_kill(&mut self, cluster: &mut Cluster, moment: Moment) -> NodeId {
        let leader = self.leader();
        self.members.swap(0, leader);
        let (first, others) = self.members.split_first_mut().expect("members");
        if matches!(moment, Moment::Joining) {
            return std::thread::scope(|scope| {
                // It breaks off with the connection, unless the answer was under way.
                scope.spawn(|| first.try_join());
                wait_until_told(&mut others[0]);
                kill_coordinator(cluster)
            });
        }
        // The leader joins anew, which starts a rebalance; it ends when the others have joined too.
        let joined: Vec<_> = std::thread::scope(|scope| {
            let leading = scope.spawn(|| first.join(PATIENCE).expect("joined"));
            wait_until_told(&mut others[0]);
            let following: Vec<_> = others
                .iter_mut()
                .map(|member| scope.spawn(|| member.join(PATIENCE).expect("joined")))
                .collect();
            let threads = std::iter::once(leading).chain(following);
            threads.map(|thread| thread.join().expect("no panic")).collect()
        });
        let leader = self.leader();
        std::thread::scope(|scope| {
            let mut leading = None;
            for (at, (member, joined)) in self.members.iter_mut().zip(&joined).enumerate() {
                if at == leader {
                    leading = Some((member, joined));
                } else {
                    scope.spawn(|| member.sync(joined, PATIENCE).expect("an answer"));
                }
            }
            std::thread::sleep(Duration::from_millis(300));
            let (member, joined) = leading.expect("a leader");
            if matches!(moment, Moment::Sent) {
                scope.spawn(|| member.sync(joined, PATIENCE).expect("an answer"));
                std::thread::sleep(Duration::from_millis(2));
                return kill_coordinator(cluster);
            }
            let victim = kill_coordinator(cluster);
            member.sync(joined, PATIENCE).expect("an answer");
            victim
        })
    }

    fn leader(&self) -> usize {
        self.members.iter().position(RawMember::leads).expect("a leader")
    }
}

/// One heartbeat, or one way into the group; what comes of it goes to the board.
fn take_part(
    member: &mut RawMember,
    at: usize,
    board: &Mutex<Vec<Option<i32>>>,
    agreed: &AtomicBool,
) {
    let holds = member.owned().is_some() && member.heartbeat(PATIENCE).expect("an answer");
    if !holds {
        board.lock().expect("not poisoned")[at] = None;
        member.enter(PATIENCE).expect("a generation");
    }
    let mut board = board.lock().expect("not poisoned");
    board[at] = member.owned().map(|owned| owned.generation);
    if board.iter().all(|generation| generation.is_some() && *generation == board[at]) {
        agreed.store(true, Ordering::SeqCst);
    }
}

/// Waits until a member hears of the rebalance with its heartbeat.
fn wait_until_told(member: &mut RawMember) {
    let deadline = Instant::now() + PATIENCE;
    while member.heartbeat(PATIENCE).expect("an answer") {
        assert!(Instant::now() < deadline, "no rebalance within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_rebalance_survives_the_death_of_its_coordinator_at_every_moment() {
    let _alone = alone();
    let mut cluster = cluster_of_one_coordinator(5 << 20);
    let member =
        || RawMember::new(&cluster.bootstrap(), "crowd", PARTITIONS, Duration::from_secs(10));
    let members = vec![member(), member(), member()];
    let mut crowd = Crowd { members, acknowledged: BTreeMap::new() };
    crowd.settle();
    crowd.commit();
    for moment in [Moment::Joining, Moment::Syncing, Moment::Sent] {
        let victim = crowd.rebalance_and_kill(&mut cluster, moment);
        crowd.settle();
        crowd.check();
        crowd.commit();
        bring_back(&mut cluster, victim);
        crowd.settle();
        crowd.check();
        println!("{moment:?}: generation {:?}", crowd.members[0].owned());
    }
}

/// Makes the log long, one batch a commit, many under way at a time.
fn fill(cluster: &Cluster, commits: i64) {
    let leader = cluster.leader(OFFSETS, 0).expect("a leader");
    let mut client = cluster.client(leader).expect("a client");
    let request = |offset| OffsetCommitRequest {
        group_id: "filler".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC.into(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                committed_leader_epoch: -1,
                ..OffsetCommitRequestPartition::default()
            }],
            ..OffsetCommitRequestTopic::default()
        }],
        ..OffsetCommitRequest::default()
    };
    let mut under_way = 0;
    for offset in 1..=commits {
        client.send(8, request(offset).into()).expect("sent");
        under_way += 1;
        if under_way == 100 {
            for _ in 0..under_way {
                client.read_frame().expect("an answer");
            }
            under_way = 0;
        }
    }
    for _ in 0..under_way {
        client.read_frame().expect("an answer");
    }
}

#[test]
fn a_coordinator_that_dies_while_it_loads_loses_nothing() {
    const COMMITS: i64 = 3000;
    let _alone = alone();
    // A batch at a time: loading takes long enough to be interrupted.
    let mut cluster = cluster_of_one_coordinator(1);
    let bootstrap = cluster.bootstrap();
    let mut ledger = GroupClient::new(&bootstrap, "ledger");
    let error = ledger.commit(TOPIC, 0, 17, None, PATIENCE).expect("an answer");
    assert_eq!(error, ErrorCode::None);
    fill(&cluster, COMMITS);
    let error = ledger.commit(TOPIC, 1, 18, None, PATIENCE).expect("an answer");
    assert_eq!(error, ErrorCode::None);

    let first = kill_coordinator(&mut cluster);
    let second = cluster.wait_for_other_leader(OFFSETS, 0, first).expect("a second leader");
    let loading = is_loading(&cluster, second);
    cluster.kill(second).expect("killed");
    assert!(loading, "node {second} had loaded {COMMITS} commits before it could be killed");
    cluster.start(first).expect("started again");
    for (partition, offset) in [(0, 17), (1, 18)] {
        let committed = ledger.committed(TOPIC, partition, PATIENCE).expect("an answer");
        assert_eq!(committed, offset);
    }
    let mut filler = GroupClient::new(&bootstrap, "filler");
    assert_eq!(filler.committed(TOPIC, 0, PATIENCE).expect("an answer"), COMMITS);
    bring_back(&mut cluster, second);
    ledger.forget();
    assert_eq!(ledger.committed(TOPIC, 1, PATIENCE).expect("an answer"), 18);
}

/// Asks the node itself until it says that it loads, or that it has loaded.
fn is_loading(cluster: &Cluster, node: NodeId) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = GroupClient::at(&format!("127.0.0.1:{}", cluster.port(node)), "ledger")
            .expect("a connection");
        match client.error_of_fetch().expect("an answer") {
            ErrorCode::CoordinatorLoadInProgress => return true,
            ErrorCode::None => return false,
            _ => assert!(Instant::now() < deadline, "node {node} neither loads nor answers"),
        }
    }
}
