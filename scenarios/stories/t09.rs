//! T09 (KIP-320): a follower and the broker it asks may be an epoch apart, either way. Whoever is behind,
//! nothing is cut and nothing appended; the one who knows less learns it from the error.
//!
//! b2 loses its controllers and still believes that it leads, which needs a cut.

use anyhow::Result;
use testkit::stage::{Ability, Ask, Between, CONSUMER};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T09",
    rules: &["T09", "E01", "C01"],
    title: "brokers an epoch apart move nothing of each other",
    replicas: &[2, 3, 1],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(2)?;
    story.produce(-1, &["m0"])?;
    let old = story.partition()?.leader_epoch;
    story.cut_off(2, Between::Controllers)?;
    story.until_leader(3)?;
    let new = story.partition()?.leader_epoch;
    story.claim_same("b3 leads in the next epoch", &new, &(old + 1))?;
    let before = story.replica(2)?;
    let ask = |current_epoch| Ask { replica: 1, offset: 1, current_epoch, ..CONSUMER };
    let seen = story.fetch(2, ask(new))?;
    story.claim_same("b2 has not heard of it (75)", &seen.error_code, &75)?;
    let seen = story.fetch(3, ask(old))?;
    story.claim_same("b3 refuses the old epoch (74)", &seen.error_code, &74)?;
    let after = story.replica(2)?;
    story.claim("b2 is as it was", before == after)?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0"]))?;
    Ok(())
}
