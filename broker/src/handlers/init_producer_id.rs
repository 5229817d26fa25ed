//! InitProducerId (KIP-98, KIP-360): a producer id for idempotent writes.
//!
//! Without a transactional id every request gets an id that nobody had before, with epoch 0; also one
//! that names the id and epoch it has (version 3 and above): idempotent producers raise their epoch
//! themselves, and who asks wants a new start. Naming only one of the two is INVALID_REQUEST. Version 6
//! adds what two-phase commit needs and is not advertised.
//!
//! With a transactional id: there is no transaction coordinator yet. The answer is
//! COORDINATOR_NOT_AVAILABLE: clients look the coordinator up again and go on until their own time limit
//! (`max.block.ms`), then tell the application that it timed out, which is true; a producer that was
//! written to be fatal on other errors is not lost. An empty transactional id is INVALID_REQUEST.

use std::sync::Arc;

use protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};
use protocol::{ErrorCode, ProducerId};
use storage::Disk;

use crate::core::{BrokerCore, Responder};

const NONE: i16 = -1;

pub(super) fn handle<D: Disk>(
    core: &Arc<BrokerCore<D>>,
    request: &InitProducerIdRequest,
    reply: Responder,
) {
    if let Some(error) = refusal(request) {
        return super::answer(reply, refused(error));
    }
    let on_id = Box::new(move |id: Result<ProducerId, ErrorCode>| {
        let response = match id {
            Ok(id) => InitProducerIdResponse {
                producer_id: id.get(),
                producer_epoch: 0,
                ..InitProducerIdResponse::default()
            },
            Err(error) => refused(error),
        };
        super::answer(reply, response);
    });
    core.producer_ids.next(core.node, core.lifecycle.epoch(), on_id);
}

fn refusal(request: &InitProducerIdRequest) -> Option<ErrorCode> {
    let has_id = request.producer_id != i64::from(NONE);
    let has_epoch = request.producer_epoch != NONE;
    match &request.transactional_id {
        _ if has_id != has_epoch => Some(ErrorCode::InvalidRequest),
        None => None,
        Some(id) if id.is_empty() => Some(ErrorCode::InvalidRequest),
        Some(_) => Some(ErrorCode::CoordinatorNotAvailable),
    }
}

fn refused(error: ErrorCode) -> InitProducerIdResponse {
    InitProducerIdResponse {
        error_code: error.code(),
        producer_id: i64::from(NONE),
        producer_epoch: NONE,
        ..InitProducerIdResponse::default()
    }
}
