//! The plan over fetchers (I12, T10).

use super::fake::tip;
use fetcher::manager::fetcher_id;
use fetcher::{FetcherKey, FetcherManager, Follow};
use protocol::{LeaderEpoch, NodeId, TopicPartition};

fn follow(partition: i32, leader: i32, epoch: i32) -> Follow {
    Follow { partition: tip(partition), leader: NodeId(leader), leader_epoch: LeaderEpoch(epoch) }
}

fn place(leader: i32, fetcher_id: u32) -> FetcherKey {
    FetcherKey { leader: NodeId(leader), fetcher_id }
}

#[test]
fn the_hash_is_javas() {
    // "t".hashCode() = 116, "topic".hashCode() = 110546223.
    assert_eq!(fetcher_id(&TopicPartition::new("t", 0), 1000), (116 * 31) % 1000);
    let mixed = 110_546_223i32.wrapping_mul(31).wrapping_add(3);
    assert_eq!(fetcher_id(&TopicPartition::new("topic", 3), 7), mixed.unsigned_abs() % 7);
    assert_eq!(fetcher_id(&TopicPartition::new("t", 9), 1), 0);
}

#[test]
fn i12_a_partition_leaves_its_old_fetcher_before_it_enters_the_new_one() {
    let mut manager = FetcherManager::new(2);
    let plan = manager.follow([follow(0, 1, 0), follow(1, 1, 0), follow(2, 1, 0)]);
    assert!(plan.removals.is_empty());
    assert_eq!(plan.additions[&place(1, 0)].len(), 2);
    assert_eq!(plan.additions[&place(1, 1)].len(), 1);
    assert!(manager.follow([follow(0, 1, 0), follow(1, 3, -1)]).is_empty());

    let plan = manager.follow([follow(1, 3, 1)]);
    assert_eq!(plan.removals[&place(1, 1)], [tip(1)]);
    assert_eq!(plan.additions[&place(3, 1)][0].leader_epoch, LeaderEpoch(1));
    assert_eq!(plan.idle, [place(1, 1)]);
    assert_eq!(manager.fetcher_of(&tip(1)), Some(place(3, 1)));

    let plan = manager.unfollow([&tip(0), &tip(2), &tip(9)]);
    assert_eq!(plan.removals[&place(1, 0)], [tip(0), tip(2)]);
    assert_eq!(plan.idle, [place(1, 0)]);
    assert_eq!(manager.len(), 1);
}

#[test]
fn t07_a_new_epoch_at_the_same_leader_restarts_the_partition() {
    let mut manager = FetcherManager::new(1);
    manager.follow([follow(0, 1, 5)]);
    let plan = manager.follow([follow(0, 1, 7)]);
    assert_eq!(plan.removals[&place(1, 0)], [tip(0)]);
    assert_eq!(plan.additions[&place(1, 0)][0].leader_epoch, LeaderEpoch(7));
    assert!(plan.idle.is_empty());
}

#[test]
fn the_last_order_of_a_batch_wins() {
    let mut manager = FetcherManager::new(1);
    let plan = manager.follow([follow(0, 1, 5), follow(0, 2, 6)]);
    assert!(!plan.additions.contains_key(&place(1, 0)));
    assert_eq!(plan.additions[&place(2, 0)].len(), 1);
}
