//! The same stories by processes of ours and by Apache Kafka, and both tell the same: every step, claim, error
//! and offset, and at the end leader, epoch, ISR and records. What differs on purpose stands with its reason in
//! `stories_on_kafka.txt`.
//!
//! Compared are the lines that do not depend on time, so not the replicas' states between two steps. Both
//! sides do what Kafka's processes allow: no link is cut, no message held back. Kafka tells all of its stories on
//! one cluster of five nodes, since its start takes longer than most stories. `KAFKA_STORIES=all` tells more of
//! them, `KAFKA_STORIES=H01,T05` these alone.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use scenarios::{Broken, Scenario, find, tell_plainly};
use testkit::real::KafkaCluster;
use testkit::stage::{ClusterNeeds, KafkaStage, RealStage, Stage};

/// What is told to both each time.
const TOLD: &[&str] = &[
    "H01", "I02", "X01", "S01", "C07", "F07", "E04", "C03", "C04", "F04", "S04", "I01", "X05",
    "T05",
];
/// What is told besides with `KAFKA_STORIES=all`: these take longer by what they wait for and restart. The rest needs
/// hands in the network or a disk that fails, or differs by eligible leader replicas (KIP-966: C03-alone and C05
/// name the ISR of a partition without a leader).
const MORE: &[&str] = &[
    "H04",
    "H06",
    "H07",
    "E01",
    "E03",
    "T02",
    "T04",
    "T11",
    "C01",
    "C02-again",
    "I02-failover",
    "cut",
];
/// Five nodes that elect as the topic's own config says.
const KAFKA: ClusterNeeds =
    ClusterNeeds { settings: &[("auto.create.topics.enable", "false")], ..ClusterNeeds::nodes(5) };

/// A line of the table.
struct Known {
    story: String,
    ours: String,
    kafkas: String,
    used: bool,
}

fn table() -> Result<Vec<Known>> {
    let text = include_str!("stories_on_kafka.txt");
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [story, ours, kafkas, reason] = parts[..] else {
                anyhow::bail!("four parts with | between them: {line}");
            };
            ensure!(!reason.is_empty(), "a reason: {line}");
            let (ours, kafkas) = (ours.to_owned(), kafkas.to_owned());
            Ok(Known { story: story.to_owned(), ours, kafkas, used: false })
        })
        .collect()
}

/// What was told, without what depends on time, and how the partition stands at the end.
fn told(scenario: &Scenario, stage: &mut dyn Stage) -> Result<Vec<String>> {
    let text = match tell_plainly(scenario, stage, &mut |_| {}) {
        Ok(transcript) => transcript.text,
        Err(error) => match error.downcast_ref::<Broken>() {
            Some(broken) => broken.text.clone(),
            None => return Err(error),
        },
    };
    let lines = text.lines().skip(1).filter(|line| !line.contains(" | ") && !line.ends_with('='));
    let mut lines: Vec<String> = lines.map(str::to_owned).collect();
    lines.push(match stage.partition("t") {
        Ok(seen) => format!("{seen:?}"),
        Err(error) => format!("no partition: {error:#}"),
    });
    lines.push(match stage.read_all("t") {
        Ok(records) => format!("{records:?}"),
        Err(error) => format!("not read: {error:#}"),
    });
    Ok(lines)
}

/// The first line by which two tellings part. A story ends at the first claim that is not so, so what follows a
/// difference says nothing more.
fn parting(ours: &[String], kafkas: &[String]) -> Option<(String, String)> {
    let ended = "(ended)".to_owned();
    let length = ours.len().max(kafkas.len());
    let pairs = (0..length)
        .map(|at| (ours.get(at).unwrap_or(&ended).trim(), kafkas.get(at).unwrap_or(&ended).trim()));
    let mut differing = pairs.filter(|(one, other)| one != other);
    differing.next().map(|(one, other)| (one.to_owned(), other.to_owned()))
}

#[test]
fn kafka_and_highwater_tell_the_same_stories() {
    let _alone = super::alone();
    if let Err(missing) = KafkaCluster::script() {
        println!("SKIPPED: {missing:#}");
        return;
    }
    compare().expect("both could be told");
}

#[test]
fn the_table_can_be_read_and_its_stories_are_told() {
    for known in table().expect("a table") {
        let name = known.story.as_str();
        assert!(TOLD.contains(&name) || MORE.contains(&name), "{name} is not told");
    }
}

fn compare() -> Result<()> {
    let begin = Instant::now();
    let only = std::env::var("KAFKA_STORIES").unwrap_or_default();
    let mut known = table()?;
    let mut kafka = KafkaStage::start_kafka(KAFKA)?;
    println!("Kafka is ready after {:.1} s", begin.elapsed().as_secs_f32());
    let mut wrong = Vec::new();
    let is_chosen = |name: &str| match only.as_str() {
        "" => TOLD.contains(&name),
        "all" => true,
        names => names.split(',').any(|chosen| chosen == name),
    };
    for name in TOLD.iter().chain(MORE).filter(|name| is_chosen(name)) {
        let before = Instant::now();
        let scenario = find(name)?;
        kafka.clear().with_context(|| format!("before {name}"))?;
        let cleared = before.elapsed();
        let kafkas = told(scenario, &mut kafka).with_context(|| format!("{name}, Kafka"))?;
        let took = before.elapsed() - cleared;
        let mut stage = RealStage::start_with(scenario.needs, super::cluster())?;
        let ours = told(scenario, &mut stage).with_context(|| format!("{name}, ours"))?;
        println!(
            "{name}: Kafka {:.1} s after {:.1} s to be ready again, in all {:.1} s",
            took.as_secs_f32(),
            cleared.as_secs_f32(),
            before.elapsed().as_secs_f32()
        );
        let is_true = |lines: &[String]| lines.contains(&"verdict: as it must be".to_owned());
        if !is_true(&ours) {
            wrong.push(format!("{name} is not true by our processes:\n{}", ours.join("\n")));
        }
        let Some((mine, theirs)) = parting(&ours, &kafkas) else { continue };
        let line = known
            .iter_mut()
            .find(|line| line.story == *name && line.ours == mine && line.kafkas == theirs);
        match line {
            Some(line) => line.used = true,
            None => wrong.push(format!(
                "{name}: ours\n  {mine}\nKafka's\n  {theirs}\nKafka told:\n{}",
                kafkas.join("\n")
            )),
        }
    }
    println!("all of it: {:.0} s", begin.elapsed().as_secs_f32());
    let idle = known.iter().filter(|line| !line.used && is_chosen(&line.story));
    let idle: Vec<&str> = idle.map(|line| line.story.as_str()).collect();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    ensure!(idle.is_empty(), "lines of the table out of use: {idle:?}");
    Ok(())
}
