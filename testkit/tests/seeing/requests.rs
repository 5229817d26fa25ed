//! Requests by API, version and error with their times; and the request log as the fetch article's examples
//! show it.

use std::time::Duration;

use protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use protocol::messages::{
    ApiVersionsRequest, FetchRequest, IncrementalAlterConfigsRequest, MetadataRequest,
};
use serde_json::Value;
use testkit::client::{batch_of, fetch_request};

use crate::world::{PATIENCE, World};

const COUNTS: &str = "kafka_network_requestmetrics_requests_total";
const ERRORS: &str = "kafka_network_requestmetrics_errors_total";
const TOTAL: &str = "kafka_network_requestmetrics_totaltimems";

#[test]
fn requests_are_told_by_api_version_and_error_and_fetches_by_who_asks() {
    let world = World::start(3, &[]);
    world.create_topic("t", &[1, 2, 3], &[]);
    let before = world.page(1);
    let mut client = world.client(1);
    for version in [9, 12, 12] {
        let batch = batch_of(&[b"v"]).expect("a batch");
        let request = testkit::client::produce_request("t", 0, -1, batch, PATIENCE);
        client.call(version, request).expect("an answer");
    }
    client.fetch("t", 0, 1000).expect("an answer");
    client.call(3, ApiVersionsRequest::default()).expect("an answer");
    client.call(12, MetadataRequest::default()).expect("an answer");
    // A request is counted once its answer is sent, which its client may see first.
    world.eventually("the last request is counted", || {
        let metadata = [("request", "Metadata"), ("version", "12")];
        world.page(1).sum(COUNTS, &metadata) > before.sum(COUNTS, &metadata)
    });
    let after = world.page(1);
    let moved =
        |name: &str, labels: &[(&str, &str)]| after.sum(name, labels) - before.sum(name, labels);
    assert_eq!(moved(COUNTS, &[("request", "Produce"), ("version", "9")]), 1.0);
    assert_eq!(moved(COUNTS, &[("request", "Produce"), ("version", "12")]), 2.0);
    assert_eq!(moved(ERRORS, &[("request", "Produce"), ("error", "NONE")]), 3.0);
    assert_eq!(moved(COUNTS, &[("request", "FetchConsumer")]), 1.0);
    let out_of_range = [("request", "FetchConsumer"), ("error", "OFFSET_OUT_OF_RANGE")];
    assert_eq!(moved(ERRORS, &out_of_range), 1.0);
    let followers = moved(COUNTS, &[("request", "FetchFollower")]);
    assert!(followers >= 2.0, "{followers}");
    let all = moved(COUNTS, &[("request", "Fetch")]);
    assert_eq!(all, followers + 1.0, "consumers and followers together");
    assert_eq!(moved(COUNTS, &[("request", "ApiVersions"), ("version", "3")]), 1.0);
    assert_eq!(moved(&format!("{TOTAL}_count"), &[("request", "Produce")]), 3.0);
    let bytes = moved("kafka_network_requestmetrics_requestbytes_sum", &[("request", "Produce")]);
    assert!(bytes > 3.0 * 70.0, "{bytes}");
    assert!(moved("highwater_request_response_bytes_sum", &[("request", "Metadata")]) > 50.0);
    // acks=all waits for the followers: that is remote time, and it is most of the whole.
    let sum = |part: &str| {
        let name = format!("kafka_network_requestmetrics_{part}timems_sum");
        moved(&name, &[("request", "Produce")])
    };
    let parts = ["requestqueue", "local", "remote", "responsequeue", "responsesend"].map(sum);
    assert!((parts.iter().sum::<f64>() - sum("total")).abs() < 0.05, "{parts:?} {}", sum("total"));
    assert!(parts[2] > 0.0, "{parts:?}");
}

#[test]
fn a_fetch_that_waits_spends_its_time_remotely_and_quantiles_tell_so() {
    let world = World::start(1, &[]);
    world.create_topic("t", &[1], &[]);
    let mut client = world.client(1);
    let waiting = FetchRequest { max_wait_ms: 300, ..fetch_request("t", 0, 0) };
    client.call(12, waiting).expect("an answer");
    let labels = [("request", "FetchConsumer")];
    world.eventually("the fetch is counted", || {
        world.page(1).sum(&format!("{TOTAL}_count"), &labels) == 1.0
    });
    let page = world.page(1);
    let remote = page.sum("kafka_network_requestmetrics_remotetimems_sum", &labels);
    assert!(remote >= 290.0, "{remote}");
    for quantile in ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"] {
        let labels = [("request", "FetchConsumer"), ("quantile", quantile)];
        let told = page.get(TOTAL, &labels).expect("a quantile");
        assert!(told >= 255.0, "{quantile}: {told}");
    }
}

fn set_log(world: &World, broker: &str, on: &str) {
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 4,
            resource_name: broker.into(),
            configs: vec![AlterableConfig {
                name: "highwater.request.log.enable".into(),
                config_operation: 0,
                value: Some(on.into()),
                ..AlterableConfig::default()
            }],
            ..AlterConfigsResource::default()
        }],
        ..IncrementalAlterConfigsRequest::default()
    };
    let response = world.client(1).call(1, request).expect("an answer");
    assert_eq!(response.responses[0].error_code, 0, "{:?}", response.responses[0].error_message);
    let wanted = f64::from(u8::from(on == "true"));
    world.eventually("the broker has heard of it", || {
        world.page(1).plain("highwater_request_log_enabled").is_ok_and(|now| now == wanted)
    });
}

/// Example 1 of the article on fetching, in miniature: (b) too little data for `min_bytes` waits for the
/// whole time and gives what there is, (c) a fetch at the end is woken by a producer.
#[test]
fn the_request_log_shows_the_examples_of_the_fetch_article() {
    let file = [("highwater.request.log.file", "{folder}/requests.log")];
    let world = World::start(1, &file);
    let path = world.folder.path().join("requests.log");
    let mut client = world.client(1);
    world.create_topic("u08", &[1], &[]);
    let batch = batch_of(&[b"0", b"1", b"2"]).expect("a batch");
    client.produce("u08", 0, 1, batch, PATIENCE).expect("an answer");
    assert_eq!(std::fs::read_to_string(&path).expect("the file"), "", "off at first");
    set_log(&world, "", "true");
    let asked = |min_bytes, offset, session_id, session_epoch| FetchRequest {
        max_wait_ms: 400,
        min_bytes,
        session_id,
        session_epoch,
        ..fetch_request("u08", 0, offset)
    };
    let opened = client.call(12, asked(1 << 20, 0, 0, 0)).expect("an answer");
    assert!(opened.session_id > 0);
    let mut reader = world.client(1);
    let waiting = FetchRequest { max_wait_ms: 60_000, ..fetch_request("u08", 0, 3) };
    reader.send(12, waiting.into()).expect("sent");
    std::thread::sleep(Duration::from_millis(150));
    let batch = batch_of(&[b"3"]).expect("a batch");
    client.produce("u08", 0, 1, batch, PATIENCE).expect("an answer");
    reader.read_frame().expect("the answer");
    let closing =
        client.call(12, FetchRequest { topics: Vec::new(), ..asked(1, 0, opened.session_id, -1) });
    assert_eq!(closing.expect("an answer").session_id, 0);
    set_log(&world, "1", "false");
    let mut fetches = Vec::new();
    world.eventually("three fetches are logged", || {
        let text = std::fs::read_to_string(&path).expect("the file");
        let lines = text.lines().filter(|_| text.ends_with('\n'));
        let all: Vec<Value> = lines.map(|line| serde_json::from_str(line).expect("JSON")).collect();
        fetches = all.into_iter().filter(|l| l["requestHeader"]["requestApiKey"] == 1).collect();
        fetches.len() >= 3
    });
    let number = |line: &Value, name: &str| line[name].as_f64().expect("a number");
    let b = &fetches[0];
    assert_eq!(
        (&b["request"]["minBytes"], &b["request"]["sessionEpoch"]),
        (&(1 << 20).into(), &0.into())
    );
    assert_eq!(b["response"]["sessionId"], opened.session_id);
    let given = &b["response"]["responses"][0]["partitions"][0];
    assert_eq!(given["highWatermark"], 3);
    assert!(given["recordsSizeInBytes"].as_u64().is_some_and(|bytes| bytes > 70), "{given}");
    assert!(number(b, "remoteTimeMs") >= 390.0, "{b}");
    assert!(number(b, "localTimeMs") < number(b, "remoteTimeMs"), "{b}");
    let c = fetches.iter().find(|line| line["request"]["maxWaitMs"] == 60_000).expect("c");
    let waited = number(c, "remoteTimeMs");
    assert!((100.0..60_000.0).contains(&waited), "woken, not timed out: {c}");
    assert_eq!(c["response"]["responses"][0]["partitions"][0]["highWatermark"], 4);
    let last = fetches.iter().find(|line| {
        let request = &line["request"];
        request["sessionId"] == opened.session_id && request["sessionEpoch"] == -1
    });
    let last = last.expect("the end of the session");
    assert_eq!(last["response"]["sessionId"], 0);
    assert_eq!(number(last, "remoteTimeMs"), 0.0);
    assert_eq!(last["requestHeader"]["clientId"], "testkit");
    let page = world.page(1);
    assert!(page.plain("highwater_request_log_lines_total").expect("a number") >= 4.0);
    assert_eq!(page.plain("highwater_request_log_dropped_total").expect("a number"), 0.0);
}
