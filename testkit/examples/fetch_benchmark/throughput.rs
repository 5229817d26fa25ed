//! How fast records leave, and what a gigabyte of them costs the server: every connection reads the log from
//! its begin to its end, and again.

use std::path::Path;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use testkit::client::{batch_of, fetch_request};

use crate::node::Node;
use crate::reader::{Reader, framed};
use crate::sendfile::Server;
use crate::table::Column;
use crate::{Options, machine};

pub const TOPIC: &str = "throughput";
const VALUE_BYTES: usize = 64 * 1024;
const VERSION: i16 = 12;
const PRODUCE_TIMEOUT: Duration = Duration::from_secs(30);

/// A log of equal batches.
pub struct Log {
    batches: usize,
    batch_bytes: usize,
}

/// What was read in a while.
pub struct Rate {
    bytes: u64,
    time: Duration,
    cpu: Duration,
}

impl Rate {
    /// Adds its rows.
    pub fn report(&self, column: &mut Column, connections: usize) {
        let gigabytes = self.bytes as f64 / 1e9;
        let rate = gigabytes * 1000.0 / self.time.as_secs_f64();
        column.add(format!("{connections} connections, MB/s"), format!("{rate:.0}"));
        let cpu = self.cpu.as_secs_f64() / gigabytes;
        column.add(format!("{connections} connections, CPU s per GB"), format!("{cpu:.3}"));
    }
}

/// Fills a topic with one segment.
pub fn fill(node: &Node, options: &Options) -> Result<Log> {
    node.create_topic(TOPIC, 1)?;
    let mut client = node.client()?;
    let batch = batch_of(&[&vec![7; VALUE_BYTES]])?;
    let log = Log {
        batches: (options.megabytes * 1_000_000 / batch.len()).max(1),
        batch_bytes: batch.len(),
    };
    for _ in 0..log.batches {
        let answer = client.produce(TOPIC, 0, -1, batch.clone(), PRODUCE_TIMEOUT)?;
        ensure!(answer.error_code == 0, "produce failed with {}", answer.error_code);
    }
    Ok(log)
}

/// The bare loop over a file, asked for as many bytes at a time as a fetch asks for.
pub fn bare(file: &Path, log: &Log, connections: usize, options: &Options) -> Result<Rate> {
    let bytes = (log.batches * log.batch_bytes) as u64;
    let length = std::fs::metadata(file).context("the segment")?.len();
    ensure!(length >= bytes, "{} has {length} bytes, not {bytes}", file.display());
    let server = Server::start(file, bytes)?;
    run(connections, server.pid(), options.length, |stop, read| {
        let mut reader = Reader::connect(&server.address)?;
        let asked = u32::try_from(options.fetch_bytes)?.to_be_bytes();
        while !stop.load(Ordering::Relaxed) {
            reader.send(&asked)?;
            reader.discard(options.fetch_bytes)?;
            read.fetch_add(options.fetch_bytes as u64, Ordering::Relaxed);
        }
        Ok(())
    })
}

/// Fetches from a node. The requests are made once, one for each place of the log; that the answers hold what
/// they should is seen by their size.
pub fn node(node: &Node, log: &Log, connections: usize, options: &Options) -> Result<Rate> {
    let at_once = (options.fetch_bytes / log.batch_bytes).max(1);
    let requests: Vec<(Bytes, usize)> = (0..log.batches)
        .step_by(at_once)
        .map(|first| {
            let mut request = fetch_request(TOPIC, 0, first as i64);
            let batches = at_once.min(log.batches - first);
            request.max_bytes = i32::try_from(batches * log.batch_bytes)?;
            request.topics[0].partitions[0].partition_max_bytes = request.max_bytes;
            Ok((framed(VERSION, request)?, batches * log.batch_bytes))
        })
        .collect::<Result<_>>()?;
    let address = node.address();
    run(connections, node.pid()?, options.length, |stop, read| {
        let mut reader = Reader::connect(&address)?;
        for (frame, records) in requests.iter().cycle() {
            reader.send(frame)?;
            let size = reader.discard_answer()?;
            ensure!(size > *records, "an answer of {size} bytes where {records} of records belong");
            read.fetch_add(*records as u64, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    })
}

/// Readers in so many threads; the first fifth of the time is not counted.
fn run(
    connections: usize,
    pid: u32,
    length: Duration,
    reader: impl Fn(&AtomicBool, &AtomicU64) -> Result<()> + Sync,
) -> Result<Rate> {
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    let ready = Barrier::new(connections + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections)
            .map(|_| {
                scope.spawn(|| {
                    ready.wait();
                    reader(&stop, &read)
                })
            })
            .collect();
        ready.wait();
        std::thread::sleep(length / 5);
        let (cpu, bytes, start) =
            (machine::cpu_time(pid)?, read.load(Ordering::Relaxed), Instant::now());
        std::thread::sleep(length);
        let rate = Rate {
            bytes: read.load(Ordering::Relaxed) - bytes,
            time: start.elapsed(),
            cpu: machine::cpu_time(pid)?.saturating_sub(cpu),
        };
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let Ok(ended) = thread.join() else { bail!("a reader panicked") };
            ended?;
        }
        ensure!(rate.bytes > 0, "nothing was read in {length:?}");
        Ok(rate)
    })
}
