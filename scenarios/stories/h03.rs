//! H03 (KIP-497): a leader proposes to take a follower into the ISR. Until it knows the controller's
//! answer, the follower may or may not be in it, and could be elected; so from the proposal on, nothing is
//! committed without it.
//!
//! The proposal is held back to look at the time in between, so this is for the simulator.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Between, Message};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H03",
    rules: &["H03", "H13"],
    title: "a newcomer counts from the moment it is proposed",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    demands: &[Ability::Cut, Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    story.cut_off(3, Between::Brokers)?;
    story.produce(1, &["b"])?;
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(1, 3)?;
    let proposal = story.hold(Message::AlterPartition, Some(1), None)?;
    story.heal()?;
    story.until_held(proposal)?;
    let fetches = story.hold(Message::Fetch, Some(3), Some(1))?;
    // Whatever b3 has on its way already is through.
    story.pass(Duration::from_millis(400))?;
    story.write(1, "c", 2)?;
    story.until_log_end(2, 5)?;
    story.pass(Duration::from_millis(100))?;
    let mark = story.replica(1)?.high_watermark;
    story.claim_same("both of the ISR have it, and b1 waits for b3", &mark, &3)?;
    story.release(proposal)?;
    story.until_isr(&[1, 2, 3])?;
    let mark = story.replica(1)?.high_watermark;
    story.claim_same("b1 waits for b3 still", &mark, &3)?;
    story.release(fetches)?;
    story.until_high_watermark(1, 5)?;
    Ok(())
}
