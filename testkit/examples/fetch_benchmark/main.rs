//! The fetch path measured: one node of Highwater, one of Apache Kafka where it is to be had, and a bare
//! `sendfile` loop over the same file, on the same machine in one run.
//!
//! `cargo run --release -p testkit --example fetch_benchmark -- [--kafka]`. Figures: how fast records leave and
//! what CPU time a gigabyte costs the server (1, 4, 64 connections); how long a waiting consumer's answer takes
//! from the send of the record; what thousands of fetches cost that wait and nothing else; what an idle long poll
//! costs in CPU time and bytes, with fetch sessions and without.
//!
//! Readers throw away what they get, without taking it out of the kernel, so that they are not what is measured.

mod idle;
#[path = "../benchmark/machine.rs"]
mod machine;
mod node;
mod parked;
mod reader;
mod sendfile;
#[path = "../benchmark/table.rs"]
mod table;
mod tail;
mod throughput;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use node::Node;
use table::Column;

const USAGE: &str = "fetch_benchmark [--kafka] [--no-highwater] [--only NAME,...] [--seconds N] [--megabytes N]
  [--fetch-kb N] [--connections N,...] [--partitions N,...] [--pollers N] [--records N]
  [--highwater BINARY] [--refkafka SCRIPT]

  --kafka             also measures Apache Kafka, where Java, Maven and refkafka are present
  --no-highwater      measures Kafka alone
  --only NAME,...     of throughput, tail, parked, idle
  --seconds N         length of each measurement (default 10)
  --megabytes N       size of the log that is read (default 800: one segment)
  --fetch-kb N        most bytes of a fetch, and of a sendfile of the bare loop (default 1024)
  --connections ...   default 1,4,64
  --partitions ...    of an idle poll (default 200,1000)
  --pollers N         idle connections at a time (default 50)
  --parked N          fetches that wait at a time (default 9000)
  --records N         records for the waiting consumer (default 1000)
  --highwater BINARY  default: HIGHWATER_BIN, else the binary of the same build
  --refkafka SCRIPT   default: REFKAFKA, else ../shared/reference-kafka/refkafka beside the project";

/// What is to be measured, and how much of it.
pub struct Options {
    highwater: Option<PathBuf>,
    run_highwater: bool,
    kafka: bool,
    refkafka: PathBuf,
    only: Vec<String>,
    pub(crate) length: Duration,
    pub(crate) megabytes: usize,
    pub(crate) fetch_bytes: usize,
    pub(crate) connections: Vec<usize>,
    pub(crate) partitions: Vec<i32>,
    pub(crate) pollers: usize,
    pub(crate) parked: usize,
    pub(crate) records: usize,
}

impl Options {
    fn read(mut arguments: impl Iterator<Item = String>) -> Result<Options> {
        let script =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/reference-kafka/refkafka");
        let mut options = Options {
            highwater: None,
            run_highwater: true,
            kafka: false,
            refkafka: std::env::var_os("REFKAFKA").map_or(script, PathBuf::from),
            only: Vec::new(),
            length: Duration::from_secs(10),
            megabytes: 800,
            fetch_bytes: 1 << 20,
            connections: vec![1, 4, 64],
            partitions: vec![200, 1000],
            pollers: 50,
            parked: 9000,
            records: 1000,
        };
        while let Some(argument) = arguments.next() {
            let mut value =
                || arguments.next().with_context(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--kafka" => options.kafka = true,
                "--no-highwater" => options.run_highwater = false,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--seconds" => options.length = Duration::from_secs_f64(value()?.parse()?),
                "--megabytes" => options.megabytes = value()?.parse()?,
                "--fetch-kb" => options.fetch_bytes = value()?.parse::<usize>()? << 10,
                "--connections" => options.connections = list(&value()?)?,
                "--partitions" => options.partitions = list(&value()?)?,
                "--pollers" => options.pollers = value()?.parse()?,
                "--records" => options.records = value()?.parse()?,
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

fn list<T: std::str::FromStr>(text: &str) -> Result<Vec<T>>
where
    T::Err: std::error::Error + Send + Sync + 'static,
{
    text.split(',').map(|part| Ok(part.trim().parse()?)).collect()
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.peek().is_some_and(|first| first == sendfile::SERVE) {
        let values: Vec<String> = arguments.skip(1).collect();
        return sendfile::serve(&values);
    }
    let options = Options::read(arguments)?;
    let mut columns = Vec::new();
    if options.run_highwater {
        let binary = options.highwater.clone().map_or_else(testkit::real::find_binary, Ok)?;
        let node = Node::highwater(&binary)?;
        let mut bare = Column::new("bare sendfile, its file");
        let column = measure(&options, "Highwater", &node, Some(&mut bare))?;
        columns.extend([bare, column]);
    }
    if options.kafka {
        match machine::kafka_is_missing(&options.refkafka) {
            Some(reason) => println!("Apache Kafka is skipped: {reason}"),
            None => {
                let node = Node::kafka(&options.refkafka)?;
                columns.push(measure(&options, "Apache Kafka 4.4.0", &node, None)?);
            }
        }
    }
    machine::print("fetch_benchmark");
    println!(
        "compared: one node each, defaults; {} MB of 64 KB batches in the page cache, fetches of {} KB; \
         CPU is the server's alone",
        options.megabytes,
        options.fetch_bytes >> 10
    );
    table::print(&columns);
    Ok(())
}

/// Measures one node, and beside it the bare loop over the file that it sends.
fn measure(
    options: &Options,
    name: &str,
    node: &Node,
    bare: Option<&mut Column>,
) -> Result<Column> {
    let mut column = Column::new(name);
    column.add("load average before", machine::load_average());
    if options.wants("throughput") {
        let log = throughput::fill(node, options)?;
        if let Some(bare) = bare {
            let file = node.segment(throughput::TOPIC);
            for connections in &options.connections {
                throughput::bare(&file, &log, *connections, options)?.report(bare, *connections);
            }
        }
        for connections in &options.connections {
            throughput::node(node, &log, *connections, options)?.report(&mut column, *connections);
        }
    }
    if options.wants("tail") {
        column
            .add("record sent to answer of a waiting fetch, p50 / p99", tail::tail(node, options)?);
    }
    if options.wants("parked") {
        parked::measure(node, options, &mut column)?;
    }
    if options.wants("idle") {
        idle::measure(node, options, &mut column)?;
    }
    let memory = machine::resident_bytes(node.pid()?)? as f64 / 1e6;
    column.add("memory of the node at the end", format!("{memory:.0} MB"));
    Ok(column)
}
