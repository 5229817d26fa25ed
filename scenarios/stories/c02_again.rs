//! C02 (KIP-631): a leader dies and is started again before anybody has missed it. It is registered anew all the
//! same, and what it led goes to another: as another incarnation it may have lost what it had.

use anyhow::Result;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C02-again",
    rules: &["C02", "C01", "H11"],
    title: "a leader that is back at once does not go on leading",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    let before = story.partition()?.leader_epoch;
    story.kill(1)?;
    story.start(1)?;
    story.until_leader(2)?;
    story.until_isr(&[1, 2, 3])?;
    let after = story.partition()?;
    story.claim_same(
        "b2 leads an epoch later",
        &(after.leader, after.leader_epoch),
        &(2, before + 1),
    )?;
    let kept = story.read_replica(1)?;
    story.claim_same("b1 has what it had", &kept, &records(&["a0", "a1"]))?;
    Ok(())
}
