//! Which things a request names more than once. Found in one pass over the whole request: looking
//! through it again for each of its items would let a few megabytes keep the controller for hours.

use std::collections::BTreeSet;

/// The keys that come more than once.
pub(super) fn repeated<K: Ord>(keys: impl Iterator<Item = K>) -> BTreeSet<K> {
    let (mut seen, mut repeated) = (BTreeSet::new(), BTreeSet::new());
    for key in keys {
        if let Some(earlier) = seen.replace(key) {
            repeated.insert(earlier);
        }
    }
    repeated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_keys_that_come_twice_or_more_are_repeated() {
        let found = repeated(["a", "b", "a", "c", "a"].into_iter());
        assert_eq!(found, BTreeSet::from(["a"]));
        assert!(repeated(["a", "b"].into_iter()).is_empty());
    }
}
