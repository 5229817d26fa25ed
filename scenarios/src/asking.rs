//! Steps of a story that are one request and its answer, each told in a line.

use anyhow::{Context, Result, bail};
use testkit::stage::{Answered, Ask, CONSUMER, Fetched, Node, PartitionView, Process, Sent, Uuid};

use crate::story::{PATIENCE, Story, TOPIC};

impl Story<'_> {
    pub(crate) fn told<T>(&mut self, answer: &str, seen: T) -> Result<T> {
        self.flush()?;
        self.line(&format!("   {answer}"));
        Ok(seen)
    }

    /// Waits until a node tells that these are eligible to lead without an ISR, and who led last if nobody
    /// else may (C06).
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_eligible(
        &mut self,
        node: Node,
        eligible: &[Node],
        last_known: &[Node],
    ) -> Result<()> {
        let what =
            format!("b{node} tells: eligible {eligible:?}, last known leader {last_known:?}");
        self.until(&what, |stage| {
            stage.standing(node, TOPIC).is_ok_and(|standing| {
                standing.eligible == eligible && standing.last_known == last_known
            })
        })
    }

    /// Sends a write and does not wait for its answer.
    ///
    /// # Errors
    /// When the node cannot be reached.
    pub fn send_write(&mut self, node: Node, acks: i16, value: &str) -> Result<Sent> {
        let acks_name = if acks == -1 { "all".into() } else { acks.to_string() };
        self.say(&format!("send {value} to b{node} with acks={acks_name}, and do not wait"))?;
        self.stage.send_write(node, TOPIC, acks, &[value], PATIENCE)
    }

    /// How a write that was sent is answered.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn written(&mut self, sent: Sent) -> Result<Answered> {
        let seen = self.stage.written(sent)?;
        let answer = match seen.error_code {
            0 => format!("the write is acknowledged at {}", seen.base_offset),
            code => format!("the write ends with error {code}"),
        };
        self.told(&answer, seen)
    }

    /// Writes one record to a node that does not lead.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn misdirected_write(&mut self, node: Node, value: &str) -> Result<Answered> {
        self.say(&format!("write {value} to b{node}, which does not lead"))?;
        let sent = self.stage.send_write(node, TOPIC, -1, &[value], PATIENCE)?;
        let seen = self.stage.written(sent)?;
        self.told(&format!("error {}{}", seen.error_code, named(seen.leader)), seen)
    }

    /// One fetch of a node.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn fetch(&mut self, node: Node, ask: Ask) -> Result<Fetched> {
        let who = match ask.replica {
            -1 => "a consumer".to_owned(),
            replica => format!("b{replica}"),
        };
        let mut asked = format!("{who} fetches at {} from b{node}", ask.offset);
        if ask.version != CONSUMER.version {
            asked += &format!(" (v{})", ask.version);
        }
        if ask.replica_epoch >= 0 {
            asked += &format!(", registered with epoch {}", ask.replica_epoch);
        }
        if ask.last_epoch >= 0 {
            asked += &format!(", its last record of e{}", ask.last_epoch);
        }
        if ask.current_epoch >= 0 {
            asked += &format!(", knowing of e{}", ask.current_epoch);
        }
        self.say(&asked)?;
        let seen = self.stage.fetch(node, TOPIC, ask)?;
        self.told_fetch(seen)
    }

    /// One fetch of the topic with this id.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn fetch_by_id(&mut self, node: Node, topic_id: Uuid, ask: Ask) -> Result<Fetched> {
        self.say(&format!("a consumer fetches at {} from b{node}, by the old id", ask.offset))?;
        let seen = self.stage.fetch_by_id(node, TOPIC, topic_id, ask)?;
        self.told_fetch(seen)
    }

    pub(crate) fn told_fetch(&mut self, seen: Fetched) -> Result<Fetched> {
        let answer = match (seen.error_code, seen.diverging) {
            (0, Some((epoch, end))) => format!("they part: e{epoch} ends at {end}"),
            (0, None) => format!("{} records, hw {}", seen.records.len(), seen.high_watermark),
            (code, _) => format!("error {code}{}", named(seen.leader)),
        };
        self.told(&answer, seen)
    }

    /// The offset of a timestamp, or of a special one, by ListOffsets: error code and offset.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn list_offset(
        &mut self,
        node: Node,
        version: i16,
        epoch: i32,
        time: i64,
    ) -> Result<(i16, i64)> {
        let what = match time {
            -1 => "the latest offset".to_owned(),
            -2 => "the earliest offset".to_owned(),
            -3 => "the offset of the latest time".to_owned(),
            other => format!("the offset of time {other}"),
        };
        let since = if epoch >= 0 { format!(", knowing of e{epoch}") } else { String::new() };
        self.say(&format!("ask b{node} for {what} (v{version}){since}"))?;
        let (code, offset) = self.stage.list_offset(node, TOPIC, version, epoch, time)?;
        self.told(&offset_or_error(code, offset), (code, offset))
    }

    /// Where an epoch ends, by OffsetForLeaderEpoch: error code, epoch and end.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn epoch_end(&mut self, node: Node, current: i32, epoch: i32) -> Result<(i16, i32, i64)> {
        let since = if current >= 0 { format!(", knowing of e{current}") } else { String::new() };
        self.say(&format!("ask b{node} where e{epoch} ends{since}"))?;
        let seen = self.stage.epoch_end(node, TOPIC, current, epoch)?;
        let answer = match seen {
            (0, epoch, end) => format!("e{epoch} ends at {end}"),
            (code, ..) => format!("error {code}"),
        };
        self.told(&answer, seen)
    }

    /// Deletes the records below an offset; -1 means the high watermark. Error code and low watermark.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn delete_records(&mut self, node: Node, offset: i64) -> Result<(i16, i64)> {
        let to = if offset == -1 { "the high watermark".into() } else { offset.to_string() };
        self.say(&format!("have b{node} delete the records below {to}"))?;
        let (code, low) = self.stage.delete_records(node, TOPIC, offset)?;
        self.told(&offset_or_error(code, low), (code, low))
    }

    /// Asks any running broker for an election; the partition's error code.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn elect(&mut self, unclean: bool) -> Result<i16> {
        let kind = if unclean { "an unclean election" } else { "the preferred leader's election" };
        self.say(&format!("ask for {kind}"))?;
        let node = self.any_running()?;
        let code = self.stage.elect(node, TOPIC, unclean)?;
        self.told(&done_or_error(code), code)
    }

    /// Asks for other replicas.
    ///
    /// # Errors
    /// When that is refused.
    pub fn reassign(&mut self, replicas: &[Node]) -> Result<()> {
        self.say(&format!("move the partition to {replicas:?}"))?;
        let node = self.any_running()?;
        match self.stage.reassign(node, TOPIC, replicas)? {
            0 => Ok(()),
            code => bail!("moving to {replicas:?}: error {code}"),
        }
    }

    /// The topic's id as a node knows it.
    ///
    /// # Errors
    /// When it knows none.
    pub fn topic_id(&mut self, node: Node) -> Result<Uuid> {
        self.stage.topic_id(node, TOPIC)
    }

    /// Deletes the topic.
    ///
    /// # Errors
    /// When that is refused.
    pub fn delete_topic(&mut self) -> Result<()> {
        self.say("delete the topic")?;
        let node = self.any_running()?;
        match self.stage.delete_topic(node, TOPIC)? {
            0 => Ok(()),
            code => bail!("deleting the topic: error {code}"),
        }
    }

    /// Creates the topic again, under the same name.
    ///
    /// # Errors
    /// When that is refused.
    pub fn create_topic_again(&mut self, replicas: &[Node]) -> Result<()> {
        self.say("create a topic of the same name")?;
        self.stage.create_topic(TOPIC, replicas, &[])
    }

    /// The epoch of a node's registration.
    ///
    /// # Errors
    /// When the stage cannot tell.
    pub fn broker_epoch(&mut self, node: Node) -> Result<i64> {
        self.stage.broker_epoch(node).with_context(|| format!("nobody tells b{node}'s epoch"))
    }

    /// Has the log directory fail in which a node keeps its replica.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn fail_directory(&mut self, node: Node) -> Result<()> {
        self.say(&format!("the log directory of b{node} with this replica fails"))?;
        self.stage.fail_directory(node, TOPIC)
    }

    /// Puts a node's disk in order again.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn mend_disk(&mut self, node: Node) -> Result<()> {
        self.say(&format!("the disk of b{node} is in order again"))?;
        self.stage.mend_disk(node)
    }

    /// Another topic's partition by metadata.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn partition_of(&mut self, topic: &str) -> Result<PartitionView> {
        self.stage.partition(topic)
    }

    /// Creates a topic beside the story's own.
    ///
    /// # Errors
    /// When that is refused.
    pub fn create_another_topic(&mut self, name: &str, replicas: &[Node]) -> Result<()> {
        self.say(&format!("another topic, {name}, with replicas {replicas:?}"))?;
        self.stage.create_topic(name, replicas, &[])
    }

    /// A node that runs.
    fn any_running(&mut self) -> Result<Node> {
        let running = |node: &Node| self.stage.process(*node) == Process::Runs;
        match self.stage.nodes().into_iter().find(running) {
            Some(node) => Ok(node),
            None => bail!("no node runs"),
        }
    }
}

fn named(leader: Option<(Node, i32)>) -> String {
    leader.map_or(String::new(), |(node, epoch)| format!(", b{node} leads since e{epoch}"))
}

fn offset_or_error(code: i16, offset: i64) -> String {
    if code == 0 { format!("{offset}") } else { format!("error {code}") }
}

fn done_or_error(code: i16) -> String {
    if code == 0 { "done".into() } else { format!("error {code}") }
}
