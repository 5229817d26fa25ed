//! E02: where an epoch ends is told by the largest known epoch not above the asked one: it ends where the
//! next one starts, or at the log's end. Of epochs that nobody can know nothing is told.
//!
//! One replica, restarted twice: its epochs are e0, e2 and e4.

use anyhow::Result;

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "E02",
    rules: &["E02", "T05"],
    title: "the end of an epoch is told by the largest one not above it",
    replicas: &[3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 4)?;
    for (name, count) in [("b", 6), ("c", 5)] {
        story.hand_over(3, 3)?;
        story.write(-1, name, count)?;
    }
    let now = story.partition()?.leader_epoch;
    story.claim_same("the log is e0[0,4) e2[4,10) e4[10,15)", &now, &4)?;
    for (asked, told) in [
        (4, (0, 4, 15)),
        (2, (0, 2, 10)),
        (3, (0, 2, 10)),
        (1, (0, 0, 4)),
        (9, (0, -1, -1)),
        (-1, (0, -1, -1)),
    ] {
        let seen = story.epoch_end(3, now, asked)?;
        story.claim_same("as the table has it", &seen, &told)?;
    }
    Ok(())
}
