//! X01 (KIP-98): a producer numbers its batches, and the leader remembers its last five. One of them again is
//! answered with where it is, and not written twice; anything else out of order is refused.
//!
//! That a producer of whom nothing is known may begin anywhere, and that numbers wrap, is told by real clusters
//! alone: in the simulator every producer begins at 0, which its own invariant (I14) holds.

use anyhow::Result;
use testkit::stage::{Ability, Stamp};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "X01",
    rules: &["X01"],
    title: "a numbered batch is written once, and in its order",
    replicas: &[1, 2, 3],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    let producer_id = story.producer_id(1)?;
    let stamp = |epoch, sequence| Stamp { producer_id, epoch, sequence };
    for (sequence, value) in (0..).zip(["a", "b", "c", "d", "e", "f"]) {
        let seen = story.write_stamped(1, stamp(0, sequence), value)?;
        story.claim_same("written", &(seen.error_code, seen.base_offset), &(0, sequence.into()))?;
    }
    for (sequence, value) in [(5, "f"), (1, "b")] {
        let seen = story.write_stamped(1, stamp(0, sequence), value)?;
        story.claim_same(
            "one of the last five is where it was",
            &(seen.error_code, seen.base_offset),
            &(0, sequence.into()),
        )?;
    }
    let seen = story.write_stamped(1, stamp(0, 0), "a")?;
    story.claim_same("an older one is not known any more (45)", &seen.error_code, &45)?;
    let seen = story.write_stamped(1, stamp(0, 7), "h")?;
    story.claim_same("a gap is refused (45)", &seen.error_code, &45)?;
    let seen = story.write_stamped(1, stamp(1, 6), "g")?;
    story.claim_same("a new epoch begins at 0 (45)", &seen.error_code, &45)?;
    let seen = story.write_stamped(1, stamp(1, 0), "g")?;
    story.claim_same("as here", &(seen.error_code, seen.base_offset), &(0, 6))?;
    let seen = story.write_stamped(1, stamp(0, 6), "late")?;
    story.claim_same("the old epoch is over (47)", &seen.error_code, &47)?;
    let mut written = vec!["a", "b", "c", "d", "e", "f", "g"];
    if !story.can(Ability::Events) {
        let producer_id = story.producer_id(1)?;
        let stamp = |sequence| Stamp { producer_id, epoch: 0, sequence };
        let seen = story.write_stamped(1, stamp(i32::MAX), "last")?;
        story.claim_same("a producer of whom nothing is known", &seen.error_code, &0)?;
        let seen = story.write_stamped(1, stamp(0), "first")?;
        story.claim_same("numbers begin again at 0", &seen.error_code, &0)?;
        written.extend(["last", "first"]);
    }
    let read = story.read_all()?;
    story.claim_same("each is there once", &values(&read), &written)?;
    Ok(())
}
