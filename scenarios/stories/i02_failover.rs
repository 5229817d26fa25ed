//! I02 (KIP-107): records were deleted while one replica was down, and then the leader dies. The next one has the
//! same start, so nothing that was deleted comes back; and the replica that was down learns of it.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER, ClusterNeeds};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "I02-failover",
    rules: &["I02", "C04", "F03"],
    title: "what is deleted does not come back with another leader",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 5)?;
    story.write(-1, "b", 5)?;
    story.until_log_end(3, 10)?;
    story.kill(3)?;
    story.until_isr(&[1, 2])?;
    let deleted = story.delete_records(1, 7)?;
    story.claim_same("a dead replica is not waited for", &deleted, &(0, 7))?;
    story.kill(1)?;
    story.until_leader(2)?;
    let seen = story.list_offset(2, 7, -1, -2)?;
    story.claim_same("the next leader begins there", &seen, &(0, 7))?;
    let seen = story.fetch(2, Ask { offset: 6, ..CONSUMER })?;
    story.claim_same("before it nothing is left", &seen.error_code, &1)?;
    story.start(3)?;
    story.until_isr(&[2, 3])?;
    let seen = story.fetch(3, Ask { offset: 6, ..CONSUMER })?;
    story.claim_same("b3 has learned of it", &seen.error_code, &1)?;
    let seen = story.fetch(3, Ask { offset: 7, ..CONSUMER })?;
    story.claim_same("and has the rest", &values(&seen.records), &vec!["b2", "b3", "b4"])?;
    Ok(())
}
