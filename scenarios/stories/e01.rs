//! E01 (KIP-320): a request may say which leader epoch its sender knows. Leader and follower compare it
//! with theirs before anything else: an older one is fenced (74), a newer one unknown (75), and only then does
//! it count who leads (6). Consumers may fetch from a follower since v11 (KIP-392).

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "E01",
    rules: &["E01", "K02", "F03"],
    title: "a leader epoch is compared before anything else, at leader and follower",
    replicas: &[3, 2, 1],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.produce(-1, &["m0"])?;
    story.kill(3)?;
    story.until_leader(2)?;
    story.start(3)?;
    story.until_isr(&[1, 2, 3])?;
    story.produce(-1, &["m1"])?;
    story.until_high_watermark(1, 2)?;
    let now = story.partition()?.leader_epoch;
    let (leader, follower) = (2, 1);
    for (epoch, led, followed) in [(-1, 0, 6), (now, 0, 6), (now - 1, 74, 74), (now + 1, 75, 75)] {
        let ask = Ask { current_epoch: epoch, ..CONSUMER };
        let seen = [
            story.fetch(leader, ask)?.error_code,
            story.list_offset(leader, 7, epoch, -2)?.0,
            story.epoch_end(leader, epoch, 0)?.0,
        ];
        story.claim_same("as the table has it for a leader", &seen, &[led; 3])?;
        let seen = [
            story.fetch(follower, Ask { version: 10, ..ask })?.error_code,
            story.list_offset(follower, 7, epoch, -2)?.0,
            story.epoch_end(follower, epoch, 0)?.0,
        ];
        story.claim_same("as the table has it for a follower", &seen, &[followed; 3])?;
        let seen = story.fetch(follower, ask)?.error_code;
        story.claim_same("a new consumer may read from it", &seen, &led)?;
    }
    Ok(())
}
