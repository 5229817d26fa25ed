//! One story for each bug (two for fencing, which has two sides): what it takes to lose or to diverge.

use std::time::Duration;

use anyhow::{Result, ensure};
use protocol::{ApiKey, NodeId};
use replication::bugs::Bug;
use testkit::invariants::FaultModel;
use testkit::sim::disk::CrashKind;
use testkit::sim::{ConsumerSettings, Kind, Plane, ProducerSettings, Simulation};

use crate::Story;
use crate::support::*;

const FETCHES: Kind = Kind::Request(ApiKey::Fetch);
const FETCHED: Kind = Kind::Response(ApiKey::Fetch);
const ALTER: Kind = Kind::Call(ApiKey::AlterPartition);
const UNCLEAN: FaultModel = FaultModel { unclean_elections: true, lossy_crashes: false };
const LOSSY: FaultModel = FaultModel { unclean_elections: false, lossy_crashes: true };

fn kill(simulation: &mut Simulation, node: i32) -> Result<()> {
    simulation.crash(NodeId(node), CrashKind::KeepPageCache)
}

fn pass(simulation: &mut Simulation, millis: u64) -> Result<()> {
    simulation.run_for(Duration::from_millis(millis))
}

/// No replica of the one gets records of the other any more.
fn part(simulation: &mut Simulation, one: i32, other: i32) {
    simulation.cut_one_way(NodeId(one), NodeId(other), Plane::Data);
    simulation.cut_one_way(NodeId(other), NodeId(one), Plane::Data);
}

fn until_end(simulation: &mut Simulation, node: i32, end: i64) -> Result<()> {
    until(simulation, "a log's end", |simulation| marks(simulation, node).1 == end)
}

fn until_led(simulation: &mut Simulation, node: i32) -> Result<()> {
    until(simulation, "the leader", |simulation| simulation.leads(TOPIC, 0) == Some(NodeId(node)))
}

/// Kills the leader, waits until nobody leads, and starts `next`, which is elected.
fn hand_over(simulation: &mut Simulation, from: i32, next: i32) -> Result<()> {
    kill(simulation, from)?;
    until_led_by_none(simulation)?;
    simulation.start(NodeId(next))?;
    until_led(simulation, next)
}

fn until_led_by_none(simulation: &mut Simulation) -> Result<()> {
    until(simulation, "no leader", |simulation| {
        simulation.partition_image(TOPIC, 0).is_some_and(|image| image.leader == NodeId::NONE)
    })
}

fn leader_epoch(simulation: &Simulation) -> i32 {
    simulation.partition_image(TOPIC, 0).map_or(-1, |image| image.leader_epoch.get())
}

/// Who has the last record and has not heard that it is committed must not cut it off.
#[test]
fn t01_truncating_to_the_high_watermark_loses_what_the_isr_had() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 1)?;
        healthy(simulation)?;
        write(simulation, 1, -1, 1)?;
        ensure!(marks(simulation, 3) == (1, 2), "b3 has heard of it");
        kill(simulation, 1)?;
        simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
        pass(simulation, 500)
    };
    let bug = Bug::TruncateToHighWatermark;
    Story { bug, breaks: "I3", nodes: 5, script, ..Story::USUAL }.tell();
}

/// b5 wrote five records that b4, which leads, has never heard of; b4 has ten in an older epoch.
#[test]
fn t03_a_one_step_epoch_lookup_leaves_records_of_an_unknown_epoch() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 4, -1, 10)?;
        until_end(simulation, 5, 10)?;
        kill(simulation, 5)?;
        simulation.wait_for_isr(TOPIC, 0, &[4])?;
        hand_over(simulation, 4, 4)?;
        write(simulation, 4, 1, 10)?;
        hand_over(simulation, 4, 5)?;
        write(simulation, 5, 1, 5)?;
        hand_over(simulation, 5, 4)?;
        simulation.start(NodeId(5))?;
        until_end(simulation, 5, 20)
    };
    let bug = Bug::OneStepEpochLookup;
    let usual = Story { nodes: 5, replicas: &[4, 5], model: UNCLEAN, ..Story::USUAL };
    Story { bug, breaks: "I1", script, ..usual }.tell();
}

/// b1 was deposed, does not know it, and asks for an ISR of its own.
#[test]
fn h13_without_epoch_fencing_a_deposed_leader_sets_the_isr() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 2)?;
        healthy(simulation)?;
        simulation.freeze(NodeId(1));
        simulation.wait_for_leader(TOPIC, 0, Some(NodeId(1)))?;
        write(simulation, 2, -1, 3)?;
        simulation.hold(Kind::MetadataAnswer, None, Some(NodeId(1)));
        simulation.thaw(NodeId(1))?;
        let late = send(simulation, 1, 1, &["late"])?;
        ensure!(produced(simulation, late)?.0 == 0, "b1 knows that it was deposed");
        pass(simulation, 8000)
    };
    Story { bug: Bug::NoEpochFencing, breaks: "I3", nodes: 5, script, ..Story::USUAL }.tell();
}

/// b1 leads at epoch 0, and again at epoch 2, and hears of both changes at once: it still has what b3 had
/// got from it before, and cut in epoch 1.
fn led_in_between(simulation: &mut Simulation) -> Result<()> {
    write(simulation, 1, -1, 2)?;
    healthy(simulation)?;
    let slow = simulation.hold(FETCHES, Some(NodeId(2)), Some(NodeId(1)));
    pass(simulation, 400)?;
    write(simulation, 1, 1, 3)?;
    until_end(simulation, 3, 5)?;
    pass(simulation, 20)?;
    ensure!(marks(simulation, 2).1 == 2, "b2 got the records");
    let deaf = simulation.hold(Kind::MetadataAnswer, None, Some(NodeId(1)));
    ensure!(reassign(simulation, &[2, 1, 3])? == 0, "b2 is not the first replica");
    ensure!(elect(simulation, 0)? == 0, "b2 is not elected");
    until_led(simulation, 2)?;
    until_end(simulation, 3, 2)?;
    simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(1)));
    ensure!(reassign(simulation, &[1, 2, 3])? == 0, "b1 is not the first replica");
    ensure!(elect(simulation, 0)? == 0, "b1 is not elected");
    simulation.network.discard(deaf);
    until_led(simulation, 1)?;
    simulation.release(slow);
    ensure!(marks(simulation, 3).1 == 2, "b3 has them again");
    Ok(())
}

/// A fetch of b3 that was made in epoch 0, when b3 had five records, arrives in epoch 2.
#[test]
fn t09_without_epoch_fencing_a_late_fetch_counts_what_is_gone() {
    let script = |simulation: &mut Simulation| {
        led_in_between(simulation)?;
        let late = Ask {
            version: 17,
            replica: 3,
            replica_epoch: simulation.cluster().broker(NodeId(3)).map_or(-1, |b| b.epoch.get()),
            offset: 5,
            current_epoch: 0,
            last_epoch: 0,
        };
        fetch(simulation, 1, late)?;
        pass(simulation, 500)
    };
    Story { bug: Bug::NoEpochFencing, breaks: "I3", nodes: 5, script, ..Story::USUAL }.tell();
}

/// The proposal that b3 leave is on its way: the controller has not agreed.
#[test]
fn h03_a_watermark_from_the_proposed_isr_passes_a_member() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 2)?;
        healthy(simulation)?;
        let hold = simulation.hold(ALTER, Some(NodeId(1)), None);
        part(simulation, 1, 3);
        write(simulation, 1, 1, 1)?;
        until(simulation, "b3 is to leave", |simulation| simulation.network.held(hold) > 0)?;
        write(simulation, 1, 1, 1)?;
        until_end(simulation, 2, 4)?;
        pass(simulation, 100)
    };
    Story { bug: Bug::WatermarkFromProposedIsr, breaks: "I3", min_isr: 2, script, ..Story::USUAL }
        .tell();
}

/// The controller has agreed that b3 join, and b1 does not know it.
#[test]
fn h03_a_watermark_from_the_committed_isr_passes_a_new_member() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 2)?;
        part(simulation, 1, 3);
        write(simulation, 1, 1, 1)?;
        simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
        simulation.hold(Kind::CallAnswer(ApiKey::AlterPartition), None, Some(NodeId(1)));
        simulation.hold(Kind::MetadataAnswer, None, Some(NodeId(1)));
        simulation.heal(NodeId(1), NodeId(3));
        until(simulation, "b3 is in the ISR", |simulation| isr(simulation) == [1, 2, 3])?;
        simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(1)));
        pass(simulation, 400)?;
        write(simulation, 1, 1, 2)?;
        pass(simulation, 5000)
    };
    Story { bug: Bug::WatermarkFromCommittedIsr, breaks: "I3", script, ..Story::USUAL }.tell();
}

/// b3 lost its machine and what was not synced; then a fetch arrives that it made before.
#[test]
fn h11_a_fetch_under_an_old_broker_epoch_lets_a_shorter_log_join() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 5)?;
        healthy(simulation)?;
        let epoch_of = |simulation: &Simulation| {
            simulation.cluster().broker(NodeId(3)).map_or(-1, |broker| broker.epoch.get())
        };
        let old = epoch_of(simulation);
        simulation.crash(NodeId(3), CrashKind::LoseUnsynced)?;
        part(simulation, 1, 3);
        simulation.start(NodeId(3))?;
        until(simulation, "b3 is back", |simulation| {
            epoch_of(simulation) > old && simulation.all_live()
        })?;
        ensure!(marks(simulation, 3).1 < 5, "b3 lost nothing: {:?}", marks(simulation, 3));
        let late = Ask {
            version: 17,
            replica: 3,
            replica_epoch: old,
            offset: 5,
            current_epoch: leader_epoch(simulation),
            last_epoch: 0,
        };
        fetch(simulation, 1, late)?;
        pass(simulation, 500)
    };
    let bug = Bug::StaleBrokerEpochJoins;
    Story { bug, breaks: "I3", model: LOSSY, script, ..Story::USUAL }.tell();
}

/// b2 leads, has four committed records and knows of three; b3 has three.
#[test]
fn h05_a_replica_that_joins_below_the_epochs_start_lacks_what_was_committed() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 3)?;
        healthy(simulation)?;
        kill(simulation, 3)?;
        simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
        write(simulation, 1, -1, 1)?;
        ensure!(marks(simulation, 2) == (3, 4), "{:?}", marks(simulation, 2));
        kill(simulation, 1)?;
        let answers = simulation.hold(FETCHED, Some(NodeId(2)), Some(NodeId(3)));
        simulation.start(NodeId(3))?;
        until_led(simulation, 2)?;
        pass(simulation, 1500)?;
        simulation.release(answers);
        simulation.wait_for_isr(TOPIC, 0, &[2, 3])
    };
    let bug = Bug::JoinsBelowEpochStart;
    Story { bug, breaks: "I3", nodes: 5, min_isr: 2, script, ..Story::USUAL }.tell();
}

#[test]
fn h06_a_watermark_that_moves_under_min_isr_is_an_invariant_of_its_own() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 3, -1, 2)?;
        healthy(simulation)?;
        kill(simulation, 4)?;
        kill(simulation, 5)?;
        simulation.wait_for_isr(TOPIC, 0, &[3])?;
        write(simulation, 3, 1, 3)?;
        pass(simulation, 1000)
    };
    let bug = Bug::WatermarkUnderMinIsr;
    let usual = Story { nodes: 5, replicas: &[3, 4, 5], min_isr: 2, ..Story::USUAL };
    Story { bug, breaks: "I16", script, ..usual }.tell();
}

/// b2 was deposed with three records of its own above the common one.
#[test]
fn t08_a_watermark_from_a_diverging_answer_covers_what_is_to_be_cut() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 2, -1, 1)?;
        healthy(simulation)?;
        simulation.isolate(NodeId(2), Plane::Control);
        simulation.wait_for_leader(TOPIC, 0, Some(NodeId(2)))?;
        write(simulation, 2, 1, 3)?;
        write(simulation, 3, -1, 2)?;
        simulation.heal_network();
        healthy(simulation)
    };
    let bug = Bug::WatermarkFromDivergingAnswer;
    Story { bug, breaks: "I1", replicas: &[2, 3, 1], script, ..Story::USUAL }.tell();
}

/// A client was told 6 by b1; b2 has all six records and does not know that the last is committed.
#[test]
fn h02_a_latest_offset_that_goes_back_is_seen_by_a_client() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 3)?;
        healthy(simulation)?;
        let partition = simulation.partition_id(TOPIC, 0)?;
        let asks = ConsumerSettings { latest_every: 1, ..ConsumerSettings::default() };
        simulation.add_consumer(partition, asks);
        pass(simulation, 300)?;
        write(simulation, 1, -1, 3)?;
        pass(simulation, 60)?;
        let known = marks(simulation, 2);
        ensure!(known.0 < 6 && known.1 == 6, "{known:?}");
        kill(simulation, 1)?;
        simulation.hold(FETCHES, Some(NodeId(3)), Some(NodeId(2)));
        until_led(simulation, 2)?;
        pass(simulation, 1000)
    };
    Story { bug: Bug::LatestOffsetGoesBack, breaks: "I8", nodes: 5, script, ..Story::USUAL }.tell();
}

#[test]
fn h07_an_acknowledgement_before_the_watermark_promises_what_nobody_else_has() {
    let script = |simulation: &mut Simulation| {
        for follower in [2, 3] {
            simulation.hold(FETCHES, Some(NodeId(follower)), Some(NodeId(1)));
        }
        pass(simulation, 400)?;
        let partition = simulation.partition_id(TOPIC, 0)?;
        simulation.add_producer(partition, ProducerSettings::default());
        pass(simulation, 1000)
    };
    Story { bug: Bug::AckedByAppendAlone, breaks: "I2", script, ..Story::USUAL }.tell();
}

#[test]
fn c05_an_unclean_leader_that_nobody_asked_for_gives_up_committed_records() {
    let script = |simulation: &mut Simulation| {
        kill(simulation, 4)?;
        simulation.wait_for_isr(TOPIC, 0, &[3])?;
        write(simulation, 3, -1, 2)?;
        kill(simulation, 3)?;
        until_led_by_none(simulation)?;
        simulation.start(NodeId(4))?;
        pass(simulation, 5000)
    };
    let bug = Bug::UncleanLeaderUnasked;
    Story { bug, breaks: "I3", nodes: 5, replicas: &[3, 4], script, ..Story::USUAL }.tell();
}

/// b5 wrote alone in epoch 0, and in a later one; b4, which leads, has less of epoch 0: one cut takes
/// the later epoch whole.
#[test]
fn t04_epochs_that_outlive_a_truncation_start_beyond_the_log() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 5, -1, 10)?;
        until_end(simulation, 4, 10)?;
        kill(simulation, 4)?;
        simulation.wait_for_isr(TOPIC, 0, &[5])?;
        write(simulation, 5, 1, 3)?;
        hand_over(simulation, 5, 5)?;
        write(simulation, 5, 1, 2)?;
        hand_over(simulation, 5, 4)?;
        simulation.start(NodeId(5))?;
        healthy(simulation)
    };
    let bug = Bug::EpochsOutliveTruncation;
    let usual = Story { nodes: 5, replicas: &[5, 4], model: UNCLEAN, ..Story::USUAL };
    Story { bug, breaks: "I9", script, ..usual }.tell();
}

/// b3 leaves the replicas, which begins a new epoch of the same leader.
#[test]
fn t07_a_follower_that_ignores_a_new_epoch_of_the_same_leader_stays_behind() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 2)?;
        healthy(simulation)?;
        ensure!(reassign(simulation, &[1, 2])? == 0, "b3 stays");
        pass(simulation, 500)?;
        write(simulation, 1, 1, 1)?;
        healthy(simulation)
    };
    Story { bug: Bug::SameLeaderNotFollowedAnew, breaks: "L1", script, ..Story::USUAL }.tell();
}

/// b3 hears nothing of the controller and goes on fetching.
#[test]
fn h10_a_fenced_replica_that_joins_is_in_an_isr() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 1, -1, 2)?;
        healthy(simulation)?;
        simulation.isolate(NodeId(3), Plane::Control);
        simulation.wait_for_isr(TOPIC, 0, &[1, 2])?;
        pass(simulation, 2000)
    };
    Story { bug: Bug::FencedReplicaJoins, breaks: "I11", nodes: 5, script, ..Story::USUAL }.tell();
}

/// b5 is gone, b4 is alone in the ISR, and nobody fetches any more.
#[test]
fn h04_a_watermark_that_waits_for_the_next_fetch_waits_for_ever() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 4, -1, 1)?;
        healthy(simulation)?;
        simulation.hold(Kind::MetadataAnswer, None, Some(NodeId(4)));
        part(simulation, 4, 5);
        write(simulation, 4, 1, 1)?;
        simulation.wait_for_isr(TOPIC, 0, &[4])?;
        until(simulation, "b4 commits", |simulation| marks(simulation, 4) == (2, 2))
    };
    let bug = Bug::WatermarkWaitsForNextFetch;
    Story { bug, breaks: "I17", nodes: 5, replicas: &[4, 5], script, ..Story::USUAL }.tell();
}

/// b5 loses what it had not synced, and comes back while b4, which has everything, is away.
#[test]
fn c06_an_unclean_replica_that_stays_eligible_loses_what_was_committed() {
    let script = |simulation: &mut Simulation| {
        write(simulation, 4, -1, 3)?;
        healthy(simulation)?;
        simulation.crash(NodeId(5), CrashKind::LoseUnsynced)?;
        simulation.wait_for_isr(TOPIC, 0, &[4])?;
        simulation.stop_and_wait(NodeId(4))?;
        until_led_by_none(simulation)?;
        simulation.start(NodeId(5))?;
        pass(simulation, 3000)?;
        simulation.start(NodeId(4))?;
        healthy(simulation)
    };
    let usual = Story { nodes: 5, replicas: &[4, 5], min_isr: 2, model: LOSSY, ..Story::USUAL };
    Story { bug: Bug::UncleanReplicaStaysEligible, breaks: "I3", script, ..usual }.tell();
}
