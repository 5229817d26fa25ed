//! C08 (KIP-112, KIP-858): one of a broker's two log directories fails. What lies there gets other
//! leaders, and what lies in the other one is served on. The lost replica is not made anew elsewhere on
//! that broker (KAFKA-16234): it would be an empty one. With the disk in order it goes on where it was.
//!
//! A disk that fails is for the simulator.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, ClusterNeeds};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C08",
    rules: &["C08", "C04", "H03"],
    title: "a log directory fails alone",
    replicas: &[1, 2, 3],
    needs: ClusterNeeds { log_dirs: 2, ..ClusterNeeds::nodes(3) },
    demands: &[Ability::FailDisk],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.create_another_topic("other", &[1, 2, 3])?;
    story.until_leader(1)?;
    story.produce(-1, &["before"])?;
    story.until_log_end(3, 1)?;
    story.fail_directory(1)?;
    let refused = story.produce_to(1, -1, &["lost"], Duration::from_secs(1))?;
    story.claim_same("b1 cannot write there (56)", &refused.error_code, &56)?;
    story.until_leader(2)?;
    story.until_isr(&[2, 3])?;
    story.produce(-1, &["after"])?;
    let other = story.partition_of("other")?;
    story.claim_same(
        "the topic in b1's other directory is as it was",
        &(other.leader, other.isr),
        &(1, vec![1, 2, 3]),
    )?;
    story.pass(Duration::from_secs(5))?;
    let isr = story.partition()?.isr;
    story.claim_same("b1 makes no empty replica to join with", &isr, &vec![2, 3])?;
    story.kill(1)?;
    story.mend_disk(1)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    let kept = story.read_replica(1)?;
    story.claim_same("b1 has everything again", &values(&kept), &vec!["before", "after"])?;
    Ok(())
}
