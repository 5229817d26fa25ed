//! Random runs: clients under way while nodes crash, freeze and stop, links are cut and messages held
//! and lost; then everything is healed, and the cluster has to come back to health with nothing lost
//! (L1, I15).
//!
//! A seed and a plan make a [`Script`], a list of numbered events (`run/draw.rs`). It is played
//! (`run/perform.rs`), whole or without some of its events, and a failing one is made smaller
//! (`run/shrink.rs`).

mod churn;
mod decay;
mod draw;
mod event;
mod perform;
mod plan;
mod shrink;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::{NodeId, Offset};
use replication::time::Instant;

use super::world::{SimConfig, Simulation};
use crate::history::Recorder;
use crate::invariants::FaultModel;

pub use draw::{Script, Theme};
pub use event::Event;
pub use plan::{Faults, RunPlan};
pub use shrink::{RunFailure, Shrunk, play, play_and_record, shrink};

/// What a run came to.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// What was done, in order, in words.
    pub faults: Vec<String>,
    /// Records in the topic at the end.
    pub records: usize,
    /// Segments that the cleaners put in, while they were watched.
    pub cleaned: u64,
    /// Steps made.
    pub steps: u64,
    /// Virtual time that passed.
    pub simulated: Duration,
    /// A hash over everything that was delivered.
    pub fingerprint: u64,
}

/// A run under way.
struct Run<'a> {
    simulation: Simulation,
    plan: &'a RunPlan,
    done: Vec<String>,
    /// What ends, and when.
    undos: BTreeMap<(Instant, u64), perform::Undo>,
    next_undo: u64,
    armed: Vec<perform::Armed>,
    /// Consumers with their partitions.
    consumers: Vec<(i32, u32)>,
    /// The members of the group that have not left it.
    group: Vec<u32>,
    /// A machine died and may still be in an ISR: no other process may end uncleanly, and under
    /// min.insync.replicas of 1 nothing else may break.
    recovering: Option<NodeId>,
    min_isr: u64,
    /// No process ended uncleanly since every replica had everything.
    is_unhurt: bool,
    /// Whose disk has a flipped bit.
    decayed: Option<NodeId>,
}

const TOPIC: &str = "t";
/// How long what happened last may go on before everything is healed.
const AFTERMATH: Duration = Duration::from_secs(2);

impl Simulation {
    /// Runs a random plan from its seed.
    ///
    /// # Errors
    /// A broken invariant, or no health after healing; with the seed, the faults and the last events.
    pub fn random(seed: u64, plan: &RunPlan) -> Result<RunReport> {
        Self::scripted(&plan.script(seed), plan)
    }

    /// Plays a script.
    ///
    /// # Errors
    /// As [`Simulation::random`].
    pub fn scripted(script: &Script, plan: &RunPlan) -> Result<RunReport> {
        Self::scripted_and_recorded(script, plan, None)
    }

    /// Plays a script; what its producers and consumers do is written down, and at the end everything is read
    /// once more for that.
    ///
    /// # Errors
    /// As [`Simulation::random`].
    pub fn scripted_and_recorded(
        script: &Script,
        plan: &RunPlan,
        history: Option<&Recorder>,
    ) -> Result<RunReport> {
        let mut config = SimConfig::new(script.seed)
            .set("min.insync.replicas", script.min_isr)
            .set("unclean.leader.election.enable", plan.unclean);
        for (key, value) in &script.properties {
            config = config.set(key, value);
        }
        #[cfg(feature = "historical-bugs")]
        {
            config.bugs = plan.bugs.clone();
        }
        config.network.latency_max = script.latency_max;
        config.settings.snapshots = script.snapshots;
        config.model = FaultModel {
            unclean_elections: plan.unclean,
            lossy_crashes: plan.faults.lossy_crashes,
        };
        let mut run = Run {
            simulation: Simulation::new(config)?,
            plan,
            done: Vec::new(),
            undos: BTreeMap::new(),
            next_undo: 0,
            armed: Vec::new(),
            consumers: Vec::new(),
            group: Vec::new(),
            recovering: None,
            min_isr: script.min_isr,
            is_unhurt: true,
            decayed: None,
        };
        if let Some(recorder) = history {
            run.simulation.record_history(recorder.clone());
        }
        run.play(script).map_err(|error| {
            let done = run.done.join("\n  ");
            error.context(format!("seed {}; what was done:\n  {done}", script.seed))
        })
    }
}

impl Run<'_> {
    fn play(&mut self, script: &Script) -> Result<RunReport> {
        self.simulation.wait_until_all_live()?;
        let replicas: [&[i32]; 3] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]];
        let configs: &[(&str, &str)] =
            if self.plan.cleaning { &[("cleanup.policy", "compact")] } else { &[] };
        let partitions = &replicas[..self.partitions() as usize];
        self.simulation.create_topic(TOPIC, partitions, configs)?;
        let start = self.simulation.now();
        for event in &script.events {
            self.advance(start + event.at)?;
            self.perform(&event.act)?;
        }
        let last = script.events.last().map_or(Duration::ZERO, |event| event.at);
        self.advance(start + self.plan.duration.max(last + AFTERMATH))?;
        self.heal()?;
        self.finish()
    }

    fn partitions(&self) -> i32 {
        self.plan.partitions.clamp(1, 3)
    }

    fn tell(&mut self, what: String) {
        let at = self.simulation.now().0;
        self.done.push(format!("{:>9.3} {what}", at.as_secs_f64()));
    }

    fn heal(&mut self) -> Result<()> {
        self.tell("heal everything".into());
        self.forget_what_is_due();
        self.simulation.heal_network();
        let nodes = self.simulation.node_ids().to_vec();
        for node in &nodes {
            self.simulation.node(*node).clock.drift(0);
            self.simulation.node(*node).disk.set_slow(Duration::ZERO);
            if self.simulation.node(*node).disk.is_broken() {
                self.undo_at_disk(perform::Undo::MendDisk(*node))?;
            }
            if self.decayed == Some(*node) {
                self.replace_disk(*node)?;
            }
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

    fn finish(&mut self) -> Result<RunReport> {
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
        for index in 0..self.partitions() {
            let partition = self.simulation.partition_id(TOPIC, index)?;
            let leader = self.simulation.leads(TOPIC, index).context("no leader")?;
            let values: Vec<(Offset, Bytes)> = self.simulation.values(leader, TOPIC, index);
            records += values.len();
            self.simulation.checker.check_final_reading(&partition, &values);
        }
        self.simulation.fail_on_violation()?;
        self.consumers_reach_the_end()?;
        let report = RunReport {
            faults: std::mem::take(&mut self.done),
            records,
            cleaned: self.simulation.cleaned(),
            steps: self.simulation.steps(),
            simulated: self.simulation.now().0,
            fingerprint: self.simulation.fingerprint(),
        };
        for index in 0..self.partitions() {
            self.simulation.read_finally(TOPIC, index)?;
        }
        Ok(report)
    }

    /// Every record that is committed is read by somebody (I15).
    fn consumers_reach_the_end(&mut self) -> Result<()> {
        let patience = self.plan.patience;
        let consumers = self.consumers.clone();
        self.simulation.run_until("every record read", patience, |simulation| {
            consumers.iter().all(|(index, consumer)| {
                let end = simulation
                    .leads(TOPIC, *index)
                    .and_then(|leader| simulation.replica(leader, TOPIC, *index))
                    .map(|facts| facts.log_end);
                end.is_some_and(|end| {
                    simulation
                        .consumer(*consumer)
                        .is_some_and(|consumer| consumer.position() == end)
                })
            })
        })?;
        if self.plan.unclean {
            return Ok(());
        }
        for (index, consumer) in consumers {
            let leader = self.simulation.leads(TOPIC, index).context("no leader")?;
            let written = self.simulation.values(leader, TOPIC, index);
            let consumer = self.simulation.consumer(consumer).context("no consumer")?;
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
