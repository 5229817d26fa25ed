//! X02 (KIP-98): a leader dies with numbered batches on their way. The next one knows of the producer what its own
//! log says: what it has is not written twice, and what it has not is missed. The old leader, cut to what the new
//! one kept, knows no more than that either: when it leads again it writes what it had lost.
//!
//! Answers to fetches are held back, so that the last batch is with the old leader alone: for the simulator.

use anyhow::Result;
use testkit::stage::{Ability, Message, Stamp};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "X02",
    rules: &["X02", "X01", "X05", "C04"],
    title: "a numbered batch is written once, whoever leads, and not taken for written by who lost it",
    replicas: &[1, 2, 3],
    configs: &[("min.insync.replicas", "2")],
    demands: &[Ability::Hold],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    let producer_id = story.producer_id(1)?;
    let stamp = |sequence| Stamp { producer_id, epoch: 0, sequence };
    story.write_stamped(1, stamp(0), "a")?;
    story.write_stamped(1, stamp(1), "b")?;
    for node in [2, 3] {
        story.until_log_end(node, 2)?;
    }
    let answers = story.hold(Message::FetchAnswer, Some(1), None)?;
    story.send_stamped(1, stamp(2), "c")?;
    story.until_log_end(1, 3)?;
    story.kill(1)?;
    story.lose(answers)?;
    story.until_leader(2)?;
    let seen = story.write_stamped(2, stamp(1), "b")?;
    let seen = (seen.error_code, seen.base_offset);
    story.claim_same("b2 has this one", &seen, &(0, 1))?;
    let seen = story.write_stamped(2, stamp(3), "d")?;
    story.claim_same("and not yet the one before this (45)", &seen.error_code, &45)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    story.elect(false)?;
    story.until_leader(1)?;
    let seen = story.write_stamped(1, stamp(3), "d")?;
    story.claim_same("b1 was cut, and forgot c as well (45)", &seen.error_code, &45)?;
    for (sequence, value) in [(2, "c"), (3, "d")] {
        let seen = story.write_stamped(1, stamp(sequence), value)?;
        let seen = (seen.error_code, seen.base_offset);
        story.claim_same("written where it belongs", &seen, &(0, sequence.into()))?;
    }
    let read = story.read_all()?;
    story.claim_same("each is there once", &values(&read), &vec!["a", "b", "c", "d"])?;
    Ok(())
}
