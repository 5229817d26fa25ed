//! Long polling as the request log tells it (`highwater.request.log.enable`): a fetch with enough is answered
//! without waiting, one with too little waits as long as it said and gets what there is, one at the end of the
//! log is woken by a record. Then the session that goes along: opened, asked for news, closed. F02, S01, S04.
//!
//! Times are judged by what cannot be otherwise: who waits was away at least that long, who does not wait
//! was away not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use protocol::messages::FetchRequest;
use serde_json::Value;
use tempfile::TempDir;
use testkit::client::Client;
use testkit::metrics::MetricsPage;
use testkit::real::{Cluster, free_ports};

use super::{FOREVER_MS, IDS, Named, PATIENCE, fetch, one_node, part, produce, rows};
use crate::alone;

const TOPIC: &str = "polled";
const WAIT_MS: i32 = 400;
/// Long enough for all readers of a test to wait at once.
const LONG_WAIT_MS: i32 = 3000;
const READERS: usize = 40;
const TOO_MUCH: i32 = 1 << 20;

/// The fetches that the log tells of so far, oldest first.
fn fetches(log: &Path) -> Vec<Value> {
    let text = fs::read_to_string(log).unwrap_or_default();
    // The last line may be half written.
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["requestHeader"]["requestApiKeyName"] == "FETCH").collect()
}

/// Waits until so many fetches are told of, and gives the last one.
fn line(cluster: &mut Cluster, log: &Path, number: usize) -> Value {
    let found = cluster.wait_for("the line of a fetch", |_| {
        let mut fetches = fetches(log);
        Ok(if fetches.len() == number {
            Ok(fetches.remove(number - 1))
        } else {
            Err(format!("{} lines", fetches.len()))
        })
    });
    found.expect("a line")
}

fn number(line: &Value, field: &str) -> f64 {
    line[field].as_f64().unwrap_or_else(|| panic!("no {field} in {line}"))
}

/// Sizes and times that hold for every line.
fn check(line: &Value, request: (i32, i32), response_session: i32, recorded: &[usize]) {
    assert_eq!(line["requestHeader"]["requestApiVersion"], IDS);
    assert_eq!(line["requestHeader"]["clientId"], "testkit");
    assert_eq!(line["request"]["sessionId"], request.0, "{line}");
    assert_eq!(line["request"]["sessionEpoch"], request.1, "{line}");
    assert_eq!(line["request"]["replicaId"], -1, "{line}");
    assert_eq!(line["response"]["errorCode"], 0, "{line}");
    assert_eq!(line["response"]["sessionId"], response_session, "{line}");
    let topics = line["response"]["responses"].as_array().expect("topics");
    let partitions =
        topics.iter().flat_map(|topic| topic["partitions"].as_array().expect("partitions"));
    let sizes: Vec<_> = partitions.map(|told| told["recordsSizeInBytes"].as_u64()).collect();
    let wanted: Vec<_> = recorded.iter().map(|size| Some(*size as u64)).collect();
    assert_eq!(sizes, wanted, "{line}");
    assert!(number(line, "responseBytes") >= recorded.iter().sum::<usize>() as f64, "{line}");
    assert!(number(line, "requestBytes") > 0.0);
    assert_eq!(number(line, "throttleTimeMs"), 0.0);
    let parts =
        ["requestQueueTimeMs", "localTimeMs", "remoteTimeMs", "responseQueueTimeMs", "sendTimeMs"];
    let sum: f64 = parts.iter().map(|part| number(line, part)).sum();
    let total = number(line, "totalTimeMs");
    assert!((sum - total).abs() < 0.1, "the parts of {total} ms are {sum} ms: {line}");
}

/// Waited in the purgatory until its time was up; the time counts from when the request was taken up.
fn check_waited(line: &Value, wait_ms: i32) {
    let remote = number(line, "remoteTimeMs");
    let both = number(line, "localTimeMs") + remote;
    assert!(remote > 0.0 && both >= f64::from(wait_ms), "{line}");
}

/// One connection with its session.
struct Polling {
    client: Client,
    session_id: i32,
    session_epoch: i32,
}

impl Polling {
    fn poll(
        &mut self,
        max_wait_ms: i32,
        min_bytes: i32,
        topics: Option<(&Named, i64)>,
    ) -> Vec<usize> {
        let named = topics.map(|(topic, offset)| topic.with(vec![part(0, offset)]));
        let request = FetchRequest {
            max_wait_ms,
            min_bytes,
            session_id: self.session_id,
            session_epoch: self.session_epoch,
            ..fetch(named.into_iter().collect())
        };
        let response = self.client.call(IDS, request).expect("an answer");
        assert_eq!(response.error_code, 0);
        self.session_id = response.session_id;
        self.session_epoch += 1;
        rows(&response).into_iter().map(|row| row.2).collect()
    }
}

/// A node that tells what it does, and ten records.
struct Told {
    cluster: Cluster,
    writer: Client,
    topic: Named,
    log: PathBuf,
    metrics: String,
    _folder: TempDir,
}

impl Told {
    fn start() -> Told {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("requests");
        let metrics = format!("127.0.0.1:{}", free_ports(1).expect("a port")[0]);
        let settings = [
            ("highwater.request.log.enable", "true"),
            ("highwater.request.log.file", log.to_str().expect("a plain path")),
            ("highwater.metrics.listener", &metrics),
        ];
        let (cluster, mut writer, topic) = one_node(TOPIC, 1, &settings);
        for number in 0..10 {
            produce(&mut writer, TOPIC, 0, &[format!("record {number}").as_bytes()]);
        }
        Told { cluster, writer, topic, log, metrics, _folder: folder }
    }

    /// A consumer that has no session yet.
    fn polling(&self) -> Polling {
        let client = self.cluster.client(1).expect("a client");
        Polling { client, session_id: 0, session_epoch: 0 }
    }

    fn line(&mut self, number: usize) -> Value {
        line(&mut self.cluster, &self.log, number)
    }

    fn gauge(&self, name: &str) -> f64 {
        let page = MetricsPage::scrape(&self.metrics).expect("a page");
        let name = format!("kafka_server_delayedoperationpurgatory_{name}");
        page.sum(&name, &[("delayedOperation", "Fetch")])
    }

    /// Waits until so many fetches wait.
    fn wait_until_waiting(&mut self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while self.gauge("numdelayedoperations") != count as f64 {
            assert!(Instant::now() < deadline, "{} wait", self.gauge("numdelayedoperations"));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Example 1 of the article: a) and b).
#[test]
fn f02_a_fetch_with_too_little_waits_in_the_purgatory_and_one_with_enough_does_not() {
    let _alone = alone();
    let mut told = Told::start();
    let topic = told.topic.clone();
    // a) There is enough: the session is opened with all records, and nobody waits.
    let mut polling = told.polling();
    let all = polling.poll(FOREVER_MS, 1, Some((&topic, 0)));
    assert!(all[0] > 0);
    let a = told.line(1);
    check(&a, (0, 0), polling.session_id, &all);
    assert_eq!(number(&a, "remoteTimeMs"), 0.0, "{a}");
    assert_eq!(a["response"]["responses"][0]["partitions"][0]["highWatermark"], 10);

    // b) There is less than wanted: it waits, and gets what there is.
    let mut polling = told.polling();
    assert_eq!(polling.poll(WAIT_MS, TOO_MUCH, Some((&topic, 0))), all);
    let id = polling.session_id;
    let b = told.line(2);
    check(&b, (0, 0), id, &all);
    check_waited(&b, WAIT_MS);
    assert_eq!(b["request"]["minBytes"], TOO_MUCH);
    // At the end nothing is new: the same wait, and an answer without partitions.
    assert!(polling.poll(WAIT_MS, TOO_MUCH, Some((&topic, 10))).is_empty());
    let at_the_end = told.line(3);
    check(&at_the_end, (id, 1), id, &[]);
    check_waited(&at_the_end, WAIT_MS);
    assert_eq!(at_the_end["request"]["topics"][0]["partitions"][0]["fetchOffset"], 10);
    // Closing asks for nothing, so it waits for nothing, whatever it says.
    polling.session_epoch = -1;
    assert!(polling.poll(FOREVER_MS, TOO_MUCH, None).is_empty());
    assert_eq!(polling.session_id, 0);
    let closed = told.line(4);
    check(&closed, (id, -1), 0, &[]);
    assert_eq!(number(&closed, "remoteTimeMs"), 0.0, "{closed}");
}

/// Example 1 of the article: c).
#[test]
fn f02_a_fetch_at_the_end_of_the_log_is_woken_by_the_record_that_comes() {
    let _alone = alone();
    let mut told = Told::start();
    let topic = told.topic.clone();
    let mut polling = told.polling();
    let waited = std::thread::spawn(move || {
        let got = polling.poll(FOREVER_MS, 1, Some((&topic, 10)));
        (polling, got, topic)
    });
    told.wait_until_waiting(1);
    produce(&mut told.writer, TOPIC, 0, &[b"the eleventh"]);
    let (mut polling, got, topic) = waited.join().expect("no panic");
    let id = polling.session_id;
    let c = told.line(1);
    check(&c, (0, 0), id, &got);
    let remote = number(&c, "remoteTimeMs");
    assert!(got[0] > 0 && remote > 0.0 && remote < f64::from(FOREVER_MS), "{c}");
    assert_eq!(c["response"]["responses"][0]["partitions"][0]["highWatermark"], 11);
    assert!(polling.poll(WAIT_MS, 1, Some((&topic, 11))).is_empty());
    let idle = told.line(2);
    check(&idle, (id, 1), id, &[]);
    check_waited(&idle, WAIT_MS);
    // The answer to a poll without news is some ten bytes, however many partitions the session has.
    assert!(number(&idle, "responseBytes") < number(&c, "responseBytes"), "{idle}");
}

/// Example 2 of the article: what waits is counted, and is no thread. There are many more fetches than threads.
#[test]
fn f02_fetches_that_wait_are_counted_in_the_purgatory_and_hold_no_thread() {
    let _alone = alone();
    let mut told = Told::start();
    let threads = threads_of(&told.cluster);
    let waiting = FetchRequest {
        max_wait_ms: LONG_WAIT_MS,
        min_bytes: TOO_MUCH,
        session_epoch: 0,
        ..fetch(vec![told.topic.with(vec![part(0, 10)])])
    };
    let mut readers: Vec<Client> = (0..READERS)
        .map(|_| {
            let mut client = told.cluster.client(1).expect("a client");
            client.send(IDS, waiting.clone().into()).expect("sent");
            client
        })
        .collect();
    told.wait_until_waiting(READERS);
    assert!(told.gauge("purgatorysize") >= READERS as f64, "watched under their partition");
    let now = threads_of(&told.cluster);
    assert!(now < threads + READERS / 2, "{now} threads, {threads} before anybody waited");
    // Others are served meanwhile. Their record is too little to wake anybody.
    assert_eq!(produce(&mut told.writer, TOPIC, 0, &[b"the eleventh"]), 10);
    told.wait_until_waiting(READERS);
    for reader in &mut readers {
        reader.read_frame().expect("an answer after the wait");
    }
    told.wait_until_waiting(0);
    told.line(READERS);
    for line in fetches(&told.log) {
        let partition = &line["response"]["responses"][0]["partitions"][0];
        let id = line["response"]["sessionId"].as_i64().expect("a session") as i32;
        let size = partition["recordsSizeInBytes"].as_u64().expect("a size") as usize;
        check(&line, (0, 0), id, &[size]);
        assert!(size > 0 && size < TOO_MUCH as usize, "what there is at the end: {line}");
        assert_eq!(partition["highWatermark"], 11);
        check_waited(&line, LONG_WAIT_MS);
    }
}

fn threads_of(cluster: &Cluster) -> usize {
    let pid = cluster.pid(1).expect("a process");
    fs::read_dir(format!("/proc/{pid}/task")).expect("its threads").count()
}
