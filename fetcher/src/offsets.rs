//! A follower outside its leader's range (rule T11): first the leader's log end is asked for, then,
//! if our log does not reach beyond it, the leader's log start.
//!
//! - our end above the leader's end: we have what an unclean election threw away; cut to its end;
//! - our end below the leader's start: nothing joins up; empty the log and start at its start;
//! - otherwise the leader moved meanwhile: just fetch again from our end.

use crate::access::{ReplicaAccess, ReplicaError, ReplicaLog};
use crate::core::FetcherCore;
use crate::partition::Phase;
use crate::request::AskedOffset;
use protocol::messages::ListOffsetsResponse;
use protocol::{ErrorCode, Offset};
use replication::time::Instant;
use replication::truncation::OutOfRangeStep;
use std::collections::BTreeMap;

/// What an answered offset leads to.
enum Step {
    /// Fetch from the end of this log; behind the leader's end by so much.
    Resume(ReplicaLog, i64),
    /// Ask for the leader's start as well.
    AskEarliest(Offset),
}

impl FetcherCore {
    pub(crate) fn on_list_offsets_response<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        asked: Vec<AskedOffset>,
        response: ListOffsetsResponse,
        now: Instant,
    ) {
        let mut answers = BTreeMap::new();
        for topic in &response.topics {
            for partition in &topic.partitions {
                let answer = (partition.error_code, Offset(partition.offset));
                answers.insert((topic.name.as_str(), partition.partition_index), answer);
            }
        }
        for question in asked {
            if !self.stands_as_questioned(&question) {
                continue;
            }
            self.done_asking(&question.key);
            match answers.get(&(&*question.name.topic, question.name.partition)) {
                Some((error_code, offset)) => {
                    self.on_offset(access, &question, *error_code, *offset, now);
                }
                None => self.delay(access, &question.key, ErrorCode::None, now),
            }
        }
    }

    /// Rule T10 for questions: the partition must still be at the same epoch and in the same step.
    fn stands_as_questioned(&self, question: &AskedOffset) -> bool {
        self.partitions.get(&question.key).is_some_and(|state| {
            state.leader_epoch == question.leader_epoch && state.phase == question.phase
        })
    }

    fn on_offset<A: ReplicaAccess + ?Sized>(
        &mut self,
        access: &A,
        question: &AskedOffset,
        error_code: i16,
        offset: Offset,
        now: Instant,
    ) {
        let key = &question.key;
        match ErrorCode::from_code(error_code) {
            ErrorCode::None if offset >= Offset::ZERO => {}
            ErrorCode::FencedLeaderEpoch => return self.on_fenced(access, key),
            error => return self.delay(access, key, error, now),
        }
        let step = match question.phase {
            Phase::AskingEarliest { leader_end } => {
                self.on_leader_start(access, question, offset, leader_end)
            }
            _ => self.on_leader_end(access, question, offset),
        };
        match step {
            Ok(Step::Resume(log, lag)) => {
                if let Some(state) = self.partitions.get_mut(key) {
                    state.lag = Some(lag.max(0));
                }
                self.resume_at(key, &log);
            }
            Ok(Step::AskEarliest(leader_end)) => {
                self.ask(key, Phase::AskingEarliest { leader_end });
            }
            Err(error) => self.on_replica_error(access, key, error, now),
        }
    }

    fn on_leader_end<A: ReplicaAccess + ?Sized>(
        &self,
        access: &A,
        question: &AskedOffset,
        leader_end: Offset,
    ) -> Result<Step, ReplicaError> {
        let Some(state) = self.partitions.get(&question.key) else {
            return Err(ReplicaError::NotFollower);
        };
        let log = access.log(&state.partition)?;
        let OutOfRangeStep::TruncateTo(offset) =
            OutOfRangeStep::on_leader_latest(leader_end, log.log_end_offset)
        else {
            return Ok(Step::AskEarliest(leader_end));
        };
        tracing::warn!(
            partition = %question.name, from = %log.log_end_offset, to = %offset,
            "cutting the log to the leader's end"
        );
        access.truncate_to(&state.partition, state.leader_epoch, offset)?;
        Ok(Step::Resume(access.log(&state.partition)?, 0))
    }

    fn on_leader_start<A: ReplicaAccess + ?Sized>(
        &self,
        access: &A,
        question: &AskedOffset,
        leader_start: Offset,
        leader_end: Offset,
    ) -> Result<Step, ReplicaError> {
        let Some(state) = self.partitions.get(&question.key) else {
            return Err(ReplicaError::NotFollower);
        };
        let mut log = access.log(&state.partition)?;
        let step = OutOfRangeStep::on_leader_earliest(leader_start, log.log_end_offset);
        if let OutOfRangeStep::StartAt(offset) = step {
            tracing::warn!(
                partition = %question.name, end = %log.log_end_offset, start = %offset,
                "emptying the log: it ends before the leader's begins"
            );
            let partition = &state.partition;
            access.truncate_fully_and_start_at(partition, state.leader_epoch, offset)?;
            log = access.log(partition)?;
        }
        Ok(Step::Resume(log, leader_end.distance_from(log.log_end_offset)))
    }
}
