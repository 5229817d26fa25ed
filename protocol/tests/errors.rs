//! The walk over the error codes of a response, as metrics count them.

use protocol::ResponseBody;
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::{
    ApiVersionsResponse, DescribeTopicPartitionsResponse, FetchResponse, HeartbeatResponse,
    SaslHandshakeResponse,
};

fn errors(response: impl Into<ResponseBody>) -> Vec<i16> {
    let mut codes = Vec::new();
    response.into().visit_errors(&mut |code| codes.push(code));
    codes
}

#[test]
fn a_response_gives_its_own_error_and_those_of_all_its_parts() {
    let partition = |error_code| PartitionData { error_code, ..PartitionData::default() };
    let topic = |errors: &[i16]| FetchableTopicResponse {
        partitions: errors.iter().copied().map(partition).collect(),
        ..FetchableTopicResponse::default()
    };
    let response = FetchResponse {
        error_code: 70,
        throttle_time_ms: 5,
        responses: vec![topic(&[0, 6]), topic(&[]), topic(&[3])],
        ..FetchResponse::default()
    };
    assert_eq!(ResponseBody::from(response.clone()).throttle_time_ms(), 5);
    let mut codes = errors(response);
    codes.sort_unstable();
    assert_eq!(codes, [0, 3, 6, 70]);
    assert_eq!(errors(HeartbeatResponse { error_code: 27, ..Default::default() }), [27]);
    assert_eq!(errors(ApiVersionsResponse::default()), [0]);
    assert_eq!(errors(DescribeTopicPartitionsResponse::default()), [0; 0]);
}

#[test]
fn a_response_without_a_throttle_time_holds_nobody_back() {
    assert_eq!(ResponseBody::from(SaslHandshakeResponse::default()).throttle_time_ms(), 0);
}
