//! H01 (KIP-101): the high watermark is one round trip behind at the followers. A fetch carries a
//! follower's end to the leader; the watermark that follows from it comes with the next answer.
//!
//! The simulator stops between the messages and shows each row of the rule's table. On a real cluster
//! the rows pass within a millisecond, so there only their order is claimed: no follower is ever ahead
//! of the leader, and all arrive.

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H01",
    rules: &["H01", "H03"],
    title: "the high watermark reaches the followers one round trip later",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "2")],
    script,
    ..PLAIN
};

fn marks(story: &mut Story<'_>) -> Result<(i64, i64, i64)> {
    let mut marks = [0; 3];
    for (node, mark) in (1..).zip(&mut marks) {
        *mark = story.replica(node)?.high_watermark;
    }
    Ok((marks[0], marks[1], marks[2]))
}

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.until_isr(&[1, 2, 3])?;
    let before = marks(story)?;
    story.claim_same("nothing is committed anywhere", &before, &(0, 0, 0))?;
    story.produce(1, &["m0"])?;
    if story.can(Ability::ExactMoments) {
        let written = marks(story)?;
        story.claim_same("written, and committed nowhere", &written, &(0, 0, 0))?;
    }
    story.until_log_end(2, 1)?;
    story.until_log_end(3, 1)?;
    story.until_high_watermark(1, 1)?;
    if story.can(Ability::ExactMoments) {
        let told = marks(story)?;
        story.claim_same(
            "the leader commits with their second fetch; they do not know yet",
            &told,
            &(1, 0, 0),
        )?;
    }
    story.until_high_watermark(2, 1)?;
    story.until_high_watermark(3, 1)?;
    let after = marks(story)?;
    story.claim_same("all know with the next answer", &after, &(1, 1, 1))?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads it", &read, &records(&["m0"]))?;
    Ok(())
}
