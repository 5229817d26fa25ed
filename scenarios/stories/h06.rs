//! H06 (KIP-966): with fewer in-sync replicas than min.insync.replicas nothing is committed, whatever
//! acks the writer asked for; and who asked for all is refused before anything is written.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::ClusterNeeds;

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H06",
    rules: &["H06", "H07", "C01"],
    title: "under min.insync.replicas nothing is committed",
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
    story.kill(5)?;
    story.until_isr(&[3])?;
    let offset = story.write(1, "b", 3)?;
    story.claim_same("acks=1 is taken", &offset, &2)?;
    story.pass(Duration::from_secs(1))?;
    let leader = story.replica(3)?;
    story.claim_same("and not committed", &(leader.high_watermark, leader.log_end), &(2, 5))?;
    let refused = story.produce_to(3, -1, &["c"], Duration::from_secs(1))?;
    story.claim_same("acks=all is refused (19)", &refused.error_code, &19)?;
    let end = story.replica(3)?.log_end;
    story.claim_same("and not written", &end, &5)?;
    let read = story.read_all()?;
    story.claim_same("a consumer sees what was committed", &values(&read), &vec!["a0", "a1"])?;
    story.start(4)?;
    story.until_isr(&[3, 4])?;
    story.until_high_watermark(3, 5)?;
    let read = story.read_all()?;
    story.claim_same("with b4 back, the rest too", &read.len(), &5)?;
    Ok(())
}
