//! Lines of the request log: what they say, that they are JSON whatever a client calls itself, and that
//! nobody waits for a disk that does not write.

use std::sync::Condvar;
use std::sync::Mutex as StdMutex;

use bytes::Bytes;
use protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::{
    FetchRequest, FetchResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    ResponseBody,
};
use protocol::{ApiKey, Records};

use super::*;
use crate::metrics::requests::Times;
use crate::network::{ConnectionInfo, testing};

fn context(api_key: ApiKey, client_id: &str) -> RequestContext {
    RequestContext {
        connection: Arc::new(ConnectionInfo {
            id: 7,
            listener: "EXTERNAL".into(),
            peer: "10.0.0.2:5000".parse().expect("an address"),
            local: "10.0.0.1:9092".parse().expect("an address"),
        }),
        api_key,
        api_version: 12,
        correlation_id: 42,
        client_id: Some(client_id.into()),
        size_bytes: 100,
        cancellation: testing::no_cancellation(),
    }
}

fn ended(response: &ResponseBody) -> Ended<'_> {
    let millis = Duration::from_millis;
    let times = Times {
        queue: Duration::from_micros(1500),
        local: millis(2),
        remote: millis(3000),
        response_queue: millis(4),
        send: millis(5),
    };
    Ended { times, response: Some(response), response_bytes: 200 }
}

/// A fetch as the first example of its kind shows it: a session is asked for, some bytes come.
fn fetch(partitions: i32) -> (RequestBody, ResponseBody) {
    let wanted =
        |partition| FetchPartition { partition, fetch_offset: 10, ..FetchPartition::default() };
    let request = FetchRequest {
        max_wait_ms: 3000,
        min_bytes: 1_048_576,
        session_epoch: 0,
        topics: vec![FetchTopic {
            topic: "u08".into(),
            partitions: (0..partitions).map(wanted).collect(),
            ..FetchTopic::default()
        }],
        ..FetchRequest::default()
    };
    let response = FetchResponse {
        session_id: 371_989_317,
        throttle_time_ms: 9,
        responses: vec![FetchableTopicResponse {
            topic: "u08".into(),
            partitions: vec![PartitionData {
                high_watermark: 10,
                records: Some(Records::Bytes(Bytes::from(vec![0; 212]))),
                ..PartitionData::default()
            }],
            ..FetchableTopicResponse::default()
        }],
        ..FetchResponse::default()
    };
    (request.into(), response.into())
}

fn line(body: &RequestBody, response: &ResponseBody, client_id: &str) -> Value {
    let draft = Draft::new(&context(body.api_key(), client_id), body);
    let text = draft.line(&ended(response));
    assert_eq!(text.lines().count(), 1, "one line: {text}");
    serde_json::from_str(&text).expect("JSON")
}

#[test]
fn a_fetch_is_told_with_its_times_sizes_session_and_offsets() {
    let (request, response) = fetch(1);
    let told = line(&request, &response, "u08-b");
    let header = json!({
        "requestApiKey": 1, "requestApiVersion": 12, "correlationId": 42, "clientId": "u08-b",
        "requestApiKeyName": "FETCH",
    });
    assert_eq!(told["requestHeader"], header);
    assert_eq!(told["connection"], "10.0.0.1:9092-10.0.0.2:5000-7");
    assert_eq!(told["listener"], "EXTERNAL");
    for (field, value) in [
        ("totalTimeMs", 3012.5),
        ("requestQueueTimeMs", 1.5),
        ("localTimeMs", 2.0),
        ("remoteTimeMs", 3000.0),
        ("responseQueueTimeMs", 4.0),
        ("sendTimeMs", 5.0),
    ] {
        assert_eq!(told[field], value, "{field}");
    }
    assert_eq!((&told["throttleTimeMs"], &told["requestBytes"]), (&json!(9), &json!(100)));
    assert_eq!(told["responseBytes"], 200);
    let request = &told["request"];
    assert_eq!((&request["maxWaitMs"], &request["minBytes"]), (&json!(3000), &json!(1_048_576)));
    assert_eq!((&request["sessionId"], &request["sessionEpoch"]), (&json!(0), &json!(0)));
    assert_eq!(request["topics"][0]["topic"], "u08");
    assert_eq!(request["topics"][0]["partitions"][0]["fetchOffset"], 10);
    let response = &told["response"];
    assert_eq!(response["sessionId"], 371_989_317);
    let partition = &response["responses"][0]["partitions"][0];
    assert_eq!(
        (&partition["highWatermark"], &partition["recordsSizeInBytes"]),
        (&json!(10), &json!(212))
    );
}

#[test]
fn a_line_is_json_whatever_the_client_is_called_and_has_a_bound_however_much_is_asked() {
    let (request, response) = fetch(5000);
    let told = line(&request, &response, "a\"b\\c\nd\u{0}\u{1f980}");
    assert_eq!(told["requestHeader"]["clientId"], "a\"b\\c\nd\u{0}\u{1f980}");
    let partitions = told["request"]["topics"][0]["partitions"].as_array().expect("a list");
    assert_eq!((partitions.len(), &told["request"]["partitionsLeftOut"]), (100, &json!(4900)));
}

#[test]
fn config_values_are_not_told_and_errors_are_counted_by_name() {
    use protocol::messages::incremental_alter_configs_request::{
        AlterConfigsResource, AlterableConfig,
    };
    use protocol::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            configs: vec![AlterableConfig {
                value: Some("secret".into()),
                ..AlterableConfig::default()
            }],
            ..AlterConfigsResource::default()
        }],
        ..IncrementalAlterConfigsRequest::default()
    };
    let refused =
        AlterConfigsResourceResponse { error_code: 42, ..AlterConfigsResourceResponse::default() };
    let response = IncrementalAlterConfigsResponse {
        responses: vec![refused.clone(), refused, AlterConfigsResourceResponse::default()],
        ..IncrementalAlterConfigsResponse::default()
    };
    let told = line(&request.into(), &response.into(), "c");
    assert!(!told.to_string().contains("secret"), "{told}");
    assert_eq!(told["response"]["errorCounts"], json!({ "INVALID_REQUEST": 2, "NONE": 1 }));
}

/// A file whose writes wait until they are let through.
#[derive(Clone, Default)]
struct Gate(Arc<GateState>);

#[derive(Default)]
struct GateState {
    /// Whether writes are let through, and what was written.
    state: StdMutex<(bool, Vec<u8>)>,
    opened: Condvar,
}

impl Gate {
    fn open(&self) {
        self.0.state.lock().expect("sound").0 = true;
        self.0.opened.notify_all();
    }

    fn written(&self) -> usize {
        let bytes = &self.0.state.lock().expect("sound").1;
        bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count()
    }
}

impl Write for Gate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let state = self.0.state.lock().expect("sound");
        let mut state = self.0.opened.wait_while(state, |state| !state.0).expect("sound");
        state.1.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_disk_that_hangs_makes_lines_be_dropped_and_counted_and_no_request_wait() {
    let gate = Gate::default();
    let log = RequestLog::to(Box::new(gate.clone()));
    log.set_on(true);
    let (request, response) = fetch(1);
    let draft = Draft::new(&context(ApiKey::Fetch, "c"), &request);
    let sent = 3 * QUEUED_LINES;
    for _ in 0..sent {
        log.write(&draft, &ended(&response));
    }
    let (_, dropped) = log.counts();
    assert!(dropped >= QUEUED_LINES as u64, "{dropped} dropped");
    gate.open();
    while log.counts().0 + dropped < sent as u64 {
        std::thread::yield_now();
    }
    log.flush();
    assert_eq!(gate.written() as u64 + dropped, sent as u64);
}

#[test]
fn it_is_off_until_it_is_turned_on_and_again_when_it_is_turned_off() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("requests.log");
    let log = RequestLog::open(Some(&path)).expect("a file");
    assert!(!log.is_on());
    log.set_on(true);
    assert!(log.is_on());
    let (request, response) = fetch(1);
    log.write(&Draft::new(&context(ApiKey::Fetch, "c"), &request), &ended(&response));
    log.flush();
    log.set_on(false);
    assert!(!log.is_on());
    assert_eq!(std::fs::read_to_string(&path).expect("text").lines().count(), 1);
    assert!(RequestLog::open(Some(&folder.path().join("no/such"))).is_err());
    let nowhere = RequestLog::default();
    nowhere.set_on(true);
    assert!(!nowhere.is_on());
}

#[test]
fn nodes_that_share_a_file_do_not_cut_each_others_lines() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("requests.log");
    let logs = [(); 3].map(|()| RequestLog::open(Some(&path)).expect("a file"));
    std::thread::scope(|scope| {
        for log in &logs {
            scope.spawn(|| {
                log.set_on(true);
                let (request, response) = fetch(50);
                let draft = Draft::new(&context(ApiKey::Fetch, "c"), &request);
                for _ in 0..200 {
                    log.write(&draft, &ended(&response));
                }
                log.flush();
            });
        }
    });
    let text = std::fs::read_to_string(&path).expect("text");
    for line in text.lines() {
        serde_json::from_str::<Value>(line).expect("a whole line");
    }
    assert_eq!(text.lines().count(), 600);
}
