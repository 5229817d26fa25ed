//! Counts what came of the runs, tells the progress, and tells the failures at the end.

use std::fs;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use testkit::sim::{RunFailure, Shrunk};

/// What came of a seed.
pub struct Outcome {
    pub seed: u64,
    pub result: Result<Done, RunFailure>,
}

/// A run that ended well.
pub struct Done {
    pub simulated: Duration,
    pub steps: u64,
    pub records: u64,
}

/// All runs so far.
pub struct Tally {
    began: Instant,
    runs: u64,
    simulated: Duration,
    steps: u64,
    records: u64,
    pub failed: Vec<(u64, RunFailure)>,
}

impl Tally {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            runs: 0,
            simulated: Duration::ZERO,
            steps: 0,
            records: 0,
            failed: Vec::new(),
        }
    }

    /// `repeat` is the command that makes the same run again.
    pub fn add(&mut self, outcome: Outcome, repeat: &str) {
        self.runs += 1;
        match outcome.result {
            Ok(done) => {
                self.simulated += done.simulated;
                self.steps += done.steps;
                self.records += done.records;
            }
            Err(failure) => {
                let seed = outcome.seed;
                eprintln!("seed {seed} FAILED: {}\n  repeat: {repeat}", failure.what);
                self.failed.push((seed, failure));
            }
        }
    }

    /// Where it is, and how fast. Rates count the runs that ended well.
    pub fn line(&self) -> String {
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let simulated = self.simulated.as_secs_f64();
        let cpu = cpu_seconds().map_or(String::new(), |cpu| {
            format!(", {:.0} simulated seconds per CPU second", simulated / cpu.max(0.001))
        });
        format!(
            "{} runs, {} failed; {simulated:.0} simulated seconds, {} steps, {} records; \
             {:.1} seeds per second{cpu}",
            self.runs,
            self.failed.len(),
            self.steps,
            self.records,
            self.runs as f64 / seconds,
        )
    }

    /// Tells what failed; an error when anything did. `smaller` makes the first failure smaller, where that
    /// can be done, and gives the command that makes that run.
    pub fn finish(
        mut self,
        repeat: &dyn Fn(u64) -> String,
        smaller: &dyn Fn(u64) -> Option<(Shrunk, String)>,
    ) -> Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{}", self.line())?;
        self.failed.sort_by_key(|(seed, _)| *seed);
        let Some((first, failure)) = self.failed.first() else {
            return Ok(());
        };
        writeln!(out, "\nseed {first} failed:\n{}\n", failure.whole)?;
        if let Some((shrunk, command)) = smaller(*first) {
            write_shrunk(&mut out, &shrunk, &command)?;
        }
        for (seed, failure) in &self.failed {
            writeln!(out, "seed {seed}: {}", failure.what)?;
            writeln!(out, "  repeat: {}", repeat(*seed))?;
        }
        bail!("{} of {} runs failed", self.failed.len(), self.runs)
    }
}

fn write_shrunk(out: &mut dyn Write, shrunk: &Shrunk, command: &str) -> Result<()> {
    let events = &shrunk.script.events;
    writeln!(
        out,
        "made smaller in {} runs: {} of {} events are enough for {}",
        shrunk.runs,
        events.len(),
        shrunk.events_before,
        shrunk.failure.by
    )?;
    for event in events {
        writeln!(out, "  {event}")?;
    }
    writeln!(out, "then: {}\n  repeat: {command}\n", shrunk.failure.whole)?;
    Ok(())
}

/// CPU time of this process, where the system tells it.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything, comes the third field.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / rustix::param::clock_ticks_per_second() as f64)
}
