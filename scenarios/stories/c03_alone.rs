//! C03, C06: when the only replica in the ISR stops, nobody can take over. The partition has no leader then, and
//! no ISR, but an eligible leader replica; when the broker returns it leads again, each step an epoch, and
//! nothing is lost.

use anyhow::Result;

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C03-alone",
    rules: &["C03", "C06", "H12", "E01"],
    title: "the last replica of an ISR is eligible still, and leads again",
    replicas: &[3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.write(-1, "a", 3)?;
    let before = story.partition()?.leader_epoch;
    story.stop(3)?;
    story.until_leaderless()?;
    let gone = story.partition()?;
    story.claim_same(
        "no leader, an epoch later, and no ISR",
        &(gone.leader_epoch, gone.isr),
        &(before + 1, vec![]),
    )?;
    story.until_eligible(1, &[3], &[3])?;
    story.start(3)?;
    story.until_leader(3)?;
    let back = story.partition()?.leader_epoch;
    story.claim_same("b3 leads an epoch later", &back, &(before + 2))?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &values(&read), &vec!["a0", "a1", "a2"])?;
    Ok(())
}
