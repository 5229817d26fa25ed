//! How long a record takes to a consumer that waits for it: from the send of its produce request to the answer
//! of the fetch that waits at the end of the log.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use protocol::messages::FetchRequest;
use testkit::client::{batch_of, fetch_request};

use crate::Options;
use crate::node::Node;
use crate::reader::{Reader, framed};

const TOPIC: &str = "tail";
const VERSION: i16 = 12;
/// Records come when the consumer waits again.
const PAUSE: Duration = Duration::from_millis(5);
const PATIENCE: Duration = Duration::from_secs(30);

/// Median and 99th percentile.
pub fn tail(node: &Node, options: &Options) -> Result<String> {
    node.create_topic(TOPIC, 1)?;
    let batch = batch_of(&[&[7; 100]])?;
    let (arrived, arrivals) = mpsc::channel();
    let address = node.address();
    let (records, least) = (options.records, batch.len());
    let consumer = std::thread::spawn(move || -> Result<()> {
        let mut reader = Reader::connect(&address)?;
        for offset in 0..records {
            let request =
                FetchRequest { max_wait_ms: 20_000, ..fetch_request(TOPIC, 0, offset as i64) };
            reader.send(&framed(VERSION, request)?)?;
            let size = reader.discard_answer()?;
            let now = Instant::now();
            ensure!(size > least, "the fetch at {offset} was answered without a record");
            arrived.send(now)?;
        }
        Ok(())
    });
    let mut producer = node.client()?;
    let mut latencies = Vec::with_capacity(records);
    for _ in 0..records {
        std::thread::sleep(PAUSE);
        let sent = Instant::now();
        let answer = producer.produce(TOPIC, 0, -1, batch.clone(), PATIENCE)?;
        ensure!(answer.error_code == 0, "produce failed with {}", answer.error_code);
        let arrived = arrivals.recv_timeout(PATIENCE).context("the consumer got nothing")?;
        latencies.push(arrived.saturating_duration_since(sent));
    }
    let Ok(ended) = consumer.join() else { bail!("the consumer panicked") };
    ended?;
    // The first ones find caches cold and, in the JVM, code that is not compiled.
    let mut counted = latencies.split_off(records / 10);
    counted.sort_unstable();
    let at =
        |part: f64| counted[((counted.len() - 1) as f64 * part) as usize].as_secs_f64() * 1000.0;
    Ok(format!("{:.2} / {:.2} ms", at(0.5), at(0.99)))
}
