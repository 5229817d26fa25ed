//! T08 (KAFKA-14704): an old leader comes back as a follower with records that never counted. The answer
//! which tells it so also carries the new leader's high watermark; it must not take that for its own before
//! the cut, or it would show its lost records to readers.
//!
//! b2 loses its controllers and becomes a zombie that goes on writing, which needs a cut.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Between};

use crate::story::{Story, records};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "T08",
    rules: &["T08", "C01", "T05"],
    title: "an answer that says where the logs part moves no watermark",
    replicas: &[2, 3, 1],
    configs: &[("min.insync.replicas", "1")],
    demands: &[Ability::Cut],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(2)?;
    story.produce(-1, &["kept"])?;
    story.cut_off(2, Between::Controllers)?;
    story.until_leader(3)?;
    let lost = story.produce_to(2, 1, &["lost0", "lost1", "lost2"], Duration::from_secs(1))?;
    story.claim_same("b2 still writes", &lost.error_code, &0)?;
    story.produce(-1, &["new0", "new1"])?;
    let healed = story.mark()?;
    story.heal()?;
    story.until_isr(&[1, 2, 3])?;
    story.until_high_watermark(2, 3)?;
    if story.can(Ability::Events) {
        let told = story.since(healed, 2, &["Truncated", "HighWatermarkMoved"])?;
        story.claim_same(
            "b2 was cut first, and committed afterwards",
            &told.first().map(String::as_str),
            &Some("cut 4>1"),
        )?;
    }
    let kept = story.read_replica(2)?;
    story.claim_same("b2 has what the others have", &kept, &records(&["kept", "new0", "new1"]))?;
    Ok(())
}
