//! Kafka's error codes, generated from `schemas/errors.json`.

use std::fmt;

include!(concat!(env!("OUT_DIR"), "/error_code.rs"));

impl ErrorCode {
    /// The number on the wire.
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// The error with this code; a code nobody knows reads as [`ErrorCode::UnknownServerError`].
    pub fn from_code(code: i16) -> ErrorCode {
        ErrorCode::known(code).unwrap_or(ErrorCode::UnknownServerError)
    }

    /// Whether this is [`ErrorCode::None`].
    pub fn is_none(self) -> bool {
        self == ErrorCode::None
    }
}

impl From<ErrorCode> for i16 {
    fn from(error: ErrorCode) -> i16 {
        error.code()
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kafka_name())
    }
}
