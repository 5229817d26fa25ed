//! The simulated network: messages take a random time, keep their order on one way, are lost, cut
//! off, slowed down, or held back until a story lets them go.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use controller::node::{MetadataRead, Reply};
use protocol::{ApiKey, NodeId, Offset, RequestBody, ResponseBody};
use replication::time::Instant;

use super::random::SimRandom;

/// Who sends or receives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Address {
    /// A node of the cluster.
    Node(NodeId),
    /// A producer, a consumer, or whoever sends single requests.
    Client(u32),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Node(id) => write!(f, "n{id}"),
            Address::Client(id) => write!(f, "c{id}"),
        }
    }
}

/// What a message is, as far as cutting and holding tell messages apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Between controllers.
    Raft,
    /// A request to a controller.
    Call(ApiKey),
    /// A controller's answer.
    CallAnswer(ApiKey),
    /// A broker asks for committed metadata.
    MetadataRead,
    /// Committed metadata.
    MetadataAnswer,
    /// A request to a broker.
    Request(ApiKey),
    /// A broker's answer.
    Response(ApiKey),
    /// The end of a connection.
    Close,
}

impl Kind {
    fn is_control(self) -> bool {
        matches!(
            self,
            Kind::Raft
                | Kind::Call(_)
                | Kind::CallAnswer(_)
                | Kind::MetadataRead
                | Kind::MetadataAnswer
        )
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Raft => f.write_str("raft messages"),
            Kind::Call(api) => write!(f, "{api:?} requests to the controller"),
            Kind::CallAnswer(api) => write!(f, "{api:?} answers of the controller"),
            Kind::MetadataRead => f.write_str("metadata reads"),
            Kind::MetadataAnswer => f.write_str("metadata answers"),
            Kind::Request(api) => write!(f, "{api:?} requests"),
            Kind::Response(api) => write!(f, "{api:?} responses"),
            Kind::Close => f.write_str("closing connections"),
        }
    }
}

/// Which messages a cut stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plane {
    /// All.
    All,
    /// Those to and from controllers only.
    Control,
    /// Those to and from brokers only.
    Data,
}

/// A question that wants one answer.
#[derive(Clone, Debug)]
pub enum RpcRequest {
    /// A Kafka request to a broker.
    Kafka {
        /// Its version.
        version: i16,
        /// The request.
        body: RequestBody,
    },
    /// A request to a controller.
    Call {
        /// Its version.
        version: i16,
        /// The request.
        body: RequestBody,
    },
    /// The committed metadata from this offset on.
    Read {
        /// The first offset wanted.
        from: Offset,
    },
}

impl RpcRequest {
    /// What cutting and holding see.
    pub fn kind(&self) -> Kind {
        match self {
            RpcRequest::Kafka { body, .. } => Kind::Request(body.api_key()),
            RpcRequest::Call { body, .. } => Kind::Call(body.api_key()),
            RpcRequest::Read { .. } => Kind::MetadataRead,
        }
    }

    /// What cutting and holding see of the answer.
    pub fn answer_kind(&self) -> Kind {
        match self {
            RpcRequest::Kafka { body, .. } => Kind::Response(body.api_key()),
            RpcRequest::Call { body, .. } => Kind::CallAnswer(body.api_key()),
            RpcRequest::Read { .. } => Kind::MetadataAnswer,
        }
    }
}

/// The answer to an [`RpcRequest`].
#[derive(Clone, Debug)]
pub enum RpcAnswer {
    /// A broker's answer.
    Kafka(ResponseBody),
    /// The broker answers nothing (acks=0).
    Silent,
    /// The other side closed the connection, refused it, or died.
    Broken,
    /// A controller's answer.
    Call(Reply),
    /// Committed metadata, and how far the controller itself is.
    Read {
        /// What to apply.
        read: MetadataRead,
        /// The last offset committed there.
        high_watermark: Offset,
    },
}

/// What travels.
#[derive(Clone, Debug)]
pub enum Payload {
    /// Between controllers.
    Raft(Bytes),
    /// A question, by its number.
    Request(u64, RpcRequest),
    /// The answer to the question of that number.
    Answer(u64, RpcAnswer),
    /// Whoever asked the question of that number does not wait any more.
    Close(u64),
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Envelope {
    /// The sender.
    pub from: Address,
    /// The receiver.
    pub to: Address,
    /// What cutting and holding see.
    pub kind: Kind,
    /// The content.
    pub payload: Payload,
}

/// Messages of a sort, on some ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// Which messages.
    pub sort: Sort,
    /// Of this node only.
    pub from: Option<NodeId>,
    /// To this node only.
    pub to: Option<NodeId>,
}

/// Which messages, whoever sends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Those of a kind.
    Of(Kind),
    /// Those of a plane.
    On(Plane),
}

impl Sort {
    fn is_control(self) -> bool {
        match self {
            Sort::Of(kind) => kind.is_control(),
            Sort::On(plane) => plane != Plane::Data,
        }
    }
}

impl Pattern {
    fn fits(&self, envelope: &Envelope) -> bool {
        let is = |wanted: Option<NodeId>, address: Address| {
            wanted.is_none_or(|id| address == Address::Node(id))
        };
        let is_sort = match self.sort {
            Sort::Of(kind) => kind == envelope.kind,
            Sort::On(Plane::All) => true,
            Sort::On(Plane::Control) => envelope.kind.is_control(),
            Sort::On(Plane::Data) => !envelope.kind.is_control(),
        };
        is_sort && is(self.from, envelope.from) && is(self.to, envelope.to)
    }
}

/// A cut: messages from here to there do not arrive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Cut {
    from: NodeId,
    to: NodeId,
    plane: Plane,
}

/// Names a hold, a slowness or a watch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct HoldId(u32);

#[derive(Debug)]
struct Hold {
    pattern: Pattern,
    /// It takes so many messages and lets the others pass.
    limit: usize,
    messages: VecDeque<Envelope>,
}

/// Messages that take longer, by a random time up to this.
#[derive(Debug)]
struct Slowness {
    pattern: Pattern,
    by: Duration,
}

/// Whether such a message was sent since the watch began.
#[derive(Debug)]
struct Watch {
    pattern: Pattern,
    seen: bool,
}

/// How messages travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkConfig {
    /// The shortest way.
    pub latency_min: Duration,
    /// The longest way.
    pub latency_max: Duration,
    /// How many of a thousand messages between nodes are lost.
    pub loss_per_mille: u64,
}

/// What happens to a message that is sent.
#[derive(Debug)]
pub enum Fate {
    /// It arrives then.
    Arrives(Instant, Envelope),
    /// It never does.
    Lost,
    /// It waits for a release.
    Held,
}

/// The network.
#[derive(Debug)]
pub struct Network {
    config: NetworkConfig,
    random: SimRandom,
    cuts: Vec<Cut>,
    holds: BTreeMap<HoldId, Hold>,
    slow: BTreeMap<HoldId, Slowness>,
    watches: BTreeMap<HoldId, Watch>,
    next_hold: u32,
    /// When the last message on each way arrives; a later one must not overtake it.
    last: BTreeMap<(Address, Address, bool), Instant>,
}

impl Network {
    /// A whole network.
    pub fn new(config: NetworkConfig, random: SimRandom) -> Self {
        Self {
            config,
            random,
            cuts: Vec::new(),
            holds: BTreeMap::new(),
            slow: BTreeMap::new(),
            watches: BTreeMap::new(),
            next_hold: 0,
            last: BTreeMap::new(),
        }
    }

    /// Decides what happens to a message sent at `now`.
    pub fn send(&mut self, now: Instant, envelope: Envelope) -> Fate {
        for watch in self.watches.values_mut() {
            watch.seen |= watch.pattern.fits(&envelope);
        }
        let held = self.holds.values_mut().find(|hold| hold.takes(&envelope));
        if let Some(hold) = held {
            hold.messages.push_back(envelope);
            return Fate::Held;
        }
        self.pass(now, envelope)
    }

    fn pass(&mut self, now: Instant, envelope: Envelope) -> Fate {
        let is_local = envelope.from == envelope.to;
        if !is_local && self.is_cut(&envelope) {
            return Fate::Lost;
        }
        let between_nodes =
            matches!((envelope.from, envelope.to), (Address::Node(_), Address::Node(_)));
        if between_nodes
            && !is_local
            && self.config.loss_per_mille > 0
            && self.random.below(1000) < self.config.loss_per_mille
        {
            return Fate::Lost;
        }
        let (min, max) = if is_local {
            (1, 20)
        } else {
            (self.config.latency_min.as_micros() as u64, self.config.latency_max.as_micros() as u64)
        };
        let mut way = Duration::from_micros(self.random.between(min, max.max(min + 1)));
        if between_nodes && !is_local {
            for slow in self.slow.values().filter(|slow| slow.pattern.fits(&envelope)) {
                way += Duration::from_micros(self.random.below(slow.by.as_micros() as u64));
            }
        }
        let lane = (envelope.from, envelope.to, envelope.kind.is_control());
        let earliest = self.last.get(&lane).copied().unwrap_or(Instant::ZERO);
        // Connections are ordered each, not among each other; only the raft stream is one.
        let at = if envelope.kind == Kind::Raft {
            (now + way).max(earliest + Duration::from_micros(1))
        } else {
            now + way
        };
        if envelope.kind == Kind::Raft {
            self.last.insert(lane, at);
        }
        Fate::Arrives(at, envelope)
    }

    /// Whether a message sent now would be cut off.
    pub fn is_cut(&self, envelope: &Envelope) -> bool {
        let (Address::Node(from), Address::Node(to)) = (envelope.from, envelope.to) else {
            return false;
        };
        self.cuts.iter().any(|cut| {
            cut.from == from
                && cut.to == to
                && match cut.plane {
                    Plane::All => true,
                    Plane::Control => envelope.kind.is_control(),
                    Plane::Data => !envelope.kind.is_control(),
                }
        })
    }

    /// Stops messages from `from` to `to`.
    pub fn cut_one_way(&mut self, from: NodeId, to: NodeId, plane: Plane) {
        let cut = Cut { from, to, plane };
        if !self.cuts.contains(&cut) {
            self.cuts.push(cut);
        }
    }

    /// Lets messages from `from` to `to` pass again.
    pub fn heal_one_way(&mut self, from: NodeId, to: NodeId) {
        self.cuts.retain(|cut| (cut.from, cut.to) != (from, to));
    }

    /// Lets messages of a plane that were cut off from `from` to `to` pass again.
    pub fn end_cut(&mut self, from: NodeId, to: NodeId, plane: Plane) {
        self.cuts.retain(|cut| *cut != Cut { from, to, plane });
    }

    /// Ends all cuts, all loss and all slowness.
    pub fn heal(&mut self) {
        self.cuts.clear();
        self.slow.clear();
        self.config.loss_per_mille = 0;
    }

    /// Whether nothing is cut, held or slow, and no messages get lost.
    pub fn is_whole(&self) -> bool {
        self.cuts.is_empty()
            && self.holds.is_empty()
            && self.slow.is_empty()
            && self.config.loss_per_mille == 0
    }

    /// Whether everything to and from controllers arrives as in a whole network.
    pub fn is_whole_for_controllers(&self) -> bool {
        let patterns = self.holds.values().map(|hold| &hold.pattern);
        let patterns = patterns.chain(self.slow.values().map(|slow| &slow.pattern));
        self.cuts.iter().all(|cut| cut.plane == Plane::Data)
            && self.config.loss_per_mille == 0
            && patterns.into_iter().all(|pattern| !pattern.sort.is_control())
    }

    /// Loses so many of a thousand messages between nodes from now on.
    pub fn set_loss(&mut self, per_mille: u64) {
        self.config.loss_per_mille = per_mille;
    }

    /// Holds back messages of a kind, from one node or all, to one node or all.
    pub fn hold(&mut self, kind: Kind, from: Option<NodeId>, to: Option<NodeId>) -> HoldId {
        self.hold_some(Pattern { sort: Sort::Of(kind), from, to }, usize::MAX)
    }

    /// Holds back the next `limit` messages that fit.
    pub fn hold_some(&mut self, pattern: Pattern, limit: usize) -> HoldId {
        let id = self.next_id();
        self.holds.insert(id, Hold { pattern, limit, messages: VecDeque::new() });
        id
    }

    /// Lets messages that fit take longer, each by a random time up to `by`: those of one connection
    /// too overtake each other then, as far as they are of different requests.
    pub fn slow_down(&mut self, pattern: Pattern, by: Duration) -> HoldId {
        let id = self.next_id();
        self.slow.insert(id, Slowness { pattern, by });
        id
    }

    /// Ends a slowness.
    pub fn speed_up(&mut self, id: HoldId) {
        self.slow.remove(&id);
    }

    /// Looks out for messages that fit, arriving or not.
    pub fn watch(&mut self, pattern: Pattern) -> HoldId {
        let id = self.next_id();
        self.watches.insert(id, Watch { pattern, seen: false });
        id
    }

    /// Whether a watch has seen one.
    pub fn has_seen(&self, id: HoldId) -> bool {
        self.watches.get(&id).is_some_and(|watch| watch.seen)
    }

    /// Ends a watch.
    pub fn look_away(&mut self, id: HoldId) {
        self.watches.remove(&id);
    }

    fn next_id(&mut self) -> HoldId {
        self.next_hold += 1;
        HoldId(self.next_hold - 1)
    }

    /// How many messages a hold has.
    pub fn held(&self, id: HoldId) -> usize {
        self.holds.get(&id).map_or(0, |hold| hold.messages.len())
    }

    /// Ends a hold; gives what happens to the messages it had, in their order.
    pub fn release(&mut self, now: Instant, id: HoldId) -> Vec<Fate> {
        let Some(hold) = self.holds.remove(&id) else {
            return Vec::new();
        };
        hold.messages.into_iter().map(|envelope| self.pass(now, envelope)).collect()
    }

    /// Ends a hold; the messages it had are lost.
    pub fn discard(&mut self, id: HoldId) {
        self.holds.remove(&id);
    }

    /// The holds in force.
    pub fn holds(&self) -> Vec<HoldId> {
        self.holds.keys().copied().collect()
    }
}

impl Hold {
    fn takes(&self, envelope: &Envelope) -> bool {
        self.messages.len() < self.limit && self.pattern.fits(envelope)
    }
}
