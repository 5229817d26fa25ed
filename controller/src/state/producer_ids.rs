//! Blocks of producer ids for brokers. An id is never handed out twice.

use protocol::ErrorCode;
use protocol::messages::{AllocateProducerIdsRequest, AllocateProducerIdsResponse};

use super::ControllerState;
use crate::records::ProducerIds;

/// How many ids a broker gets at a time.
pub(super) const BLOCK_SIZE: i32 = 1000;

impl ControllerState {
    pub(super) fn on_allocate_producer_ids(
        &mut self,
        request: &AllocateProducerIdsRequest,
    ) -> AllocateProducerIdsResponse {
        let refuse = |error: ErrorCode| AllocateProducerIdsResponse {
            error_code: error.code(),
            ..Default::default()
        };
        if let Err(error) = self.check_broker_epoch(request.broker_id, request.broker_epoch) {
            return refuse(error);
        }
        let start = self.image.next_producer_id().get();
        let Some(next_producer_id) = start.checked_add(i64::from(BLOCK_SIZE)) else {
            return refuse(ErrorCode::UnknownServerError);
        };
        self.decide(ProducerIds {
            broker_id: request.broker_id,
            broker_epoch: request.broker_epoch,
            next_producer_id,
        });
        AllocateProducerIdsResponse {
            producer_id_start: start,
            producer_id_len: BLOCK_SIZE,
            ..Default::default()
        }
    }
}
