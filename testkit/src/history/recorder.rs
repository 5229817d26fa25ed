//! Writes down what clients begin and how it ends. Clones write into the same history; one client does one
//! thing at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{Act, Operation, Phase};

/// A history that is being written.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun: Instant,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    operations: Vec<Operation>,
    clients: BTreeMap<String, Process>,
    next_process: u64,
}

#[derive(Debug, Clone)]
struct Process {
    number: u64,
    /// What it does just now.
    open: Option<(String, Act)>,
    /// An operation of it ended nobody knows how: what the client does next, another process does.
    is_over: bool,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { begun: Instant::now(), inner: Arc::default() }
    }
}

impl Recorder {
    /// An empty history.
    pub fn new() -> Self {
        Self::default()
    }

    /// The real time since it was made.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Whether this client did anything so far.
    pub fn knows(&self, client: &str) -> bool {
        self.inner.lock().clients.contains_key(client)
    }

    /// What this client does just now.
    pub fn open(&self, client: &str) -> Option<Act> {
        let inner = self.inner.lock();
        let open = inner.clients.get(client).and_then(|process| process.open.as_ref());
        open.map(|(_, act)| act.clone())
    }

    /// Something begins. What the client did until then, and did not end, stays open for ever.
    pub fn begin(&self, at: Duration, client: &str, partition: &str, act: Act) {
        let mut inner = self.inner.lock();
        let known =
            inner.clients.get(client).filter(|known| !known.is_over && known.open.is_none());
        let number = match known {
            Some(known) => known.number,
            None => {
                inner.next_process += 1;
                inner.next_process - 1
            }
        };
        let open = Some((partition.to_owned(), act.clone()));
        inner.clients.insert(client.to_owned(), Process { number, open, is_over: false });
        inner.write(at, client, number, Phase::Invoke, (partition.to_owned(), act), None);
    }

    /// It ends in this way: `done` is what was begun, with what came of it. Nothing is written when nothing was
    /// begun.
    pub fn end(&self, at: Duration, client: &str, phase: Phase, done: Act, error: Option<String>) {
        let mut inner = self.inner.lock();
        let Some(process) = inner.clients.get_mut(client) else {
            return;
        };
        let Some((partition, _)) = process.open.take() else {
            return;
        };
        process.is_over = phase == Phase::Info;
        let number = process.number;
        inner.write(at, client, number, phase, (partition, done), error);
    }

    /// It ends without anything that came of it.
    pub fn end_without(&self, at: Duration, client: &str, phase: Phase, error: impl ToString) {
        if let Some(act) = self.open(client) {
            self.end(at, client, phase, act, Some(error.to_string()));
        }
    }

    /// The client reads on from this offset.
    pub fn assign(&self, at: Duration, client: &str, partition: &str, from: i64) {
        let act = Act::Assign { from };
        self.begin(at, client, partition, act.clone());
        self.end(at, client, Phase::Ok, act, None);
    }

    /// All lines so far.
    pub fn operations(&self) -> Vec<Operation> {
        self.inner.lock().operations.clone()
    }
}

impl Inner {
    fn write(
        &mut self,
        at: Duration,
        client: &str,
        process: u64,
        phase: Phase,
        (partition, act): (String, Act),
        error: Option<String>,
    ) {
        self.operations.push(Operation {
            index: self.operations.len() as u64,
            time: u64::try_from(at.as_nanos()).unwrap_or(u64::MAX),
            process,
            client: client.to_owned(),
            phase,
            partition,
            act,
            error,
        });
    }
}
