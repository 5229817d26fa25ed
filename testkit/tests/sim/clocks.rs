//! Wall clocks that lie: what depends on them may be early or late, and nothing is lost or stops.

use std::time::Duration;

use anyhow::{Context, Result};
use protocol::NodeId;
use testkit::sim::Simulation;
use testkit::sim::disk::CrashKind;

use crate::support::{TOPIC, cluster, write};

const YEAR_MS: i64 = 365 * 24 * 3600 * 1000;

fn jumped(by_ms: i64) -> Result<()> {
    // Retention by age is off, since a clock that is years ahead makes everything old, and rightly so.
    // So is the limit on records from the future, which a clock that lags behind makes all of them.
    let configs = [
        ("retention.ms", "-1"),
        ("segment.ms", "60000"),
        ("flush.ms", "1000"),
        ("message.timestamp.after.max.ms", "9223372036854775807"),
    ];
    let mut simulation = cluster(3, &[1, 2, 3], &configs, &[])?;
    write(&mut simulation, 1, -1, 5)?;
    simulation.jump_clock(NodeId(1), by_ms);
    write(&mut simulation, 1, -1, 5)?;
    // Long enough for every periodic job.
    simulation.run_for(Duration::from_secs(400))?;
    write(&mut simulation, 1, -1, 5)?;
    simulation.crash(NodeId(1), CrashKind::KeepPageCache)?;
    simulation.start(NodeId(1))?;
    simulation.wait_for_isr(TOPIC, 0, &[1, 2, 3])?;
    let leader = simulation.wait_for_leader(TOPIC, 0, None)?.get();
    write(&mut simulation, leader, -1, 5)?;
    simulation.run_until("health", Duration::from_secs(60), Simulation::is_healthy)?;
    for node in 1..=3 {
        assert_eq!(simulation.values(NodeId(node), TOPIC, 0).len(), 20, "node {node}");
    }
    simulation.check_everything()
}

#[test]
fn a_wall_clock_years_or_ages_off_loses_nothing_and_stops_nobody() -> Result<()> {
    for by_ms in [i64::MIN / 2, -60 * YEAR_MS, -YEAR_MS, YEAR_MS, 300 * YEAR_MS, i64::MAX / 2] {
        jumped(by_ms).with_context(|| format!("a jump of {by_ms} ms"))?;
    }
    Ok(())
}
