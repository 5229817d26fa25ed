//! The same requests to Apache Kafka and to Highwater, one broker each, and equal answers: every story in `cases/`
//! is told to both and compared answer by answer. What differs on purpose stands in `known.txt`.
//!
//! `COMPARE=words` tells only the stories whose name contains these words (and the preparation); the table of
//! known differences is then not checked for entries out of use.

mod batch;
mod connection;
mod differ;
mod kafka;
mod known;
mod language;
mod normal;
mod side;
mod versions;

use std::time::Instant;

use anyhow::{Context, Result};
use differ::{Difference, differences};
use kafka::Kafka;
use known::Known;
use language::{Chapter, Story, parse};
use side::{Outcome, STOPPED, Side};
use testkit::online::Watcher;
use testkit::real::Cluster;

/// Set on both, where their defaults or their scripts would make them differ, or to save time.
const SETTINGS: [(&str, &str); 12] = [
    ("num.partitions", "3"),
    ("offsets.topic.num.partitions", "4"),
    ("transaction.state.log.num.partitions", "4"),
    ("offsets.topic.replication.factor", "1"),
    ("default.replication.factor", "1"),
    ("transaction.state.log.replication.factor", "1"),
    ("transaction.state.log.min.isr", "1"),
    ("share.coordinator.state.topic.replication.factor", "1"),
    ("share.coordinator.state.topic.min.isr", "1"),
    ("group.initial.rebalance.delay.ms", "0"),
    // Records of the cases are years old.
    ("log.retention.ms", "-1"),
    ("group.coordinator.append.linger.ms", "0"),
];

/// The story in which both are made ready; always told, and first.
const PREPARATION: &str = "preparation";

/// A case whose answers differ.
struct Differing {
    ours: Outcome,
    differences: Vec<Difference>,
}

#[test]
fn apache_kafka_and_highwater_give_equal_answers() {
    let Some(script) = Kafka::script() else { return };
    compare(script).expect("both could be asked");
}

#[test]
fn cases_and_table_can_be_read_without_a_kafka() {
    let chapters = chapters().expect("cases");
    let stories: Vec<&Story> = chapters.iter().flat_map(|chapter| &chapter.stories).collect();
    assert_eq!(stories.first().map(|story| story.name.as_str()), Some(PREPARATION));
    assert!(stories.iter().all(|story| !story.steps.is_empty()));
    assert!(!known::table(include_str!("known.txt")).expect("a table").is_empty());
}

fn compare(script: std::path::PathBuf) -> Result<()> {
    let start = Instant::now();
    let mut chapters = chapters()?;
    chapters.push(Chapter { lets: Vec::new(), stories: versions::stories() });
    let mut known = known::table(include_str!("known.txt"))?;
    let only = std::env::var("COMPARE").unwrap_or_default();
    let told: Vec<(&Chapter, &Story)> = chapters
        .iter()
        .flat_map(|chapter| chapter.stories.iter().map(move |story| (chapter, story)))
        .filter(|(_, story)| story.name.contains(&only) || story.name == PREPARATION)
        .collect();

    let mut builder = Cluster::builder().binary(env!("CARGO_BIN_EXE_highwater")).brokers(1);
    for (key, value) in SETTINGS {
        builder = builder.set(key, value);
    }
    let (kafka, highwater) = std::thread::scope(|scope| {
        let kafka = scope.spawn(|| Kafka::start(&script, &SETTINGS));
        let highwater = builder.start();
        (kafka.join(), highwater)
    });
    let (kafka, highwater) = (kafka.map_err(|_| anyhow::anyhow!("a panic"))??, highwater?);
    let folder = kafka.folder.path().join("node1/data");
    let mut theirs = Side::new(&kafka.address, &folder.to_string_lossy());
    let folder = highwater.data_folder(1);
    let mut ours = Side::new(&highwater.bootstrap(), &folder.to_string_lossy());

    println!("both are ready after {:.1} s", start.elapsed().as_secs_f32());
    let mut cases = 0;
    let mut differing = Vec::new();
    let mut accepted = 0;
    for (chapter, story) in told {
        let before = Instant::now();
        let (mine, kafkas) = std::thread::scope(|scope| {
            let kafkas = scope.spawn(|| theirs.tell(chapter, story));
            (ours.tell(chapter, story), kafkas.join())
        });
        let kafkas = kafkas.map_err(|_| anyhow::anyhow!("a panic"))?;
        cases += mine.len();
        let (new, old) = sort_out(mine, kafkas, &mut known);
        println!(
            "{:6.2} s  {}: {} differ, {old} of them as known",
            before.elapsed().as_secs_f32(),
            story.name,
            new.len() + old
        );
        differing.extend(new);
        accepted += old;
    }
    report(cases, accepted, &differing, start);
    for side in [&theirs, &ours] {
        watch(&side.address)?;
    }
    let idle: Vec<String> = known.iter().filter(|entry| entry.used == 0).map(Known::line).collect();
    assert!(differing.is_empty(), "{} of {cases} answers differ, see above", differing.len());
    assert!(
        !only.is_empty() || idle.is_empty(),
        "nothing differs any more by these lines of known.txt:\n{}",
        idle.join("\n")
    );
    Ok(())
}

/// The watch over running clusters sees everything of both, and nothing broken.
fn watch(bootstrap: &str) -> Result<()> {
    let mut watcher = Watcher::new(bootstrap, []);
    watcher.look()?;
    // From the begin again: every batch is compared with what was there a moment ago.
    watcher.forget_places();
    let report = watcher.look()?;
    println!("{bootstrap}: {} partitions, {} batches", report.partitions, report.batches_compared);
    assert!(report.violations.is_empty(), "{bootstrap}: {:?}", report.violations);
    assert!(report.batches_compared > 0, "{bootstrap}: nothing was compared");
    Ok(())
}

/// The files of cases, in the order of their names.
fn chapters() -> Result<Vec<Chapter>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compare/cases");
    let mut paths: Vec<_> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    paths.sort();
    let read = |path: std::path::PathBuf| {
        let text = std::fs::read_to_string(&path)?;
        parse::chapter(&text).with_context(|| path.display().to_string())
    };
    paths.into_iter().map(read).collect()
}

/// The cases that differ by more than the table knows, and how many differ as it knows.
fn sort_out(
    ours: Vec<Outcome>,
    kafkas: Vec<Outcome>,
    known: &mut [Known],
) -> (Vec<Differing>, usize) {
    let mut differing = Vec::new();
    let mut accepted = 0;
    for (place, ours) in ours.into_iter().enumerate() {
        let kafkas = kafkas.get(place);
        let mut found = match kafkas.filter(|kafkas| kafkas.case == ours.case) {
            // A story that goes wrong on both sides has shown nothing.
            Some(_) if ours.case.ends_with(STOPPED) => vec![Difference {
                path: "(the story itself)".into(),
                ours: ours.answer.clone(),
                kafkas: "also stopped".into(),
            }],
            Some(kafkas) => differences(&ours.answer, &kafkas.answer),
            None => vec![Difference {
                path: "(the story itself)".into(),
                ours: ours.answer.clone(),
                kafkas: kafkas.map_or("(ended)".into(), |kafkas| {
                    format!("{}: {}", kafkas.case, kafkas.answer).into()
                }),
            }],
        };
        if found.is_empty() {
            continue;
        }
        found.retain(|difference| {
            let entry = known.iter_mut().find(|entry| entry.covers(&ours.case, difference));
            let is_new = entry.is_none();
            if let Some(entry) = entry {
                entry.used += 1;
            }
            is_new
        });
        if found.is_empty() {
            accepted += 1;
        } else {
            differing.push(Differing { ours, differences: found });
        }
    }
    (differing, accepted)
}

fn report(cases: usize, accepted: usize, differing: &[Differing], start: Instant) {
    println!(
        "{cases} cases: {} equal, {accepted} differ as known.txt says, {} differ; {:.0} s",
        cases - accepted - differing.len(),
        differing.len(),
        start.elapsed().as_secs_f32()
    );
    if let Some(first) = differing.first() {
        let request = serde_json::to_string_pretty(&first.ours.request).unwrap_or_default();
        println!("\nthe first that differs: {}\n  request {request}", first.ours.case);
        println!("  our answer {}", first.ours.answer);
    }
    for case in differing {
        println!("\n{}", case.ours.case);
        println!("    request {}", differ::shown(&case.ours.request, false));
        for difference in &case.differences {
            println!("{difference}");
        }
    }
}
