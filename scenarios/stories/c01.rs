//! C01 (KIP-631): a leader that its controllers do not hear of is fenced and replaced. Until it hears
//! of that itself it may go on writing, but it commits nothing more, and nothing with acks=all is
//! acknowledged falsely.
//!
//! b2 loses only its controllers, and goes on taking writes. Where no real link can be cut (that needs
//! root), b2 is frozen until it is replaced, so it writes nothing meanwhile, and what is shown is that it
//! follows when it goes on.

use std::time::Duration;

use anyhow::Result;
use testkit::stage::{Ability, Between};

use crate::story::{Story, values};
use crate::{PLAIN, Scenario};

pub const SCENARIO: Scenario = Scenario {
    name: "C01",
    rules: &["C01", "E01", "T05", "H06", "H07", "I11"],
    title: "a leader without its controllers is replaced, and commits nothing more",
    replicas: &[2, 3, 1],
    configs: &[("min.insync.replicas", "1")],
    script,
    ..PLAIN
};

fn script(story: &mut Story<'_>) -> Result<()> {
    story.until_leader(2)?;
    story.produce(-1, &["kept"])?;
    let has_zombie = story.can(Ability::Cut);
    if has_zombie {
        story.cut_off(2, Between::Controllers)?;
    } else {
        story.freeze(2)?;
    }
    story.until_leader(3)?;
    story.until_isr(&[1, 3])?;
    if has_zombie {
        let zombie = story.produce_to(2, 1, &["lost"], Duration::from_secs(1))?;
        story.claim_same("b2 believes that it leads and takes acks=1", &zombie.error_code, &0)?;
        let refused = story.produce_to(2, -1, &["never"], Duration::from_millis(800))?;
        story.claim_same("acks=all times out at b2", &refused.error_code, &7)?;
        let mark = story.replica(2)?.high_watermark;
        story.claim_same("b2's high watermark stays", &mark, &1)?;
    }
    story.produce(-1, &["new"])?;
    if has_zombie {
        story.heal()?;
    } else {
        story.thaw(2)?;
    }
    story.until_isr(&[1, 2, 3])?;
    story.until_high_watermark(2, 2)?;
    let read = story.read_all()?;
    story.claim_same(
        "a consumer reads what was acknowledged by all",
        &values(&read),
        &vec!["kept", "new"],
    )?;
    let kept = story.read_replica(2)?;
    story.claim_same(
        "b2 has the same, and not what it wrote alone",
        &values(&kept),
        &vec!["kept", "new"],
    )?;
    Ok(())
}
