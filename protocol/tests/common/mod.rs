//! What the protocol's tests share: the golden lines, a source of random bits, and any
//! message behind one interface.
#![allow(dead_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use protocol::messages::visit_messages;
use protocol::reflect::{Reflect, Value, Visitor};
use protocol::{DecodeError, Decoder, EncodeError};

/// One line of a golden file.
pub struct Golden {
    /// Where it stands, for messages of failing tests.
    pub place: String,
    pub message: String,
    pub version: i16,
    pub bytes: Bytes,
    pub fields: Value,
}

/// The folder with bytes that Apache Kafka wrote, or `None`, said aloud, when it is not here.
pub fn golden_folder() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/golden");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("SKIPPED: no golden bytes at {}", folder.display());
    None
}

/// All lines of the golden message and coordinator record files.
pub fn golden_lines() -> Vec<Golden> {
    let Some(folder) = golden_folder() else {
        return Vec::new();
    };
    let files = [
        "messages.jsonl",
        "group-coordinator-records.jsonl",
        "transaction-coordinator-records.jsonl",
    ];
    let mut lines = Vec::new();
    for file in files {
        let text = fs::read_to_string(folder.join(file)).expect("golden file");
        for (number, line) in text.lines().enumerate() {
            let value: Value = serde_json::from_str(line).expect("golden line");
            let text = |key: &str| value[key].as_str().expect("a string").to_owned();
            lines.push(Golden {
                place: format!("{file}:{} {} {}", number + 1, text("message"), text("case")),
                message: text("message"),
                version: value["version"].as_i64().expect("a version") as i16,
                bytes: Bytes::from(unhex(&text("hex"))),
                fields: value["fields"].clone(),
            });
        }
    }
    lines
}

pub fn unhex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2), "odd hex");
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex"))
        .collect()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// splitmix64: repeatable bits from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// What decoding a message and encoding it again gave.
pub struct RoundTrip {
    pub fields: Value,
    pub encoded: Result<Bytes, EncodeError>,
    pub encoded_size: Result<usize, EncodeError>,
    /// The bytes of the message that the fields make.
    pub from_fields: Result<Bytes, String>,
}

type RoundTripFn = fn(Bytes, i16) -> Result<RoundTrip, DecodeError>;

/// A message type as values, so that tests can choose one by its name.
#[derive(Clone, Copy)]
pub struct AnyMessage {
    pub first_version: i16,
    pub last_version: i16,
    pub round_trip: RoundTripFn,
    /// Only decodes; true when the bytes were a message.
    pub decode: fn(Bytes, i16) -> bool,
    /// Fills a message at random, writes and reads it; a text says what went wrong.
    pub check_random: fn(&mut Random, i16) -> Result<(), String>,
}

fn round_trip<M: Reflect>(bytes: Bytes, version: i16) -> Result<RoundTrip, DecodeError> {
    let message = M::from_bytes(bytes, version)?;
    let fields = message.to_json(version);
    let from_fields = M::from_json(&fields, version).map_err(|error| error.to_string());
    Ok(RoundTrip {
        fields,
        from_fields: from_fields
            .and_then(|message| message.to_bytes(version).map_err(|error| error.to_string())),
        encoded: message.to_bytes(version),
        encoded_size: message.encoded_size(version),
    })
}

fn decode_only<M: Reflect>(bytes: Bytes, version: i16) -> bool {
    let mut decoder = Decoder::new(bytes);
    M::decode(&mut decoder, version).is_ok_and(|_| decoder.finish().is_ok())
}

fn check_random<M: Reflect + PartialEq + std::fmt::Debug>(
    random: &mut Random,
    version: i16,
) -> Result<(), String> {
    let message = M::arbitrary(&mut || random.next(), version);
    let problem = |what: &str| format!("{what}: {} version {version}, {message:?}", M::NAME);
    let bytes = message.to_bytes(version).map_err(|error| problem(&error.to_string()))?;
    if bytes.len() < M::MIN_SIZE {
        return Err(problem("smaller than MIN_SIZE"));
    }
    if message.encoded_size(version) != Ok(bytes.len()) {
        return Err(problem("size and bytes disagree"));
    }
    let again =
        M::from_bytes(bytes.clone(), version).map_err(|error| problem(&error.to_string()))?;
    if again != message {
        return Err(problem(&format!("came back as {again:?}")));
    }
    // Every proper prefix lacks something.
    let cut = random.below(bytes.len());
    if cut < bytes.len() && M::from_bytes(bytes.slice(..cut), version).is_ok() {
        return Err(problem(&format!("the first {cut} bytes alone were accepted")));
    }
    Ok(())
}

struct Registry(BTreeMap<&'static str, AnyMessage>);

impl Visitor for Registry {
    fn visit<M: Reflect + Clone + std::fmt::Debug + Default + PartialEq>(&mut self) {
        let message = AnyMessage {
            first_version: *M::VERSIONS.start(),
            last_version: *M::VERSIONS.end(),
            round_trip: round_trip::<M>,
            decode: decode_only::<M>,
            check_random: check_random::<M>,
        };
        self.0.insert(M::NAME, message);
    }
}

/// Every message by its name.
pub fn all_messages() -> BTreeMap<&'static str, AnyMessage> {
    let mut registry = Registry(BTreeMap::new());
    visit_messages(&mut registry);
    registry.0
}
