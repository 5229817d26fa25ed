//! KIP-392: consumers read from a replica near them. K01, K02.

use protocol::{ErrorCode, NodeId, Offset};
use replication::FetchIsolation;
use replication::partition::FetchReader;

use crate::support::Cluster;

fn racks(id: NodeId) -> Option<String> {
    Some(if id.get() == 1 { "a".into() } else { "b".into() })
}

fn prefer(cluster: &Cluster, id: i32, rack: &str, offset: i64) -> Option<i32> {
    let node = cluster.node(id);
    node.state
        .preferred_read_replica(rack, Offset(offset), &node.log.facts(), &racks, cluster.now)
        .map(NodeId::get)
}

#[test]
fn k01_the_leader_redirects_to_an_isr_member_of_the_rack() {
    let mut cluster = Cluster::new(3, 1);
    cluster.produce(1, &(0..10).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.fetch(3);
    assert_eq!(prefer(&cluster, 1, "b", 5), Some(2));
    assert_eq!(prefer(&cluster, 1, "a", 5), None);
    assert_eq!(prefer(&cluster, 1, "", 5), None);
    assert_eq!(prefer(&cluster, 2, "a", 5), None, "followers never redirect");
    cluster.controller.leave_isr(2);
    cluster.publish_all();
    assert_eq!(prefer(&cluster, 1, "b", 0), Some(3), "only ISR members");
    assert_eq!(prefer(&cluster, 1, "b", 5), None, "node 3 has not shown that it has offset 5");
}

#[test]
fn k01_a_replica_that_is_not_alive_is_not_chosen() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &[1]);
    cluster.catch_up(2);
    let node = cluster.node(1);
    let nobody = |_: NodeId| None;
    let chosen =
        node.state.preferred_read_replica("b", Offset(0), &node.log.facts(), &nobody, cluster.now);
    assert_eq!(chosen, None);
}

#[test]
fn k02_a_follower_serves_consumers_within_its_own_log() {
    let mut cluster = Cluster::new(2, 1);
    cluster.produce(1, &(0..7).collect::<Vec<_>>());
    cluster.catch_up(2);
    cluster.produce(1, &(7..8).collect::<Vec<_>>());
    cluster.fetch(2);
    let node = cluster.node(2);
    let facts = node.log.facts();
    assert_eq!(node.state.check_fetch(FetchReader::Consumer, 1.into()), Ok(()));
    let limit = node.state.last_fetchable_offset(FetchIsolation::HighWatermark, &facts);
    assert_eq!(limit.offset, Offset(7));
    let at = |offset| {
        node.state
            .check_fetch_offset(&node.log.epochs, &facts, None, Offset(offset))
            .map_err(|error| error.code())
    };
    assert_eq!(at(7), Ok(None));
    assert_eq!(at(8), Ok(None));
    assert_eq!(at(9), Err(ErrorCode::OffsetOutOfRange));
}
