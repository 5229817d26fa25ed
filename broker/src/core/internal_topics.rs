//! The topics that coordinators keep their state in, and which partition keeps what.

/// Groups and their offsets.
pub const GROUP_TOPIC: &str = "__consumer_offsets";
/// Transactions.
pub const TRANSACTION_TOPIC: &str = "__transaction_state";
/// The topics that clients see as internal and may not write to.
pub const INTERNAL_TOPICS: [&str; 2] = [GROUP_TOPIC, TRANSACTION_TOPIC];

/// The partition that a key belongs to: clients and brokers of Kafka compute the same. `None` when the
/// topic has no partitions.
pub fn partition_of(key: &str, partitions: i32) -> Option<i32> {
    let hash = java_hash(key);
    // Java's absolute value, and 0 for the one number that has none.
    let positive = hash.checked_abs().unwrap_or(0);
    positive.checked_rem(partitions)
}

/// `String.hashCode` of Java: over UTF-16 units.
fn java_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Kafka 4.4.0 does, measured: the offsets of `group-100` lie in partition 1 of 5.
    #[test]
    fn a_key_falls_into_the_partition_that_kafka_computes() {
        assert_eq!(java_hash("group-100"), -1_484_205_661);
        assert_eq!(partition_of("group-100", 5), Some(1));
        assert_eq!(partition_of("", 50), Some(0));
        // Of this text the hash is the smallest number there is.
        assert_eq!(java_hash("polygenelubricants"), i32::MIN);
        assert_eq!(partition_of("polygenelubricants", 50), Some(0));
        // Outside the first plane Java counts two units.
        assert_eq!(java_hash("\u{1F600}"), 0xD83D * 31 + 0xDE00);
        assert_eq!(partition_of("g", 0), None);
    }
}
