//! One look at a running cluster after another: which questions are asked, and of whom.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use protocol::messages::describe_configs_request::DescribeConfigsResource;
use protocol::messages::fetch_response::PartitionData;
use protocol::messages::metadata_response::{MetadataResponsePartition, MetadataResponseTopic};
use protocol::messages::{DescribeConfigsRequest, MetadataResponse};
use protocol::records::Batches;

use super::memory::{OnlineChecker, Promises, SeenBatch, SeenRead, WatchedPartition};
use crate::client::{Client, fetch_request, list_offsets_request};
use crate::invariants::Violation;

const TIMEOUT: Duration = Duration::from_secs(5);
/// The most bytes that one look reads of one replica.
const READ_BYTES: i32 = 1 << 20;
const LATEST: i64 = -1;
const LIST_OFFSETS_VERSION: i16 = 7;
/// The first that names topics by id, so that a topic made anew is not taken for the old one.
const FETCH_VERSION: i16 = 13;
const TOPIC_RESOURCE: i8 = 2;

/// What one look found.
#[derive(Clone, Debug, Default)]
pub struct LookReport {
    /// Invariants that were seen broken.
    pub violations: Vec<Violation>,
    /// Brokers that answered.
    pub brokers: usize,
    /// Brokers that did not, with the reason.
    pub silent: BTreeMap<i32, String>,
    /// Partitions that were looked at.
    pub partitions: usize,
    /// Batches that were compared so far.
    pub batches_compared: u64,
}

/// A cluster that is watched.
#[derive(Debug)]
pub struct Watcher {
    bootstrap: Vec<String>,
    topics: BTreeSet<String>,
    addresses: BTreeMap<i32, String>,
    clients: BTreeMap<i32, Client>,
    promises: BTreeMap<WatchedPartition, Promises>,
    /// Where the next look reads on, by partition and broker.
    cursors: BTreeMap<(WatchedPartition, i32), i64>,
    checker: OnlineChecker,
}

impl Watcher {
    /// Watches the cluster behind `bootstrap` (`host:port,...`): these topics, or all but internal ones.
    pub fn new(bootstrap: &str, topics: impl IntoIterator<Item = String>) -> Self {
        let addresses = bootstrap.split(',').map(str::trim).filter(|address| !address.is_empty());
        Self {
            bootstrap: addresses.map(str::to_owned).collect(),
            topics: topics.into_iter().collect(),
            addresses: BTreeMap::new(),
            clients: BTreeMap::new(),
            promises: BTreeMap::new(),
            cursors: BTreeMap::new(),
            checker: OnlineChecker::default(),
        }
    }

    /// Looks at everything once. A broker that does not answer is told, and no violation.
    ///
    /// # Errors
    /// No broker answers, or a topic to be watched is not there.
    pub fn look(&mut self) -> Result<LookReport> {
        let mut report = LookReport::default();
        let views = self.views(&mut report)?;
        let wanted = self.wanted(&views)?;
        self.checker.keep_only(|partition| wanted.contains_key(partition));
        self.cursors.retain(|(partition, _), _| wanted.contains_key(partition));
        for (broker, view) in &views {
            for (partition, told) in partitions_of(view) {
                if wanted.contains_key(&partition) {
                    let (leader, epoch) = (told.leader_id, told.leader_epoch);
                    let found = &mut report.violations;
                    if self.checker.on_leader(&partition, *broker, leader, epoch, found) {
                        self.read_again(&partition);
                    }
                }
            }
        }
        for (partition, told) in &wanted {
            let promises = self.promises_of(partition, told.leader_id);
            self.look_at_latest(partition, told, promises, &mut report);
            for replica in &told.replica_nodes {
                if views.contains_key(replica) {
                    self.look_at_records(partition, *replica, promises, &mut report);
                }
            }
        }
        report.brokers = views.len();
        report.partitions = wanted.len();
        report.batches_compared = self.checker.batches_compared();
        Ok(report)
    }

    /// Reads every replica from its begin again with the next look.
    pub fn forget_places(&mut self) {
        self.cursors.clear();
    }

    /// The cluster as each broker that answers sees it.
    fn views(&mut self, report: &mut LookReport) -> Result<BTreeMap<i32, MetadataResponse>> {
        let mut last = None;
        let first = self.bootstrap.iter().find_map(|address| {
            let asked = Client::connect(address, TIMEOUT).and_then(|mut client| client.metadata());
            asked.map_err(|error| last = Some(error)).ok()
        });
        let first = match (first, last) {
            (Some(first), _) => first,
            (None, Some(error)) => return Err(error.context("no bootstrap broker answers")),
            (None, None) => anyhow::bail!("no bootstrap address is given"),
        };
        self.addresses =
            first.brokers.iter().map(|b| (b.node_id, format!("{}:{}", b.host, b.port))).collect();
        let mut views = BTreeMap::new();
        for broker in self.addresses.keys().copied().collect::<Vec<_>>() {
            match self.ask(broker, Client::metadata) {
                Ok(view) => drop(views.insert(broker, view)),
                Err(error) => drop(report.silent.insert(broker, format!("{error:#}"))),
            }
        }
        ensure!(!views.is_empty(), "no broker answers: {:?}", report.silent);
        Ok(views)
    }

    /// Asks a broker; after a failure it is connected to anew.
    fn ask<T>(&mut self, broker: i32, ask: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        let mut client = match self.clients.remove(&broker) {
            Some(client) => client,
            None => {
                let address = self.addresses.get(&broker).context("a broker without an address")?;
                Client::connect(address, TIMEOUT)?
            }
        };
        let answer = ask(&mut client)?;
        self.clients.insert(broker, client);
        Ok(answer)
    }

    /// The partitions to look at, as the broker with the newest leader epoch of each sees them.
    fn wanted(
        &self,
        views: &BTreeMap<i32, MetadataResponse>,
    ) -> Result<BTreeMap<WatchedPartition, MetadataResponsePartition>> {
        let mut wanted: BTreeMap<WatchedPartition, MetadataResponsePartition> = BTreeMap::new();
        for (partition, told) in views.values().flat_map(partitions_of) {
            let is_named = self.topics.contains(&partition.topic);
            let is_internal = partition.topic.starts_with("__");
            if !(is_named || self.topics.is_empty() && !is_internal) {
                continue;
            }
            let newest = wanted.entry(partition).or_insert_with(|| told.clone());
            if told.leader_epoch > newest.leader_epoch {
                *newest = told.clone();
            }
        }
        for topic in &self.topics {
            let is_there = wanted.keys().any(|partition| partition.topic == *topic);
            ensure!(is_there, "there is no topic {topic}");
        }
        Ok(wanted)
    }

    /// After an election everything that is remembered is read once more.
    fn read_again(&mut self, partition: &WatchedPartition) {
        if let Some(oldest) = self.checker.oldest(partition) {
            for ((read, _), cursor) in &mut self.cursors {
                if read == partition {
                    *cursor = (*cursor).min(oldest);
                }
            }
        }
    }

    /// What the topic promises; asked until somebody says it, and nothing is claimed until then.
    fn promises_of(&mut self, partition: &WatchedPartition, leader: i32) -> Promises {
        if let Some(known) = self.promises.get(partition) {
            return *known;
        }
        let topic = partition.topic.clone();
        match self.ask(leader, |client| promises(client, &topic)) {
            Ok(told) => {
                self.promises.insert(partition.clone(), told);
                told
            }
            Err(_) => Promises { is_compacted: true, unclean_elections: true },
        }
    }

    fn look_at_latest(
        &mut self,
        partition: &WatchedPartition,
        told: &MetadataResponsePartition,
        promises: Promises,
        report: &mut LookReport,
    ) {
        let (leader, epoch) = (told.leader_id, told.leader_epoch);
        let asked = self.ask(leader, |client| latest(client, partition, epoch));
        // Who does not lead in this epoch any more, or cannot tell yet, has nothing to say.
        if let Ok(Some(offset)) = asked {
            let mut found = Vec::new();
            self.checker.on_latest(partition, promises, (offset, epoch, leader), &mut found);
            // The topic may have been made anew in between, and this request knows it by name only.
            let is_same = |client: &mut Client| client.topic_id(&partition.topic);
            if !found.is_empty() && self.ask(leader, is_same).ok() == Some(partition.topic_id) {
                report.violations.append(&mut found);
            }
        }
    }

    fn look_at_records(
        &mut self,
        partition: &WatchedPartition,
        replica: i32,
        promises: Promises,
        report: &mut LookReport,
    ) {
        let key = (partition.clone(), replica);
        let cursor = self.cursors.get(&key).copied().unwrap_or(0);
        let Ok(data) = self.ask(replica, |client| fetch(client, partition, cursor)) else {
            return;
        };
        if data.error_code != 0 {
            // Out of range: behind retention, or beyond what this replica has; begin where it begins.
            let start = self.ask(replica, |client| fetch(client, partition, 0));
            let start = start.map_or(0, |data| data.log_start_offset);
            self.cursors.insert(key, start.max(0));
            return;
        }
        let high_watermark = data.high_watermark;
        let log_start = data.log_start_offset;
        let bytes = data.records.map_or(Ok(Bytes::new()), |records| records.read());
        let batches = bytes.map_err(anyhow::Error::from).and_then(seen);
        match batches {
            Ok(mut batches) => {
                batches.retain(|batch| batch.next <= high_watermark);
                if let Some(last) = batches.last() {
                    self.cursors.insert(key, last.next);
                }
                let read = SeenRead { node: replica, log_start, batches: &batches };
                self.checker.on_read(partition, promises, &read, &mut report.violations);
            }
            Err(error) => report.violations.push(Violation {
                invariant: "I1",
                what: format!(
                    "{}-{}: broker {replica} gives broken batches at {cursor}: {error:#}",
                    partition.topic, partition.index
                ),
            }),
        }
    }
}

fn partitions_of(
    view: &MetadataResponse,
) -> impl Iterator<Item = (WatchedPartition, &MetadataResponsePartition)> {
    let topics = view.topics.iter().filter(|topic| topic.error_code == 0);
    topics.flat_map(|topic: &MetadataResponseTopic| {
        topic.partitions.iter().map(move |told| {
            let partition = WatchedPartition {
                topic_id: topic.topic_id,
                topic: topic.name.clone().unwrap_or_default(),
                index: told.partition_index,
            };
            (partition, told)
        })
    })
}

fn promises(client: &mut Client, topic: &str) -> Result<Promises> {
    let keys = ["cleanup.policy", "unclean.leader.election.enable"];
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: topic.into(),
            configuration_keys: Some(keys.map(str::to_owned).to_vec()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let response = client.call(4, request)?;
    let result = response.results.into_iter().next().context("no answer about the topic")?;
    ensure!(result.error_code == 0, "error {}", result.error_code);
    let value = |key: &str| {
        let config = result.configs.iter().find(|config| config.name == key);
        config.and_then(|config| config.value.clone()).unwrap_or_default()
    };
    Ok(Promises {
        is_compacted: value(keys[0]).contains("compact"),
        unclean_elections: value(keys[1]) == "true",
    })
}

/// The latest offset by the leader of exactly this epoch.
fn latest(client: &mut Client, partition: &WatchedPartition, epoch: i32) -> Result<Option<i64>> {
    let request = list_offsets_request(&partition.topic, partition.index, epoch, LATEST);
    let response = client.call(LIST_OFFSETS_VERSION, request)?;
    let topic = response.topics.first().context("no topic in the answer")?;
    let told = topic.partitions.first().context("no partition in the answer")?;
    Ok((told.error_code == 0).then_some(told.offset))
}

fn fetch(client: &mut Client, partition: &WatchedPartition, offset: i64) -> Result<PartitionData> {
    let mut request = fetch_request(&partition.topic, partition.index, offset);
    request.max_bytes = READ_BYTES;
    request.topics[0].topic_id = partition.topic_id;
    client.fetch_with(FETCH_VERSION, request, &partition.topic)
}

/// The whole batches of an answer, whose last one may be cut off.
fn seen(bytes: Bytes) -> Result<Vec<SeenBatch>> {
    let mut batches = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch?;
        let view = batch.view();
        view.check_crc()?;
        let header = view.header();
        batches.push(SeenBatch {
            base: header.base_offset().get(),
            next: header.next_offset().get(),
            epoch: header.partition_leader_epoch().get(),
            crc: header.crc(),
        });
    }
    Ok(batches)
}
