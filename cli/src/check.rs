//! `highwater check`: watches a running cluster, ours or Apache Kafka, and tells when it breaks a promise; or
//! judges the history of what clients did, without any cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use testkit::online::{LookReport, Watcher};

use crate::history_file;

/// How often a calm watch says that all is well.
const STATUS_EVERY: Duration = Duration::from_secs(10);

/// The pause between two looks of `up --check`.
const BESIDE_PAUSE: Duration = Duration::from_millis(500);

/// Options of `check`.
#[derive(Debug, Args)]
pub struct CheckArguments {
    /// Addresses of brokers, without TLS.
    #[arg(long, value_name = "HOST:PORT,...", default_value = "127.0.0.1:9092")]
    bootstrap: String,
    /// A topic to watch. Repeatable; all but internal ones otherwise.
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// Ends after so many seconds; watches until it is stopped otherwise.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// The pause between two looks, in milliseconds.
    #[arg(long, value_name = "N", default_value_t = 500)]
    interval_ms: u64,
    /// Judges this history of JSON Lines, as `sim --history` and `scenario run --history` write it, and watches
    /// nothing: is what was acknowledged still there, once and in order, and nothing else?
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bootstrap", "topics", "seconds", "interval_ms"])]
    history: Option<PathBuf>,
}

/// Looks again and again. Every broken promise is a line of its own, as soon as it is seen.
///
/// # Errors
/// Something was broken; or nothing could be seen at all.
pub fn run(arguments: &CheckArguments) -> Result<()> {
    if let Some(path) = &arguments.history {
        return history_file::judge(path, &mut std::io::stdout());
    }
    let begun = Instant::now();
    let length = arguments.seconds.map(Duration::from_secs);
    let mut watcher = Watcher::new(&arguments.bootstrap, arguments.topics.iter().cloned());
    let (mut broken, mut told) = (0, None::<Instant>);
    let mut last = watcher.look()?;
    loop {
        broken += tell(&last);
        if told.is_none_or(|told| told.elapsed() >= STATUS_EVERY) {
            println!("{}", status(&last));
            told = Some(Instant::now());
        }
        if length.is_some_and(|length| begun.elapsed() >= length) {
            break;
        }
        std::thread::sleep(Duration::from_millis(arguments.interval_ms));
        match watcher.look() {
            Ok(report) => last = report,
            Err(error) => println!("nothing to be seen: {error:#}"),
        }
    }
    println!("{}", status(&last));
    if broken > 0 {
        bail!("{broken} times something was broken that must hold");
    }
    println!("nothing broken was seen");
    Ok(())
}

/// Watches on a thread of its own until the process ends; what is broken goes to standard error.
pub fn watch_beside(bootstrap: String) {
    std::thread::spawn(move || {
        let mut watcher = Watcher::new(&bootstrap, []);
        loop {
            // Nothing can be seen while all nodes stop, or before there is a topic.
            for violation in watcher.look().map(|report| report.violations).unwrap_or_default() {
                eprintln!("highwater: BROKEN {violation}");
            }
            std::thread::sleep(BESIDE_PAUSE);
        }
    });
}

/// Prints what was broken; gives how much.
fn tell(report: &LookReport) -> usize {
    for violation in &report.violations {
        println!("BROKEN {violation}");
    }
    report.violations.len()
}

fn status(report: &LookReport) -> String {
    let LookReport { brokers, partitions, batches_compared, .. } = report;
    let mut text =
        format!("{brokers} brokers, {partitions} partitions, {batches_compared} batches compared");
    for (broker, why) in &report.silent {
        text.push_str(&format!("; broker {broker} does not answer: {why}"));
    }
    text
}
