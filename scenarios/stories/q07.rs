//! Q07 (KIP-497): a leader has proposed an ISR, and the controller that should answer dies. Whether the proposal
//! was taken nobody can tell the leader; so it counts as if both were true, asks the next controller, and
//! commits when that has answered.
//!
//! The proposal is held back until its controller is dead, so this is for the simulator.

use anyhow::Result;
use testkit::stage::{Ability, Between, ClusterNeeds, Message};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "Q07",
    rules: &["Q07", "H03", "H04", "H13"],
    title: "a proposal survives the controller that should have answered it",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    needs: ClusterNeeds::nodes(5),
    demands: &[Ability::Cut, Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    let old = story.move_controller_off(&[1, 2, 3])?;
    story.until_leader(1)?;
    story.cut_off(3, Between::Brokers)?;
    story.produce(1, &["m1"])?;
    let proposal = story.hold(Message::AlterPartition, Some(1), None)?;
    story.until_held(proposal)?;
    story.kill(old.leader)?;
    story.lose(proposal)?;
    let mark = story.replica(1)?.high_watermark;
    story.claim_same("m1 waits for b3, which may be in the ISR", &mark, &1)?;
    let new = story.until_other_controller(old, 1)?;
    story.claim("another controller decides in a later epoch", new.epoch > old.epoch)?;
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(1, 2)?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0", "m1"]))?;
    Ok(())
}
