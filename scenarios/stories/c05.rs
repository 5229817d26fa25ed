//! C05: the only in-sync replica is dead, another one lives and misses a record. Without unclean elections
//! nobody leads until the first is back; readers and writers are refused, and nothing is lost.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::ClusterNeeds;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C05",
    rules: &["C05", "C03", "C04", "C06"],
    title: "without unclean elections a partition waits for its ISR",
    replicas: &[4, 5],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.produce(-1, &["m0"])?;
    story.kill(5)?;
    story.until_isr(&[4])?;
    story.produce(-1, &["m1"])?;
    story.kill(4)?;
    story.until_leaderless()?;
    story.start(5)?;
    story.pass(Duration::from_secs(4))?;
    let seen = story.partition()?;
    story.claim_same("b5 lives, and nobody leads", &(seen.leader, seen.isr), &(-1, vec![]))?;
    let refused = story.produce_to(5, -1, &["refused"], Duration::from_secs(1))?;
    story.claim_same("writes are refused (6)", &refused.error_code, &6)?;
    story.start(4)?;
    story.until_leader(4)?;
    story.until_isr(&[4, 5])?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0", "m1"]))?;
    Ok(())
}
