//! C07 (KIP-455): a partition moves to other brokers. The new replicas are added first and count once they
//! have caught up; when all of them are in the ISR the old ones are removed, and their logs go.
//!
//! The simulator holds one newcomer back, to show that adding changes no epoch and that the move waits.

use anyhow::Result;
use testkit::stage::{Ability, ClusterNeeds, Message};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C07",
    rules: &["C07", "C04", "H03"],
    title: "a reassignment ends when the new replicas are in the ISR",
    replicas: &[1, 2, 3],
    also_shown: &[4, 5],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 5)?;
    let before = story.partition()?.leader_epoch;
    let held = if story.can(Ability::Hold) {
        Some(story.hold(Message::Fetch, Some(5), None)?)
    } else {
        None
    };
    story.reassign(&[3, 4, 5])?;
    if let Some(held) = held {
        story.until_isr(&[1, 2, 3, 4])?;
        let epoch = story.partition()?.leader_epoch;
        story.claim_same("adding replicas is no new epoch", &epoch, &before)?;
        story.release(held)?;
    }
    story.until_isr(&[3, 4, 5])?;
    story.until_leader(3)?;
    let after = story.partition()?.leader_epoch;
    story.claim("removing the leader is", after > before)?;
    story.until_gone(1)?;
    story.until_gone(2)?;
    story.produce(-1, &["b"])?;
    let kept = story.read_replica(5)?;
    story.claim_same(
        "b5 has everything",
        &values(&kept),
        &vec!["a0", "a1", "a2", "a3", "a4", "b"],
    )?;
    Ok(())
}
