//! C04: the next leader is the first in the order of the replicas that is in the ISR and alive. An election
//! of the preferred leader says why not: 84 when it leads already, 80 when it cannot.

use anyhow::Result;

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C04",
    rules: &["C04", "E01"],
    title: "elections follow the order of the replicas, and say why not",
    replicas: &[3, 2, 1],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(3)?;
    story.produce(-1, &["m0"])?;
    let code = story.elect(false)?;
    story.claim_same("the preferred leader leads already (84)", &code, &84)?;
    let code = story.elect(true)?;
    story.claim_same("no unclean election with a live leader (84)", &code, &84)?;
    story.kill(3)?;
    story.until_leader(2)?;
    let code = story.elect(false)?;
    story.claim_same("the preferred leader is dead (80)", &code, &80)?;
    story.start(3)?;
    story.until_isr(&[1, 2, 3])?;
    let before = story.partition()?;
    story.claim_same("b2 goes on leading", &before.leader, &2)?;
    let code = story.elect(false)?;
    story.claim_same("now it is done", &code, &0)?;
    story.until_leader(3)?;
    let after = story.partition()?.leader_epoch;
    story.claim_same("an epoch later", &after, &(before.leader_epoch + 1))?;
    let read = story.read_all()?;
    story.claim_same("nothing is lost", &read, &records(&["m0"]))?;
    Ok(())
}
