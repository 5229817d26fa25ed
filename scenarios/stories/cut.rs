//! A network cut (H03, H06, H09): a follower that its leader cannot reach leaves the ISR after
//! replica.lag.time.max.ms; until then acks=all waits for it, afterwards it does not; and when the cut
//! is healed it catches up before it counts again.
//!
//! Where no real link can be cut (that needs root), b3 is frozen instead, which also stops its heartbeats,
//! so it leaves the ISR by the session timeout or by its lag, whichever is first.

use anyhow::Result;
use testkit::stage::{Ability, Between};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "cut",
    rules: &["H03", "H04", "H06", "H09", "H13"],
    title: "a follower that is cut off leaves the ISR, and joins again when it has caught up",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "2")],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.until_isr(&[1, 2, 3])?;
    story.produce(-1, &["m0"])?;
    let can_cut = story.can(Ability::Cut);
    if can_cut {
        story.cut_off(3, Between::Brokers)?;
    } else {
        story.freeze(3)?;
    }
    story.produce(1, &["m1"])?;
    if story.can(Ability::ExactMoments) {
        story.until_log_end(2, 2)?;
        let mark = story.replica(1)?.high_watermark;
        story.claim_same("m1 waits for b3, which is still in the ISR", &mark, &1)?;
    }
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(1, 2)?;
    story.produce(-1, &["m2"])?;
    if can_cut {
        story.heal()?;
    } else {
        story.thaw(3)?;
    }
    story.until_isr(&[1, 2, 3])?;
    story.until_high_watermark(3, 3)?;
    let kept = story.read_replica(3)?;
    story.claim_same("b3 has everything", &kept, &records(&["m0", "m1", "m2"]))?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads it", &read, &records(&["m0", "m1", "m2"]))?;
    Ok(())
}
