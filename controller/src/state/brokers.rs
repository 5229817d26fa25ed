//! The life of a broker: registration (C02), heartbeats, fencing and unfencing (C01), controlled
//! shutdown (C03), unregistration; failed log directories are in [`super::directories`] (C08). Keeps I11: a broker leaves every ISR that has another member in
//! the batch that fences it or starts its shutdown.

use protocol::ErrorCode;
use protocol::messages::{
    BrokerHeartbeatRequest, BrokerHeartbeatResponse, BrokerRegistrationRequest,
    BrokerRegistrationResponse, UnregisterBrokerRequest, UnregisterBrokerResponse,
};
use protocol::types::{BrokerEpoch, NodeId, Offset, Uuid};
use replication::time::{Instant, Now};

use super::ControllerState;
use crate::records::{BrokerChange, Endpoint, FeatureRange, Id, RegisterBroker, UnregisterBroker};

/// Where a broker stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BrokerControlState {
    Fenced,
    Unfenced,
    ControlledShutdown,
    ShutdownNow,
}

impl ControllerState {
    pub(super) fn on_broker_registration(
        &mut self,
        request: &BrokerRegistrationRequest,
        now: Now,
    ) -> BrokerRegistrationResponse {
        match self.register(request, now.monotonic) {
            Ok(broker_epoch) => BrokerRegistrationResponse { broker_epoch, ..Default::default() },
            Err(error) => {
                BrokerRegistrationResponse { error_code: error.code(), ..Default::default() }
            }
        }
    }

    fn register(
        &mut self,
        request: &BrokerRegistrationRequest,
        now: Instant,
    ) -> Result<i64, ErrorCode> {
        if request.cluster_id != self.image.cluster_id() {
            return Err(ErrorCode::InconsistentClusterId);
        }
        if request.broker_id < 0 {
            return Err(ErrorCode::InvalidRequest);
        }
        let id = NodeId(request.broker_id);
        self.check_features(request)?;
        self.check_directories(request)?;
        let existing = self.image.broker(id).cloned();
        let same = existing.as_ref().filter(|old| old.incarnation_id == request.incarnation_id);
        if let Some(old) = &existing
            && same.is_none()
            && !old.in_controlled_shutdown
            && self.contacts.has_valid_session(id, old.epoch, now)
        {
            return Err(ErrorCode::DuplicateBrokerRegistration);
        }
        let mut record = registration_record(request);
        if let Some(old) = same {
            // A repeated request of the same process: its place in the cluster stays.
            record.broker_epoch = old.epoch.get();
            record.fenced = old.fenced;
            record.in_controlled_shutdown = old.in_controlled_shutdown;
            // What failed in this process's life stays so (C08).
            record.log_dirs.retain(|dir| old.log_dirs.contains(&Uuid::from(*dir)));
        } else {
            record.broker_epoch = self.next_offset.get();
            record.fenced = true;
        }
        let broker_epoch = record.broker_epoch;
        if same.is_none() {
            // What the former process knew may be gone with it (H11); what it wrote, unless it says that
            // it ended the registration known here cleanly (C06).
            self.contacts.forget(id);
            let previous = BrokerEpoch(request.previous_broker_epoch);
            match &existing {
                Some(former) if former.epoch == previous => self.remove_from_isrs(id),
                _ => self.distrust(id),
            }
        }
        if same.is_none_or(|old| old.to_record() != record) {
            self.decide(record);
        }
        self.contacts.touch(id, broker_epoch.into(), now);
        Ok(broker_epoch)
    }

    /// A broker must be able to work with every finalized feature that it names.
    fn check_features(&self, request: &BrokerRegistrationRequest) -> Result<(), ErrorCode> {
        let fits = request.features.iter().all(|feature| {
            let range = feature.min_supported_version..=feature.max_supported_version;
            self.image.features().get(&feature.name).is_none_or(|level| range.contains(level))
        });
        if fits { Ok(()) } else { Err(ErrorCode::UnsupportedVersion) }
    }

    pub(super) fn on_broker_heartbeat(
        &mut self,
        request: &BrokerHeartbeatRequest,
        now: Now,
    ) -> BrokerHeartbeatResponse {
        let id = match self.check_broker_epoch(request.broker_id, request.broker_epoch) {
            Ok(id) => id,
            Err(error) => {
                return BrokerHeartbeatResponse { error_code: error.code(), ..Default::default() };
            }
        };
        self.contacts.touch(id, request.broker_epoch.into(), now.monotonic);
        let mut request = request.clone();
        request.want_fence |= self.has_no_dir_left(id, &request.offline_log_dirs);
        let current = self.broker_state(id);
        let next = self.next_broker_state(id, current, &request);
        if next != current {
            match next {
                BrokerControlState::Unfenced => self.unfence(id),
                BrokerControlState::ControlledShutdown => self.begin_controlled_shutdown(id),
                BrokerControlState::Fenced | BrokerControlState::ShutdownNow => self.fence(id),
            }
        }
        self.take_dirs_offline(id, &request.offline_log_dirs);
        self.contacts.set_metadata_offset(id, Offset(request.current_metadata_offset));
        if next == BrokerControlState::ShutdownNow {
            // This process is gone; the next one need not wait for a session to end.
            self.contacts.forget(id);
        }
        BrokerHeartbeatResponse {
            is_caught_up: request.current_metadata_offset >= request.broker_epoch,
            is_fenced: matches!(next, BrokerControlState::Fenced | BrokerControlState::ShutdownNow),
            should_shut_down: next == BrokerControlState::ShutdownNow,
            ..Default::default()
        }
    }

    fn broker_state(&self, id: NodeId) -> BrokerControlState {
        match self.image.broker(id) {
            Some(broker) if broker.fenced => BrokerControlState::Fenced,
            Some(broker) if broker.in_controlled_shutdown => BrokerControlState::ControlledShutdown,
            _ => BrokerControlState::Unfenced,
        }
    }

    fn next_broker_state(
        &self,
        id: NodeId,
        current: BrokerControlState,
        request: &BrokerHeartbeatRequest,
    ) -> BrokerControlState {
        use BrokerControlState::{ControlledShutdown, Fenced, ShutdownNow, Unfenced};
        // The registration's offset is its epoch.
        let has_read_registration = request.current_metadata_offset >= request.broker_epoch;
        match current {
            Fenced if request.want_shut_down => ShutdownNow,
            Fenced if !request.want_fence && has_read_registration => Unfenced,
            Fenced => Fenced,
            Unfenced if request.want_shut_down => {
                if !request.want_fence && self.leads_any(id) {
                    ControlledShutdown
                } else {
                    ShutdownNow
                }
            }
            Unfenced if request.want_fence => Fenced,
            Unfenced => Unfenced,
            ControlledShutdown if self.leads_any(id) => ControlledShutdown,
            ControlledShutdown | ShutdownNow => {
                let needed = self.contacts.shutdown_offset(id).unwrap_or(self.image.offset());
                let lowest = self.contacts.lowest_active_offset(&self.image);
                if lowest.is_none_or(|lowest| needed <= lowest) { ShutdownNow } else { current }
            }
        }
    }

    fn leads_any(&self, id: NodeId) -> bool {
        self.image.partitions().any(|(_, _, partition)| partition.leader == id)
    }

    pub(super) fn broker_change(&self, id: NodeId) -> BrokerChange {
        let epoch = self.image.broker(id).map_or(-1, |broker| broker.epoch.get());
        BrokerChange { broker_id: id.get(), broker_epoch: epoch, ..Default::default() }
    }

    /// Fences a broker: first it leaves the ISRs and loses its leaderships, then it is marked.
    pub(super) fn fence(&mut self, id: NodeId) {
        self.contacts.end_shutdown(id);
        if self.image.broker(id).is_none_or(|broker| broker.fenced) {
            return;
        }
        self.remove_from_isrs(id);
        self.decide(BrokerChange { fenced: Some(true), ..self.broker_change(id) });
    }

    fn unfence(&mut self, id: NodeId) {
        self.decide(BrokerChange { fenced: Some(false), ..self.broker_change(id) });
        self.elect_for_leaderless_partitions();
    }

    fn begin_controlled_shutdown(&mut self, id: NodeId) {
        self.contacts.begin_shutdown(id, self.next_offset);
        self.decide(BrokerChange { in_controlled_shutdown: Some(true), ..self.broker_change(id) });
        self.remove_from_isrs(id);
    }

    pub(super) fn fence_one_stale_broker(&mut self, now: Instant) {
        if let Some(id) = self.contacts.stalest(&self.image, now) {
            self.contacts.forget(id);
            self.fence(id);
        }
    }

    pub(super) fn on_unregister_broker(
        &mut self,
        request: &UnregisterBrokerRequest,
    ) -> UnregisterBrokerResponse {
        let id = NodeId(request.broker_id);
        let Some(broker) = self.image.broker(id).cloned() else {
            return UnregisterBrokerResponse {
                error_code: ErrorCode::BrokerIdNotRegistered.code(),
                error_message: Some(format!("Broker ID {id} is not currently registered")),
                ..Default::default()
            };
        };
        self.remove_from_isrs(id);
        self.contacts.forget(id);
        self.decide(UnregisterBroker { broker_id: id.get(), broker_epoch: broker.epoch.get() });
        UnregisterBrokerResponse::default()
    }
}

/// What the request says about the broker; epoch and fencing are for the caller.
fn registration_record(request: &BrokerRegistrationRequest) -> RegisterBroker {
    let endpoints = request.listeners.iter().map(|listener| Endpoint {
        listener: listener.name.clone(),
        host: listener.host.clone(),
        port: u32::from(listener.port),
        security_protocol: i32::from(listener.security_protocol),
    });
    let features = request.features.iter().map(|feature| FeatureRange {
        name: feature.name.clone(),
        min_version: i32::from(feature.min_supported_version),
        max_version: i32::from(feature.max_supported_version),
    });
    RegisterBroker {
        broker_id: request.broker_id,
        incarnation_id: Some(request.incarnation_id.into()),
        endpoints: endpoints.collect(),
        rack: request.rack.clone(),
        log_dirs: request.log_dirs.iter().copied().map(Id::from).collect(),
        features: features.collect(),
        ..Default::default()
    }
}
