//! What the answer to a fetch does, per partition.
//!
//! | error | what happens |
//! |---|---|
//! | 0, diverging epoch | the log is cut (T03, T04); its marks stay until the next answer (T08) |
//! | 0 | append, then high watermark and log start of the leader |
//! | 1 OFFSET_OUT_OF_RANGE | ask for the leader's offsets (T11) |
//! | 74 FENCED_LEADER_EPOCH | stop until assigned anew: the leader knows a newer epoch (T09) |
//! | 75 UNKNOWN_LEADER_EPOCH | back off: the leader has not heard of our epoch yet (T09) |
//! | 6, 3, 100 | the same: most often the leader has not heard yet that it leads |
//! | 103, 56, 78, 2 and all others | back off and try again |
//!
//! Where the leader has not heard yet, the pauses begin short and double up to the back-off; Kafka waits
//! the whole `replica.fetch.backoff.ms`, which holds acks=all of a new topic up for that long.
//!
//! And of the session as a whole: 70 and 71 start a new session at once (S01); 106, and a second
//! failure in a row, only after the back-off.

use crate::access::{LeaderData, PartitionFailure, ReplicaAccess};
use crate::core::{FetcherCore, FetcherResponse, InFlight};
use crate::partition::Phase;
use protocol::messages::FetchResponse;
use protocol::messages::fetch_response::PartitionData;
use protocol::{ErrorCode, LeaderEpoch, Offset, SessionId};
use replication::EpochEndOffset;
use replication::bugs::{self, Bug};
use replication::fetch_session::{PartitionKey, ResponseVerdict};
use replication::time::Instant;
use replication::trace::{Event, Why};
use replication::truncation::{FetchPoint, is_answer_current};

impl FetcherCore {
    /// Takes the answer to the request that [`FetcherCore::poll`] gave.
    ///
    /// An answer of the other kind than the request counts as a failure.
    pub fn on_response<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        response: FetcherResponse,
        now: Instant,
    ) {
        match (self.in_flight.take(), response) {
            (Some(InFlight::Fetch), FetcherResponse::Fetch(response)) => {
                self.on_fetch_response(access, response, now);
            }
            (Some(InFlight::ListOffsets(asked)), FetcherResponse::ListOffsets(response)) => {
                self.on_list_offsets_response(access, asked, response, now);
            }
            (in_flight, _) => {
                self.in_flight = in_flight;
                self.on_request_failed(access, now);
            }
        }
    }

    fn on_fetch_response<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        response: FetchResponse,
        now: Instant,
    ) {
        let mut answered = Vec::new();
        for topic in response.responses {
            for data in topic.partitions {
                answered.push((PartitionKey::by_id(topic.topic_id, data.partition_index), data));
            }
        }
        let verdict = self.session.on_response(
            response.error_code,
            SessionId(response.session_id),
            response.throttle_time_ms > 0,
            answered.iter().map(|(key, _)| key),
        );
        if verdict == ResponseVerdict::Reset {
            self.on_session_reset(access, ErrorCode::from_code(response.error_code), now);
            return;
        }
        self.resets_in_a_row = 0;
        for (key, data) in answered {
            if self.stands_as_asked(&key) {
                self.on_partition_data(access, &key, data, now);
            } else {
                self.note_dropped(access, &key);
            }
        }
    }

    /// An answer to what is not asked any more changes nothing (T10).
    fn note_dropped<A: ReplicaAccess + ?Sized>(&self, access: &A, key: &PartitionKey) {
        if let (Some(state), Some(sent)) = (self.partitions.get(key), self.session.sent(key)) {
            access.trace(Event::FetchAnswerDropped {
                partition: state.partition.topic_partition.clone(),
                request_offset: sent.fetch_offset,
                fetch_offset: state.fetch_offset,
                why: Why::StaleFetchAnswer,
            });
        }
    }

    fn on_session_reset<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        error: ErrorCode,
        now: Instant,
    ) {
        tracing::info!(leader = %self.leader(), %error, "the fetch session starts over");
        self.resets_in_a_row = self.resets_in_a_row.saturating_add(1);
        let at_once = matches!(
            error,
            ErrorCode::None
                | ErrorCode::FetchSessionIdNotFound
                | ErrorCode::InvalidFetchSessionEpoch
        );
        if !at_once || self.resets_in_a_row > 1 {
            self.back_off(access, now);
        }
    }

    /// Rule T10: whether the partition still is what the answer is about.
    fn stands_as_asked(&self, key: &PartitionKey) -> bool {
        let (Some(state), Some(sent)) = (self.partitions.get(key), self.session.sent(key)) else {
            return false;
        };
        let asked = FetchPoint {
            fetch_offset: sent.fetch_offset,
            leader_epoch: sent.current_leader_epoch,
            last_fetched_epoch: sent.last_fetched_epoch,
        };
        let current = state.is_ready_for_fetch().then_some(FetchPoint {
            fetch_offset: state.fetch_offset,
            leader_epoch: state.leader_epoch,
            last_fetched_epoch: state.last_fetched_epoch,
        });
        is_answer_current(asked, current)
    }

    fn on_partition_data<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        data: PartitionData,
        now: Instant,
    ) {
        match ErrorCode::from_code(data.error_code) {
            ErrorCode::None if data.diverging_epoch.epoch >= 0 => {
                let diverging = EpochEndOffset {
                    epoch: LeaderEpoch(data.diverging_epoch.epoch),
                    end_offset: Offset(data.diverging_epoch.end_offset),
                };
                if bugs::is_on(Bug::WatermarkFromDivergingAnswer)
                    && self.takes_marks_first(access, key, &data, now)
                {
                    return; // wrong (KAFKA-14704): these marks are of a log that we do not have
                }
                self.on_diverging(access, key, diverging, now);
            }
            ErrorCode::None => self.on_data(access, key, data, now),
            ErrorCode::OffsetOutOfRange => self.ask(key, Phase::AskingLatest),
            ErrorCode::FencedLeaderEpoch => self.on_fenced(access, key),
            error @ (ErrorCode::UnknownLeaderEpoch
            | ErrorCode::NotLeaderOrFollower
            | ErrorCode::UnknownTopicOrPartition
            | ErrorCode::UnknownTopicId) => {
                tracing::debug!(?key, %error, "the leader does not know yet that it leads");
                self.delay_early(access, key, error, now);
            }
            error => {
                tracing::debug!(?key, %error, "the leader refuses, backing off");
                self.delay(access, key, error, now);
            }
        }
    }

    pub(crate) fn on_fenced<A: ReplicaAccess + ?Sized>(&mut self, access: &A, key: &PartitionKey) {
        if let Some(state) = self.partitions.get(key) {
            let failure = PartitionFailure::Fenced(state.leader_epoch);
            self.fail(access, key, failure);
        }
    }

    fn on_data<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        data: PartitionData,
        now: Instant,
    ) {
        let Some(state) = self.partitions.get_mut(key) else {
            return;
        };
        let records = data.records.unwrap_or_default();
        let has_records = !records.is_empty();
        let appended = access.append_from_leader(
            &state.partition,
            LeaderData {
                leader_epoch: state.leader_epoch,
                fetch_offset: state.fetch_offset,
                records,
                high_watermark: Offset(data.high_watermark),
                log_start_offset: Offset(data.log_start_offset),
            },
        );
        match appended {
            Ok(log) => {
                state.early_tries = 0;
                state.lag = Some((data.high_watermark - log.log_end_offset.get()).max(0));
                if has_records {
                    self.session.move_to_end(key);
                }
                self.resume_at(key, &log);
            }
            Err(error) => self.on_replica_error(access, key, error, now),
        }
    }

    /// The bug of KAFKA-14704: the high watermark moves now, and the log is cut when the answer comes
    /// again. Gives whether it moved.
    fn takes_marks_first<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        data: &PartitionData,
        now: Instant,
    ) -> bool {
        let Some(state) = self.partitions.get(key) else {
            return false;
        };
        let Ok(before) = access.log(&state.partition) else {
            return false;
        };
        let marks = LeaderData {
            leader_epoch: state.leader_epoch,
            fetch_offset: state.fetch_offset,
            records: Default::default(),
            high_watermark: Offset(data.high_watermark),
            log_start_offset: before.log_start_offset,
        };
        let after = access.append_from_leader(&state.partition, marks);
        let moved = after.is_ok_and(|after| after.high_watermark > before.high_watermark);
        if moved {
            self.delay(access, key, ErrorCode::None, now);
        }
        moved
    }

    /// Cuts the log to where the leader's history and ours may agree. The answer's high watermark
    /// and log start are left alone: they hold for a log that we do not have yet (T08).
    fn on_diverging<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        key: &PartitionKey,
        diverging: EpochEndOffset,
        now: Instant,
    ) {
        let Some(state) = self.partitions.get(key) else {
            return;
        };
        if diverging.end_offset < Offset::ZERO {
            self.delay(access, key, ErrorCode::None, now);
            return;
        }
        let partition = &state.partition;
        let truncated = access.decide_truncation(partition, diverging).and_then(|cut| {
            tracing::info!(
                partition = %partition.topic_partition, from = %state.fetch_offset, to = %cut.to,
                leader_epoch = %diverging.epoch, leader_end = %diverging.end_offset,
                below_high_watermark = cut.below_high_watermark,
                "cutting the log: it diverges from the leader's"
            );
            access.truncate_to(partition, state.leader_epoch, cut.to)?;
            access.log(partition)
        });
        match truncated {
            Ok(log) => self.resume_at(key, &log),
            Err(error) => self.on_replica_error(access, key, error, now),
        }
    }
}
