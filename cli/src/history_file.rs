//! Histories of what clients did ([`testkit::history`]) as files: written by `sim` and `scenario run`, judged by
//! `check --history`.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use testkit::history::{Recorder, check, line, read_history, write_history};

/// Findings that are told; of the others only how many there are.
const MOST_TOLD: usize = 20;
/// Characters of a line that are told.
const MOST_CHARACTERS: usize = 160;

/// A file for a history, and who writes the history; or neither.
#[derive(Debug)]
pub struct HistoryFile(Option<(PathBuf, File, Recorder)>);

impl HistoryFile {
    /// Makes the file first: who cannot have it should not wait for what it is about.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn create(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else {
            return Ok(Self(None));
        };
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self(Some((path.to_owned(), file, Recorder::new()))))
    }

    /// Who writes the history down, if it is wanted.
    pub fn recorder(&self) -> Option<Recorder> {
        self.0.as_ref().map(|(_, _, recorder)| recorder.clone())
    }

    /// Writes what was done so far, if it is wanted.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(self) -> Result<()> {
        let Some((path, file, recorder)) = self.0 else {
            return Ok(());
        };
        let operations = recorder.operations();
        write_history(&operations, &mut BufWriter::new(file))
            .with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("{} lines in {}", operations.len(), path.display());
        Ok(())
    }
}

/// Reads a history and tells what is broken, with the lines that show it.
///
/// # Errors
/// What is no history, and one in which something is broken.
pub fn judge(path: &Path, out: &mut dyn Write) -> Result<()> {
    let shown = path.display();
    let file = File::open(path).with_context(|| format!("cannot read {shown}"))?;
    let operations = read_history(BufReader::new(file)).with_context(|| format!("{shown}"))?;
    let report = check(&operations);
    for broken in report.broken.iter().take(MOST_TOLD) {
        writeln!(out, "BROKEN {broken}")?;
        for index in &broken.lines {
            let found = operations.binary_search_by_key(index, |operation| operation.index);
            let text = found.ok().and_then(|at| operations.get(at)).map(line).unwrap_or_default();
            writeln!(out, "    {}", shortened(&text))?;
        }
    }
    if let Some(more) = report.broken.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        writeln!(out, "and {more} more")?;
    }
    writeln!(
        out,
        "{} records sent, {} of them acknowledged with acks=-1; {} polls of {} records",
        report.sent, report.acknowledged, report.polls, report.read
    )?;
    if report.unseen > 0 {
        writeln!(out, "{} acknowledged records were read by nobody", report.unseen)?;
    }
    if !report.broken.is_empty() {
        bail!("{} times something is broken that must hold", report.broken.len());
    }
    writeln!(out, "nothing is broken")?;
    Ok(())
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_owned(),
    }
}
