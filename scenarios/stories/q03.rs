//! Q03 (KAFKA-15489): a controller that decides hears no majority any more. It must stop deciding by itself, since
//! it cannot hear that the others have elected another; and the others do.

use anyhow::{Context, Result};
use testkit::stage::{Ability, Between};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "Q03",
    rules: &["Q03", "Q01", "C01"],
    title: "a controller without a majority decides nothing more",
    replicas: &[1, 2, 3],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    let old = story.quorum()?;
    let witness = [1, 2, 3].into_iter().find(|node| *node != old.leader).context("three nodes")?;
    story.cut_off(old.leader, Between::Controllers)?;
    let new = story.until_other_controller(old, witness)?;
    story.claim("in a later epoch", new.epoch > old.epoch)?;
    let seen = story.quorum_of(old.leader)?;
    let decides = seen.is_ok_and(|view| view.leader == old.leader);
    story.claim("the old one does not say that it decides", !decides)?;
    let code = story.ask_for_topic(witness, "made")?;
    story.claim_same("the others go on deciding", &code, &0)?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    let after = story.quorum()?;
    story.claim_same("the old one comes back without an election", &after, &new)?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0"]))?;
    Ok(())
}
