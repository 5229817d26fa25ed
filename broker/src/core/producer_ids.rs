//! Producer ids: handed out one by one from blocks of 1000 that the controller allocates, so that no
//! two brokers, and no two lives of a broker, ever give the same one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use protocol::messages::AllocateProducerIdsRequest;
use protocol::{BrokerEpoch, ErrorCode, NodeId, ProducerId, RequestBody, ResponseBody};

use crate::core::host::{CallError, Host};

const VERSION: i16 = 0;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Takes an id, or why there is none.
pub type IdReply = Box<dyn FnOnce(Result<ProducerId, ErrorCode>) + Send>;

#[derive(Default)]
struct Block {
    next: i64,
    end: i64,
    waiting: VecDeque<IdReply>,
    asking: bool,
}

/// The ids this broker may hand out.
pub struct ProducerIds {
    host: Host,
    block: Mutex<Block>,
}

impl std::fmt::Debug for ProducerIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProducerIds")
    }
}

impl ProducerIds {
    /// No block yet.
    pub fn new(host: Host) -> Self {
        Self { host, block: Mutex::new(Block::default()) }
    }

    /// Gives an id that nobody has, now or when the controller has answered.
    pub fn next(self: &Arc<Self>, node: NodeId, epoch: BrokerEpoch, reply: IdReply) {
        {
            let mut block = self.block.lock();
            if block.next >= block.end {
                block.waiting.push_back(reply);
                if std::mem::replace(&mut block.asking, true) {
                    return;
                }
                drop(block);
                self.ask(node, epoch);
                return;
            }
            block.next += 1;
            let id = ProducerId(block.next - 1);
            drop(block);
            reply(Ok(id));
        }
    }

    fn ask(self: &Arc<Self>, node: NodeId, epoch: BrokerEpoch) {
        let request = AllocateProducerIdsRequest {
            broker_id: node.get(),
            broker_epoch: epoch.get(),
            ..AllocateProducerIdsRequest::default()
        };
        let ids = self.clone();
        let reply = Box::new(move |answer: Result<ResponseBody, CallError>| {
            ids.on_block(answer);
        });
        let request = RequestBody::AllocateProducerIds(request);
        self.host.controller.call(VERSION, request, TIMEOUT, reply);
    }

    /// A block, or an error: then those who wait are told to try again.
    fn on_block(&self, answer: Result<ResponseBody, CallError>) {
        let granted = match answer {
            Ok(ResponseBody::AllocateProducerIds(response)) if response.error_code == 0 => {
                Some((response.producer_id_start, i64::from(response.producer_id_len)))
            }
            _ => None,
        };
        let mut served: Vec<(IdReply, Result<ProducerId, ErrorCode>)> = Vec::new();
        {
            let mut block = self.block.lock();
            block.asking = false;
            if let Some((start, len)) = granted {
                block.next = start;
                block.end = start.saturating_add(len);
            }
            while let Some(reply) = block.waiting.pop_front() {
                if block.next < block.end {
                    block.next += 1;
                    let id = ProducerId(block.next - 1);
                    served.push((reply, Ok(id)));
                } else {
                    served.push((reply, Err(ErrorCode::CoordinatorLoadInProgress)));
                }
            }
        }
        for (reply, result) in served {
            reply(result);
        }
    }
}
