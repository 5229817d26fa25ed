//! Steps with controllers: who decides, what only brokers ask them, and machines that lose their power.

use anyhow::{Context, Result, bail, ensure};
use testkit::stage::{Between, Node, Process, Proposal, QuorumView};

use crate::story::{Story, TOPIC};

/// How often another controller is tried for.
const ATTEMPTS: usize = 20;

impl Story<'_> {
    /// Who decides, by the word of any node that knows.
    ///
    /// # Errors
    /// When nobody knows.
    pub fn quorum(&mut self) -> Result<QuorumView> {
        for node in self.stage.nodes() {
            if self.stage.process(node) == Process::Runs
                && let Ok(Ok(view)) = self.stage.quorum(node)
            {
                return Ok(view);
            }
        }
        bail!("nobody knows who decides")
    }

    /// Who decides, by the word of this node; an error code where it cannot tell.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn quorum_of(&mut self, node: Node) -> Result<std::result::Result<QuorumView, i16>> {
        self.say(&format!("ask b{node} who decides"))?;
        let seen = self.stage.quorum(node)?;
        let answer = match seen {
            Ok(view) => format!("controller {} does", view.leader),
            Err(code) => format!("error {code}"),
        };
        self.told(&answer, seen)
    }

    /// Waits until a node knows of another controller than this one.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_other_controller(&mut self, old: QuorumView, witness: Node) -> Result<QuorumView> {
        self.until(
            "another controller decides",
            |stage| matches!(stage.quorum(witness), Ok(Ok(view)) if view.leader != old.leader),
        )?;
        let view = self.stage.quorum(witness)?;
        view.ok().context("the new controller is not known any more")
    }

    /// Has a controller decide that is none of these, the partition's ISR and preferred leader as before.
    ///
    /// # Errors
    /// When that does not come.
    pub fn move_controller_off(&mut self, nodes: &[Node]) -> Result<QuorumView> {
        let isr = self.partition()?.isr;
        for _ in 0..ATTEMPTS {
            let view = self.quorum()?;
            if !nodes.contains(&view.leader) {
                if self.elect(false)? == 0 {
                    self.until("the preferred leader leads", |stage| {
                        let seen = stage.partition(TOPIC).map(|view| view.leader);
                        seen.is_ok_and(|leader| stage.replica(leader, TOPIC).is_ok_and(|r| r.leads))
                    })?;
                }
                return Ok(view);
            }
            let witness = self.stage.nodes().into_iter().find(|node| *node != view.leader);
            self.cut_off(view.leader, Between::Controllers)?;
            self.until_other_controller(view, witness.context("one node alone")?)?;
            // Fenced later it would take the partition's leadership with it.
            let rest: Vec<Node> = isr.iter().copied().filter(|node| *node != view.leader).collect();
            self.until_isr(&rest)?;
            self.heal()?;
            self.until_isr(&isr)?;
        }
        bail!("no controller but {nodes:?} came to decide")
    }

    /// Asks a node for another topic: the error code of the answer.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn ask_for_topic(&mut self, node: Node, topic: &str) -> Result<i16> {
        self.say(&format!("ask b{node} for a topic, {topic}"))?;
        let sent = self.stage.send_create_topic(node, topic, &[node])?;
        let code = self.stage.topic_created(sent)?;
        let answer = if code == 0 { "it is made".to_owned() } else { format!("error {code}") };
        self.told(&answer, code)
    }

    /// Waits until a node's metadata has this topic.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_topic(&mut self, node: Node, topic: &str) -> Result<()> {
        self.until(&format!("b{node} knows of {topic}"), |stage| {
            stage.topic_id(node, topic).is_ok()
        })
    }

    /// Whether a node's metadata has this topic.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn topic_known(&mut self, node: Node, topic: &str) -> Result<bool> {
        self.flush()?;
        Ok(self.stage.topic_id(node, topic).is_ok())
    }

    /// Proposes an ISR to the controller, as `what` says: error code and partition epoch.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn propose(&mut self, what: &str, proposal: &Proposal) -> Result<(i16, i32)> {
        self.say(&format!("propose {what}"))?;
        let seen = self.stage.propose_isr(proposal)?;
        let answer = if seen.0 == 0 { "taken".to_owned() } else { format!("error {}", seen.0) };
        self.told(&answer, seen)
    }

    /// The epoch of the partition, as the controller has it.
    ///
    /// # Errors
    /// When the stage cannot tell.
    pub fn partition_epoch(&mut self) -> Result<i32> {
        self.stage.partition_epoch(TOPIC).context("nobody tells the partition's epoch")
    }

    /// Has a node's machine lose its power.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn lose_power(&mut self, node: Node) -> Result<()> {
        self.say(&format!("the machine of b{node} loses its power"))?;
        self.stage.lose_power(node)
    }

    /// Waits until a running node has a replica that does not lead.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_follower(&mut self, node: Node) -> Result<()> {
        ensure!(self.stage.process(node) == Process::Runs, "b{node} does not run");
        self.until(&format!("b{node} follows"), |stage| {
            stage.replica(node, TOPIC).is_ok_and(|view| !view.leads)
        })
    }
}
