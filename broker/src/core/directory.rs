//! The cluster's metadata as this broker has it at the moment: one immutable value, swapped whole.

use std::sync::Arc;

use controller::{BrokerImage, ClusterImage, PartitionImage};
use protocol::{BrokerEpoch, NodeId, Offset, TopicId};
use replication::isr::LeaderRecoveryState;
use replication::partition::{BrokerDirectory, BrokerStatus, PartitionRegistration};

/// The image, and this broker's own place in it.
#[derive(Clone, Debug)]
pub struct Directory {
    /// All topics, brokers and configs.
    pub image: ClusterImage,
    /// The epoch of this broker's own registration; [`BrokerEpoch::NONE`] before it is known.
    pub local_epoch: BrokerEpoch,
}

impl Directory {
    /// No cluster yet.
    pub fn empty() -> Directory {
        Directory { image: ClusterImage::default(), local_epoch: BrokerEpoch::NONE }
    }

    /// Everything up to here was applied.
    pub fn offset(&self) -> Offset {
        self.image.offset()
    }

    /// Where a broker that is alive listens, by listener name.
    pub fn endpoint(&self, broker: NodeId, listener: &str) -> Option<(Arc<str>, u16)> {
        let broker = self.alive(broker)?;
        let found = broker.listener(listener)?;
        Some((found.host.clone(), found.port))
    }

    /// A broker that is registered and not fenced.
    pub fn alive(&self, broker: NodeId) -> Option<&Arc<BrokerImage>> {
        self.image.broker(broker).filter(|broker| !broker.fenced)
    }

    /// Whether a replica is of no use to those who come through `listener`: its broker is not alive, has
    /// no such listener, or the replica's log directory failed (C08).
    pub fn is_offline(&self, replica: NodeId, image: &PartitionImage, listener: &str) -> bool {
        self.endpoint(replica, listener).is_none() || !self.image.has_online_replica(replica, image)
    }

    /// A partition as the rules take it.
    pub fn registration(&self, topic: TopicId, partition: i32) -> Option<PartitionRegistration> {
        self.image.partition(topic, partition).map(|image| registration(image))
    }
}

impl BrokerDirectory for Directory {
    fn broker(&self, id: NodeId) -> Option<BrokerStatus> {
        self.image.broker(id).map(|broker| BrokerStatus {
            epoch: broker.epoch,
            fenced: broker.fenced,
            in_controlled_shutdown: broker.in_controlled_shutdown,
        })
    }

    fn local_epoch(&self) -> BrokerEpoch {
        self.local_epoch
    }
}

/// A partition's image as the rules take it.
pub fn registration(image: &PartitionImage) -> PartitionRegistration {
    PartitionRegistration {
        leader: image.leader,
        leader_epoch: image.leader_epoch,
        partition_epoch: image.partition_epoch,
        replicas: image.replicas.clone(),
        adding_replicas: image.adding_replicas.clone(),
        isr: image.isr.clone(),
        leader_recovery_state: match image.leader_recovery_state {
            controller::LeaderRecoveryState::Recovered => LeaderRecoveryState::Recovered,
            controller::LeaderRecoveryState::Recovering => LeaderRecoveryState::Recovering,
        },
    }
}
