//! Named stories of a cluster. Each is one file in `stories/`, a script over [`testkit::stage::Stage`],
//! told by the simulator and by a real cluster alike; what the simulator tells is kept whole in
//! `transcripts/`.
//!
//! A story says what it does (`--`), what every broker decided (a line each, a column per broker), how
//! the replicas stand then (`=`), and what must be true (`ok`). It fails at the first claim that is not.

mod asking;
mod controllers;
mod producers;
mod sessions;
#[path = "../stories/mod.rs"]
mod stories;
mod story;

use anyhow::{Context, Result, bail};
use testkit::stage::{Ability, ClusterNeeds, KafkaStage, RealStage, SimStage, Stage};

pub use stories::list;
pub use story::{Broken, Story, Transcript};

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
    /// Other brokers that have a column, since the topic moves to them.
    pub also_shown: &'static [i32],
    /// Its topic's configs.
    pub configs: &'static [(&'static str, &'static str)],
    /// The cluster it needs.
    pub needs: ClusterNeeds,
    /// What its stage must be able to do; a stage that cannot does not tell it.
    pub demands: &'static [Ability],
    /// How it goes.
    pub script: fn(&mut Story<'_>) -> Result<()>,
}

impl std::fmt::Debug for Scenario {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.name, self.title)
    }
}

/// What most stories have in common: three nodes and no wishes. Each names itself, its replicas and its
/// script.
const PLAIN: Scenario = Scenario {
    name: "",
    rules: &[],
    title: "",
    replicas: &[],
    also_shown: &[],
    configs: &[],
    needs: ClusterNeeds::nodes(3),
    demands: &[],
    script: |_| Ok(()),
};

/// Five nodes that elect leaders outside the ISR: two brokers take turns, and the controllers go on.
const UNCLEAN_NODES: ClusterNeeds = ClusterNeeds {
    settings: &[("unclean.leader.election.enable", "true")],
    ..ClusterNeeds::nodes(5)
};

/// The seed with which the kept transcripts were told.
pub const TRANSCRIPT_SEED: u64 = 1;

/// The story of that name, in any case.
///
/// # Errors
/// When there is none; the error says which there are.
pub fn find(name: &str) -> Result<&'static Scenario> {
    let found = list().iter().find(|scenario| scenario.name.eq_ignore_ascii_case(name));
    found.with_context(|| {
        let names: Vec<&str> = list().iter().map(|scenario| scenario.name).collect();
        format!("no story is called {name}; there are {}", names.join(", "))
    })
}

/// Stories that hold messages back, and are true in real time too. The others of their kind also look at
/// events, or at what lasts for one message only.
const HELD_IN_REAL_TIME: [&str; 1] = ["H03"];

/// What a story demands that no real cluster can do, or not so that the story is told; if anything.
pub fn keeps_from_reality(scenario: &Scenario) -> Option<Ability> {
    let is_told = HELD_IN_REAL_TIME.contains(&scenario.name);
    let mut demands = scenario.demands.iter().copied();
    demands.find(|ability| match ability {
        Ability::Cut => false,
        Ability::Hold => !is_told,
        // A real directory fails a moment later, and with the metadata's goes the node.
        Ability::FailDisk
        | Ability::LosePower
        | Ability::AskController
        | Ability::Events
        | Ability::ExactMoments => true,
    })
}

/// Tells a story on a stage that has what it needs; every line goes to `listener` as it is told.
///
/// # Errors
/// A stage that cannot do what the story demands; or, as [`Broken`], a claim that is not true or a
/// cluster that fails.
pub fn tell(
    scenario: &Scenario,
    stage: &mut dyn Stage,
    listener: &mut dyn FnMut(&str),
) -> Result<Transcript> {
    if let Some(ability) = scenario.demands.iter().find(|ability| !stage.can(**ability)) {
        let (name, stage) = (scenario.name, stage.name());
        bail!("{name} wants {ability}, which a {stage} cluster does not offer here");
    }
    Story::tell(scenario, stage, true, listener)
}

/// Tells a story as a stage without any ability would: what clients and processes can do, and nothing
/// else. So two clusters can be compared of which one can do more.
///
/// # Errors
/// A story that demands an ability; or as [`tell`].
pub fn tell_plainly(
    scenario: &Scenario,
    stage: &mut dyn Stage,
    listener: &mut dyn FnMut(&str),
) -> Result<Transcript> {
    if let Some(ability) = scenario.demands.first() {
        bail!("{} wants {ability}", scenario.name);
    }
    Story::tell(scenario, stage, false, listener)
}

/// Tells a story in the simulator.
///
/// # Errors
/// As [`tell`], and when no story has this name.
pub fn run_simulated(name: &str, seed: u64, listener: &mut dyn FnMut(&str)) -> Result<Transcript> {
    let scenario = find(name)?;
    tell(scenario, &mut SimStage::start(scenario.needs, seed)?, listener)
}

/// Tells a story with a cluster of child processes.
///
/// # Errors
/// As [`tell`], and when no story has this name.
pub fn run_real(name: &str, listener: &mut dyn FnMut(&str)) -> Result<Transcript> {
    let scenario = find(name)?;
    tell(scenario, &mut RealStage::start(scenario.needs)?, listener)
}

/// Tells a story with a cluster of Apache Kafka.
///
/// # Errors
/// As [`tell`], when no story has this name, and when Kafka or Java is not here.
pub fn run_kafka(name: &str, listener: &mut dyn FnMut(&str)) -> Result<Transcript> {
    let scenario = find(name)?;
    tell(scenario, &mut KafkaStage::start_kafka(scenario.needs)?, listener)
}
