//! Topics and partitions, with the errors Kafka 4.4 gives (asked of a running one), and I01.

use protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use protocol::messages::create_topics_response::CreatableTopicResult;
use protocol::messages::delete_topics_request::DeleteTopicState;
use protocol::messages::{CreatePartitionsRequest, DeleteTopicsRequest};

use super::*;

fn counted(name: &str, partitions: i32, replication_factor: i16) -> CreatableTopic {
    CreatableTopic {
        name: name.into(),
        num_partitions: partitions,
        replication_factor,
        ..Default::default()
    }
}

fn create(cluster: &mut Cluster, topic: CreatableTopic) -> CreatableTopicResult {
    let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
    cluster.ask(7, request).topics.remove(0)
}

fn refusal(cluster: &mut Cluster, topic: CreatableTopic) -> (i16, String) {
    let before = cluster.follower.offset();
    let result = create(cluster, topic);
    assert_eq!(cluster.follower.offset(), before);
    (result.error_code, result.error_message.unwrap_or_default())
}

#[test]
fn a_created_topic_is_placed_led_and_answered_with_its_configs() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let mut topic = counted("new", 6, 2);
    topic.configs = creatable_configs(&[("retention.ms", "1000")]);
    let result = create(&mut cluster, topic);
    assert_eq!((result.error_code, result.num_partitions, result.replication_factor), (0, 6, 2));
    let image = cluster.follower.topic_by_name("new").unwrap();
    assert_eq!(image.id, result.topic_id);
    assert_eq!(image.partitions.len(), 6);
    for partition in image.partitions.values() {
        assert_eq!((partition.leader_epoch.get(), partition.partition_epoch.get()), (0, 0));
        assert_eq!(partition.leader, partition.replicas[0]);
        assert_eq!(partition.isr, partition.replicas);
    }
    let configs = result.configs.unwrap();
    let shown = |name: &str| {
        let config = configs.iter().find(|config| config.name == name).unwrap();
        (config.value.as_deref().unwrap(), config.config_source)
    };
    assert_eq!(shown("retention.ms"), ("1000", 1));
    assert_eq!(shown("segment.ms"), ("604800000", 5));
    assert_eq!(configs.len(), 37);
}

#[test]
fn the_broker_s_defaults_fill_in_for_minus_one() {
    let mut config = config();
    (config.default_partitions, config.default_replication_factor) = (4, 2);
    let mut cluster = Cluster::with_config(config);
    cluster.join(1);
    cluster.join(2);
    let result = create(&mut cluster, counted("new", -1, -1));
    assert_eq!((result.num_partitions, result.replication_factor), (4, 2));
}

#[test]
fn validating_only_answers_and_changes_nothing() {
    let mut cluster = Cluster::of(&[1]);
    let before = cluster.follower.clone();
    let mut request =
        CreateTopicsRequest { topics: vec![counted("new", 1, 1)], ..Default::default() };
    request.validate_only = true;
    let response = cluster.ask(7, request);
    assert_eq!(response.topics[0].error_code, 0);
    assert_eq!(cluster.follower, before);
}

#[test]
fn impossible_topics_are_refused_with_kafka_s_errors() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    create(&mut cluster, counted("c.d", 1, 1));
    let cluster = &mut cluster;
    assert_eq!(refusal(cluster, counted("c.d", 1, 1)).0, 36);
    let (code, text) = refusal(cluster, counted("c_d", 1, 1));
    assert_eq!((code, text.as_str()), (17, "Topic 'c_d' collides with existing topic: c.d"));
    for name in ["", ".", "..", "a b", &"x".repeat(250)] {
        assert_eq!(refusal(cluster, counted(name, 1, 1)).0, 17, "{name:?}");
    }
    assert_eq!(refusal(cluster, counted("__cluster_metadata", 1, 1)).0, 42);
    assert_eq!(refusal(cluster, counted("x", 0, 1)).0, 37);
    assert_eq!(refusal(cluster, counted("x", -2, 1)).0, 37);
    assert_eq!(refusal(cluster, counted("x", 1, 0)).0, 38);
    let (code, text) = refusal(cluster, counted("x", 1, 9));
    assert_eq!(code, 38);
    assert!(text.starts_with("Unable to replicate the partition 9 time(s): The target"), "{text}");
    assert_eq!(refusal(cluster, counted("x", 20_000, 1)).0, 44);
}

#[test]
fn wrong_configs_keep_a_topic_from_being_created() {
    let mut cluster = Cluster::of(&[1]);
    let mut with = |key: &str, value: Option<&str>| {
        let mut topic = counted("x", 1, 1);
        topic.configs = vec![CreatableTopicConfig {
            name: key.into(),
            value: value.map(str::to_owned),
            ..Default::default()
        }];
        refusal(&mut cluster, topic)
    };
    assert_eq!(with("foo", Some("1")), (40, "Unknown topic config name: foo".into()));
    assert_eq!(with("retention.ms", Some("abc")).0, 40);
    assert_eq!(with("retention.ms", None).0, 40);
}

#[test]
fn manual_assignments_are_checked() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    let mut code =
        |assignments: &[&[i32]]| refusal(&mut cluster, manual_topic("x", assignments, &[])).0;
    assert_eq!(code(&[&[1, 1]]), 39);
    assert_eq!(code(&[&[1, 9]]), 39);
    assert_eq!(code(&[&[]]), 39);
    assert_eq!(code(&[&[1, 2], &[1]]), 39);
    let mut gap = manual_topic("x", &[&[1]], &[]);
    gap.assignments[0].partition_index = 1;
    assert_eq!(refusal(&mut cluster, gap).0, 39);
    let mut sized = manual_topic("x", &[&[1]], &[]);
    sized.num_partitions = 1;
    assert_eq!(refusal(&mut cluster, sized).0, 42);
    cluster.fence(1);
    assert_eq!(refusal(&mut cluster, manual_topic("x", &[&[1]], &[])).0, 39);
    // A fenced replica may be assigned, but is not in the ISR.
    create(&mut cluster, manual_topic(TOPIC, &[&[1, 2]], &[]));
    assert_eq!(cluster.state_of(0), (2, 0, 0, vec![2]));
}

#[test]
fn a_name_twice_in_one_request_is_refused_and_names_that_collide_with_each_other_are_not() {
    let mut cluster = Cluster::of(&[1]);
    let names = ["a", "a", "b.c", "b_c"];
    let topics = names.map(|name| counted(name, 1, 1)).to_vec();
    let response = cluster.ask(7, CreateTopicsRequest { topics, ..Default::default() });
    let told: Vec<(&str, i16)> =
        response.topics.iter().map(|topic| (topic.name.as_str(), topic.error_code)).collect();
    assert_eq!(told, [("b.c", 0), ("b_c", 0), ("a", 42)]);
    assert_eq!(response.topics[0].error_message, None);
}

/// As Kafka answers: names given twice do not count, but are refused with the others.
#[test]
fn too_many_partitions_refuse_the_whole_request() {
    let mut cluster = Cluster::of(&[1]);
    let mut create = |topics: &[(&str, i32)]| {
        let topics = topics.iter().map(|(name, count)| counted(name, *count, 1)).collect();
        let request = CreateTopicsRequest { topics, validate_only: true, ..Default::default() };
        let response = cluster.ask(7, request);
        response.topics.iter().map(|topic| topic.error_code).collect::<Vec<i16>>()
    };
    assert_eq!(create(&[("a", 9_000), ("b", 1_001)]), [44, 44]);
    assert_eq!(create(&[("a", 9_000), ("b", 1_001), ("b", 1)]), [0, 42]);
    assert_eq!(create(&[("a", 10_001), ("b", 1), ("b", 1)]), [44, 44, 44]);
}

#[test]
fn topics_are_deleted_by_name_or_id_and_come_back_as_others_i01() {
    let mut cluster = Cluster::with_topic();
    let first = cluster.topic_id();
    cluster.fence(1);
    let by_name = DeleteTopicsRequest { topic_names: vec![TOPIC.into()], ..Default::default() };
    assert_eq!(cluster.ask(5, by_name.clone()).responses[0].error_code, 0);
    assert_eq!(cluster.ask(5, by_name).responses[0].error_code, 3);
    cluster.create(&[&[2, 3]], &[]);
    let second = cluster.topic_id();
    assert_ne!(first, second);
    assert_eq!(cluster.state_of(0), (2, 0, 0, vec![2, 3]));
    let mut by_id = |topic_id, name: Option<&str>| {
        let topic =
            DeleteTopicState { topic_id, name: name.map(str::to_owned), ..Default::default() };
        let request = DeleteTopicsRequest { topics: vec![topic], ..Default::default() };
        let response = cluster.ask(6, request);
        (response.responses[0].error_code, response.responses[0].name.clone())
    };
    assert_eq!(by_id(first, None), (100, None));
    assert_eq!(by_id(second, Some(TOPIC)).0, 42);
    assert_eq!(by_id(Uuid::ZERO, None).0, 42);
    assert_eq!(by_id(second, None), (0, Some(TOPIC.to_owned())));
}

/// As Kafka answers, texts included.
#[test]
fn what_a_request_names_twice_is_refused_once_and_not_deleted() {
    let mut cluster = Cluster::with_topic();
    let id = cluster.topic_id();
    let mut delete = |topics: &[(Option<&str>, TopicId)]| {
        let topics = topics.iter().map(|(name, topic_id)| DeleteTopicState {
            name: name.map(str::to_owned),
            topic_id: *topic_id,
            ..Default::default()
        });
        let request = DeleteTopicsRequest { topics: topics.collect(), ..Default::default() };
        let responses = cluster.ask(6, request).responses.into_iter();
        responses
            .map(|told| (told.name, told.topic_id, told.error_code, told.error_message))
            .collect::<Vec<_>>()
    };
    let refused = |name: Option<&str>, id: TopicId, code: i16, text: &str| {
        (name.map(str::to_owned), id, code, Some(text.to_owned()))
    };
    let (by_name, by_id) = ((Some(TOPIC), Uuid::ZERO), (None, id));
    let both_ways = "The provided topic name maps to an ID that was already supplied.";
    assert_eq!(delete(&[by_name, by_id]), [refused(Some(TOPIC), id, 42, both_ways)]);
    assert_eq!(delete(&[by_id, by_id]), [refused(None, id, 42, "Duplicate topic id.")]);
    assert_eq!(
        delete(&[by_id, by_id, by_name]),
        [refused(None, id, 42, "Duplicate topic id."), refused(Some(TOPIC), id, 42, both_ways)]
    );
    let twice = refused(Some(TOPIC), Uuid::ZERO, 42, "Duplicate topic name.");
    assert_eq!(delete(&[by_name, by_name]), std::slice::from_ref(&twice));
    let neither = refused(None, Uuid::ZERO, 42, "Neither topic name nor id were specified.");
    assert_eq!(delete(&[(None, Uuid::ZERO); 2]), [neither.clone(), neither]);
    let no_name = "This server does not host this topic-partition.";
    assert_eq!(delete(&[(Some("u"), Uuid::ZERO)]), [refused(Some("u"), Uuid::ZERO, 3, no_name)]);
    let unknown = Uuid([3; 16]);
    let no_id = "This server does not host this topic ID.";
    assert_eq!(delete(&[(None, unknown)]), [refused(None, unknown, 100, no_id)]);
    // A name given twice does not protect the topic from its id.
    assert_eq!(delete(&[by_name, by_name, by_id]), [twice, (Some(TOPIC.to_owned()), id, 0, None)]);
}

#[test]
fn deletion_can_be_disabled() {
    let mut config = config();
    config.delete_topics = false;
    let mut cluster = Cluster::with_config(config);
    cluster.join(1);
    create(&mut cluster, counted(TOPIC, 1, 1));
    let request = DeleteTopicsRequest { topic_names: vec![TOPIC.into()], ..Default::default() };
    assert_eq!(cluster.ask(5, request).responses[0].error_code, 73);
}

#[test]
fn partitions_are_added_and_never_taken_away() {
    let mut cluster = Cluster::of(&[1, 2, 3]);
    cluster.create(&[&[1, 2], &[2, 3]], &[]);
    let mut add = |count: i32, assignments: Option<&[&[i32]]>| {
        let assignments = assignments.map(|lists| {
            let lists = lists.iter().map(|list| CreatePartitionsAssignment {
                broker_ids: list.to_vec(),
                ..Default::default()
            });
            lists.collect()
        });
        let topic =
            CreatePartitionsTopic { name: TOPIC.into(), count, assignments, ..Default::default() };
        let request = CreatePartitionsRequest { topics: vec![topic], ..Default::default() };
        cluster.ask(3, request).results[0].error_code
    };
    assert_eq!(add(2, None), 37);
    assert_eq!(add(1, None), 37);
    assert_eq!(add(-1, None), 37);
    assert_eq!(add(3, Some(&[&[1, 9]])), 39);
    assert_eq!(add(3, Some(&[&[1]])), 39);
    assert_eq!(add(4, Some(&[&[1, 2]])), 39);
    assert_eq!(add(3, Some(&[&[3, 1]])), 0);
    assert_eq!(add(6, None), 0);
    assert_eq!(cluster.state_of(2), (3, 0, 0, vec![3, 1]));
    assert_eq!(cluster.partition(5).replicas.len(), 2);
}

/// As Kafka answers: what is no increase or no topic does not count, nor names given twice.
#[test]
fn too_many_new_partitions_refuse_the_whole_request() {
    let mut cluster = Cluster::of(&[1]);
    cluster.create(&[&[1]], &[]);
    create(&mut cluster, counted("other", 1, 1));
    let mut add = |topics: &[(&str, i32)]| {
        let topics = topics.iter().map(|(name, count)| CreatePartitionsTopic {
            name: (*name).into(),
            count: *count,
            assignments: None,
            ..Default::default()
        });
        let request = CreatePartitionsRequest {
            topics: topics.collect(),
            validate_only: true,
            ..Default::default()
        };
        let results = cluster.ask(3, request).results.into_iter();
        results.map(|told| (told.name, told.error_code)).collect::<Vec<_>>()
    };
    let told = |all: &[(&str, i16)]| {
        all.iter().map(|(name, code)| ((*name).to_owned(), *code)).collect::<Vec<_>>()
    };
    assert_eq!(add(&[(TOPIC, 10_001)]), told(&[(TOPIC, 0)]));
    assert_eq!(add(&[(TOPIC, 10_002), ("other", 0)]), told(&[(TOPIC, 44), ("other", 44)]));
    assert_eq!(add(&[(TOPIC, i32::MAX), ("nope", 2)]), told(&[(TOPIC, 44), ("nope", 44)]));
    assert_eq!(add(&[("nope", 20_000)]), told(&[("nope", 3)]));
    let twice = [(TOPIC, 20_000), (TOPIC, 2), ("other", 3)];
    assert_eq!(add(&twice), told(&[("other", 0), (TOPIC, 42)]));
}
