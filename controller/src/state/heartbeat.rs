//! Who was heard from, when, and how far each broker has read the metadata. Known to the active
//! controller only; a new one gives every unfenced broker a fresh session.

use std::collections::BTreeMap;
use std::time::Duration;

use protocol::types::{BrokerEpoch, NodeId, Offset};
use replication::time::Instant;

use crate::image::ClusterImage;

#[derive(Clone, Debug)]
struct Contact {
    epoch: BrokerEpoch,
    last: Instant,
    /// The last offset that the broker said it applied; -1 before it did.
    metadata_offset: Offset,
    /// The batch that took its leaderships away, while it is in controlled shutdown.
    shutdown_offset: Option<Offset>,
}

/// The contacts to all brokers heard from.
#[derive(Clone, Debug)]
pub(super) struct Contacts {
    session_timeout: Duration,
    by_broker: BTreeMap<NodeId, Contact>,
}

impl Contacts {
    pub fn new(image: &ClusterImage, session_timeout: Duration, now: Instant) -> Self {
        let unfenced = image.brokers().filter(|broker| !broker.fenced).map(|broker| {
            let contact = Contact {
                epoch: broker.epoch,
                last: now,
                metadata_offset: Offset::NONE,
                // Not earlier than the shutdown's own batch, which is all the rule needs.
                shutdown_offset: broker.in_controlled_shutdown.then_some(image.offset()),
            };
            (broker.id, contact)
        });
        Contacts { session_timeout, by_broker: unfenced.collect() }
    }

    /// A broker registered or sent a heartbeat. A late heartbeat counts as well as any (C01).
    pub fn touch(&mut self, broker: NodeId, epoch: BrokerEpoch, now: Instant) {
        let contact =
            Contact { epoch, last: now, metadata_offset: Offset::NONE, shutdown_offset: None };
        let known = self.by_broker.entry(broker).or_insert(contact.clone());
        if known.epoch == epoch {
            known.last = now;
        } else {
            *known = contact;
        }
    }

    pub fn set_metadata_offset(&mut self, broker: NodeId, offset: Offset) {
        if let Some(contact) = self.by_broker.get_mut(&broker) {
            contact.metadata_offset = offset;
        }
    }

    /// Starts a controlled shutdown that ends when every active broker has read `offset` (C03).
    pub fn begin_shutdown(&mut self, broker: NodeId, offset: Offset) {
        if let Some(contact) = self.by_broker.get_mut(&broker) {
            contact.shutdown_offset.get_or_insert(offset);
        }
    }

    /// A fenced broker is no longer in controlled shutdown: its next heartbeat lets it go at once.
    pub fn end_shutdown(&mut self, broker: NodeId) {
        if let Some(contact) = self.by_broker.get_mut(&broker) {
            contact.shutdown_offset = None;
        }
    }

    pub fn shutdown_offset(&self, broker: NodeId) -> Option<Offset> {
        self.by_broker.get(&broker).and_then(|contact| contact.shutdown_offset)
    }

    pub fn forget(&mut self, broker: NodeId) {
        self.by_broker.remove(&broker);
    }

    /// Whether the registration `epoch` of `broker` was heard from within the session timeout.
    pub fn has_valid_session(&self, broker: NodeId, epoch: BrokerEpoch, now: Instant) -> bool {
        self.by_broker.get(&broker).is_some_and(|contact| {
            contact.epoch == epoch && now.since(contact.last) < self.session_timeout
        })
    }

    /// The unfenced broker that has been silent longest, if longer than the session timeout.
    pub fn stalest(&self, image: &ClusterImage, now: Instant) -> Option<NodeId> {
        let silent = image.brokers().filter(|broker| {
            !broker.fenced && !self.has_valid_session(broker.id, broker.epoch, now)
        });
        silent.map(|broker| broker.id).min_by_key(|id| {
            (self.by_broker.get(id).map_or(Instant::ZERO, |contact| contact.last), *id)
        })
    }

    /// The lowest offset that some active broker has read; `None` without active brokers.
    pub fn lowest_active_offset(&self, image: &ClusterImage) -> Option<Offset> {
        let active = image.brokers().filter(|broker| broker.is_active());
        active
            .map(|broker| {
                let contact = self.by_broker.get(&broker.id);
                contact.map_or(Offset::NONE, |contact| contact.metadata_offset)
            })
            .min()
    }
}
