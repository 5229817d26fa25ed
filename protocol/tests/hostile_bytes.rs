//! Decoders trust nothing: random bytes and damaged messages, through every decoder and every version,
//! neither panic nor make anything allocate much more than they are long themselves.

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use common::{AnyMessage, Random, all_messages, golden_lines};
use protocol::frame::{RequestStart, decode_response};
use protocol::messages::{DescribeClientQuotasRequest, ListGroupsResponse, OffsetDeleteRequest};
use protocol::{ApiKey, DecodeError, Message};

/// Counts per thread what is asked of the system's allocator.
struct Counting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(asked: usize, change: isize) {
    // A thread that is ending has no counters any more.
    let _ = LARGEST.try_with(|largest| largest.set(largest.get().max(asked)));
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// The trait itself is unsafe; every call is handed on unchanged.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), layout.size() as isize);
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, -(layout.size() as isize));
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, size as isize - layout.size() as isize);
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The largest single allocation and the most memory held at once while `run` ran, in bytes.
fn allocations(run: impl FnOnce()) -> (usize, usize) {
    LARGEST.set(0);
    PEAK.set(LIVE.get());
    let before = LIVE.get();
    run();
    (LARGEST.get(), (PEAK.get() - before) as usize)
}

/// What damaged and random bytes may cost. A struct in memory is larger than its fewest bytes on the wire
/// (an empty string is one byte there and 24 here); the worst seen is 14 bytes for one.
const MEMORY_PER_BYTE: usize = 24;
/// What small inputs may cost whatever they hold.
const MEMORY_FLOOR: usize = 1024;

fn check(name: &str, message: &AnyMessage, version: i16, input: Vec<u8>) -> bool {
    let length = input.len();
    let bytes = Bytes::from(input);
    let kept = bytes.clone();
    let mut accepted = false;
    let (largest, peak) = allocations(|| accepted = (message.decode)(bytes, version));
    let limit = MEMORY_FLOOR + MEMORY_PER_BYTE * length;
    assert!(
        largest <= limit && peak <= limit,
        "{name} version {version}: {largest} at once, {peak} in all for {length} bytes {kept:?}"
    );
    accepted
}

fn damage(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let at = random.below(damaged.len());
        match random.below(6) {
            0 => damaged.truncate(at),
            1 if at < damaged.len() => damaged[at] = random.next() as u8,
            2 if at < damaged.len() => damaged[at] ^= 1 << random.below(8),
            3 => damaged.splice(at..at, [0xff, 0xff, 0xff, 0x7f]).for_each(drop),
            4 if at + 4 <= damaged.len() => {
                damaged[at..at + 4].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff]);
            }
            _ => damaged.push(random.next() as u8),
        }
    }
    damaged
}

#[test]
fn damaged_golden_messages_neither_panic_nor_allocate_much() {
    let mut random = Random(0x0da3_a6ed);
    let messages = all_messages();
    let (mut cases, mut accepted) = (0u64, 0u64);
    for line in golden_lines() {
        let message = &messages[line.message.as_str()];
        for _ in 0..200 {
            let input = damage(&mut random, &line.bytes);
            // Now and then through the decoder of another version.
            let spread = (message.last_version - message.first_version + 1) as usize;
            let version = match random.below(4) {
                0 => message.first_version + random.below(spread) as i16,
                _ => line.version,
            };
            accepted += u64::from(check(&line.message, message, version, input));
            cases += 1;
        }
    }
    println!("{cases} damaged messages, {accepted} still messages");
}

#[test]
fn random_bytes_neither_panic_nor_allocate_much() {
    let mut random = Random(0xbad_b17e5);
    for (name, message) in all_messages() {
        for version in message.first_version..=message.last_version {
            for round in 0..150 {
                let length = random.below(if round % 10 == 0 { 2000 } else { 80 });
                // Few distinct small values get deeper into a message than even bytes do.
                let small = random.below(2) == 0;
                let byte = |random: &mut Random| match random.below(8) {
                    0..=5 if small => random.below(4) as u8,
                    _ => random.next() as u8,
                };
                let input = (0..length).map(|_| byte(&mut random)).collect();
                check(name, &message, version, input);
            }
        }
    }
}

#[test]
fn runs_of_one_byte_neither_panic_nor_allocate_much() {
    for (name, message) in all_messages() {
        for version in message.first_version..=message.last_version {
            for byte in [0, 1, 2, 3, 0x10, 0x7f, 0x80, 0xfe, 0xff] {
                check(name, &message, version, vec![byte; 300]);
            }
        }
    }
}

#[test]
fn whatever_decodes_encodes_and_decodes_to_the_same() {
    let mut random = Random(0x5a3e);
    let messages = all_messages();
    for line in golden_lines() {
        let message = &messages[line.message.as_str()];
        for _ in 0..20 {
            let input = Bytes::from(damage(&mut random, &line.bytes));
            let Ok(first) = (message.round_trip)(input, line.version) else {
                continue;
            };
            let encoded = first.encoded.expect("what was read can be written");
            let second = (message.round_trip)(encoded.clone(), line.version);
            let second = second.expect("what was written can be read");
            assert_eq!(second.fields, first.fields, "{}", line.place);
            assert_eq!(second.encoded, Ok(encoded), "{}", line.place);
        }
    }
}

#[test]
fn headers_and_frames_of_random_bytes_neither_panic_nor_allocate_much() {
    let mut random = Random(0xf4a3e);
    for _ in 0..100_000 {
        let mut input: Vec<u8> =
            (0..random.below(60)).map(|_| random.next() as u8 & 0x4f).collect();
        if input.len() > 4 && random.below(4) > 0 {
            input[..4].copy_from_slice(&[0, random.below(96) as u8, 0, random.below(6) as u8]);
        }
        let frame = Bytes::from(input);
        let length = frame.len();
        let answered = ApiKey::ALL[random.below(ApiKey::ALL.len())];
        let version = *answered.valid_versions().end();
        let (largest, _) = allocations(|| {
            let _ = decode_response(frame.clone(), 0, answered, version);
            if let Ok(start) = RequestStart::read(frame) {
                let _ = start.read_body();
            }
        });
        assert!(largest <= MEMORY_FLOOR + MEMORY_PER_BYTE * length, "{largest} for {length}");
    }
}

#[test]
fn an_array_cannot_promise_more_than_the_frame_can_hold() {
    // A topic takes six bytes, so two billion of them do not fit into ten (KAFKA-2878, rule P03).
    let mut input = vec![0, 0];
    input.extend([0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]);
    let bytes = Bytes::from(input);
    let (largest, _) = allocations(|| {
        assert!(matches!(
            OffsetDeleteRequest::from_bytes(bytes, 0),
            Err(DecodeError::InvalidLength { length: 0x7fff_ffff, left: 6, .. })
        ));
    });
    assert!(largest < 100, "{largest}");
}

#[test]
fn the_smallest_size_of_an_element_bounds_the_array() {
    // A component takes four bytes at least: type, match type, match, tags. With `strict` and the
    // request's tags at the end, fourteen bytes hold three components and no fourth.
    let input = |count: u8| {
        let mut input = vec![count + 1];
        input.extend([1, 0, 0, 0].repeat(3));
        input.extend([0, 0]);
        DescribeClientQuotasRequest::from_bytes(Bytes::from(input), 1)
    };
    assert_eq!(input(3).map(|request| request.components.len()), Ok(3));
    assert_eq!(input(4), Err(DecodeError::InvalidLength { at: 0, length: 4, left: 14 }));
}

#[test]
fn many_real_elements_of_the_smallest_size_cost_a_bounded_multiple() {
    // The worst there is: 100,000 groups of four empty strings, five bytes each.
    let mut input = vec![0; 6];
    input.extend([0xa1, 0x8d, 0x06]);
    input.extend([1, 1, 1, 1, 0].repeat(100_000));
    input.push(0);
    let length = input.len();
    let bytes = Bytes::from(input);
    let mut groups = 0;
    let (_, peak) = allocations(|| {
        let read = ListGroupsResponse::from_bytes(bytes, 5).expect("a response");
        groups = read.groups.len();
    });
    assert_eq!(groups, 100_000);
    assert!(peak < 64 * length, "{peak} for {length}");
}

#[test]
fn lengths_that_cannot_be_true_are_refused() {
    // The largest varint that fits 32 bits as the length of an array.
    let large = Bytes::from_static(b"\xff\xff\xff\xff\x0f\0");
    assert!(matches!(
        DescribeClientQuotasRequest::from_bytes(large, 1),
        Err(DecodeError::InvalidLength { .. })
    ));
    for fifth_byte in [0x10, 0x7f, 0x80, 0xff] {
        let mut input = vec![0xff; 4];
        input.extend([fifth_byte, 0, 0, 0]);
        assert_eq!(
            DescribeClientQuotasRequest::from_bytes(Bytes::from(input), 1),
            Err(DecodeError::InvalidVarint { at: 0 })
        );
    }
    let endless = Bytes::from_static(b"\xff\xff\xff\xff\xff\x0f");
    assert_eq!(
        DescribeClientQuotasRequest::from_bytes(endless, 1),
        Err(DecodeError::InvalidVarint { at: 0 })
    );
    // What is not UTF-8 is replaced, as in Kafka, but for what could not be sent back.
    let not_utf8 = Bytes::from_static(b"\0\x03a\xff\xfe\0\0\0\0");
    let read = OffsetDeleteRequest::from_bytes(not_utf8, 0).expect("a string all the same");
    assert_eq!(read.group_id, "a\u{fffd}\u{fffd}");
    let mut long = i16::MAX.to_be_bytes().to_vec();
    long.resize(2 + i16::MAX as usize, 0xff);
    long.extend([0; 4]);
    assert_eq!(
        OffsetDeleteRequest::from_bytes(Bytes::from(long), 0),
        Err(DecodeError::InvalidUtf8 { at: 2 })
    );
    let trailing = Bytes::from_static(b"\0\0\0\0\0\0\0");
    assert_eq!(
        OffsetDeleteRequest::from_bytes(trailing, 0),
        Err(DecodeError::TrailingBytes { left: 1 })
    );
}
