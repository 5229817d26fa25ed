//! C06 (KIP-966), H06: two of three die, and the last one standing is under min.insync.replicas. Nothing more
//! commits, so that the one who left last stays eligible, until its new process says that the last one did not
//! end cleanly. It catches up as any other.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::ClusterNeeds;

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C06-standing",
    rules: &["C06", "H06", "C01"],
    title: "beside the last replica standing only who left under min.insync.replicas is eligible",
    replicas: &[3, 4, 5],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 2)?;
    story.kill(4)?;
    story.until_isr(&[3, 5])?;
    story.until_eligible(1, &[], &[])?;
    story.kill(5)?;
    story.until_isr(&[3])?;
    story.until_eligible(1, &[5], &[])?;
    story.write(1, "b", 3)?;
    let refused = story.produce_to(3, -1, &["c"], Duration::from_secs(1))?;
    story.claim_same("acks=all is refused (19)", &refused.error_code, &19)?;
    let leader = story.replica(3)?;
    story.claim_same("nothing more commits", &(leader.high_watermark, leader.log_end), &(2, 5))?;
    let read = story.read_all()?;
    story.claim_same("a consumer sees what was committed", &values(&read), &vec!["a0", "a1"])?;
    story.start(5)?;
    story.until_isr(&[3, 5])?;
    story.until_eligible(1, &[], &[])?;
    story.until_high_watermark(3, 5)?;
    let read = story.read_all()?;
    story.claim_same("with b5 back, the rest too", &read.len(), &5)?;
    Ok(())
}
