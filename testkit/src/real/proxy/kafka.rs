//! Kafka's frames on a link between brokers: their sizes, their names, and who dialed.
//!
//! A frame is copied as it is; of a request only the head is looked at (API, correlation id, client id), of
//! an answer the correlation id.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;
use protocol::ApiKey;
use protocol::frame::{SIZE_PREFIX_BYTES, check_frame_size};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::connection::{Connection, Direction, Frame, Part};
use super::message::Message;
use crate::real::NodeId;

/// The largest frame that is carried, in bytes, without its size.
pub(super) const MOST_FRAME_BYTES: usize = 256 << 20;
/// Requests whose answers can still be named; older ones are forgotten.
const MOST_ASKED: usize = 1024;
/// Room made before any byte has come.
const FIRST_ROOM_BYTES: usize = 64 << 10;

/// The requests of a connection that were not answered yet, by correlation id.
pub(super) type Asked = VecDeque<(i32, ApiKey)>;

/// Carries frames into the lane until the source ends.
pub(super) async fn read(
    connection: &Connection,
    direction: Direction,
    first: Option<Bytes>,
    source: &mut (impl AsyncRead + Unpin),
) -> io::Result<()> {
    let mut next = first;
    loop {
        let bytes = match next.take() {
            Some(bytes) => bytes,
            None => match read_frame(source).await? {
                Some(bytes) => bytes,
                None => return Ok(()),
            },
        };
        let name = match direction {
            Direction::Up => name_of_request(&bytes, &mut connection.asked.lock()),
            Direction::Down => name_of_answer(&bytes, &mut connection.asked.lock()),
        };
        let frame = Frame { part: Part::Message, stream: 0, name, begins: true, window: 0, bytes };
        if !connection.offer(direction, frame).await {
            return Ok(());
        }
    }
}

/// One frame with its size before it; `None` at the end.
///
/// # Errors
/// Of kind `InvalidData` for what cannot be a frame of Kafka, as TLS cannot.
pub(super) async fn read_frame(source: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut prefix = [0; SIZE_PREFIX_BYTES];
    if source.read(&mut prefix[..1]).await? == 0 {
        return Ok(None);
    }
    source.read_exact(&mut prefix[1..]).await?;
    let size = check_frame_size(prefix, MOST_FRAME_BYTES)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    // Grown as bytes arrive: a size that is not true costs no memory.
    let mut frame = Vec::with_capacity(SIZE_PREFIX_BYTES + size.min(FIRST_ROOM_BYTES));
    frame.extend_from_slice(&prefix);
    let read = source.take(size as u64).read_to_end(&mut frame).await?;
    if read < size {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame.into()))
}

fn number(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<i16> {
    Some(i16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn name_of_request(frame: &[u8], asked: &mut Asked) -> Option<Message> {
    let key = ApiKey::from_i16(short(frame, SIZE_PREFIX_BYTES)?)?;
    let correlation_id = number(frame, SIZE_PREFIX_BYTES + 4)?;
    if asked.len() == MOST_ASKED {
        asked.pop_front();
    }
    asked.push_back((correlation_id, key));
    Some(Message::Request(key))
}

fn name_of_answer(frame: &[u8], asked: &mut Asked) -> Option<Message> {
    let correlation_id = number(frame, SIZE_PREFIX_BYTES)?;
    let at = asked.iter().position(|(id, _)| *id == correlation_id)?;
    asked.remove(at).map(|(_, key)| Message::Answer(key))
}

/// The node that sent this first request, by its client id: `broker-3-fetcher-0` and the like, as
/// followers of Kafka and of Highwater call themselves. `None` for everybody else.
pub(super) fn dialer(frame: &[u8]) -> Option<NodeId> {
    let at = SIZE_PREFIX_BYTES + 8;
    let length = usize::try_from(short(frame, at)?).ok()?;
    let client_id = std::str::from_utf8(frame.get(at + 2..at + 2 + length)?).ok()?;
    let (node, _) = client_id.strip_prefix("broker-")?.split_once('-')?;
    node.parse().ok()
}

#[cfg(test)]
mod tests {
    use protocol::RequestBody;
    use protocol::frame::{encode_request, request_header};
    use protocol::messages::FetchRequest;

    use super::*;

    fn fetch(client_id: Option<&str>) -> Bytes {
        let header = request_header(ApiKey::Fetch, 17, 7, client_id);
        let body = RequestBody::Fetch(FetchRequest::default());
        protocol::join_parts(encode_request(header, &body).expect("encoded")).expect("bytes")
    }

    #[test]
    fn a_follower_is_known_by_its_client_id_and_an_answer_by_its_question() {
        assert_eq!(dialer(&fetch(Some("broker-12-fetcher-0"))), Some(12));
        for other in [None, Some("broker-x-fetcher-0"), Some("broker-1"), Some("rdkafka")] {
            assert_eq!(dialer(&fetch(other)), None);
        }
        let mut asked = Asked::new();
        let message = name_of_request(&fetch(None), &mut asked);
        assert_eq!(message, Some(Message::Request(ApiKey::Fetch)));
        let answer = [0, 0, 0, 4, 0, 0, 0, 7];
        assert_eq!(name_of_answer(&answer, &mut asked), Some(Message::Answer(ApiKey::Fetch)));
        assert_eq!(name_of_answer(&answer, &mut asked), None, "answered once");
    }

    #[test]
    fn a_head_that_ends_too_soon_names_nothing() {
        let whole = fetch(Some("broker-1-fetcher-0"));
        for end in 0..whole.len().min(20) {
            name_of_request(&whole[..end], &mut Asked::new());
            name_of_answer(&whole[..end], &mut Asked::new());
            assert_eq!(dialer(&whole[..end]), None);
        }
    }
}
