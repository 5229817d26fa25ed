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

#[cfg(test)]
mod tests {
    use protocol::messages::AllocateProducerIdsResponse;

    use super::*;
    use crate::handlers::testing::{TestBroker, answer_of};

    fn request(transactional_id: Option<&str>, id: i64, epoch: i16) -> InitProducerIdRequest {
        InitProducerIdRequest {
            transactional_id: transactional_id.map(str::to_owned),
            producer_id: id,
            producer_epoch: epoch,
            ..InitProducerIdRequest::default()
        }
    }

    #[test]
    fn every_request_gets_a_new_id_with_epoch_0_also_one_that_names_its_old_one() {
        let broker = TestBroker::new();
        let first = broker.send(4, request(None, -1, -1));
        let second = broker.send(4, request(None, 17, 3));
        assert!(first.take().is_none());
        broker.one_call().answer(AllocateProducerIdsResponse {
            producer_id_start: 5000,
            producer_id_len: 1000,
            ..AllocateProducerIdsResponse::default()
        });
        let ids = [first, second].map(|inbox| {
            let response = answer_of::<InitProducerIdRequest>(&inbox, 4);
            (response.error_code, response.producer_id, response.producer_epoch)
        });
        assert_eq!(ids, [(0, 5000, 0), (0, 5001, 0)]);
        assert_eq!(broker.ask(0, request(None, -1, -1)).producer_id, 5002);
        assert!(broker.calls().is_empty());
    }

    #[test]
    fn without_a_block_of_ids_clients_are_told_to_come_again() {
        let broker = TestBroker::new();
        let inbox = broker.send(4, request(None, -1, -1));
        broker.one_call().fail(crate::core::host::CallError::TimedOut);
        let response = answer_of::<InitProducerIdRequest>(&inbox, 4);
        let error = ErrorCode::from_code(response.error_code);
        assert!(error.is_retriable(), "{error:?}");
        assert_eq!((response.producer_id, response.producer_epoch), (-1, -1));
    }

    #[test]
    fn an_id_without_an_epoch_or_the_other_way_round_is_a_mistake() {
        let broker = TestBroker::new();
        for (id, epoch) in [(5, -1), (-1, 5)] {
            let response = broker.ask(3, request(None, id, epoch));
            assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
        }
        assert!(broker.calls().is_empty());
    }

    #[test]
    fn transactional_producers_are_sent_away_with_an_error_that_they_retry() {
        let broker = TestBroker::new();
        let response = broker.ask(4, request(Some("tx"), -1, -1));
        assert_eq!(response.error_code, ErrorCode::CoordinatorNotAvailable.code());
        assert!(ErrorCode::CoordinatorNotAvailable.is_retriable());
        let response = broker.ask(4, request(Some(""), -1, -1));
        assert_eq!(response.error_code, ErrorCode::InvalidRequest.code());
        assert!(broker.calls().is_empty());
    }
}
