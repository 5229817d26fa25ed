//! I02 (KIP-107): records are deleted by moving the log's start. The answer comes when all live replicas
//! have moved theirs; -1 means all that is committed; beyond that, and at a follower, it is refused.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "I02",
    rules: &["I02", "F03"],
    title: "deleting records moves the start of every replica",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 5)?;
    story.write(-1, "b", 5)?;
    let seen = story.delete_records(1, 11)?;
    story.claim_same("beyond what is committed (1)", &seen.0, &1)?;
    let seen = story.delete_records(2, 3)?;
    story.claim_same("at a follower (6)", &seen.0, &6)?;
    let seen = story.delete_records(1, 7)?;
    story.claim_same("within a batch, too", &seen, &(0, 7))?;
    let seen = story.list_offset(1, 7, -1, -2)?;
    story.claim_same("the log starts there", &seen, &(0, 7))?;
    for node in [1, 2, 3] {
        let seen = story.fetch(node, Ask { offset: 6, ..CONSUMER })?;
        story.claim_same(
            "what is deleted is out of range, at every replica",
            &seen.error_code,
            &1,
        )?;
        let seen = story.fetch(node, Ask { offset: 7, ..CONSUMER })?;
        story.claim_same("what is not is there", &seen.log_start, &7)?;
    }
    let seen = story.delete_records(1, -1)?;
    story.claim_same("all that is committed", &seen, &(0, 10))?;
    let offset = story.produce(-1, &["c"])?;
    story.claim_same("offsets go on", &offset, &10)?;
    Ok(())
}
