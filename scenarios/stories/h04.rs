//! H04 (KAFKA-13091): a write waits for a follower that is dead. When the follower leaves the ISR, that
//! alone commits the write and answers it: no other fetch or write comes that could.

use anyhow::Result;
use testkit::stage::{Ability, ClusterNeeds};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H04",
    rules: &["H04", "H03", "C01"],
    title: "a waiting write is acknowledged by the change of the ISR alone",
    replicas: &[4, 5],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.produce(-1, &["m0"])?;
    story.kill(5)?;
    let waiting = story.send_write(4, -1, "m1")?;
    if story.can(Ability::ExactMoments) {
        story.until_log_end(4, 2)?;
        let mark = story.replica(4)?.high_watermark;
        story.claim_same("m1 waits for b5, which is still in the ISR", &mark, &1)?;
    }
    let answered = story.written(waiting)?;
    let answered = (answered.error_code, answered.base_offset);
    story.claim_same("m1 is acknowledged where it is", &answered, &(0, 1))?;
    story.until_isr(&[4])?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads it", &read, &records(&["m0", "m1"]))?;
    Ok(())
}
