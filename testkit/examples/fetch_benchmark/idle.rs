//! What waiting costs: connections that poll partitions where nothing happens, with fetch sessions and without.
//! The CPU time of the same node with the same connections left alone is taken off.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use protocol::ApiKey;
use protocol::Uuid;
use protocol::frame::decode_response;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::{FetchRequest, FetchResponse};
use testkit::client::Client;

use crate::node::Node;
use crate::reader::{Reader, framed};
use crate::table::Column;
use crate::{Options, machine};

/// Topic ids, as consumers of today send them.
const VERSION: i16 = 17;
/// The default of consumers and followers alike.
const WAIT: Duration = Duration::from_millis(500);

/// Adds the rows of every number of partitions.
pub fn measure(node: &Node, options: &Options, column: &mut Column) -> Result<()> {
    for partitions in &options.partitions {
        let topic = format!("idle-{partitions}");
        node.create_topic(&topic, *partitions)?;
        let id = node.client()?.topic_id(&topic)?;
        for sessions in [true, false] {
            let polls = poll(node, options, id, *partitions, sessions)?;
            let with = if sessions { "with sessions" } else { "without sessions" };
            let what = format!("idle poll of {partitions}, {with}");
            column.add(format!("{what}, CPU"), format!("{:.0} us", polls.cpu_us));
            column.add(
                format!("{what}, each poller's traffic"),
                format!("{:.0} B/s", polls.bytes_per_second),
            );
        }
    }
    Ok(())
}

struct Polls {
    /// Microseconds of CPU time for each poll.
    cpu_us: f64,
    /// Requests and answers together.
    bytes_per_second: f64,
}

fn request(id: Uuid, partitions: i32, session_id: i32, session_epoch: i32) -> FetchRequest {
    let wanted = |partition| FetchPartition {
        partition,
        partition_max_bytes: 1 << 20,
        ..FetchPartition::default()
    };
    let topic = FetchTopic {
        topic_id: id,
        partitions: (0..partitions).map(wanted).collect(),
        ..FetchTopic::default()
    };
    FetchRequest {
        max_wait_ms: WAIT.as_millis() as i32,
        min_bytes: 1,
        max_bytes: 50 << 20,
        session_id,
        session_epoch,
        topics: if partitions > 0 { vec![topic] } else { Vec::new() },
        ..FetchRequest::default()
    }
}

/// The requests of one poller, in turn.
enum Requests {
    Whole(Bytes),
    Incremental { id: i32, epoch: i32 },
}

impl Requests {
    /// Opens a session, if there is to be one. Its first answer tells every partition.
    fn begin(client: &mut Client, id: Uuid, partitions: i32, sessions: bool) -> Result<Requests> {
        if !sessions {
            return Ok(Requests::Whole(framed(VERSION, request(id, partitions, 0, -1))?));
        }
        let opening = FetchRequest { max_wait_ms: 0, ..request(id, partitions, 0, 0) };
        let correlation_id = client.send(VERSION, opening.into())?;
        let body = decode_response(client.read_frame()?, correlation_id, ApiKey::Fetch, VERSION)?;
        let response = FetchResponse::try_from(body)?;
        ensure!(response.error_code == 0, "no session: error {}", response.error_code);
        ensure!(response.session_id != 0, "no room for a session");
        Ok(Requests::Incremental { id: response.session_id, epoch: 0 })
    }

    fn next(&mut self, topic: Uuid) -> Result<Bytes> {
        match self {
            Requests::Whole(frame) => Ok(frame.clone()),
            Requests::Incremental { id, epoch } => {
                *epoch += 1;
                framed(VERSION, request(topic, 0, *id, *epoch))
            }
        }
    }
}

fn poll(
    node: &Node,
    options: &Options,
    id: Uuid,
    partitions: i32,
    sessions: bool,
) -> Result<Polls> {
    let pid = node.pid()?;
    let address = node.address();
    let (polls, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
    let (go, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let ready = Barrier::new(options.pollers + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.pollers)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    let begun = begin(&address, id, partitions, sessions);
                    ready.wait();
                    let (mut reader, mut requests) = begun?;
                    while !go.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    while !stop.load(Ordering::Relaxed) {
                        let frame = requests.next(id)?;
                        reader.send(&frame)?;
                        let size = reader.discard_answer()?;
                        polls.fetch_add(1, Ordering::Relaxed);
                        bytes.fetch_add((frame.len() + size) as u64, Ordering::Relaxed);
                    }
                    Ok(())
                })
            })
            .collect();
        ready.wait();
        // The node with nothing to do.
        std::thread::sleep(WAIT);
        let alone = cpu_in(pid, options.length)?;
        go.store(true, Ordering::Relaxed);
        std::thread::sleep(WAIT * 2);
        let count = || (polls.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let (before, start) = (count(), Instant::now());
        let busy = cpu_in(pid, options.length)?;
        let (after, time) = (count(), start.elapsed().as_secs_f64());
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let Ok(ended) = thread.join() else { bail!("a poller panicked") };
            ended?;
        }
        ensure!(after.0 > before.0, "no poll ended in {:?}", options.length);
        Ok(Polls {
            cpu_us: (busy - alone) * 1e6 / (after.0 - before.0) as f64,
            bytes_per_second: (after.1 - before.1) as f64 / time / options.pollers as f64,
        })
    })
}

fn begin(address: &str, id: Uuid, partitions: i32, sessions: bool) -> Result<(Reader, Requests)> {
    let mut client = Client::connect(address, Duration::from_secs(30))?;
    let requests = Requests::begin(&mut client, id, partitions, sessions)?;
    Ok((Reader::connect(address).context("a poller")?, requests))
}

/// CPU seconds that a process uses in so much time.
fn cpu_in(pid: u32, length: Duration) -> Result<f64> {
    let before = machine::cpu_time(pid)?;
    std::thread::sleep(length);
    Ok(machine::cpu_time(pid)?.saturating_sub(before).as_secs_f64())
}
