//! Q04 (KIP-996): a controller that hears nothing asks the others first whether they would elect it. They hear the
//! one that decides, so they would not, and its epoch does not grow: when it is back it disturbs nobody.

use std::time::Duration;

use anyhow::{Context, Result};
use testkit::stage::{Ability, Between};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "Q04",
    rules: &["Q04", "Q01"],
    title: "a controller that comes back brings no election with it",
    replicas: &[1, 2, 3],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    let old = story.quorum()?;
    let away = [1, 2, 3].into_iter().find(|node| *node != old.leader).context("three nodes")?;
    story.cut_off(away, Between::Controllers)?;
    story.pass(Duration::from_secs(6))?;
    let seen = story.quorum_of(old.leader)?;
    story.claim_same("meanwhile nothing changes", &seen, &Ok(old))?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    story.pass(Duration::from_secs(2))?;
    let seen = story.quorum_of(old.leader)?;
    story.claim_same("nor when it is back", &seen, &Ok(old))?;
    Ok(())
}
