//! A classic group and its members as values: who is in it, who waits, which protocol they share. What
//! follows from a change is decided in the files beside; here the counts are kept right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use protocol::ErrorCode;
use protocol::messages::join_group_request::JoinGroupRequestProtocol;

use super::subscription;
use crate::shard::Token;

/// The protocol type of consumers, whose subscriptions the coordinator can read.
pub(crate) const CONSUMER: &str = "consumer";

/// Where a group is in its rebalance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(crate) enum State {
    /// No members.
    #[default]
    Empty,
    /// Members are to join again.
    PreparingRebalance,
    /// All have joined; the leader is to send the assignment.
    CompletingRebalance,
    /// All have their assignment.
    Stable,
}

impl State {
    /// The name in answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            State::Empty => "Empty",
            State::PreparingRebalance => "PreparingRebalance",
            State::CompletingRebalance => "CompletingRebalance",
            State::Stable => "Stable",
        }
    }
}

/// A JoinGroup that waits for the rebalance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaitingJoin {
    pub token: Token,
    /// The version of the request: answers differ by it.
    pub version: i16,
}

/// A protocol that a member offers: its name and the member's metadata for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub name: String,
    pub metadata: Bytes,
}

impl From<JoinGroupRequestProtocol> for Offer {
    fn from(protocol: JoinGroupRequestProtocol) -> Offer {
        Offer { name: protocol.name, metadata: protocol.metadata }
    }
}

/// A member of a classic group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub id: Arc<str>,
    /// `group.instance.id`: a static member keeps its place over restarts (KIP-345).
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    /// In the member's order of preference.
    pub protocols: Vec<Offer>,
    pub assignment: Bytes,
    /// Joined, and not yet told so: the session does not count until then.
    pub is_new: bool,
    waiting_join: Option<WaitingJoin>,
    waiting_sync: Option<Token>,
}

impl Member {
    pub(crate) fn is_waiting_to_join(&self) -> bool {
        self.waiting_join.is_some()
    }

    pub(crate) fn is_waiting_to_sync(&self) -> bool {
        self.waiting_sync.is_some()
    }

    /// The metadata for a protocol; empty when the member does not offer it.
    pub(crate) fn metadata(&self, protocol: Option<&str>) -> Bytes {
        self.protocols
            .iter()
            .find(|offer| Some(offer.name.as_str()) == protocol)
            .map(|offer| offer.metadata.clone())
            .unwrap_or_default()
    }
}

/// What a new member brings.
#[derive(Clone, Debug)]
pub(crate) struct NewMember {
    pub id: Arc<str>,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub protocols: Vec<Offer>,
    pub assignment: Bytes,
}

/// A classic group. `Default` is a group that has only offsets, or nothing yet.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct ClassicGroup {
    pub state: State,
    /// The state before: a rebalance that comes from `Empty` is the group's first.
    pub previous_state: State,
    /// When the state was entered, in milliseconds since 1970. Offsets of an empty group expire
    /// from here.
    pub state_since_ms: Option<i64>,
    pub protocol_type: Option<String>,
    pub protocol: Option<String>,
    pub generation: i32,
    pub leader: Option<Arc<str>>,
    /// Members that have not asked for their assignment in this generation.
    pub pending_sync: BTreeSet<Arc<str>>,
    /// The topics of all members; `None` when the coordinator cannot tell.
    pub subscribed: Option<BTreeSet<String>>,
    /// A member came during the group's first rebalance: wait a little for more.
    pub new_member_added: bool,
    /// What may still be waited for in the first rebalance, in milliseconds: this turn, and after it.
    pub initial_delay_ms: Option<(i64, i64)>,
    /// From here to the end: changed by the methods below only, which keep the counts right.
    pub members: BTreeMap<Arc<str>, Member>,
    pub static_members: BTreeMap<String, Arc<str>>,
    /// Ids that were handed out and have not joined yet (KIP-394).
    pub pending_join: BTreeSet<Arc<str>>,
    /// How many members have a JoinGroup waiting.
    pub waiting_joins: usize,
    /// How many members offer each protocol.
    pub offers: BTreeMap<String, usize>,
}

impl ClassicGroup {
    /// A group without members, empty since then.
    pub(crate) fn empty(since_ms: i64) -> ClassicGroup {
        ClassicGroup { state_since_ms: Some(since_ms), ..ClassicGroup::default() }
    }

    pub(crate) fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// The protocol type; empty for a group that never had a member.
    pub(crate) fn protocol_type(&self) -> &str {
        self.protocol_type.as_deref().unwrap_or("")
    }

    /// Whether it is in the state Empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.state == State::Empty
    }

    pub(crate) fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    pub(crate) fn move_to(&mut self, state: State, now_ms: i64) {
        self.previous_state = self.state;
        self.state = state;
        self.state_since_ms = Some(now_ms);
    }

    // Members.

    pub(crate) fn members(&self) -> impl Iterator<Item = &Member> {
        self.members.values()
    }

    pub(crate) fn member(&self, id: &str) -> Option<&Member> {
        self.members.get(id)
    }

    pub(crate) fn member_mut(&mut self, id: &str) -> Option<&mut Member> {
        self.members.get_mut(id)
    }

    pub(crate) fn member_ids(&self) -> Vec<Arc<str>> {
        self.members.keys().cloned().collect()
    }

    pub(crate) fn size(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    pub(crate) fn static_member(&self, instance_id: &str) -> Option<&Arc<str>> {
        self.static_members.get(instance_id)
    }

    /// Adds a member; the first one gives the group its protocol type and is its leader.
    pub(crate) fn add(
        &mut self,
        new: NewMember,
        protocol_type: &str,
        waiting_join: Option<WaitingJoin>,
    ) {
        let id = new.id.clone();
        if let Some(instance_id) = &new.instance_id {
            self.static_members.insert(instance_id.clone(), id.clone());
        }
        if self.members.is_empty() {
            self.protocol_type = Some(protocol_type.to_owned());
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        self.pending_join.remove(&id);
        self.waiting_joins += usize::from(waiting_join.is_some());
        let member = Member {
            id: new.id,
            instance_id: new.instance_id,
            client_id: new.client_id,
            client_host: new.client_host,
            rebalance_timeout_ms: new.rebalance_timeout_ms,
            session_timeout_ms: new.session_timeout_ms,
            protocols: new.protocols,
            assignment: new.assignment,
            is_new: false,
            waiting_join,
            waiting_sync: None,
        };
        self.count_offers(&member.protocols, true);
        self.members.insert(id, member);
    }

    /// Removes a member or a pending id. Another member leads if the leader went. Requests of the
    /// member that waited are returned, to be answered.
    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        let removed = self.members.remove(id);
        if let Some(member) = &removed {
            self.count_offers(&member.protocols, false);
            self.waiting_joins -= usize::from(member.is_waiting_to_join());
            if let Some(instance_id) = &member.instance_id {
                self.static_members.remove(instance_id);
            }
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        self.pending_join.remove(id);
        self.pending_sync.remove(id);
        removed
    }

    /// Gives a static member's place to a new id (KIP-345). The old id's waiting requests are
    /// returned, to be fenced.
    pub(crate) fn replace_static(
        &mut self,
        instance_id: &str,
        new_id: &Arc<str>,
    ) -> Option<(Option<WaitingJoin>, Option<Token>)> {
        let old_id = self.static_members.get(instance_id)?.clone();
        let mut member = self.members.remove(&old_id)?;
        let waiting_join = member.waiting_join.take();
        self.waiting_joins -= usize::from(waiting_join.is_some());
        let waiting_sync = member.waiting_sync.take();
        member.id = new_id.clone();
        member.is_new = false;
        if self.is_leader(&old_id) {
            self.leader = Some(new_id.clone());
        }
        if self.pending_sync.remove(&old_id) {
            self.pending_sync.insert(new_id.clone());
        }
        self.members.insert(new_id.clone(), member);
        self.static_members.insert(instance_id.to_owned(), new_id.clone());
        Some((waiting_join, waiting_sync))
    }

    /// Takes over what a joining member says anew.
    pub(crate) fn update_member(
        &mut self,
        id: &str,
        protocols: Vec<Offer>,
        rebalance_timeout_ms: i32,
        session_timeout_ms: i32,
    ) {
        let Some(member) = self.members.get_mut(id) else { return };
        let before = std::mem::replace(&mut member.protocols, protocols.clone());
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        member.session_timeout_ms = session_timeout_ms;
        self.count_offers(&before, false);
        self.count_offers(&protocols, true);
    }

    // Waiting requests.

    /// The member's JoinGroup waits from now on. The one that waited before is given back.
    pub(crate) fn wait_to_join(&mut self, id: &str, join: WaitingJoin) -> Option<WaitingJoin> {
        let member = self.members.get_mut(id)?;
        let before = member.waiting_join.replace(join);
        self.waiting_joins += usize::from(before.is_none());
        before
    }

    pub(crate) fn take_join(&mut self, id: &str) -> Option<WaitingJoin> {
        let waiting = self.members.get_mut(id)?.waiting_join.take();
        self.waiting_joins -= usize::from(waiting.is_some());
        waiting
    }

    /// The member's SyncGroup waits from now on. The one that waited before is given back.
    pub(crate) fn wait_to_sync(&mut self, id: &str, token: Token) -> Option<Token> {
        self.members.get_mut(id)?.waiting_sync.replace(token)
    }

    pub(crate) fn take_sync(&mut self, id: &str) -> Option<Token> {
        self.members.get_mut(id)?.waiting_sync.take()
    }

    /// All requests that wait, none of which will then wait any more.
    pub(crate) fn take_waiting(&mut self) -> (Vec<(Arc<str>, WaitingJoin)>, Vec<Token>) {
        let (mut joins, mut syncs) = (Vec::new(), Vec::new());
        for (id, member) in &mut self.members {
            joins.extend(member.waiting_join.take().map(|join| (id.clone(), join)));
            syncs.extend(member.waiting_sync.take());
        }
        self.waiting_joins = 0;
        (joins, syncs)
    }

    pub(crate) fn waiting_joins(&self) -> usize {
        self.waiting_joins
    }

    // Pending ids.

    pub(crate) fn add_pending(&mut self, id: Arc<str>) {
        self.pending_join.insert(id);
    }

    pub(crate) fn is_pending(&self, id: &str) -> bool {
        self.pending_join.contains(id)
    }

    /// Whether nobody is missing from the rebalance, ids that were handed out included.
    pub(crate) fn all_have_joined(&self) -> bool {
        self.waiting_joins == self.members.len() && self.pending_join.is_empty()
    }

    /// The longest time that any member asks for, in milliseconds.
    pub(crate) fn rebalance_timeout_ms(&self) -> i64 {
        let longest = self.members.values().map(|member| member.rebalance_timeout_ms).max();
        i64::from(longest.unwrap_or(0).max(0))
    }

    /// Keeps the leader if it has joined again, else takes the first member that has. Whether there
    /// is one.
    pub(crate) fn elect_joined_leader(&mut self) -> bool {
        let leader = self.leader.as_deref().and_then(|id| self.members.get(id));
        if leader.is_some_and(Member::is_waiting_to_join) {
            return true;
        }
        let joined = self.members.values().find(|member| member.is_waiting_to_join());
        let Some(joined) = joined.map(|member| member.id.clone()) else { return false };
        self.leader = Some(joined);
        true
    }

    // Protocols.

    fn count_offers(&mut self, protocols: &[Offer], add: bool) {
        for offer in protocols {
            let count = self.offers.entry(offer.name.clone()).or_default();
            *count = if add { *count + 1 } else { count.saturating_sub(1) };
            if *count == 0 {
                self.offers.remove(&offer.name);
            }
        }
    }

    /// Whether a member with these protocols can be in the group: the type is the group's, and one
    /// protocol is common to all.
    pub(crate) fn supports<'a>(
        &self,
        protocol_type: &str,
        mut names: impl Iterator<Item = &'a str>,
    ) -> bool {
        if self.is_empty() {
            return !protocol_type.is_empty() && names.next().is_some();
        }
        self.protocol_type.as_deref() == Some(protocol_type)
            && names.any(|name| self.offers.get(name).copied().unwrap_or(0) == self.members.len())
    }

    /// The protocol with the most votes; each member votes for the first of its own that is common
    /// to all. Equal votes: the name that comes first. `None` without members or common protocol.
    pub(crate) fn select_protocol(&self) -> Option<String> {
        let common = |name: &str| self.offers.get(name) == Some(&self.members.len());
        let mut votes: BTreeMap<&str, usize> = BTreeMap::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|offer| common(&offer.name))?;
            *votes.entry(vote.name.as_str()).or_default() += 1;
        }
        let most = *votes.values().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.to_owned())
    }

    /// Begins the next generation with the members there are.
    pub(crate) fn begin_generation(&mut self, now_ms: i64) {
        self.generation = self.generation.wrapping_add(1).max(0);
        self.pending_sync.clear();
        self.protocol = self.select_protocol();
        self.subscribed = self.read_subscriptions();
        let next = if self.members.is_empty() { State::Empty } else { State::CompletingRebalance };
        self.move_to(next, now_ms);
    }

    /// The topics that all members together subscribe to, if the group is one of consumers.
    pub(crate) fn read_subscriptions(&self) -> Option<BTreeSet<String>> {
        if !self.is_consumer() {
            return None;
        }
        let protocol = self.protocol.as_deref();
        if protocol.is_none() && !self.members.is_empty() {
            return None;
        }
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscription::topics(&member.metadata(protocol))?);
        }
        Some(topics)
    }

    /// Whether a member reads the topic. A group of consumers that cannot be read counts as
    /// reading everything.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer(),
        }
    }

    // Checks.

    /// Whether the request comes from the member it names: 82 when a newer instance has its place.
    pub(crate) fn check_member(
        &self,
        id: &str,
        instance_id: Option<&str>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.static_members.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(current) if &**current != id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(ErrorCode::UnknownMemberId) }
    }

    /// Whether offsets may be committed. A negative generation comes from outside the protocol, and is
    /// good while nobody is in the group.
    pub(crate) fn check_commit(
        &self,
        id: &str,
        instance_id: Option<&str>,
        generation: i32,
    ) -> Result<(), ErrorCode> {
        if generation < 0 && self.is_empty() {
            return Ok(());
        }
        if generation >= 0 || !id.is_empty() || instance_id.is_some() {
            self.check_member(id, instance_id)?;
            if generation != self.generation {
                return Err(ErrorCode::IllegalGeneration);
            }
        } else {
            return Err(ErrorCode::UnknownMemberId);
        }
        if self.state == State::CompletingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// Whether single offsets may be deleted: of consumers by topic, of others only when nobody is in.
    pub(crate) fn check_delete_offsets(&self) -> Result<(), ErrorCode> {
        if self.is_empty() || self.is_consumer() { Ok(()) } else { Err(ErrorCode::NonEmptyGroup) }
    }
}
