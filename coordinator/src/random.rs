//! Member ids: random, from a seed that the host hands in, so that a simulated run repeats itself.

use protocol::Uuid;

/// A small generator of random bits (splitmix64). Not for secrets.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// A generator that gives the same bits for the same seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^ (bits >> 31)
    }

    /// A random (version 4) id.
    pub(crate) fn uuid(&mut self) -> Uuid {
        let bits = u128::from(self.next()) << 64 | u128::from(self.next());
        let mut bytes = bits.to_be_bytes();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    /// A random id as 36 characters of dashed hexadecimal, the form in classic member ids.
    pub(crate) fn dashed_uuid(&mut self) -> String {
        let mut text = String::with_capacity(36);
        for (at, byte) in self.uuid().0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                text.push('-');
            }
            text.push_str(&format!("{byte:02x}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_the_form_of_random_uuids_and_repeat_with_the_seed() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        let id = one.dashed_uuid();
        assert_eq!(id, other.dashed_uuid());
        assert_ne!(id, one.dashed_uuid());
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert_eq!(id.bytes().filter(|byte| *byte == b'-').count(), 4);
    }
}
