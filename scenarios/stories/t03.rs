//! T03 (KIP-279): the leader answers with an epoch that the follower has never heard of. The follower
//! cuts to the end of the epoch below it, and asks again, rather than trusting the leader's offset.
//!
//! Two histories fork by unclean elections: b4 writes ten records alone, then b5 writes five alone.
//! When b4 leads again, b5 is at (15, its epoch), which b4 does not know. The same on both stages.

use anyhow::Result;
use testkit::stage::Ability;

use crate::story::Story;
use crate::{PLAIN, Scenario, UNCLEAN_NODES};

pub const SCENARIO: Scenario = Scenario {
    name: "T03",
    rules: &["T02", "T03", "T05", "T08", "C05"],
    title: "a follower whose epoch the leader does not know is cut by its own history",
    replicas: &[4, 5],
    configs: &[("unclean.leader.election.enable", "true")],
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
    // A new epoch for b4, so that the fork is not within one.
    story.kill(4)?;
    story.until_leaderless()?;
    story.start(4)?;
    story.until_leader(4)?;
    story.write(1, "b", 10)?;
    story.kill(4)?;
    story.until_leaderless()?;
    story.start(5)?;
    story.until_leader(5)?;
    story.write(1, "c", 5)?;
    story.until_log_end(5, 15)?;
    story.kill(5)?;
    story.until_leaderless()?;
    story.start(4)?;
    story.until_leader(4)?;
    story.start(5)?;
    story.until_isr(&[4, 5])?;
    story.until_log_end(5, 20)?;
    let (one, other) = (story.read_replica(4)?, story.read_replica(5)?);
    story.claim("both logs are the same", one == other)?;
    story.claim(
        "b5's own five records are gone",
        other.iter().all(|(_, value)| !value.starts_with('c')),
    )?;
    if story.can(Ability::Events) {
        let cuts = story.count(5, "Truncated")?;
        story.claim_same("b5 was cut once, to where its own older epoch ends", &cuts, &1)?;
        let diverged = story.count(4, "FetchDiverged")?;
        story.claim_same("b4 said once that they diverge", &diverged, &1)?;
    }
    story.write(-1, "d", 1)?;
    let read = story.read_all()?;
    story.claim_same("a consumer reads 21 records", &read.len(), &21)?;
    Ok(())
}
