//! T11 (KAFKA-6975): a follower comes back, and what it would fetch next was deleted meanwhile. It empties
//! its log and begins at the leader's start; since that lies within a batch, the first thing it gets is the
//! whole batch, from below the start.

use anyhow::Result;
use testkit::stage::{Ability, Ask, CONSUMER};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T11",
    rules: &["T11", "I02", "F05"],
    title: "a follower below the log start begins there, with a whole batch",
    replicas: &[1, 2],
    configs: &[("min.insync.replicas", "1")],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 5)?;
    story.kill(2)?;
    story.until_isr(&[1])?;
    story.write(1, "b", 5)?;
    story.write(1, "c", 10)?;
    story.until_high_watermark(1, 20)?;
    let deleted = story.delete_records(1, 15)?;
    story.claim_same("the log starts within a batch", &deleted, &(0, 15))?;
    let seen = story.fetch(1, Ask { offset: 5, ..CONSUMER })?;
    story.claim_same("b2's next record is gone", &seen.error_code, &1)?;
    let back = story.mark()?;
    story.start(2)?;
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(2, 20)?;
    if story.can(Ability::Events) {
        let emptied = story.since(back, 2, &["TruncatedFully"])?;
        story.claim_same("b2 began anew", &emptied, &vec!["emptied, start 15".into()])?;
    }
    let seen = story.fetch(2, Ask { offset: 15, ..CONSUMER })?;
    story.claim_same(
        "b2 has what is left, from where it starts",
        &(seen.log_start, values(&seen.records)),
        &(15, vec!["c5", "c6", "c7", "c8", "c9"]),
    )?;
    Ok(())
}
