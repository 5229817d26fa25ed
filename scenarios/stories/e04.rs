//! E04 (KIP-951): whoever asks a broker that does not lead any more is told who does, with the address, so
//! it need not ask for metadata first. Older requests have no place for that.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "E04",
    rules: &["E04", "E01"],
    title: "the error that says who leads no more says who does",
    replicas: &[2, 3, 1],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(2)?;
    story.produce(-1, &["m0"])?;
    let old = story.partition()?.leader_epoch;
    story.kill(2)?;
    story.until_leader(3)?;
    // With this b1 follows b3 for certain.
    story.produce(-1, &["m1"])?;
    let now = story.partition()?.leader_epoch;
    let told = story.misdirected_write(1, "m2")?;
    let told = (told.error_code, told.leader);
    story.claim_same("a write is told of b3", &told, &(6, Some((3, now))))?;
    let ask = Ask { version: 16, current_epoch: old, ..CONSUMER };
    let seen = story.fetch(3, ask)?;
    story.claim_same(
        "so is a fetch of the old epoch, with b3's address",
        &(seen.error_code, seen.leader, seen.endpoints),
        &(74, Some((3, now)), vec![3]),
    )?;
    let seen = story.fetch(3, Ask { version: 15, ..ask })?;
    story.claim_same(
        "an older fetch gets the error alone",
        &(seen.error_code, seen.leader, seen.endpoints),
        &(74, None, vec![]),
    )?;
    Ok(())
}
