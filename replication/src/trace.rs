//! Every decision worth watching as one typed event: what happened, where, before and after, and why.
//!
//! The real and the simulated host emit the same events; the lab page, the terminal view, the JSON
//! Lines export, the stories and the invariant checker read this one stream. The rules do not emit:
//! they return events among their effects, and the host passes them to its [`TraceSink`] after it has
//! carried the effects out.

mod why;
mod wire;

use std::fmt;

use protocol::{BrokerEpoch, LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicId, TopicPartition};
use serde::{Deserialize, Serialize};

use crate::time::Now;

pub use why::Why;

/// Where events go. Called while a partition's lock may be held: it must neither block nor call back.
pub trait TraceSink: Send + Sync {
    /// Takes an event that `node` decided at `at`.
    fn emit(&self, at: Now, node: NodeId, event: Event);

    /// Whether anybody listens: what costs something to find out need not be found out otherwise.
    fn is_enabled(&self) -> bool {
        true
    }
}

/// A sink that drops everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTrace;

impl TraceSink for NoTrace {
    fn emit(&self, _at: Now, _node: NodeId, _event: Event) {}

    fn is_enabled(&self) -> bool {
        false
    }
}

/// A list of node ids that shows as `[1,2,3]`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nodes(pub Vec<NodeId>);

impl<'a> FromIterator<&'a NodeId> for Nodes {
    fn from_iter<I: IntoIterator<Item = &'a NodeId>>(ids: I) -> Self {
        Nodes(ids.into_iter().copied().collect())
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, id) in self.0.iter().enumerate() {
            write!(f, "{}{id}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")
    }
}

/// Writes the enum, its accessors and its one-line form from one table, so that they cannot differ.
macro_rules! events {
    (
        partition { $($(#[$pdoc:meta])* $pname:ident { $($(#[$pfdoc:meta])* $pfield:ident: $pty:ty),* $(,)? } => $ptext:literal,)* }
        cluster { $($(#[$cdoc:meta])* $cname:ident { $($(#[$cfdoc:meta])* $cfield:ident: $cty:ty),* $(,)? } => $ctext:literal,)* }
    ) => {
        /// A decision, with the rule behind it. As JSON: an object whose `event` is the variant's name.
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(tag = "event")]
        pub enum Event {
            $($(#[$pdoc])* $pname {
                /// The partition it happened to.
                #[serde(with = "wire")]
                partition: TopicPartition,
                $($(#[$pfdoc])* #[serde(with = "wire")] $pfield: $pty,)*
                /// The rule behind it.
                why: Why,
            },)*
            $($(#[$cdoc])* $cname {
                $($(#[$cfdoc])* #[serde(with = "wire")] $cfield: $cty,)*
                /// The rule behind it.
                why: Why,
            },)*
        }

        impl Event {
            /// The partition it happened to, unless it concerns a node or the cluster.
            pub fn partition(&self) -> Option<&TopicPartition> {
                match self {
                    $(Event::$pname { partition, .. })|* => Some(partition),
                    _ => None,
                }
            }

            /// The rule behind it.
            pub fn why(&self) -> Why {
                match self {
                    $(Event::$pname { why, .. })|* => *why,
                    $(Event::$cname { why, .. })|* => *why,
                }
            }

            /// The variant's name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Event::$pname { .. } => stringify!($pname),)*
                    $(Event::$cname { .. } => stringify!($cname),)*
                }
            }

            fn fmt_what(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Event::$pname { $($pfield,)* .. } => write!(f, $ptext),)*
                    $(Event::$cname { $($cfield,)* .. } => write!(f, $ctext),)*
                }
            }
        }
    };
}

events! {
    partition {
        /// A leader appended a batch from a producer or for itself.
        AppendedAsLeader {
            /// First offset written.
            base_offset: Offset,
            /// The log's end after it.
            log_end: Offset,
            /// The epoch it was written in.
            leader_epoch: LeaderEpoch,
        } => "leader appended [{base_offset}, {log_end}) at epoch {leader_epoch}",
        /// A follower appended what it fetched.
        AppendedAsFollower {
            /// First offset written.
            base_offset: Offset,
            /// The log's end after it.
            log_end: Offset,
            /// The leader epoch it was fetched under.
            leader_epoch: LeaderEpoch,
        } => "follower appended [{base_offset}, {log_end}) under epoch {leader_epoch}",
        /// A produce request was refused for this partition.
        ProduceRefused {
            /// Kafka's error code.
            error_code: i16,
        } => "produce refused with error {error_code}",
        /// A produce request was answered.
        ProduceAnswered {
            /// First offset of its batch.
            base_offset: Offset,
            /// What it asked for: -1, 0 or 1.
            acks: i16,
            /// Kafka's error code; 0 for success.
            error_code: i16,
        } => "produce at {base_offset} with acks {acks} answered with error {error_code}",
        /// A fetch was served.
        FetchServed {
            /// The fetching replica; -1 for a consumer.
            reader: NodeId,
            /// Where it reads from.
            fetch_offset: Offset,
            /// End of what it was given; equal to `fetch_offset` when nothing.
            end_offset: Offset,
            /// The high watermark it was told.
            high_watermark: Offset,
        } => "served reader {reader} [{fetch_offset}, {end_offset}) with high watermark {high_watermark}",
        /// A fetch was answered with the place where the logs part.
        FetchDiverged {
            /// The fetching replica; -1 for a consumer.
            reader: NodeId,
            /// Where it wanted to read.
            fetch_offset: Offset,
            /// Its epoch below that offset.
            last_fetched_epoch: LeaderEpoch,
            /// The epoch in the answer.
            epoch: LeaderEpoch,
            /// That epoch's end in the answer.
            end_offset: Offset,
        } => "reader {reader} at ({fetch_offset}, epoch {last_fetched_epoch}) diverges after epoch {epoch} end {end_offset}",
        /// A request was refused: wrong epoch, wrong role, out of range.
        RequestRefused {
            /// The asking replica; -1 for a client.
            requester: NodeId,
            /// Kafka's error code.
            error_code: i16,
        } => "refused {requester} with error {error_code}",
        /// The leader learned of a follower's progress.
        FollowerProgressed {
            /// The follower.
            replica: NodeId,
            /// Its log end before.
            from: Offset,
            /// Its log end now.
            to: Offset,
        } => "follower {replica} at {from} -> {to}",
        /// The high watermark moved.
        HighWatermarkMoved {
            /// Before.
            from: Offset,
            /// After.
            to: Offset,
        } => "high watermark {from} -> {to}",
        /// The log start offset moved.
        LogStartMoved {
            /// Before.
            from: Offset,
            /// After.
            to: Offset,
        } => "log start {from} -> {to}",
        /// The leader asks for another ISR.
        IsrProposed {
            /// The partition epoch it is based on.
            partition_epoch: PartitionEpoch,
            /// The confirmed ISR.
            from: Nodes,
            /// The one proposed.
            to: Nodes,
        } => "ISR proposed {from} -> {to} at partition epoch {partition_epoch}",
        /// Another ISR was confirmed.
        IsrChanged {
            /// The partition epoch after it.
            partition_epoch: PartitionEpoch,
            /// Before.
            from: Nodes,
            /// After.
            to: Nodes,
        } => "ISR {from} -> {to} at partition epoch {partition_epoch}",
        /// A proposal was not taken.
        IsrRejected {
            /// Kafka's error code.
            error_code: i16,
            /// The one proposed.
            proposed: Nodes,
            /// All who may be in the controller's ISR after this.
            maximal: Nodes,
        } => "ISR proposal {proposed} answered with error {error_code}, maximal ISR now {maximal}",
        /// This node leads the partition from now on.
        BecameLeader {
            /// The epoch.
            leader_epoch: LeaderEpoch,
            /// Where it starts: the log's end at election.
            epoch_start: Offset,
            /// The ISR.
            isr: Nodes,
        } => "leads at epoch {leader_epoch} from offset {epoch_start}, ISR {isr}",
        /// This node follows from now on.
        BecameFollower {
            /// Whom; -1 when nobody leads.
            leader: NodeId,
            /// The leader's epoch.
            leader_epoch: LeaderEpoch,
        } => "follows {leader} at epoch {leader_epoch}",
        /// The partition lost its log directory, or was opened on it.
        ReplicaOffline {
            /// The leader epoch it had.
            leader_epoch: LeaderEpoch,
        } => "replica offline at epoch {leader_epoch}",
        /// The log was cut.
        Truncated {
            /// The log's end before.
            from: Offset,
            /// The log's end after.
            to: Offset,
            /// Whether the place where the logs part is reached with this cut.
            complete: bool,
        } => "log cut {from} -> {to}, complete {complete}",
        /// The log was emptied and starts elsewhere.
        TruncatedFully {
            /// The log's end before.
            from: Offset,
            /// The log's new start and end.
            to: Offset,
        } => "log emptied at {from}, starts at {to}",
        /// A fetch answer was dropped: it belongs to an earlier state of the fetcher.
        FetchAnswerDropped {
            /// The offset it was asked for.
            request_offset: Offset,
            /// Where the fetcher is now.
            fetch_offset: Offset,
        } => "dropped an answer for {request_offset}, fetching at {fetch_offset}",
        /// The fetcher stopped until new metadata arrives.
        FetchStopped {
            /// Kafka's error code.
            error_code: i16,
        } => "fetching stopped by error {error_code}",
        /// The fetcher leaves a partition alone for a while.
        FetchDelayed {
            /// Kafka's error code; 0 when the replica itself could not go on.
            error_code: i16,
            /// For how long, in milliseconds.
            pause_ms: i64,
        } => "fetching waits {pause_ms} ms after error {error_code}",
        /// The log was opened and recovered.
        LogRecovered {
            /// Its start.
            log_start: Offset,
            /// Its end.
            log_end: Offset,
            /// The high watermark it starts with.
            high_watermark: Offset,
        } => "log recovered [{log_start}, {log_end}) with high watermark {high_watermark}",
        /// The controller chose a leader, or found none.
        LeaderElected {
            /// The leader before; -1 for none.
            from: NodeId,
            /// The leader now; -1 for none.
            to: NodeId,
            /// The leader epoch.
            leader_epoch: LeaderEpoch,
            /// The partition epoch.
            partition_epoch: PartitionEpoch,
            /// The ISR after the election.
            isr: Nodes,
            /// Whether the leader is clean, that is from the ISR.
            clean: bool,
        } => "leader {from} -> {to} at epoch {leader_epoch}, partition epoch {partition_epoch}, ISR {isr}, clean {clean}",
        /// The controller changed or refused an ISR.
        AlterPartitionAnswered {
            /// Who asked.
            sender: NodeId,
            /// The ISR asked for.
            proposed: Nodes,
            /// Kafka's error code; 0 for success.
            error_code: i16,
            /// The partition epoch after it.
            partition_epoch: PartitionEpoch,
        } => "AlterPartition {proposed} of {sender} answered with error {error_code}, partition epoch {partition_epoch}",
        /// The controller changed the replica set.
        ReplicasChanged {
            /// Before.
            from: Nodes,
            /// After.
            to: Nodes,
            /// The partition epoch after it.
            partition_epoch: PartitionEpoch,
        } => "replicas {from} -> {to} at partition epoch {partition_epoch}",
    }
    cluster {
        /// A node started.
        NodeStarted {
            /// The node.
            started: NodeId,
        } => "node {started} started",
        /// A node stopped by itself.
        NodeStopped {
            /// The node.
            stopped: NodeId,
        } => "node {stopped} stopped",
        /// A node crashed.
        NodeCrashed {
            /// The node.
            crashed: NodeId,
            /// Whether what it had not synced to disk is lost as well.
            loses_unsynced: bool,
        } => "node {crashed} crashed, loses unsynced writes: {loses_unsynced}",
        /// A link between two nodes was cut or healed.
        LinkChanged {
            /// From here.
            from: NodeId,
            /// To there.
            to: NodeId,
            /// Whether messages pass now.
            up: bool,
        } => "link {from} -> {to} up: {up}",
        /// A controller leads the metadata quorum.
        ControllerElected {
            /// The controller.
            controller: NodeId,
            /// Its term.
            term: i64,
        } => "controller {controller} leads term {term}",
        /// A broker registered.
        BrokerRegistered {
            /// The broker.
            broker: NodeId,
            /// The epoch it was given.
            broker_epoch: BrokerEpoch,
        } => "broker {broker} registered with epoch {broker_epoch}",
        /// A log directory of a broker failed.
        DirectoryLost {
            /// The broker.
            broker: NodeId,
            /// Its epoch.
            broker_epoch: BrokerEpoch,
            /// How many directories of it still work.
            directories: i32,
        } => "broker {broker} lost a log directory at epoch {broker_epoch}, {directories} left",
        /// A fetcher leaves its leader alone for a while.
        FetcherBackedOff {
            /// The leader that it pulls from.
            leader: NodeId,
            /// For how long, in milliseconds.
            pause_ms: i64,
        } => "fetching from {leader} waits {pause_ms} ms",
        /// A broker was fenced.
        BrokerFenced {
            /// The broker.
            broker: NodeId,
            /// Its epoch.
            broker_epoch: BrokerEpoch,
        } => "broker {broker} fenced at epoch {broker_epoch}",
        /// A broker was unfenced.
        BrokerUnfenced {
            /// The broker.
            broker: NodeId,
            /// Its epoch.
            broker_epoch: BrokerEpoch,
        } => "broker {broker} unfenced at epoch {broker_epoch}",
        /// A broker asked to stop.
        BrokerShuttingDown {
            /// The broker.
            broker: NodeId,
            /// Its epoch.
            broker_epoch: BrokerEpoch,
        } => "broker {broker} shuts down at epoch {broker_epoch}",
        /// A topic was created.
        TopicCreated {
            /// Its name.
            topic: String,
            /// Its id.
            topic_id: TopicId,
            /// How many partitions it has.
            partitions: i32,
        } => "topic {topic} created with id {topic_id}, {partitions} partitions",
        /// A topic was deleted.
        TopicDeleted {
            /// Its name.
            topic: String,
            /// Its id.
            topic_id: TopicId,
        } => "topic {topic} with id {topic_id} deleted",
        /// A configuration value changed.
        ConfigChanged {
            /// Whose, as `topic:name`, `broker:id` or `broker:default`.
            resource: String,
            /// The key.
            key: String,
            /// The value; empty when removed.
            value: String,
        } => "{resource} {key} = {value}",
    }
}

impl fmt::Display for Event {
    /// One line: the partition, what happened, and the rule.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(partition) = self.partition() {
            write!(f, "{partition}: ")?;
        }
        self.fmt_what(f)?;
        write!(f, "; {}", self.why())
    }
}

/// An event as one line of a story: seconds since the host's start, the node, the event.
pub fn line(at: Now, node: NodeId, event: &Event) -> String {
    let since_start = at.monotonic.0;
    format!("{:>5}.{:03} n{node} {event}", since_start.as_secs(), since_start.subsec_millis())
}
