//! H13 (KIP-497, KIP-903): what the controller says to each wrong proposal of an ISR, in the order of its checks;
//! and that a proposal of what is there already changes nothing.
//!
//! The proposals are made up, which only the simulator can have the controller asked.

use anyhow::Result;
use testkit::stage::{Ability, Proposal, Uuid};

use crate::story::Story;
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "H13",
    rules: &["H13", "H10", "H11"],
    title: "every wrong proposal of an ISR has its own error",
    replicas: &[1, 2, 3],
    demands: &[Ability::AskController, Ability::Events],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(1)?;
    story.write(-1, "a", 2)?;
    let old = story.broker_epoch(1)?;
    // Not the first epoch, so that there is an older one.
    story.kill(1)?;
    story.until_leader(2)?;
    story.start(1)?;
    story.until_isr(&[1, 2, 3])?;
    let mut epochs = [0; 3];
    for (node, epoch) in (1..).zip(&mut epochs) {
        *epoch = story.broker_epoch(node)?;
    }
    let [one, two, three] = [(1, epochs[0]), (2, epochs[1]), (3, epochs[2])];
    let good = Proposal {
        sender: two,
        topic_id: story.topic_id(2)?,
        partition: 0,
        leader_epoch: story.partition()?.leader_epoch,
        partition_epoch: story.partition_epoch()?,
        isr: vec![one, two, three],
        is_recovering: false,
    };
    let seen = story.propose("what is there already", &good)?;
    story.claim_same("nothing changes by it", &seen, &(0, good.partition_epoch))?;
    let with = |change: &dyn Fn(&mut Proposal)| {
        let mut proposal = good.clone();
        change(&mut proposal);
        proposal
    };
    let stranger = Uuid([7; 16]);
    for (what, error, proposal) in [
        ("with the epoch of an old registration", 77, with(&|p| p.sender = (2, two.1 - 1))),
        ("for an unknown topic", 100, with(&|p| p.topic_id = stranger)),
        ("for an unknown partition", 3, with(&|p| p.partition = 7)),
        ("with a leader epoch to come", 41, with(&|p| p.leader_epoch += 1)),
        ("with a partition epoch to come", 41, with(&|p| p.partition_epoch += 1)),
        ("with an older leader epoch", 74, with(&|p| p.leader_epoch -= 1)),
        ("as one who does not lead", 42, with(&|p| p.sender = one)),
        ("with an older partition epoch", 95, with(&|p| p.partition_epoch -= 1)),
        ("with a stranger in it", 42, with(&|p| p.isr.push((9, 1)))),
        ("without its leader", 42, with(&|p| p.isr = vec![one, three])),
        ("of three that recover", 42, with(&|p| p.is_recovering = true)),
        ("of one that recovers again", 42, with(&|p| (p.isr, p.is_recovering) = (vec![two], true))),
        ("with b1 as it was before", 107, with(&|p| p.isr[0].1 = old)),
    ] {
        let seen = story.propose(what, &proposal)?;
        story.claim_same("it is refused as it must be", &seen.0, &error)?;
    }
    let seen = story.propose("b2 and b3", &with(&|p| p.isr = vec![two, three]))?;
    story.claim_same("a good one counts up", &seen, &(0, good.partition_epoch + 1))?;
    story.until_isr(&[1, 2, 3])?;
    Ok(())
}
