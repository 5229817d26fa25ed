//! T02 (KIP-101): two brokers wrote different records at the same offset, each of them alone. When they
//! meet again, the one that follows gives up its own record, although its high watermark had passed it: only
//! an unclean election may take that back.
//!
//! The same on both stages: b5 is away while b4 commits m1 alone, so a plain crash is enough.

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario, UNCLEAN_NODES};

pub const SCENARIO: Scenario = Scenario {
    name: "T02",
    rules: &["T02", "T05", "T08", "C05"],
    title: "two histories at one offset become one, below the high watermark if need be",
    replicas: &[4, 5],
    configs: &[("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")],
    needs: UNCLEAN_NODES,
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.produce(-1, &["m0"])?;
    story.until_log_end(5, 1)?;
    story.kill(5)?;
    story.until_isr(&[4])?;
    story.produce(1, &["m1"])?;
    story.until_high_watermark(4, 2)?;
    story.hand_over(4, 5)?;
    let offset = story.produce(1, &["m2"])?;
    story.claim_same("m2 is where m1 was", &offset, &1)?;
    let meeting = story.mark()?;
    story.start(4)?;
    story.until_isr(&[4, 5])?;
    for node in [4, 5] {
        let log = story.read_replica(node)?;
        story.claim_same(&format!("b{node} has m0 and m2"), &log, &records(&["m0", "m2"]))?;
    }
    if story.can(Ability::Events) {
        let cuts = story.since(meeting, 4, &["Truncated"])?;
        story.claim_same("b4 was cut once, to where they part", &cuts, &vec!["cut 2>1".into()])?;
    }
    let read = story.read_all()?;
    story.claim_same("a consumer reads it", &read, &records(&["m0", "m2"]))?;
    Ok(())
}
