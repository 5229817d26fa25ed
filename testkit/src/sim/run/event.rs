//! What a random run consists of: events, each with a number and a moment, each whole in itself: what is
//! broken says for how long, so that a run without some of its events is still a run.

use std::fmt;
use std::time::Duration;

use protocol::ApiKey;

use super::super::clients::ProducerSettings;
use super::super::network::{Kind, Plane, Sort};

/// Something that a run does, at a moment after its topic was made.
#[derive(Clone, Debug)]
pub struct Event {
    /// Its number, from 1: the same in every run of that seed and plan.
    pub number: u32,
    /// When.
    pub at: Duration,
    /// What.
    pub(in crate::sim) act: Act,
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:<3} {:>8.3} {}", self.number, self.at.as_secs_f64(), self.act)
    }
}

/// A node, by name or by what it is when it happens. Partitions are those of the run's topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sim) enum Who {
    /// This one.
    Node(i32),
    /// Who leads this partition by the controllers' word.
    Leader(i32),
    /// One of the partition's other replicas, by its place among them.
    Follower(i32, usize),
    /// Who decides.
    Controller,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Node(id) => write!(f, "b{id}"),
            Who::Leader(partition) => write!(f, "the leader of {partition}"),
            Who::Follower(partition, at) => write!(f, "follower {at} of {partition}"),
            Who::Controller => f.write_str("the controller"),
        }
    }
}

/// Some messages, from and to whom; `None` for everybody.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::sim) struct Messages {
    /// Which.
    pub(in crate::sim) sort: Sort,
    /// Whose.
    pub(in crate::sim) from: Option<Who>,
    /// For whom.
    pub(in crate::sim) to: Option<Who>,
}

impl fmt::Display for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.sort {
            Sort::Of(kind) => write!(f, "{kind}")?,
            Sort::On(plane) => write!(f, "messages ({plane:?})")?,
        }
        if let Some(from) = self.from {
            write!(f, " from {from}")?;
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        Ok(())
    }
}

/// The kinds of messages that runs hold and slow down.
pub(super) const KINDS: [Kind; 10] = [
    Kind::Call(ApiKey::AlterPartition),
    Kind::CallAnswer(ApiKey::AlterPartition),
    Kind::Call(ApiKey::BrokerHeartbeat),
    Kind::CallAnswer(ApiKey::BrokerHeartbeat),
    Kind::Request(ApiKey::Fetch),
    Kind::Response(ApiKey::Fetch),
    Kind::Response(ApiKey::Produce),
    Kind::MetadataRead,
    Kind::MetadataAnswer,
    Kind::Raft,
];

/// What happens. Durations say for how long: then it is mended, or the node started again.
#[derive(Clone, Debug)]
pub(in crate::sim) enum Act {
    /// A process is killed; its machine keeps what it wrote.
    Crash { who: Who, down: Duration },
    /// A machine dies and loses what was not synced; only where the fault model allows it just then.
    PowerCut { who: Who, down: Duration },
    /// A process dies in the middle of the cleaner's next work, after so many changes to the disk.
    CrashInCleaning { who: Who, loses: bool, changes: u64, down: Duration },
    /// A clean stop.
    Stop { who: Who, down: Duration },
    /// A process that gets no processor.
    Freeze { who: Who, lasts: Duration },
    /// A node whose messages to and from all others are lost.
    Isolate { who: Who, plane: Plane, lasts: Duration },
    /// Messages between two nodes are lost.
    Cut { from: Who, to: Who, both_ways: bool, plane: Plane, lasts: Duration },
    /// Some of all messages between nodes are lost.
    Lose { per_mille: u64, lasts: Duration },
    /// Messages are held back, all or the next few; then they arrive, or are lost.
    Hold { messages: Messages, limit: usize, arrives: bool, lasts: Duration },
    /// Messages take longer, each by a random time up to `by`.
    Slow { messages: Messages, by: Duration, lasts: Duration },
    /// A wall clock jumps.
    JumpClock { who: Who, by_ms: i64 },
    /// A wall clock goes too fast, or too slow.
    DriftClock { who: Who, millionths: i64, lasts: Duration },
    /// A disk takes long for every change.
    SlowDisk { who: Who, each: Duration, lasts: Duration },
    /// A disk is full, or refuses every access to the log directory; then the node is started again.
    BreakDisk { who: Who, full: bool, lasts: Duration },
    /// A bit of a batch decays, in what its checksum covers; later the disk is replaced by an empty one.
    FlipBit { who: Who, place: u64, lasts: Duration },
    /// A partition gets other replicas, or the same in another order.
    Reassign { partition: i32, replicas: Vec<i32> },
    /// The preferred leader is elected.
    Elect { partition: i32 },
    /// Something happens as soon as such a message is sent.
    When { messages: Messages, then: Box<Act> },
    /// A producer begins.
    Produce { partition: i32, settings: ProducerSettings },
    /// A consumer begins.
    Consume { partition: i32 },
    /// A member of the classic protocol joins the group.
    JoinClassic,
    /// A member of the new protocol joins the group.
    JoinSubscriber { is_static: bool, revocation: Duration },
    /// A member goes, with a word or without, and another one comes.
    Churn { which: u64, hangs: bool, returns: bool, classic: bool, revocation: Duration },
}

impl Act {
    /// Whether a machine dies, at once or later.
    pub(super) fn is_power_cut(&self) -> bool {
        match self {
            Act::PowerCut { .. } => true,
            Act::When { then, .. } => then.is_power_cut(),
            _ => false,
        }
    }

    /// Whether it harms the cluster, so that it must wait while a machine recovers.
    /// Whether a process may end by it as by a crash.
    pub(super) fn ends_a_process(&self) -> bool {
        matches!(
            self,
            Act::Crash { .. }
                | Act::PowerCut { .. }
                | Act::CrashInCleaning { .. }
                | Act::BreakDisk { .. }
                | Act::FlipBit { .. }
        )
    }

    pub(super) fn breaks(&self) -> bool {
        !matches!(
            self,
            Act::Produce { .. }
                | Act::Consume { .. }
                | Act::JoinClassic
                | Act::JoinSubscriber { .. }
                | Act::Churn { .. }
                | Act::JumpClock { .. }
                | Act::DriftClock { .. }
                | Act::When { .. }
        )
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Crash { who, down } => write!(f, "kill {who}, down for {down:?}"),
            Act::PowerCut { who, down } => write!(f, "power cut at {who}, down for {down:?}"),
            Act::CrashInCleaning { who, loses, changes, down } => {
                let how = if *loses { "power cut at" } else { "kill" };
                write!(f, "{how} {who} cleaning, after {changes} changes, down for {down:?}")
            }
            Act::Stop { who, down } => write!(f, "stop {who}, start after {down:?}"),
            Act::Freeze { who, lasts } => write!(f, "freeze {who} for {lasts:?}"),
            Act::Isolate { who, plane, lasts } => {
                write!(f, "isolate {who} ({plane:?}) for {lasts:?}")
            }
            Act::Cut { from, to, both_ways, plane, lasts } => {
                let arrow = if *both_ways { "<->" } else { "->" };
                write!(f, "cut {from} {arrow} {to} ({plane:?}) for {lasts:?}")
            }
            Act::Lose { per_mille, lasts } => {
                write!(f, "lose {per_mille} of 1000 messages for {lasts:?}")
            }
            Act::Hold { messages, limit, arrives, lasts } => {
                let next = match limit {
                    &usize::MAX => String::new(),
                    some => format!("the next {some} "),
                };
                let end = if *arrives { "" } else { ", then lose them" };
                write!(f, "hold {next}{messages} for {lasts:?}{end}")
            }
            Act::Slow { messages, by, lasts } => {
                write!(f, "slow {messages} by up to {by:?} for {lasts:?}")
            }
            Act::JumpClock { who, by_ms } => write!(f, "the clock of {who} jumps by {by_ms} ms"),
            Act::DriftClock { who, millionths, lasts } => {
                write!(f, "the clock of {who} drifts by {millionths}/1000000 for {lasts:?}")
            }
            Act::SlowDisk { who, each, lasts } => {
                write!(f, "the disk of {who} takes {each:?} per change for {lasts:?}")
            }
            Act::BreakDisk { who, full, lasts } => {
                let what = if *full { "is full" } else { "fails" };
                write!(f, "the disk of {who} {what} for {lasts:?}")
            }
            Act::FlipBit { who, lasts, .. } => {
                write!(f, "a bit of a batch of {who} flips, its disk is replaced after {lasts:?}")
            }
            Act::Reassign { partition, replicas } => {
                write!(f, "reassign {partition} to {replicas:?}")
            }
            Act::Elect { partition } => write!(f, "elect the preferred leader of {partition}"),
            Act::When { messages, then } => write!(f, "as soon as {messages} are sent: {then}"),
            Act::Produce { .. }
            | Act::Consume { .. }
            | Act::JoinClassic
            | Act::JoinSubscriber { .. }
            | Act::Churn { .. } => self.fmt_client(f),
        }
    }
}

impl Act {
    /// In words, what clients do.
    fn fmt_client(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Act::Produce { partition, settings } => write!(
                f,
                "a producer of {partition}, acks={}{}, a batch every {:?}",
                settings.acks,
                if settings.idempotent { ", idempotent" } else { "" },
                settings.interval
            ),
            Act::Consume { partition } => write!(f, "a consumer of {partition}"),
            Act::JoinClassic => f.write_str("a classic member joins"),
            Act::JoinSubscriber { is_static, .. } => {
                write!(f, "a {}member joins", if *is_static { "static " } else { "" })
            }
            Act::Churn { which, hangs, returns, classic, .. } => write!(
                f,
                "member {which} {}, another comes{}",
                match (hangs, returns) {
                    (true, _) => "hangs",
                    (false, true) => "leaves for a while",
                    (false, false) => "leaves",
                },
                if *classic { " (classic)" } else { "" }
            ),
            _ => Ok(()),
        }
    }
}
