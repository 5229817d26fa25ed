//! Q05 (KIP-595): a controller that decides is cut off from the others and takes one more decision, which no other
//! has. The others elect another, which decides differently. When the first is back it gives its own decision up:
//! it was never answered as done. Told in the simulator only: in real time whoever asked asks again after the heal.

use anyhow::{Context, Result};
use testkit::stage::{Ability, Between};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "Q05",
    rules: &["Q05", "Q03", "Q07"],
    title: "a decision that no majority has was never taken",
    replicas: &[1, 2, 3],
    demands: &[Ability::Cut, Ability::ExactMoments],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    let old = story.quorum()?;
    let witness = [1, 2, 3].into_iter().find(|node| *node != old.leader).context("three nodes")?;
    story.cut_off(old.leader, Between::Controllers)?;
    let code = story.ask_for_topic(old.leader, "lost")?;
    story.claim("the one without a majority does not say that it is done", code != 0)?;
    story.until_other_controller(old, witness)?;
    let code = story.ask_for_topic(witness, "kept")?;
    story.claim_same("the others decide", &code, &0)?;
    story.heal()?;
    story.until_topic(old.leader, "kept")?;
    story.until_isr(&[1, 2, 3])?;
    for node in [1, 2, 3] {
        let known = story.topic_known(node, "lost")?;
        story.claim("what it decided alone is nowhere", !known)?;
    }
    Ok(())
}
