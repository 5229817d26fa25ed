//! C06 (KIP-966): who leaves an ISR that is under min.insync.replicas has everything that will be committed
//! until the ISR is large enough again. Both brokers stop in turn; the one that comes first leads, although
//! it was not the last leader, and what the other wrote alone was never committed.

use anyhow::Result;
use testkit::stage::ClusterNeeds;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C06",
    rules: &["C06", "C03", "H06"],
    title: "an eligible leader replica leads without an ISR, and nothing committed is lost",
    replicas: &[4, 5],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.produce(-1, &["m0"])?;
    story.stop(5)?;
    story.until_isr(&[4])?;
    story.until_eligible(1, &[5], &[])?;
    story.produce(1, &["alone"])?;
    story.stop(4)?;
    story.until_leaderless()?;
    story.until_isr(&[])?;
    story.until_eligible(1, &[4, 5], &[4])?;
    let gone = story.partition()?.leader_epoch;
    story.start(5)?;
    story.until_leader(5)?;
    let back = story.partition()?;
    story.claim_same(
        "b5 leads an epoch later, alone",
        &(back.leader_epoch, back.isr),
        &(gone + 1, vec![5]),
    )?;
    story.until_eligible(5, &[4], &[])?;
    story.produce(1, &["m1"])?;
    story.start(4)?;
    story.until_isr(&[4, 5])?;
    story.until_eligible(5, &[], &[])?;
    story.until_high_watermark(5, 2)?;
    let read = story.read_all()?;
    story.claim_same("what was committed is there", &read, &records(&["m0", "m1"]))?;
    Ok(())
}
