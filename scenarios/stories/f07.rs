//! F07 (KIP-79, KIP-734): offsets by time, and the special ones: of an empty log, of one with records of one time,
//! and after another leader has come.

use anyhow::Result;
use testkit::stage::TIMESTAMP_MS;

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "F07",
    rules: &["F07", "C04"],
    title: "offsets by time, and the special ones",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    for (time, offset) in [(-1, 0), (-2, 0), (-3, -1), (0, -1)] {
        let seen = story.list_offset(1, 7, -1, time)?;
        story.claim_same("of an empty log", &seen, &(0, offset))?;
    }
    for value in ["a", "b", "c"] {
        let sent = story.send_write(1, -1, value)?;
        story.written(sent)?;
    }
    let (then, later) = (TIMESTAMP_MS, TIMESTAMP_MS + 1);
    let table = [(-1, 3), (-2, 0), (-3, 0), (0, 0), (then, 0), (later, -1)];
    for (time, offset) in table {
        let seen = story.list_offset(1, 7, -1, time)?;
        story.claim_same("of three records of one time", &seen, &(0, offset))?;
    }
    let seen = story.list_offset(1, 9, -1, -4)?;
    story.claim_same("the earliest here, where all is here", &seen, &(0, 0))?;
    let seen = story.list_offset(1, 9, -1, -5)?;
    story.claim_same("nothing is anywhere else", &seen, &(0, -1))?;
    let seen = story.list_offset(1, 7, -1, -9)?;
    story.claim_same("no such time (35)", &seen.0, &35)?;
    story.kill(1)?;
    story.until_leader(2)?;
    story.until_high_watermark(2, 3)?;
    for (time, offset) in table {
        let seen = story.list_offset(2, 7, -1, time)?;
        story.claim_same("the next leader says the same", &seen, &(0, offset))?;
    }
    Ok(())
}
