//! The faults in force as all connections see them, and who is connected.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::connection::Ends;
use super::faults::FaultTable;
use super::message::Plane;
use crate::real::NodeId;

type Link = (Option<NodeId>, NodeId, Plane);

/// See the head of this file.
#[derive(Debug)]
pub(super) struct Switchboard {
    table: Mutex<FaultTable>,
    /// Grows with every change of the faults.
    version: watch::Sender<u64>,
    connections: Mutex<BTreeMap<Link, usize>>,
}

/// A connection that is counted for as long as this lives.
pub(super) struct Counted<'a> {
    board: &'a Switchboard,
    link: Link,
}

impl Switchboard {
    pub(super) fn new() -> Self {
        Self {
            table: Mutex::default(),
            version: watch::Sender::new(0),
            connections: Mutex::default(),
        }
    }

    /// Looks at the faults.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut FaultTable) -> T) -> T {
        look(&mut self.table.lock())
    }

    /// Changes the faults, and has every connection look again.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut FaultTable) -> T) -> T {
        let result = self.with(change);
        self.version.send_modify(|version| *version += 1);
        result
    }

    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    pub(super) fn count(&self, ends: &Ends) -> Counted<'_> {
        let link = (ends.dialer, ends.target, ends.plane);
        *self.connections.lock().entry(link).or_default() += 1;
        Counted { board: self, link }
    }

    pub(super) fn connections(&self) -> BTreeMap<Link, usize> {
        self.connections.lock().clone()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let mut connections = self.board.connections.lock();
        if let Some(count) = connections.get_mut(&self.link) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.link);
            }
        }
    }
}
