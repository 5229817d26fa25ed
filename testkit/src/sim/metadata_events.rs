//! The events behind a change of the committed metadata: what the controller decided, told once per
//! batch however many controllers apply it.

use controller::{ClusterImage, ImageDelta, LeaderRecoveryState, PartitionImage};
use protocol::{NodeId, TopicPartition};
use replication::trace::{Event, Nodes, Why};

/// What happened between two images.
pub fn between(before: &ClusterImage, after: &ClusterImage, delta: &ImageDelta) -> Vec<Event> {
    let mut events = Vec::new();
    for id in &delta.created_topics {
        if let Some(topic) = after.topic(*id) {
            events.push(Event::TopicCreated {
                topic: topic.name.to_string(),
                topic_id: *id,
                partitions: topic.partitions.len() as i32,
                why: Why::TopicLifecycle,
            });
        }
    }
    for (id, topic) in &delta.deleted_topics {
        events.push(Event::TopicDeleted {
            topic: topic.name.to_string(),
            topic_id: *id,
            why: Why::TopicLifecycle,
        });
    }
    for id in &delta.changed_brokers {
        broker_events(before, after, *id, &mut events);
    }
    for (topic, index) in &delta.changed_partitions {
        let (Some(name), Some(now)) = (after.topic_name(*topic), after.partition(*topic, *index))
        else {
            continue;
        };
        let partition = TopicPartition::new(name.clone(), *index);
        let earlier = before.partition(*topic, *index).map(|partition| &**partition);
        partition_events(&partition, earlier, now, &mut events);
    }
    events
}

fn broker_events(before: &ClusterImage, after: &ClusterImage, id: NodeId, events: &mut Vec<Event>) {
    let Some(now) = after.broker(id) else {
        return;
    };
    let earlier = before.broker(id);
    let broker_epoch = now.epoch;
    if earlier.is_none_or(|earlier| earlier.epoch != now.epoch) {
        events.push(Event::BrokerRegistered { broker: id, broker_epoch, why: Why::Registration });
        return;
    }
    let Some(earlier) = earlier else {
        return;
    };
    if !earlier.fenced && now.fenced {
        events.push(Event::BrokerFenced { broker: id, broker_epoch, why: Why::HeartbeatTimeout });
    }
    if earlier.fenced && !now.fenced {
        events.push(Event::BrokerUnfenced {
            broker: id,
            broker_epoch,
            why: Why::HeartbeatCaughtUp,
        });
    }
    if !earlier.in_controlled_shutdown && now.in_controlled_shutdown {
        let why = Why::ControlledShutdown;
        events.push(Event::BrokerShuttingDown { broker: id, broker_epoch, why });
    }
}

fn partition_events(
    partition: &TopicPartition,
    before: Option<&PartitionImage>,
    now: &PartitionImage,
    events: &mut Vec<Event>,
) {
    let none = PartitionImage::default();
    let earlier = before.unwrap_or(&none);
    if before.is_some() && earlier.replicas != now.replicas {
        events.push(Event::ReplicasChanged {
            partition: partition.clone(),
            from: earlier.replicas.iter().collect(),
            to: now.replicas.iter().collect(),
            partition_epoch: now.partition_epoch,
            why: Why::Reassignment,
        });
    }
    if before.is_none() || earlier.leader_epoch != now.leader_epoch {
        let clean = now.leader_recovery_state == LeaderRecoveryState::Recovered;
        events.push(Event::LeaderElected {
            partition: partition.clone(),
            from: if before.is_none() { NodeId::NONE } else { earlier.leader },
            to: now.leader,
            leader_epoch: now.leader_epoch,
            partition_epoch: now.partition_epoch,
            isr: now.isr.iter().collect::<Nodes>(),
            clean,
            why: match (now.leader == NodeId::NONE, clean) {
                (true, _) => Why::NoLeaderAvailable,
                (false, true) => Why::LeaderChosenByController,
                (false, false) => Why::UncleanElection,
            },
        });
    } else if earlier.isr != now.isr {
        events.push(Event::IsrChanged {
            partition: partition.clone(),
            partition_epoch: now.partition_epoch,
            from: earlier.isr.iter().collect(),
            to: now.isr.iter().collect(),
            why: Why::IsrConfirmed,
        });
    }
}
