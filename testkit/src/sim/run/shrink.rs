//! Makes a failing run smaller: its list of events is thinned by delta debugging, as long as what is left
//! still fails by the same invariant. The result is played like any run, from the same seed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::world::Simulation;
use super::RunReport;
use super::draw::Script;
use super::event::Event;
use super::plan::RunPlan;
use crate::history::Recorder;
use crate::invariants::Violation;

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct RunFailure {
    /// What it is known by: the invariant's id, or the beginning of what else went wrong.
    pub by: String,
    /// In one line.
    pub what: String,
    /// With what was done and the last events.
    pub whole: String,
}

/// A run that was made smaller.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// It.
    pub script: Script,
    /// How it fails.
    pub failure: RunFailure,
    /// How many events there were before.
    pub events_before: usize,
    /// How many runs it took.
    pub runs: usize,
}

/// Plays a script; a panic is a failure too.
///
/// # Errors
/// How it failed.
pub fn play(script: &Script, plan: &RunPlan) -> Result<RunReport, RunFailure> {
    play_and_record(script, plan, None)
}

/// Plays a script and writes down what its clients do, also when it fails.
///
/// # Errors
/// How it failed.
pub fn play_and_record(
    script: &Script,
    plan: &RunPlan,
    history: Option<&Recorder>,
) -> Result<RunReport, RunFailure> {
    let ran =
        catch_unwind(AssertUnwindSafe(|| Simulation::scripted_and_recorded(script, plan, history)));
    match ran {
        Ok(Ok(report)) => Ok(report),
        Ok(Err(error)) => {
            let root = error.root_cause().to_string();
            let what = root.lines().next().unwrap_or_default().to_owned();
            let by = match error.downcast_ref::<Violation>() {
                Some(violation) => violation.invariant.to_owned(),
                None => what.chars().take_while(|c| !c.is_ascii_digit()).collect(),
            };
            let whole = error.chain().map(ToString::to_string).collect::<Vec<_>>().join("\n");
            Err(RunFailure { by, what, whole })
        }
        Err(panic) => {
            let text = panic_text(panic.as_ref());
            let what = format!("panicked: {text}");
            Err(RunFailure { by: "panic".into(), whole: what.clone(), what })
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}

/// Makes a run that fails smaller, in at most `budget` runs; `None` when it does not fail.
pub fn shrink(script: &Script, plan: &RunPlan, budget: usize) -> Option<Shrunk> {
    let mut failure = play(script, plan).err()?;
    let mut runs = 1;
    let events = thinned(&script.events, |events: &[Event]| {
        if runs >= budget {
            return false;
        }
        runs += 1;
        let smaller = Script { events: events.to_vec(), ..script.clone() };
        match play(&smaller, plan) {
            Err(other) if other.by == failure.by => {
                failure = other;
                true
            }
            _ => false,
        }
    });
    let events_before = script.events.len();
    let script = Script { events, ..script.clone() };
    Some(Shrunk { script, failure, events_before, runs })
}

/// The least list that could be found by leaving out parts, halves first and single items at last, such
/// that `holds` is still true of it.
fn thinned<T: Clone>(items: &[T], mut holds: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut left = items.to_vec();
    let mut size = left.len().div_ceil(2).max(1);
    loop {
        let mut from = 0;
        let mut smaller = false;
        while from < left.len() {
            let to = (from + size).min(left.len());
            let without = [&left[..from], &left[to..]].concat();
            if holds(&without) {
                left = without;
                smaller = true;
            } else {
                from = to;
            }
        }
        if size > 1 {
            size = size.div_ceil(2);
        } else if !smaller {
            return left;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thinning_leaves_exactly_what_is_needed() {
        let items: Vec<u32> = (0..100).collect();
        let mut tries = 0;
        let left = thinned(&items, |some| {
            tries += 1;
            [3, 47, 48, 99].iter().all(|needed| some.contains(needed))
        });
        assert_eq!(left, [3, 47, 48, 99]);
        assert!(tries < 150, "{tries} tries");
    }

    #[test]
    fn thinning_may_leave_nothing() {
        assert!(thinned(&[1, 2, 3], |_| true).is_empty());
        assert_eq!(thinned(&[1, 2, 3], |some| some.len() == 3), [1, 2, 3]);
    }
}
