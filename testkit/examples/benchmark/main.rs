//! Highwater measured, and Apache Kafka beside it where it is to be had: three nodes as processes, the
//! same load client, the same machine, one after the other in one run.
//!
//! `cargo run --release -p testkit --example benchmark -- [--kafka] [--seconds N]`. Every wait has an end:
//! a system that does not get there fails the run with a word on what was waited for.

mod groups;
mod load;
mod machine;
mod measure;
mod system;
mod table;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use system::System;
use table::Column;

const USAGE: &str = "benchmark [--kafka] [--no-highwater] [--seconds N] [--only NAME,...] \
[--highwater BINARY] [--refkafka SCRIPT] [--session-timeout-ms N]

  --kafka               also measures Apache Kafka, where Java, Maven and refkafka are present
  --no-highwater        measures Kafka alone
  --seconds N           length of each measurement under load (default 10)
  --only NAME,...       of start, idle, produce, requests, fetch, tail, groups, failover (start always)
  --highwater BINARY    default: HIGHWATER_BIN, else the binary of the same build
                        (HIGHWATER_UP: more arguments for its `up`, as `--metrics-port 0`)
  --refkafka SCRIPT     default: REFKAFKA, else ../shared/reference-kafka/refkafka beside the project";

/// What is to be measured, and how long.
struct Options {
    highwater: Option<PathBuf>,
    run_highwater: bool,
    kafka: bool,
    refkafka: PathBuf,
    length: Duration,
    only: Vec<String>,
}

impl Options {
    fn read() -> Result<Options> {
        let default_script =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference-kafka/refkafka");
        let mut options = Options {
            highwater: None,
            run_highwater: true,
            kafka: false,
            refkafka: std::env::var_os("REFKAFKA").map_or(default_script, PathBuf::from),
            length: Duration::from_secs(10),
            only: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--kafka" => options.kafka = true,
                "--no-highwater" => options.run_highwater = false,
                "--seconds" => options.length = Duration::from_secs_f64(value()?.parse()?),
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--highwater" => options.highwater = Some(value()?.into()),
                "--refkafka" => options.refkafka = value()?.into(),
                "--help" | "-h" => {
                    println!("{USAGE}");
                    std::process::exit(0);
                }
                other => bail!("{other} is no option\n{USAGE}"),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}

fn main() -> Result<()> {
    let options = Options::read()?;
    let mut columns = Vec::new();
    if options.run_highwater {
        let binary = options.highwater.clone().map_or_else(testkit::real::find_binary, Ok)?;
        let column = run(&options, "Highwater", |folder| System::highwater(&binary, folder))?;
        columns.push(column);
    }
    if options.kafka {
        match machine::kafka_is_missing(&options.refkafka) {
            Some(reason) => println!("Apache Kafka is skipped: {reason}"),
            None => {
                let start = |folder: &std::path::Path| System::kafka(&options.refkafka, folder);
                columns.push(run(&options, "Apache Kafka 4.4.0", start)?);
            }
        }
    }
    machine::print("benchmark");
    table::print(&columns);
    Ok(())
}

/// Measures one system from its start to the death of a leader.
fn run(
    options: &Options,
    name: &str,
    start: impl FnOnce(&std::path::Path) -> Result<System>,
) -> Result<Column> {
    let folder = tempfile::Builder::new().prefix("highwater-benchmark-").tempdir()?;
    let mut column = Column::new(name);
    column.add("load average before", machine::load_average());
    let mut system = start(folder.path())?;
    column.add("start to the first acks=all record", measure::first_record(&mut system)?);
    if options.wants("idle") {
        for (what, value) in measure::idle(&system)? {
            column.add(what, value);
        }
    }
    if options.wants("produce") {
        for (what, value) in measure::produce(&system, options.length)? {
            column.add(what, value);
        }
    }
    if options.wants("fetch") {
        if !options.wants("produce") {
            measure::produce(&system, options.length)?;
        }
        column.add("fetch, 64 KB batches", measure::fetch(&system, options.length)?);
    }
    if options.wants("requests") {
        for (what, value) in measure::requests(&system, options.length)? {
            column.add(what, value);
        }
    }
    if options.wants("tail") {
        for (what, value) in measure::tail(&system)? {
            column.add(what, value);
        }
    }
    if options.wants("idle") {
        column.add("memory of a node after the load", measure::memory(&system)?);
    }
    if options.wants("groups") {
        for (what, value) in groups::groups(&system)? {
            column.add(what, value);
        }
    }
    if options.wants("failover") {
        column.add("gap after SIGKILL of the leader", measure::failover(&mut system)?);
    }
    system.stop()?;
    Ok(column)
}
