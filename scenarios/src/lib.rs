//! Named stories of a cluster. Each is one file in `stories/`, a script over [`testkit::stage::Stage`],
//! told by the simulator and by a real cluster alike; what the simulator tells is kept whole in
//! `transcripts/`.
//!
//! A story says what it does (`--`), what every broker decided (a line each, a column per broker), how
//! the replicas stand then (`=`), and what must be true (`ok`). It fails at the first claim that is not.

#[path = "../stories/c01.rs"]
mod c01;
#[path = "../stories/cut.rs"]
mod cut;
#[path = "../stories/h01.rs"]
mod h01;
mod story;
#[path = "../stories/t01.rs"]
mod t01;
#[path = "../stories/t03.rs"]
mod t03;

use anyhow::{Context, Result};
use testkit::stage::{ClusterNeeds, RealStage, SimStage, Stage};

pub use story::{Story, Transcript};

/// A story that can be told.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// The name by which it is asked for.
    pub name: &'static str,
    /// The rules it shows, by id.
    pub rules: &'static [&'static str],
    /// What it shows, in a sentence.
    pub title: &'static str,
    /// The replicas of its topic, the preferred leader first.
    pub replicas: &'static [i32],
    /// Its topic's configs.
    pub configs: &'static [(&'static str, &'static str)],
    /// The cluster it needs.
    pub needs: ClusterNeeds,
    /// How it goes.
    pub script: fn(&mut Story<'_>) -> Result<()>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.title)
    }
}

/// The seed with which the kept transcripts were told.
pub const TRANSCRIPT_SEED: u64 = 1;

/// All stories, by name.
pub fn list() -> &'static [Scenario] {
    &[t01::SCENARIO, t03::SCENARIO, h01::SCENARIO, c01::SCENARIO, cut::SCENARIO]
}

/// The story of that name, in any case.
pub fn find(name: &str) -> Option<&'static Scenario> {
    list().iter().find(|scenario| scenario.name.eq_ignore_ascii_case(name))
}

/// Tells a story on a stage that has what it needs; every line goes to `listener` as it is told.
///
/// # Errors
/// An unknown name, a claim that is not true, or a cluster that fails; the lines told say how far it
/// came.
pub fn run(
    name: &str,
    stage: &mut dyn Stage,
    listener: &mut dyn FnMut(&str),
) -> Result<Transcript> {
    let scenario = find(name).with_context(|| format!("no story is called {name}"))?;
    Story::tell(scenario, stage, listener)
}

/// Tells a story in the simulator.
///
/// # Errors
/// As [`run`].
pub fn run_simulated(name: &str, seed: u64, listener: &mut dyn FnMut(&str)) -> Result<Transcript> {
    let scenario = find(name).with_context(|| format!("no story is called {name}"))?;
    run(name, &mut SimStage::start(scenario.needs, seed)?, listener)
}

/// Tells a story with a cluster of child processes.
///
/// # Errors
/// As [`run`].
pub fn run_real(name: &str, listener: &mut dyn FnMut(&str)) -> Result<Transcript> {
    let scenario = find(name).with_context(|| format!("no story is called {name}"))?;
    run(name, &mut RealStage::start(scenario.needs)?, listener)
}
