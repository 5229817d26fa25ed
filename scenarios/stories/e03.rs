//! E03 (KIP-320): a consumer has read ten records; an unclean election takes four of them back, and others
//! come in their place. The consumer must be able to see that: by asking where its epoch ends, or by the fetch
//! itself. One that says nothing of its epoch is out of range.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario, UNCLEAN_NODES};

pub const SCENARIO: Scenario = Scenario {
    name: "E03",
    rules: &["E03", "E02", "T05", "C05"],
    title: "a consumer finds out that what it read is gone",
    replicas: &[4, 5],
    configs: &[("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")],
    needs: UNCLEAN_NODES,
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.write(-1, "a", 6)?;
    story.until_log_end(5, 6)?;
    let old = story.partition()?.leader_epoch;
    story.kill(5)?;
    story.until_isr(&[4])?;
    story.write(1, "b", 4)?;
    story.until_high_watermark(4, 10)?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads ten records", &read.len(), &10)?;
    story.hand_over(4, 5)?;
    story.write(1, "c", 3)?;
    let now = story.partition()?.leader_epoch;
    let seen = story.epoch_end(5, now, old)?;
    story.claim_same("its epoch ends at 6 here", &seen, &(0, old, 6))?;
    let ask = Ask { offset: 10, current_epoch: now, ..CONSUMER };
    let seen = story.fetch(5, Ask { last_epoch: old, ..ask })?;
    story.claim_same(
        "the fetch says the same, without an error",
        &(seen.error_code, seen.diverging),
        &(0, Some((old, 6))),
    )?;
    let seen = story.fetch(5, ask)?;
    story.claim_same("without an epoch it is out of range", &seen.error_code, &1)?;
    let seen = story.fetch(5, Ask { offset: 6, last_epoch: old, ..ask })?;
    story.claim_same(
        "from 6 on it reads what is there now",
        &values(&seen.records),
        &vec!["c0", "c1", "c2"],
    )?;
    Ok(())
}
