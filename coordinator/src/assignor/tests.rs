//! The assignors held to their promises on thousands of random groups (KIP-848).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use protocol::Uuid;

use super::{Assignment, Assignor, GroupSpec, MemberSpec, Partitions, size};

fn topic(number: u8) -> Uuid {
    let mut bytes = [0; 16];
    bytes[15] = number + 1;
    Uuid(bytes)
}

fn member(topics: &[u8]) -> MemberSpec {
    MemberSpec {
        topics: Arc::new(topics.iter().map(|number| topic(*number)).collect()),
        ..MemberSpec::default()
    }
}

fn group(counts: &[i32], members: &[(&str, &[u8])]) -> GroupSpec {
    GroupSpec {
        members: members.iter().map(|(id, topics)| (Arc::from(*id), member(topics))).collect(),
        partition_counts: counts.iter().enumerate().map(|(i, n)| (topic(i as u8), *n)).collect(),
    }
}

/// The group after its members took what they were assigned.
fn settled(mut group: GroupSpec, assignment: &Assignment) -> GroupSpec {
    for (id, member) in &mut group.members {
        member.assigned = assignment.get(id).cloned().unwrap_or_default();
    }
    group
}

fn owned(partitions: &Partitions) -> BTreeSet<(Uuid, i32)> {
    partitions.iter().flat_map(|(topic, of_topic)| of_topic.iter().map(|p| (*topic, *p))).collect()
}

/// Partitions that a member had, that still exist and are subscribed to, and that it lost.
fn moved(group: &GroupSpec, assignment: &Assignment) -> usize {
    let (kept, _) = group.kept();
    kept.iter().map(|(id, had)| owned(had).difference(&owned(&assignment[id])).count()).sum()
}

fn assert_complete(group: &GroupSpec, assignment: &Assignment) {
    let mut given = BTreeSet::new();
    assert!(assignment.keys().eq(group.members.keys()));
    for (id, partitions) in assignment {
        for (topic, of_topic) in partitions {
            assert!(!of_topic.is_empty());
            assert!(group.members[id].topics.contains(topic), "{id} does not subscribe");
        }
        for partition in owned(partitions) {
            assert!(given.insert(partition), "{partition:?} is given twice");
        }
    }
    let wanted: BTreeSet<Uuid> =
        group.members.values().flat_map(|member| member.topics.iter().copied()).collect();
    let all: BTreeSet<(Uuid, i32)> = wanted
        .iter()
        .flat_map(|topic| (0..group.partition_count(topic)).map(|at| (*topic, at)))
        .collect();
    assert_eq!(given, all);
}

/// A random group; its members have what other assignors and other times left them.
fn random_group(homogeneous: bool) -> impl Strategy<Value = GroupSpec> {
    let counts = prop::collection::vec(0..12i32, 1..5);
    let members = prop::collection::btree_map(
        "[a-f]{1,3}",
        (prop::collection::btree_set(0..5u8, 0..5), prop::option::of("[a-z]{1,2}")),
        1..9,
    );
    let owners =
        prop::collection::vec(prop::option::weighted(0.7, any::<prop::sample::Index>()), 60);
    (counts, members, owners).prop_map(move |(counts, members, owners)| {
        let mut group = group(&counts, &[]);
        let common = members.values().next().map(|(topics, _)| topics.clone()).unwrap_or_default();
        for (id, (topics, instance_id)) in &members {
            let topics = if homogeneous { &common } else { topics };
            let mut spec = member(&topics.iter().copied().collect::<Vec<_>>());
            spec.instance_id = instance_id.clone();
            group.members.insert(Arc::from(id.as_str()), spec);
        }
        let ids: Vec<Arc<str>> = group.members.keys().cloned().collect();
        for (at, owner) in owners.into_iter().enumerate() {
            let Some(owner) = owner else { continue };
            let (topic, partition) = (topic((at / 12) as u8), (at % 12) as i32);
            let owner = &ids[owner.index(ids.len())];
            let spec = group.members.get_mut(owner).expect("an id of the group");
            spec.assigned.entry(topic).or_default().insert(partition);
        }
        group
    })
}

/// The fewest partitions that must move for sizes to differ by one at most.
fn unavoidable_moves(group: &GroupSpec) -> usize {
    let (kept, _) = group.kept();
    let total: usize = group
        .members
        .values()
        .next()
        .map(|m| m.topics.iter().map(|t| group.partition_count(t) as usize).sum())
        .unwrap_or(0);
    let (least, mut odd) = (total / kept.len(), total % kept.len());
    let mut moves = 0;
    for has in kept.values().map(size).filter(|has| *has > least) {
        let quota = least + usize::from(odd > 0);
        odd = odd.saturating_sub(1);
        moves += has - quota;
    }
    moves
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn uniform_with_equal_subscriptions_is_complete_even_and_moves_only_what_it_must(
        group in random_group(true),
    ) {
        let assignment = Assignor::Uniform.assign(&group);
        assert_complete(&group, &assignment);
        let sizes: Vec<usize> = assignment.values().map(size).collect();
        prop_assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
        prop_assert_eq!(moved(&group, &assignment), unavoidable_moves(&group));
        prop_assert_eq!(Assignor::Uniform.assign(&settled(group, &assignment)), assignment);
    }

    #[test]
    fn uniform_with_unlike_subscriptions_is_complete_and_no_single_move_evens_it_further(
        group in random_group(false),
    ) {
        let assignment = Assignor::Uniform.assign(&group);
        assert_complete(&group, &assignment);
        for (giver, partitions) in &assignment {
            for topic in partitions.keys() {
                for (taker, spec) in &group.members {
                    prop_assert!(
                        !spec.topics.contains(topic)
                            || size(partitions) <= size(&assignment[taker]) + 1,
                        "{} should give one of {:?} to {}", giver, topic, taker
                    );
                }
            }
        }
        prop_assert_eq!(Assignor::Uniform.assign(&settled(group, &assignment)), assignment);
    }

    #[test]
    fn uniform_leaves_everything_where_it_is_when_that_is_even_already(
        group in random_group(false),
    ) {
        let before = settled(group.clone(), &Assignor::Uniform.assign(&group));
        let mut shrunk = before.clone();
        // A member that had nothing goes: nobody else need notice.
        shrunk.members.retain(|_, member| !member.assigned.is_empty());
        if !shrunk.members.is_empty() {
            let after = Assignor::Uniform.assign(&shrunk);
            prop_assert_eq!(moved(&shrunk, &after), 0);
        }
    }

    #[test]
    fn range_is_complete_and_gives_runs_that_are_alike_in_topics_of_equal_size(
        group in random_group(false),
    ) {
        let assignment = Assignor::Range.assign(&group);
        assert_complete(&group, &assignment);
        for partitions in assignment.values() {
            for of_topic in partitions.values() {
                let (first, last) = (of_topic.first().unwrap(), of_topic.last().unwrap());
                prop_assert_eq!(of_topic.len() as i32, last - first + 1);
            }
        }
    }

    #[test]
    fn range_with_equal_subscriptions_shares_topics_of_equal_size_out_alike(
        group in random_group(true),
    ) {
        let assignment = Assignor::Range.assign(&group);
        for partitions in assignment.values() {
            let mut by_count: BTreeMap<i32, &BTreeSet<i32>> = BTreeMap::new();
            for (topic, of_topic) in partitions {
                let same = by_count.entry(group.partition_count(topic)).or_insert(of_topic);
                prop_assert_eq!(*same, of_topic);
            }
        }
    }
}

#[test]
fn a_second_member_takes_the_last_partitions_of_the_first() {
    let mut group = group(&[3], &[("m1", &[0]), ("m2", &[0])]);
    let all = Partitions::from([(topic(0), (0..3).collect())]);
    group.members.get_mut("m2").unwrap().assigned = all;
    let assignment = Assignor::Uniform.assign(&group);
    assert_eq!(assignment["m2"], Partitions::from([(topic(0), BTreeSet::from([0, 1]))]));
    assert_eq!(assignment["m1"], Partitions::from([(topic(0), BTreeSet::from([2]))]));
}

#[test]
fn range_puts_static_members_first_by_instance_id() {
    let mut group = group(&[3, 3], &[("a", &[0, 1]), ("b", &[0, 1]), ("c", &[0, 1])]);
    group.members.get_mut("c").unwrap().instance_id = Some("i1".to_owned());
    group.members.get_mut("b").unwrap().instance_id = Some("i2".to_owned());
    let assignment = Assignor::Range.assign(&group);
    let run = |at: i32| {
        Partitions::from([(topic(0), BTreeSet::from([at])), (topic(1), BTreeSet::from([at]))])
    };
    assert_eq!(assignment["c"], run(0));
    assert_eq!(assignment["b"], run(1));
    assert_eq!(assignment["a"], run(2));
}

#[test]
fn a_topic_that_nobody_can_have_more_of_does_not_hold_up_the_others() {
    // One member has a big topic alone; the small topic goes to the others.
    let group = group(&[9, 4], &[("a", &[0, 1]), ("b", &[1]), ("c", &[1])]);
    let assignment = Assignor::Uniform.assign(&group);
    assert_eq!(size(&assignment["a"]), 9);
    assert_eq!((size(&assignment["b"]), size(&assignment["c"])), (2, 2));
}

#[test]
fn topics_that_do_not_exist_and_empty_groups_are_nothing_to_share_out() {
    let empty = GroupSpec::default();
    assert!(Assignor::Uniform.assign(&empty).is_empty());
    assert!(Assignor::Range.assign(&empty).is_empty());
    let lonely = group(&[], &[("a", &[0]), ("b", &[])]);
    for assignor in [Assignor::Uniform, Assignor::Range] {
        assert!(assignor.assign(&lonely).values().all(Partitions::is_empty));
    }
    assert_eq!(Assignor::named("range"), Some(Assignor::Range));
    assert_eq!(Assignor::named("Range"), None);
}
