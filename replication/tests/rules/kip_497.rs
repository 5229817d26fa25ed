//! KIP-497: the ISR changes through AlterPartition, and the maximal ISR holds the watermark while one is
//! in flight. H03, H04, H13.

use std::time::Duration;

use protocol::{ErrorCode, NodeId, Offset};
use replication::isr::AlterPartitionErrorKind;
use replication::{AlterPartitionResponse, IsrProposal, IsrState};

use crate::support::Cluster;

fn isr(cluster: &Cluster) -> IsrState {
    cluster.node(1).state.isr().cloned().expect("node 1 leads")
}

fn maximal(cluster: &Cluster) -> Vec<i32> {
    isr(cluster).maximal().into_iter().map(NodeId::get).collect()
}

fn take_proposal(cluster: &mut Cluster) -> IsrProposal {
    let outbox = &mut cluster.node_mut(1).outbox;
    assert_eq!(outbox.len(), 1, "{outbox:?}");
    outbox.pop().expect("one proposal")
}

/// Leader 1 with ISR {1,2}; node 3 has caught up at 10, its proposal is held; then five more records
/// reached node 2 only.
fn held_expansion() -> (Cluster, IsrProposal) {
    let mut cluster = Cluster::new(3, 1);
    cluster.controller.isr = vec![1, 2];
    cluster.controller.partition_epoch += 1;
    cluster.publish_all();
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    let proposal = take_proposal(&mut cluster);
    cluster.produce(1, &(10..15).collect::<Vec<_>>());
    cluster.fetch(2);
    cluster.fetch(2);
    (cluster, proposal)
}

fn respond(cluster: &mut Cluster, sent: &IsrProposal, error: ErrorCode) {
    cluster.respond(1, sent, &AlterPartitionResponse::Error(error));
}

#[test]
fn h03_a_pending_member_holds_the_watermark() {
    let (mut cluster, proposal) = held_expansion();
    assert_eq!(cluster.high_watermark(1), 10, "node 3 may be in the ISR already");
    // Not even when node 3 has lagged too long to be waited for on its own account.
    cluster.pass(Duration::from_secs(60));
    cluster.fetch(2);
    assert_eq!(cluster.high_watermark(1), 10);
    assert_eq!(maximal(&cluster), [1, 2, 3]);
    let response = cluster.controller.alter_partition(1, &proposal);
    cluster.respond(1, &proposal, &response);
    assert_eq!(isr(&cluster), IsrState::committed([1, 2, 3].map(NodeId)));
    assert_eq!(cluster.node(1).state.partition_epoch().get(), cluster.controller.partition_epoch);
    assert_eq!(cluster.high_watermark(1), 10);
}

#[test]
fn h03_a_certain_refusal_reverts_and_frees_the_watermark() {
    for error in [ErrorCode::IneligibleReplica, ErrorCode::OperationNotAttempted] {
        let (mut cluster, proposal) = held_expansion();
        cluster.pass(Duration::from_secs(60));
        let epoch = cluster.node(1).state.partition_epoch();
        respond(&mut cluster, &proposal, error);
        assert_eq!(isr(&cluster), IsrState::committed([1, 2].map(NodeId)));
        assert_eq!(cluster.node(1).state.partition_epoch(), epoch);
        assert_eq!(cluster.high_watermark(1), 15);
    }
}

#[test]
fn h03_an_answer_that_knows_better_keeps_the_maximal_isr_until_metadata() {
    for error in [
        ErrorCode::FencedLeaderEpoch,
        ErrorCode::InvalidUpdateVersion,
        ErrorCode::InvalidRequest,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::UnknownTopicId,
        ErrorCode::NewLeaderElected,
    ] {
        assert_eq!(AlterPartitionErrorKind::of(error), AlterPartitionErrorKind::AwaitMetadata);
        let (mut cluster, proposal) = held_expansion();
        cluster.pass(Duration::from_secs(60));
        respond(&mut cluster, &proposal, error);
        cluster.fetch(2);
        cluster.check_lag(1);
        assert!(cluster.node(1).outbox.is_empty(), "{error}: one in flight per partition");
        assert_eq!(maximal(&cluster), [1, 2, 3], "{error}");
        assert_eq!(cluster.high_watermark(1), 10, "{error}");
        // The same partition epoch again tells nothing new.
        cluster.publish(1);
        assert_eq!(maximal(&cluster), [1, 2, 3], "{error}");
        cluster.controller.partition_epoch += 1;
        cluster.publish(1);
        assert_eq!(isr(&cluster), IsrState::committed([1, 2].map(NodeId)), "{error}");
        assert_eq!(cluster.high_watermark(1), 15, "{error}");
    }
}

#[test]
fn h13_an_uncertain_answer_is_asked_again_unchanged() {
    for error in [ErrorCode::NotController, ErrorCode::RequestTimedOut, ErrorCode::StaleBrokerEpoch]
    {
        let (mut cluster, proposal) = held_expansion();
        respond(&mut cluster, &proposal, error);
        assert_eq!(take_proposal(&mut cluster), proposal, "{error}");
        assert_eq!(maximal(&cluster), [1, 2, 3]);
    }
}

#[test]
fn h13_a_retry_of_a_change_that_did_happen_ends_with_the_metadata() {
    let (mut cluster, proposal) = held_expansion();
    let _lost = cluster.controller.alter_partition(1, &proposal);
    respond(&mut cluster, &proposal, ErrorCode::RequestTimedOut);
    let again = take_proposal(&mut cluster);
    let response = cluster.controller.alter_partition(1, &again);
    assert_eq!(response, AlterPartitionResponse::Error(ErrorCode::InvalidUpdateVersion));
    cluster.respond(1, &again, &response);
    assert_eq!(maximal(&cluster), [1, 2, 3]);
    cluster.publish(1);
    assert_eq!(isr(&cluster), IsrState::committed([1, 2, 3].map(NodeId)));
}

#[test]
fn h03_an_answer_overtaken_by_metadata_is_ignored() {
    let (mut cluster, proposal) = held_expansion();
    let response = cluster.controller.alter_partition(1, &proposal);
    cluster.controller.leave_isr(2);
    cluster.publish(1);
    assert_eq!(isr(&cluster), IsrState::committed([1, 3].map(NodeId)));
    cluster.respond(1, &proposal, &response);
    assert_eq!(isr(&cluster), IsrState::committed([1, 3].map(NodeId)), "the answer is older");
}

#[test]
fn h13_a_change_without_effect_confirms_under_the_same_partition_epoch() {
    let (mut cluster, proposal) = held_expansion();
    let mut confirmed = cluster.controller.confirmed();
    confirmed.isr = [1, 2, 3].map(NodeId).to_vec();
    assert_eq!(confirmed.partition_epoch, cluster.node(1).state.partition_epoch());
    cluster.respond(1, &proposal, &AlterPartitionResponse::Success(confirmed));
    assert_eq!(isr(&cluster), IsrState::committed([1, 2, 3].map(NodeId)));
}

#[test]
fn h03_a_pending_shrink_does_not_let_the_watermark_pass_who_is_to_leave() {
    let mut cluster = Cluster::new(3, 2);
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.catch_up(3);
    cluster.produce(1, &[10, 11]);
    cluster.pass(Duration::from_secs(31));
    cluster.catch_up(3);
    cluster.check_lag(1);
    let proposal = take_proposal(&mut cluster);
    assert_eq!(proposal.member_ids().into_iter().map(NodeId::get).collect::<Vec<_>>(), [1, 3]);
    cluster.catch_up(3);
    cluster.check_lag(1);
    assert!(cluster.node(1).outbox.is_empty(), "one in flight per partition");
    assert_eq!(cluster.high_watermark(1), 10);
    assert_eq!(maximal(&cluster), [1, 2, 3]);
    assert_eq!(cluster.node(1).state.check_produce(-1), Ok(()), "three confirmed members");
    // The controller elects node 2 instead: nothing below the watermark is missing there.
    cluster.controller.fence(1);
    assert_eq!(cluster.controller.leader, 2);
    assert!(cluster.log_end(2) >= cluster.high_watermark(1));
}

#[test]
fn h04_a_confirmed_shrink_moves_the_watermark_without_another_fetch() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2, 3]);
    cluster.pass(Duration::from_secs(31));
    cluster.check_lag(1);
    assert_eq!(cluster.high_watermark(1), 0);
    let proposal = take_proposal(&mut cluster);
    let response = cluster.controller.alter_partition(1, &proposal);
    let now = cluster.now;
    let node = cluster.node_mut(1);
    let facts = node.log.facts();
    let effects =
        node.state.on_alter_partition_response(&proposal, &response, &facts, &node.directory, now);
    assert_eq!(effects.high_watermark.map(|moved| moved.to.offset), Some(Offset(3)));
    assert!(effects.wake.produce && effects.wake.fetch);
    assert_eq!(cluster.high_watermark(1), 3);
}

#[test]
fn h04_metadata_that_shrinks_the_isr_moves_the_watermark_as_well() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1, 2, 3]);
    cluster.pass(Duration::from_secs(31));
    cluster.controller.fence(2);
    cluster.publish(1);
    assert_eq!(cluster.high_watermark(1), 3);
}
