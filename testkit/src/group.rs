//! Plain members and committers of consumer groups, which keep their own record of what they were told:
//! every acknowledged commit, and every assignment with its generation.
//!
//! They go on through failovers as real clients do: on a coordinator's error, or on none answering, they
//! look for it again and repeat. What comes of it is judged by the caller.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
use protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use protocol::messages::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};
use protocol::{ErrorCode, Request};

use crate::client::Client;

/// How long one attempt may take on the wire; longer than any rebalance here lasts.
const ATTEMPT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(20);
/// Subscription version 0, no topic, no user data: this group's leader knows what there is to own.
const SUBSCRIPTION: &[u8] = &[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];

/// A connection to a group's coordinator, found again whenever it is lost.
#[derive(Debug)]
pub struct GroupClient {
    bootstrap: Vec<String>,
    group: String,
    connection: Option<Client>,
    /// How often the coordinator was looked for.
    pub searches: usize,
}

impl GroupClient {
    /// Connects when it is first used.
    pub fn new(bootstrap: &str, group: &str) -> Self {
        let bootstrap = bootstrap.split(',').map(str::to_owned).collect();
        Self { bootstrap, group: group.into(), connection: None, searches: 0 }
    }

    /// Asks this node first, whether it coordinates the group or not.
    pub fn at(address: &str, group: &str) -> Result<Self> {
        let connection = Some(Client::connect(address, ATTEMPT)?);
        Ok(Self { connection, ..Self::new(address, group) })
    }

    /// Who coordinates the group just now.
    pub fn coordinator(&self) -> Result<(i32, String)> {
        let mut last = anyhow::anyhow!("nobody answers");
        for address in &self.bootstrap {
            match self.coordinator_by(address) {
                Ok(found) => return Ok(found),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn coordinator_by(&self, address: &str) -> Result<(i32, String)> {
        let mut client = Client::connect(address, Duration::from_secs(3))?;
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![self.group.clone()],
            ..FindCoordinatorRequest::default()
        };
        let response = client.call(4, request)?;
        let found = response.coordinators.first().context("no coordinator in the answer")?;
        match ErrorCode::from_code(found.error_code) {
            ErrorCode::None => Ok((found.node_id, format!("{}:{}", found.host, found.port))),
            error => bail!("FindCoordinator: {}", error.kafka_name()),
        }
    }

    /// One request to the coordinator; the connection is given up on any failure.
    pub fn ask<R: Request>(&mut self, version: i16, request: R) -> Result<R::Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => {
                self.searches += 1;
                let (_, address) = self.coordinator()?;
                Client::connect(&address, ATTEMPT)?
            }
        };
        let response = connection.call(version, request)?;
        self.connection = Some(connection);
        Ok(response)
    }

    /// Looks for the coordinator anew with the next request.
    pub fn forget(&mut self) {
        self.connection = None;
    }

    /// Asks until the answer, or its lack, is not one that finding the coordinator again mends.
    pub fn insist<R: Request + Clone>(
        &mut self,
        version: i16,
        request: &R,
        patience: Duration,
        error_of: impl Fn(&R::Response) -> i16,
    ) -> Result<(ErrorCode, R::Response)> {
        let deadline = Instant::now() + patience;
        loop {
            let last = match self.ask(version, request.clone()) {
                Ok(response) => match ErrorCode::from_code(error_of(&response)) {
                    error @ (ErrorCode::NotCoordinator
                    | ErrorCode::CoordinatorNotAvailable
                    | ErrorCode::CoordinatorLoadInProgress) => error.kafka_name().to_owned(),
                    error => return Ok((error, response)),
                },
                Err(error) => format!("{error:#}"),
            };
            self.forget();
            if Instant::now() > deadline {
                bail!("{:?}: nothing better than {last} within {patience:?}", R::KEY);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Commits one offset; without a member if `member` is `None`. Gives the error of the partition.
    pub fn commit(
        &mut self,
        topic: &str,
        partition: i32,
        offset: i64,
        member: Option<(&str, i32)>,
        patience: Duration,
    ) -> Result<ErrorCode> {
        let (member_id, generation) = member.unwrap_or(("", -1));
        let request = OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: generation,
            member_id: member_id.into(),
            topics: vec![OffsetCommitRequestTopic {
                name: topic.into(),
                partitions: vec![OffsetCommitRequestPartition {
                    partition_index: partition,
                    committed_offset: offset,
                    committed_leader_epoch: -1,
                    ..OffsetCommitRequestPartition::default()
                }],
                ..OffsetCommitRequestTopic::default()
            }],
            ..OffsetCommitRequest::default()
        };
        let (error, _) = self.insist(8, &request, patience, |response| {
            let topic = response.topics.first();
            topic.and_then(|topic| topic.partitions.first()).map_or(-1, |part| part.error_code)
        })?;
        Ok(error)
    }

    /// One fetch of all committed offsets, whatever comes of it.
    pub fn error_of_fetch(&mut self) -> Result<ErrorCode> {
        let group = OffsetFetchRequestGroup {
            group_id: self.group.clone(),
            member_epoch: -1,
            ..Default::default()
        };
        let request = OffsetFetchRequest { groups: vec![group], ..OffsetFetchRequest::default() };
        let response = self.ask(8, request)?;
        Ok(ErrorCode::from_code(response.groups.first().context("no group")?.error_code))
    }

    /// The committed offset of one partition; -1 without one.
    pub fn committed(&mut self, topic: &str, partition: i32, patience: Duration) -> Result<i64> {
        let request = OffsetFetchRequest {
            groups: vec![OffsetFetchRequestGroup {
                group_id: self.group.clone(),
                member_epoch: -1,
                topics: Some(vec![OffsetFetchRequestTopics {
                    name: topic.into(),
                    partition_indexes: vec![partition],
                    ..OffsetFetchRequestTopics::default()
                }]),
                ..OffsetFetchRequestGroup::default()
            }],
            require_stable: true,
            ..OffsetFetchRequest::default()
        };
        let (error, response) = self.insist(8, &request, patience, |response| {
            response.groups.first().map_or(-1, |group| group.error_code)
        })?;
        if error != ErrorCode::None {
            bail!("OffsetFetch: {}", error.kafka_name());
        }
        let topic = response.groups.first().and_then(|group| group.topics.first());
        let found = topic.and_then(|topic| topic.partitions.first()).context("no partition")?;
        Ok(found.committed_offset)
    }
}

/// What a member was told to own, and in which generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Owned {
    /// The group's generation.
    pub generation: i32,
    /// Who.
    pub member_id: String,
    /// Which partitions.
    pub partitions: Vec<i32>,
}

/// A member of the classic protocol. As a leader it deals the partitions out in turn.
#[derive(Debug)]
pub struct RawMember {
    /// Its way to the coordinator.
    pub client: GroupClient,
    partitions: i32,
    session: Duration,
    member_id: String,
    leads: bool,
    /// The assignments of all generations that it took part in.
    pub history: Vec<Owned>,
}

impl RawMember {
    /// A member of a group that owns partitions 0 to `partitions` of some topic.
    pub fn new(bootstrap: &str, group: &str, partitions: i32, session: Duration) -> Self {
        let client = GroupClient::new(bootstrap, group);
        Self {
            client,
            partitions,
            session,
            member_id: String::new(),
            leads: false,
            history: Vec::new(),
        }
    }

    /// Its id, empty before it has one.
    pub fn id(&self) -> &str {
        &self.member_id
    }

    /// What it owns by its newest generation.
    pub fn owned(&self) -> Option<&Owned> {
        self.history.last()
    }

    /// Whether the last join made it the one that deals out.
    pub fn leads(&self) -> bool {
        self.leads
    }

    fn join_request(&self) -> JoinGroupRequest {
        JoinGroupRequest {
            group_id: self.client.group.clone(),
            session_timeout_ms: self.session.as_millis() as i32,
            rebalance_timeout_ms: self.session.as_millis() as i32,
            member_id: self.member_id.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol {
                name: "in turn".into(),
                metadata: Bytes::from_static(SUBSCRIPTION),
                ..JoinGroupRequestProtocol::default()
            }],
            ..JoinGroupRequest::default()
        }
    }

    /// Asks once to join; an answer, if one comes, is left alone.
    pub fn try_join(&mut self) -> Result<JoinGroupResponse> {
        self.client.ask(7, self.join_request())
    }

    /// The first half of joining: gives the answer that makes it a member of a generation.
    pub fn join(&mut self, patience: Duration) -> Result<JoinGroupResponse> {
        let deadline = Instant::now() + patience;
        loop {
            let request = self.join_request();
            let (error, response) =
                self.client.insist(7, &request, patience, |response| response.error_code)?;
            match error {
                ErrorCode::None => {
                    self.member_id.clone_from(&response.member_id);
                    self.leads = response.leader == response.member_id;
                    return Ok(response);
                }
                ErrorCode::MemberIdRequired => self.member_id.clone_from(&response.member_id),
                ErrorCode::UnknownMemberId => self.member_id.clear(),
                ErrorCode::RebalanceInProgress => {}
                error => bail!("JoinGroup: {}", error.kafka_name()),
            }
            if Instant::now() > deadline {
                bail!("not joined within {patience:?}");
            }
        }
    }

    /// The second half: whether it now owns something of this generation, or must join again.
    pub fn sync(&mut self, joined: &JoinGroupResponse, patience: Duration) -> Result<bool> {
        let shares = (0..).zip(&joined.members).map(|(place, member)| {
            let share = (0..self.partitions)
                .filter(|partition| *partition as usize % joined.members.len() == place)
                .flat_map(i32::to_be_bytes);
            SyncGroupRequestAssignment {
                member_id: member.member_id.clone(),
                assignment: share.collect::<Vec<u8>>().into(),
                ..SyncGroupRequestAssignment::default()
            }
        });
        let request = SyncGroupRequest {
            group_id: self.client.group.clone(),
            generation_id: joined.generation_id,
            member_id: self.member_id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: joined.protocol_name.clone(),
            assignments: shares.collect(),
            ..SyncGroupRequest::default()
        };
        let (error, response) =
            self.client.insist(5, &request, patience, |response| response.error_code)?;
        match error {
            ErrorCode::None => {}
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => return Ok(false),
            ErrorCode::UnknownMemberId => {
                self.member_id.clear();
                return Ok(false);
            }
            error => bail!("SyncGroup: {}", error.kafka_name()),
        }
        let partitions = response
            .assignment
            .chunks_exact(4)
            .map(|bytes| i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        self.history.push(Owned {
            generation: joined.generation_id,
            member_id: self.member_id.clone(),
            partitions: partitions.collect(),
        });
        Ok(true)
    }

    /// Joins until it owns something.
    pub fn enter(&mut self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            let joined = self.join(patience)?;
            if self.sync(&joined, patience)? {
                return Ok(());
            }
        }
        bail!("no assignment within {patience:?}")
    }

    /// One heartbeat: whether the generation still holds.
    pub fn heartbeat(&mut self, patience: Duration) -> Result<bool> {
        let generation = self.owned().map_or(-1, |owned| owned.generation);
        let request = HeartbeatRequest {
            group_id: self.client.group.clone(),
            generation_id: generation,
            member_id: self.member_id.clone(),
            ..HeartbeatRequest::default()
        };
        let (error, _) = self.client.insist(4, &request, patience, |answer| answer.error_code)?;
        match error {
            ErrorCode::None => Ok(true),
            ErrorCode::RebalanceInProgress | ErrorCode::IllegalGeneration => Ok(false),
            ErrorCode::UnknownMemberId => {
                self.member_id.clear();
                Ok(false)
            }
            error => bail!("Heartbeat: {}", error.kafka_name()),
        }
    }
}
