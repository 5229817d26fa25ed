//! Steps of producers that number their batches (KIP-98).

use anyhow::Result;
use testkit::stage::{Answered, Node, Sent, Stamp};

use crate::story::{PATIENCE, Story, TOPIC};

impl Story<'_> {
    /// The id of a new producer.
    ///
    /// # Errors
    /// When none is given.
    pub fn producer_id(&mut self, node: Node) -> Result<i64> {
        self.say(&format!("a producer gets an id from b{node}"))?;
        self.stage.producer_id(node)
    }

    /// Sends a numbered write of one record with acks=all, and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_stamped(&mut self, node: Node, stamp: Stamp, value: &str) -> Result<Sent> {
        let (epoch, sequence) = (stamp.epoch, stamp.sequence);
        self.say(&format!("send {value} to b{node}, producer epoch {epoch}, sequence {sequence}"))?;
        self.stage.send_stamped(node, TOPIC, -1, stamp, &[value], PATIENCE)
    }

    /// A numbered write of one record with acks=all.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn write_stamped(&mut self, node: Node, stamp: Stamp, value: &str) -> Result<Answered> {
        let sent = self.send_stamped(node, stamp, value)?;
        self.written(sent)
    }
}
