//! Any bytes through the decoder of any API, version and direction. The first two bytes choose; what
//! decodes must encode, and the encoding must decode to the same.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use protocol::frame::RequestStart;
use protocol::{ApiKey, RequestBody, ResponseBody};

fuzz_target!(|input: &[u8]| {
    let [api, choice, body @ ..] = input else {
        return;
    };
    let body = Bytes::copy_from_slice(body);
    if *api == 0xff {
        let _ = RequestStart::read(body).and_then(RequestStart::read_body);
        return;
    }
    let api_key = ApiKey::ALL[usize::from(*api) % ApiKey::ALL.len()];
    let versions = api_key.valid_versions();
    let spread = versions.end() - versions.start() + 1;
    let version = versions.start() + i16::from(choice >> 1) % spread;
    // A double may be NaN, which equals nothing, so bytes are compared and not messages.
    if choice & 1 == 0 {
        let Ok(request) = RequestBody::from_bytes(api_key, version, body) else {
            return;
        };
        let bytes = request
            .to_bytes(version)
            .expect("what was read can be written");
        let again = RequestBody::from_bytes(api_key, version, bytes.clone());
        assert_eq!(
            again
                .expect("what was written can be read")
                .to_bytes(version),
            Ok(bytes)
        );
    } else {
        let Ok(response) = ResponseBody::from_bytes(api_key, version, body) else {
            return;
        };
        let bytes = response
            .to_bytes(version)
            .expect("what was read can be written");
        let again = ResponseBody::from_bytes(api_key, version, bytes.clone());
        assert_eq!(
            again
                .expect("what was written can be read")
                .to_bytes(version),
            Ok(bytes)
        );
    }
});
