//! Kafka's bytes: messages generated from our schema files, frames and headers, record batches,
//! error codes and the id newtypes. No async, no sockets, no files.

pub mod records;
pub mod types;

pub use types::*;
