//! A controller of one partition: elections, fencing, and AlterPartition with the checks of H13.

use std::collections::BTreeMap;

use protocol::{BrokerEpoch, ErrorCode, LeaderEpoch, NodeId, PartitionEpoch};
use replication::{
    AlterPartitionResponse, BrokerStatus, ConfirmedPartition, IsrProposal, LeaderRecoveryState,
    PartitionRegistration,
};

#[derive(Clone, Debug)]
pub struct Controller {
    pub leader: i32,
    pub leader_epoch: i32,
    pub partition_epoch: i32,
    pub replicas: Vec<i32>,
    pub isr: Vec<i32>,
    pub recovery: LeaderRecoveryState,
    pub brokers: BTreeMap<i32, BrokerStatus>,
    next_broker_epoch: i64,
}

impl Controller {
    pub fn new(count: i32) -> Self {
        let replicas: Vec<i32> = (1..=count).collect();
        let brokers = replicas
            .iter()
            .map(|id| {
                let epoch = BrokerEpoch(i64::from(*id));
                (*id, BrokerStatus { epoch, fenced: false, in_controlled_shutdown: false })
            })
            .collect();
        Self {
            leader: 1,
            leader_epoch: 1,
            partition_epoch: 1,
            isr: replicas.clone(),
            replicas,
            recovery: LeaderRecoveryState::Recovered,
            brokers,
            next_broker_epoch: 100,
        }
    }

    pub fn registration(&self) -> PartitionRegistration {
        let ids = |ids: &[i32]| ids.iter().map(|id| NodeId(*id)).collect();
        PartitionRegistration {
            leader: NodeId(self.leader),
            leader_epoch: LeaderEpoch(self.leader_epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            replicas: ids(&self.replicas),
            adding_replicas: Vec::new(),
            isr: ids(&self.isr),
            leader_recovery_state: self.recovery,
        }
    }

    /// Makes `id` leader under a new epoch, whether it is in the ISR or not.
    pub fn elect(&mut self, id: i32) {
        if !self.isr.contains(&id) && id != -1 {
            self.isr = vec![id];
            self.recovery = LeaderRecoveryState::Recovering;
        }
        self.leader = id;
        self.leader_epoch += 1;
        self.partition_epoch += 1;
    }

    /// Takes a broker out of service: out of the ISR unless it is the last there; when it led, the
    /// first ISR member that is in service leads, or nobody.
    pub fn fence(&mut self, id: i32) {
        self.status(id).fenced = true;
        self.leave_isr(id);
    }

    pub fn leave_isr(&mut self, id: i32) {
        if self.isr.contains(&id) && self.isr.len() > 1 {
            self.isr.retain(|member| *member != id);
            self.partition_epoch += 1;
        }
        if self.leader == id {
            let next = self.isr.iter().copied().find(|id| !self.brokers[id].fenced);
            self.elect(next.unwrap_or(-1));
        }
    }

    pub fn unfence(&mut self, id: i32) {
        self.status(id).fenced = false;
        if self.leader == -1 && self.isr.contains(&id) {
            self.elect(id);
        }
    }

    /// A new registration of the broker, fenced at first.
    pub fn register(&mut self, id: i32) {
        self.fence(id);
        self.next_broker_epoch += 1;
        self.status(id).epoch = BrokerEpoch(self.next_broker_epoch);
    }

    pub fn status(&mut self, id: i32) -> &mut BrokerStatus {
        self.brokers.get_mut(&id).expect("a registered broker")
    }

    fn is_eligible(&self, id: i32, epoch: BrokerEpoch) -> bool {
        let status = self.brokers[&id];
        !status.fenced
            && !status.in_controlled_shutdown
            && (epoch == BrokerEpoch::NONE || epoch == status.epoch)
    }

    /// The checks of H13, in their order.
    pub fn alter_partition(
        &mut self,
        sender: i32,
        proposal: &IsrProposal,
    ) -> AlterPartitionResponse {
        let (leader_epoch, partition_epoch) =
            (proposal.leader_epoch.get(), proposal.partition_epoch.get());
        let members: Vec<i32> = proposal.new_isr.iter().map(|m| m.replica.get()).collect();
        let error = if leader_epoch > self.leader_epoch || partition_epoch > self.partition_epoch {
            Some(ErrorCode::NotController)
        } else if leader_epoch < self.leader_epoch {
            Some(ErrorCode::FencedLeaderEpoch)
        } else if sender != self.leader {
            Some(ErrorCode::InvalidRequest)
        } else if partition_epoch < self.partition_epoch {
            Some(ErrorCode::InvalidUpdateVersion)
        } else if !members.contains(&sender) || members.iter().any(|id| !self.replicas.contains(id))
        {
            Some(ErrorCode::InvalidRequest)
        } else if proposal
            .new_isr
            .iter()
            .any(|m| !self.is_eligible(m.replica.get(), m.broker_epoch))
        {
            Some(ErrorCode::IneligibleReplica)
        } else {
            None
        };
        if let Some(error) = error {
            return AlterPartitionResponse::Error(error);
        }
        if members != self.isr {
            self.isr = members;
            self.partition_epoch += 1;
        }
        self.recovery = proposal.leader_recovery_state;
        AlterPartitionResponse::Success(self.confirmed())
    }

    pub fn confirmed(&self) -> ConfirmedPartition {
        ConfirmedPartition {
            leader: NodeId(self.leader),
            leader_epoch: LeaderEpoch(self.leader_epoch),
            partition_epoch: PartitionEpoch(self.partition_epoch),
            isr: self.isr.iter().map(|id| NodeId(*id)).collect(),
            leader_recovery_state: self.recovery,
        }
    }
}
