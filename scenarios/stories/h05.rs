//! H05 (KIP-320): a new leader may have an older high watermark than its records deserve. A follower that
//! has reached that watermark may still miss committed records; it is taken into the ISR only when it has
//! reached the start of the leader's epoch.
//!
//! b5 is stopped between two records, and the leader dies then: for the simulator.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Between, ClusterNeeds, Message};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H05",
    rules: &["H05", "H03", "C04"],
    title: "a follower joins only from the start of the leader's epoch on",
    replicas: &[3, 4, 5],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    demands: &[Ability::Cut, Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 2)?;
    story.cut_off(5, Between::Brokers)?;
    story.produce(1, &["b"])?;
    story.until_isr(&[3, 4])?;
    story.until_high_watermark(3, 3)?;
    let proposal = story.hold(Message::AlterPartition, Some(3), None)?;
    story.heal()?;
    story.until_held(proposal)?;
    story.hold(Message::Fetch, Some(5), Some(3))?;
    story.pass(Duration::from_millis(400))?;
    story.produce(1, &["c"])?;
    story.until_log_end(4, 4)?;
    story.kill(3)?;
    story.lose(proposal)?;
    let answers = story.hold(Message::FetchAnswer, Some(4), Some(5))?;
    // Or it would ask b4 before b4 knows that it leads.
    let metadata = story.hold(Message::Metadata, None, Some(5))?;
    let led = story.mark()?;
    story.until_leader(4)?;
    story.release(metadata)?;
    story.until_held(answers)?;
    let asked = story.since(led, 4, &["FollowerProgressed"])?;
    story.claim_same("b5 asks the new leader at 3", &asked, &vec!["b5 is at 3".into()])?;
    story.pass(Duration::from_millis(500))?;
    let (leader, follower) = (story.replica(4)?, story.replica(5)?);
    story.claim_same(
        "b5 ends at the leader's watermark, a record before its epoch's start",
        &(leader.high_watermark, leader.log_end, follower.log_end),
        &(3, 4, 3),
    )?;
    let proposed = story.since(led, 4, &["IsrProposed"])?;
    story.claim_same("nobody proposes it", &proposed.len(), &0)?;
    story.release(answers)?;
    story.until_isr(&[4, 5])?;
    let end = story.replica(5)?.log_end;
    story.claim_same("it joined with the last record", &end, &4)?;
    Ok(())
}
