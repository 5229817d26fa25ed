//! C06 (KIP-966): both brokers die. A process that ended uncleanly may have lost what it held, so b5, though it
//! lives, is no more eligible, and nobody leads. When b4, the last known leader, comes back as unclean as that,
//! there is nobody better left: it leads, marked as recovering.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::ClusterNeeds;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C06-unclean",
    rules: &["C06", "C04", "C05"],
    title: "after an unclean end a replica is eligible no more; the last known leader is waited for",
    replicas: &[4, 5],
    configs: &[("min.insync.replicas", "2")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(4)?;
    story.produce(-1, &["m0", "m1"])?;
    story.kill(5)?;
    story.until_isr(&[4])?;
    story.until_eligible(1, &[5], &[])?;
    story.kill(4)?;
    story.until_leaderless()?;
    story.until_eligible(1, &[4, 5], &[4])?;
    let code = story.elect(false)?;
    story.claim_same("the preferred leader is dead (80)", &code, &80)?;
    let code = story.elect(true)?;
    story.claim_same("as is everybody else (83)", &code, &83)?;
    story.start(5)?;
    story.until_eligible(1, &[4], &[4])?;
    story.pass(Duration::from_secs(4))?;
    let seen = story.partition()?;
    story.claim_same("b5 lives, and nobody leads", &(seen.leader, seen.isr), &(-1, vec![]))?;
    let refused = story.produce_to(5, -1, &["refused"], Duration::from_secs(1))?;
    story.claim_same("writes are refused (6)", &refused.error_code, &6)?;
    story.start(4)?;
    story.until_leader(4)?;
    story.until_isr(&[4, 5])?;
    story.until_eligible(1, &[], &[])?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0", "m1"]))?;
    Ok(())
}
