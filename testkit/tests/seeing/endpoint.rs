//! The endpoint itself: what it answers, and that hostile clients neither hang nor exhaust it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use broker::config::BrokerConfig;
use broker::host::{Node, NodeOptions};
use testkit::metrics::{MetricsPage, http};

use crate::world::{PATIENCE, World};

#[test]
fn only_metrics_are_there_and_only_to_be_read() {
    let world = World::start(1, &[]);
    let address = world.metrics(1);
    let status = |request: &str| http(&address, request).expect("an answer").status;
    assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    assert_eq!(status("GET /metrics?name=a HTTP/1.0\r\n\r\n"), 200);
    assert_eq!(status("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    assert_eq!(status("GET /metrics/../etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    let refused =
        http(&address, "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
    let refused = refused.expect("an answer");
    assert_eq!((refused.status, refused.headers["allow"].as_str()), (405, "GET, HEAD"));
    let head = http(&address, "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("an answer");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(head.headers["content-length"].parse::<usize>().expect("a number") > 1000);
    assert_eq!(status("GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"), 400);
}

#[test]
fn a_topics_name_cannot_break_the_page_and_every_name_is_well_formed() {
    let world = World::start(1, &[]);
    world.create_topic("a.topic_with-all.that_a-name.may_hold", &[1], &[]);
    let page = world.page(1);
    for (name, family) in &page.families {
        let lower = name.strip_prefix("kafka_server_BrokerTopicMetrics_").unwrap_or(name);
        let known = ["kafka_", "highwater_", "process_"];
        assert!(known.iter().any(|prefix| name.starts_with(prefix)), "{name}");
        assert!(lower == "FifteenMinuteRate" || *lower == lower.to_lowercase(), "{name}");
        let ends_like_a_counter = name.ends_with("_total") || name.ends_with("persec");
        assert!(!ends_like_a_counter || family.kind == "counter", "{name} is a {}", family.kind);
    }
    assert!(page.plain("process_cpu_seconds_total").expect("a number") > 0.0);
    assert!(page.plain("process_resident_memory_bytes").expect("a number") > 1e6);
    assert!(page.plain("process_open_fds").expect("a number") > 3.0);
    let idle = page.plain("kafka_network_socketserver_networkprocessoravgidlepercent");
    assert!((0.0..=1.0).contains(&idle.expect("a number")));
    let info = &page.families["highwater_node_info"].samples[0].0;
    assert_eq!((info["node_id"].as_str(), info["cluster_id"].as_str()), ("1", "seeing"));
}

/// Connections that say nothing, too much, or nonsense; after each of them a scrape must work.
#[test]
fn hostile_clients_are_closed_and_scrapes_go_on() {
    let world = World::start(1, &[]);
    let address = world.metrics(1);
    let connect = || {
        let stream = TcpStream::connect(&address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream
    };
    let ends = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        // A reset is an end as well.
        let _ = stream.read_to_end(&mut rest);
        String::from_utf8_lossy(&rest).into_owned()
    };
    // A head without an end is cut off at its bound.
    let mut endless = connect();
    let line = format!("X-{}: {}\r\n", "a".repeat(100), "b".repeat(1000));
    let _ = endless.write_all(b"GET /metrics HTTP/1.1\r\n");
    while endless.write_all(line.as_bytes()).is_ok() {}
    assert!(!ends(endless).contains(" 200 "));
    // Bytes that are no HTTP, as of a Kafka client that came to the wrong port.
    let mut nonsense = connect();
    nonsense.write_all(&[0, 0, 0, 40, 0, 18, 0, 3, 255, 254]).expect("sent");
    nonsense.write_all(b"\r\n\r\n").expect("sent");
    assert!(!ends(nonsense).contains(" 200 "));
    // A second request on one connection gets no answer.
    let mut twice = connect();
    twice
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2).as_slice())
        .expect("sent");
    assert_eq!(ends(twice).matches("HTTP/1.1 200").count(), 1);
    // More silent connections than there are places.
    let silent: Vec<TcpStream> = (0..40).map(|_| connect()).collect();
    let began = Instant::now();
    world.eventually("a scrape between silent clients", || MetricsPage::scrape(&address).is_ok());
    assert!(began.elapsed() < Duration::from_secs(30), "silent clients are closed after seconds");
    for stream in silent {
        ends(stream);
    }
    world.page(1);
}

#[test]
fn a_client_that_takes_nothing_of_a_large_page_holds_up_nobody() {
    let world = World::start(1, &[]);
    let settings: Vec<i32> = vec![1; 1];
    for at in 0..20 {
        world.create_topic(&format!("{}-{at}", "long".repeat(50)), &settings, &[]);
    }
    let mut slow: Vec<TcpStream> = Vec::new();
    for _ in 0..8 {
        let mut stream = TcpStream::connect(world.metrics(1)).expect("connected");
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("sent");
        slow.push(stream);
    }
    for _ in 0..3 {
        world.page(1);
    }
    drop(slow);
    assert_eq!(world.client(1).metadata().expect("it serves").topics.len(), 20);
}

fn started(port: u16, metrics: &str, log: Option<&str>) -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let mut settings = vec![
        ("node.id", "1".to_owned()),
        ("process.roles", "broker,controller".into()),
        ("listeners", format!("PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{port}")),
        ("controller.listener.names", "CONTROLLER".into()),
        ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".into()),
        ("controller.quorum.voters", format!("1@127.0.0.1:{port}")),
        ("log.dirs", folder.path().join("data").display().to_string()),
        ("highwater.metrics.listener", metrics.into()),
    ];
    settings.extend(log.map(|log| ("highwater.request.log.file", log.to_owned())));
    let settings = settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
    let (config, _) =
        BrokerConfig::from_settings(&settings).map_err(|errors| errors.to_string())?;
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let node = runtime.block_on(Node::start(config, NodeOptions::new("seeing")));
    assert!(!folder.path().join("data").exists(), "nothing is written before the ports are had");
    node.map(|_| ()).map_err(|error| error.to_string())
}

#[test]
fn a_port_that_is_taken_or_an_address_that_is_none_stops_the_start_and_names_the_key() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let port = testkit::real::free_ports(1).expect("a port")[0];
    let refused = started(port, &address, None).expect_err("the port is taken");
    assert!(
        refused.contains("highwater.metrics.listener") && refused.contains(&address),
        "{refused}"
    );
    for wrong in ["9404", "host", "localhost:many", "http://localhost:9404/metrics"] {
        let refused = started(port, wrong, None).expect_err("no address");
        assert!(refused.contains("highwater.metrics.listener"), "{refused}");
    }
    let refused = started(port, "127.0.0.1:0", Some("/no/such/folder/log")).expect_err("no file");
    assert!(refused.contains("highwater.request.log.file"), "{refused}");
}
