//! What can go wrong between bytes and messages. A decoding error is the peer's (or the disk's)
//! fault and closes the connection (rule P02); an encoding error is ours.

/// Why bytes are not the message they were said to be. Never a panic, whatever the bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("{wanted} more bytes wanted at byte {at}, {left} left")]
    Truncated {
        /// Position in the frame, in bytes.
        at: usize,
        /// How many bytes the value takes.
        wanted: usize,
        /// How many bytes are there.
        left: usize,
    },
    /// A length that cannot be true: negative, over a limit, or more than what is left can hold.
    #[error("impossible length {length} at byte {at}, {left} bytes left")]
    InvalidLength {
        /// Position in the frame, in bytes.
        at: usize,
        /// The length read, in elements or bytes.
        length: i64,
        /// How many bytes are left.
        left: usize,
    },
    /// A variable-length integer that does not end or does not fit.
    #[error("malformed variable-length integer at byte {at}")]
    InvalidVarint {
        /// Position in the frame, in bytes.
        at: usize,
    },
    /// A string that is not UTF-8, and is too long once what is wrong in it is replaced.
    #[error("long string at byte {at} is not UTF-8")]
    InvalidUtf8 {
        /// Position in the frame, in bytes.
        at: usize,
    },
    /// Null where this version of the message allows none.
    #[error("null before byte {at}, where the version allows none")]
    UnexpectedNull {
        /// Position after the null, in bytes.
        at: usize,
    },
    /// A tagged field whose content is not as long as its size says.
    #[error("tagged field {tag} has {left} bytes more than its content")]
    TaggedFieldSize {
        /// The tag.
        tag: u32,
        /// How many bytes its content left unread.
        left: usize,
    },
    /// Bytes after the end of the message.
    #[error("{left} bytes after the end of the message")]
    TrailingBytes {
        /// How many.
        left: usize,
    },
    /// The message has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
}

/// Why a message cannot be written in a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The message has no such version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// The message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// The field holds a value that matters, and this version cannot carry it.
    #[error("{structure}.{field} is set, but version {version} cannot carry it")]
    UnsupportedField {
        /// The struct.
        structure: &'static str,
        /// The field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// The field is null, and this version allows no null.
    #[error("{structure}.{field} is null, but version {version} allows none")]
    UnexpectedNull {
        /// The struct.
        structure: &'static str,
        /// The field.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A string, array or message longer than its length field can say.
    #[error("{length} bytes or elements are too many for the length field")]
    TooLong {
        /// The length.
        length: usize,
    },
    /// Two fields share a tag, or an unknown one uses a tag that the version defines.
    #[error("tag {tag} is used twice")]
    DuplicateTag {
        /// The tag.
        tag: u32,
    },
    /// Records in a file were to be copied into memory and could not be read.
    #[error("records could not be read from their file: {0}")]
    ReadRecords(std::io::ErrorKind),
}
