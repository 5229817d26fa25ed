//! T12 (KAFKA-16541): what the epochs' file says and what the log holds may part when a machine loses its power:
//! the file is safe, records may not be. Epochs that begin beyond the log's end are forgotten at the start, and
//! the broker gets them again with the records; after that it answers for its epochs as before.
//!
//! A machine that loses its power is for the simulator.

use anyhow::Result;
use testkit::stage::{Ability, Ask, CONSUMER, ClusterNeeds};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T12",
    rules: &["T12", "T05", "E02", "H12"],
    title: "a machine without power forgets records and their epochs, and learns both again",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds { power_fails: true, ..ClusterNeeds::nodes(3) },
    demands: &[Ability::LosePower],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 4)?;
    story.kill(1)?;
    story.until_leader(2)?;
    story.write(-1, "b", 4)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    story.elect(false)?;
    story.until_leader(1)?;
    story.write(-1, "c", 4)?;
    let told = story.partition()?.leader_epoch;
    story.claim_same("the log is e0[0,4) e1[4,8) e2[8,12)", &told, &2)?;
    story.lose_power(1)?;
    story.until_leader(2)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    story.elect(false)?;
    story.until_leader(1)?;
    story.produce(-1, &["d"])?;
    let now = story.partition()?.leader_epoch;
    for (asked, told) in [(0, (0, 0, 4)), (1, (0, 1, 8)), (2, (0, 2, 12)), (now, (0, now, 13))] {
        let seen = story.epoch_end(1, now, asked)?;
        story.claim_same("b1 answers for its epochs as before", &seen, &told)?;
    }
    let ask = |offset, last_epoch| Ask { offset, last_epoch, current_epoch: now, ..CONSUMER };
    let seen = story.fetch(1, ask(12, 2))?;
    story.claim_same(
        "a reader with e2[8,12) agrees",
        &(seen.error_code, seen.diverging),
        &(0, None),
    )?;
    let seen = story.fetch(1, ask(13, 2))?;
    story.claim_same("one with more of e2 does not", &seen.diverging, &Some((2, 12)))?;
    let kept = story.read_replica(1)?;
    story.claim_same("b1 has everything again", &kept.len(), &13)?;
    Ok(())
}
