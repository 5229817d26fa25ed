//! H09: a follower is out of sync when it is behind for longer than replica.lag.time.max.ms. One that has
//! everything is not behind, however long it is silent.
//!
//! Its links to brokers are cut, and not those to the controllers: its session goes on.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Between};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H09",
    rules: &["H09", "H03"],
    title: "a silent follower leaves only when there is something to fetch",
    replicas: &[1, 2, 3],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    story.until_log_end(3, 1)?;
    story.cut_off(3, Between::Brokers)?;
    story.pass(Duration::from_secs(6))?;
    let isr = story.partition()?.isr;
    story.claim_same("nothing to fetch, nothing missed", &isr, &vec![1, 2, 3])?;
    story.produce(1, &["m1"])?;
    story.until_isr(&[1, 2])?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    let kept = story.read_replica(3)?;
    story.claim_same("it came back with everything", &kept, &records(&["m0", "m1"]))?;
    Ok(())
}
