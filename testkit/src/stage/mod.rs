//! What a story needs of a cluster, whether it is simulated, real, or Apache Kafka: the same script runs on
//! all.
//!
//! The simulated stage can do everything. The real one cuts links and holds messages through a proxy, in real
//! time: it cannot stop the world, and it sees no event of the brokers, only their answers and files. A
//! story asks [`Stage::can`] before it does what only one of them can, and says in its file how it
//! reaches the same situation otherwise.

mod control;
mod kafka;
mod producing;
mod questions;
mod real;
mod recording;
mod sessions;
mod short;
mod sim;
mod standing;

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};
use protocol::{RequestBody, ResponseBody};

pub use control::{Proposal, QuorumView};
pub use kafka::KafkaStage;
pub use producing::Stamp;
pub use protocol::Uuid;
pub use questions::{Answered, Ask, CONSUMER, Fetched, TIMESTAMP_MS};
pub use real::RealStage;
pub use sessions::{SessionAnswer, SessionAsk};
pub use sim::SimStage;
pub use standing::Standing;

/// The number of a node, from 1.
pub type Node = i32;

/// What not every stage can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ability {
    /// Cut links between nodes.
    Cut,
    /// Hold single kinds of messages back.
    Hold,
    /// Have a log directory fail.
    FailDisk,
    /// Have a machine lose its power, and with it what was not synced.
    LosePower,
    /// Ask the controller what only brokers ask.
    AskController,
    /// Tell each decision of each broker.
    Events,
    /// Stop the world between two events, so that what lasts for one message can be seen.
    ExactMoments,
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Ability::Cut => "links to be cut",
            Ability::Hold => "single messages to be held back",
            Ability::FailDisk => "a log directory to fail",
            Ability::LosePower => "a machine to lose its power",
            Ability::AskController => "the controller to be asked what only brokers ask",
            Ability::Events => "each decision to be told",
            Ability::ExactMoments => "the world to stop between two events",
        })
    }
}

/// Messages that can be held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// A fetch on its way to a leader.
    Fetch,
    /// A leader's answer to it.
    FetchAnswer,
    /// A leader's proposal of another ISR.
    AlterPartition,
    /// Committed metadata on its way to a broker.
    Metadata,
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Message::Fetch => "fetches",
            Message::FetchAnswer => "answers to fetches",
            Message::AlterPartition => "proposals of an ISR",
            Message::Metadata => "metadata",
        })
    }
}

/// Names messages that are held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hold(usize);

/// Names a request that was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent(u64);

/// What a story wants of its cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterNeeds {
    /// How many nodes.
    pub nodes: i32,
    /// Config keys for all of them, beside the short timeouts of the stage.
    pub settings: &'static [(&'static str, &'static str)],
    /// How many log directories each has; only a stage that can have them fail makes more than one.
    pub log_dirs: usize,
    /// Whether machines may lose their power: what is claimed then, no replica alone can keep.
    pub power_fails: bool,
}

impl ClusterNeeds {
    /// So many nodes with one log directory each, and no other wishes.
    pub const fn nodes(nodes: i32) -> Self {
        Self { nodes, settings: &[], log_dirs: 1, power_fails: false }
    }
}

/// How a node's process is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// It runs and answers.
    Runs,
    /// It exists and does nothing.
    IsFrozen,
    /// There is none.
    IsDown,
}

/// Which messages a cut stops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Between {
    /// Those between brokers, both ways.
    Brokers,
    /// Those between a broker and the controllers.
    Controllers,
}

/// A replica as a stage shows it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplicaView {
    /// Whether it leads, as far as the stage can tell.
    pub leads: bool,
    /// Its high watermark; -1 when it does not tell.
    pub high_watermark: i64,
    /// The offset after its last record.
    pub log_end: i64,
}

/// A partition as the cluster's metadata has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionView {
    /// The leader; -1 for none.
    pub leader: Node,
    /// Its epoch.
    pub leader_epoch: i32,
    /// The ISR, sorted.
    pub isr: Vec<Node>,
}

/// How a write was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Written {
    /// Kafka's error code; 0 for success.
    pub error_code: i16,
    /// Where it is.
    pub base_offset: i64,
}

/// A decision of a broker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StageEvent {
    /// When, since the cluster's start.
    pub at: Duration,
    /// Where; 0 for the controller.
    pub node: Node,
    /// What, in a few signs.
    pub text: String,
    /// The name of the event's type.
    pub kind: &'static str,
}

/// A cluster to tell a story with. Topics have one partition.
pub trait Stage {
    /// `simulated`, `real` or `kafka`.
    fn name(&self) -> &'static str;

    /// Whether it can do this.
    fn can(&self, ability: Ability) -> bool;

    /// The nodes.
    fn nodes(&self) -> Vec<Node>;

    /// How a node's process is.
    fn process(&self, node: Node) -> Process;

    /// Creates a topic; the first replica is preferred as leader.
    fn create_topic(
        &mut self,
        topic: &str,
        replicas: &[Node],
        configs: &[(&str, &str)],
    ) -> Result<()>;

    /// Writes one batch to a node, whoever leads, and gives its answer.
    fn produce_to(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        values: &[String],
        timeout: Duration,
    ) -> Result<Written>;

    /// Reads everything committed from the leader: offsets and values.
    fn read_all(&mut self, topic: &str) -> Result<Vec<(i64, String)>>;

    /// Reads a replica's own log to its end.
    fn read_replica(&mut self, node: Node, topic: &str) -> Result<Vec<(i64, String)>>;

    /// Ends a process as a crash does; what it gave to the system is kept.
    fn kill(&mut self, node: Node) -> Result<()>;

    /// Ends a process as a loss of power does: what was not synced may be gone or torn.
    fn lose_power(&mut self, node: Node) -> Result<()> {
        bail!("the machine of b{node} does not lose its power")
    }

    /// Starts a node that does not run.
    fn start(&mut self, node: Node) -> Result<()>;

    /// Stops a node cleanly.
    fn stop(&mut self, node: Node) -> Result<()>;

    /// Stops a node's processors.
    fn freeze(&mut self, node: Node) -> Result<()>;

    /// Ends a freeze.
    fn thaw(&mut self, node: Node) -> Result<()>;

    /// Cuts a node off from others, both ways.
    fn cut(&mut self, node: Node, others: &[Node], between: Between) -> Result<()>;

    /// Ends all cuts.
    fn heal(&mut self) -> Result<()>;

    /// Holds messages back, from one node or all, to one node or all.
    fn hold(&mut self, what: Message, from: Option<Node>, to: Option<Node>) -> Result<Hold>;

    /// How many messages are held back.
    fn held(&self, hold: Hold) -> usize;

    /// Lets the messages that were held back go on, or loses them.
    fn release(&mut self, hold: Hold, lost: bool) -> Result<()>;

    /// Has the log directory fail in which a node keeps its replica.
    fn fail_directory(&mut self, node: Node, topic: &str) -> Result<()>;

    /// Puts a node's disk in order again; the node takes it up when it starts.
    fn mend_disk(&mut self, node: Node) -> Result<()>;

    /// The epoch of a node's registration, where the stage can tell.
    fn broker_epoch(&self, node: Node) -> Option<i64>;

    /// The partition's epoch as the controller has it, where the stage can tell.
    fn partition_epoch(&self, _topic: &str) -> Option<i32> {
        None
    }

    /// Asks the controller that decides, as brokers do.
    fn ask_controller(&mut self, _version: i16, request: RequestBody) -> Result<ResponseBody> {
        bail!("{:?} is for brokers to ask the controller", request.api_key())
    }

    /// Sends one request to a node, and does not wait for its answer.
    fn send(&mut self, node: Node, version: i16, request: RequestBody) -> Result<Sent>;

    /// Waits for the answer to a request that was sent.
    fn answer(&mut self, sent: Sent) -> Result<ResponseBody>;

    /// Lets time pass.
    fn pass(&mut self, time: Duration) -> Result<()>;

    /// Lets every broker send its next heartbeat.
    fn pass_heartbeats(&mut self) -> Result<()>;

    /// The partition by metadata; an error while nobody answers.
    fn partition(&mut self, topic: &str) -> Result<PartitionView>;

    /// A replica as it is; an error when its node does not answer.
    fn replica(&mut self, node: Node, topic: &str) -> Result<ReplicaView>;

    /// Lets time pass until `reached` says so, or fails with what it waited for.
    fn wait(&mut self, what: &str, reached: &mut dyn FnMut(&mut dyn Stage) -> bool) -> Result<()>;

    /// The decisions since the last call; none where the stage cannot tell.
    fn events(&mut self) -> Vec<StageEvent>;

    /// The last word: all that the stage can check by itself (invariants in the simulator).
    fn check(&mut self) -> Result<()>;
}
