//! What runs do to disks and clocks, and how it ends.
//!
//! A disk that is full or fails loses nothing that it had: the broker ends when it has no log directory left,
//! as the real host does, and is started again when the disk is mended. A flipped bit lies within what a
//! batch's checksum covers, so that whoever reads the batch can tell; the broker itself does not look before
//! it serves (Kafka does not either): followers and consumers must not take such bytes. Nobody repairs
//! them: the disk is replaced by an empty one, which is claimed under the condition of a machine that
//! loses data (`Run::may_lose`).

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use protocol::NodeId;

use super::super::disk::CrashKind;
use super::super::node::log_dir;
use super::event::Act;
use super::perform::Undo;
use super::{Run, TOPIC};

/// Where a batch's own length lies, and the first byte that its checksum covers or is.
const LENGTH_AT: usize = 8;
const CHECKED_FROM: usize = 17;
const BEFORE_LENGTH: usize = 12;

impl Run<'_> {
    pub(super) fn harm_disk(&mut self, node: NodeId, act: &Act) -> Result<()> {
        let at = self.simulation.node(node);
        match act {
            Act::DriftClock { millionths, lasts, .. } => {
                at.clock.drift(*millionths);
                self.tell(format!("clock of {node} drifts by {millionths} of a million"));
                self.later(*lasts, Undo::EndDrift(node));
            }
            Act::SlowDisk { each, lasts, .. } => {
                at.disk.set_slow(*each);
                self.tell(format!("disk of {node} takes {each:?} per change"));
                self.later(*lasts, Undo::EndSlowDisk(node));
            }
            Act::BreakDisk { full, lasts, .. } if at.running().is_some() => {
                if *full {
                    at.disk.set_full(true);
                } else {
                    at.disk.fail_folder(&log_dir(0));
                }
                self.tell(format!("disk of {node} {}", if *full { "is full" } else { "fails" }));
                self.later(*lasts, Undo::MendDisk(node));
            }
            Act::FlipBit { place, lasts, .. } if self.may_lose(node) => {
                self.flip_bit(node, *place, *lasts)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn flip_bit(&mut self, node: NodeId, place: u64, lasts: Duration) -> Result<()> {
        let disk = self.simulation.node(node).disk.clone();
        let mut places = Vec::new();
        for (path, bytes) in disk.files(Path::new(&log_dir(0)), ".log") {
            if path.to_string_lossy().contains(&format!("/{TOPIC}-")) {
                places.extend(checked_bytes(&bytes).map(|at| (path.clone(), at)));
            }
        }
        if places.is_empty() {
            return Ok(());
        }
        let (path, byte) = &places[place as usize % places.len()];
        disk.flip_bit(path, *byte, (place >> 32) as u8)?;
        self.tell(format!("a bit flips at {node}: byte {byte} of {}", path.display()));
        self.recovering = Some(node);
        self.decayed = Some(node);
        self.later(lasts, Undo::ReplaceDisk(node));
        Ok(())
    }

    pub(super) fn undo_at_disk(&mut self, undo: Undo) -> Result<()> {
        match undo {
            Undo::EndDrift(node) => self.simulation.node(node).clock.drift(0),
            Undo::EndSlowDisk(node) => self.simulation.node(node).disk.set_slow(Duration::ZERO),
            Undo::MendDisk(node) => {
                self.simulation.node(node).disk.heal();
                self.tell(format!("disk of {node} is mended"));
                // It may have failed unnoticed so far, or in part.
                if self.simulation.node(node).running().is_some() {
                    self.simulation.crash(node, CrashKind::KeepPageCache)?;
                }
                self.simulation.start(node)?;
            }
            Undo::ReplaceDisk(node) => self.replace_disk(node)?,
            _ => {}
        }
        Ok(())
    }

    /// Puts an empty disk in the place of one that decayed.
    pub(super) fn replace_disk(&mut self, node: NodeId) -> Result<()> {
        self.tell(format!("disk of {node} is replaced"));
        if self.simulation.node(node).running().is_some() {
            self.simulation.crash(node, CrashKind::KeepPageCache)?;
        }
        self.simulation.node(node).disk.replace();
        self.decayed = None;
        self.simulation.start(node)
    }
}

/// The places of all bytes of a segment that a checksum covers, or is.
fn checked_bytes(segment: &[u8]) -> impl Iterator<Item = usize> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(length) = segment.get(at + LENGTH_AT..at + BEFORE_LENGTH) {
        let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
        let end = at + BEFORE_LENGTH + length;
        if length == 0 || end > segment.len() {
            break;
        }
        found.push(at + CHECKED_FROM..end);
        at = end;
    }
    found.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_that_a_checksum_sees_are_flipped() {
        let mut segment = vec![0; 12 + 20];
        segment[11] = 20;
        segment.extend_from_slice(&segment.clone());
        let places: Vec<usize> = checked_bytes(&segment).collect();
        assert_eq!(places, (17..32).chain(32 + 17..64).collect::<Vec<_>>());
        assert_eq!(checked_bytes(&segment[..40]).count(), 15);
    }
}
