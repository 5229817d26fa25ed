//! Time and committed metadata into the core: two tasks that wait, and call.

use std::sync::Arc;
use std::time::Duration;

use controller::client::{ControllerClient, MetadataUpdate};
use controller::{ClusterImage, ImageDelta};
use protocol::Offset;
use storage::Disk;
use tokio::sync::watch;

use super::links::WakeUp;
use crate::core::BrokerCore;

/// Ticks the core whenever it wants to be, until `stopped` says so. Tells `dirs_failed` when no log
/// directory works any more.
pub(super) async fn tick<D: Disk>(
    core: Arc<BrokerCore<D>>,
    wake_up: Arc<WakeUp>,
    mut stopped: watch::Receiver<bool>,
    dirs_failed: watch::Sender<bool>,
) {
    while !*stopped.borrow() {
        wake_up.begin();
        let next = wake_up.end(core.on_tick());
        if core.replicas.have_all_dirs_failed() {
            dirs_failed.send_replace(true);
        }
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

/// Applies committed metadata in order. Batches that are there together are applied together, so that
/// a broker that catches up changes each role once.
pub(super) async fn apply_metadata<D: Disk>(
    core: Arc<BrokerCore<D>>,
    client: ControllerClient,
    applied: watch::Sender<Offset>,
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
        core.on_metadata(image.clone(), &delta, caught_up);
        let _ = applied.send(image.offset());
    }
}
