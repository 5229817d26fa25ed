//! S04 (KIP-227): a session outlives a change of the leader. What is told of the partition in it then is the error,
//! as often as it is asked, and, when the consumer knows the new epoch, the partition again though nothing in
//! it is new: after an error the reader has to be told that it is over.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER, SessionAsk};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "S04",
    rules: &["S04", "S01", "E01"],
    title: "a fetch session tells of an error until it is over, and of its end",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.produce(-1, &["m0"])?;
    story.kill(1)?;
    story.until_leader(2)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    story.until_high_watermark(2, 1)?;
    let old = story.partition()?.leader_epoch;
    let at = |current_epoch| Some(Ask { offset: 1, current_epoch, ..CONSUMER });
    let ask =
        |id, epoch, partition| SessionAsk { version: 12, id, epoch, partition, forgets: false };
    let id = story.session_fetch(2, ask(0, 0, at(old)))?.id;
    let seen = story.session_fetch(2, ask(id, 1, None))?;
    story.claim("nothing has changed, nothing is told", seen.partition.is_none())?;
    let code = story.elect(false)?;
    story.claim_same("another leader", &code, &0)?;
    story.until_leader(1)?;
    story.until_follower(2)?;
    story.until_high_watermark(2, 1)?;
    for count in [2, 3] {
        let seen = story.session_fetch(2, ask(id, count, None))?;
        let told = seen.partition.map(|told| told.error_code);
        story.claim_same("the epoch is over (74)", &told, &Some(74))?;
    }
    let new = story.partition()?.leader_epoch;
    let seen = story.session_fetch(2, ask(id, 4, at(new)))?;
    let told = seen.partition.map(|told| (told.error_code, told.records.len()));
    story.claim_same("with the new one it is told again, empty", &told, &Some((0, 0)))?;
    let seen = story.session_fetch(2, ask(id, 5, None))?;
    story.claim("and once only", seen.partition.is_none())?;
    Ok(())
}
