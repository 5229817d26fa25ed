//! The events behind a change of the committed metadata, and why each happened, as far as the records
//! tell. Both hosts tell what comes out of here: the real one where the controller leads the quorum, the
//! simulated one once per batch, however many controllers apply it.

use protocol::types::{NodeId, TopicPartition};
use replication::trace::{Event, Nodes, Why};

use crate::image::{ClusterImage, ImageDelta, LeaderRecoveryState, PartitionImage};

/// What happened between two images.
pub fn between(before: &ClusterImage, after: &ClusterImage, delta: &ImageDelta) -> Vec<Event> {
    let change = Change { before, after };
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
        change.broker_events(*id, &mut events);
    }
    for (topic, index) in &delta.changed_partitions {
        let (Some(name), Some(now)) = (after.topic_name(*topic), after.partition(*topic, *index))
        else {
            continue;
        };
        let partition = TopicPartition::new(name.clone(), *index);
        match before.partition(*topic, *index) {
            Some(earlier) => change.partition_events(&partition, earlier, now, &mut events),
            None => events.push(first_leader(partition, now)),
        }
    }
    events
}

/// A partition that did not exist before has its first leader.
fn first_leader(partition: TopicPartition, now: &PartitionImage) -> Event {
    Event::LeaderElected {
        partition,
        from: NodeId::NONE,
        to: now.leader,
        leader_epoch: now.leader_epoch,
        partition_epoch: now.partition_epoch,
        isr: now.isr.iter().collect(),
        clean: true,
        why: match now.leader {
            NodeId::NONE => Why::NoLeaderAvailable,
            _ => Why::LeaderChosenByController,
        },
    }
}

struct Change<'a> {
    before: &'a ClusterImage,
    after: &'a ClusterImage,
}

impl Change<'_> {
    fn broker_events(&self, id: NodeId, events: &mut Vec<Event>) {
        let Some(now) = self.after.broker(id) else {
            return;
        };
        let broker_epoch = now.epoch;
        let Some(earlier) = self.before.broker(id).filter(|earlier| earlier.epoch == now.epoch)
        else {
            let why = Why::Registration;
            events.push(Event::BrokerRegistered { broker: id, broker_epoch, why });
            return;
        };
        let directories = now.log_dirs.len() as i32;
        if now.log_dirs.len() < earlier.log_dirs.len() {
            let why = Why::LogDirectoryFailed;
            events.push(Event::DirectoryLost { broker: id, broker_epoch, directories, why });
        }
        if !earlier.fenced && now.fenced {
            let why = match earlier.in_controlled_shutdown {
                true => Why::ControlledShutdown,
                false => Why::HeartbeatTimeout,
            };
            events.push(Event::BrokerFenced { broker: id, broker_epoch, why });
        }
        if earlier.fenced && !now.fenced {
            let why = Why::HeartbeatCaughtUp;
            events.push(Event::BrokerUnfenced { broker: id, broker_epoch, why });
        }
        if !earlier.in_controlled_shutdown && now.in_controlled_shutdown {
            let why = Why::ControlledShutdown;
            events.push(Event::BrokerShuttingDown { broker: id, broker_epoch, why });
        }
    }

    fn partition_events(
        &self,
        partition: &TopicPartition,
        earlier: &PartitionImage,
        now: &PartitionImage,
        events: &mut Vec<Event>,
    ) {
        if earlier.replicas != now.replicas {
            events.push(Event::ReplicasChanged {
                partition: partition.clone(),
                from: earlier.replicas.iter().collect(),
                to: now.replicas.iter().collect(),
                partition_epoch: now.partition_epoch,
                why: Why::Reassignment,
            });
        }
        if earlier.leader_epoch != now.leader_epoch {
            events.push(Event::LeaderElected {
                partition: partition.clone(),
                from: earlier.leader,
                to: now.leader,
                leader_epoch: now.leader_epoch,
                partition_epoch: now.partition_epoch,
                isr: now.isr.iter().collect::<Nodes>(),
                clean: now.leader_recovery_state == LeaderRecoveryState::Recovered,
                why: self.why_elected(earlier, now),
            });
        } else if earlier.isr != now.isr {
            let gone = earlier.isr.iter().filter(|member| !now.isr.contains(member));
            let why = gone.copied().find_map(|member| self.why_out(member, now));
            events.push(Event::IsrChanged {
                partition: partition.clone(),
                partition_epoch: now.partition_epoch,
                from: earlier.isr.iter().collect(),
                to: now.isr.iter().collect(),
                why: why.unwrap_or(Why::IsrConfirmed),
            });
        }
    }

    fn why_elected(&self, earlier: &PartitionImage, now: &PartitionImage) -> Why {
        if now.leader == NodeId::NONE {
            return Why::NoLeaderAvailable;
        }
        if now.leader_recovery_state == LeaderRecoveryState::Recovering {
            let was_last = earlier.last_known_elr == [now.leader];
            let is_all = earlier.isr.is_empty() && earlier.eligible_leader_replicas.is_empty();
            return if was_last && is_all { Why::LastKnownLeader } else { Why::UncleanElection };
        }
        if !earlier.isr.contains(&now.leader)
            && (earlier.isr.is_empty() || earlier.eligible_leader_replicas.contains(&now.leader))
        {
            return Why::EligibleLeader;
        }
        if earlier.replicas != now.replicas {
            return Why::Reassignment;
        }
        match self.why_out(earlier.leader, now) {
            Some(why) => why,
            None if earlier.has_leader() && now.has_preferred_leader() => Why::PreferredElection,
            None => Why::LeaderChosenByController,
        }
    }

    /// Why a broker may neither lead the partition nor be in its ISR any more; `None` when the records
    /// show nothing against it.
    fn why_out(&self, id: NodeId, partition: &PartitionImage) -> Option<Why> {
        let earlier = self.before.broker(id)?;
        let Some(now) = self.after.broker(id) else {
            return Some(Why::OperatorRequest);
        };
        if earlier.epoch != now.epoch {
            return Some(Why::Registration);
        }
        if now.in_controlled_shutdown {
            return Some(Why::ControlledShutdown);
        }
        if now.fenced {
            return Some(Why::HeartbeatTimeout);
        }
        (!now.has_online_dir(partition.directory_of(id))).then_some(Why::LogDirectoryFailed)
    }
}
