//! Committed offsets, call by call as Kafka 4.4.0 answers: the expected answers were taken from it with
//! the same requests.

mod common;

use std::time::Duration;

use common::{World, world};
use coordinator::{Record, ShardConfig};
use protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use protocol::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, ListGroupsRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, OffsetFetchResponse,
};
use protocol::{ErrorCode, Uuid};

/// Partition, offset, metadata.
type Commit<'a> = (i32, i64, Option<&'a str>);

fn commit_topic(name: &str, commits: &[Commit<'_>]) -> OffsetCommitRequestTopic {
    let partitions = commits.iter().map(|(index, offset, metadata)| OffsetCommitRequestPartition {
        partition_index: *index,
        committed_offset: *offset,
        committed_metadata: metadata.map(str::to_owned),
        ..Default::default()
    });
    OffsetCommitRequestTopic {
        name: name.to_owned(),
        partitions: partitions.collect(),
        ..Default::default()
    }
}

fn commit(group: &str, topics: Vec<OffsetCommitRequestTopic>) -> OffsetCommitRequest {
    OffsetCommitRequest { group_id: group.to_owned(), topics, ..Default::default() }
}

/// Commits, and gives back topic, partition and error code of each entry of the answer.
fn committed(
    world: &mut World,
    version: i16,
    request: OffsetCommitRequest,
) -> Vec<(String, i32, i16)> {
    let response = world.call(version, request);
    let flat = response.topics.iter().flat_map(|topic| {
        let name = if topic.name.is_empty() && version >= 10 {
            topic.topic_id.to_string()
        } else {
            topic.name.clone()
        };
        let entries = topic.partitions.iter();
        entries
            .map(move |partition| (name.clone(), partition.partition_index, partition.error_code))
    });
    flat.collect()
}

fn entry(name: &str, partition: i32, error: i16) -> (String, i32, i16) {
    (name.to_owned(), partition, error)
}

fn fetch(
    world: &mut World,
    version: i16,
    group: &str,
    topics: Option<&[(&str, &[i32])]>,
) -> OffsetFetchResponse {
    let request = if version < 8 {
        OffsetFetchRequest {
            group_id: group.to_owned(),
            topics: topics.map(|topics| {
                topics
                    .iter()
                    .map(|(name, indexes)| OffsetFetchRequestTopic {
                        name: (*name).to_owned(),
                        partition_indexes: indexes.to_vec(),
                        ..Default::default()
                    })
                    .collect()
            }),
            ..Default::default()
        }
    } else {
        OffsetFetchRequest { groups: vec![fetch_group(group, topics)], ..Default::default() }
    };
    world.call(version, request)
}

fn fetch_group(group: &str, topics: Option<&[(&str, &[i32])]>) -> OffsetFetchRequestGroup {
    OffsetFetchRequestGroup {
        group_id: group.to_owned(),
        topics: topics.map(|topics| {
            topics
                .iter()
                .map(|(name, indexes)| OffsetFetchRequestTopics {
                    name: (*name).to_owned(),
                    partition_indexes: indexes.to_vec(),
                    ..Default::default()
                })
                .collect()
        }),
        ..Default::default()
    }
}

/// Partition and offset of the first group's first topic.
fn offsets_of(world: &mut World, group: &str) -> Vec<(String, i32, i64)> {
    let response = fetch(world, 9, group, None);
    let topics = response.groups[0].topics.iter();
    topics
        .flat_map(|topic| {
            topic.partitions.iter().map(|partition| {
                (topic.name.clone(), partition.partition_index, partition.committed_offset)
            })
        })
        .collect()
}

fn at(name: &str, partition: i32, offset: i64) -> (String, i32, i64) {
    (name.to_owned(), partition, offset)
}

fn listed(world: &mut World) -> Vec<(String, String, String, String)> {
    let response = world.call(5, ListGroupsRequest::default());
    let groups = response.groups.into_iter();
    groups
        .map(|group| (group.group_id, group.protocol_type, group.group_state, group.group_type))
        .collect()
}

#[test]
fn a_commit_without_a_group_makes_an_empty_one_that_list_and_describe_show() {
    let mut world = world();
    let request = commit("o1", vec![commit_topic("t1", &[(0, 5, Some("m")), (1, 6, None)])]);
    assert_eq!(committed(&mut world, 9, request), [entry("t1", 0, 0), entry("t1", 1, 0)]);
    assert_eq!(world.batches, [2], "one batch, and no record of the group");
    let group = |id: &str| (id.into(), String::new(), "Empty".into(), "classic".into());
    assert_eq!(listed(&mut world), [group("o1")]);
    let request = DescribeGroupsRequest { groups: vec!["o1".into()], ..Default::default() };
    let described = &world.call(6, request).groups[0];
    assert_eq!((described.error_code, described.group_state.as_str()), (0, "Empty"));
    assert_eq!((described.protocol_type.as_str(), described.members.len()), ("", 0));
    world.reload();
    assert_eq!(listed(&mut world), [group("o1")]);
}

#[test]
fn a_commit_writes_the_record_that_kafka_writes() {
    let mut world = world();
    committed(&mut world, 9, commit("o1", vec![commit_topic("t1", &[(0, 5, Some("m"))])]));
    let (key, value) = world.last_record().encode().expect("writable");
    assert_eq!(&key[..], b"\0\x01\0\x02o1\0\x02t1\0\0\0\0");
    let mut expected = b"\0\x04\0\0\0\0\0\0\0\x05\xff\xff\xff\xff\x02m".to_vec();
    expected.extend(world.now_ms().to_be_bytes());
    expected.extend(b"\x01\0\x10");
    expected.extend([1; 16]);
    assert_eq!(value.expect("a value"), expected);
}

#[test]
fn a_retention_of_the_request_is_written_in_version_1() {
    let mut world = world();
    let request = OffsetCommitRequest {
        retention_time_ms: 60_000,
        ..commit("o2", vec![commit_topic("t1", &[(0, 5, Some("m"))])])
    };
    committed(&mut world, 2, request);
    let (_, value) = world.last_record().encode().expect("writable");
    let mut expected = b"\0\x01\0\0\0\0\0\0\0\x05\0\x01m".to_vec();
    expected.extend(world.now_ms().to_be_bytes());
    expected.extend((world.now_ms() + 60_000).to_be_bytes());
    assert_eq!(value.expect("a value"), expected);
}

#[test]
fn partitions_that_do_not_exist_are_refused_first_and_the_rest_is_committed() {
    let mut world = world();
    let topics = vec![
        commit_topic("t1", &[(0, 5, None)]),
        commit_topic("nope", &[(0, 1, None)]),
        commit_topic("t1", &[(1, 5, None)]),
    ];
    assert_eq!(
        committed(&mut world, 9, commit("o1", topics)),
        [entry("nope", 0, 3), entry("t1", 0, 0), entry("t1", 1, 0)]
    );
    let topics = vec![commit_topic("t1", &[(7, 5, None), (-1, 5, None)])];
    assert_eq!(
        committed(&mut world, 9, commit("o1", topics)),
        [entry("t1", 7, 3), entry("t1", -1, 3)]
    );
    // Offsets are the client's: nothing is wrong with a negative one.
    let topics = vec![commit_topic("t1", &[(0, -3, None)])];
    assert_eq!(committed(&mut world, 9, commit("o1", topics)), [entry("t1", 0, 0)]);
}

#[test]
fn version_10_names_topics_by_id() {
    let mut world = world();
    let by_id = |id: Uuid| OffsetCommitRequestTopic {
        topic_id: id,
        ..commit_topic("", &[(0, 15, Some("m"))])
    };
    let (known, unknown) = (Uuid([1; 16]), Uuid([0xab; 16]));
    let request = commit("o1", vec![by_id(known), by_id(unknown), by_id(Uuid::ZERO)]);
    assert_eq!(
        committed(&mut world, 10, request),
        [
            entry(&unknown.to_string(), 0, 100),
            entry(&Uuid::ZERO.to_string(), 0, 100),
            entry(&known.to_string(), 0, 0),
        ]
    );
    let ask = |id: Uuid| OffsetFetchRequestTopics {
        topic_id: id,
        partition_indexes: vec![0, 9],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: "o1".into(),
        topics: Some(vec![ask(known), ask(unknown)]),
        ..Default::default()
    };
    let response = world.call(10, OffsetFetchRequest { groups: vec![group], ..Default::default() });
    let topics = &response.groups[0].topics;
    let flat: Vec<_> = topics
        .iter()
        .flat_map(|t| t.partitions.iter().map(|p| (t.topic_id, p.committed_offset, p.error_code)))
        .collect();
    assert_eq!(flat, [(known, 15, 0), (known, -1, 0), (unknown, -1, 100), (unknown, -1, 100)]);
    let response = fetch(&mut world, 10, "o1", None);
    assert_eq!(response.groups[0].topics[0].topic_id, known);
}

#[test]
fn metadata_beyond_the_limit_is_refused_for_its_partition_alone() {
    let mut world = world();
    let (long, most) = ("x".repeat(4097), "é".repeat(4096));
    let topics = vec![commit_topic("t1", &[(0, 5, Some(&long)), (1, 7, Some(&most))])];
    assert_eq!(
        committed(&mut world, 9, commit("o1", topics)),
        [entry("t1", 0, 12), entry("t1", 1, 0)]
    );
    assert_eq!(offsets_of(&mut world, "o1"), [at("t1", 1, 7)]);
    let topics = vec![commit_topic("t1", &[(0, 5, Some(&long))])];
    assert_eq!(committed(&mut world, 9, commit("o3", topics)), [entry("t1", 0, 12)]);
}

#[test]
fn a_member_of_a_group_that_is_not_there_is_told_so_in_the_words_of_its_version() {
    let mut world = world();
    let member = |topics| OffsetCommitRequest {
        generation_id_or_member_epoch: 3,
        member_id: "z".into(),
        ..commit("nog", topics)
    };
    let one = || vec![commit_topic("t1", &[(0, 5, None)])];
    assert_eq!(committed(&mut world, 8, member(one())), [entry("t1", 0, 22)]);
    assert_eq!(committed(&mut world, 9, member(one())), [entry("t1", 0, 69)]);
    // With nothing that could be committed the group is not asked.
    let unknown = vec![commit_topic("nope", &[(0, 5, None)])];
    assert_eq!(committed(&mut world, 9, member(unknown)), [entry("nope", 0, 3)]);
    assert_eq!(committed(&mut world, 9, member(Vec::new())), []);
    assert!(listed(&mut world).is_empty());
}

#[test]
fn an_empty_group_takes_commits_from_outside_only() {
    let mut world = world();
    let one = || vec![commit_topic("t1", &[(0, 5, None)])];
    assert_eq!(committed(&mut world, 9, commit("", one())), [entry("t1", 0, 0)]);
    committed(&mut world, 9, commit("o1", one()));
    for (generation, member, instance, error) in
        [(-1, "zz", None, 0), (0, "zz", None, 25), (0, "", Some("i"), 25), (-1, "", None, 0)]
    {
        let request = OffsetCommitRequest {
            generation_id_or_member_epoch: generation,
            member_id: member.into(),
            group_instance_id: instance.map(str::to_owned),
            ..commit("o1", one())
        };
        assert_eq!(committed(&mut world, 9, request), [entry("t1", 0, error)], "{generation}");
    }
}

#[test]
fn fetch_answers_in_every_version() {
    let mut world = world();
    let topics = vec![commit_topic("t1", &[(0, 5, Some("m")), (1, 6, None)])];
    committed(&mut world, 9, commit("o1", topics));
    let asked: &[(&str, &[i32])] = &[("t1", &[0, 1, 5]), ("nope", &[0])];
    for version in 1..8 {
        let response = fetch(&mut world, version, "o1", Some(asked));
        let flat: Vec<_> = response
            .topics
            .iter()
            .flat_map(|t| t.partitions.iter().map(|p| (t.name.as_str(), p)))
            .map(|(name, p)| (name, p.partition_index, p.committed_offset, p.error_code))
            .collect();
        let expected = [("t1", 0, 5, 0), ("t1", 1, 6, 0), ("t1", 5, -1, 0), ("nope", 0, -1, 0)];
        assert_eq!(flat, expected, "version {version}");
        assert_eq!(response.topics[0].partitions[0].metadata.as_deref(), Some("m"));
        assert_eq!(response.topics[0].partitions[2].metadata.as_deref(), Some(""));
    }
    for version in 2..8 {
        let response = fetch(&mut world, version, "o1", None);
        assert_eq!(response.topics.len(), 1);
        assert_eq!(response.topics[0].partitions.len(), 2);
        let missing = fetch(&mut world, version, "zzz", None);
        assert_eq!((missing.topics.len(), missing.error_code), (0, 0));
    }
    for version in 8..10 {
        let response = fetch(&mut world, version, "o1", Some(asked));
        assert_eq!(response.groups[0].topics[0].partitions[1].committed_offset, 6);
        assert_eq!(response.groups[0].topics[1].partitions[0].committed_offset, -1);
    }
}

#[test]
fn several_groups_are_answered_in_the_order_they_are_asked_for_also_twice() {
    let mut world = world();
    for group in ["o1", "o2"] {
        committed(&mut world, 9, commit(group, vec![commit_topic("t1", &[(0, 5, None)])]));
    }
    let groups = vec![
        fetch_group("o1", None),
        fetch_group("o2", None),
        fetch_group("o1", Some(&[])),
        fetch_group("zzz", Some(&[("t1", &[0])])),
    ];
    let response = world.call(9, OffsetFetchRequest { groups, ..Default::default() });
    let seen: Vec<_> = response
        .groups
        .iter()
        .map(|g| (g.group_id.as_str(), g.topics.len(), g.error_code))
        .collect();
    assert_eq!(seen, [("o1", 1, 0), ("o2", 1, 0), ("o1", 0, 0), ("zzz", 1, 0)]);
}

#[test]
fn leader_epochs_are_kept() {
    let mut world = world();
    let mut topic = commit_topic("t1", &[(0, 5, None)]);
    topic.partitions[0].committed_leader_epoch = 4;
    committed(&mut world, 9, commit("o1", vec![topic]));
    world.reload();
    let response = fetch(&mut world, 9, "o1", None);
    assert_eq!(response.groups[0].topics[0].partitions[0].committed_leader_epoch, 4);
}

#[test]
fn a_reader_waits_until_what_it_sees_is_committed() {
    let mut world = world();
    world.set_high_watermark(Some(0));
    let request = commit("o1", vec![commit_topic("t1", &[(0, 5, None)])]);
    let commit_token = world.send(9, request);
    let read = OffsetFetchRequest { groups: vec![fetch_group("o1", None)], ..Default::default() };
    let read_token = world.send(9, read);
    assert!(world.answers.is_empty(), "neither the commit nor the read may be answered yet");
    world.set_high_watermark(Some(1));
    assert_eq!(world.answers.len(), 2);
    assert!(world.take::<OffsetCommitRequest>(9, commit_token).is_some());
    let response = world.take::<OffsetFetchRequest>(9, read_token).expect("an answer");
    assert_eq!(response.groups[0].topics[0].partitions[0].committed_offset, 5);
}

#[test]
fn a_failed_write_changes_nothing_and_says_what_failed() {
    let mut world = world();
    for (append, seen) in [
        (ErrorCode::NotEnoughReplicas, ErrorCode::CoordinatorNotAvailable),
        (ErrorCode::NotLeaderOrFollower, ErrorCode::NotCoordinator),
        (ErrorCode::MessageTooLarge, ErrorCode::UnknownServerError),
    ] {
        world.failures.push_back(Some(append));
        let topics =
            vec![commit_topic("nope", &[(0, 1, None)]), commit_topic("t1", &[(0, 5, None)])];
        assert_eq!(
            committed(&mut world, 9, commit("o1", topics)),
            [entry("nope", 0, 3), entry("t1", 0, seen.code())]
        );
    }
    assert_eq!(offsets_of(&mut world, "o1"), []);
    assert!(listed(&mut world).is_empty());
}

#[test]
fn offset_delete_answers_by_partition_and_deletes_what_nobody_reads() {
    let mut world = world();
    let topics = vec![commit_topic("t1", &[(0, 5, None), (1, 6, None)])];
    committed(&mut world, 9, commit("o1", topics));
    let topic = |name: &str, indexes: &[i32]| OffsetDeleteRequestTopic {
        name: name.into(),
        partitions: indexes
            .iter()
            .map(|index| OffsetDeleteRequestPartition { partition_index: *index })
            .collect(),
    };
    let delete = |group: &str, topics| OffsetDeleteRequest { group_id: group.into(), topics };
    let topics = vec![topic("t1", &[1, 9]), topic("nope", &[1]), topic("t1", &[0])];
    let response = world.call(0, delete("o1", topics));
    assert_eq!(response.error_code, 0);
    let flat: Vec<_> = response
        .topics
        .iter()
        .flat_map(|t| {
            t.partitions.iter().map(|p| (t.name.as_str(), p.partition_index, p.error_code))
        })
        .collect();
    assert_eq!(flat, [("t1", 9, 3), ("t1", 1, 0), ("t1", 0, 0), ("nope", 1, 3)]);
    assert_eq!(offsets_of(&mut world, "o1"), []);
    for (group, error) in [("zzz", 69), ("", 24)] {
        let response = world.call(0, delete(group, vec![topic("nope", &[0])]));
        assert_eq!((response.error_code, response.topics.len()), (error, 0));
    }
}

#[test]
fn delete_groups_writes_tombstones_for_offsets_and_group_in_one_batch() {
    let mut world = world();
    for group in ["", "o2"] {
        committed(&mut world, 9, commit(group, vec![commit_topic("t1", &[(0, 5, None)])]));
    }
    let request = DeleteGroupsRequest {
        groups_names: ["o2", "zzz", "o2", ""].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let response = world.call(2, request);
    let results: Vec<_> =
        response.results.iter().map(|r| (r.group_id.as_str(), r.error_code)).collect();
    assert_eq!(results, [("o2", 0), ("zzz", 69), ("", 0)]);
    assert_eq!(world.batches, [1, 1, 4]);
    assert!(listed(&mut world).is_empty());
    world.reload();
    assert!(listed(&mut world).is_empty());
    assert_eq!(offsets_of(&mut world, "o2"), []);
}

#[test]
fn list_filters_by_state_and_type_without_regard_to_case() {
    let mut world = world();
    committed(&mut world, 9, commit("o1", vec![commit_topic("t1", &[(0, 5, None)])]));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let cases: [(&[&str], &[&str], usize); 8] = [
        (&[], &[], 1),
        (&["empty"], &[], 1),
        (&[" Empty ", "stable"], &["classic", "bogus"], 1),
        (&["Bogus"], &[], 0),
        (&["Stable"], &[], 0),
        (&[], &["CLASSIC"], 1),
        (&[], &["bogus"], 0),
        (&[], &["consumer"], 0),
    ];
    for (states, types, count) in cases {
        let request = ListGroupsRequest {
            states_filter: names(states),
            types_filter: names(types),
            ..Default::default()
        };
        assert_eq!(world.call(5, request).groups.len(), count, "{states:?} {types:?}");
    }
}

#[test]
fn describing_a_group_that_is_not_there_differs_by_version() {
    let mut world = world();
    for (version, error, message) in [(5, 0, None), (6, 69, Some("Group zzz not found."))] {
        let request = DescribeGroupsRequest { groups: vec!["zzz".into()], ..Default::default() };
        let group = &world.call(version, request).groups[0];
        assert_eq!((group.error_code, group.group_state.as_str()), (error, "Dead"));
        assert_eq!(group.error_message.as_deref(), message);
    }
}

#[test]
fn offsets_alone_expire_by_their_commit_and_the_group_with_the_last_of_them() {
    let hour = 3_600_000;
    let mut world = World::new(ShardConfig {
        offsets_retention: Duration::from_millis(10 * hour),
        offsets_retention_check_interval: Duration::from_millis(hour),
        ..ShardConfig::default()
    });
    committed(&mut world, 9, commit("o1", vec![commit_topic("t1", &[(0, 5, None)])]));
    let request = OffsetCommitRequest {
        retention_time_ms: 2 * hour as i64,
        ..commit("o2", vec![commit_topic("t1", &[(0, 5, None)])])
    };
    committed(&mut world, 2, request);
    world.pass_ms(3 * hour);
    assert_eq!(listed(&mut world).len(), 1, "o2 has gone by its own time");
    committed(&mut world, 9, commit("o1", vec![commit_topic("t1", &[(1, 6, None)])]));
    world.pass_ms(8 * hour);
    assert_eq!(offsets_of(&mut world, "o1"), [at("t1", 1, 6)]);
    world.pass_ms(3 * hour);
    assert!(listed(&mut world).is_empty());
    assert!(matches!(world.last_record(), Record::GroupMetadata(_, None)));
    world.reload();
    assert!(listed(&mut world).is_empty());
}

#[test]
fn deleted_topics_drop_their_offsets_and_topics_not_seen_yet_keep_them() {
    let mut world = world();
    world.topics.create("t2", 2, 1);
    for topic in ["t1", "t2"] {
        committed(&mut world, 9, commit("o1", vec![commit_topic(topic, &[(0, 5, None)])]));
    }
    // The metadata of the new coordinator does not know t2 yet.
    world.topics.delete("t2");
    world.reload();
    world.topics_changed();
    assert_eq!(offsets_of(&mut world, "o1"), [at("t1", 0, 5), at("t2", 0, 5)]);
    world.topics.create("t2", 2, 1);
    world.topics_changed();
    world.topics.delete("t2");
    world.failures.push_back(Some(ErrorCode::NotEnoughReplicas));
    world.topics_changed();
    assert_eq!(offsets_of(&mut world, "o1").len(), 2, "that write failed");
    world.topics_changed();
    assert_eq!(offsets_of(&mut world, "o1"), [at("t1", 0, 5)]);
    // A topic of the same name is another topic.
    world.topics.delete("t1");
    world.topics.create("t1", 9, 2);
    world.topics_changed();
    assert_eq!(offsets_of(&mut world, "o1"), []);
}
