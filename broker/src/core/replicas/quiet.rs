//! Consumers that poll in vain, again and again: what a fetch found out about its partitions holds for the next
//! one of its session, as long as nothing changes. Such a fetch reads nothing, registers nothing and
//! answers nothing but its session: it looks at one number a partition.
//!
//! A fetch is calm when it read every partition to its end, met no error, and its session has nothing to tell
//! (S04). Every partition counts its changes ([`Partition::changes`]), its end among them; while all counts are
//! what the fetch saw, a second look would see the same. So a calm fetch whose time is up leaves its
//! place in the purgatory to its session and itself, as a [`Quiet`], at that place; the session's next fetch takes both
//! over if it asks for nothing else. A change under one of its partitions drops what is at the place, so that nobody
//! who went away keeps the files of a partition that is gone. In builds with debug assertions every such answer is compared with a second look.
//!
//! Followers are not served so: each of their fetches tells how far they are. Nor are consumers whom the
//! time may send to a nearer replica (K01).

use std::sync::Arc;

use protocol::ErrorCode;
use replication::fetch_session::FetchContext;
use replication::partition::{FetchIsolation, FetchReader};
use replication::purgatory::{Expired, StandingWatch};
use replication::time::Now;
use storage::Disk;

use super::ReplicaManager;
use super::fetch::{FetchParams, FetchReply};
use super::parked::{DelayedFetch, Parked, ParkedFetchPartition};

/// The place of a session's fetches in the purgatory.
type Place<D> = StandingWatch<DelayedFetch<D>>;

/// A calm fetch that was answered, kept for the next one of its session.
struct Quiet<D: Disk> {
    reader: FetchReader,
    isolation: FetchIsolation,
    client_rack: String,
    partitions: Arc<Vec<ParkedFetchPartition<D>>>,
}

impl<D: Disk> Quiet<D> {
    fn fits(&self, params: &FetchParams) -> bool {
        self.reader == params.reader
            && self.isolation == params.isolation
            && self.client_rack == params.client_rack
    }
}

/// Whether all is as the fetch saw it.
fn is_undisturbed<D: Disk>(partitions: &[ParkedFetchPartition<D>]) -> bool {
    partitions.iter().all(ParkedFetchPartition::is_unchanged)
}

impl<D: Disk> ReplicaManager<D> {
    /// Whether a fetch with these parameters may be calm.
    pub(super) fn may_be_calm(&self, params: &FetchParams, context: &FetchContext) -> bool {
        let has_nearer = self.config.rack_aware_selector && !params.client_rack.is_empty();
        let reads = matches!(params.reader, FetchReader::Consumer | FetchReader::OldConsumer);
        reads && !has_nearer && context.is_incremental()
    }

    /// Parks a fetch whose session's last one was calm, without a look at its partitions.
    ///
    /// # Errors
    /// Gives context and reply back when it must look.
    pub(super) fn fetch_quietly(
        self: &Arc<Self>,
        params: &FetchParams,
        context: FetchContext,
        reply: FetchReply,
        now: Now,
    ) -> Result<Option<Parked>, (FetchContext, FetchReply)> {
        let waits = params.min_bytes > 0 && !params.max_wait.is_zero();
        let place = context.take_keepsake().and_then(|place| place.downcast::<Place<D>>().ok());
        let kept = place.as_ref().and_then(|place| place.take_kept());
        let quiet = kept
            .and_then(|kept| kept.downcast::<Quiet<D>>().ok())
            .filter(|quiet| waits && quiet.fits(params) && is_undisturbed(&quiet.partitions));
        let (Some(place), Some(quiet)) = (place, quiet) else { return Err((context, reply)) };
        let partitions = quiet.partitions;
        for parked in partitions.iter() {
            parked.partition.counts().on_fetched(ErrorCode::None);
        }
        let deadline = now.monotonic + params.max_wait;
        let params = params.clone();
        let fetch = DelayedFetch { params, partitions, is_calm: true, context, reply };
        let watched = self.fetches.watch_again(*place, fetch, deadline);
        Ok(self.park_fetch(watched, deadline))
    }

    /// Answers a fetch whose time is up.
    pub(super) fn complete_in_vain(&self, expired: Expired<DelayedFetch<D>>) {
        let Expired { operation: fetch, standing } = expired;
        match standing {
            Some(place) if fetch.is_calm && is_undisturbed(&fetch.partitions) => {
                self.answer_nothing(fetch, place)
            }
            _ => self.complete_fetch(fetch),
        }
    }

    fn answer_nothing(&self, mut fetch: DelayedFetch<D>, place: Place<D>) {
        if cfg!(debug_assertions) {
            self.look_again(&mut fetch);
        }
        let DelayedFetch { params, partitions, context, reply, .. } = fetch;
        let FetchParams { reader, isolation, client_rack, .. } = params;
        let kept = Quiet { reader, isolation, client_rack, partitions: partitions.clone() };
        place.keep(Box::new(kept));
        // A change before it was kept has dropped nothing.
        if !is_undisturbed(&partitions) {
            drop(place.take_kept());
        }
        drop(partitions);
        context.keep(Box::new(place));
        reply(context, Vec::new());
    }

    /// What a second look would answer: nothing, unless a change was counted meanwhile.
    fn look_again(&self, fetch: &mut DelayedFetch<D>) {
        let mut pass = self.read_all(&fetch.params, &mut fetch.context, false, self.now());
        let results = pass.results();
        assert!(
            !fetch.context.would_tell(&results) || !is_undisturbed(&fetch.partitions),
            "a partition changed and did not count it: {results:?}"
        );
    }
}
