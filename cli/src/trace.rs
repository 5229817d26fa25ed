//! `highwater trace`: a trace of JSON Lines, as `scenario run --trace` writes it, made into something to look at.

use std::fs::File;
use std::io::{BufReader, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use testkit::trace::{html, mermaid, read_trace};

/// What to make of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// A page that needs nothing else.
    Html,
    /// A Mermaid sequence diagram.
    Mermaid,
}

/// Options of `trace`.
#[derive(Debug, Args)]
pub struct TraceArguments {
    /// The trace.
    file: PathBuf,
    /// What to make of it; written to standard output.
    ///
    /// A trace tells what brokers decide, not what clients did: `sim --history` and `scenario run --history`
    /// write that, as a history for checkers.
    #[arg(long = "to", value_enum)]
    form: Form,
    /// Only what concerns this partition (as `t-0`), and events of nodes and the cluster.
    #[arg(long, value_name = "TOPIC-INDEX")]
    partition: Option<String>,
    /// The most events in a diagram; what is left out is counted in it.
    #[arg(long, default_value_t = 200, value_name = "N")]
    most: usize,
}

/// Prints the trace in its new form.
pub fn run(arguments: &TraceArguments) -> Result<()> {
    let path = arguments.file.display();
    let file = File::open(&arguments.file).with_context(|| format!("cannot read {path}"))?;
    let mut lines = read_trace(BufReader::new(file)).with_context(|| format!("{path}"))?;
    if let Some(wanted) = &arguments.partition {
        let is_there = lines.iter().any(|line| line.partition().as_ref() == Some(wanted));
        ensure!(is_there, "{path} has no event of partition {wanted}");
        lines.retain(|line| line.partition().is_none_or(|partition| partition == *wanted));
    }
    let text = match arguments.form {
        Form::Html => html(&lines, &path.to_string()),
        Form::Mermaid => mermaid(&lines, arguments.most),
    };
    match std::io::stdout().write_all(text.as_bytes()) {
        // Who closes the pipe has seen enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
