//! What this machine is and has: what `/proc` tells of it and of a process, and whether it can run Kafka.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

/// Why Kafka cannot be measured here, if it cannot.
pub fn kafka_is_missing(script: &Path) -> Option<String> {
    if !script.is_file() {
        return Some(format!("no refkafka at {}", script.display()));
    }
    for (tool, flag) in [("java", "-version"), ("mvn", "-v")] {
        let ran = Command::new(tool).arg(flag).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if !ran.is_ok_and(|status| status.success()) {
            return Some(format!("no {tool} here"));
        }
    }
    None
}

/// Prints the machine and the command of this run of an example.
pub fn print(example: &str) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let model = line_of("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown CPU".into());
    let memory_kb: u64 = line_of("/proc/meminfo", "MemTotal")
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0);
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "machine: {cores} cores, {:.0} GB, {model}; clients and all nodes on it",
        memory_kb as f64 / 1024.0 / 1024.0
    );
    println!(
        "command: cargo run --release -p testkit --example {example} -- {}",
        arguments.join(" ")
    );
}

/// How busy the machine is with everything: the load averages over one, five and fifteen minutes.
pub fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

fn line_of(file: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Resident memory of a process in bytes.
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let line = line_of(&format!("/proc/{pid}/status"), "VmRSS")
        .with_context(|| format!("process {pid} is gone"))?;
    let kilobytes: u64 = line.split_whitespace().next().context("no number in VmRSS")?.parse()?;
    Ok(kilobytes * 1024)
}

/// CPU time that a process has used, all its threads together: to the nanosecond where the kernel
/// counts it so, else in its ticks of 10 ms. Threads that end in between take theirs with them.
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let mut nanoseconds = 0;
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).context("the process is gone")?;
    for task in tasks {
        let Ok(text) = fs::read_to_string(task?.path().join("schedstat")) else {
            continue;
        };
        nanoseconds += text.split_whitespace().next().map_or(Ok(0), str::parse::<u64>)?;
    }
    if nanoseconds > 0 {
        return Ok(Duration::from_nanos(nanoseconds));
    }
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(')').context("a stat line without a name")?.1;
    let mut ticks = 0;
    // User and system time, the 14th and 15th field of the line.
    for field in fields.split_whitespace().skip(11).take(2) {
        ticks += field.parse::<u64>()?;
    }
    Ok(Duration::from_millis(ticks * 10))
}
