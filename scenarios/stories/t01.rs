//! T01 (KIP-101): a follower that restarts with an old high watermark keeps what it has, so that an
//! acknowledged record survives when it is the one to be elected.
//!
//! Five nodes, and the topic on the last two: both its brokers are down at the same time, and the
//! controllers, of which the first decides, have to go on. A restart alone takes a broker out of the ISR here (a registration fences); so both
//! die, the leader one heartbeat earlier, and the follower, who led last, is the one to wait for (C06).
//! The same on both stages. The simulator shows that b4 really had the old watermark; a real b4 may
//! have heard of the new one in the moment before.

use anyhow::Result;
use testkit::stage::{Ability, ClusterNeeds};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T01",
    rules: &["T01", "T12", "H01", "H12", "C03", "C04", "C06"],
    title: "a restart cuts nothing, so an acknowledged record survives its leader",
    replicas: &[5, 4],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(5)?;
    story.produce(-1, &["m0"])?;
    story.until_high_watermark(4, 1)?;
    story.produce(-1, &["m1"])?;
    let stale = story.replica(4)?;
    if story.can(Ability::ExactMoments) {
        story.claim_same(
            "b4 has both records and does not know yet that m1 is committed",
            &(stale.high_watermark, stale.log_end),
            &(1, 2),
        )?;
    }
    story.kill(5)?;
    story.pass_heartbeats()?;
    story.kill(4)?;
    story.until_leaderless()?;
    story.until_eligible(1, &[4], &[4])?;
    story.start(4)?;
    story.until_leader(4)?;
    let leader = story.replica(4)?;
    story.claim_same(
        "b4 kept both records and commits them as leader",
        &(leader.high_watermark, leader.log_end),
        &(2, 2),
    )?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads m0 and m1", &read, &records(&["m0", "m1"]))?;
    story.start(5)?;
    story.until_isr(&[4, 5])?;
    let kept = story.read_replica(5)?;
    story.claim_same("b5 has the same two records", &kept, &records(&["m0", "m1"]))?;
    if story.can(Ability::Events) {
        let cuts = (story.count(4, "Truncated")?, story.count(5, "Truncated")?);
        story.claim_same("neither log was ever cut", &cuts, &(0, 0))?;
    }
    Ok(())
}
