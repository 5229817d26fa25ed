//! Writes of producers that number their batches (KIP-98), every number in hand.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use protocol::messages::InitProducerIdRequest;
use protocol::records::{BatchBuilder, ProducerStamp};
use protocol::{Offset, ProducerEpoch, ProducerId, ResponseBody};

use super::questions::TIMESTAMP_MS;
use super::{Node, Sent, Stage};
use crate::client::produce_request;

/// How often a producer id is asked for, and the pause between: a broker that has just started may have no
/// block of them yet.
const ATTEMPTS: usize = 50;
const PAUSE: Duration = Duration::from_millis(50);

/// What a producer says of itself and of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// The producer's id.
    pub producer_id: i64,
    /// Its epoch.
    pub epoch: i16,
    /// The number of the batch's first record.
    pub sequence: i32,
}

impl dyn Stage + '_ {
    /// A producer id that nobody else has.
    ///
    /// # Errors
    /// When none is given.
    pub fn producer_id(&mut self, node: Node) -> Result<i64> {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 60_000,
            producer_id: -1,
            producer_epoch: -1,
            ..InitProducerIdRequest::default()
        };
        let mut last = 0;
        for _ in 0..ATTEMPTS {
            let ResponseBody::InitProducerId(response) = self.call(node, 4, request.clone())?
            else {
                bail!("not an answer to InitProducerId");
            };
            if response.error_code == 0 {
                return Ok(response.producer_id);
            }
            last = response.error_code;
            self.pass(PAUSE)?;
        }
        bail!("b{node} gives no producer id: error {last}")
    }

    /// Sends a write of one batch with these numbers, and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_stamped(
        &mut self,
        node: Node,
        topic: &str,
        acks: i16,
        stamp: Stamp,
        values: &[&str],
        timeout: Duration,
    ) -> Result<Sent> {
        ensure!(!values.is_empty(), "a batch has records");
        let mut builder = BatchBuilder::new(Offset::ZERO).producer(ProducerStamp {
            id: ProducerId(stamp.producer_id),
            epoch: ProducerEpoch(stamp.epoch),
            base_sequence: stamp.sequence,
        });
        for value in values {
            builder.append(TIMESTAMP_MS, None, Some(value.as_bytes()), [])?;
        }
        let request = produce_request(topic, 0, acks, builder.build()?, timeout);
        self.send(node, 12, request.into())
    }
}
