//! HTTP/2 frames on a link of the control plane: enough of them to know each request by its name.
//!
//! Every request is a stream of its own, so its DATA frames can wait or be lost while all others go on.
//! Heads are never touched, since compression makes them build on each other, and so they say nothing
//! here: a stream is known by the shape of its first message (`controller/proto/control.proto`, whose
//! fields only grow). A `CallRequest` has its API's number as field 2 and a body as field 4, a
//! `RaftFrame` has bytes as field 3, and what is neither asks for the metadata.
//!
//! What this allows: every request that a node makes of a controller can be held or lost by the name of its
//! API, committed metadata can be held on its way to one node, raft messages on their way to one
//! controller. What it does not: answers of controllers, whose ends are heads.

use std::collections::BTreeMap;
use std::io;

use bytes::Bytes;
use protocol::ApiKey;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::connection::{Connection, Direction, Frame, Part};
use super::message::Message;

const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD_BYTES: usize = 9;
/// The largest payload that is carried, in bytes; nobody here asks for more than HTTP/2's 16 KiB.
const MOST_PAYLOAD_BYTES: usize = 1 << 20;
/// Streams that are known at a time; the oldest are forgotten.
const MOST_STREAMS: usize = 4096;
/// gRPC's flag and length before a message.
const GRPC_PREFIX_BYTES: usize = 5;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const PADDED: u8 = 8;
const INTERNAL_ERROR: u32 = 2;

/// What a stream is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Call(Option<ApiKey>),
    Raft,
    Metadata,
    /// Its first bytes said nothing; what comes later is not a beginning.
    Unknown,
}

/// The streams of a connection, by number.
pub(super) type Streams = BTreeMap<u32, Shape>;

/// Carries frames into the lane until the source ends.
pub(super) async fn read(
    connection: &Connection,
    direction: Direction,
    source: &mut (impl AsyncRead + Unpin),
) -> io::Result<()> {
    if direction == Direction::Up {
        let mut preface = [0; PREFACE.len()];
        source.read_exact(&mut preface).await?;
        if preface != *PREFACE {
            return Err(invalid("this is not HTTP/2 without TLS"));
        }
        let bytes = Bytes::from_static(PREFACE);
        let frame =
            Frame { part: Part::Other, stream: 0, name: None, begins: false, window: 0, bytes };
        connection.offer(direction, frame).await;
    }
    while let Some(bytes) = read_frame(source).await? {
        let frame = understand(bytes, direction, &mut connection.streams.lock());
        if !connection.offer(direction, frame).await {
            return Ok(());
        }
    }
    Ok(())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn read_frame(source: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Bytes>> {
    let mut head = [0; HEAD_BYTES];
    if source.read(&mut head[..1]).await? == 0 {
        return Ok(None);
    }
    source.read_exact(&mut head[1..]).await?;
    let size = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    if size > MOST_PAYLOAD_BYTES {
        return Err(invalid("a frame of HTTP/2 is too large"));
    }
    let mut frame = vec![0; HEAD_BYTES + size];
    frame[..HEAD_BYTES].copy_from_slice(&head);
    source.read_exact(&mut frame[HEAD_BYTES..]).await?;
    Ok(Some(frame.into()))
}

/// Names a whole frame, and learns of its stream.
fn understand(bytes: Bytes, direction: Direction, streams: &mut Streams) -> Frame {
    let (kind, flags) = (bytes[3], bytes[4]);
    let stream = u32::from_be_bytes([bytes[5] & 0x7f, bytes[6], bytes[7], bytes[8]]);
    let window = (bytes.len() - HEAD_BYTES) as u32;
    match kind {
        DATA => {
            let known = streams.get(&stream).copied();
            let shape = match direction {
                Direction::Up if known.is_none() && window > 0 => {
                    Some(message(&bytes, flags).and_then(shape).unwrap_or(Shape::Unknown))
                }
                Direction::Up => known,
                Direction::Down => known,
            };
            if let (None, Some(shape)) = (known, shape) {
                if streams.len() == MOST_STREAMS {
                    streams.pop_first();
                }
                streams.insert(stream, shape);
            }
            let name = match (shape, direction) {
                (Some(Shape::Call(key)), Direction::Up) => key.map(Message::Request),
                (Some(Shape::Raft), Direction::Up) => Some(Message::Raft),
                (Some(Shape::Metadata), Direction::Down) => Some(Message::MetadataStream),
                _ => None,
            };
            let is_endless = matches!(shape, Some(Shape::Raft | Shape::Metadata));
            let begins = is_endless || known.is_none();
            Frame { part: Part::Data, stream, name, begins, window, bytes }
        }
        HEADERS => Frame { part: Part::Head, stream, name: None, begins: false, window: 0, bytes },
        RST_STREAM => {
            streams.remove(&stream);
            Frame { part: Part::Reset, stream, name: None, begins: false, window: 0, bytes }
        }
        _ => Frame { part: Part::Other, stream: 0, name: None, begins: false, window: 0, bytes },
    }
}

/// The bytes of the first message that a DATA frame begins with.
fn message(frame: &[u8], flags: u8) -> Option<&[u8]> {
    let payload = &frame[HEAD_BYTES..];
    let data = match flags & PADDED {
        0 => payload,
        _ => payload.get(1..payload.len().checked_sub(usize::from(*payload.first()?))?)?,
    };
    // Compressed messages have the flag set.
    (*data.first()? == 0).then(|| data.get(GRPC_PREFIX_BYTES..))?
}

/// What the message is; it may end in the middle.
fn shape(message: &[u8]) -> Option<Shape> {
    let (mut rest, mut second, mut kinds) = (message, 0, [None; 5]);
    while let Some((tag, after)) = varint(rest) {
        let (field, kind) = ((tag >> 3) as usize, (tag & 7) as u8);
        if let Some(place) = kinds.get_mut(field) {
            *place = Some(kind);
        }
        rest = match kind {
            0 => {
                let Some((value, after)) = varint(after) else { break };
                if field == 2 {
                    second = value;
                }
                after
            }
            2 => {
                let Some((length, after)) = varint(after) else { break };
                match usize::try_from(length).ok().and_then(|length| after.get(length..)) {
                    Some(after) => after,
                    None => break,
                }
            }
            _ => return None,
        };
    }
    match (kinds[3], kinds[4]) {
        (Some(2), _) | (_, Some(0)) => Some(Shape::Raft),
        (_, Some(2)) => Some(Shape::Call(i16::try_from(second).ok().and_then(ApiKey::from_i16))),
        _ if kinds[1].is_some() => Some(Shape::Metadata),
        _ => None,
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0;
    for (at, byte) in bytes.iter().enumerate().take(10) {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, &bytes[at + 1..]));
        }
    }
    None
}

fn frame(kind: u8, stream: u32, number: u32) -> Bytes {
    let mut bytes = vec![0, 0, 4, kind, 0];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(number.to_be_bytes());
    bytes.into()
}

/// Gives so many bytes back to the window of the whole connection.
pub(super) fn window_update(bytes: u32) -> Bytes {
    frame(WINDOW_UPDATE, 0, bytes.min(0x7fff_ffff))
}

/// Ends a stream before its time.
pub(super) fn reset(stream: u32) -> Bytes {
    frame(RST_STREAM, stream, INTERNAL_ERROR)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of a message: a number or bytes.
    fn field(number: u8, value: Result<u8, &[u8]>) -> Vec<u8> {
        match value {
            Ok(value) => vec![number << 3, value],
            Err(bytes) => [&[number << 3 | 2, bytes.len() as u8], bytes].concat(),
        }
    }

    fn call(key: u8) -> Vec<u8> {
        let fields = [field(1, Err(b"cluster")), field(2, Ok(key)), field(3, Ok(3))];
        [fields.concat(), field(4, Err(b"body"))].concat()
    }

    fn data(stream: u8, payload: &[u8], flags: u8) -> Bytes {
        let head = [0, 0, payload.len() as u8, DATA, flags, 0, 0, 0, stream];
        [&head, payload].concat().into()
    }

    fn grpc(message: &[u8]) -> Vec<u8> {
        [&[0, 0, 0, 0, message.len() as u8], message].concat()
    }

    #[test]
    fn each_message_of_the_control_plane_is_known_by_its_shape_also_when_it_is_cut_short() {
        let id = field(1, Err(b"cluster"));
        let alter = Shape::Call(Some(ApiKey::AlterPartition));
        let key = ApiKey::AlterPartition.to_i16() as u8;
        assert_eq!(shape(&call(key)), Some(alter));
        assert_eq!(shape(&call(key)[..call(key).len() - 2]), Some(alter));
        let raft = [id.clone(), field(2, Ok(1)), field(3, Err(b"vote"))].concat();
        assert_eq!(shape(&raft), Some(Shape::Raft));
        assert_eq!(
            shape(&[id.clone(), field(2, Ok(9)), field(3, Ok(1))].concat()),
            Some(Shape::Metadata)
        );
        assert_eq!(shape(&id), Some(Shape::Metadata), "from offset 0, by node 0");
        assert_eq!(shape(&[]), None);
        assert_eq!(shape(&[0x0f, 0xff]), None);
    }

    #[test]
    fn frames_of_a_stream_are_named_by_its_first_message_and_padding_is_left_out() {
        let mut streams = Streams::new();
        let key = ApiKey::BrokerHeartbeat.to_i16() as u8;
        let first = understand(data(1, &grpc(&call(key)), 0), Direction::Up, &mut streams);
        assert_eq!(first.name, Some(Message::Request(ApiKey::BrokerHeartbeat)));
        assert!(first.begins && first.window > 0);
        let second = understand(data(1, &[1, 2, 3], 0), Direction::Up, &mut streams);
        assert_eq!((second.name, second.begins), (first.name, false));
        let answer = understand(data(1, &[0; 9], 0), Direction::Down, &mut streams);
        assert_eq!(answer.name, None);
        let padded = [&[2], &grpc(&call(key))[..], &[0, 0]].concat();
        let third = understand(data(3, &padded, PADDED), Direction::Up, &mut streams);
        assert_eq!(third.name, first.name);
        for odd in [data(5, &[], PADDED), data(5, &[200, 1], PADDED), data(5, &[1, 0], 0)] {
            assert_eq!(understand(odd, Direction::Up, &mut streams).name, None);
        }
    }
}
