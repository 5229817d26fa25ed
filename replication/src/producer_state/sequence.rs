//! Arithmetic of producer sequence numbers: 31 bits, so 0 follows 2147483647 (rule X01).

/// "No sequence": a batch without an idempotent producer, or a producer that wrote no batch yet.
pub const NO_SEQUENCE: i32 = -1;

/// The sequence `by` places after `sequence`, past the wrap where needed. Both must be >= 0.
pub fn advance(sequence: i32, by: i32) -> i32 {
    let sum = i64::from(sequence) + i64::from(by);
    (sum % (i64::from(i32::MAX) + 1)) as i32
}

/// The sequence `by` places before `sequence`, past the wrap where needed. Both must be >= 0.
pub fn go_back(sequence: i32, by: i32) -> i32 {
    let difference = i64::from(sequence) - i64::from(by);
    difference.rem_euclid(i64::from(i32::MAX) + 1) as i32
}

/// Whether `next` may follow a batch that ended at `last` ([`NO_SEQUENCE`] before the first one).
pub fn follows(last: i32, next: i32) -> bool {
    i64::from(next) == i64::from(last) + 1 || (last == i32::MAX && next == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_follows_the_largest_sequence() {
        assert_eq!(advance(i32::MAX, 1), 0);
        assert_eq!(advance(i32::MAX - 1, 3), 1);
        assert_eq!(go_back(0, 1), i32::MAX);
        assert_eq!(go_back(1, 3), i32::MAX - 1);
        assert!(follows(i32::MAX, 0));
        assert!(follows(NO_SEQUENCE, 0));
        assert!(!follows(i32::MAX, 1));
    }
}
