//! T05 (KIP-320): a reader says which epoch its last record is of. If that epoch is unknown to the
//! leader, or ends before the reader's offset, the answer is where the leader's own history ends for it.
//!
//! One replica, restarted twice: every return is two epochs later (one for nobody, one for it). The same on
//! both stages.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T05",
    rules: &["T05", "E03", "F02"],
    title: "a reader is told where its history ends",
    replicas: &[3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(1, "a", 2)?;
    for name in ["b", "c"] {
        story.hand_over(3, 3)?;
        story.write(1, name, 3)?;
    }
    let epoch = story.partition()?.leader_epoch;
    story.claim_same("the log is e0[0,2) e2[2,5) e4[5,8)", &epoch, &4)?;
    for (last_epoch, offset, parts) in [
        (0, 2, None),
        (2, 5, None),
        (4, 8, None),
        (1, 3, Some((0, 2))),
        (0, 4, Some((0, 2))),
        (3, 6, Some((2, 5))),
        (2, 7, Some((2, 5))),
        (4, 9, Some((4, 8))),
    ] {
        let ask = Ask { offset, last_epoch, current_epoch: epoch, ..CONSUMER };
        let seen = story.fetch(3, ask)?;
        let told = (seen.error_code, seen.diverging);
        story.claim_same("as the table has it", &told, &(0, parts))?;
    }
    let above = Ask { offset: 5, last_epoch: 11, current_epoch: epoch, ..CONSUMER };
    let seen = story.fetch(3, above)?;
    story.claim_same("an epoch of the future is out of range", &seen.error_code, &1)?;
    Ok(())
}
