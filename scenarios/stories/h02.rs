//! H02 (KIP-207): a new leader knows that its records may be committed, but not yet that they are. Until
//! it does, it does not tell the latest offset, since that would be smaller than what consumers were told
//! before.
//!
//! The moment lasts for one round trip: fetches are held back to look at it, so this is for the simulator.

use anyhow::Result;
use testkit::stage::{Ability, Ask, CONSUMER, ClusterNeeds, Message};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H02",
    rules: &["H02", "H03", "C04"],
    title: "the latest offset never goes backwards",
    replicas: &[3, 4, 5],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    demands: &[Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 3)?;
    for node in [4, 5] {
        story.until_high_watermark(node, 3)?;
    }
    story.write(-1, "b", 3)?;
    let (old, next) = (story.replica(3)?, story.replica(4)?);
    story.claim_same("b3 told consumers of 6", &old.high_watermark, &6)?;
    story.claim_same(
        "b4 has the records, and has not heard of that",
        &(next.high_watermark, next.log_end),
        &(3, 6),
    )?;
    story.kill(3)?;
    let hold = story.hold(Message::Fetch, Some(5), Some(4))?;
    story.until_leader(4)?;
    let epoch = story.partition()?.leader_epoch;
    let seen = story.list_offset(4, 7, epoch, -1)?;
    story.claim_same("not available yet (78)", &seen.0, &78)?;
    let seen = story.list_offset(4, 4, epoch, -1)?;
    story.claim_same("old clients hear of no leader yet (5)", &seen.0, &5)?;
    let seen = story.list_offset(4, 7, epoch, -2)?;
    story.claim_same("the earliest is not in doubt", &seen, &(0, 0))?;
    let seen = story.fetch(4, Ask { offset: 5, ..CONSUMER })?;
    story.claim_same(
        "a consumer in between gets nothing, and no error",
        &(seen.error_code, seen.records.len()),
        &(0, 0),
    )?;
    let seen = story.fetch(4, Ask { offset: 7, ..CONSUMER })?;
    story.claim_same("one beyond the end is out of range", &seen.error_code, &1)?;
    story.release(hold)?;
    story.until_high_watermark(4, 6)?;
    let seen = story.list_offset(4, 7, epoch, -1)?;
    story.claim_same("now it is what it was", &seen, &(0, 6))?;
    Ok(())
}
