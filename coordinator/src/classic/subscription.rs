//! Reads what a consumer's metadata says of its topics. Version 0 is the beginning of all versions, so
//! that a version from the future can be read too; bytes that do not fit are no error, only unknown.

use bytes::{Buf, Bytes};
use protocol::messages::ConsumerProtocolSubscription;
use protocol::{Decoder, Message};

/// The topics of a consumer's subscription; `None` when the bytes are not one.
pub(crate) fn topics(metadata: &Bytes) -> Option<Vec<String>> {
    let mut bytes = metadata.clone();
    if bytes.len() < 2 || bytes.get_i16() < 0 {
        return None;
    }
    let subscription = ConsumerProtocolSubscription::decode(&mut Decoder::new(bytes), 0).ok()?;
    Some(subscription.topics)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_read_from_versions_that_are_not_known_yet() {
        let metadata = b"\0\x63\0\0\0\x01\0\x02t1\xff\xff\xff\xffmore";
        assert_eq!(topics(&Bytes::from_static(metadata)), Some(vec!["t1".to_owned()]));
    }

    #[test]
    fn other_bytes_are_unknown_topics() {
        for bytes in [&b""[..], b"\0", b"\0\0\0\0\x7f\xff", b"\xff\xff\0\0\0\0\xff\xff\xff\xff"] {
            assert_eq!(topics(&Bytes::copy_from_slice(bytes)), None, "{bytes:?}");
        }
    }
}
