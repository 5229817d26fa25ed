//! How a story is told: the script's steps, a column per broker, the claims and the verdict.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, Error, Result, bail, ensure};
use testkit::stage::{
    Ability, Between, Hold, Message, Node, PartitionView, Process, ReplicaView, Stage, StageEvent,
    Written,
};

use crate::Scenario;

/// The topic of every story.
pub const TOPIC: &str = "t";
const WIDTH: usize = 25;
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What was told.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// All lines.
    pub text: String,
    /// The brokers' decisions among them.
    pub events: Vec<StageEvent>,
}

/// A story that ended before its last word: what was told of it. The cause is the error under it.
#[derive(Clone, Debug)]
pub struct Broken {
    /// All lines, the verdict the last.
    pub text: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A story being told.
pub struct Story<'a> {
    pub(crate) stage: &'a mut dyn Stage,
    listener: &'a mut dyn FnMut(&str),
    /// Whether the script may use what this stage can and others cannot.
    uses_abilities: bool,
    columns: Vec<Node>,
    text: String,
    events: Vec<StageEvent>,
    last_states: String,
}

impl fmt::Debug for Story<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl<'a> Story<'a> {
    /// Tells the scenario from its topic to its verdict.
    pub(crate) fn tell(
        scenario: &Scenario,
        stage: &'a mut dyn Stage,
        uses_abilities: bool,
        listener: &'a mut dyn FnMut(&str),
    ) -> Result<Transcript> {
        let mut columns = [scenario.replicas, scenario.also_shown].concat();
        columns.sort_unstable();
        let mut story = Story {
            stage,
            listener,
            uses_abilities,
            columns,
            text: String::new(),
            events: Vec::new(),
            last_states: String::new(),
        };
        story.line(&format!("{} ({}): {}", scenario.name, story.stage.name(), scenario.title));
        story.line(&format!("rules: {}", scenario.rules.join(", ")));
        story.heading();
        if let Err(error) = story.play(scenario) {
            // What the brokers did until then is told as well, if they still can be asked.
            let _ = story.flush();
            story.line(&format!("verdict: NOT as it must be: {}", causes(&error)));
            return Err(error.context(Broken { text: story.text }));
        }
        story.line("verdict: as it must be");
        Ok(Transcript { text: story.text, events: story.events })
    }

    fn play(&mut self, scenario: &Scenario) -> Result<()> {
        self.stage.create_topic(TOPIC, scenario.replicas, scenario.configs)?;
        self.say(&format!("a topic with replicas {:?}", scenario.replicas))?;
        (scenario.script)(self)?;
        self.stage.check()?;
        self.flush()
    }

    pub(crate) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        (self.listener)(line);
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn row(&mut self, time: &str, controller: &str, cells: &[(Node, &str)]) {
        let mut line = format!("{time:>8} | {controller:<WIDTH$}");
        for column in self.columns.clone() {
            let cell = cells.iter().find(|(node, _)| *node == column).map_or("", |(_, text)| *text);
            line.push_str(&format!(" | {cell:<WIDTH$}"));
        }
        let line = line.trim_end_matches([' ', '|']).to_owned();
        self.line(&line);
    }

    fn heading(&mut self) {
        let names: Vec<(Node, String)> =
            self.columns.iter().map(|node| (*node, format!("b{node}"))).collect();
        let cells: Vec<(Node, &str)> =
            names.iter().map(|(node, name)| (*node, name.as_str())).collect();
        self.row("time", "controller", &cells);
    }

    /// Tells what the brokers decided meanwhile, and how the replicas stand now.
    pub(crate) fn flush(&mut self) -> Result<()> {
        for event in self.stage.events() {
            let time = format!("{:.3}", event.at.as_secs_f64());
            if event.node == 0 {
                self.row(&time, &event.text, &[]);
            } else if self.columns.contains(&event.node) {
                self.row(&time, "", &[(event.node, &event.text)]);
            }
            self.events.push(event);
        }
        let mut states = Vec::new();
        for node in self.columns.clone() {
            let state = match self.stage.process(node) {
                Process::Runs => {
                    self.stage.replica(node, TOPIC).map_or("none".into(), |view| state_of(&view))
                }
                Process::IsFrozen => "frozen".into(),
                Process::IsDown => "down".into(),
            };
            states.push((node, state));
        }
        let cells: Vec<(Node, &str)> =
            states.iter().map(|(node, state)| (*node, state.as_str())).collect();
        let summary = format!("{cells:?}");
        if summary != self.last_states {
            self.last_states = summary;
            self.row("=", "", &cells);
        }
        Ok(())
    }

    /// Says what is done, after what came of the step before.
    pub fn say(&mut self, what: &str) -> Result<()> {
        self.flush()?;
        self.line(&format!("-- {what}"));
        Ok(())
    }

    /// Claims something; the story ends here when it is not so.
    ///
    /// # Errors
    /// When it is not so.
    pub fn claim(&mut self, what: &str, is_true: bool) -> Result<()> {
        self.flush()?;
        if is_true {
            self.line(&format!("   ok: {what}"));
            Ok(())
        } else {
            self.line(&format!("   NOT SO: {what}"));
            bail!("not so: {what}")
        }
    }

    /// Claims that two things are the same.
    ///
    /// # Errors
    /// When they are not.
    pub fn claim_same<T: PartialEq + std::fmt::Debug>(
        &mut self,
        what: &str,
        seen: &T,
        wanted: &T,
    ) -> Result<()> {
        if seen == wanted {
            self.claim(what, true)
        } else {
            self.claim(&format!("{what}: {seen:?}, must be {wanted:?}"), false)
        }
    }

    /// Whether the stage can do this, and the story may use it.
    pub fn can(&self, ability: Ability) -> bool {
        self.uses_abilities && self.stage.can(ability)
    }

    /// Writes one batch to the leader and gives the offset it was acknowledged at.
    ///
    /// # Errors
    /// When it is refused.
    pub fn produce(&mut self, acks: i16, values: &[&str]) -> Result<i64> {
        let leader = self.partition()?.leader;
        let written = self.produce_to(leader, acks, values, PATIENCE)?;
        ensure!(written.error_code == 0, "writing {values:?}: error {}", written.error_code);
        Ok(written.base_offset)
    }

    /// Writes one batch of `count` records to the leader, called `name` and a number.
    ///
    /// # Errors
    /// When it is refused.
    pub fn write(&mut self, acks: i16, name: &str, count: usize) -> Result<i64> {
        let values: Vec<String> = (0..count).map(|at| format!("{name}{at}")).collect();
        self.produce(acks, &values.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Writes one batch to a node and gives its answer.
    ///
    /// # Errors
    /// When there is none.
    pub fn produce_to(
        &mut self,
        node: Node,
        acks: i16,
        values: &[&str],
        timeout: Duration,
    ) -> Result<Written> {
        let acks_name = if acks == -1 { "all".into() } else { acks.to_string() };
        let shown = match values {
            [] => String::new(),
            [one] => (*one).to_owned(),
            [first, .., last] => format!("{first}..{last}"),
        };
        self.say(&format!("write {shown} to b{node} with acks={acks_name}"))?;
        let values: Vec<String> = values.iter().map(ToString::to_string).collect();
        let written = self.stage.produce_to(node, TOPIC, acks, &values, timeout)?;
        self.flush()?;
        let end = match written.error_code {
            0 => format!("acknowledged at {}", written.base_offset),
            code => format!("error {code}"),
        };
        self.line(&format!("   {end}"));
        Ok(written)
    }

    /// Kills a node.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kill(&mut self, node: Node) -> Result<()> {
        self.say(&format!("kill b{node}"))?;
        self.stage.kill(node)
    }

    /// Kills the leader, and starts another replica, which leads when nobody else can.
    ///
    /// # Errors
    /// When it comes otherwise.
    pub fn hand_over(&mut self, from: Node, to: Node) -> Result<()> {
        self.kill(from)?;
        self.until_leaderless()?;
        self.start(to)?;
        self.until_leader(to)
    }

    /// Stops a node cleanly, and waits for its end.
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self, node: Node) -> Result<()> {
        self.say(&format!("stop b{node}"))?;
        self.stage.stop(node)
    }

    /// Starts a node.
    ///
    /// # Errors
    /// When it runs, or does not start.
    pub fn start(&mut self, node: Node) -> Result<()> {
        self.say(&format!("start b{node}"))?;
        self.stage.start(node)
    }

    /// Freezes a node.
    ///
    /// # Errors
    /// When it does not run.
    pub fn freeze(&mut self, node: Node) -> Result<()> {
        self.say(&format!("freeze b{node}"))?;
        self.stage.freeze(node)
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// When it does not run.
    pub fn thaw(&mut self, node: Node) -> Result<()> {
        self.say(&format!("let b{node} go on"))?;
        self.stage.thaw(node)
    }

    /// Cuts a node off from all others.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn cut_off(&mut self, node: Node, between: Between) -> Result<()> {
        let others: Vec<Node> =
            self.stage.nodes().into_iter().filter(|other| *other != node).collect();
        let whom = match between {
            Between::Brokers => "the other brokers",
            Between::Controllers => "the controllers",
        };
        self.say(&format!("cut b{node} off from {whom}"))?;
        self.stage.cut(node, &others, between)
    }

    /// Ends all cuts.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn heal(&mut self) -> Result<()> {
        self.say("heal the network")?;
        self.stage.heal()
    }

    /// Holds messages back, from one node or all, to one node or all.
    ///
    /// # Errors
    /// When the stage cannot.
    pub fn hold(&mut self, what: Message, from: Option<Node>, to: Option<Node>) -> Result<Hold> {
        let of = from.map_or(String::new(), |node| format!(" of b{node}"));
        let towards = to.map_or(String::new(), |node| format!(" to b{node}"));
        self.say(&format!("hold back {what}{of}{towards}"))?;
        self.stage.hold(what, from, to)
    }

    /// Waits until something is held back.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_held(&mut self, hold: Hold) -> Result<()> {
        self.until("one is held back", |stage| stage.held(hold) > 0)
    }

    /// Lets what was held back go on.
    ///
    /// # Errors
    /// When nothing is held under this name.
    pub fn release(&mut self, hold: Hold) -> Result<()> {
        self.say("let what was held back go on")?;
        self.stage.release(hold, false)
    }

    /// Loses what was held back.
    ///
    /// # Errors
    /// When nothing is held under this name.
    pub fn lose(&mut self, hold: Hold) -> Result<()> {
        self.say("what was held back is lost")?;
        self.stage.release(hold, true)
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// When the cluster fails meanwhile.
    pub fn pass(&mut self, time: Duration) -> Result<()> {
        self.say(&format!("{time:?} pass"))?;
        self.stage.pass(time)
    }

    /// Lets every broker send its next heartbeat.
    ///
    /// # Errors
    /// When the cluster fails meanwhile.
    pub fn pass_heartbeats(&mut self) -> Result<()> {
        self.stage.pass_heartbeats()
    }

    /// The partition by metadata.
    ///
    /// # Errors
    /// When nobody answers.
    pub fn partition(&mut self) -> Result<PartitionView> {
        self.stage.partition(TOPIC)
    }

    /// A replica as it is.
    ///
    /// # Errors
    /// When its node does not answer.
    pub fn replica(&mut self, node: Node) -> Result<ReplicaView> {
        self.stage.replica(node, TOPIC).with_context(|| format!("b{node}"))
    }

    /// Waits until a node leads, and says so itself where that can be seen.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_leader(&mut self, node: Node) -> Result<()> {
        self.until(&format!("b{node} leads"), |stage| {
            stage.partition(TOPIC).is_ok_and(|view| view.leader == node)
                && stage.replica(node, TOPIC).is_ok_and(|view| view.leads)
        })
    }

    /// Waits until nobody leads.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_leaderless(&mut self) -> Result<()> {
        self.until("nobody leads", |stage| {
            stage.partition(TOPIC).is_ok_and(|view| view.leader == -1)
        })
    }

    /// Waits until the ISR is this, in any order.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_isr(&mut self, isr: &[Node]) -> Result<()> {
        let mut wanted = isr.to_vec();
        wanted.sort_unstable();
        self.until(&format!("the ISR is {wanted:?}"), move |stage| {
            stage.partition(TOPIC).is_ok_and(|view| view.isr == wanted)
        })
    }

    /// Waits until a replica's log ends here.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_log_end(&mut self, node: Node, offset: i64) -> Result<()> {
        self.until(&format!("b{node}'s log ends at {offset}"), move |stage| {
            stage.replica(node, TOPIC).is_ok_and(|view| view.log_end == offset)
        })
    }

    /// Waits until a replica's high watermark is here.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_high_watermark(&mut self, node: Node, offset: i64) -> Result<()> {
        self.until(&format!("b{node}'s high watermark is {offset}"), move |stage| {
            stage.replica(node, TOPIC).is_ok_and(|view| view.high_watermark == offset)
        })
    }

    /// Waits until a running node has the topic no more.
    ///
    /// # Errors
    /// When that does not come.
    pub fn until_gone(&mut self, node: Node) -> Result<()> {
        self.until(&format!("b{node} has no such replica"), move |stage| {
            stage.process(node) == Process::Runs && stage.replica(node, TOPIC).is_err()
        })
    }

    pub(crate) fn until(
        &mut self,
        what: &str,
        mut reached: impl FnMut(&mut dyn Stage) -> bool,
    ) -> Result<()> {
        self.stage.wait(what, &mut reached)?;
        self.flush()?;
        self.line(&format!("   now {what}"));
        Ok(())
    }

    /// What a consumer reads from the leader.
    ///
    /// # Errors
    /// When it gets no answer.
    pub fn read_all(&mut self) -> Result<Vec<(i64, String)>> {
        self.stage.read_all(TOPIC)
    }

    /// What a replica's log holds.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_replica(&mut self, node: Node) -> Result<Vec<(i64, String)>> {
        self.stage.read_replica(node, TOPIC)
    }

    /// This place in the story, for [`Story::since`].
    pub fn mark(&mut self) -> Result<usize> {
        self.flush()?;
        Ok(self.events.len())
    }

    /// What a broker (0 for the controller) decided of these kinds since then, where the stage tells it.
    pub fn since(&mut self, mark: usize, node: Node, kinds: &[&str]) -> Result<Vec<String>> {
        self.flush()?;
        let since = self.events.iter().skip(mark);
        let of_kind = since.filter(|event| event.node == node && kinds.contains(&event.kind));
        Ok(of_kind.map(|event| event.text.clone()).collect())
    }

    /// How many decisions of this kind a broker took, where the stage tells them.
    pub fn count(&mut self, node: Node, kind: &str) -> Result<usize> {
        self.flush()?;
        Ok(self.events.iter().filter(|event| event.node == node && event.kind == kind).count())
    }
}

fn state_of(view: &ReplicaView) -> String {
    let role = if view.leads { "leads" } else { "follows" };
    format!("{role} hw {} end {}", view.high_watermark, view.log_end)
}

/// An error and its causes in one line.
fn causes(error: &Error) -> String {
    let text: Vec<String> = error.chain().map(ToString::to_string).collect();
    text.join(": ")
}

/// The values of records.
pub fn values(records: &[(i64, String)]) -> Vec<&str> {
    records.iter().map(|(_, value)| value.as_str()).collect()
}

/// Records as offsets and values, to compare with.
pub fn records(values: &[&str]) -> Vec<(i64, String)> {
    (0..).zip(values).map(|(offset, value)| (offset, (*value).to_owned())).collect()
}
