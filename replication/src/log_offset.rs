//! A place in a log: the offset and, when it is known, the segment and the byte where it lies.
//!
//! The high watermark and every replica's log end are kept in this form, because a parked fetch is
//! counted in bytes between two of them without reading the log (rules F02, F04).

use std::fmt;

use protocol::Offset;

/// An offset with the place of its first byte. Message-only when the place is not known.
///
/// Equality compares all three fields; to compare progress, compare `offset`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LogOffsetMetadata {
    /// The offset, in records.
    pub offset: Offset,
    /// First offset of the segment that holds it; [`Offset::NONE`] when message-only.
    pub segment_base_offset: Offset,
    /// Position in that segment's file, in bytes; 0 when message-only.
    pub position: u32,
}

impl LogOffsetMetadata {
    /// No offset at all: what a leader knows of a follower that has not fetched yet.
    pub const UNKNOWN: LogOffsetMetadata = LogOffsetMetadata::message_only(Offset::NONE);

    /// An offset at byte `position` of the segment that starts at `segment_base_offset`.
    pub const fn new(offset: Offset, segment_base_offset: Offset, position: u32) -> Self {
        Self { offset, segment_base_offset, position }
    }

    /// An offset whose place is not known.
    pub const fn message_only(offset: Offset) -> Self {
        Self { offset, segment_base_offset: Offset::NONE, position: 0 }
    }

    /// Whether only the offset is known.
    pub fn is_message_only(&self) -> bool {
        self.segment_base_offset == Offset::NONE
    }

    /// Whether both places are known and lie in the same segment.
    pub fn is_on_same_segment(&self, other: &LogOffsetMetadata) -> bool {
        !self.is_message_only()
            && !other.is_message_only()
            && self.segment_base_offset == other.segment_base_offset
    }

    /// Whether both places are known and this one lies in an older segment than `other`.
    pub fn is_on_older_segment(&self, other: &LogOffsetMetadata) -> bool {
        !self.is_message_only()
            && !other.is_message_only()
            && self.segment_base_offset < other.segment_base_offset
    }

    /// Bytes from `earlier` to here; negative when `earlier` is later. `None` unless both are on
    /// the same segment.
    pub fn position_diff(&self, earlier: &LogOffsetMetadata) -> Option<i64> {
        self.is_on_same_segment(earlier)
            .then(|| i64::from(self.position) - i64::from(earlier.position))
    }
}

impl From<Offset> for LogOffsetMetadata {
    /// The message-only form.
    fn from(offset: Offset) -> Self {
        Self::message_only(offset)
    }
}

impl fmt::Display for LogOffsetMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_message_only() {
            write!(f, "{}", self.offset)
        } else {
            write!(f, "{}({}+{})", self.offset, self.segment_base_offset, self.position)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_counted_only_inside_one_segment() {
        let early = LogOffsetMetadata::new(Offset(10), Offset(0), 100);
        let late = LogOffsetMetadata::new(Offset(15), Offset(0), 260);
        let rolled = LogOffsetMetadata::new(Offset(20), Offset(20), 0);
        assert_eq!(late.position_diff(&early), Some(160));
        assert_eq!(early.position_diff(&late), Some(-160));
        assert_eq!(rolled.position_diff(&late), None);
        assert!(late.is_on_older_segment(&rolled));
        assert!(!rolled.is_on_older_segment(&late));
    }

    #[test]
    fn a_message_only_offset_is_on_no_segment() {
        let known = LogOffsetMetadata::new(Offset(10), Offset(0), 100);
        let bare = LogOffsetMetadata::message_only(Offset(12));
        assert!(!bare.is_on_same_segment(&bare));
        assert!(!known.is_on_older_segment(&bare));
        assert_eq!(bare.position_diff(&known), None);
    }
}
