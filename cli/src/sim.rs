//! `highwater sim`: random runs of a simulated cluster, a seed each, on as many threads as wanted. Every
//! run breaks what it can, heals everything, and must come back to health with nothing lost; the
//! invariants are checked after every step. A failure is told with its seed and the command that repeats
//! it. Runs are not made smaller.
//!
//! Seeds are handed out in order and every one that was begun is ended, so `--until-failure` names the
//! smallest that fails, whatever the number of threads.

use std::any::Any;
use std::fs;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result, bail, ensure};
use clap::Args;
use testkit::sim::{RunPlan, Simulation};

/// Runs without `--seeds` and `--until-failure`.
const USUAL_SEEDS: u64 = 100;
/// Between two lines of progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);

/// Options of `sim`.
#[derive(Clone, Debug, Args)]
pub struct SimArguments {
    /// How many runs; 100, or without end under --until-failure.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed; the others follow it.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first: u64,
    /// Runs at the same time; as many as there are processors.
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Stop at the first failure.
    #[arg(long)]
    until_failure: bool,
    #[command(flatten)]
    plan: PlanArguments,
}

/// What a run does.
#[derive(Clone, Debug, Args)]
struct PlanArguments {
    /// For how long things break, in simulated seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 6)]
    duration: u64,
    /// How long the healed cluster may take, in simulated seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 40)]
    patience: u64,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=3))]
    partitions: i32,
    /// Members of a classic consumer group.
    #[arg(long, value_name = "N", default_value_t = 0)]
    members: usize,
    /// Members of the new consumer protocol, which come and go.
    #[arg(long, value_name = "N", default_value_t = 0)]
    subscribers: usize,
    /// Compacted topics and eager cleaners.
    #[arg(long)]
    cleaning: bool,
    /// Allow unclean elections.
    #[arg(long)]
    unclean: bool,
}

impl PlanArguments {
    fn plan(&self) -> RunPlan {
        RunPlan {
            duration: Duration::from_secs(self.duration),
            patience: Duration::from_secs(self.patience),
            partitions: self.partitions,
            members: self.members,
            subscribers: self.subscribers,
            cleaning: self.cleaning,
            unclean: self.unclean,
            ..RunPlan::default()
        }
    }

    /// The command that does the same with one seed, what is usual left out.
    fn repeat(&self, seed: u64) -> String {
        let mut command = format!("highwater sim --first {seed} --seeds 1");
        for (name, value, usual) in [
            ("duration", self.duration, 6),
            ("patience", self.patience, 40),
            ("partitions", u64::from(self.partitions.unsigned_abs()), 1),
            ("members", self.members as u64, 0),
            ("subscribers", self.subscribers as u64, 0),
        ] {
            if value != usual {
                command += &format!(" --{name} {value}");
            }
        }
        for (name, is_set) in [("cleaning", self.cleaning), ("unclean", self.unclean)] {
            if is_set {
                command += &format!(" --{name}");
            }
        }
        command
    }
}

/// What came of a seed.
struct Outcome {
    seed: u64,
    result: Result<Done, Failure>,
}

/// A run that ended well.
struct Done {
    simulated: Duration,
    steps: u64,
    records: u64,
}

/// A run that did not.
struct Failure {
    /// In one line.
    what: String,
    /// With the faults and the last events.
    whole: String,
}

/// All runs so far.
struct Tally {
    began: Instant,
    runs: u64,
    simulated: Duration,
    steps: u64,
    records: u64,
    failed: Vec<(u64, Failure)>,
}

/// Runs the seeds; an error when one failed.
pub fn run(arguments: &SimArguments) -> Result<()> {
    let jobs = match arguments.jobs {
        Some(jobs) => jobs,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    ensure!(jobs > 0, "--jobs must be at least 1");
    let usual = if arguments.until_failure { u64::MAX } else { USUAL_SEEDS };
    let end = arguments.first.saturating_add(arguments.seeds.unwrap_or(usual));
    let next = AtomicU64::new(arguments.first);
    let enough = AtomicBool::new(false);
    let plan = arguments.plan.plan();
    let mut tally = Tally::new();
    thread::scope(|scope| {
        let (outcomes, incoming) = mpsc::channel();
        for _ in 0..jobs {
            let (outcomes, next, enough, plan) = (outcomes.clone(), &next, &enough, &plan);
            scope.spawn(move || {
                while !enough.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end || outcomes.send(run_one(seed, plan)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(outcomes);
        let mut told = Instant::now();
        for outcome in incoming {
            tally.add(outcome, &arguments.plan);
            if arguments.until_failure && !tally.failed.is_empty() {
                enough.store(true, Ordering::SeqCst);
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                eprintln!("{}", tally.line());
            }
        }
    });
    tally.finish(arguments)
}

fn run_one(seed: u64, plan: &RunPlan) -> Outcome {
    let ran = catch_unwind(AssertUnwindSafe(|| Simulation::random(seed, plan.clone())));
    let result = match ran {
        Ok(Ok(report)) => Ok(Done {
            simulated: report.simulated,
            steps: report.steps,
            records: report.records as u64,
        }),
        Ok(Err(error)) => Err(Failure { what: in_one_line(&error), whole: whole(&error) }),
        Err(panic) => {
            let what = format!("panicked: {}", panic_text(panic.as_ref()));
            Err(Failure { whole: what.clone(), what })
        }
    };
    Outcome { seed, result }
}

/// The innermost cause's first line.
fn in_one_line(error: &Error) -> String {
    error.root_cause().to_string().lines().next().unwrap_or_default().to_owned()
}

fn whole(error: &Error) -> String {
    error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

impl Tally {
    fn new() -> Self {
        Self {
            began: Instant::now(),
            runs: 0,
            simulated: Duration::ZERO,
            steps: 0,
            records: 0,
            failed: Vec::new(),
        }
    }

    fn add(&mut self, outcome: Outcome, plan: &PlanArguments) {
        self.runs += 1;
        match outcome.result {
            Ok(done) => {
                self.simulated += done.simulated;
                self.steps += done.steps;
                self.records += done.records;
            }
            Err(failure) => {
                let seed = outcome.seed;
                eprintln!("seed {seed} FAILED: {}\n  repeat: {}", failure.what, plan.repeat(seed));
                self.failed.push((seed, failure));
            }
        }
    }

    /// Where it is, and how fast. Rates count the runs that ended well.
    fn line(&self) -> String {
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

    fn finish(mut self, arguments: &SimArguments) -> Result<()> {
        let mut out = std::io::stdout();
        writeln!(out, "{}", self.line())?;
        self.failed.sort_by_key(|(seed, _)| *seed);
        let Some((first, failure)) = self.failed.first() else {
            return Ok(());
        };
        writeln!(out, "\nseed {first} failed:\n{}\n", failure.whole)?;
        for (seed, failure) in &self.failed {
            writeln!(out, "seed {seed}: {}", failure.what)?;
            writeln!(out, "  repeat: {}", arguments.plan.repeat(*seed))?;
        }
        bail!("{} of {} runs failed", self.failed.len(), self.runs)
    }
}

/// CPU time of this process, where the system tells it.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // Behind the name, which may hold anything, comes the third field.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
    Some((ticks(14)? + ticks(15)?) / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: PlanArguments = PlanArguments {
        duration: 6,
        patience: 40,
        partitions: 1,
        members: 0,
        subscribers: 0,
        cleaning: false,
        unclean: false,
    };

    #[test]
    fn the_command_that_repeats_a_run_has_everything_that_is_not_usual() {
        assert_eq!(USUAL.repeat(7), "highwater sim --first 7 --seeds 1");
        let other = PlanArguments { partitions: 3, subscribers: 2, cleaning: true, ..USUAL };
        assert_eq!(
            other.repeat(8),
            "highwater sim --first 8 --seeds 1 --partitions 3 --subscribers 2 --cleaning"
        );
    }

    #[test]
    fn what_is_usual_here_is_what_is_usual_in_the_simulator() {
        let (own, simulators) = (USUAL.plan(), RunPlan::default());
        assert_eq!(format!("{own:?}"), format!("{simulators:?}"));
    }

    #[test]
    fn a_panic_is_a_failure_with_its_words() {
        let panic = catch_unwind(|| panic!("offset {} is gone", 7)).expect_err("a panic");
        assert_eq!(panic_text(panic.as_ref()), "offset 7 is gone");
    }
}
