//! `highwater scenario`: the stories of `scenarios`, told line by line, in the simulator, by a real cluster
//! or by Apache Kafka. A story that is not true ends with exit code 1 and its verdict.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use replication::bugs::Bug;
use scenarios::{Broken, Scenario, TRANSCRIPT_SEED, find, keeps_from_reality, list, tell};
use testkit::real::Cluster;
use testkit::sim::write_trace_lines;
use testkit::stage::{KafkaStage, RealStage, SimStage};

use crate::bugs::{BugArgument, switch_on};
use crate::history_file::HistoryFile;

/// What to do with the stories.
#[derive(Debug, Subcommand)]
pub enum ScenarioCommand {
    /// Names every story, with its rules and what it shows.
    List,
    /// Tells a story as it happens: a line per event, a column per broker.
    Run(RunArguments),
}

/// Options of `scenario run`.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The story's name, as `scenario list` has it.
    name: String,
    /// Tell it with a cluster of processes on this machine, in real time.
    #[arg(long, conflicts_with_all = ["trace", "seed", "names"])]
    real: bool,
    /// Tell it with a cluster of Apache Kafka: needs Java, and refkafka where its sources are or where
    /// the variable REFKAFKA says.
    #[arg(long, conflicts_with_all = ["real", "trace", "seed"])]
    kafka: bool,
    /// Write every event of every node to this file as JSON Lines. (A real cluster tells no events.)
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write what the story's clients do to this file, as JSON Lines for `check --history` and for checkers from
    /// outside. (Stories that delete records, or elect leaders uncleanly, lose some by right.)
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Where all chance comes from: the same seed tells the same story.
    #[arg(long, default_value_t = TRANSCRIPT_SEED)]
    seed: u64,
    #[command(flatten)]
    bug: BugArgument,
}

/// Lists the stories, or tells one; an error when it is not true.
pub fn run(command: &ScenarioCommand) -> Result<()> {
    let mut out = std::io::stdout();
    match command {
        ScenarioCommand::List => write_list(&mut out),
        ScenarioCommand::Run(arguments) => {
            let scenario = find(&arguments.name)?;
            let history = HistoryFile::create(arguments.history.as_deref())?;
            if arguments.real {
                run_real(scenario, history, &mut out)
            } else if arguments.kafka {
                run_kafka(scenario, history, &mut out)
            } else {
                let bugs = arguments.bug.bugs()?;
                let trace = arguments.trace.as_deref();
                let files = (trace, history);
                run_simulated(scenario, arguments.seed, &bugs, files, &mut out)
            }
        }
    }
}

fn write_list(out: &mut dyn Write) -> Result<()> {
    let rules = |scenario: &Scenario| scenario.rules.join(",");
    let width = |of: &dyn Fn(&Scenario) -> usize| list().iter().map(of).max().unwrap_or(0);
    let name_width = width(&|scenario| scenario.name.len());
    let rules_width = width(&|scenario| rules(scenario).len());
    for scenario in list() {
        let (name, rules) = (scenario.name, rules(scenario));
        let note = if keeps_from_reality(scenario).is_some() { " (simulated only)" } else { "" };
        writeln!(out, "{name:<name_width$}  {rules:<rules_width$}  {}{note}", scenario.title)?;
    }
    Ok(())
}

fn run_real(scenario: &Scenario, history: HistoryFile, out: &mut dyn Write) -> Result<()> {
    if let Some(ability) = keeps_from_reality(scenario) {
        bail!("{} wants {ability}, which only the simulator can", scenario.name);
    }
    let cluster = Cluster::builder().binary(std::env::current_exe()?);
    let mut stage = RealStage::start_with(scenario.needs, cluster)?;
    history.recorder().into_iter().for_each(|recorder| stage.record_history(recorder));
    let told = tell(scenario, &mut stage, &mut printer(out)).map(|_| ());
    history.write()?;
    verdict(scenario, told)
}

fn run_kafka(scenario: &Scenario, history: HistoryFile, out: &mut dyn Write) -> Result<()> {
    if let Some(ability) = scenario.demands.first() {
        bail!("{} wants {ability}, which nobody can with Kafka's processes", scenario.name);
    }
    let mut stage = KafkaStage::start_kafka(scenario.needs)?;
    history.recorder().into_iter().for_each(|recorder| stage.record_history(recorder));
    let told = tell(scenario, &mut stage, &mut printer(out)).map(|_| ());
    history.write()?;
    verdict(scenario, told)
}

fn run_simulated(
    scenario: &Scenario,
    seed: u64,
    bugs: &[Bug],
    (trace, history): (Option<&Path>, HistoryFile),
    out: &mut dyn Write,
) -> Result<()> {
    // Made first: who cannot have the trace should not wait for the story.
    let file = trace.map(|path| {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        anyhow::Ok((path, file))
    });
    let file = file.transpose()?;
    let mut stage = SimStage::start(scenario.needs, seed)?;
    switch_on(bugs);
    history.recorder().into_iter().for_each(|recorder| stage.record_history(recorder));
    let told = tell(scenario, &mut stage, &mut printer(out)).map(|_| ());
    if let Some((path, file)) = file {
        let entries = stage.simulation().events_since(0);
        write_trace_lines(&entries, &mut BufWriter::new(file))
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{} events in {}", entries.len(), path.display());
    }
    history.write()?;
    verdict(scenario, told)
}

/// Prints each line at once. Who closes the pipe has heard enough; the story's end still counts.
fn printer(out: &mut dyn Write) -> impl FnMut(&str) + '_ {
    move |line| {
        let _ = writeln!(out, "{line}").and_then(|()| out.flush());
    }
}

/// What was told already is not told again.
fn verdict(scenario: &Scenario, told: Result<()>) -> Result<()> {
    told.map_err(|error| {
        if error.downcast_ref::<Broken>().is_some() {
            anyhow::anyhow!("{} is not as it must be", scenario.name)
        } else {
            error
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_that_is_not_true_fails_with_its_verdict_and_leaves_its_trace() {
        let scenario = Scenario {
            script: |story| {
                story.until_leader(1)?;
                story.claim("the moon is a broker", false)
            },
            ..*find("H01").expect("a story")
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("trace.jsonl");
        let mut out = Vec::new();
        let no_history = HistoryFile::create(None).expect("nothing to make");
        let error = run_simulated(&scenario, 1, &[], (Some(&path), no_history), &mut out)
            .expect_err("it is not true");
        assert_eq!(error.to_string(), "H01 is not as it must be");
        let text = String::from_utf8(out).expect("text");
        let end = "verdict: NOT as it must be: not so: the moon is a broker\n";
        assert!(text.ends_with(end), "{text}");
        assert_eq!(text.matches("NOT as it must be").count(), 1, "{text}");
        let trace = std::fs::read_to_string(&path).expect("a trace");
        assert!(trace.contains(r#""event":"BecameLeader""#), "{trace}");
    }
}
