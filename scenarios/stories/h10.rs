//! H10 (KIP-841): a follower has caught up and its leader proposes it for the ISR; meanwhile it stops. The
//! leader cannot know that yet, the controller does, and refuses. The leader then counts without it again.
//!
//! The proposal is held back until the follower has stopped, so this is for the simulator.

use anyhow::Result;
use testkit::stage::{Ability, Between, Message};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H10",
    rules: &["H10", "H03", "H13", "C03"],
    title: "a broker that has stopped is not let into an ISR",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    demands: &[Ability::Cut, Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    story.cut_off(3, Between::Brokers)?;
    story.produce(1, &["b"])?;
    story.until_isr(&[1, 2])?;
    let proposal = story.hold(Message::AlterPartition, Some(1), None)?;
    story.heal()?;
    story.until_held(proposal)?;
    story.stop(3)?;
    story.produce(1, &["c"])?;
    story.until_log_end(2, 4)?;
    let mark = story.replica(1)?.high_watermark;
    story.claim_same("c waits for b3, which is proposed", &mark, &3)?;
    let before = story.mark()?;
    story.release(proposal)?;
    story.until_high_watermark(1, 4)?;
    let refused = story.since(before, 1, &["IsrRejected"])?;
    story.claim_same(
        "b1 was refused (107), and counts without b3 again",
        &refused,
        &vec!["ISR refused 107".into()],
    )?;
    let isr = story.partition()?.isr;
    story.claim_same("the ISR is as it was", &isr, &vec![1, 2])?;
    Ok(())
}
