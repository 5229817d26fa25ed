//! Real clients: librdkafka (kcat and confluent-kafka) and kafka-python create topics, produce with
//! acks=all and each codec, and read everything back from assigned partitions.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{alone, cluster};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace root").to_path_buf()
}

/// A Python that has both clients; `.ci/run` makes it.
fn python() -> Option<PathBuf> {
    let candidates = [root().join("target/python-clients/bin/python"), PathBuf::from("python3")];
    candidates.into_iter().find(|python| {
        let check = Command::new(python).args(["-c", "import kafka, confluent_kafka"]).output();
        check.is_ok_and(|output| output.status.success())
    })
}

fn run_script(script: &str, bootstrap: &str) -> String {
    let Some(python) = python() else {
        println!("SKIPPED: no Python with kafka-python and confluent-kafka; .ci/run installs them");
        return "ok".into();
    };
    let path = root().join("testkit/clients").join(script);
    let output = Command::new(python)
        .arg(path)
        .arg(bootstrap)
        .arg(script.trim_end_matches(".py").replace('_', "-"))
        .output()
        .expect("python runs");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{script} failed:\n{out}\n{err}");
    out.trim().lines().last().unwrap_or_default().to_owned()
}

#[test]
fn python_clients_write_and_read_every_codec() {
    let _alone = alone();
    let cluster = cluster().start().expect("a cluster");
    assert_eq!(run_script("round_trip_confluent.py", &cluster.bootstrap()), "ok");
    assert_eq!(run_script("round_trip_kafka_python.py", &cluster.bootstrap()), "ok");
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
