//! The faults in force, and what they do to a message: plain values, no clock, no socket.
//!
//! A fault names a way: from a node (or anybody) to a node (or anybody), on one plane or both. The sender
//! of a message is who sends its bytes: of a request the dialer, of an answer the node that was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use super::message::{Message, Plane};
use crate::real::NodeId;

/// From where to where; what is `None` means all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Way {
    /// Who sends.
    pub from: Option<NodeId>,
    /// Who receives.
    pub to: Option<NodeId>,
    /// On which plane.
    pub plane: Option<Plane>,
}

impl Way {
    /// From one node to another, on both planes.
    pub const fn between(from: NodeId, to: NodeId) -> Self {
        Self { from: Some(from), to: Some(to), plane: None }
    }

    /// The same way on one plane only.
    #[must_use]
    pub const fn on(self, plane: Plane) -> Self {
        Self { plane: Some(plane), ..self }
    }

    /// Whether the way is taken by what cannot happen inside one node: a cut, or slowness.
    fn takes_between(&self, from: Option<NodeId>, to: Option<NodeId>, plane: Plane) -> bool {
        (from.is_none() || from != to) && self.takes(from, to, plane)
    }

    fn takes(&self, from: Option<NodeId>, to: Option<NodeId>, plane: Plane) -> bool {
        let is = |wanted: Option<NodeId>, it: Option<NodeId>| wanted.is_none() || wanted == it;
        is(self.from, from) && is(self.to, to) && self.plane.is_none_or(|wanted| wanted == plane)
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = |id: Option<NodeId>| id.map_or("any".to_owned(), |id| id.to_string());
        write!(f, "{} to {}", node(self.from), node(self.to))?;
        match self.plane {
            Some(plane) => write!(f, " ({plane})"),
            None => Ok(()),
        }
    }
}

/// What a fault does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Harm {
    /// Nothing passes, and nobody is told.
    Cut,
    /// Bytes arrive late.
    Slow {
        /// So much later than they were sent.
        latency: Duration,
        /// And at most so many a second on each connection, if it is limited.
        bytes_per_second: Option<u64>,
    },
    /// Messages of a kind wait until they are let go.
    Hold(Message),
    /// Messages of a kind vanish.
    Drop(Message),
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Harm::Cut => f.write_str("cut"),
            Harm::Slow { latency, bytes_per_second } => {
                write!(f, "slow by {latency:?}")?;
                match bytes_per_second {
                    Some(limit) => write!(f, ", {limit} bytes a second"),
                    None => Ok(()),
                }
            }
            Harm::Hold(message) => write!(f, "hold {message}"),
            Harm::Drop(message) => write!(f, "drop {message}"),
        }
    }
}

/// Names a fault; never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FaultId(pub u64);

impl fmt::Display for FaultId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fault in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Its name.
    pub id: FaultId,
    /// Where.
    pub way: Way,
    /// What.
    pub harm: Harm,
    /// How many messages it holds now.
    pub held: u64,
    /// How many messages it has held or lost since it began.
    pub met: u64,
}

/// What happens to a message as it comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    Passes,
    IsHeld(FaultId),
    IsLost,
}

/// What happens to a message that was held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeldFate {
    Waits,
    GoesOn,
    IsLost,
}

/// All faults.
#[derive(Debug, Default)]
pub(super) struct FaultTable {
    faults: BTreeMap<FaultId, Fault>,
    /// Holds that were ended with what they held.
    lost: BTreeSet<FaultId>,
    made: u64,
}

impl FaultTable {
    pub(super) fn add(&mut self, way: Way, harm: Harm) -> FaultId {
        self.made += 1;
        let id = FaultId(self.made);
        self.faults.insert(id, Fault { id, way, harm, held: 0, met: 0 });
        id
    }

    /// Ends a fault; what it holds goes on or is lost. Gives what it was.
    pub(super) fn end(&mut self, id: FaultId, held_is_lost: bool) -> Option<Fault> {
        let fault = self.faults.remove(&id)?;
        if held_is_lost {
            self.lost.insert(id);
        }
        Some(fault)
    }

    pub(super) fn list(&self) -> Vec<Fault> {
        self.faults.values().copied().collect()
    }

    pub(super) fn get(&self, id: FaultId) -> Option<Fault> {
        self.faults.get(&id).copied()
    }

    /// Decides over a message that comes; the oldest fault that takes it is the one.
    pub(super) fn on_message(
        &mut self,
        from: Option<NodeId>,
        to: Option<NodeId>,
        plane: Plane,
        message: Message,
        counts: bool,
    ) -> Fate {
        let takes = |fault: &&mut Fault| {
            matches!(fault.harm, Harm::Hold(kind) | Harm::Drop(kind) if kind == message)
                && fault.way.takes(from, to, plane)
        };
        let Some(fault) = self.faults.values_mut().find(takes) else {
            return Fate::Passes;
        };
        fault.met += u64::from(counts);
        match fault.harm {
            Harm::Hold(_) => {
                fault.held += u64::from(counts);
                Fate::IsHeld(fault.id)
            }
            _ => Fate::IsLost,
        }
    }

    /// A message that was held is gone: its sender gave up, or its connection ended.
    pub(super) fn on_gone(&mut self, id: FaultId) {
        if let Some(fault) = self.faults.get_mut(&id) {
            fault.held = fault.held.saturating_sub(1);
        }
    }

    pub(super) fn fate_of_held(&self, id: FaultId) -> HeldFate {
        if self.faults.contains_key(&id) {
            HeldFate::Waits
        } else if self.lost.contains(&id) {
            HeldFate::IsLost
        } else {
            HeldFate::GoesOn
        }
    }

    pub(super) fn is_cut(&self, from: Option<NodeId>, to: Option<NodeId>, plane: Plane) -> bool {
        let mut faults = self.faults.values();
        faults.any(|fault| fault.harm == Harm::Cut && fault.way.takes_between(from, to, plane))
    }

    /// The longest latency and the smallest rate of all that slow this way.
    pub(super) fn slowness(
        &self,
        from: Option<NodeId>,
        to: Option<NodeId>,
        plane: Plane,
    ) -> (Duration, Option<u64>) {
        let mut slowness = (Duration::ZERO, None::<u64>);
        let takes = |fault: &&Fault| fault.way.takes_between(from, to, plane);
        for fault in self.faults.values().filter(takes) {
            if let Harm::Slow { latency, bytes_per_second } = fault.harm {
                let rates = [slowness.1, bytes_per_second];
                slowness = (slowness.0.max(latency), rates.into_iter().flatten().min());
            }
        }
        slowness
    }
}

#[cfg(test)]
mod tests {
    use protocol::ApiKey;

    use super::*;

    const FETCH: Message = Message::Request(ApiKey::Fetch);

    #[test]
    fn a_fault_takes_what_goes_its_way_and_nothing_else() {
        let mut table = FaultTable::default();
        let id = table.add(Way::between(2, 1).on(Plane::Data), Harm::Hold(FETCH));
        let mut fate = |from, to, plane, message| table.on_message(from, to, plane, message, true);
        assert_eq!(fate(Some(2), Some(1), Plane::Data, FETCH), Fate::IsHeld(id));
        assert_eq!(fate(Some(1), Some(2), Plane::Data, FETCH), Fate::Passes);
        assert_eq!(fate(None, Some(1), Plane::Data, FETCH), Fate::Passes);
        assert_eq!(fate(Some(2), Some(1), Plane::Control, FETCH), Fate::Passes);
        let answer = Message::Answer(ApiKey::Fetch);
        assert_eq!(fate(Some(2), Some(1), Plane::Data, answer), Fate::Passes);
        assert_eq!(table.get(id).map(|fault| (fault.held, fault.met)), Some((1, 1)));
        assert_eq!(table.fate_of_held(id), HeldFate::Waits);
        table.end(id, false);
        assert_eq!(table.fate_of_held(id), HeldFate::GoesOn);
        let id = table.add(Way::default(), Harm::Hold(FETCH));
        table.end(id, true);
        assert_eq!(table.fate_of_held(id), HeldFate::IsLost);
    }

    #[test]
    fn a_cut_of_one_way_leaves_the_other_and_slowness_is_the_worst_of_all() {
        let mut table = FaultTable::default();
        table.add(Way::between(1, 2), Harm::Cut);
        assert!(table.is_cut(Some(1), Some(2), Plane::Control));
        assert!(!table.is_cut(Some(2), Some(1), Plane::Control));
        table.add(Way { from: Some(4), ..Way::default() }, Harm::Cut);
        assert!(table.is_cut(Some(4), Some(1), Plane::Data));
        assert!(!table.is_cut(Some(4), Some(4), Plane::Control), "a node and its own controller");
        let slow = |latency, bytes_per_second| Harm::Slow {
            latency: Duration::from_millis(latency),
            bytes_per_second,
        };
        table.add(Way { to: Some(3), ..Way::default() }, slow(5, Some(100)));
        table.add(Way::between(1, 3), slow(20, Some(1000)));
        assert_eq!(
            table.slowness(Some(1), Some(3), Plane::Data),
            (Duration::from_millis(20), Some(100))
        );
        assert_eq!(table.slowness(Some(1), Some(2), Plane::Data), (Duration::ZERO, None));
    }
}
