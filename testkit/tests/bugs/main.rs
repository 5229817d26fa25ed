//! The historical bugs of `replication::bugs`, on and off: for each a story in which an invariant fails
//! with the bug on and none fails with it off, and a random search that finds it. This is the proof that
//! the invariants can fail.

mod search;
mod shrinking;
mod stories;
#[allow(dead_code)]
#[path = "../sim/support.rs"]
mod support;

use anyhow::Result;
use replication::bugs::Bug;
use testkit::invariants::{FaultModel, Violation};
use testkit::sim::{SimConfig, Simulation};

use support::cluster_of;

/// A cluster and what happens to it.
struct Story {
    bug: Bug,
    /// The invariant that fails with the bug on.
    breaks: &'static str,
    seed: u64,
    nodes: i32,
    replicas: &'static [i32],
    min_isr: usize,
    model: FaultModel,
    script: fn(&mut Simulation) -> Result<()>,
}

impl Story {
    const USUAL: Story = Story {
        bug: Bug::ALL[0],
        breaks: "",
        seed: 11,
        nodes: 3,
        replicas: &[1, 2, 3],
        min_isr: 1,
        model: FaultModel { unclean_elections: false, lossy_crashes: false },
        script: |_| Ok(()),
    };

    fn play(&self, bugs: &[Bug]) -> Result<()> {
        let mut config = SimConfig::new(self.seed)
            .set("min.insync.replicas", self.min_isr)
            .set("unclean.leader.election.enable", self.model.unclean_elections);
        config.nodes = self.nodes;
        config.model = self.model;
        config.bugs = bugs.to_vec();
        let mut simulation = cluster_of(config, self.replicas, &[])?;
        (self.script)(&mut simulation)?;
        simulation.check_everything()
    }

    /// The story is told twice.
    fn tell(&self) {
        if let Err(error) = self.play(&[]) {
            panic!("{:?} off, and yet: {error:?}", self.bug);
        }
        let Err(error) = self.play(&[self.bug]) else {
            panic!("{:?} is on, and every invariant holds", self.bug);
        };
        match error.downcast_ref::<Violation>() {
            Some(violation) => {
                println!("{:?}: {violation}", self.bug);
                assert_eq!(violation.invariant, self.breaks, "{error:?}");
            }
            None => panic!("{:?} breaks the story and no invariant: {error:?}", self.bug),
        }
    }
}
