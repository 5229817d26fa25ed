//! Real clients: librdkafka (kcat and confluent-kafka) and kafka-python create topics, produce with
//! acks=all and each codec, and read everything back from assigned partitions.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{alone, cluster};

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_path_buf()
}

/// A Python that has these modules; `.ci/run` makes it.
fn python_with(modules: &str) -> Option<PathBuf> {
    let candidates = [root().join("target/python-clients/bin/python"), PathBuf::from("python3")];
    candidates.into_iter().find(|python| {
        let check = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        check.is_ok_and(|output| output.status.success())
    })
}

/// A script of testkit/clients for this cluster and with these arguments, its prefix made of its name; or
/// nothing, and a word about it, where its client is absent.
pub(crate) fn script(name: &str, modules: &str, bootstrap: &str, more: &[&str]) -> Option<Command> {
    let Some(python) = python_with(modules) else {
        println!("SKIPPED {name}: no Python with {modules}; .ci/run installs them");
        return None;
    };
    let mut command = Command::new(python);
    command
        .arg(root().join("testkit/clients").join(name))
        .args([bootstrap, &name.trim_end_matches(".py").replace('_', "-")])
        .args(more);
    Some(command)
}

/// Runs a script to its end; its last line must be `ok`.
pub(crate) fn run(name: &str, command: Option<Command>) {
    let Some(mut command) = command else { return };
    let output = command.output().expect("the script runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let last = out.trim().lines().last().unwrap_or_default();
    assert!(output.status.success() && last == "ok", "{name} failed:\n{out}\n{err}");
    println!("{out}");
}

#[test]
fn python_clients_write_and_read_every_codec() {
    let _alone = alone();
    let cluster = cluster().start().expect("a cluster");
    for (name, modules) in
        [("round_trip_confluent.py", "confluent_kafka"), ("round_trip_kafka_python.py", "kafka")]
    {
        run(name, script(name, modules, &cluster.bootstrap(), &[]));
    }
}

#[test]
fn kcat_writes_to_a_topic_that_makes_itself_and_reads_it_back() {
    if Command::new("kcat").arg("-V").output().is_err() {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let cluster = cluster().set("default.replication.factor", 3).start().expect("a cluster");
    let bootstrap = cluster.bootstrap();
    let lines: String = (0..1000).map(|i| format!("line {i}\n")).collect();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("kcat-{codec}");
        let arguments = ["-b", &bootstrap, "-t", &topic, "-P", "-z", codec, "-X", "acks=all"];
        let mut producer = Command::new("kcat")
            .args(arguments)
            .stdin(std::process::Stdio::piped())
            .spawn()
            .expect("kcat starts");
        let mut stdin = producer.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut stdin, lines.as_bytes()).expect("kcat reads");
        drop(stdin);
        assert!(producer.wait().expect("kcat ends").success(), "producing with {codec}");
        let arguments = ["-b", &bootstrap, "-t", &topic, "-C", "-o", "beginning", "-e", "-q"];
        let output = Command::new("kcat").args(arguments).output().expect("kcat runs");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), lines, "reading back {codec}");
    }
}
