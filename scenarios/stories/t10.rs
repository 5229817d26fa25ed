//! T10 (KAFKA-13266): an answer to a fetch is late. Meanwhile the leader's epoch has changed, and the
//! follower has begun anew at the same leader. The answer would fit by its offset; it belongs to another
//! state of the follower, and is dropped whole.
//!
//! A second topic keeps the connection in use: without it the answer would be lost with the connection.
//! The answer is held back, so this is for the simulator.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Message};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T10",
    rules: &["T10", "T07", "C07"],
    title: "an answer from before a new epoch of the same leader is dropped whole",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "1")],
    demands: &[Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.create_another_topic("other", &[1, 2])?;
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    story.until_high_watermark(2, 2)?;
    let late = story.hold(Message::FetchAnswer, Some(1), Some(2))?;
    story.write(1, "b", 2)?;
    story.until_held(late)?;
    let moved = story.mark()?;
    // b3 leaves the replicas, which is a new epoch; b1 goes on leading.
    story.reassign(&[1, 2])?;
    story.until_gone(3)?;
    // b2 may hear of it a little later.
    story.pass(Duration::from_millis(20))?;
    let followed = story.since(moved, 2, &["BecameFollower"])?;
    story.claim_same("b2 began anew", &followed, &vec!["follow b1 e1".into()])?;
    let newer = story.hold(Message::FetchAnswer, Some(1), Some(2))?;
    story.release(late)?;
    story.pass(Duration::from_millis(50))?;
    let end = story.replica(2)?.log_end;
    story.claim_same("nothing of the late answer is in b2's log", &end, &2)?;
    story.release(newer)?;
    story.until_high_watermark(2, 4)?;
    let kept = story.read_replica(2)?;
    story.claim_same("it gets it by its own", &values(&kept), &vec!["a0", "a1", "b0", "b1"])?;
    Ok(())
}
