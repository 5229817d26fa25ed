//! `highwater sim`: random runs of a simulated cluster, a seed each, on as many threads as wanted. Every
//! run breaks what it can, heals everything, and must come back to health with nothing lost; the
//! invariants are checked after every step. A failure is told with its seed and the command that repeats
//! it, and the first one is made smaller: `--only-events` plays what is left of it. With `--scenario` the
//! seeds are those of a story, whose script stays the same while chance differs.
//!
//! Seeds are handed out in order and every one that was begun is ended, so `--until-failure` names the
//! smallest that fails, whatever the number of threads.

mod tally;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Args;
use replication::bugs::Bug;
use scenarios::{Scenario, find, tell};
use testkit::history::Recorder;
use testkit::sim::{RunFailure, RunPlan, Script, Shrunk, play_and_record, shrink};
use testkit::stage::SimStage;

use crate::bugs::{BugArgument, switch_on};
use crate::history_file::HistoryFile;
use tally::{Done, Outcome, Tally};

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
    /// This seed and no other.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seeds", "first", "until_failure"])]
    seed: Option<u64>,
    /// Runs at the same time; as many as there are processors.
    #[arg(long, value_name = "J")]
    jobs: Option<usize>,
    /// Stop at the first failure.
    #[arg(long)]
    until_failure: bool,
    /// In how many runs the first failure may be made smaller; 0 leaves it as it is.
    #[arg(long, value_name = "N", default_value_t = 300)]
    shrink_runs: usize,
    /// The seeds of this story, by its name, in place of random runs.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Write what the producers and consumers of this one run do to this file, as JSON Lines for `check
    /// --history` and for checkers from outside. (Compacted topics forget records by right.)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scenario", "cleaning"])]
    history: Option<PathBuf>,
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
    /// min.insync.replicas; 0 draws it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(i32).range(0..=3))]
    min_isr: i32,
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
    /// Only these of the run's events, by their numbers.
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    only_events: Vec<u32>,
    #[command(flatten)]
    bug: BugArgument,
}

impl PlanArguments {
    fn plan(&self) -> Result<RunPlan> {
        let bugs = self.bug.bugs()?;
        let plan = RunPlan {
            duration: Duration::from_secs(self.duration),
            patience: Duration::from_secs(self.patience),
            partitions: self.partitions,
            min_isr: self.min_isr,
            members: self.members,
            subscribers: self.subscribers,
            cleaning: self.cleaning,
            unclean: self.unclean,
            ..RunPlan::default()
        };
        Ok(with_bugs(plan, bugs))
    }

    /// The options that make the same runs, what is usual left out.
    fn typed(&self) -> String {
        let mut options = String::new();
        for (name, value, usual) in [
            ("duration", self.duration, 6),
            ("patience", self.patience, 40),
            ("partitions", u64::from(self.partitions.unsigned_abs()), 1),
            ("min-isr", u64::from(self.min_isr.unsigned_abs()), 0),
            ("members", self.members as u64, 0),
            ("subscribers", self.subscribers as u64, 0),
        ] {
            if value != usual {
                options += &format!(" --{name} {value}");
            }
        }
        for (name, is_set) in [("cleaning", self.cleaning), ("unclean", self.unclean)] {
            if is_set {
                options += &format!(" --{name}");
            }
        }
        options + &self.bug.typed()
    }

    /// The command that does the same with one seed.
    fn repeat(&self, seed: u64, only: &[u32]) -> String {
        let mut command = format!("highwater sim --seed {seed}{}", self.typed());
        if !only.is_empty() {
            let numbers: Vec<String> = only.iter().map(u32::to_string).collect();
            command += &format!(" --only-events {}", numbers.join(","));
        }
        command
    }
}

#[cfg(feature = "historical-bugs")]
fn with_bugs(plan: RunPlan, bugs: Vec<Bug>) -> RunPlan {
    RunPlan { bugs, ..plan }
}

#[cfg(not(feature = "historical-bugs"))]
fn with_bugs(plan: RunPlan, _: Vec<Bug>) -> RunPlan {
    plan
}

/// What is done with a seed.
enum Work {
    /// A random run, perhaps with some of its events only.
    Run { plan: RunPlan, only: BTreeSet<u32>, history: Option<Recorder> },
    /// A story.
    Story { scenario: &'static Scenario, bugs: Vec<Bug> },
}

impl Work {
    fn script(&self, plan: &RunPlan, only: &BTreeSet<u32>, seed: u64) -> Script {
        let mut script = plan.script(seed);
        if !only.is_empty() {
            script.events.retain(|event| only.contains(&event.number));
        }
        script
    }

    fn of_seed(&self, seed: u64) -> Outcome {
        let result = match self {
            Work::Run { plan, only, history } => {
                let script = self.script(plan, only, seed);
                play_and_record(&script, plan, history.as_ref()).map(|report| Done {
                    simulated: report.simulated,
                    steps: report.steps,
                    records: report.records as u64,
                })
            }
            Work::Story { scenario, bugs } => tell_quietly(scenario, bugs, seed),
        };
        Outcome { seed, result }
    }

    fn smaller(&self, seed: u64, budget: usize) -> Option<Shrunk> {
        match self {
            Work::Run { plan, only, .. } if budget > 0 => {
                eprintln!("making seed {seed} smaller");
                shrink(&self.script(plan, only, seed), plan, budget)
            }
            _ => None,
        }
    }
}

fn tell_quietly(scenario: &Scenario, bugs: &[Bug], seed: u64) -> Result<Done, RunFailure> {
    let told = catch_unwind(AssertUnwindSafe(|| {
        let mut stage = SimStage::start(scenario.needs, seed)?;
        switch_on(bugs);
        tell(scenario, &mut stage, &mut |_| {})?;
        let simulation = stage.simulation();
        Ok(Done { simulated: simulation.now().0, steps: simulation.steps(), records: 0 })
    }));
    told.unwrap_or_else(|_| Err(anyhow::anyhow!("a panic"))).map_err(|error: anyhow::Error| {
        let whole = error.to_string();
        let what = whole.lines().last().unwrap_or_default().to_owned();
        RunFailure { by: scenario.name.to_owned(), what, whole }
    })
}

/// Runs the seeds; an error when one failed.
pub fn run(arguments: &SimArguments) -> Result<()> {
    let jobs = match arguments.jobs {
        Some(jobs) => jobs,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    ensure!(jobs > 0, "--jobs must be at least 1");
    let plan = &arguments.plan;
    let only: BTreeSet<u32> = plan.only_events.iter().copied().collect();
    ensure!(
        only.is_empty() || arguments.seed.is_some(),
        "--only-events are those of one run: name it with --seed"
    );
    ensure!(
        arguments.history.is_none() || arguments.seed.is_some(),
        "--history is that of one run: name it with --seed"
    );
    let history = HistoryFile::create(arguments.history.as_deref())?;
    let work = match &arguments.scenario {
        Some(name) => Work::Story { scenario: find(name)?, bugs: plan.bug.bugs()? },
        None => Work::Run { plan: plan.plan()?, only, history: history.recorder() },
    };
    let repeat = |seed| match &arguments.scenario {
        Some(name) => format!("highwater scenario run {name} --seed {seed}{}", plan.bug.typed()),
        None => plan.repeat(seed, &plan.only_events),
    };
    let tally = run_all(arguments, jobs, &work, &repeat);
    history.write()?;
    tally.finish(&repeat, &|seed| {
        let shrunk = work.smaller(seed, arguments.shrink_runs)?;
        let numbers: Vec<u32> = shrunk.script.events.iter().map(|event| event.number).collect();
        let command = plan.repeat(seed, &numbers);
        Some((shrunk, command))
    })
}

fn run_all(
    arguments: &SimArguments,
    jobs: usize,
    work: &Work,
    repeat: &dyn Fn(u64) -> String,
) -> Tally {
    let usual = if arguments.until_failure { u64::MAX } else { USUAL_SEEDS };
    let first = arguments.seed.unwrap_or(arguments.first);
    let count = if arguments.seed.is_some() { 1 } else { arguments.seeds.unwrap_or(usual) };
    let end = first.saturating_add(count);
    let next = AtomicU64::new(first);
    let enough = AtomicBool::new(false);
    let mut tally = Tally::new();
    thread::scope(|scope| {
        let (outcomes, incoming) = mpsc::channel();
        for _ in 0..jobs {
            let (outcomes, next, enough) = (outcomes.clone(), &next, &enough);
            scope.spawn(move || {
                while !enough.load(Ordering::SeqCst) {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= end || outcomes.send(work.of_seed(seed)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(outcomes);
        let mut told = Instant::now();
        for outcome in incoming {
            let repeat = repeat(outcome.seed);
            tally.add(outcome, &repeat);
            if arguments.until_failure && !tally.failed.is_empty() {
                enough.store(true, Ordering::SeqCst);
            }
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                eprintln!("{}", tally.line());
            }
        }
    });
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> PlanArguments {
        PlanArguments {
            duration: 6,
            patience: 40,
            partitions: 1,
            min_isr: 0,
            members: 0,
            subscribers: 0,
            cleaning: false,
            unclean: false,
            only_events: Vec::new(),
            bug: BugArgument::default(),
        }
    }

    #[test]
    fn the_command_that_repeats_a_run_has_everything_that_is_not_usual() {
        assert_eq!(usual().repeat(7, &[]), "highwater sim --seed 7");
        let other = PlanArguments { partitions: 3, subscribers: 2, cleaning: true, ..usual() };
        assert_eq!(
            other.repeat(8, &[1, 12]),
            "highwater sim --seed 8 --partitions 3 --subscribers 2 --cleaning --only-events 1,12"
        );
    }

    #[test]
    fn what_is_usual_here_is_what_is_usual_in_the_simulator() {
        let (own, simulators) = (usual().plan().expect("a plan"), RunPlan::default());
        assert_eq!(format!("{own:?}"), format!("{simulators:?}"));
    }

    #[test]
    fn a_story_of_another_seed_is_told_and_its_claims_count() {
        let work = Work::Story { scenario: find("H01").expect("a story"), bugs: Vec::new() };
        let told = work.of_seed(5).result.map(|done| done.simulated > Duration::ZERO);
        assert!(told.is_ok_and(|passed| passed));
        let broken = Scenario {
            script: |story| {
                story.until_leader(1)?;
                story.claim("the moon is a broker", false)
            },
            ..*find("H01").expect("a story")
        };
        let failure = tell_quietly(&broken, &[], 1).map(|_| ()).expect_err("it is not true");
        assert!(failure.what.contains("not so: the moon is a broker"), "{}", failure.what);
    }
}
