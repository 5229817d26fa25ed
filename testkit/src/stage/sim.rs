//! The simulated stage: every message, every moment and every event is in the story's hands.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use protocol::records::BatchBuilder;
use protocol::{ApiKey, NodeId, Offset, PartitionEpoch, RequestBody, ResponseBody, TopicPartition};
use storage::Disk;

use super::recording::Notes;
use super::{
    Ability, Between, ClusterNeeds, Hold, Message, Node, PartitionView, Process, ReplicaView, Sent,
    Stage, StageEvent, Written, short,
};
use crate::client::{fetch_request, produce_request, read_batches};
use crate::history::Recorder;
use crate::invariants::FaultModel;
use crate::sim::disk::CrashKind;
use crate::sim::{HoldId, Kind, Plane, SimConfig, Simulation, log_dir};

const PATIENCE: Duration = Duration::from_secs(60);
const PRODUCE_VERSION: i16 = 12;
const FETCH_VERSION: i16 = 12;

/// A simulated cluster on stage.
#[derive(Debug)]
pub struct SimStage {
    simulation: Simulation,
    told: usize,
    partition: Option<TopicPartition>,
    /// Partition epochs whose ISR the controller has told of.
    told_isrs: BTreeSet<PartitionEpoch>,
    holds: Vec<HoldId>,
    notes: Notes,
}

impl SimStage {
    /// Starts a cluster as the story needs it, with all brokers alive.
    ///
    /// # Errors
    /// When it does not come to life.
    pub fn start(needs: ClusterNeeds, seed: u64) -> Result<Self> {
        let mut config = SimConfig::new(seed);
        config.nodes = needs.nodes;
        config.settings.log_dirs = needs.log_dirs;
        config.model.lossy_crashes = needs.power_fails;
        for (key, value) in needs.settings {
            config = config.set(key, value);
            let is_unclean = *key == "unclean.leader.election.enable" && *value == "true";
            config.model = FaultModel {
                unclean_elections: config.model.unclean_elections || is_unclean,
                ..config.model
            };
        }
        let mut simulation = Simulation::new(config)?;
        simulation.wait_until_all_live()?;
        let told = simulation.event_count();
        let told_isrs = BTreeSet::new();
        Ok(Self {
            simulation,
            told,
            partition: None,
            told_isrs,
            holds: Vec::new(),
            notes: Notes::default(),
        })
    }

    /// The simulation behind it.
    pub fn simulation(&mut self) -> &mut Simulation {
        &mut self.simulation
    }

    fn heartbeat(&self) -> Duration {
        self.simulation.settings().heartbeat_interval
    }

    /// From now on it is written down what the story's clients do.
    pub fn record_history(&mut self, recorder: Recorder) {
        self.notes.take(recorder);
    }

    fn write_batch(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        values: &[String],
        timeout: Duration,
    ) -> Result<Written> {
        let mut builder = BatchBuilder::new(Offset::ZERO);
        for value in values {
            builder.append(1_700_000_000_000, None, Some(value.as_bytes()), [])?;
        }
        let request = produce_request(topic, 0, acks, builder.build()?, timeout);
        let ResponseBody::Produce(response) =
            self.simulation.call(NodeId(node), PRODUCE_VERSION, request)?
        else {
            bail!("not an answer to Produce");
        };
        let answered = response
            .responses
            .first()
            .and_then(|topic| topic.partition_responses.first())
            .context("no partition in the answer")?;
        Ok(Written { error_code: answered.error_code, base_offset: answered.base_offset })
    }

    fn read_committed(&mut self, topic: &str) -> Result<Vec<(i64, String)>> {
        let leader = self.simulation.leads(topic, 0).context("no leader")?;
        let request = fetch_request(topic, 0, 0);
        let ResponseBody::Fetch(response) = self.simulation.call(leader, FETCH_VERSION, request)?
        else {
            bail!("not an answer to Fetch");
        };
        let data = response
            .responses
            .into_iter()
            .next()
            .and_then(|topic| topic.partitions.into_iter().next())
            .context("no partition in the answer")?;
        if data.error_code != 0 {
            bail!("fetch from {leader}: error {}", data.error_code);
        }
        let mut records = Vec::new();
        read_batches(data.records.unwrap_or_default().read()?, 0, &mut records)?;
        Ok(records
            .into_iter()
            .map(|record| (record.offset, text(&record.value.unwrap_or_default())))
            .collect())
    }
}

impl Stage for SimStage {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn can(&self, _ability: Ability) -> bool {
        true
    }

    fn nodes(&self) -> Vec<Node> {
        self.simulation.node_ids().iter().map(|id| id.get()).collect()
    }

    fn process(&self, node: Node) -> Process {
        let node = self.simulation.node(NodeId(node));
        match (node.running(), node.is_responsive()) {
            (None, _) => Process::IsDown,
            (Some(_), true) => Process::Runs,
            (Some(_), false) => Process::IsFrozen,
        }
    }

    fn create_topic(
        &mut self,
        topic: &str,
        replicas: &[Node],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        self.simulation.create_topic(topic, &[replicas], configs)?;
        self.simulation.run_until("every replica to know its role", PATIENCE, |simulation| {
            replicas.iter().map(|node| NodeId(*node)).all(|node| {
                simulation.node(node).running().is_none()
                    || simulation
                        .replica(node, topic, 0)
                        .is_some_and(|facts| facts.leader != NodeId::NONE)
            })
        })?;
        // The story is about its first topic.
        self.partition.get_or_insert_with(|| TopicPartition::new(topic, 0));
        Ok(())
    }

    fn produce_to(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        values: &[String],
        timeout: Duration,
    ) -> Result<Written> {
        self.notes.writes(self.simulation.now().0, topic, acks, values);
        let written = self.write_batch(node, topic, acks, values, timeout);
        self.notes.has_written(self.simulation.now().0, &written);
        written
    }

    fn read_all(&mut self, topic: &str) -> Result<Vec<(i64, String)>> {
        self.notes.reads(self.simulation.now().0, topic);
        let read = self.read_committed(topic);
        self.notes.has_read(self.simulation.now().0, &read);
        read
    }

    fn read_replica(&mut self, node: Node, topic: &str) -> Result<Vec<(i64, String)>> {
        let values = self.simulation.values(NodeId(node), topic, 0);
        Ok(values.into_iter().map(|(offset, value)| (offset.get(), text(&value))).collect())
    }

    fn kill(&mut self, node: Node) -> Result<()> {
        self.simulation.crash(NodeId(node), CrashKind::KeepPageCache)
    }

    fn lose_power(&mut self, node: Node) -> Result<()> {
        self.simulation.crash(NodeId(node), CrashKind::LoseUnsynced)
    }

    fn start(&mut self, node: Node) -> Result<()> {
        Simulation::start(&mut self.simulation, NodeId(node))
    }

    fn stop(&mut self, node: Node) -> Result<()> {
        self.simulation.stop_and_wait(NodeId(node))
    }

    fn freeze(&mut self, node: Node) -> Result<()> {
        self.simulation.freeze(NodeId(node));
        Ok(())
    }

    fn thaw(&mut self, node: Node) -> Result<()> {
        self.simulation.thaw(NodeId(node))
    }

    fn cut(&mut self, node: Node, others: &[Node], between: Between) -> Result<()> {
        let plane = match between {
            Between::Brokers => Plane::Data,
            Between::Controllers => Plane::Control,
        };
        for other in others {
            self.simulation.cut_one_way(NodeId(node), NodeId(*other), plane);
            self.simulation.cut_one_way(NodeId(*other), NodeId(node), plane);
        }
        Ok(())
    }

    fn heal(&mut self) -> Result<()> {
        self.simulation.network.heal();
        Ok(())
    }

    fn hold(&mut self, what: Message, from: Option<Node>, to: Option<Node>) -> Result<Hold> {
        let kind = match what {
            Message::Fetch => Kind::Request(ApiKey::Fetch),
            Message::FetchAnswer => Kind::Response(ApiKey::Fetch),
            Message::AlterPartition => Kind::Call(ApiKey::AlterPartition),
            Message::Metadata => Kind::MetadataAnswer,
        };
        self.holds.push(self.simulation.hold(kind, from.map(NodeId), to.map(NodeId)));
        Ok(Hold(self.holds.len() - 1))
    }

    fn held(&self, hold: Hold) -> usize {
        self.holds.get(hold.0).map_or(0, |id| self.simulation.network.held(*id))
    }

    fn release(&mut self, hold: Hold, lost: bool) -> Result<()> {
        let id = *self.holds.get(hold.0).context("nothing is held under this name")?;
        if lost {
            self.simulation.network.discard(id);
        } else {
            self.simulation.release(id);
        }
        Ok(())
    }

    fn fail_directory(&mut self, node: Node, topic: &str) -> Result<()> {
        let disk = &self.simulation.node(NodeId(node)).disk;
        for at in 0..self.simulation.settings().log_dirs {
            if disk.exists(&log_dir(at).join(format!("{topic}-0")))? {
                disk.fail_folder(&log_dir(at));
                return Ok(());
            }
        }
        bail!("b{node} has no log of {topic}")
    }

    fn mend_disk(&mut self, node: Node) -> Result<()> {
        self.simulation.node(NodeId(node)).disk.heal();
        Ok(())
    }

    fn broker_epoch(&self, node: Node) -> Option<i64> {
        self.simulation.cluster().broker(NodeId(node)).map(|broker| broker.epoch.get())
    }

    fn partition_epoch(&self, topic: &str) -> Option<i32> {
        self.simulation.partition_image(topic, 0).map(|image| image.partition_epoch.get())
    }

    fn ask_controller(&mut self, version: i16, request: RequestBody) -> Result<ResponseBody> {
        self.simulation.call_controller(version, request)
    }

    fn send(&mut self, node: Node, version: i16, request: RequestBody) -> Result<Sent> {
        let at = self.simulation.now().0;
        let noted = request.clone();
        let sent = self.simulation.send(NodeId(node), version, request);
        self.notes.sends(at, sent, &noted);
        Ok(Sent(sent))
    }

    fn answer(&mut self, sent: Sent) -> Result<ResponseBody> {
        let answer = self.simulation.wait_for_answer(sent.0);
        self.notes.has_answer(self.simulation.now().0, sent.0, &answer);
        answer
    }

    fn pass(&mut self, time: Duration) -> Result<()> {
        self.simulation.run_for(time)
    }

    fn pass_heartbeats(&mut self) -> Result<()> {
        self.simulation.run_for(self.heartbeat() * 3 / 2)
    }

    fn partition(&mut self, topic: &str) -> Result<PartitionView> {
        let image = self.simulation.partition_image(topic, 0).context("no such partition")?;
        let mut isr: Vec<Node> = image.isr.iter().map(|id| id.get()).collect();
        isr.sort_unstable();
        let (leader, leader_epoch) = (image.leader.get(), image.leader_epoch.get());
        Ok(PartitionView { leader, leader_epoch, isr })
    }

    fn replica(&mut self, node: Node, topic: &str) -> Result<ReplicaView> {
        let facts = self
            .simulation
            .replica(NodeId(node), topic, 0)
            .with_context(|| format!("b{node} has no replica of {topic}"))?;
        Ok(ReplicaView {
            leads: facts.is_leader,
            high_watermark: facts.high_watermark.get(),
            log_end: facts.log_end.get(),
        })
    }

    fn wait(&mut self, what: &str, reached: &mut dyn FnMut(&mut dyn Stage) -> bool) -> Result<()> {
        let end = self.simulation.now() + PATIENCE;
        while !reached(self) {
            if self.simulation.now() > end || !self.simulation.step()? {
                bail!("{what} did not come; {}", self.simulation.describe());
            }
        }
        Ok(())
    }

    fn events(&mut self) -> Vec<StageEvent> {
        let entries = self.simulation.events_since(self.told);
        self.told += entries.len();
        let mut events: Vec<StageEvent> = Vec::new();
        for entry in entries {
            if self.partition.as_ref().is_some_and(|own| !short::concerns(&entry.event, own)) {
                continue;
            }
            let node = entry.node.get();
            let told = match short::isr_change(&entry.event) {
                // The controller tells of it first, then the leader hears of it.
                Some((text, epoch)) => Some((text, self.told_isrs.insert(epoch))),
                None => short::short(&entry.event),
            };
            if let Some((text, is_controllers)) = told {
                events.push(StageEvent {
                    at: entry.at.monotonic.0,
                    node: if is_controllers { 0 } else { node },
                    text,
                    kind: entry.event.name(),
                });
            }
        }
        events
    }

    fn check(&mut self) -> Result<()> {
        self.simulation.check_everything()
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
