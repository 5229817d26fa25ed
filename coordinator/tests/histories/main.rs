//! Random histories of clients that join, sync, commit, leave and fall silent, of coordinators that fail
//! with and without loss of what was not committed, and of appends that fail. After every step: one
//! generation has one assignment and nothing in it two owners; generations do not go back; who reads an
//! offset reads the last one acknowledged or a later one; the log alone gives the state that the shard
//! has; and in the end no request is without its answer.

#[path = "../common/mod.rs"]
mod common;
mod model;
mod subscribers;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{TestTopics, World, replayed};
use coordinator::{Caller, Shard, ShardConfig, Token};
use model::{Fate, GroupModel};
use proptest::prelude::*;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::leave_group_request::MemberIdentity;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, HeartbeatRequest, JoinGroupRequest,
    LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};
use protocol::{ErrorCode, RequestBody, ResponseBody};
use replication::time::Now;

const GROUPS: [&str; 2] = ["a", "b"];
/// `group.max.size`: fewer than there are clients. Static members that stay away from a rebalance are kept
/// beyond it, as Kafka does, until the group is loaded again.
const MAX_SIZE: usize = 3;

/// A client as a consumer library would be, if it did its steps in any order.
#[derive(Default, Debug)]
struct Client {
    group: usize,
    instance: Option<String>,
    member: String,
    generation: i32,
    /// The members it must assign to, if it leads.
    to_assign: Vec<String>,
}

/// What a request was, until its answer comes.
#[derive(Debug)]
enum Asked {
    /// With the era of its group, as for a sync.
    Join {
        client: usize,
        era: u32,
    },
    Sync {
        client: usize,
        generation: i32,
        member: String,
        era: u32,
    },
    Heartbeat {
        client: usize,
    },
    Commit {
        group: usize,
    },
    Delete {
        group: usize,
    },
    Read {
        group: usize,
    },
    Leave,
}

#[derive(Clone, Debug)]
enum Step {
    Join { client: usize, offer: u8 },
    Sync { client: usize },
    Heartbeat { client: usize },
    Leave { client: usize },
    Restart { client: usize },
    Commit { client: usize },
    CommitOutside { group: usize },
    Read { group: usize },
    Delete { group: usize },
    Pass { ms: u64 },
    FailWrite,
    HoldWatermark,
    ReleaseWatermark,
    FailOver,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let client = 0..5usize;
    let group = 0..2usize;
    let step = prop_oneof![
        8 => (client.clone(), 0..3u8).prop_map(|(client, offer)| Step::Join { client, offer }),
        8 => client.clone().prop_map(|client| Step::Sync { client }),
        3 => client.clone().prop_map(|client| Step::Heartbeat { client }),
        1 => client.clone().prop_map(|client| Step::Leave { client }),
        1 => client.clone().prop_map(|client| Step::Restart { client }),
        4 => client.prop_map(|client| Step::Commit { client }),
        1 => group.clone().prop_map(|group| Step::CommitOutside { group }),
        3 => group.clone().prop_map(|group| Step::Read { group }),
        1 => group.prop_map(|group| Step::Delete { group }),
        6 => (0..400u64).prop_map(|ms| Step::Pass { ms }),
        1 => (400..8000u64).prop_map(|ms| Step::Pass { ms }),
        1 => Just(Step::FailWrite),
        1 => Just(Step::HoldWatermark),
        2 => Just(Step::ReleaseWatermark),
        1 => Just(Step::FailOver),
    ];
    proptest::collection::vec(step, 1..150)
}

struct History {
    world: World,
    clients: Vec<Client>,
    asked: BTreeMap<u64, Asked>,
    groups: [GroupModel; 2],
    counter: i64,
}

impl History {
    fn new() -> History {
        let config = ShardConfig {
            initial_rebalance_delay: Duration::from_millis(100),
            new_member_timeout: Duration::from_secs(20),
            offsets_retention_check_interval: Duration::from_secs(1 << 30),
            max_size: MAX_SIZE,
            ..ShardConfig::default()
        };
        let clients = (0..5).map(|at| Client {
            group: usize::from(at == 4),
            instance: (at % 2 == 1).then(|| format!("i{at}")),
            ..Client::default()
        });
        History {
            world: World::new(config),
            clients: clients.collect(),
            asked: BTreeMap::new(),
            groups: Default::default(),
            counter: 0,
        }
    }

    fn send(&mut self, version: i16, request: impl Into<RequestBody>, asked: Asked) -> u64 {
        // Remembered before it is sent: the answer may be there at once.
        let token = self.world.send(version, request);
        self.asked.insert(token, asked);
        token
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Join { client, offer } => self.join(client, offer),
            Step::Sync { client } => self.sync(client),
            Step::Heartbeat { client } => self.heartbeat(client),
            Step::Leave { client } => self.leave(client),
            Step::Restart { client } => {
                let own = &mut self.clients[client];
                (own.member, own.generation) = (String::new(), -1);
                own.to_assign.clear();
            }
            Step::Commit { client } => {
                let own = &self.clients[client];
                let (group, member, generation) = (own.group, own.member.clone(), own.generation);
                let instance = own.instance.clone();
                if !member.is_empty() {
                    self.commit(group, generation, member, instance);
                }
            }
            Step::CommitOutside { group } => self.commit(group, -1, String::new(), None),
            Step::Read { group } => {
                let asked = OffsetFetchRequestGroup {
                    group_id: GROUPS[group].into(),
                    topics: None,
                    ..Default::default()
                };
                let request = OffsetFetchRequest { groups: vec![asked], ..Default::default() };
                self.send(9, request, Asked::Read { group });
            }
            Step::Delete { group } => {
                let names = vec![GROUPS[group].to_owned()];
                let request = DeleteGroupsRequest { groups_names: names, ..Default::default() };
                let token = self.send(2, request, Asked::Delete { group });
                let refused = matches!(self.world.answers.get(&token),
                    Some(ResponseBody::DeleteGroups(answer)) if answer.results[0].error_code != 0);
                if !refused {
                    self.groups[group].asks_to_delete(token);
                }
            }
            Step::Pass { ms } => self.world.pass_ms(ms),
            Step::FailWrite => self.world.failures.push_back(Some(ErrorCode::NotEnoughReplicas)),
            Step::HoldWatermark if self.world.high_watermark.is_none() => {
                let end = i64::try_from(self.world.log.len()).expect("a short log");
                self.world.set_high_watermark(Some(end));
            }
            Step::HoldWatermark => {}
            Step::ReleaseWatermark => self.world.set_high_watermark(None),
            Step::FailOver => {
                self.world.fail_over();
                self.world.set_high_watermark(None);
            }
        }
        self.hear();
        self.compare_with_log();
    }

    fn join(&mut self, client: usize, offer: u8) {
        let own = &self.clients[client];
        let metadata =
            Bytes::from(vec![0, 0, 0, 0, 0, 1, 0, 2, b't', b'1', 255, 255, 255, 255, offer]);
        let names: &[&str] = if offer == 2 { &["range", "sticky"] } else { &["sticky"] };
        let protocols = names.iter().map(|name| JoinGroupRequestProtocol {
            name: (*name).to_owned(),
            metadata: metadata.clone(),
            ..Default::default()
        });
        let request = JoinGroupRequest {
            group_id: GROUPS[own.group].into(),
            session_timeout_ms: 6000,
            rebalance_timeout_ms: 3000,
            member_id: own.member.clone(),
            group_instance_id: own.instance.clone(),
            protocol_type: "consumer".into(),
            protocols: protocols.collect(),
            ..Default::default()
        };
        let era = self.groups[self.clients[client].group].era;
        self.send(9, request, Asked::Join { client, era });
    }

    fn sync(&mut self, client: usize) {
        self.counter += 1;
        let own = &self.clients[client];
        if own.member.is_empty() {
            return;
        }
        let round = self.counter;
        let assigned =
            own.to_assign.iter().enumerate().map(|(at, member)| SyncGroupRequestAssignment {
                member_id: member.clone(),
                assignment: Bytes::from(format!("{round}:{at}")),
                ..Default::default()
            });
        let request = SyncGroupRequest {
            group_id: GROUPS[own.group].into(),
            generation_id: own.generation,
            member_id: own.member.clone(),
            group_instance_id: own.instance.clone(),
            assignments: assigned.collect(),
            ..Default::default()
        };
        let (generation, member) = (own.generation, own.member.clone());
        let era = self.groups[own.group].era;
        self.send(4, request, Asked::Sync { client, generation, member, era });
    }

    fn heartbeat(&mut self, client: usize) {
        let own = &self.clients[client];
        let request = HeartbeatRequest {
            group_id: GROUPS[own.group].into(),
            generation_id: own.generation,
            member_id: own.member.clone(),
            group_instance_id: own.instance.clone(),
            ..Default::default()
        };
        self.send(4, request, Asked::Heartbeat { client });
    }

    fn leave(&mut self, client: usize) {
        let own = &self.clients[client];
        let member = MemberIdentity {
            member_id: own.member.clone(),
            group_instance_id: own.instance.clone(),
            ..Default::default()
        };
        let request = LeaveGroupRequest {
            group_id: GROUPS[own.group].into(),
            members: vec![member],
            ..Default::default()
        };
        self.send(5, request, Asked::Leave);
    }

    fn commit(&mut self, group: usize, generation: i32, member: String, instance: Option<String>) {
        self.counter += 1;
        let (partition, offset) = ((self.counter % 2) as i32, self.counter);
        let topic = OffsetCommitRequestTopic {
            name: "t1".into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index: partition,
                committed_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        };
        let request = OffsetCommitRequest {
            group_id: GROUPS[group].into(),
            generation_id_or_member_epoch: generation,
            member_id: member,
            group_instance_id: instance,
            topics: vec![topic],
            ..Default::default()
        };
        let token = self.send(9, request, Asked::Commit { group });
        self.groups[group].asks_to_commit(token, partition, offset);
    }

    /// Takes the answers in.
    fn hear(&mut self) {
        for (token, response) in std::mem::take(&mut self.world.answers) {
            let asked = self.asked.remove(&token).expect("an answer to a request");
            match (asked, response) {
                (Asked::Join { client, era }, ResponseBody::JoinGroup(answer)) => {
                    let own = &mut self.clients[client];
                    match ErrorCode::from_code(answer.error_code) {
                        ErrorCode::None => {
                            if era == self.groups[own.group].era {
                                self.groups[own.group].joins(answer.generation_id);
                            }
                            own.member = answer.member_id;
                            own.generation = answer.generation_id;
                            let listed = answer.members.into_iter().map(|m| m.member_id);
                            own.to_assign =
                                if answer.skip_assignment { Vec::new() } else { listed.collect() };
                        }
                        ErrorCode::MemberIdRequired => own.member = answer.member_id,
                        ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                            own.member = String::new();
                        }
                        _ => {}
                    }
                }
                (
                    Asked::Sync { client, generation, member, era },
                    ResponseBody::SyncGroup(answer),
                ) => {
                    let own = &self.clients[client];
                    if answer.error_code == 0 && era == self.groups[own.group].era {
                        let text = String::from_utf8_lossy(&answer.assignment).into_owned();
                        let owner = own.instance.clone().unwrap_or(member);
                        self.groups[own.group].is_assigned(generation, &owner, &text);
                    }
                }
                (Asked::Heartbeat { client }, ResponseBody::Heartbeat(answer)) => {
                    if matches!(answer.error_code, 25 | 82) {
                        self.clients[client].member = String::new();
                    }
                }
                (Asked::Commit { group }, ResponseBody::OffsetCommit(answer)) => {
                    let fate = fate(answer.topics[0].partitions[0].error_code);
                    self.groups[group].learns(token, fate);
                }
                (Asked::Delete { group }, ResponseBody::DeleteGroups(answer)) => {
                    self.groups[group].learns(token, fate(answer.results[0].error_code));
                }
                (Asked::Read { group }, ResponseBody::OffsetFetch(answer)) => {
                    let answered = &answer.groups[0];
                    if answered.error_code == 0 {
                        for partition in 0..2 {
                            let found = answered
                                .topics
                                .iter()
                                .flat_map(|topic| &topic.partitions)
                                .find(|found| found.partition_index == partition);
                            let offset = found.map_or(-1, |found| found.committed_offset);
                            self.groups[group].reads(partition, offset);
                        }
                    }
                }
                (Asked::Leave, ResponseBody::LeaveGroup(_)) => {}
                (asked, response) => panic!("{asked:?} was answered with {response:?}"),
            }
        }
    }

    /// The log, read by another shard, gives what this one says of groups that are not in between.
    fn compare_with_log(&mut self) {
        let mut other = replayed(&self.world.log, self.world.config.clone(), 0);
        let _ = other.on_loaded(&self.world.topics, self.world.now());
        for group in GROUPS {
            let (topics, now) = (&self.world.topics, self.world.now());
            let describe = |shard: &mut Shard| {
                let request =
                    DescribeGroupsRequest { groups: vec![group.to_owned()], ..Default::default() };
                let asked = OffsetFetchRequestGroup {
                    group_id: group.to_owned(),
                    topics: None,
                    ..Default::default()
                };
                let offsets = OffsetFetchRequest { groups: vec![asked], ..Default::default() };
                let described = ask(shard, topics, now, 6, request.into());
                (described, ask(shard, topics, now, 9, offsets.into()))
            };
            let live = describe(&mut self.world.shard);
            let read = describe(&mut other);
            assert_eq!(live.1, read.1, "offsets of {group}");
            let ResponseBody::DescribeGroups(described) = &live.0 else { panic!("another answer") };
            let is_settled =
                matches!(described.groups[0].group_state.as_str(), "Stable" | "Empty" | "Dead");
            // Who loads a group that is too large rebalances it at once.
            let fits = described.groups[0].members.len() <= MAX_SIZE;
            if is_settled && fits && !self.world.unwritten.contains(group) {
                assert_eq!(live.0, read.0, "group {group}");
            }
        }
    }

    fn end(mut self) {
        self.world.failures.clear();
        self.world.set_high_watermark(None);
        for _ in 0..60 {
            self.world.pass_ms(1000);
            self.hear();
        }
        assert!(self.asked.is_empty(), "without an answer: {:?}", self.asked);
        for group in 0..2 {
            self.take(Step::Read { group });
        }
    }
}

/// A write that failed is not there; a coordinator that was lost may have written.
fn fate(error: i16) -> Fate {
    match ErrorCode::from_code(error) {
        ErrorCode::None => Fate::Done,
        ErrorCode::NotCoordinator => Fate::Unknown,
        _ => Fate::Refused,
    }
}

fn ask(
    shard: &mut Shard,
    topics: &TestTopics,
    now: Now,
    version: i16,
    request: RequestBody,
) -> ResponseBody {
    let caller = Caller { client_id: "model".into(), client_host: "/127.0.0.1".into() };
    let output = shard.on_request(Token(u64::MAX), &caller, version, request, topics, now);
    assert!(output.writes.is_empty());
    output.answers.into_iter().next().expect("an answer").response
}

fn run(steps: Vec<Step>) {
    let mut history = History::new();
    for step in steps {
        history.take(step);
    }
    history.end();
}

/// How many random histories to try: `PROPTEST_CASES`, or these.
fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(300), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_keeps_what_the_clients_were_told(steps in steps()) {
        run(steps);
    }
}

/// The answer to a sync waits for the log, and comes when the group is another one of the same name.
#[test]
fn an_assignment_of_a_group_that_was_deleted_meanwhile_says_nothing_of_the_new_one() {
    run(vec![
        Step::Join { client: 3, offer: 0 },
        Step::Pass { ms: 100 },
        Step::HoldWatermark,
        Step::Join { client: 3, offer: 1 },
        Step::Sync { client: 3 },
        Step::Pass { ms: 6000 },
        Step::Delete { group: 0 },
        Step::Join { client: 1, offer: 0 },
    ]);
}

#[test]
fn the_histories_reach_what_they_are_about() {
    let mut history = History::new();
    for _ in 0..3 {
        for client in 0..3 {
            history.take(Step::Join { client, offer: 2 });
        }
        history.take(Step::Pass { ms: 300 });
    }
    for client in 0..3 {
        history.take(Step::Sync { client });
    }
    history.take(Step::Commit { client: 0 });
    history.take(Step::HoldWatermark);
    history.take(Step::Commit { client: 0 });
    history.take(Step::Read { group: 0 });
    assert_eq!(history.asked.len(), 2, "{:?}", history.asked);
    history.take(Step::FailOver);
    history.take(Step::Read { group: 0 });
    assert!(history.clients[..3].iter().all(|client| client.generation >= 1));
    history.end();
}
