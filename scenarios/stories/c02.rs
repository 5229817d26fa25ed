//! C02 (KIP-631): a broker that starts again registers, and stays fenced until it has read the metadata up
//! to its own registration: before that it could not know what it leads.
//!
//! Its metadata is held back, so this is for the simulator.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Message};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C02",
    rules: &["C02", "C01"],
    title: "a broker is fenced until it has read its own registration",
    replicas: &[1, 2, 3],
    demands: &[Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    story.kill(3)?;
    story.until_isr(&[1, 2])?;
    let back = story.mark()?;
    let metadata = story.hold(Message::Metadata, None, Some(3))?;
    story.start(3)?;
    story.pass(Duration::from_secs(2))?;
    let unfenced = story.since(back, 0, &["BrokerUnfenced"])?;
    story.claim_same("b3 runs, and is fenced", &unfenced.len(), &0)?;
    let isr = story.partition()?.isr;
    story.claim_same("so it is in no ISR", &isr, &vec![1, 2])?;
    story.release(metadata)?;
    story.until_isr(&[1, 2, 3])?;
    let unfenced = story.since(back, 0, &["BrokerUnfenced"])?;
    story.claim_same("with its metadata it is let in", &unfenced, &vec!["unfence b3".into()])?;
    Ok(())
}
