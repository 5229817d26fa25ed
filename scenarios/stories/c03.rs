//! C03, H10 (KIP-841): a leader that is to stop says so first. It leaves every ISR, its partitions get other
//! leaders, and only then it ends: no acknowledged record is lost, no writer waits for a session to time out,
//! and it is not let into an ISR again while it stops.

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C03",
    rules: &["C03", "H10", "C04"],
    title: "a leader that stops is replaced first",
    replicas: &[3, 2, 1],
    configs: &[("min.insync.replicas", "2")],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 3)?;
    let before = story.mark()?;
    story.stop(3)?;
    story.until_leader(2)?;
    story.until_isr(&[1, 2])?;
    let offset = story.produce(-1, &["b"])?;
    story.claim_same("writing goes on", &offset, &3)?;
    if story.can(Ability::Events) {
        let changes = story.since(before, 0, &["LeaderElected", "IsrChanged"])?;
        let has_left = changes.iter().all(|change| !change.contains('3'));
        story.claim("b3 came into no ISR again", has_left)?;
    }
    story.start(3)?;
    story.until_isr(&[1, 2, 3])?;
    let kept = story.read_replica(3)?;
    story.claim_same("b3 catches up", &values(&kept), &vec!["a0", "a1", "a2", "b"])?;
    Ok(())
}
