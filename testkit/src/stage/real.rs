//! The real stage: processes, sockets and files. A fault proxy on the links between nodes cuts them and holds
//! messages back; a log directory fails by being taken away. It sees no event, and time does not stop.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::frame::decode_response;
use protocol::{ApiKey, RequestBody, ResponseBody};

use super::recording::Notes;
use super::{
    Ability, Between, ClusterNeeds, Hold, Message, Node, PartitionView, Process, ReplicaView, Sent,
    Stage, StageEvent, Written,
};
use crate::client::{Client, batch_of};
use crate::history::Recorder;
use crate::real::Message as Named;
use crate::real::{Cluster, ClusterBuilder, FaultId, Harm, NodeState, OnSockets, Plane, Way};

const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(5);
/// Timeouts short enough for stories of a few seconds.
pub(super) const SHORT: &[(&str, &str)] = &[
    ("broker.session.timeout.ms", "1500"),
    ("broker.heartbeat.interval.ms", "200"),
    ("replica.lag.time.max.ms", "2000"),
    ("replica.fetch.wait.max.ms", "200"),
    ("replica.fetch.backoff.ms", "50"),
    ("replica.high.watermark.checkpoint.interval.ms", "200"),
    ("controller.quorum.election.timeout.ms", "300"),
    ("controller.quorum.fetch.timeout.ms", "600"),
];
const HEARTBEAT: Duration = Duration::from_millis(200);

/// A cluster of processes on stage: ours, unless said otherwise.
#[derive(Debug)]
pub struct RealStage<C = Cluster> {
    cluster: C,
    holds: Vec<FaultId>,
    /// Requests that wait for their answers, each on a connection of its own.
    waiting: BTreeMap<u64, Waiting>,
    next_sent: u64,
    notes: Notes,
}

#[derive(Debug)]
struct Waiting {
    client: Client,
    correlation_id: i32,
    key: ApiKey,
    version: i16,
}

impl RealStage<Cluster> {
    /// Starts a cluster as the story needs it, with all brokers alive.
    ///
    /// # Errors
    /// When it does not come to life, or there is no `highwater` binary.
    pub fn start(needs: ClusterNeeds) -> Result<Self> {
        Self::start_with(needs, Cluster::builder())
    }

    /// As [`RealStage::start`], with a builder that knows its binary.
    ///
    /// # Errors
    /// When it does not come to life.
    pub fn start_with(needs: ClusterNeeds, builder: ClusterBuilder) -> Result<Self> {
        let mut builder = builder
            .brokers(needs.nodes)
            .patience(PATIENCE)
            .log_dirs(needs.log_dirs)
            .with_faults(true);
        for (key, value) in SHORT.iter().chain(needs.settings) {
            builder = builder.set(key, value);
        }
        Ok(Self::on(builder.start()?))
    }
}

impl<C: OnSockets> RealStage<C> {
    /// A stage on a cluster that lives.
    pub fn on(cluster: C) -> Self {
        let notes = Notes::default();
        Self { cluster, holds: Vec::new(), waiting: BTreeMap::new(), next_sent: 0, notes }
    }

    fn ours(&mut self) -> Result<&mut Cluster> {
        let kind = self.cluster.kind();
        self.cluster.ours_mut().with_context(|| format!("a {kind} cluster has no hands for that"))
    }

    /// The cluster behind it.
    pub fn cluster(&mut self) -> &mut C {
        &mut self.cluster
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
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        let batch = batch_of(&values)?;
        let answered = self.cluster.client(node)?.produce(topic, 0, acks, batch, timeout)?;
        Ok(Written { error_code: answered.error_code, base_offset: answered.base_offset })
    }

    fn read_committed(&mut self, topic: &str) -> Result<Vec<(i64, String)>> {
        let leader = self.cluster.partition(topic, 0)?.leader_id;
        ensure!(leader >= 0, "{topic} has no leader");
        let records = self.cluster.client(leader)?.read_all(topic, 0, 0)?;
        Ok(records
            .into_iter()
            .map(|record| (record.offset, text(&record.value.unwrap_or_default())))
            .collect())
    }
}

impl<C: OnSockets> Stage for RealStage<C> {
    fn name(&self) -> &'static str {
        self.cluster.kind()
    }

    fn can(&self, ability: Ability) -> bool {
        let is_ours = self.cluster.ours().is_some();
        is_ours && matches!(ability, Ability::Cut | Ability::Hold | Ability::FailDisk)
    }

    fn nodes(&self) -> Vec<Node> {
        self.cluster.nodes()
    }

    fn process(&self, node: Node) -> Process {
        match self.cluster.state(node) {
            NodeState::Runs => Process::Runs,
            NodeState::IsFrozen => Process::IsFrozen,
            NodeState::IsDown | NodeState::HasFailed => Process::IsDown,
        }
    }

    fn create_topic(
        &mut self,
        topic: &str,
        replicas: &[Node],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        self.cluster.create_topic(topic, &[replicas], configs)
    }

    fn produce_to(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        values: &[String],
        timeout: Duration,
    ) -> Result<Written> {
        self.notes.writes(self.notes.elapsed(), topic, acks, values);
        let written = self.write_batch(node, topic, acks, values, timeout);
        self.notes.has_written(self.notes.elapsed(), &written);
        written
    }

    fn read_all(&mut self, topic: &str) -> Result<Vec<(i64, String)>> {
        self.notes.reads(self.notes.elapsed(), topic);
        let read = self.read_committed(topic);
        self.notes.has_read(self.notes.elapsed(), &read);
        read
    }

    fn read_replica(&mut self, node: Node, topic: &str) -> Result<Vec<(i64, String)>> {
        let records = self.cluster.read_replica(node, topic, 0)?;
        Ok(records
            .into_iter()
            .map(|record| (record.offset, text(&record.value.unwrap_or_default())))
            .collect())
    }

    fn kill(&mut self, node: Node) -> Result<()> {
        self.cluster.kill(node)
    }

    fn start(&mut self, node: Node) -> Result<()> {
        self.cluster.start(node)
    }

    fn stop(&mut self, node: Node) -> Result<()> {
        self.cluster.stop(node)
    }

    fn freeze(&mut self, node: Node) -> Result<()> {
        self.cluster.freeze(node)
    }

    fn thaw(&mut self, node: Node) -> Result<()> {
        self.cluster.thaw(node)
    }

    fn cut(&mut self, node: Node, others: &[Node], between: Between) -> Result<()> {
        let plane = match between {
            Between::Brokers => Plane::Data,
            Between::Controllers => Plane::Control,
        };
        let ours = self.ours()?;
        others.iter().try_for_each(|other| ours.cut(node, *other, plane))
    }

    fn heal(&mut self) -> Result<()> {
        if let Some(ours) = self.cluster.ours_mut() {
            ours.faults()?.heal(|fault| fault.harm == Harm::Cut);
        }
        Ok(())
    }

    fn hold(&mut self, what: Message, from: Option<Node>, to: Option<Node>) -> Result<Hold> {
        let (message, plane) = match what {
            Message::Fetch => (Named::Request(ApiKey::Fetch), Plane::Data),
            Message::FetchAnswer => (Named::Answer(ApiKey::Fetch), Plane::Data),
            Message::AlterPartition => (Named::Request(ApiKey::AlterPartition), Plane::Control),
            Message::Metadata => (Named::MetadataStream, Plane::Control),
        };
        let held = self.ours()?.hold(message, Way { from, to, plane: Some(plane) })?;
        self.holds.push(held);
        Ok(Hold(self.holds.len() - 1))
    }

    fn held(&self, hold: Hold) -> usize {
        let ours = self.cluster.ours();
        let held = self.holds.get(hold.0).zip(ours).and_then(|(id, ours)| ours.held(*id).ok());
        held.map_or(0, |held| held as usize)
    }

    fn release(&mut self, hold: Hold, lost: bool) -> Result<()> {
        let id = *self.holds.get(hold.0).context("nothing is held under this name")?;
        let ours = self.ours()?;
        if lost { ours.lose(id) } else { ours.release(id) }
    }

    fn fail_directory(&mut self, node: Node, topic: &str) -> Result<()> {
        let ours = self.ours()?;
        let dir = ours.log_dir_of(node, topic, 0)?;
        ours.fail_disk(node, dir)?;
        // What is open stays open: the broker learns of it by its next checkpoint.
        ours.wait_for("the failed directory to be noticed", |cluster| {
            let seen = cluster.partition(topic, 0)?;
            let is_noticed = seen.offline_replicas.contains(&node);
            Ok(if is_noticed { Ok(()) } else { Err(format!("{seen:?}")) })
        })
    }

    fn mend_disk(&mut self, node: Node) -> Result<()> {
        self.ours()?.mend_disk(node)
    }

    fn broker_epoch(&self, _node: Node) -> Option<i64> {
        None
    }

    fn send(&mut self, node: Node, version: i16, request: RequestBody) -> Result<Sent> {
        let key = request.api_key();
        let mut client = self.cluster.client(node)?;
        self.next_sent += 1;
        self.notes.sends(self.notes.elapsed(), self.next_sent, &request);
        let correlation_id = client.send(version, request)?;
        self.waiting.insert(self.next_sent, Waiting { client, correlation_id, key, version });
        Ok(Sent(self.next_sent))
    }

    fn answer(&mut self, sent: Sent) -> Result<ResponseBody> {
        let mut waiting = self.waiting.remove(&sent.0).context("no such request waits")?;
        let Waiting { client, correlation_id, key, version } = &mut waiting;
        let answer = client
            .read_frame()
            .and_then(|frame| Ok(decode_response(frame, *correlation_id, *key, *version)?));
        self.notes.has_answer(self.notes.elapsed(), sent.0, &answer);
        answer
    }

    fn pass(&mut self, time: Duration) -> Result<()> {
        std::thread::sleep(time);
        Ok(())
    }

    fn pass_heartbeats(&mut self) -> Result<()> {
        std::thread::sleep(HEARTBEAT * 3 / 2);
        Ok(())
    }

    fn partition(&mut self, topic: &str) -> Result<PartitionView> {
        let seen = self.cluster.partition(topic, 0)?;
        let mut isr = seen.isr_nodes.clone();
        isr.sort_unstable();
        Ok(PartitionView { leader: seen.leader_id, leader_epoch: seen.leader_epoch, isr })
    }

    fn replica(&mut self, node: Node, topic: &str) -> Result<ReplicaView> {
        if self.process(node) != Process::Runs {
            bail!("b{node} does not answer");
        }
        let records = self.cluster.read_replica(node, topic, 0)?;
        // Only a leader answers this; metadata may be ahead of it.
        let earliest = self.cluster.client(node)?.list_offset(topic, 0, -2);
        let leads = earliest.is_ok_and(|(error_code, _)| error_code == 0);
        let log_end = records.last().map_or(0, |record| record.offset + 1);
        // Its first records may be deleted.
        let mut told = self.cluster.client(node)?.fetch(topic, 0, 0)?;
        if told.error_code != 0 {
            told = self.cluster.client(node)?.fetch(topic, 0, log_end)?;
        }
        let high_watermark = if told.error_code == 0 { told.high_watermark } else { -1 };
        Ok(ReplicaView { leads, high_watermark, log_end })
    }

    fn wait(&mut self, what: &str, reached: &mut dyn FnMut(&mut dyn Stage) -> bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !reached(self) {
            if Instant::now() > deadline {
                bail!("{what} did not come within {PATIENCE:?}");
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn events(&mut self) -> Vec<StageEvent> {
        Vec::new()
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }
}

fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value).into_owned()
}
