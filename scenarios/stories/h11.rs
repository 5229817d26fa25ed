//! H11 (KIP-903): a broker that starts again is another one: it may have lost what it had. A fetch from
//! before its new registration counts for nothing, or an empty broker could be taken for one in sync.
//!
//! The epochs of registrations are told by the simulator alone.

use anyhow::Result;
use testkit::stage::{Ability, Ask};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H11",
    rules: &["H11", "C02"],
    title: "a fetch from before a broker's new registration counts for nothing",
    replicas: &[1, 2, 3],
    demands: &[Ability::Events],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    story.until_log_end(3, 2)?;
    let old = story.broker_epoch(3)?;
    story.kill(3)?;
    story.until_isr(&[1, 2])?;
    story.start(3)?;
    story.until_isr(&[1, 2, 3])?;
    let new = story.broker_epoch(3)?;
    story.claim("b3 is registered anew", new > old)?;
    let current_epoch = story.partition()?.leader_epoch;
    let ask = |replica_epoch| Ask {
        version: 17,
        replica: 3,
        replica_epoch,
        offset: 1,
        current_epoch,
        last_epoch: 0,
    };
    let before = story.mark()?;
    let seen = story.fetch(1, ask(old))?;
    story.claim_same("the old one is refused (6)", &seen.error_code, &6)?;
    let progress = story.since(before, 1, &["FollowerProgressed"])?;
    story.claim_same("and is not taken for progress", &progress.len(), &0)?;
    let seen = story.fetch(1, ask(new))?;
    story.claim_same("the new one is served", &seen.error_code, &0)?;
    Ok(())
}
