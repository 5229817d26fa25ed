//! Every message of the protocol, generated from `schemas/*.json` by the crate's build script: one module
//! per message, its main struct re-exported here. The text of the generated code is in the
//! build's output folder under `messages/`.
//!
//! Fields hold plain values as they are on the wire. `Default` gives the schema's defaults, so code
//! writes the fields it means and `..Default::default()`.

use crate::api_key::ApiKey;
use crate::codec::{Decoder, Encoder, Message};
use crate::error::{DecodeError, EncodeError};
use crate::parts::{Part, join_parts};

/// What the generated modules use.
#[allow(unused_imports)]
mod prelude {
    pub(super) use std::ops::RangeInclusive;

    pub(super) use bytes::Bytes;

    pub(super) use crate::codec::{
        Decoder, Encoder, Message, UnknownTaggedField, check_no_tagged_fields, null_field,
        unsupported_field,
    };
    pub(super) use crate::encoder::KnownTag;
    pub(super) use crate::error::{DecodeError, EncodeError};
    pub(super) use crate::parts::Records;
    #[cfg(feature = "json")]
    pub(super) use crate::reflect::{
        FromJson, JsonError, JsonFields, JsonObject, Reflect, Source, ToJson, Value, arbitrary,
    };
    pub(super) use crate::types::Uuid;
}

/// A request, with the response that answers it.
pub trait Request: Message + Into<RequestBody> + TryFrom<RequestBody, Error = WrongApi> {
    /// What answers it.
    type Response: Message + Into<ResponseBody> + TryFrom<ResponseBody, Error = WrongApi>;
    /// The API of both.
    const KEY: ApiKey;
}

/// A body of one API where another was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a body of {found} where one of {expected} was expected")]
pub struct WrongApi {
    /// The API whose body was expected.
    pub expected: ApiKey,
    /// The API whose body was there.
    pub found: ApiKey,
}

macro_rules! body_conversions {
    ($bodies:ident, $api:ident, $message:ident) => {
        impl From<$message> for $bodies {
            fn from(message: $message) -> Self {
                $bodies::$api(message)
            }
        }

        impl TryFrom<$bodies> for $message {
            type Error = WrongApi;

            fn try_from(body: $bodies) -> Result<Self, WrongApi> {
                match body {
                    $bodies::$api(message) => Ok(message),
                    other => Err(WrongApi { expected: ApiKey::$api, found: other.api_key() }),
                }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/messages.rs"));

macro_rules! body_in_one_piece {
    ($bodies:ident) => {
        impl $bodies {
            /// The encoded body alone, in one piece: for bodies carried inside other protocols.
            pub fn to_bytes(&self, version: i16) -> Result<bytes::Bytes, EncodeError> {
                let parts: Vec<Part> =
                    crate::codec::encode_parts(&|encoder| self.encode(encoder, version))?;
                join_parts(parts).map_err(|error| EncodeError::ReadRecords(error.kind()))
            }

            /// Reads a body that fills `bytes`; bytes left over are an error.
            pub fn from_bytes(
                api_key: ApiKey,
                version: i16,
                bytes: bytes::Bytes,
            ) -> Result<Self, DecodeError> {
                let mut decoder = Decoder::new(bytes);
                let body = Self::decode(api_key, version, &mut decoder)?;
                decoder.finish()?;
                Ok(body)
            }
        }
    };
}

body_in_one_piece!(RequestBody);
body_in_one_piece!(ResponseBody);
