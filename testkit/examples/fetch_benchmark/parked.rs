//! What waiting costs while nothing happens at all: thousands of connections, each with a fetch that waits longer
//! than this looks. The CPU time of the same node without them is told beside it.

use std::time::Duration;

use anyhow::{Result, ensure};
use testkit::client::fetch_request;

use crate::node::Node;
use crate::reader::{Reader, framed};
use crate::table::Column;
use crate::{Options, machine};

const TOPIC: &str = "parked";
const VERSION: i16 = 12;
/// Longer than opening the connections and looking at them takes.
const WAIT_MS: i32 = 600_000;
/// For the node to take in what was sent last.
const SETTLING: Duration = Duration::from_secs(3);

/// Adds the rows.
pub fn measure(node: &Node, options: &Options, column: &mut Column) -> Result<()> {
    node.create_topic(TOPIC, 1)?;
    let pid = node.pid()?;
    let share = || -> Result<String> {
        let before = machine::cpu_time(pid)?;
        std::thread::sleep(options.length);
        let used = machine::cpu_time(pid)?.saturating_sub(before);
        Ok(format!("{:.2}", used.as_secs_f64() / options.length.as_secs_f64() * 100.0))
    };
    std::thread::sleep(SETTLING);
    let (idle, memory) = (share()?, machine::resident_bytes(pid)?);
    let mut request = fetch_request(TOPIC, 0, 0);
    (request.max_wait_ms, request.min_bytes) = (WAIT_MS, 1);
    let frame = framed(VERSION, request)?;
    let mut readers = Vec::with_capacity(options.parked);
    for _ in 0..options.parked {
        let mut reader = Reader::connect(&node.address())?;
        reader.send(&frame)?;
        readers.push(reader);
    }
    std::thread::sleep(SETTLING);
    let parked = share()?;
    let grown = machine::resident_bytes(pid)?.saturating_sub(memory);
    ensure!(readers.iter().all(Reader::is_waiting), "a fetch was answered or closed");
    let what = format!("{} parked fetches, CPU (without them)", options.parked);
    column.add(what, format!("{parked} ({idle}) % of a core"));
    let each = grown as f64 / 1024.0 / options.parked.max(1) as f64;
    column.add("  memory for each, with its connection", format!("{each:.1} KB"));
    Ok(())
}
