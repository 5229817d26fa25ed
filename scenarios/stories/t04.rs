//! T04 (KIP-279): two brokers took turns, each writing alone, so that no epoch above the first is common
//! to both. The follower walks down its own epochs one by one, a question and a cut for each, to the last
//! record that both have.
//!
//! Each handing over is an unclean election, the same on both stages.

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::{Story, values};
use crate::{PLAIN, Scenario, UNCLEAN_NODES};

pub const SCENARIO: Scenario = Scenario {
    name: "T04",
    rules: &["T04", "T03", "T05", "T08", "C05"],
    title: "a chain of divergent epochs is walked down one by one",
    replicas: &[4, 5],
    configs: &[("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")],
    needs: UNCLEAN_NODES,
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.write(-1, "a", 10)?;
    story.until_log_end(5, 10)?;
    story.kill(5)?;
    story.until_isr(&[4])?;
    for (alone, count) in [("b", 1), ("c", 2), ("d", 2)] {
        story.hand_over(4, 5)?;
        story.write(1, "x", 2)?;
        story.hand_over(5, 4)?;
        story.write(1, alone, count)?;
    }
    let meeting = story.mark()?;
    story.start(5)?;
    story.until_isr(&[4, 5])?;
    story.until_log_end(5, 15)?;
    if story.can(Ability::Events) {
        let cuts = story.since(meeting, 5, &["Truncated"])?;
        story.claim_same(
            "b5 gave up one epoch after the other",
            &cuts,
            &vec!["cut 16>14".into(), "cut 14>12".into(), "cut 12>10".into()],
        )?;
        let progress = story.since(meeting, 4, &["FollowerProgressed"])?;
        story.claim_same(
            "to b4, b5 is nowhere before they agree",
            &progress.first().map(String::as_str),
            &Some("b5 is at 10"),
        )?;
    }
    let (one, other) = (story.read_replica(4)?, story.read_replica(5)?);
    story.claim("both logs are the same", one == other)?;
    story.claim(
        "nothing of b5's own is left",
        values(&other).iter().all(|value| !value.starts_with('x')),
    )?;
    Ok(())
}
