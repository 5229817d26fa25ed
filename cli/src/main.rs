//! The `highwater` binary: starts clusters and nodes, and looks at them.

mod bugs;
mod check;
mod control;
mod describe;
mod fault;
mod health;
mod history_file;
mod kept_data;
mod logging;
mod ready;
mod scenario;
mod serve;
mod settings;
mod sim;
mod trace;
mod up;
mod up_controlled;
mod up_processes;
mod up_threads;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A Kafka-compatible cluster that you can see, break and trust.
#[derive(Debug, Parser)]
#[command(version, about, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Without a command: the options of `up`.
    #[command(flatten)]
    up: up::UpArguments,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Starts a cluster on this machine and runs it until Ctrl-C.
    Up(up::UpArguments),
    /// Runs one node from a Kafka-style properties file.
    Serve(serve::ServeArguments),
    /// Asks a broker whether it serves; exits with 0 if it does.
    Health(health::HealthArguments),
    /// Watches a running cluster, this one or Apache Kafka, for broken promises, or judges a history of what clients
    /// did; exits with 1 if it saw any.
    Check(check::CheckArguments),
    /// Shows a cluster that `up --control` runs: nodes, partitions, every replica, faults.
    Describe(describe::DescribeArguments),
    /// Breaks a cluster that `up --control` runs: kills, cuts, holds messages back, and mends.
    Fault(fault::FaultArguments),
    /// Makes a page or a diagram of a trace.
    Trace(trace::TraceArguments),
    /// Tells stories of replication: what breaks, what every broker decides, what must be true.
    #[command(subcommand)]
    Scenario(scenario::ScenarioCommand),
    /// Runs a simulated cluster through random faults, many times.
    Sim(sim::SimArguments),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.command {
        None => up::run(&arguments.up),
        Some(Command::Up(arguments)) => up::run(&arguments),
        Some(Command::Serve(arguments)) => serve::run(&arguments),
        Some(Command::Health(arguments)) => health::run(&arguments),
        Some(Command::Check(arguments)) => check::run(&arguments),
        Some(Command::Describe(arguments)) => describe::run(&arguments),
        Some(Command::Fault(arguments)) => fault::run(&arguments),
        Some(Command::Trace(arguments)) => trace::run(&arguments),
        Some(Command::Scenario(command)) => scenario::run(&command),
        Some(Command::Sim(arguments)) => sim::run(&arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("highwater: {}", told(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, leaving out those that an error before them has told already.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    #[test]
    fn a_cause_is_told_once() {
        let told = |text: &str| {
            let error =
                Err::<(), _>(std::io::Error::other("disk on fire")).context(text.to_owned());
            super::told(&error.expect_err("a failure"))
        };
        assert_eq!(told("cannot read x: disk on fire"), "cannot read x: disk on fire");
        assert_eq!(told("cannot read x"), "cannot read x: disk on fire");
    }
}
