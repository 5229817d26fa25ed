//! K02 (KIP-392): a consumer reads from a follower that is behind. It gets what the follower knows to be
//! committed; at the follower's end it waits; beyond it the offset is out of range there, and the consumer has to ask
//! the leader before it believes that.
//!
//! b3 stays behind since its links to brokers are cut.

use anyhow::Result;
use testkit::stage::{Ability, Ask, Between, CONSUMER};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "K02",
    rules: &["K02", "F03", "E01"],
    title: "a follower that is behind gives what it knows to be committed",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    story.until_high_watermark(3, 2)?;
    story.cut_off(3, Between::Brokers)?;
    story.write(1, "b", 3)?;
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(1, 5)?;
    let seen = story.fetch(3, CONSUMER)?;
    story.claim_same("b3 gives what it has", &values(&seen.records), &vec!["a0", "a1"])?;
    story.claim_same("up to the watermark that it knows", &seen.high_watermark, &2)?;
    let epoch = story.partition()?.leader_epoch;
    let at = |offset| Ask { offset, current_epoch: epoch, ..CONSUMER };
    let seen = story.fetch(3, at(2))?;
    story.claim_same("at its end, nothing", &(seen.error_code, seen.records.len()), &(0, 0))?;
    let seen = story.fetch(3, at(4))?;
    story.claim_same("beyond it, out of range (1)", &seen.error_code, &1)?;
    let seen = story.epoch_end(1, epoch, epoch)?;
    story.claim_same("the leader knows that the epoch goes on", &seen, &(0, epoch, 5))?;
    let seen = story.fetch(1, at(4))?;
    story.claim_same("and has the record", &values(&seen.records), &vec!["b2"])?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    story.until_high_watermark(3, 5)?;
    let seen = story.fetch(3, at(4))?;
    story.claim_same("so has b3 when it has caught up", &values(&seen.records), &vec!["b2"])?;
    Ok(())
}
