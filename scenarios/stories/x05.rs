//! X05 (KIP-98): a follower takes numbered batches as its leader has them, and remembers the numbers, for when it
//! leads; it checks none before that.
//!
//! b2 is away while the producer's first batches are deleted, so it begins in the middle.

use anyhow::Result;
use testkit::stage::Stamp;

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "X05",
    rules: &["X05", "X01", "T11", "I02"],
    title: "a follower takes numbered batches as they come, and remembers them",
    replicas: &[1, 2],
    configs: &[("min.insync.replicas", "1")],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    let producer_id = story.producer_id(1)?;
    let stamp = |sequence| Stamp { producer_id, epoch: 0, sequence };
    story.write_stamped(1, stamp(0), "a")?;
    story.kill(2)?;
    story.until_isr(&[1])?;
    for (sequence, value) in [(1, "b"), (2, "c"), (3, "d")] {
        story.write_stamped(1, stamp(sequence), value)?;
    }
    let deleted = story.delete_records(1, 3)?;
    story.claim_same("the first three are deleted", &deleted, &(0, 3))?;
    story.start(2)?;
    story.until_isr(&[1, 2])?;
    story.until_high_watermark(2, 4)?;
    let kept = story.read_replica(2)?;
    story.claim_same("b2 begins with the fourth", &kept, &vec![(3, "d".into())])?;
    story.kill(1)?;
    story.until_leader(2)?;
    let seen = story.write_stamped(2, stamp(3), "d")?;
    let seen = (seen.error_code, seen.base_offset);
    story.claim_same("b2 knows it when it leads", &seen, &(0, 3))?;
    let seen = story.write_stamped(2, stamp(5), "f")?;
    story.claim_same("and now it checks (45)", &seen.error_code, &45)?;
    let seen = story.write_stamped(2, stamp(4), "e")?;
    story.claim_same("and goes on", &(seen.error_code, seen.base_offset), &(0, 4))?;
    Ok(())
}
