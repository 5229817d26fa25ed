//! Random runs: clients under way while nodes crash, freeze and stop, links are cut and messages held
//! and lost; then everything is healed, and the cluster has to come back to health with nothing lost
//! (L1, I15).

mod churn;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::{ApiKey, NodeId, Offset};

use super::clients::{ConsumerSettings, ProducerSettings};
use super::disk::CrashKind;
use super::network::{HoldId, Kind, Plane};
use super::random::SimRandom;
use super::world::{SimConfig, Simulation};
use crate::invariants::FaultModel;

/// Which faults a run may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Processes that die and keep what they gave to the system.
    pub crashes: bool,
    /// Machines that die; one at a time, see [`FaultModel`].
    pub lossy_crashes: bool,
    /// Clean stops.
    pub stops: bool,
    /// Freezes.
    pub freezes: bool,
    /// Cuts, one way and both, of all messages or of the control plane.
    pub cuts: bool,
    /// Messages lost.
    pub loss: bool,
    /// Messages held back for a while.
    pub holds: bool,
    /// Wall clocks that jump.
    pub clock_jumps: bool,
}

impl Faults {
    /// All of them.
    pub const ALL: Faults = Faults {
        crashes: true,
        lossy_crashes: true,
        stops: true,
        freezes: true,
        cuts: true,
        loss: true,
        holds: true,
        clock_jumps: true,
    };
}

/// What a random run does.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// For how long faults happen, in virtual time.
    pub duration: Duration,
    /// The mean pause between two faults.
    pub pause: Duration,
    /// The faults.
    pub faults: Faults,
    /// Partitions of the topic.
    pub partitions: i32,
    /// How long the healed cluster may take.
    pub patience: Duration,
    /// min.insync.replicas; 0 to draw it.
    pub min_isr: i32,
    /// Whether unclean elections are allowed.
    pub unclean: bool,
    /// Members of a classic consumer group beside the other clients.
    pub members: usize,
    /// Members of the new protocol in the same group; members of both kinds then come and go.
    pub subscribers: usize,
    /// Whether the topic, and the groups', are compacted, with small segments and an eager cleaner.
    pub cleaning: bool,
    /// The historical bugs that are on.
    #[cfg(feature = "historical-bugs")]
    pub bugs: Vec<replication::bugs::Bug>,
}

impl Default for RunPlan {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(6),
            pause: Duration::from_millis(500),
            faults: Faults::ALL,
            partitions: 1,
            patience: Duration::from_secs(40),
            min_isr: 0,
            unclean: false,
            members: 0,
            subscribers: 0,
            cleaning: false,
            #[cfg(feature = "historical-bugs")]
            bugs: Vec::new(),
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The faults in order, in words.
    pub faults: Vec<String>,
    /// Records in the topic at the end.
    pub records: usize,
    /// Segments that the cleaners put in, while they were watched.
    pub cleaned: u64,
    /// Steps made.
    pub steps: u64,
    /// Virtual time that passed.
    pub simulated: Duration,
    /// The trace.
    pub trace: String,
}

/// A random run under way.
struct Run {
    simulation: Simulation,
    random: SimRandom,
    plan: RunPlan,
    held: Vec<HoldId>,
    done: Vec<String>,
    /// The members of the group that have not left it.
    group: Vec<u32>,
    /// A machine died and may still be in an ISR: no other process may end uncleanly, and under
    /// min.insync.replicas of 1 nothing else may break.
    recovering: Option<NodeId>,
    min_isr: u64,
    /// No process ended uncleanly since every replica had everything.
    is_unhurt: bool,
}

const TOPIC: &str = "t";

impl Simulation {
    /// Runs a random plan from its seed.
    ///
    /// # Errors
    /// A broken invariant, or no health after healing; with the seed, the faults and the last events.
    pub fn random(seed: u64, plan: RunPlan) -> Result<RunReport> {
        let mut random = SimRandom::new(seed ^ 0x5eed_5eed);
        let min_isr = if plan.min_isr > 0 { plan.min_isr as u64 } else { random.between(1, 3) };
        let mut config = SimConfig::new(seed)
            .set("min.insync.replicas", min_isr)
            .set("unclean.leader.election.enable", plan.unclean);
        #[cfg(feature = "historical-bugs")]
        {
            config.bugs = plan.bugs.clone();
        }
        if plan.cleaning {
            config = eager_cleaner(config, &mut random);
        }
        config.model = FaultModel {
            unclean_elections: plan.unclean,
            lossy_crashes: plan.faults.lossy_crashes,
        };
        let mut run = Run {
            simulation: Simulation::new(config)?,
            random,
            plan,
            held: Vec::new(),
            done: Vec::new(),
            group: Vec::new(),
            recovering: None,
            min_isr,
            is_unhurt: true,
        };
        match run.play() {
            Ok(report) => Ok(report),
            Err(error) => {
                let faults = run.done.join("\n  ");
                Err(error.context(format!("seed {seed}; faults:\n  {faults}")))
            }
        }
    }
}

/// Segments of a part of a second, and a cleaner that is always at work, in small steps.
fn eager_cleaner(config: SimConfig, random: &mut SimRandom) -> SimConfig {
    let map_bytes = *random.choose(&[200, 1000, 1 << 20]).unwrap_or(&1000);
    config
        .set("log.roll.ms", random.between(150, 600))
        .set("log.cleaner.backoff.ms", random.between(50, 500))
        .set("log.cleaner.min.cleanable.ratio", 0.01)
        .set("log.cleaner.delete.retention.ms", random.between(0, 1500))
        .set("log.cleaner.dedupe.buffer.size", map_bytes)
        .set("log.cleaner.io.buffer.size", random.between(100, 4000))
        .set("log.cleaner.io.max.bytes.per.second", random.between(20_000, 1_000_000))
        .set("log.cleaner.threads", random.between(1, 2))
}

impl Run {
    fn play(&mut self) -> Result<RunReport> {
        self.simulation.wait_until_all_live()?;
        let replicas: [&[i32]; 3] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]];
        let partitions = &replicas[..self.plan.partitions.clamp(1, 3) as usize];
        let configs: &[(&str, &str)] =
            if self.plan.cleaning { &[("cleanup.policy", "compact")] } else { &[] };
        self.simulation.create_topic(TOPIC, partitions, configs)?;
        self.add_clients(partitions.len() as i32)?;
        let end = self.simulation.now() + self.plan.duration;
        while self.simulation.now() < end {
            let pause = self.plan.pause.as_micros() as u64;
            let pause = Duration::from_micros(self.random.between(pause / 10, pause * 2));
            self.simulation.run_for(pause)?;
            if self.plan.subscribers > 0 && self.random.one_in(3) {
                self.change_group()?;
            }
            self.fault()?;
        }
        self.heal()?;
        self.finish(partitions.len() as i32)
    }

    fn add_clients(&mut self, partitions: i32) -> Result<()> {
        for index in 0..partitions {
            let partition = self.simulation.partition_id(TOPIC, index)?;
            let keys = if self.plan.cleaning { 8 } else { 0 };
            let all = ProducerSettings {
                records: 2,
                keys,
                tombstone_one_in: 4,
                may_begin_anew: self.plan.unclean,
                ..ProducerSettings::default()
            };
            self.simulation.add_producer(partition.clone(), all);
            let one = ProducerSettings {
                acks: *self.random.choose(&[1, -1, 0]).unwrap_or(&1),
                idempotent: false,
                keys,
                retries: self.random.below(3) as u32,
                ..ProducerSettings::default()
            };
            self.simulation.add_producer(partition.clone(), one);
            self.simulation.add_consumer(partition, ConsumerSettings::default());
        }
        self.add_group(partitions);
        Ok(())
    }

    fn any_node(&mut self) -> NodeId {
        let ids = self.simulation.node_ids().to_vec();
        *self.random.choose(&ids).unwrap_or(&NodeId(1))
    }

    fn tell(&mut self, what: String) {
        let at = self.simulation.now().0;
        self.done.push(format!("{:>9.3} {what}", at.as_secs_f64()));
    }

    fn fault(&mut self) -> Result<()> {
        self.is_unhurt |= self.simulation.is_replicated_everywhere();
        let is_recovering = self.is_recovering();
        if is_recovering && self.min_isr < 2 {
            return self.mend();
        }
        // Mending is as likely as breaking, so that runs are neither idle nor dead.
        if self.random.one_in(2) {
            return self.mend();
        }
        let node = self.any_node();
        let faults = self.plan.faults;
        match self.random.below(if self.plan.cleaning { 9 } else { 8 }) {
            0 | 8 if is_recovering => self.mend(),
            0 if faults.crashes => self.crash(node),
            1 if faults.lossy_crashes => self.crash_machine(node),
            2 if faults.stops => self.stop(node),
            3 if faults.freezes => {
                self.tell(format!("freeze {node}"));
                self.simulation.freeze(node);
                Ok(())
            }
            4 if faults.cuts => {
                self.cut(node);
                Ok(())
            }
            5 if faults.loss => {
                let per_mille = self.random.between(5, 60);
                self.tell(format!("lose {per_mille} of 1000 messages"));
                self.simulation.network.set_loss(per_mille);
                Ok(())
            }
            6 if faults.holds => {
                self.hold(node);
                Ok(())
            }
            7 if faults.clock_jumps => {
                let by = self.random.below(20_000) as i64 - 10_000;
                self.tell(format!("clock of {node} jumps by {by} ms"));
                self.simulation.jump_clock(node, by);
                Ok(())
            }
            8 if faults.crashes => self.crash_in_cleaning(node),
            _ => Ok(()),
        }
    }

    /// Waits for the cleaner's next work, and ends the node in the middle of it.
    fn crash_in_cleaning(&mut self, node: NodeId) -> Result<()> {
        if !self.simulation.node(node).is_responsive() {
            return Ok(());
        }
        let may_lose = self.plan.faults.lossy_crashes
            && self.simulation.is_replicated_everywhere()
            && self.simulation.network.is_whole();
        let loses = may_lose && self.random.one_in(2);
        let kind = if loses { CrashKind::LoseUnsynced } else { CrashKind::KeepPageCache };
        let changes = self.random.below(40);
        self.is_unhurt = false;
        self.simulation.crash_in_cleaning(node, kind, changes);
        for _ in 0..30 {
            self.simulation.run_for(Duration::from_millis(50))?;
            if self.simulation.node(node).running().is_none() {
                self.tell(format!("{node} died cleaning, after {changes} changes, {kind:?}"));
                self.recovering = loses.then_some(node);
                return Ok(());
            }
        }
        self.simulation.crash_no_more(node);
        Ok(())
    }

    fn crash(&mut self, node: NodeId) -> Result<()> {
        if self.simulation.node(node).running().is_none() {
            return Ok(());
        }
        self.tell(format!("crash {node}"));
        self.is_unhurt = false;
        self.simulation.crash(node, CrashKind::KeepPageCache)
    }

    /// Under min.insync.replicas of 1 only in a whole cluster: nothing more is promised. Of 2, whenever no
    /// other process may have lost records: of those that have everything committed, in the ISR or eligible,
    /// one is left (C06).
    fn crash_machine(&mut self, node: NodeId) -> Result<()> {
        let is_whole =
            self.simulation.is_replicated_everywhere() && self.simulation.network.is_whole();
        if self.simulation.node(node).running().is_none()
            || !is_whole && (self.min_isr < 2 || !self.is_unhurt)
        {
            return Ok(());
        }
        self.is_unhurt = false;
        self.tell(format!("power cut at {node}"));
        self.recovering = Some(node);
        self.simulation.crash(node, CrashKind::LoseUnsynced)
    }

    /// Whether a machine that lost data may still be elected, or the cluster is not whole after it.
    fn is_recovering(&mut self) -> bool {
        if let Some(node) = self.recovering
            && self.simulation.node(node).running().is_some()
            && self.simulation.is_replicated_everywhere()
        {
            self.recovering = None;
        }
        self.recovering.is_some()
    }

    fn stop(&mut self, node: NodeId) -> Result<()> {
        if !self.simulation.node(node).is_responsive() {
            return Ok(());
        }
        self.tell(format!("stop {node}"));
        self.simulation.stop(node)
    }

    fn cut(&mut self, node: NodeId) {
        let other = self.any_node();
        let plane =
            *self.random.choose(&[Plane::All, Plane::Control, Plane::Data]).unwrap_or(&Plane::All);
        match self.random.below(3) {
            0 => {
                self.tell(format!("isolate {node}, {plane:?}"));
                self.simulation.isolate(node, plane);
            }
            1 if node != other => {
                self.tell(format!("cut {node} -> {other}, {plane:?}"));
                self.simulation.cut_one_way(node, other, plane);
            }
            _ if node != other => {
                self.tell(format!("cut {node} <-> {other}, {plane:?}"));
                self.simulation.cut_one_way(node, other, plane);
                self.simulation.cut_one_way(other, node, plane);
            }
            _ => {}
        }
    }

    fn hold(&mut self, node: NodeId) {
        let kinds = [
            Kind::Call(ApiKey::AlterPartition),
            Kind::CallAnswer(ApiKey::AlterPartition),
            Kind::Request(ApiKey::Fetch),
            Kind::Response(ApiKey::Fetch),
            Kind::Response(ApiKey::Produce),
            Kind::MetadataAnswer,
            Kind::Raft,
        ];
        let kind = *self.random.choose(&kinds).unwrap_or(&Kind::Raft);
        let (from, to) =
            if self.random.one_in(2) { (Some(node), None) } else { (None, Some(node)) };
        self.tell(format!("hold {kind} from {from:?} to {to:?}"));
        let hold = self.simulation.hold(kind, from, to);
        self.held.push(hold);
    }

    /// Mends one thing that is broken.
    fn mend(&mut self) -> Result<()> {
        let node = self.any_node();
        if self.simulation.node(node).running().is_none() {
            self.tell(format!("start {node}"));
            return self.simulation.start(node);
        }
        self.simulation.thaw(node)?;
        match self.random.below(3) {
            0 => self.simulation.network.heal(),
            1 => {
                if let Some(hold) = self.held.pop() {
                    self.simulation.release(hold);
                }
            }
            _ => {
                let other = self.any_node();
                if node != other {
                    self.simulation.heal(node, other);
                }
            }
        }
        Ok(())
    }

    fn heal(&mut self) -> Result<()> {
        self.tell("heal everything".into());
        self.simulation.heal_network();
        let nodes = self.simulation.node_ids().to_vec();
        for node in &nodes {
            self.simulation.thaw(*node)?;
            if self.simulation.node(*node).running().is_none() {
                self.simulation.start(*node)?;
            }
        }
        for node in nodes {
            let is_stopping =
                self.simulation.node(node).running().is_some_and(|process| process.stopping);
            if is_stopping {
                self.simulation.stop_and_wait(node)?;
            }
            if self.simulation.node(node).running().is_none() {
                self.simulation.start(node)?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, partitions: i32) -> Result<RunReport> {
        self.simulation.run_for(Duration::from_millis(500))?;
        let patience = self.plan.patience;
        self.simulation.run_until(
            "every group divided",
            patience,
            Simulation::groups_are_settled,
        )?;
        self.simulation.quiesce_clients();
        self.simulation.run_until(
            "every write acknowledged or refused",
            patience,
            |simulation| simulation.producers_are_done(),
        )?;
        self.simulation.run_until("a healthy cluster", patience, Simulation::is_healthy)?;
        self.simulation.check_everything()?;
        let mut records = 0;
        for index in 0..partitions {
            let partition = self.simulation.partition_id(TOPIC, index)?;
            let leader = self.simulation.leads(TOPIC, index).context("no leader")?;
            let values: Vec<(Offset, Bytes)> = self.simulation.values(leader, TOPIC, index);
            records += values.len();
            self.simulation.checker.check_final_reading(&partition, &values);
        }
        self.simulation.fail_on_violation()?;
        self.consumers_reach_the_end(partitions)?;
        Ok(RunReport {
            faults: self.done.clone(),
            records,
            cleaned: self.simulation.cleaned(),
            steps: self.simulation.steps(),
            simulated: self.simulation.now().0,
            trace: self.simulation.trace_text(),
        })
    }

    /// Every record that is committed is read by somebody (I15).
    fn consumers_reach_the_end(&mut self, partitions: i32) -> Result<()> {
        let patience = self.plan.patience;
        self.simulation.run_until("every record read", patience, |simulation| {
            (0..partitions).all(|index| {
                let consumer = 3 * (index as u32 + 1);
                let end = simulation
                    .leads(TOPIC, index)
                    .and_then(|leader| simulation.replica(leader, TOPIC, index))
                    .map(|facts| facts.log_end);
                end.is_some_and(|end| {
                    simulation.consumer(consumer).is_some_and(|consumer| consumer.position() == end)
                })
            })
        })?;
        if self.plan.unclean {
            return Ok(());
        }
        for index in 0..partitions {
            let leader = self.simulation.leads(TOPIC, index).context("no leader")?;
            let written = self.simulation.values(leader, TOPIC, index);
            let consumer =
                self.simulation.consumer(3 * (index as u32 + 1)).context("no consumer")?;
            let mut read = consumer.records().iter();
            let is_right = if self.plan.cleaning {
                // What was cleaned since is no more there.
                written.iter().all(|there| read.any(|record| record == there))
            } else {
                consumer.records() == written
            };
            ensure!(is_right, "the consumer read something else than is there");
        }
        Ok(())
    }
}

impl Simulation {
    /// Whether every node runs, responsive and alive, and every partition's ISR is all its replicas.
    pub fn is_replicated_everywhere(&self) -> bool {
        self.node_ids().iter().all(|id| self.node(*id).is_responsive())
            && self.all_live()
            && self
                .cluster()
                .partitions()
                .all(|(_, _, image)| image.isr.len() == image.replicas.len())
    }
}
