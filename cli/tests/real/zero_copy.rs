//! Zero-copy as the system itself counts it (F08): strace tells which calls took the records of a fetch
//! from the log's file. Without TLS they go from file to socket and never enter the process; under TLS
//! they must, to be encrypted.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use testkit::client::batch_of;
use testkit::real::{Cluster, Encryption};

use crate::tls::Files;
use crate::{alone, cluster};

const TOPIC: &str = "heavy";
const BATCHES: usize = 64;
const RECORD_BYTES: usize = 100_000;
const NOT_LEADER: i16 = 6;
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes taken from log segments, by the way they took.
#[derive(Debug, Default)]
struct Taken {
    by_sendfile: u64,
    into_the_process: u64,
}

/// A strace of a node, writing to a file until it is dropped.
struct Watching {
    strace: Child,
    output: tempfile::NamedTempFile,
}

impl Watching {
    /// Attaches to a process; nothing where that is not allowed or there is no strace.
    fn attach(pid: u32) -> Option<Watching> {
        let output = tempfile::NamedTempFile::new().expect("a file");
        let strace = Command::new("strace")
            .args([
                "-f",
                "-y",
                "-qq",
                "-e",
                "trace=sendfile,read,pread64,readv,preadv,preadv2,mmap",
            ])
            .arg("-o")
            .arg(output.path())
            .args(["-p", &pid.to_string()])
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut strace) = strace else {
            println!("SKIPPED: no strace; .ci/run installs it");
            return None;
        };
        let deadline = Instant::now() + PATIENCE;
        while !is_traced(pid) {
            if strace.try_wait().is_ok_and(|status| status.is_some()) || Instant::now() > deadline {
                println!("SKIPPED: strace may not look at another process here");
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(Watching { strace, output })
    }

    /// Ends it, and adds up what it saw.
    fn end(mut self) -> Taken {
        let pid = rustix::process::Pid::from_child(&self.strace);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("a signal");
        self.strace.wait().expect("it ends");
        let text = std::fs::read_to_string(self.output.path()).expect("its output");
        let mut taken = Taken::default();
        for line in text.lines().filter(|line| line.contains(".log>")) {
            let result = line.rsplit(" = ").next().and_then(|result| result.trim().parse().ok());
            let bytes: u64 = result.unwrap_or(0);
            if line.contains("sendfile") {
                taken.by_sendfile += bytes;
            } else {
                taken.into_the_process += bytes;
            }
        }
        taken
    }
}

/// Whether all threads of a process have a tracer.
fn is_traced(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    threads.filter_map(Result::ok).all(|thread| {
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"))
    })
}

fn write(cluster: &Cluster) {
    let mut client = cluster.client(1).expect("a client");
    let record: Vec<u8> = (0..RECORD_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    for _ in 0..BATCHES {
        let batch = batch_of(&[&record]).expect("a batch");
        let mut produce =
            || client.produce(TOPIC, 0, -1, batch.clone(), PATIENCE).expect("an answer");
        // A leader hears of its part a moment after the topic is there.
        let deadline = Instant::now() + PATIENCE;
        while produce().error_code == NOT_LEADER && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Reads the topic with kcat, and returns what of the log was taken how.
fn read(cluster: &Cluster, bootstrap: &str, settings: &[String]) -> Option<Taken> {
    let watching = Watching::attach(cluster.pid(1).expect("it runs"))?;
    let mut command = Command::new("kcat");
    command.args(["-b", bootstrap, "-t", TOPIC, "-C", "-o", "beginning", "-e", "-q", "-f", "%S\n"]);
    for setting in settings {
        command.args(["-X", setting]);
    }
    let output = command.output().expect("kcat runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let sizes = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(sizes.lines().collect::<Vec<_>>(), vec![RECORD_BYTES.to_string(); BATCHES]);
    Some(watching.end())
}

#[test]
fn f08_records_enter_the_process_only_to_be_encrypted() {
    if Command::new("kcat").arg("-V").output().is_err() || !Path::new("/proc/self/status").exists()
    {
        println!("SKIPPED: no kcat; .ci/run installs it");
        return;
    }
    let _alone = alone();
    let files = Files::make();
    let encryption = Encryption {
        key_store: files.path("node.pem"),
        trust_store: files.path("ours.pem"),
        client_auth: "none",
    };
    // What the kernel does of TLS is shown by the tests of `broker`.
    let nodes =
        cluster().brokers(1).encrypted(encryption).set("highwater.kernel.tls.enable", false);
    let mut cluster = nodes.start().expect("a cluster");
    cluster.create_topic(TOPIC, &[&[1]], &[]).expect("a topic");
    write(&cluster);
    let all = (BATCHES * RECORD_BYTES) as u64;
    let Some(plain) = read(&cluster, &cluster.bootstrap(), &[]) else { return };
    assert!(plain.by_sendfile >= all, "{plain:?}");
    // The heads of batches are looked at, to find where a batch begins.
    assert!(plain.into_the_process < all / 50, "{plain:?}");
    let bootstrap = cluster.ssl_bootstrap();
    let Some(encrypted) = read(&cluster, &bootstrap, &files.settings(None)) else { return };
    assert_eq!(encrypted.by_sendfile, 0, "{encrypted:?}");
    assert!(encrypted.into_the_process >= all, "{encrypted:?}");
    println!("plain {plain:?}, under TLS {encrypted:?}, of {all} bytes of records");
}
