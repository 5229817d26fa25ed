//! T07 (KAFKA-7164): a follower misses that its leader was replaced and came back. By name nothing has
//! changed for it, but two epochs have passed, and what it has of the first is not what the leader kept.
//! Every new epoch makes it begin anew, whoever leads.
//!
//! b4 hears nothing at all while b5 leads, and b3 comes back meanwhile: the network is mended around b4
//! between two events, which only the simulator can.

use anyhow::Result;
use testkit::stage::{Ability, Between, ClusterNeeds};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T07",
    rules: &["T07", "T05", "C04", "C01"],
    title: "a follower that missed two epochs of one leader begins anew",
    replicas: &[3, 4, 5],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    demands: &[Ability::Cut, Ability::ExactMoments],
    script,
    ..PLAIN
};

fn isolate(story: &mut Story<'_>, node: i32) -> Result<()> {
    story.cut_off(node, Between::Brokers)?;
    story.cut_off(node, Between::Controllers)
}

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 2)?;
    story.until_log_end(5, 2)?;
    story.cut_off(5, Between::Brokers)?;
    story.write(1, "lost", 3)?;
    story.until_log_end(4, 5)?;
    isolate(story, 4)?;
    story.freeze(3)?;
    story.until_leader(5)?;
    story.until_isr(&[5])?;
    story.heal()?;
    isolate(story, 4)?;
    story.write(1, "new", 2)?;
    story.thaw(3)?;
    story.until_isr(&[3, 5])?;
    let code = story.elect(false)?;
    story.claim_same("the preferred leader is elected", &code, &0)?;
    story.until_leader(3)?;
    let back = story.mark()?;
    story.heal()?;
    story.until_isr(&[3, 4, 5])?;
    let cuts = story.since(back, 4, &["Truncated"])?;
    story.claim_same("b4 is cut to what b3 kept", &cuts, &vec!["cut 5>2".into()])?;
    let kept = story.read_replica(4)?;
    story.claim_same("b4 has what b5 wrote", &values(&kept), &vec!["a0", "a1", "new0", "new1"])?;
    Ok(())
}
