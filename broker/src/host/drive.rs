//! Time and committed metadata into the core: tasks that wait, and call.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use controller::client::{ControllerClient, MetadataUpdate};
use controller::{ClusterImage, ImageDelta};
use protocol::Offset;
use storage::Disk;
use tokio::sync::watch;

use super::errors::DirsFailure;
use super::links::WakeUp;
use super::observing::Observing;
use super::security::NodeSecurity;
use crate::core::BrokerCore;

/// The pause between two looks at the lifecycle while it waits for an answer.
const SHORTEST_BEAT: Duration = Duration::from_millis(100);

/// Looks after the log directories (C08).
pub(super) struct DirWatch {
    /// Where the node's controller keeps the metadata, if it has one.
    pub(super) metadata_dir: Option<PathBuf>,
    /// Told when the broker cannot go on.
    pub(super) failed: watch::Sender<Option<DirsFailure>>,
}

impl DirWatch {
    fn look<D: Disk>(&self, core: &BrokerCore<D>) {
        let replicas = &core.replicas;
        let failed = self.metadata_dir.as_ref().filter(|dir| replicas.has_dir_failed(dir));
        let failure = if replicas.have_all_dirs_failed() {
            DirsFailure::All
        } else if let Some(dir) = failed {
            DirsFailure::Metadata(dir.clone())
        } else if core.lifecycle.is_dir_failure_untold(core.host.clock.now().monotonic) {
            DirsFailure::Untold
        } else {
            return;
        };
        self.failed
            .send_if_modified(|told| told.is_none().then(|| *told = Some(failure)).is_some());
    }
}

/// Ticks the core whenever it wants to be, until `stopped` says so.
pub(super) async fn tick<D: Disk>(
    core: Arc<BrokerCore<D>>,
    wake_up: Arc<WakeUp>,
    mut stopped: watch::Receiver<bool>,
    dirs: DirWatch,
) {
    while !*stopped.borrow() {
        wake_up.begin();
        let next = wake_up.end(core.on_tick());
        dirs.look(&core);
        let now = core.host.clock.now().monotonic;
        // Rounded up, so that a timer of whole milliseconds does not fire before the deadline.
        let pause = next.since(now) + Duration::from_micros(500);
        if next <= now {
            tokio::task::yield_now().await;
            continue;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = wake_up.changed() => {}
            _ = stopped.changed() => {}
        }
    }
}

/// Sends the heartbeats that are due while a tick is long at work, until `stopped` says so: a group of
/// thousands or a slow disk does not mean that this broker is dead.
pub(crate) async fn beat<D: Disk>(core: Arc<BrokerCore<D>>, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let now = core.host.clock.now();
        let next = core.lifecycle.on_tick(now).unwrap_or(now.monotonic);
        tokio::select! {
            () = tokio::time::sleep(next.since(now.monotonic).max(SHORTEST_BEAT)) => {}
            _ = stopped.changed() => {}
        }
    }
}

/// Lets the log cleaner work, on threads that may wait for the disk, until `stopped` says so.
pub(super) async fn clean<D: Disk>(core: Arc<BrokerCore<D>>, mut stopped: watch::Receiver<bool>) {
    while !*stopped.borrow() {
        let cleaning = core.clone();
        let ticked = tokio::task::spawn_blocking(move || cleaning.replicas.on_cleaner_tick()).await;
        let next = match ticked {
            Ok(next) => next,
            Err(error) if error.is_panic() => {
                core.replicas.counts().cleaner.dead.set(1);
                tracing::error!("the log cleaner has failed and does no more until the next start");
                return;
            }
            // The runtime ends, and all of the node with it.
            Err(_) => return,
        };
        let pause = next.since(core.host.clock.now().monotonic);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = stopped.changed() => {}
        }
    }
}

/// Who looks at committed metadata beside the core.
pub(super) struct Observers {
    pub(super) security: Arc<NodeSecurity>,
    pub(super) observing: Arc<Observing>,
}

/// Applies committed metadata in order. Batches that are there together are applied together, so that
/// a broker that catches up changes each role once.
pub(super) async fn apply_metadata<D: Disk>(
    core: Arc<BrokerCore<D>>,
    client: ControllerClient,
    applied: watch::Sender<Offset>,
    observers: Observers,
) {
    let mut stream = client.metadata_stream(Offset::ZERO);
    let mut image = ClusterImage::default();
    let mut committed: Option<Offset> = None;
    while let Some(update) = stream.next().await {
        let before = image.clone();
        let mut delta = ImageDelta::default();
        let mut snapshot = false;
        let mut next = Some(update);
        while let Some(update) = next {
            match update {
                MetadataUpdate::Snapshot(newer) => {
                    image = *newer;
                    snapshot = true;
                }
                MetadataUpdate::Batch { offset, epoch, records } => {
                    if let Err(error) = image.apply_batch(offset, epoch, &records, &mut delta) {
                        tracing::error!(%error, %offset, "committed metadata cannot be applied");
                        return;
                    }
                }
                MetadataUpdate::Status { high_watermark, .. } => committed = Some(high_watermark),
            }
            next = stream.try_next();
        }
        if snapshot {
            delta = ImageDelta::between(&before, &image);
        }
        let caught_up = committed.is_some_and(|committed| image.offset() >= committed);
        observers.security.on_metadata(&image, &delta);
        core.on_metadata(image.clone(), &delta, caught_up);
        observers.observing.on_metadata(&image, core.replicas.static_configs());
        let _ = applied.send(image.offset());
    }
}
