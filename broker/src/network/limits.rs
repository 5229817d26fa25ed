//! How many connections may be open (`max.connections`, `max.connections.per.ip` and its overrides).
//!
//! As in Kafka, one connection too many of an address is closed at once; one too many in all waits at
//! the listener until another closes. The inter-broker listener, where it is one among several, is
//! never made to wait: replication must not starve behind clients.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// The limits of a server. The default is Kafka's: none to speak of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections in all.
    pub total: usize,
    /// Connections of one address.
    pub per_ip: usize,
    /// Other limits for single addresses.
    pub per_ip_overrides: BTreeMap<IpAddr, usize>,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        let unlimited = i32::MAX as usize;
        ConnectionLimits { total: unlimited, per_ip: unlimited, per_ip_overrides: BTreeMap::new() }
    }
}

/// Counts open connections against the limits.
#[derive(Debug)]
pub(super) struct ConnectionQuota {
    limits: ConnectionLimits,
    counts: Mutex<Counts>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    per_ip: BTreeMap<IpAddr, usize>,
}

/// One open connection; dropping it gives its place back.
#[derive(Debug)]
pub(super) struct Place {
    quota: Arc<ConnectionQuota>,
    ip: IpAddr,
}

impl ConnectionQuota {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<ConnectionQuota> {
        Arc::new(ConnectionQuota { limits, counts: Mutex::default(), freed: Notify::new() })
    }

    /// A place for a connection from `ip`, or `None` when its address has too many.
    pub(super) fn admit(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let limit = *self.limits.per_ip_overrides.get(&ip).unwrap_or(&self.limits.per_ip);
        let mut counts = self.counts.lock();
        let open = counts.per_ip.get(&ip).copied().unwrap_or(0);
        if open >= limit {
            return None;
        }
        counts.per_ip.insert(ip, open + 1);
        counts.total += 1;
        Some(Place { quota: Arc::clone(self), ip })
    }

    /// Whether all places are taken.
    pub(super) fn is_full(&self) -> bool {
        self.counts.lock().total >= self.limits.total
    }

    /// Waits until not all places are taken.
    pub(super) async fn wait_for_room(&self) {
        loop {
            let freed = self.freed.notified();
            if !self.is_full() {
                return;
            }
            freed.await;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.quota.counts.lock();
        counts.total -= 1;
        if let Some(open) = counts.per_ip.get_mut(&self.ip) {
            *open -= 1;
            if *open == 0 {
                counts.per_ip.remove(&self.ip);
            }
        }
        drop(counts);
        self.quota.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn an_address_gets_its_limit_and_an_override_its_own() {
        let quota = ConnectionQuota::new(ConnectionLimits {
            per_ip: 1,
            per_ip_overrides: BTreeMap::from([(ip(2), 2), (ip(3), 0)]),
            ..Default::default()
        });
        let first = quota.admit(ip(1));
        assert!(first.is_some() && quota.admit(ip(1)).is_none());
        let _second = quota.admit(ip(2));
        let _third = quota.admit(ip(2)).expect("two allowed");
        assert!(quota.admit(ip(2)).is_none() && quota.admit(ip(3)).is_none());
        drop(first);
        assert!(quota.admit(ip(1)).is_some(), "the place was given back");
    }

    #[tokio::test]
    async fn a_full_server_waits_until_a_place_is_given_back() {
        let quota = ConnectionQuota::new(ConnectionLimits { total: 1, ..Default::default() });
        let place = quota.admit(ip(1)).expect("the first");
        let waiting = tokio::spawn({
            let quota = Arc::clone(&quota);
            async move { quota.wait_for_room().await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(place);
        waiting.await.expect("room is found");
    }
}
