//! The figures, each measured the same way whatever the system.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use protocol::messages::FetchRequest;
use protocol::records::{BatchBuilder, BatchViews};
use protocol::{Offset, RequestBody, ResponseBody};
use testkit::client::{Client, batch_of, fetch_request, produce_request};

use crate::load::{self, Lane, OnAnswer, Outcome, quantile};
use crate::machine;
use crate::system::{System, leaders_seen_by, retry};

/// Versions that both systems serve.
const PRODUCE_VERSION: i16 = 9;
const FETCH_VERSION: i16 = 12;
/// A produce request's own timeout.
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(10);
/// What is not counted at the beginning of a load, at most.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long nothing is done before and while idle CPU is measured.
const SETTLE: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(12);
/// Partitions and connections of the load with large batches.
const LARGE_PARTITIONS: i32 = 6;
/// Partitions and connections of the load with small batches.
const SMALL_PARTITIONS: i32 = 12;
const SMALL_CONNECTIONS: usize = 24;
/// Records whose way to a consumer is timed, and the pause between them.
const TAIL_SAMPLES: usize = 1000;
const TAIL_PAUSE: Duration = Duration::from_millis(3);
/// The longest gap worth waiting for.
const FAILOVER_PATIENCE: Duration = Duration::from_secs(60);

pub type Rows = Vec<(String, String)>;

/// From the start of the processes to a record acknowledged by three replicas.
pub fn first_record(system: &mut System) -> Result<String> {
    let leaders = system.create_topic("first", 1)?;
    let deadline = system.started() + Duration::from_secs(120);
    let batch = batch_of(&[b"first"])?;
    retry(deadline, "the first record", || {
        let mut client = system.client(leaders[0])?;
        let answer = client.produce("first", 0, -1, batch.clone(), PRODUCE_TIMEOUT)?;
        ensure!(answer.error_code == 0, "error {}", answer.error_code);
        Ok(())
    })?;
    let took = system.started().elapsed();
    system.learn_pids()?;
    Ok(milliseconds(took))
}

/// Memory and CPU of nodes that nobody uses.
pub fn idle(system: &System) -> Result<Rows> {
    thread::sleep(SETTLE);
    let memory = memory(system)?;
    let pids = system.pids()?;
    let cpu =
        || -> Result<Vec<Duration>> { pids.iter().map(|pid| machine::cpu_time(*pid)).collect() };
    let (before, begun) = (cpu()?, Instant::now());
    thread::sleep(IDLE);
    let (after, took) = (cpu()?, begun.elapsed());
    let shares: Vec<String> = before
        .iter()
        .zip(&after)
        .map(|(before, after)| {
            let used = after.saturating_sub(*before).as_secs_f64();
            format!("{:.2}", used / took.as_secs_f64() * 100.0)
        })
        .collect();
    Ok(vec![
        ("memory of a node, idle".into(), memory),
        ("CPU of a node, idle".into(), format!("{} % of a core", shares.join(" / "))),
    ])
}

/// Resident memory of each node.
pub fn memory(system: &System) -> Result<String> {
    let mut all = Vec::new();
    for pid in system.pids()? {
        all.push(format!("{:.1}", machine::resident_bytes(pid)? as f64 / 1024.0 / 1024.0));
    }
    Ok(format!("{} MB", all.join(" / ")))
}

/// acks=all with batches of 64 KB: one connection for each partition, five requests in flight on each.
pub fn produce(system: &System, length: Duration) -> Result<Rows> {
    let mut outcome = produce_load(
        system,
        &Load {
            topic: "large",
            partitions: LARGE_PARTITIONS,
            connections: 6,
            depth: 5,
            values: 63,
            value_bytes: 1024,
        },
        length,
    )?;
    let (p50, p99) = (outcome.quantile(0.5), outcome.quantile(0.99));
    Ok(vec![
        (
            "produce acks=all, 64 KB batches".into(),
            format!("{:.1} MB/s", outcome.megabytes_per_second()),
        ),
        ("  p50 / p99".into(), both(p50, p99)),
    ])
}

/// acks=all with batches of 1 KB, with one request in flight on each connection and with five.
pub fn requests(system: &System, length: Duration) -> Result<Rows> {
    let mut rows = Rows::new();
    for depth in [1, 5] {
        let topic = format!("small-{depth}");
        let load = Load {
            topic: &topic,
            partitions: SMALL_PARTITIONS,
            connections: SMALL_CONNECTIONS,
            depth,
            values: 1,
            value_bytes: 950,
        };
        let mut outcome = produce_load(system, &load, length)?;
        let (p50, p99) = (outcome.quantile(0.5), outcome.quantile(0.99));
        let what =
            format!("produce acks=all, 1 KB batches, {SMALL_CONNECTIONS} x {depth} in flight");
        rows.push((what, format!("{:.0} requests/s", outcome.per_second())));
        rows.push((format!("  p50 / p99, x {depth}"), both(p50, p99)));
    }
    Ok(rows)
}

struct Load<'a> {
    topic: &'a str,
    partitions: i32,
    connections: usize,
    depth: usize,
    values: usize,
    value_bytes: usize,
}

fn produce_load(system: &System, load: &Load<'_>, length: Duration) -> Result<Outcome> {
    let leaders = system.create_topic(load.topic, load.partitions)?;
    let batch = batch(load.values, load.value_bytes)?;
    // A leader may know of its part a little later than metadata tells of it.
    for (partition, leader) in (0..).zip(&leaders) {
        let mut client = system.client(*leader)?;
        retry(Instant::now() + Duration::from_secs(30), "a leader to lead", || {
            let answer =
                client.produce(load.topic, partition, -1, batch.clone(), PRODUCE_TIMEOUT)?;
            ensure!(answer.error_code == 0, "error {}", answer.error_code);
            Ok(())
        })?;
    }
    let mut lanes = Vec::new();
    for connection in 0..load.connections {
        let partition = connection % leaders.len();
        let request =
            produce_request(load.topic, partition as i32, -1, batch.clone(), PRODUCE_TIMEOUT);
        let bytes = batch.len();
        let on_answer: OnAnswer = Box::new(move |answer, _| {
            check_produced(&answer)?;
            Ok(bytes)
        });
        let address = system.address(leaders[partition]);
        let body = RequestBody::from(request);
        lanes.push(Lane::connect(&address, PRODUCE_VERSION, &body, load.depth, on_answer)?);
    }
    load::run(lanes, WARM_UP.min(length), length)
        .with_context(|| format!("producing to {}", load.topic))
}

/// Values that do not compress well, as a batch.
fn batch(values: usize, value_bytes: usize) -> Result<Bytes> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let mut builder = BatchBuilder::new(Offset::ZERO);
    let mut state: u64 = 88_172_645_463_325_252;
    for _ in 0..values {
        let value: Vec<u8> = (0..value_bytes)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state as u8
            })
            .collect();
        builder.append(now.as_millis() as i64, None, Some(&value), [])?;
    }
    Ok(builder.build()?)
}

fn check_produced(answer: &ResponseBody) -> Result<()> {
    let ResponseBody::Produce(response) = answer else { bail!("not an answer to produce") };
    for topic in &response.responses {
        for partition in &topic.partition_responses {
            ensure!(partition.error_code == 0, "produce failed with {}", partition.error_code);
        }
    }
    Ok(())
}

/// What [`produce`] wrote, read from the beginning again and again: one connection for each partition,
/// a megabyte at a time.
pub fn fetch(system: &System, length: Duration) -> Result<String> {
    let leaders = leaders_seen_by(&mut system.client(1)?, "large", LARGE_PARTITIONS)?;
    let mut lanes = Vec::new();
    for (partition, leader) in leaders.iter().enumerate() {
        let ask = move |offset| -> Result<(Vec<u8>, RequestBody)> {
            let body = RequestBody::from(FetchRequest {
                max_bytes: 50 << 20,
                ..with_partition_limit(fetch_request("large", partition as i32, offset), 1 << 20)
            });
            Ok((load::frame(FETCH_VERSION, &body)?, body))
        };
        let on_answer: OnAnswer = Box::new(move |answer, request| {
            let (bytes, next) = fetched(answer)?;
            *request = ask(next.unwrap_or(0))?.0;
            Ok(bytes)
        });
        let address = system.address(*leader);
        lanes.push(Lane::connect(&address, FETCH_VERSION, &ask(0)?.1, 1, on_answer)?);
    }
    let outcome =
        load::run(lanes, Duration::from_secs(2).min(length), length).context("fetching")?;
    Ok(format!("{:.0} MB/s", outcome.megabytes_per_second()))
}

fn with_partition_limit(mut request: FetchRequest, bytes: i32) -> FetchRequest {
    for topic in &mut request.topics {
        for partition in &mut topic.partitions {
            partition.partition_max_bytes = bytes;
        }
    }
    request
}

/// The bytes of records in an answer, and the offset after the last whole batch, if there is one.
fn fetched(answer: ResponseBody) -> Result<(usize, Option<i64>)> {
    let ResponseBody::Fetch(response) = answer else { bail!("not an answer to fetch") };
    ensure!(response.error_code == 0, "fetch failed with {}", response.error_code);
    let topic = response.responses.into_iter().next().context("no topic in the answer")?;
    let data = topic.partitions.into_iter().next().context("no partition in the answer")?;
    ensure!(data.error_code == 0, "fetch failed with {}", data.error_code);
    let records = data.records.map_or(Ok(Bytes::new()), |records| records.read())?;
    let mut next = None;
    for view in BatchViews::new(&records) {
        next = Some(view?.header().last_offset().get() + 1);
    }
    Ok((records.len(), next))
}

/// From sending a record (acks=all) to its arrival at a consumer that waits for it.
pub fn tail(system: &System) -> Result<Rows> {
    let leaders = system.create_topic("tail", 1)?;
    thread::sleep(Duration::from_secs(1));
    let arrivals = {
        let mut client = system.client(leaders[0])?;
        thread::spawn(move || consume_tail(&mut client))
    };
    let mut producer = system.client(leaders[0])?;
    let mut sent = Vec::with_capacity(TAIL_SAMPLES);
    for _ in 0..TAIL_SAMPLES {
        let batch = batch_of(&[&[7; 100]])?;
        sent.push(Instant::now());
        let answer = producer.produce("tail", 0, -1, batch, PRODUCE_TIMEOUT)?;
        ensure!(answer.error_code == 0, "produce failed with {}", answer.error_code);
        thread::sleep(TAIL_PAUSE);
    }
    let Ok(arrived) = arrivals.join() else { bail!("the consumer panicked") };
    let mut latencies: Vec<Duration> = arrived?
        .iter()
        .zip(&sent)
        .map(|(arrived, sent)| arrived.saturating_duration_since(*sent))
        .skip(TAIL_SAMPLES / 10)
        .collect();
    let (p50, p99) = (quantile(&mut latencies, 0.5), quantile(&mut latencies, 0.99));
    Ok(vec![("tail latency, p50 / p99".into(), both(p50, p99))])
}

/// When each record arrived, by offset.
fn consume_tail(client: &mut Client) -> Result<Vec<Instant>> {
    let mut arrived = Vec::with_capacity(TAIL_SAMPLES);
    let deadline = Instant::now() + Duration::from_secs(60);
    while arrived.len() < TAIL_SAMPLES {
        ensure!(Instant::now() < deadline, "only {} records arrived", arrived.len());
        let request =
            FetchRequest { max_wait_ms: 500, ..fetch_request("tail", 0, arrived.len() as i64) };
        let answer = client.call(FETCH_VERSION, request)?;
        let now = Instant::now();
        if let (_, Some(next)) = fetched(answer.into())? {
            arrived.resize(usize::try_from(next)?, now);
        }
    }
    Ok(arrived)
}

/// From SIGKILL of a leader, which is not the controller's, to the next record acknowledged by all of
/// the ISR: as a producer sees it that tries again and again, each time where metadata points.
pub fn failover(system: &mut System) -> Result<String> {
    let leaders = system.create_topic("failover", 3)?;
    thread::sleep(Duration::from_secs(1));
    let controller = system.controller()?;
    let partition = leaders
        .iter()
        .position(|leader| *leader != controller)
        .context("the controller's node leads everything")?;
    let victim = leaders[partition];
    let other = (1..=crate::system::NODES).find(|node| *node != victim).unwrap_or(1);
    let batch = batch_of(&[b"failover"])?;
    let mut client = system.client(victim)?;
    for _ in 0..100 {
        let answer =
            client.produce("failover", partition as i32, -1, batch.clone(), PRODUCE_TIMEOUT)?;
        ensure!(answer.error_code == 0, "produce failed with {}", answer.error_code);
    }
    system.kill(victim)?;
    let killed = Instant::now();
    let gap = retry(killed + FAILOVER_PATIENCE, "a new leader", || {
        let leaders = leaders_seen_by(&mut system.client(other)?, "failover", 3)?;
        ensure!(leaders[partition] != victim, "still led by the dead node");
        let mut client = system.client(leaders[partition])?;
        let answer =
            client.produce("failover", partition as i32, -1, batch.clone(), PRODUCE_TIMEOUT)?;
        ensure!(answer.error_code == 0, "produce failed with {}", answer.error_code);
        Ok(killed.elapsed())
    })?;
    Ok(milliseconds(gap))
}

fn milliseconds(value: Duration) -> String {
    format!("{:.0} ms", value.as_secs_f64() * 1e3)
}

pub fn both(p50: Duration, p99: Duration) -> String {
    format!("{:.2} / {:.2} ms", p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3)
}
