//! The bytes of the quorum's log files: frames of entries, each written by one append and synced
//! before the next, so that a crash can tear at most the last frame of the last file.
//!
//! A file is a 16-byte head (magic, sequence number) and frames. A frame is
//! `body length: u32, CRC32C of the body: u32, body`, and a body is
//! `first index: u64, count: u32`, then per entry `term: u64, length: u32, data`. All big endian.
//! A frame may start at an index that an earlier one has already: it replaces that one's rest. So
//! nothing durable is ever cut from a file while an entry before it counts.

use super::LogEntry;

pub(super) const HEAD_BYTES: usize = 16;
const MAGIC: &[u8; 8] = b"HWQLOG\x00\x01";
const FRAME_HEAD_BYTES: usize = 8;
const BODY_HEAD_BYTES: usize = 12;
const ENTRY_HEAD_BYTES: usize = 12;

/// Where an entry's data lies in its file, and what it must read as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) term: u64,
    pub(super) at: u64,
    pub(super) length: u32,
    pub(super) crc: u32,
}

/// A frame found in a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) first_index: u64,
    pub(super) places: Vec<Place>,
}

/// What a file holds.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) frames: Vec<Frame>,
    /// The length of the head and the whole frames.
    pub(super) valid_bytes: usize,
    /// The position of a whole frame behind bytes that are none: no crash leaves that.
    pub(super) frame_after_damage: Option<usize>,
}

pub(super) fn head(sequence: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(MAGIC);
    head[8..].copy_from_slice(&sequence.to_be_bytes());
    head
}

/// Appends a frame with `entries` to `buffer`, which will be written at `position` of its file, and
/// returns the entries' places there.
pub(super) fn encode_frame(
    entries: &[LogEntry],
    position: u64,
    buffer: &mut Vec<u8>,
) -> Vec<Place> {
    let frame_start = buffer.len();
    let first_index = entries.first().map_or(0, |entry| entry.index);
    buffer.extend_from_slice(&[0; FRAME_HEAD_BYTES]);
    buffer.extend_from_slice(&first_index.to_be_bytes());
    buffer.extend_from_slice(&(entries.len() as u32).to_be_bytes());
    let mut places = Vec::with_capacity(entries.len());
    for entry in entries {
        buffer.extend_from_slice(&entry.term.to_be_bytes());
        buffer.extend_from_slice(&(entry.data.len() as u32).to_be_bytes());
        places.push(Place {
            term: entry.term,
            at: position + (buffer.len() - frame_start) as u64,
            length: entry.data.len() as u32,
            crc: crc32c::crc32c(&entry.data),
        });
        buffer.extend_from_slice(&entry.data);
    }
    let body = &buffer[frame_start + FRAME_HEAD_BYTES..];
    let (length, crc) = (body.len() as u32, crc32c::crc32c(body));
    buffer[frame_start..frame_start + 4].copy_from_slice(&length.to_be_bytes());
    buffer[frame_start + 4..frame_start + 8].copy_from_slice(&crc.to_be_bytes());
    places
}

/// Reads a whole file; `None` when its head is not that of the file `sequence`.
pub(super) fn scan(bytes: &[u8], sequence: u64) -> Option<Scan> {
    if bytes.get(..HEAD_BYTES)? != head(sequence) {
        return None;
    }
    let mut frames = Vec::new();
    let mut position = HEAD_BYTES;
    while let Some((frame, length)) = read_frame(bytes, position) {
        frames.push(frame);
        position += length;
    }
    let frame_after_damage =
        (position + 1..bytes.len()).find(|candidate| read_frame(bytes, *candidate).is_some());
    Some(Scan { frames, valid_bytes: position, frame_after_damage })
}

/// The whole frame at `position` and its length; `None` when there is none.
fn read_frame(bytes: &[u8], position: usize) -> Option<(Frame, usize)> {
    let rest = bytes.get(position..)?;
    let length = read_u32(rest, 0)? as usize;
    let crc = read_u32(rest, 4)?;
    if length < BODY_HEAD_BYTES + ENTRY_HEAD_BYTES {
        return None;
    }
    let body = rest.get(FRAME_HEAD_BYTES..FRAME_HEAD_BYTES.checked_add(length)?)?;
    // The shape first: it is cheap, and a search through damage tries every position.
    let frame = read_body(body, (position + FRAME_HEAD_BYTES) as u64)?;
    (crc32c::crc32c(body) == crc).then_some((frame, FRAME_HEAD_BYTES + length))
}

fn read_body(body: &[u8], body_position: u64) -> Option<Frame> {
    let first_index = read_u64(body, 0)?;
    let count = read_u32(body, 8)? as usize;
    if first_index == 0 || count == 0 || count > body.len() / ENTRY_HEAD_BYTES {
        return None;
    }
    let mut places = Vec::with_capacity(count);
    let mut at = BODY_HEAD_BYTES;
    for _ in 0..count {
        let term = read_u64(body, at)?;
        let length = read_u32(body, at + 8)?;
        at += ENTRY_HEAD_BYTES;
        let data = body.get(at..at.checked_add(length as usize)?)?;
        let crc = crc32c::crc32c(data);
        places.push(Place { term, at: body_position + at as u64, length, crc });
        at += length as usize;
    }
    (at == body.len()).then_some(Frame { first_index, places })
}

pub(super) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_be_bytes)
}

pub(super) fn read_u64(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(index: u64, term: u64, data: &'static str) -> LogEntry {
        LogEntry { index, term, data: Bytes::from_static(data.as_bytes()) }
    }

    fn file_with_two_frames() -> (Vec<u8>, usize) {
        let mut bytes = head(4).to_vec();
        encode_frame(&[entry(1, 1, ""), entry(2, 1, "one")], HEAD_BYTES as u64, &mut bytes);
        let first_end = bytes.len();
        encode_frame(&[entry(3, 2, "two")], first_end as u64, &mut bytes);
        (bytes, first_end)
    }

    #[test]
    fn frames_read_back_with_the_places_they_were_written_at() {
        let (bytes, _) = file_with_two_frames();
        let scan = scan(&bytes, 4).expect("the head matches");
        assert_eq!(scan.valid_bytes, bytes.len());
        assert_eq!(scan.frames.len(), 2);
        let place = scan.frames[1].places[0];
        let data = &bytes[place.at as usize..place.at as usize + place.length as usize];
        assert_eq!((scan.frames[1].first_index, place.term, data), (3, 2, &b"two"[..]));
    }

    #[test]
    fn every_cut_of_the_last_frame_leaves_the_first() {
        let (bytes, first_end) = file_with_two_frames();
        for cut in first_end..bytes.len() {
            let scan = scan(&bytes[..cut], 4).expect("the head matches");
            assert_eq!((scan.frames.len(), scan.valid_bytes), (1, first_end), "cut at {cut}");
            assert_eq!(scan.frame_after_damage, None);
        }
    }

    #[test]
    fn every_flipped_byte_of_the_first_frame_is_told_from_a_torn_end() {
        let (bytes, first_end) = file_with_two_frames();
        for at in HEAD_BYTES..first_end {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x40;
            let scan = scan(&damaged, 4).expect("the head matches");
            assert_eq!(scan.frames.len(), 0, "flipped at {at}");
            assert_eq!(scan.frame_after_damage, Some(first_end), "flipped at {at}");
        }
    }
}
