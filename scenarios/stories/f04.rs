//! F04: a fetch waits for records that do not come; but something else does, and it must hear of that at once and not
//! when its time is over: its leader leads no more, the epoch that it knows is over, its topic is deleted.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "F04",
    rules: &["F04", "E01", "F02"],
    title: "a fetch that waits is answered when its ground is gone",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    story.kill(1)?;
    story.until_leader(2)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    let epoch = story.partition()?.leader_epoch;
    let plain = Ask { offset: 1, version: 10, ..CONSUMER };
    let knowing = Ask { offset: 1, current_epoch: epoch, ..CONSUMER };
    let waits = story.send_fetch(2, plain)?;
    let knows = story.send_fetch(2, knowing)?;
    let code = story.elect(false)?;
    story.claim_same("another leader", &code, &0)?;
    let seen = story.fetched(waits, plain)?;
    story.claim_same("an old consumer wants the leader (6)", &seen.error_code, &6)?;
    let seen = story.fetched(knows, knowing)?;
    story.claim_same("the epoch that it knows is over (74)", &seen.error_code, &74)?;
    story.until_leader(1)?;
    let plain = Ask { offset: 1, ..CONSUMER };
    let waits = story.send_fetch(1, plain)?;
    story.produce(-1, &["m1"])?;
    let seen = story.fetched(waits, plain)?;
    story.claim_same("records end a wait, of course", &seen.records.len(), &1)?;
    let plain = Ask { offset: 2, ..CONSUMER };
    let waits = story.send_fetch(1, plain)?;
    story.delete_topic()?;
    let seen = story.fetched(waits, plain)?;
    story.claim_same("its topic is gone (3)", &seen.error_code, &3)?;
    Ok(())
}
