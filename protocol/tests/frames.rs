//! Frames and headers (rules P01 to P03), and the table of APIs behind them.

mod common;

use std::fs;
use std::path::Path;

use bytes::Bytes;
use common::{Random, hex};
use protocol::frame::{
    FrameError, RequestStart, check_frame_size, decode_response, encode_request, encode_response,
    request_header,
};
use protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchResponse, MetadataRequest, MetadataResponse,
    RequestBody, fetch_response,
};
use protocol::{
    ApiKey, EncodeError, ErrorCode, Listener, Part, Records, Request, ResponseBody, WrongApi,
    join_parts,
};

/// The frame without its size, which is checked.
fn without_size(parts: Vec<Part>) -> Bytes {
    let bytes = join_parts(parts).expect("in memory");
    let size = check_frame_size([bytes[0], bytes[1], bytes[2], bytes[3]], usize::MAX);
    assert_eq!(size, Ok(bytes.len() - 4));
    bytes.slice(4..)
}

#[test]
fn p03_sizes_are_checked_before_anything_is_allocated() {
    let check = |size: i32| check_frame_size(size.to_be_bytes(), 1000);
    assert_eq!(check(0), Ok(0));
    assert_eq!(check(1000), Ok(1000));
    assert_eq!(check(1001), Err(FrameError::TooLarge { size: 1001, max: 1000 }));
    assert_eq!(check(i32::MAX), Err(FrameError::TooLarge { size: i32::MAX as usize, max: 1000 }));
    assert_eq!(check(-1), Err(FrameError::NegativeSize { size: -1 }));
    assert_eq!(check(i32::MIN), Err(FrameError::NegativeSize { size: i32::MIN }));
}

#[test]
fn every_request_and_response_reads_back_from_its_frame_in_every_served_version() {
    let mut random = Random(0x0f4a);
    for api_key in ApiKey::ALL {
        for version in api_key.served_versions() {
            let request = RequestBody::arbitrary(api_key, &mut || random.next(), version);
            let header = request_header(api_key, version, 77, Some("me"));
            let frame = without_size(encode_request(header, &request).expect("encodes"));
            let start = RequestStart::read(frame).expect("reads");
            assert_eq!((start.api_key, start.api_version), (api_key, version));
            assert_eq!(start.header.correlation_id, 77);
            assert_eq!(start.header.client_id.as_deref(), Some("me"));
            assert!(!start.is_unknown_api_versions());
            assert_eq!(start.read_body(), Ok(request), "{api_key} version {version}");

            let response = ResponseBody::arbitrary(api_key, &mut || random.next(), version);
            let parts = encode_response(78, api_key, version, &response).expect("encodes");
            let read = decode_response(without_size(parts), 78, api_key, version);
            assert_eq!(read, Ok(response), "{api_key} version {version}");
        }
    }
}

#[test]
fn p01_an_unknown_version_of_api_versions_is_answered_in_version_0_with_error_35() {
    for version in [6i16, 99, i16::MAX, -1] {
        // Key 18, the version, correlation id 5, no client id; then, where the header has tags,
        // none, and bytes that nobody may try to read.
        let mut frame = vec![0, 18];
        frame.extend(version.to_be_bytes());
        frame.extend([0, 0, 0, 5, 0xff, 0xff, 0, 0xee, 0xee]);
        let start = RequestStart::read(Bytes::from(frame)).expect("the header reads");
        assert!(start.is_unknown_api_versions());
        assert_eq!((start.response_version(), start.header.correlation_id), (0, 5));
        let refused = FrameError::UnsupportedVersion { api_key: ApiKey::ApiVersions, version };
        assert_eq!(start.read_body(), Err(refused));
    }

    let answer = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        ..Default::default()
    };
    let parts = encode_response(5, ApiKey::ApiVersions, 0, &answer.clone().into());
    let frame = without_size(parts.expect("encodes"));
    assert_eq!(hex(&frame), "00000005002300000000");
    // Our own client asked for version 4 and still understands it.
    let read = decode_response(frame, 5, ApiKey::ApiVersions, 4);
    assert_eq!(read, Ok(ResponseBody::ApiVersions(answer)));
}

#[test]
fn p01_the_header_of_an_api_versions_answer_has_no_tags_in_any_version() {
    for version in ApiKey::ApiVersions.valid_versions() {
        assert_eq!(ApiKey::ApiVersions.response_header_version(version), 0);
    }
    assert_eq!(ApiKey::ApiVersions.request_header_version(2), 1);
    assert_eq!(ApiKey::ApiVersions.request_header_version(3), 2);
    let parts = encode_response(9, ApiKey::ApiVersions, 3, &ApiVersionsResponse::default().into());
    let frame = without_size(parts.expect("encodes"));
    assert_eq!(hex(&frame), "00000009000001000000000000"[..24]);
}

#[test]
fn p02_unknown_keys_and_versions_are_refused() {
    let read = |key: i16, version: i16| {
        let mut frame = key.to_be_bytes().to_vec();
        frame.extend(version.to_be_bytes());
        frame.extend([0, 0, 0, 1, 0xff, 0xff, 0]);
        RequestStart::read(Bytes::from(frame)).map(|start| start.api_key)
    };
    for key in [-1, 4, 5, 6, 7, 95, i16::MAX, i16::MIN] {
        assert_eq!(read(key, 0), Err(FrameError::UnknownApiKey { api_key: key }));
    }
    let refused = |api_key, version| Err(FrameError::UnsupportedVersion { api_key, version });
    assert_eq!(read(1, 3), refused(ApiKey::Fetch, 3));
    assert_eq!(read(1, 4), Ok(ApiKey::Fetch));
    assert_eq!(read(1, 19), refused(ApiKey::Fetch, 19));
    // Advertised from 0 for old clients, still refused (rule P04).
    assert_eq!(read(0, 2), refused(ApiKey::Produce, 2));
    // Unstable: it can be read and written, and is not served.
    assert_eq!(read(22, 6), refused(ApiKey::InitProducerId, 6));
}

#[test]
fn p02_truncated_bodies_are_refused_and_bytes_behind_a_body_ignored() {
    let body = RequestBody::Metadata(MetadataRequest::default());
    let header = request_header(ApiKey::Metadata, 12, 1, None);
    let frame = without_size(encode_request(header, &body).expect("encodes"));
    for length in 0..frame.len() {
        let read = RequestStart::read(frame.slice(..length)).and_then(RequestStart::read_body);
        assert!(matches!(read, Err(FrameError::Decode(_))), "{length} bytes: {read:?}");
    }
    let mut long = frame.to_vec();
    long.push(0);
    let read = RequestStart::read(Bytes::from(long)).and_then(RequestStart::read_body);
    assert!(read.is_ok(), "as librdkafka sends it and Kafka reads it: {read:?}");
}

#[test]
fn a_response_frame_counts_records_that_are_not_in_its_buffer() {
    let body = FetchResponse {
        responses: vec![fetch_response::FetchableTopicResponse {
            partitions: vec![fetch_response::PartitionData {
                records: Some(Records::Bytes(Bytes::from_static(b"0123456789"))),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let parts = encode_response(3, ApiKey::Fetch, 16, &body.clone().into()).expect("encodes");
    assert_eq!(parts.len(), 3);
    let frame = without_size(parts);
    let read = decode_response(frame.clone(), 3, ApiKey::Fetch, 16);
    assert_eq!(read, Ok(ResponseBody::Fetch(body)));
    assert_eq!(
        decode_response(frame, 4, ApiKey::Fetch, 16),
        Err(FrameError::CorrelationMismatch { expected: 4, found: 3 })
    );
}

#[test]
fn a_body_is_only_written_in_versions_that_exist() {
    let body = RequestBody::ApiVersions(ApiVersionsRequest::default());
    let header = request_header(ApiKey::ApiVersions, 99, 1, None);
    assert!(matches!(
        encode_request(header, &body),
        Err(EncodeError::UnsupportedVersion { version: 99, .. })
    ));
}

#[test]
fn bodies_convert_to_their_messages_and_to_no_other() {
    let body = ResponseBody::from(MetadataResponse::default());
    assert_eq!(body.api_key(), <MetadataRequest as Request>::KEY);
    assert_eq!(MetadataResponse::try_from(body.clone()), Ok(MetadataResponse::default()));
    let wrong = WrongApi { expected: ApiKey::Fetch, found: ApiKey::Metadata };
    assert_eq!(FetchResponse::try_from(body), Err(wrong));
}

#[test]
fn p04_clients_are_told_of_produce_from_0_and_of_telemetry_not_at_all() {
    assert_eq!(ApiKey::Produce.valid_versions(), 3..=13);
    assert_eq!(ApiKey::Produce.advertised_versions(), Some(0..=13));
    assert_eq!(ApiKey::GetTelemetrySubscriptions.advertised_versions(), None);
    assert_eq!(ApiKey::PushTelemetry.advertised_versions(), None);
    assert_eq!(ApiKey::InitProducerId.valid_versions(), 0..=6);
    assert_eq!(ApiKey::InitProducerId.served_versions(), 0..=5);
    assert_eq!(ApiKey::InitProducerId.advertised_versions(), Some(0..=5));
    assert_eq!(ApiKey::Fetch.advertised_versions(), Some(4..=18));
}

/// The lines of a table of the specification, without its head.
fn spec_lines(name: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/spec").join(name);
    let Ok(text) = fs::read_to_string(&path) else {
        println!("SKIPPED: no {}", path.display());
        return Vec::new();
    };
    let cells = |line: &str| line.split('\t').map(|cell| cell.trim().to_owned()).collect();
    text.lines().skip(1).filter(|line| !line.is_empty()).map(cells).collect()
}

#[test]
fn the_table_of_apis_is_that_of_kafka() {
    let lines = spec_lines("apis.tsv");
    assert!(lines.is_empty() || lines.len() == ApiKey::ALL.len());
    for line in lines {
        let key = line[0].parse().ok().and_then(ApiKey::from_i16);
        let key = key.unwrap_or_else(|| panic!("no API {}", line[0]));
        let (first, last) = (*key.valid_versions().start(), *key.valid_versions().end());
        let (request, response) = (
            (key.request_header_version(first), key.request_header_version(last)),
            (key.response_header_version(first), key.response_header_version(last)),
        );
        assert_eq!(key.kafka_name(), line[1]);
        assert_eq!(format!("{first}-{last}"), line[2], "{key}");
        assert_eq!(format!("stable {}", key.served_versions().end()), line[3], "{key}");
        let headers = format!("min header {} max header {}", request.0, request.1);
        assert_eq!(headers, line[4], "{key}");
        assert_eq!(format!("response {}-{}", response.0, response.1), line[5], "{key}");
        let on_broker = line[6].contains("BROKER");
        assert_eq!(key.is_served_on(Listener::Broker), on_broker, "{key}");
        let on_controller = line[6].contains("CONTROLLER");
        assert_eq!(key.is_served_on(Listener::Controller), on_controller, "{key}");
        assert_eq!(key.is_cluster_action(), line.len() > 7, "{key}");
    }
}

#[test]
fn the_error_codes_are_those_of_kafka() {
    let lines = spec_lines("errors.tsv");
    assert!(lines.is_empty() || lines.len() == ErrorCode::ALL.len());
    for line in lines {
        let code = line[0].parse().expect("a number");
        let error = ErrorCode::known(code).unwrap_or_else(|| panic!("no error {code}"));
        assert_eq!((error.code(), error.kafka_name()), (code, line[1].as_str()));
        let retriable = line.get(2).is_some_and(|word| word == "retriable");
        assert_eq!(error.is_retriable(), retriable, "{error}");
    }
    assert_eq!(ErrorCode::known(999), None);
    assert_eq!(ErrorCode::from_code(999), ErrorCode::UnknownServerError);
    assert_eq!(ErrorCode::from_code(6), ErrorCode::NotLeaderOrFollower);
}
