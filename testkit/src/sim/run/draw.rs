//! Draws a run from its seed: who reads and writes, which faults and when. Besides single faults there
//! are themes: a few events close together that meet in one place, as incidents do. Every run draws a
//! few kinds of faults and themes out of all (swarm testing), so that runs differ from each other more
//! than many equal mixtures would.

use std::time::Duration;

use protocol::ApiKey;

use super::super::clients::ProducerSettings;
use super::super::network::{Kind, Plane, Sort};
use super::super::random::SimRandom;
use super::event::{Act, Event, KINDS, Messages, Who};
use super::plan::{Faults, RunPlan};

mod themes;

pub use themes::Theme;

/// A run as drawn.
#[derive(Clone, Debug)]
pub struct Script {
    /// Where the simulation's own chance comes from.
    pub seed: u64,
    /// min.insync.replicas.
    pub min_isr: u64,
    /// The longest way of a message in a whole network.
    pub latency_max: Duration,
    /// See [`super::super::NodeSettings::snapshots`].
    pub snapshots: Option<(u64, u64)>,
    /// Properties of all nodes.
    pub properties: Vec<(String, String)>,
    /// What happens.
    pub events: Vec<Event>,
}

impl RunPlan {
    /// The run of a seed.
    pub fn script(&self, seed: u64) -> Script {
        let mut random = SimRandom::new(seed ^ 0x5eed_5eed);
        let min_isr = if self.min_isr > 0 { self.min_isr as u64 } else { random.between(1, 3) };
        let latency_max = *random.choose(&[1000, 1000, 4000, 15_000]).unwrap_or(&1000);
        let snapshots = self.faults.snapshots && random.one_in(3);
        let snapshots = snapshots.then(|| (random.between(2, 25), random.below(5)));
        let properties = if self.cleaning { eager_cleaner(&mut random) } else { Vec::new() };
        let drawn = *random.choose(&[40, 40, 150, 700, 1500, 3000]).unwrap_or(&40);
        let interval = Some(self.interval).filter(|interval| !interval.is_zero());
        let mut drawing = Drawing {
            plan: self,
            interval: interval.unwrap_or(Duration::from_millis(drawn)),
            kinds: Single::of(self.faults, self.cleaning),
            themes: self.themes.clone(),
            random,
            events: Vec::new(),
        };
        drawing.narrow();
        drawing.add_clients();
        drawing.add_faults();
        let mut events = drawing.events;
        events.sort_by_key(|(at, _)| *at);
        let events = (1..).zip(events).map(|(number, (at, act))| Event { number, at, act });
        let latency_max = Duration::from_micros(latency_max);
        let events = events.collect();
        Script { seed, min_isr, latency_max, snapshots, properties, events }
    }
}

/// Segments of a part of a second, and a cleaner that is always at work, in small steps.
fn eager_cleaner(random: &mut SimRandom) -> Vec<(String, String)> {
    let map_bytes = *random.choose(&[200, 1000, 1 << 20]).unwrap_or(&1000);
    let mut properties = vec![("log.cleaner.min.cleanable.ratio".into(), "0.01".into())];
    for (key, value) in [
        ("log.roll.ms", random.between(150, 600)),
        ("log.cleaner.backoff.ms", random.between(50, 500)),
        ("log.cleaner.delete.retention.ms", random.between(0, 1500)),
        ("log.cleaner.dedupe.buffer.size", map_bytes),
        ("log.cleaner.io.buffer.size", random.between(100, 4000)),
        ("log.cleaner.io.max.bytes.per.second", random.between(20_000, 1_000_000)),
        ("log.cleaner.threads", random.between(1, 2)),
    ] {
        properties.push((key.to_owned(), value.to_string()));
    }
    properties
}

/// The kinds of single faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Single {
    Crash,
    PowerCut,
    CrashInCleaning,
    Stop,
    Freeze,
    Cut,
    Lose,
    Hold,
    Slow,
    JumpClock,
    DriftClock,
    SlowDisk,
    BreakDisk,
    FlipBit,
    Reassign,
    Elect,
}

impl Single {
    fn of(faults: Faults, cleaning: bool) -> Vec<Single> {
        let all = [
            (faults.crashes, Single::Crash),
            (faults.lossy_crashes, Single::PowerCut),
            (faults.crashes && cleaning, Single::CrashInCleaning),
            (faults.stops, Single::Stop),
            (faults.freezes, Single::Freeze),
            (faults.cuts, Single::Cut),
            (faults.loss, Single::Lose),
            (faults.holds, Single::Hold),
            (faults.slow, Single::Slow),
            (faults.clock_jumps, Single::JumpClock),
            (faults.clock_drifts, Single::DriftClock),
            (faults.slow_disks, Single::SlowDisk),
            (faults.broken_disks, Single::BreakDisk),
            (faults.bit_flips && faults.lossy_crashes, Single::FlipBit),
            (faults.reassignments, Single::Reassign),
            (faults.elections, Single::Elect),
        ];
        all.into_iter().filter(|(may, _)| *may).map(|(_, single)| single).collect()
    }
}

/// A run being drawn.
struct Drawing<'a> {
    plan: &'a RunPlan,
    random: SimRandom,
    /// Between two batches of a producer.
    interval: Duration,
    kinds: Vec<Single>,
    themes: Vec<Theme>,
    events: Vec<(Duration, Act)>,
}

impl Drawing<'_> {
    /// Leaves some of all kinds.
    fn narrow(&mut self) {
        let random = &mut self.random;
        // Every third run has all of them.
        if random.one_in(3) {
            return;
        }
        let (kinds, themes) = (self.kinds.clone(), self.themes.clone());
        self.kinds.retain(|_| random.one_in(2));
        self.themes.retain(|_| random.one_in(3));
        if self.kinds.len() < 2 {
            self.kinds = kinds;
        }
        if self.themes.is_empty() {
            self.themes = random.choose(&themes).copied().into_iter().collect();
        }
    }

    fn add(&mut self, at: Duration, act: Act) {
        if act.is_power_cut() && !self.plan.faults.lossy_crashes {
            return;
        }
        self.events.push((at, act));
    }

    fn partitions(&self) -> i32 {
        self.plan.partitions.clamp(1, 3)
    }

    fn add_clients(&mut self) {
        for partition in 0..self.partitions() {
            let keys = if self.plan.cleaning { 8 } else { 0 };
            let interval = self.interval;
            let all = ProducerSettings {
                records: 2,
                keys,
                tombstone_one_in: 4,
                may_begin_anew: self.plan.unclean,
                interval,
                ..ProducerSettings::default()
            };
            self.add(Duration::ZERO, Act::Produce { partition, settings: all });
            let one = ProducerSettings {
                acks: *self.random.choose(&[1, -1, 0]).unwrap_or(&1),
                idempotent: false,
                keys,
                retries: self.random.below(3) as u32,
                interval,
                ..ProducerSettings::default()
            };
            self.add(Duration::ZERO, Act::Produce { partition, settings: one });
            self.add(Duration::ZERO, Act::Consume { partition });
        }
        for _ in 0..self.plan.members {
            self.add(Duration::ZERO, Act::JoinClassic);
        }
        for at in 0..self.plan.subscribers {
            let revocation = self.millis(0, 400);
            self.add(Duration::ZERO, Act::JoinSubscriber { is_static: at == 0, revocation });
        }
    }

    fn add_faults(&mut self) {
        let pause = self.plan.pause.as_micros() as u64;
        let mut at = Duration::ZERO;
        loop {
            at += Duration::from_micros(self.random.between(pause / 10, pause * 2));
            if at >= self.plan.duration {
                return;
            }
            if self.plan.subscribers > 0 && self.random.one_in(3) {
                let churn = Act::Churn {
                    which: self.random.below(64),
                    hangs: self.random.one_in(3),
                    returns: self.random.one_in(3),
                    classic: self.random.one_in(2),
                    revocation: self.millis(0, 400),
                };
                self.add(at, churn);
            }
            let theme = self.random.one_in(5).then(|| self.random.choose(&self.themes).copied());
            if let Some(theme) = theme.flatten() {
                at += self.add_theme(theme, at);
            } else if self.random.one_in(2)
                && let Some(kind) = self.random.choose(&self.kinds).copied()
            {
                let act = self.single(kind);
                self.add(at, act);
            }
        }
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.random.between(from, to))
    }

    /// Mostly short, sometimes longer than the session timeout and the lag limit.
    fn lasts(&mut self) -> Duration {
        match self.random.below(4) {
            0 => self.millis(20, 400),
            1 | 2 => self.millis(300, 2500),
            _ => self.millis(2000, 6000),
        }
    }

    /// How long a node that ended stays away; often no longer than a start takes.
    fn down(&mut self) -> Duration {
        if self.random.one_in(3) { self.millis(0, 60) } else { self.lasts() }
    }

    fn partition(&mut self) -> i32 {
        self.random.below(self.partitions() as u64) as i32
    }

    fn who(&mut self) -> Who {
        let partition = self.partition();
        match self.random.below(6) {
            0 | 1 => Who::Leader(partition),
            2 => Who::Follower(partition, self.random.below(2) as usize),
            3 if self.random.one_in(2) => Who::Controller,
            _ => Who::Node(self.random.between(1, 4) as i32),
        }
    }

    fn plane(&mut self) -> Plane {
        *self.random.choose(&[Plane::All, Plane::Control, Plane::Data]).unwrap_or(&Plane::All)
    }

    fn messages(&mut self) -> Messages {
        let kind = *self.random.choose(&KINDS).unwrap_or(&Kind::Raft);
        let who = self.who();
        let (from, to) = if self.random.one_in(2) { (Some(who), None) } else { (None, Some(who)) };
        Messages { sort: Sort::Of(kind), from, to }
    }

    fn single(&mut self, kind: Single) -> Act {
        let who = self.who();
        match kind {
            Single::Crash => Act::Crash { who, down: self.down() },
            Single::PowerCut => Act::PowerCut { who, down: self.down() },
            Single::CrashInCleaning => {
                let loses = self.plan.faults.lossy_crashes && self.random.one_in(2);
                let changes = self.random.below(40);
                Act::CrashInCleaning { who, loses, changes, down: self.down() }
            }
            Single::Stop => Act::Stop { who, down: self.down() },
            Single::Freeze => Act::Freeze { who, lasts: self.lasts() },
            Single::Cut if self.random.one_in(3) => {
                Act::Isolate { who, plane: self.plane(), lasts: self.lasts() }
            }
            Single::Cut => Act::Cut {
                from: who,
                to: self.who(),
                both_ways: self.random.one_in(2),
                plane: self.plane(),
                lasts: self.lasts(),
            },
            Single::Lose => {
                Act::Lose { per_mille: self.random.between(5, 60), lasts: self.lasts() }
            }
            Single::Hold => {
                let limit = if self.random.one_in(2) { usize::MAX } else { 1 };
                let arrives = !self.random.one_in(4);
                Act::Hold { messages: self.messages(), limit, arrives, lasts: self.lasts() }
            }
            Single::Slow => {
                let mut messages = self.messages();
                if self.random.one_in(2) {
                    messages.sort = Sort::On(self.plane());
                }
                Act::Slow { messages, by: self.millis(2, 400), lasts: self.lasts() }
            }
            Single::JumpClock => {
                Act::JumpClock { who, by_ms: self.random.below(20_000) as i64 - 10_000 }
            }
            Single::DriftClock => {
                let millionths = self.random.below(400_000) as i64 - 200_000;
                Act::DriftClock { who, millionths, lasts: self.lasts() }
            }
            Single::SlowDisk => {
                Act::SlowDisk { who, each: self.millis(1, 60), lasts: self.lasts() }
            }
            Single::BreakDisk => {
                Act::BreakDisk { who, full: self.random.one_in(2), lasts: self.lasts() }
            }
            Single::FlipBit => {
                Act::FlipBit { who, place: self.random.next_u64(), lasts: self.lasts() }
            }
            Single::Reassign => self.reassign(),
            Single::Elect => Act::Elect { partition: self.partition() },
        }
    }

    /// Two or three of the nodes in any order.
    fn reassign(&mut self) -> Act {
        let mut left = vec![1, 2, 3];
        let mut replicas = Vec::new();
        let count = self.random.between(2, 4) as usize;
        while replicas.len() < count && !left.is_empty() {
            replicas.push(left.remove(self.random.below(left.len() as u64) as usize));
        }
        Act::Reassign { partition: self.partition(), replicas }
    }
}

/// Messages of one kind.
fn of(kind: Kind, from: Option<Who>, to: Option<Who>) -> Messages {
    Messages { sort: Sort::Of(kind), from, to }
}

const FETCHES: Kind = Kind::Request(ApiKey::Fetch);
const FETCHED: Kind = Kind::Response(ApiKey::Fetch);
const ALTER: Kind = Kind::Call(ApiKey::AlterPartition);
const ALTERED: Kind = Kind::CallAnswer(ApiKey::AlterPartition);
