//! What must be true of every history, without a look into any broker. The rules are those of a log: what is
//! acknowledged to acks=-1 stays (H01 as clients see it), a place has one record, a record has one place, and who reads
//! gets everything in its order (I15).
//!
//! A send that failed, that nobody knows the end of, or that asked for less than acks=-1 may be read or not.
//! A partition whose records are deleted, cleaned, or begun anew under the same name breaks these rules by
//! right.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Act, Operation, Phase, RecordName};

/// What can be broken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rule {
    /// A record that was acknowledged with acks=-1 is there at the end, and for who reads past it.
    Lost,
    /// An offset has one record.
    OneRecordPerOffset,
    /// A record has one offset.
    OneOffsetPerRecord,
    /// A consumer reads in the order of offsets.
    Order,
    /// A consumer passes over nothing.
    Gap,
    /// What is read was sent before.
    Unsent,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Rule::Lost => "lost",
            Rule::OneRecordPerOffset => "two records at one offset",
            Rule::OneOffsetPerRecord => "one record at two offsets",
            Rule::Order => "out of order",
            Rule::Gap => "gap",
            Rule::Unsent => "not sent",
        })
    }
}

/// Something that is broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Broken {
    /// The rule.
    pub rule: Rule,
    /// What is wrong.
    pub what: String,
    /// The lines that show it, by their indexes.
    pub lines: Vec<u64>,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.what)
    }
}

/// What a history comes to.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is broken.
    pub broken: Vec<Broken>,
    /// Records that were sent.
    pub sent: usize,
    /// Those of them that were acknowledged with acks=-1.
    pub acknowledged: usize,
    /// Those of them that no poll shows. They need not be lost: perhaps nobody read so far.
    pub unseen: usize,
    /// Polls that were answered.
    pub polls: usize,
    /// Records in them.
    pub read: usize,
}

/// A record at its place, and the line that says so.
#[derive(Clone, Copy)]
struct Told<'a> {
    name: &'a RecordName,
    line: u64,
}

/// A record of a send.
struct SentRecord<'a> {
    name: &'a RecordName,
    begun: u64,
    may_repeat: bool,
}

/// A record that was promised to stay.
struct Promise<'a> {
    name: &'a RecordName,
    offset: Option<i64>,
    line: u64,
}

/// An answered poll.
struct Poll<'a> {
    begun: u64,
    line: u64,
    /// Nothing that is there from here up to its last record may be missing in it.
    covers_from: i64,
    /// What its process had read before, since it was assigned.
    after: Option<(i64, u64)>,
    records: &'a [(i64, RecordName)],
}

/// The last reading of a process.
#[derive(Default)]
struct Last<'a> {
    begun: u64,
    from: i64,
    line: u64,
    records: BTreeMap<i64, &'a RecordName>,
    has_failed: bool,
}

/// A partition as its clients saw it.
#[derive(Default)]
struct Partition<'a> {
    sent: Vec<SentRecord<'a>>,
    promises: Vec<Promise<'a>>,
    polls: Vec<Poll<'a>>,
    lasts: BTreeMap<u64, Last<'a>>,
}

/// Where a process reads.
#[derive(Clone, Copy)]
struct Position {
    next: i64,
    last: Option<(i64, u64)>,
}

/// Judges a history.
pub fn check(operations: &[Operation]) -> Report {
    let partitions = gather(operations);
    let mut report = Report::default();
    for (name, partition) in &partitions {
        partition.check(name, &mut report);
    }
    report
}

fn gather(operations: &[Operation]) -> BTreeMap<&str, Partition<'_>> {
    let mut partitions: BTreeMap<&str, Partition<'_>> = BTreeMap::new();
    let mut open: BTreeMap<u64, &Operation> = BTreeMap::new();
    let mut positions: BTreeMap<(u64, &str), Position> = BTreeMap::new();
    // Whether a write may be there twice is known at its end only.
    let repeats: BTreeSet<u64> = repeating(operations);
    for operation in operations {
        let partition = partitions.entry(operation.partition.as_str()).or_default();
        let process = operation.process;
        let place = (process, operation.partition.as_str());
        if operation.phase == Phase::Invoke {
            open.insert(process, operation);
            if let Act::Send { records, .. } = &operation.act {
                let (begun, may_repeat) = (operation.index, repeats.contains(&operation.index));
                let sent = records.iter().map(|(_, name)| SentRecord { name, begun, may_repeat });
                partition.sent.extend(sent);
            }
            continue;
        }
        let begun = open.remove(&process).map_or(operation.index, |begun| begun.index);
        match (&operation.act, operation.phase) {
            (Act::Send { acks: -1, records, .. }, Phase::Ok) => {
                let line = operation.index;
                let kept =
                    records.iter().map(|(offset, name)| Promise { name, offset: *offset, line });
                partition.promises.extend(kept);
            }
            (Act::Assign { from }, Phase::Ok) => {
                positions.insert(place, Position { next: *from, last: None });
            }
            (Act::Poll { from, records, is_final }, phase) => {
                if *is_final {
                    partition.on_final(operation, begun, *from, records, phase == Phase::Ok);
                }
                if phase == Phase::Ok {
                    let first = Position { next: *from, last: None };
                    let position = positions.entry(place).or_insert(first);
                    partition.polls.push(Poll {
                        begun,
                        line: operation.index,
                        covers_from: position.next,
                        after: position.last,
                        records,
                    });
                    if let Some((offset, _)) = records.last() {
                        let last = Some((*offset, operation.index));
                        *position = Position { next: offset + 1, last };
                    }
                }
            }
            _ => {}
        }
    }
    partitions
}

/// The beginnings of the sends that may be there twice.
fn repeating(operations: &[Operation]) -> BTreeSet<u64> {
    let mut open: BTreeMap<u64, u64> = BTreeMap::new();
    let mut repeats = BTreeSet::new();
    for operation in operations {
        if operation.phase == Phase::Invoke {
            open.insert(operation.process, operation.index);
        }
        if let Act::Send { may_repeat: true, .. } = operation.act {
            repeats.extend(open.get(&operation.process));
        }
    }
    repeats
}

impl<'a> Partition<'a> {
    fn on_final(
        &mut self,
        operation: &Operation,
        begun: u64,
        from: i64,
        records: &'a [(i64, RecordName)],
        is_ok: bool,
    ) {
        let first = Last { begun, from, ..Last::default() };
        let last = self.lasts.entry(operation.process).or_insert(first);
        last.line = operation.index;
        last.has_failed |= !is_ok;
        last.records.extend(records.iter().map(|(offset, name)| (*offset, name)));
    }

    fn check(&self, name: &str, report: &mut Report) {
        let mut found = Vec::new();
        let read = self.read();
        let known = self.known();
        for (offset, told) in &known {
            one_record(*offset, told, &mut found);
        }
        self.check_places(&known, &mut found);
        self.check_sent(&mut found);
        let mut lost = BTreeSet::new();
        self.check_ends(&mut lost, &mut found);
        for poll in &self.polls {
            poll.check_order(&mut found);
            self.check_gaps(poll, &known, &read, &mut lost, &mut found);
        }
        let is_seen = |promise: &&Promise<'_>| match promise.offset {
            Some(offset) => read.contains(&(offset, promise.name)),
            None => read.iter().any(|(_, name)| *name == promise.name),
        };
        report.sent += self.sent.len();
        report.acknowledged += self.promises.len();
        report.unseen += self.promises.len() - self.promises.iter().filter(is_seen).count();
        report.polls += self.polls.len();
        report.read += self.polls.iter().map(|poll| poll.records.len()).sum::<usize>();
        found.sort_by_key(|broken| broken.rule);
        report.broken.extend(
            found
                .into_iter()
                .map(|broken| Broken { what: format!("{name}: {}", broken.what), ..broken }),
        );
    }

    /// What was read by anybody.
    fn read(&self) -> BTreeSet<(i64, &'a RecordName)> {
        let records = self.polls.iter().flat_map(|poll| poll.records);
        records.map(|(offset, name)| (*offset, name)).collect()
    }

    /// Every offset with the different records that clients were told are there.
    fn known(&self) -> BTreeMap<i64, Vec<Told<'a>>> {
        let mut known: BTreeMap<i64, Vec<Told<'a>>> = BTreeMap::new();
        let promised = self.promises.iter().filter_map(|promise| {
            Some((promise.offset?, Told { name: promise.name, line: promise.line }))
        });
        let read = self.polls.iter().flat_map(|poll| {
            let line = poll.line;
            poll.records.iter().map(move |(offset, name)| (*offset, Told { name, line }))
        });
        for (offset, told) in promised.chain(read) {
            let there = known.entry(offset).or_default();
            if there.iter().all(|other| other.name != told.name) {
                there.push(told);
            }
        }
        known
    }

    fn check_places(&self, known: &BTreeMap<i64, Vec<Told<'a>>>, found: &mut Vec<Broken>) {
        let mut places: BTreeMap<&RecordName, Vec<(i64, u64)>> = BTreeMap::new();
        for (offset, told) in known {
            for told in told.iter().filter(|told| told.name.is_some()) {
                places.entry(told.name).or_default().push((*offset, told.line));
            }
        }
        let mut sent: BTreeMap<&RecordName, (usize, bool)> = BTreeMap::new();
        for record in &self.sent {
            let times = sent.entry(record.name).or_default();
            *times = (times.0 + 1, times.1 || record.may_repeat);
        }
        for (name, places) in places {
            let (times, may_repeat) = sent.get(name).copied().unwrap_or_default();
            if places.len() > times.max(1) && !may_repeat {
                let offsets: Vec<i64> = places.iter().map(|(offset, _)| *offset).collect();
                found.push(Broken {
                    rule: Rule::OneOffsetPerRecord,
                    what: format!("{} is at {offsets:?}, and was sent {times} times", shown(name)),
                    lines: sorted(places.iter().map(|(_, line)| *line)),
                });
            }
        }
    }

    fn check_sent(&self, found: &mut Vec<Broken>) {
        let mut first: BTreeMap<&RecordName, u64> = BTreeMap::new();
        for record in &self.sent {
            first.entry(record.name).or_insert(record.begun);
        }
        let mut told = BTreeSet::new();
        for poll in &self.polls {
            for (offset, name) in poll.records.iter().filter(|(_, name)| name.is_some()) {
                let begun = first.get(name);
                if begun.is_some_and(|begun| *begun < poll.line) || !told.insert(name) {
                    continue;
                }
                let when =
                    if begun.is_some() { "before it was sent" } else { "and was never sent" };
                found.push(Broken {
                    rule: Rule::Unsent,
                    what: format!("{} was read at {offset}, {when}", shown(name)),
                    lines: sorted(begun.copied().into_iter().chain([poll.line])),
                });
            }
        }
    }

    /// What was acknowledged before the last reading began is in it.
    fn check_ends(&self, lost: &mut BTreeSet<(i64, &'a RecordName)>, found: &mut Vec<Broken>) {
        for last in self.lasts.values().filter(|last| !last.has_failed) {
            for promise in self.promises.iter().filter(|promise| promise.line < last.begun) {
                let (is_there, place) = match promise.offset {
                    Some(offset) if offset < last.from => continue,
                    Some(offset) => (last.records.get(&offset) == Some(&promise.name), offset),
                    None => (last.records.values().any(|name| *name == promise.name), -1),
                };
                if is_there || !lost.insert((place, promise.name)) {
                    continue;
                }
                let at = promise.offset.map_or(String::new(), |offset| format!(" at {offset}"));
                let there = last.records.get(&place);
                let there = there.map_or("nothing".to_owned(), |name| shown(name));
                found.push(Broken {
                    rule: Rule::Lost,
                    what: format!(
                        "{} was acknowledged{at}, and the last reading has {there} there",
                        shown(promise.name)
                    ),
                    lines: sorted([promise.line, last.line]),
                });
            }
        }
    }

    /// What is known to be there and was passed over: lost, if nobody ever read it.
    fn check_gaps(
        &self,
        poll: &Poll<'a>,
        known: &BTreeMap<i64, Vec<Told<'a>>>,
        read: &BTreeSet<(i64, &'a RecordName)>,
        lost: &mut BTreeSet<(i64, &'a RecordName)>,
        found: &mut Vec<Broken>,
    ) {
        let Some((end, _)) = poll.records.last().filter(|(end, _)| *end >= poll.covers_from) else {
            return;
        };
        let got: BTreeSet<i64> = poll.records.iter().map(|(offset, _)| *offset).collect();
        let missing = known.range(poll.covers_from..*end);
        for (offset, told) in missing.filter(|(offset, _)| !got.contains(offset)) {
            let Some(told) = told.first() else { continue };
            let was_read = read.contains(&(*offset, told.name));
            if !was_read && !lost.insert((*offset, told.name)) {
                continue;
            }
            let (rule, there) = if was_read {
                (Rule::Gap, "others read it")
            } else {
                (Rule::Lost, "it was acknowledged, and nobody ever read it")
            };
            let name = shown(told.name);
            found.push(Broken {
                rule,
                what: format!("a reader went on to {end} without {name} at {offset}; {there}"),
                lines: sorted(
                    poll.after.map(|(_, line)| line).into_iter().chain([told.line, poll.line]),
                ),
            });
        }
    }
}

impl Poll<'_> {
    fn check_order(&self, found: &mut Vec<Broken>) {
        let mut before = self.after;
        for (offset, _) in self.records {
            if let Some((last, line)) = before
                && last >= *offset
            {
                found.push(Broken {
                    rule: Rule::Order,
                    what: format!("a reader got {offset} after {last}"),
                    lines: sorted([line, self.begun, self.line]),
                });
            }
            before = Some((*offset, self.line));
        }
    }
}

fn one_record(offset: i64, told: &[Told<'_>], found: &mut Vec<Broken>) {
    if told.len() > 1 {
        let names: Vec<String> = told.iter().map(|told| shown(told.name)).collect();
        found.push(Broken {
            rule: Rule::OneRecordPerOffset,
            what: format!("at {offset} there is {}", names.join(", and ")),
            lines: sorted(told.iter().map(|told| told.line)),
        });
    }
}

fn shown(name: &RecordName) -> String {
    name.as_deref().map_or("a tombstone".into(), |name| format!("{name:?}"))
}

fn sorted(lines: impl IntoIterator<Item = u64>) -> Vec<u64> {
    let lines: BTreeSet<u64> = lines.into_iter().collect();
    lines.into_iter().collect()
}
