//! I01 (KIP-516): a topic is deleted, and made again under the same name while one of its brokers is down.
//! When that broker returns it has the old topic's log. It must not take it for the new one's, although the
//! names and the offsets would fit.

use anyhow::Result;
use testkit::stage::{Ask, CONSUMER};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "I01",
    rules: &["I01", "T11"],
    title: "a topic made again is not the old one",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "old", 5)?;
    story.until_log_end(3, 5)?;
    let old_id = story.topic_id(1)?;
    story.kill(3)?;
    story.until_isr(&[1, 2])?;
    story.delete_topic()?;
    story.until_gone(1)?;
    story.until_gone(2)?;
    story.create_topic_again(&[1, 2, 3])?;
    story.until_leader(1)?;
    story.write(1, "new", 2)?;
    let new_id = story.topic_id(1)?;
    story.claim("the name is the same, the id is not", old_id != new_id)?;
    story.start(3)?;
    story.until_isr(&[1, 2, 3])?;
    let kept = story.read_replica(3)?;
    story.claim_same("b3 has the new records alone", &kept, &records(&["new0", "new1"]))?;
    let seen = story.fetch_by_id(1, old_id, Ask { version: 13, ..CONSUMER })?;
    story.claim_same("the old id is unknown (100)", &seen.error_code, &100)?;
    let seen = story.fetch(1, Ask { offset: 5, ..CONSUMER })?;
    story.claim_same("the old offset is out of range (1)", &seen.error_code, &1)?;
    Ok(())
}
