//! H12: the high watermark is written to disk now and then, so after a crash it begins with an old one. A
//! leader that is its whole ISR has nobody to wait for, and commits its log at once; nothing is cut.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H12",
    rules: &["H12", "T01", "T12", "C04"],
    title: "a restart begins with the watermark on disk, and loses nothing",
    replicas: &[3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 4)?;
    // The watermark goes to disk meanwhile; what follows comes after it.
    story.pass(Duration::from_millis(1500))?;
    story.write(-1, "b", 4)?;
    let before = story.mark()?;
    story.hand_over(3, 3)?;
    if story.can(Ability::Events) {
        let recovered = story.since(before, 3, &["LogRecovered"])?;
        story.claim_same(
            "the disk knew of four",
            &recovered,
            &vec!["recover end 8 hw 4".into()],
        )?;
    }
    let leader = story.replica(3)?;
    story.claim_same(
        "as leader it commits all eight",
        &(leader.high_watermark, leader.log_end),
        &(8, 8),
    )?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads them", &read.len(), &8)?;
    Ok(())
}
