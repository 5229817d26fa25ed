//! Tells the stories to one broker and notes what it answers.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use protocol::ApiKey;
use protocol::reflect::Value;
use serde_json::json;

use crate::connection::{Answer, Connection};
use crate::language::value::{Scope, World, number};
use crate::language::{Call, Chapter, Loop, Step, Story};
use crate::normal::Names;

/// How long `until` asks again, and how often.
const SETTLE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(30);

/// How the case of a story ends that could not go on.
pub const STOPPED: &str = " / stopped";

/// A request and its answer.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Story and label.
    pub case: String,
    pub request: Value,
    /// Without what may differ between two clusters.
    pub answer: Value,
}

/// One of the two brokers.
#[derive(Debug)]
pub struct Side {
    pub address: String,
    names: Names,
    topic_ids: BTreeMap<String, String>,
}

/// What one telling of a story holds.
struct Telling<'a> {
    side: &'a mut Side,
    scope: Scope,
    connections: BTreeMap<String, Connection>,
    story: String,
    last: Value,
    /// Requests whose answers are awaited, by connection.
    sent: BTreeMap<String, Value>,
    outcomes: Vec<Outcome>,
}

impl Side {
    /// A broker at `address` whose files are under `folder`.
    pub fn new(address: &str, folder: &str) -> Side {
        let mut names = Names::default();
        names.add(folder, "folder");
        Side { address: address.to_owned(), names, topic_ids: BTreeMap::new() }
    }

    /// Tells a story, as often as it says.
    pub fn tell(&mut self, chapter: &Chapter, story: &Story) -> Vec<Outcome> {
        let scope = Scope { lets: chapter.lets.iter().cloned().collect(), ..Scope::default() };
        let rounds = match &story.repeat {
            None => Ok(vec![(story.name.clone(), scope)]),
            Some(repeat) => self.rounds(&story.name, &scope, repeat),
        };
        let mut outcomes = Vec::new();
        match rounds {
            Ok(rounds) => {
                for (name, scope) in rounds {
                    outcomes.extend(self.tell_once(name, scope, &story.steps));
                }
            }
            Err(error) => outcomes.push(stopped(&story.name, &error)),
        }
        outcomes
    }

    fn rounds(&mut self, name: &str, scope: &Scope, repeat: &Loop) -> Result<Vec<(String, Scope)>> {
        let rounds = looped(scope, std::slice::from_ref(repeat), self)?;
        Ok(rounds.into_iter().map(|(suffix, scope)| (format!("{name}{suffix}"), scope)).collect())
    }

    fn tell_once(&mut self, story: String, scope: Scope, steps: &[Step]) -> Vec<Outcome> {
        let mut telling = Telling {
            side: self,
            scope,
            connections: BTreeMap::new(),
            story,
            last: Value::Null,
            sent: BTreeMap::new(),
            outcomes: Vec::new(),
        };
        for step in steps {
            if let Err(error) = telling.step(step) {
                telling.outcomes.push(stopped(&telling.story, &error));
                break;
            }
        }
        telling.outcomes
    }

    fn ask(&mut self, api_key: ApiKey, version: i16, body: &Value) -> Result<Value> {
        let mut connection = Connection::open(&self.address)?;
        connection.send(api_key, version, body, None)?;
        match connection.receive() {
            Answer::Body(body) => Ok(body),
            other => bail!("{api_key:?}: {other:?}"),
        }
    }
}

fn stopped(story: &str, error: &anyhow::Error) -> Outcome {
    let answer = json!(format!("the story stopped: {error:#}"));
    let case = format!("{story}{STOPPED}");
    Outcome { case, request: Value::Null, answer }
}

impl World for Side {
    fn topic_id(&mut self, topic: &str) -> Result<String> {
        if let Some(id) = self.topic_ids.get(topic) {
            return Ok(id.clone());
        }
        let body = json!({"topics": [{"name": topic}], "allowAutoTopicCreation": false});
        let answer = self.ask(ApiKey::Metadata, 12, &body)?;
        let id = answer["topics"][0]["topicId"].as_str().context("no id")?.to_owned();
        self.names.add(&id, &format!("id of {topic}"));
        self.topic_ids.insert(topic.to_owned(), id.clone());
        Ok(id)
    }

    fn cluster_id(&mut self) -> Result<String> {
        let answer = self.ask(ApiKey::Metadata, 12, &json!({"topics": []}))?;
        let id = answer["clusterId"].as_str().context("no cluster id")?.to_owned();
        self.names.add(&id, "cluster");
        Ok(id)
    }
}

/// Every combination of the loops' values: what it adds to a label, and its scope.
fn looped(scope: &Scope, loops: &[Loop], side: &mut Side) -> Result<Vec<(String, Scope)>> {
    let Some((first, rest)) = loops.split_first() else {
        return Ok(vec![(String::new(), scope.clone())]);
    };
    let list = scope.value(&first.list, side)?;
    let mut rounds = Vec::new();
    for value in list.as_array().context("a loop goes over a list")? {
        let mut scope = scope.clone();
        scope.values.insert(first.name.clone(), value.clone());
        let shown = side.names.hide(value, &[]);
        let shown = shown.as_str().map_or(shown.to_string(), str::to_owned);
        let shown: String = shown.chars().filter(|c| *c != '"').take(60).collect();
        for (suffix, scope) in looped(&scope, rest, side)? {
            rounds.push((format!(" {shown}{suffix}"), scope));
        }
    }
    Ok(rounds)
}

impl Telling<'_> {
    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Let(name, expression) => {
                self.scope.lets.insert(name.clone(), expression.clone());
            }
            Step::Keep(name, path) => {
                let found = path.find(&self.last);
                let found = found.with_context(|| format!("{path:?} in {}", self.last))?.clone();
                if let Some(text) = found.as_str().filter(|text| text.len() > 5) {
                    self.side.names.add(text, name);
                }
                self.scope.values.insert(name.clone(), found);
            }
            Step::Pause(milliseconds) => thread::sleep(Duration::from_millis(*milliseconds)),
            Step::Call(call) => self.calls(call)?,
            Step::Send(call) => {
                let version = self.versions(call, &self.scope.clone())?[0];
                let body = self.scope.value(&call.body, self.side)?;
                self.connection(&call.connection)?.send(call.api_key, version, &body, None)?;
                self.sent.insert(call.connection.clone(), body);
            }
            Step::Receive { label, connection } => {
                let request = self.sent.remove(connection).context("nothing was sent")?;
                let answer = self.connection(connection)?.receive();
                self.note(label.clone(), request, answer.into_value(), &[]);
            }
        }
        Ok(())
    }

    fn connection(&mut self, name: &str) -> Result<&mut Connection> {
        if !self.connections.contains_key(name) {
            self.connections.insert(name.to_owned(), Connection::open(&self.side.address)?);
        }
        self.connections.get_mut(name).context("just opened")
    }

    fn versions(&mut self, call: &Call, scope: &Scope) -> Result<Vec<i16>> {
        let versions = scope.value(&call.versions, self.side)?;
        let versions = versions.as_array().context("versions are a list")?;
        versions.iter().map(|version| Ok(number(version)?.try_into()?)).collect()
    }

    fn calls(&mut self, call: &Call) -> Result<()> {
        let outer = self.scope.clone();
        for (suffix, mut scope) in looped(&outer, &call.options.loops, self.side)? {
            let versions = self.versions(call, &scope)?;
            for version in &versions {
                let mut label = format!("{} {:?}", call.label, call.api_key);
                label.push_str(&format!(" v{version}{suffix}"));
                if versions.len() > 1 {
                    scope.values.insert("v".into(), json!(version));
                }
                self.call(call, *version, &scope, label)?;
            }
        }
        Ok(())
    }

    fn call(&mut self, call: &Call, version: i16, scope: &Scope, label: String) -> Result<()> {
        let deadline = Instant::now() + SETTLE;
        let body = scope.value(&call.body, self.side).with_context(|| label.clone())?;
        let answer = loop {
            let answer = self.once(call, version, &body).with_context(|| label.clone())?;
            let Some((path, wanted)) = &call.options.until else { break answer };
            let wanted = scope.value(wanted, self.side)?;
            if path.find(&answer) == Some(&wanted) || Instant::now() > deadline {
                break answer;
            }
            thread::sleep(AGAIN);
        };
        if call.options.hidden {
            self.last = answer;
        } else {
            self.note(label, body, answer, &call.options.except);
        }
        Ok(())
    }

    fn once(&mut self, call: &Call, version: i16, body: &Value) -> Result<Value> {
        let connection = self.connection(&call.connection)?;
        connection.send(call.api_key, version, body, call.options.written_as)?;
        let answer = match call.options.silent {
            true => connection.receive_nothing()?,
            false => connection.receive(),
        };
        if !matches!(answer, Answer::Body(_) | Answer::Silence) {
            self.connections.remove(&call.connection);
        }
        Ok(answer.into_value())
    }

    fn note(&mut self, label: String, request: Value, answer: Value, except: &[String]) {
        self.outcomes.push(Outcome {
            case: format!("{} / {label}", self.story),
            request: self.side.names.hide(&request, &[]),
            answer: self.side.names.hide(&answer, except),
        });
        self.last = answer;
    }
}
