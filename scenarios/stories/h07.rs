//! H07: what a writer with acks=all hears when there are too few: 7 when it was written and could not be
//! replicated in time (and it stays), 19 when it was not written, 6 at once when the leader changes while it
//! waits, 21 for acks that do not exist.
//!
//! The last of them wants a write that waits while its leader goes: there fetches are held back, which only
//! the simulator can.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, ClusterNeeds, Message};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H07",
    rules: &["H07", "H06"],
    title: "each way in which a write with acks=all can fail has its own error",
    replicas: &[3, 4],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.produce(-1, &["m0"])?;
    story.kill(4)?;
    let late = story.produce_to(3, -1, &["late"], Duration::from_secs(1))?;
    story.claim_same("written, and not replicated in time (7)", &late.error_code, &7)?;
    let end = story.replica(3)?.log_end;
    story.claim_same("it stays in the log", &end, &2)?;
    story.until_isr(&[3])?;
    // The leader hears of it a little later.
    story.pass(Duration::from_millis(500))?;
    let refused = story.produce_to(3, -1, &["refused"], Duration::from_secs(1))?;
    story.claim_same("too few to begin with (19)", &refused.error_code, &19)?;
    let wrong = story.produce_to(3, 7, &["wrong"], Duration::from_secs(1))?;
    story.claim_same("no such acks (21)", &wrong.error_code, &21)?;
    story.start(4)?;
    story.until_isr(&[3, 4])?;
    story.until_high_watermark(3, 2)?;
    let read = story.read_all()?;
    story.claim_same("what was late is committed after all", &read, &records(&["m0", "late"]))?;
    if story.can(Ability::Hold) {
        story.hold(Message::Fetch, Some(4), Some(3))?;
        let waiting = story.send_write(3, -1, "waits")?;
        story.until_log_end(3, 3)?;
        story.stop(3)?;
        let answered = story.written(waiting)?;
        story.claim_same("the leader went (6)", &answered.error_code, &6)?;
    }
    Ok(())
}
