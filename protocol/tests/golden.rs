//! Bytes written by Apache Kafka 4.4.0 against our messages, in both directions: every message, every version.

mod common;

use std::collections::BTreeSet;

use common::{all_messages, golden_folder, golden_lines, hex};

#[test]
fn every_golden_line_decodes_to_its_fields_and_encodes_to_its_bytes_as_its_fields_do() {
    let messages = all_messages();
    let lines = golden_lines();
    let mut failures = Vec::new();
    for line in &lines {
        let Some(message) = messages.get(line.message.as_str()) else {
            failures.push(format!("{}: there is no such message", line.place));
            continue;
        };
        let place = format!("{} version {}", line.place, line.version);
        match (message.round_trip)(line.bytes.clone(), line.version) {
            Err(error) => failures.push(format!("{place}: {error}")),
            Ok(round_trip) => {
                let fields = round_trip.fields;
                if fields != line.fields {
                    failures.push(format!("{place}:\n read {fields}\n want {}", line.fields));
                }
                let encoded = round_trip.encoded.map(|bytes| hex(&bytes));
                if encoded.as_ref() != Ok(&hex(&line.bytes)) {
                    let want = hex(&line.bytes);
                    failures.push(format!("{place}:\n wrote {encoded:?}\n want {want}"));
                }
                assert_eq!(round_trip.encoded_size, Ok(line.bytes.len()), "{place}");
                let from_fields = round_trip.from_fields.map(|bytes| hex(&bytes));
                if from_fields.as_ref() != Ok(&hex(&line.bytes)) {
                    failures.push(format!("{place}:\n the fields made {from_fields:?}"));
                }
            }
        }
    }
    println!("{} golden lines", lines.len());
    assert!(
        failures.is_empty(),
        "{} of {} lines:\n{}",
        failures.len(),
        lines.len(),
        failures.iter().take(20).cloned().collect::<Vec<_>>().join("\n")
    );
}

#[test]
fn every_version_of_every_message_has_golden_lines() {
    if golden_folder().is_none() {
        return;
    }
    let covered: BTreeSet<(String, i16)> =
        golden_lines().into_iter().map(|line| (line.message, line.version)).collect();
    for (name, message) in all_messages() {
        for version in message.first_version..=message.last_version {
            assert!(covered.contains(&(name.to_owned(), version)), "{name} version {version}");
        }
    }
}
