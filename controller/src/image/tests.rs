//! Applying records, the delta of what changed, and snapshots.

use protocol::types::{LeaderEpoch, NodeId, Offset, PartitionEpoch, TopicId, Uuid};

use super::*;
use crate::config::ConfigResource;
use crate::records::{
    BrokerChange, ClusterBoot, Config, FeatureLevel, NodeList, Partition, PartitionChange,
    ProducerIds, RegisterBroker, RemoveTopic, Topic, UnregisterBroker,
};
use crate::{ApplyError, MetadataRecord};

const TOPIC: TopicId = Uuid([7; 16]);

fn register(id: i32, epoch: i64) -> MetadataRecord {
    RegisterBroker {
        broker_id: id,
        broker_epoch: epoch,
        incarnation_id: Some(Uuid([id as u8; 16]).into()),
        fenced: true,
        rack: Some("r1".into()),
        ..Default::default()
    }
    .into()
}

fn partition() -> MetadataRecord {
    Partition {
        topic_id: Some(TOPIC.into()),
        replicas: vec![1, 2],
        isr: vec![1, 2],
        leader: 1,
        ..Default::default()
    }
    .into()
}

fn topic() -> MetadataRecord {
    Topic { name: "t".into(), topic_id: Some(TOPIC.into()) }.into()
}

fn config(value: Option<&str>) -> MetadataRecord {
    Config {
        resource_type: 2,
        resource_name: "t".into(),
        key: "retention.ms".into(),
        value: value.map(str::to_owned),
    }
    .into()
}

fn image_of(records: &[MetadataRecord]) -> (ClusterImage, ImageDelta) {
    let mut image = ClusterImage::default();
    let mut delta = ImageDelta::default();
    image.apply_batch(Offset(1), LeaderEpoch(1), records, &mut delta).unwrap();
    (image, delta)
}

fn full_image() -> ClusterImage {
    let feature = FeatureLevel { name: "metadata.version".into(), level: 30 };
    let block = ProducerIds { broker_id: 1, broker_epoch: 1, next_producer_id: 2000 };
    let boot = ClusterBoot { cluster_id: "c".into() };
    let records = [
        boot.into(),
        feature.into(),
        register(1, 1),
        register(2, 1),
        topic(),
        partition(),
        config(Some("5")),
        block.into(),
    ];
    image_of(&records).0
}

#[test]
fn a_snapshot_gives_the_same_image_again() {
    let image = full_image();
    let snapshot = image.to_snapshot();
    let read = crate::records::MetadataSnapshot::from_bytes(&snapshot.to_bytes()).unwrap();
    assert_eq!(ClusterImage::from_snapshot(&read).unwrap(), image);
}

#[test]
fn every_change_bumps_the_partition_epoch_and_an_election_the_leader_epoch_i10() {
    let (mut image, _) = image_of(&[topic(), partition()]);
    let mut delta = ImageDelta::default();
    let shrink = PartitionChange {
        topic_id: Some(TOPIC.into()),
        isr: Some(NodeList { nodes: vec![1] }),
        ..Default::default()
    };
    image.apply(&shrink.into(), &mut delta).unwrap();
    let after = image.partition(TOPIC, 0).unwrap();
    assert_eq!(after.isr, [NodeId(1)]);
    assert_eq!((after.leader_epoch, after.partition_epoch), (LeaderEpoch(0), PartitionEpoch(1)));

    let same_leader =
        PartitionChange { topic_id: Some(TOPIC.into()), leader: Some(1), ..Default::default() };
    image.apply(&same_leader.into(), &mut delta).unwrap();
    let after = image.partition(TOPIC, 0).unwrap();
    assert_eq!((after.leader_epoch, after.partition_epoch), (LeaderEpoch(1), PartitionEpoch(2)));
    assert!(delta.changed_partitions.contains(&(TOPIC, 0)));
}

#[test]
fn a_clone_does_not_see_later_records() {
    let image = full_image();
    let mut later = image.clone();
    let remove = RemoveTopic { topic_id: Some(TOPIC.into()) };
    let mut delta = ImageDelta::default();
    later.apply(&remove.into(), &mut delta).unwrap();
    assert!(image.topic(TOPIC).is_some() && later.topic(TOPIC).is_none());
    assert!(later.topic_by_name("t").is_none());
    // The topic's configs go with it.
    assert_eq!(later.configs(&ConfigResource::topic("t")), None);
    assert!(delta.changed_configs.contains(&ConfigResource::topic("t")));
    assert_eq!(delta.deleted_topics.keys().copied().collect::<Vec<_>>(), [TOPIC]);
}

#[test]
fn a_topic_recreated_under_its_name_is_another_topic_i01() {
    let mut image = full_image();
    let mut delta = ImageDelta::default();
    let other = Uuid([8; 16]);
    image.apply(&RemoveTopic { topic_id: Some(TOPIC.into()) }.into(), &mut delta).unwrap();
    let again = Topic { name: "t".into(), topic_id: Some(other.into()) };
    image.apply(&again.into(), &mut delta).unwrap();
    assert_eq!(image.topic_id("t"), Some(other));
    assert!(delta.deleted_topics.contains_key(&TOPIC) && delta.created_topics.contains(&other));
}

#[test]
fn the_difference_of_two_images_names_what_the_records_named() {
    let before = full_image();
    let mut after = before.clone();
    let mut delta = ImageDelta::default();
    let unfence =
        BrokerChange { broker_id: 2, broker_epoch: 1, fenced: Some(false), ..Default::default() };
    let election =
        PartitionChange { topic_id: Some(TOPIC.into()), leader: Some(2), ..Default::default() };
    for record in [unfence.into(), election.into(), config(None)] {
        after.apply(&record, &mut delta).unwrap();
    }
    assert_eq!(ImageDelta::between(&before, &after), delta);
    assert!(ImageDelta::between(&after, &after).is_empty());
}

#[test]
fn records_that_contradict_the_image_are_errors() {
    let mut image = full_image();
    let mut delta = ImageDelta::default();
    let unknown = Uuid([9; 16]);
    let cases: Vec<(MetadataRecord, ApplyError)> = vec![
        (MetadataRecord { kind: None }, ApplyError::UnknownKind),
        (topic(), ApplyError::DuplicateTopic { name: "t".into(), id: TOPIC }),
        (RemoveTopic { topic_id: Some(unknown.into()) }.into(), ApplyError::UnknownTopic(unknown)),
        (
            PartitionChange { topic_id: Some(TOPIC.into()), partition: 5, ..Default::default() }
                .into(),
            ApplyError::UnknownPartition { topic: TOPIC, partition: 5 },
        ),
        (
            UnregisterBroker { broker_id: 1, broker_epoch: 9 }.into(),
            ApplyError::UnknownBroker { broker: NodeId(1), epoch: 9.into() },
        ),
    ];
    for (record, error) in cases {
        assert_eq!(image.apply(&record, &mut delta), Err(error));
    }
    let again = image.apply_batch(Offset(1), LeaderEpoch(1), &[], &mut delta);
    assert_eq!(again, Err(ApplyError::OutOfOrder { have: Offset(1), given: Offset(1) }));
}
