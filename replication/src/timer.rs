//! Deadlines in a hierarchy of timing wheels, driven by [`Instant`] values: setting one and taking it back
//! costs the same however many wait (F02).
//!
//! A tick is about a millisecond. The wheel of level 0 has a slot for each of the next ticks, a slot of
//! the next level stands for a whole turn of the level below, and so on; when the time reaches a slot of
//! a higher level, its entries move down. Entries whose tick has begun are few and kept in order, so
//! that expiry is exact to the instant, and two deadlines at one instant fire in the order in which they
//! were set.

use crate::time::Instant;
use std::collections::BTreeMap;
use std::time::Duration;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Enough for every tick that an [`Instant`] can have.
const LEVELS: usize = 8;
/// A tick is so many bits of nanoseconds: 1.05 ms.
const TICK_BITS: u32 = 20;
/// No entry: the end of a list.
const NONE: u32 = u32::MAX;

/// Names one scheduled entry; needed to cancel it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TimerKey {
    deadline: Instant,
    sequence: u64,
    index: u32,
}

impl TimerKey {
    /// When the entry is due.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }
}

/// Entries waiting for their instant.
#[derive(Clone, Debug)]
pub struct Timer<T> {
    wheels: [Wheel; LEVELS],
    nodes: Vec<Option<Node<T>>>,
    free: Vec<u32>,
    /// What is due in the ticks up to `elapsed`, in order.
    soon: BTreeMap<(Instant, u64), u32>,
    /// The tick up to which the wheels are empty.
    elapsed: u64,
    next_sequence: u64,
    len: usize,
}

/// One turn of 64 slots. Within a turn that has begun, slots before the current one are empty.
#[derive(Clone, Copy, Debug)]
struct Wheel {
    /// A bit for each slot that is not empty.
    occupied: u64,
    first: [u32; SLOTS],
}

/// An entry, linked to its neighbours in its slot.
#[derive(Clone, Debug)]
struct Node<T> {
    deadline: Instant,
    sequence: u64,
    entry: T,
    place: Place,
    previous: u32,
    next: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Soon,
    Slot { level: usize, slot: usize },
}

impl<T> Default for Timer<T> {
    fn default() -> Self {
        Self {
            wheels: [Wheel { occupied: 0, first: [NONE; SLOTS] }; LEVELS],
            nodes: Vec::new(),
            free: Vec::new(),
            soon: BTreeMap::new(),
            elapsed: 0,
            next_sequence: 0,
            len: 0,
        }
    }
}

impl<T> Timer<T> {
    /// An empty timer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `entry` come due at `deadline`.
    pub fn schedule(&mut self, deadline: Instant, entry: T) -> TimerKey {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        self.len += 1;
        let place = Place::Soon;
        let node = Node { deadline, sequence, entry, place, previous: NONE, next: NONE };
        let index = match self.free.pop() {
            Some(index) => {
                self.nodes[index as usize] = Some(node);
                index
            }
            None => {
                self.nodes.push(Some(node));
                u32::try_from(self.nodes.len() - 1).unwrap_or(NONE)
            }
        };
        self.put(index);
        TimerKey { deadline, sequence, index }
    }

    /// Takes an entry back; `None` when it came due or was cancelled before.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let node = self.nodes.get(key.index as usize)?.as_ref()?;
        (node.sequence == key.sequence).then(|| self.take(key.index))
    }

    /// No entry is due before this. Exact when the earliest is due within a turn of the lowest wheel; else
    /// the instant at which it is worth looking again.
    pub fn next_deadline(&self) -> Option<Instant> {
        if let Some(((deadline, _), _)) = self.soon.first_key_value() {
            return Some(*deadline);
        }
        let (level, slot) = self.next_slot()?;
        if level > 0 {
            return Some(instant_of(self.start_of(level, slot)));
        }
        self.slot_entries(level, slot).map(|node| node.deadline).min()
    }

    /// Takes the earliest entry that is due at `now`.
    pub fn pop_due(&mut self, now: Instant) -> Option<T> {
        self.advance(tick_of(now));
        let ((deadline, _), index) = self.soon.first_key_value()?;
        let index = *index;
        (*deadline <= now).then(|| self.take(index))
    }

    /// How many entries wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties every slot that the time has reached, from the earliest on.
    fn advance(&mut self, tick: u64) {
        while let Some((level, slot)) = self.next_slot() {
            let start = self.start_of(level, slot);
            if start > tick {
                break;
            }
            self.elapsed = start;
            let wheel = &mut self.wheels[level];
            wheel.occupied &= !(1 << slot);
            let mut index = std::mem::replace(&mut wheel.first[slot], NONE);
            while let Some(node) = self.nodes.get(index as usize).and_then(Option::as_ref) {
                let next = node.next;
                self.put(index);
                index = next;
            }
        }
        self.elapsed = self.elapsed.max(tick);
    }

    /// The slot that the time reaches first. Slots of a lower level come before those of a higher one.
    fn next_slot(&self) -> Option<(usize, usize)> {
        let level = self.wheels.iter().position(|wheel| wheel.occupied != 0)?;
        Some((level, self.wheels[level].occupied.trailing_zeros() as usize))
    }

    /// The first tick of a slot in the turn that has begun.
    fn start_of(&self, level: usize, slot: usize) -> u64 {
        let below = level as u32 * SLOT_BITS;
        let turn = self.elapsed >> (below + SLOT_BITS) << (below + SLOT_BITS);
        turn | (slot as u64) << below
    }

    fn slot_entries(&self, level: usize, slot: usize) -> impl Iterator<Item = &Node<T>> {
        let node = |index: u32| self.nodes.get(index as usize).and_then(Option::as_ref);
        let first = node(self.wheels[level].first[slot]);
        std::iter::successors(first, move |last| node(last.next))
    }

    /// Puts a node that is in no list where it belongs at the present tick.
    fn put(&mut self, index: u32) {
        let elapsed = self.elapsed;
        let Some(node) = self.nodes[index as usize].as_mut() else { return };
        let tick = tick_of(node.deadline);
        if tick <= elapsed {
            (node.place, node.previous, node.next) = (Place::Soon, NONE, NONE);
            let key = (node.deadline, node.sequence);
            self.soon.insert(key, index);
            return;
        }
        // The highest digit in which the two ticks differ says how far away the entry is.
        let level = (elapsed ^ tick).ilog2() / SLOT_BITS;
        let slot = (tick >> (level * SLOT_BITS)) as usize % SLOTS;
        let level = level as usize;
        let wheel = &mut self.wheels[level];
        let first = std::mem::replace(&mut wheel.first[slot], index);
        wheel.occupied |= 1 << slot;
        (node.place, node.previous, node.next) = (Place::Slot { level, slot }, NONE, first);
        if let Some(second) = self.nodes.get_mut(first as usize).and_then(Option::as_mut) {
            second.previous = index;
        }
    }

    /// Takes a node out of its list and out of the timer.
    fn take(&mut self, index: u32) -> T {
        let Some(node) = self.nodes[index as usize].take() else {
            panic!("a timer's list names an entry that is gone");
        };
        self.free.push(index);
        self.len -= 1;
        match node.place {
            Place::Soon => {
                self.soon.remove(&(node.deadline, node.sequence));
            }
            Place::Slot { level, slot } => {
                if let Some(next) = self.nodes.get_mut(node.next as usize).and_then(Option::as_mut)
                {
                    next.previous = node.previous;
                }
                match self.nodes.get_mut(node.previous as usize).and_then(Option::as_mut) {
                    Some(previous) => previous.next = node.next,
                    None => {
                        let wheel = &mut self.wheels[level];
                        wheel.first[slot] = node.next;
                        if node.next == NONE {
                            wheel.occupied &= !(1 << slot);
                        }
                    }
                }
            }
        }
        node.entry
    }
}

fn tick_of(instant: Instant) -> u64 {
    u64::try_from(instant.0.as_nanos()).unwrap_or(u64::MAX) >> TICK_BITS
}

/// The first instant of a tick.
fn instant_of(tick: u64) -> Instant {
    Instant(Duration::from_nanos(tick << TICK_BITS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(ms: u64) -> Instant {
        Instant(Duration::from_millis(ms))
    }

    #[test]
    fn entries_come_due_by_deadline_and_then_by_the_order_they_were_set() {
        let mut timer = Timer::new();
        timer.schedule(at(5), "later");
        timer.schedule(at(3), "first");
        timer.schedule(at(3), "second");
        assert_eq!(timer.next_deadline(), Some(at(3)));
        assert_eq!(timer.pop_due(at(2)), None);
        assert_eq!(timer.pop_due(at(3)), Some("first"));
        assert_eq!(timer.pop_due(at(3)), Some("second"));
        assert_eq!(timer.pop_due(at(3)), None);
        assert_eq!(timer.pop_due(at(9)), Some("later"));
    }

    #[test]
    fn a_cancelled_entry_never_comes_due_and_its_key_is_good_for_no_other() {
        let mut timer = Timer::new();
        let key = timer.schedule(at(1), 1);
        assert_eq!(timer.cancel(key), Some(1));
        timer.schedule(at(1), 2);
        assert_eq!(timer.cancel(key), None, "its place belongs to another");
        assert_eq!(timer.pop_due(at(10)), Some(2));
        assert_eq!(timer.pop_due(at(10)), None);
    }

    #[test]
    fn the_last_instant_there_is_can_be_waited_for() {
        let mut timer = Timer::new();
        timer.schedule(Instant(Duration::MAX), "never");
        assert_eq!(timer.pop_due(at(u64::MAX / 2)), None);
        assert_eq!(timer.pop_due(Instant(Duration::MAX)), Some("never"));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Schedule { after: Duration },
        Cancel { which: usize },
        Pass { time: Duration },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // All magnitudes, from within a tick to beyond the third wheel.
        let time =
            || (0..40u32).prop_flat_map(|bits| (0..2u64 << bits).prop_map(Duration::from_nanos));
        let step = prop_oneof![
            6 => time().prop_map(|after| Step::Schedule { after }),
            2 => (0..100usize).prop_map(|which| Step::Cancel { which }),
            3 => time().prop_map(|time| Step::Pass { time }),
        ];
        proptest::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn it_does_what_a_sorted_list_of_deadlines_would(steps in steps()) {
            let mut timer = Timer::new();
            let mut model: BTreeMap<(Instant, usize), TimerKey> = BTreeMap::new();
            let mut now = Instant::ZERO;
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Schedule { after } => {
                        model.insert((now + after, number), timer.schedule(now + after, number));
                    }
                    Step::Cancel { which } => {
                        if let Some((key, handle)) = model.iter().nth(which).map(|(k, h)| (*k, *h)) {
                            model.remove(&key);
                            prop_assert_eq!(timer.cancel(handle), Some(key.1));
                            prop_assert_eq!(timer.cancel(handle), None);
                        }
                    }
                    Step::Pass { time } => {
                        now = now + time;
                        while let Some(popped) = timer.pop_due(now) {
                            let (key, _) = model.pop_first().expect("one that waits");
                            prop_assert_eq!(popped, key.1);
                            prop_assert!(key.0 <= now);
                        }
                        prop_assert!(timer.next_deadline().is_none_or(|next| next > now));
                    }
                }
                prop_assert_eq!(timer.len(), model.len());
                let earliest = model.first_key_value().map(|((deadline, _), _)| *deadline);
                prop_assert_eq!(timer.next_deadline().is_some(), earliest.is_some());
                prop_assert!(timer.next_deadline() <= earliest);
            }
        }
    }
}
