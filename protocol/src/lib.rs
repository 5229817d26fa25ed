//! Kafka's bytes: messages generated from our schema files, frames and headers, record batches,
//! error codes and the id newtypes. No async, no sockets, no files.

pub mod api_key;
pub mod codec;
mod decoder;
mod encoder;
pub mod error;
pub mod error_code;
pub mod frame;
pub mod messages;
pub mod parts;
pub mod records;
#[cfg(feature = "json")]
pub mod reflect;
pub mod types;

pub use api_key::{ApiKey, Listener};
pub use codec::{Decoder, Encoder, Message, UnknownTaggedField};
pub use encoder::KnownTag;
pub use error::{DecodeError, EncodeError};
pub use error_code::ErrorCode;
pub use messages::{Request, RequestBody, ResponseBody, WrongApi};
pub use parts::{FileRegion, Part, Records, join_parts, parts_len};
pub use types::*;
