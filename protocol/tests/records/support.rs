//! Batches for tests: well-formed ones, and ones with any byte changed under a right checksum.

use bytes::Bytes;
use protocol::Offset;
use protocol::records::{
    Attributes, BATCH_HEADER_BYTES, BatchBuilder, BatchView, Codec, Compression, ReadBuffer,
};

/// Where fields lie in a batch.
pub mod at {
    pub const BASE_OFFSET: usize = 0;
    pub const LENGTH: usize = 8;
    pub const MAGIC: usize = 16;
    pub const CRC: usize = 17;
    pub const ATTRIBUTES: usize = 21;
    pub const LAST_OFFSET_DELTA: usize = 23;
    pub const MAX_TIMESTAMP: usize = 35;
    pub const PRODUCER_ID: usize = 43;
    pub const BASE_SEQUENCE: usize = 53;
    pub const COUNT: usize = 57;
}

/// The clock of all produce tests, in milliseconds since 1970.
pub const NOW: i64 = 1_700_000_000_000;

pub const ALL_CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

/// A batch of `count` small records, all at [`NOW`].
pub fn simple(count: i32, codec: impl Into<Codec>) -> Vec<u8> {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(codec);
    for i in 0..count {
        let value = format!("value {i}");
        builder.append(NOW, Some(b"key"), Some(value.as_bytes()), []).expect("a small record fits");
    }
    builder.build().expect("a small batch fits").to_vec()
}

/// `batch` with `bytes` written at `position` and the checksum made right again.
pub fn with(mut batch: Vec<u8>, position: usize, bytes: &[u8]) -> Vec<u8> {
    batch[position..position + bytes.len()].copy_from_slice(bytes);
    sealed(batch)
}

/// `batch` with length field and checksum of what is there.
pub fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    let length = (batch.len() - 12) as i32;
    batch[at::LENGTH..at::LENGTH + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[at::ATTRIBUTES..]);
    batch[at::CRC..at::CRC + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch that counts `count` records and holds `payload` as they are stored.
pub fn holding(count: i32, compression: Compression, payload: &[u8]) -> Vec<u8> {
    let mut batch = simple(1, Compression::None);
    batch.truncate(BATCH_HEADER_BYTES);
    batch.extend_from_slice(payload);
    let attributes = Attributes::default().with_compression(compression).0.to_be_bytes();
    batch[at::ATTRIBUTES..at::ATTRIBUTES + 2].copy_from_slice(&attributes);
    batch[at::LAST_OFFSET_DELTA..at::LAST_OFFSET_DELTA + 4]
        .copy_from_slice(&(count - 1).to_be_bytes());
    batch[at::COUNT..at::COUNT + 4].copy_from_slice(&count.to_be_bytes());
    sealed(batch)
}

/// A zigzag varint, for records made by hand.
pub fn varint(value: i64) -> Vec<u8> {
    let mut raw = ((value << 1) ^ (value >> 63)) as u64;
    let mut out = Vec::new();
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
    out
}

/// A record by its body, with the length in front.
pub fn record(body: &[&[u8]]) -> Vec<u8> {
    let body = body.concat();
    [varint(body.len() as i64), body].concat()
}

/// A plain record with these deltas, key and no value.
pub fn plain_record(timestamp_delta: i64, offset_delta: i64, key: Option<&[u8]>) -> Vec<u8> {
    let key = match key {
        None => varint(-1),
        Some(key) => [varint(key.len() as i64), key.to_vec()].concat(),
    };
    record(&[&[0], &varint(timestamp_delta), &varint(offset_delta), &key, &varint(-1), &[0]])
}

/// A record as tests compare it.
#[derive(Clone, PartialEq, Debug)]
pub struct OwnedRecord {
    pub timestamp: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// All records of `batch`, which must be well formed.
pub fn read_all(batch: &[u8]) -> Vec<OwnedRecord> {
    let view = BatchView::parse(batch).expect("a whole batch");
    let mut buffer = ReadBuffer::new();
    let records = view.records(&mut buffer, 64 << 20).expect("records that can be decompressed");
    records
        .map(|record| {
            let record = record.expect("a well-formed record");
            OwnedRecord {
                timestamp: record.timestamp,
                key: record.key.map(<[u8]>::to_vec),
                value: record.value.map(<[u8]>::to_vec),
                headers: record
                    .headers
                    .map(|header| (header.key.to_vec(), header.value.map(<[u8]>::to_vec)))
                    .collect(),
            }
        })
        .collect()
}

/// `bytes` as a request would hold them.
pub fn shared(bytes: Vec<u8>) -> Bytes {
    Bytes::from(bytes)
}
