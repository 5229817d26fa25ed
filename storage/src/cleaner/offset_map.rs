//! The last offset of every key in the dirty section, in bounded memory.
//!
//! A key is held by a 16-byte hash, as in Kafka: 24 bytes an entry whatever the key's length. The hash
//! is SipHash-2-4 with 128 bits of result under a seed of the caller's, so that nobody who writes
//! records can prepare two keys that are taken for one; by chance, that takes far more keys than a map
//! of any size holds. Memory grows with the keys that are there, up to the limit.
//!
//! Large maps are cut into shards by the hash, so that growing one does not hold the whole map twice.

use protocol::Offset;

/// Bytes of one entry.
const ENTRY_BYTES: usize = 24;
/// Slots that a shard begins with.
const FIRST_SLOTS: usize = 64;
/// From this many slots on, a map is cut into shards.
const SHARDED_FROM: usize = 1 << 14;
const SHARDS: usize = 16;

type Hash = [u64; 2];

#[derive(Clone, Copy, Debug)]
struct Slot {
    hash: Hash,
    /// Negative when the slot is free.
    offset: i64,
}

const FREE: Slot = Slot { hash: [0; 2], offset: -1 };

#[derive(Clone, Debug, Default)]
struct Shard {
    slots: Vec<Slot>,
    len: usize,
}

/// Key to last offset. [`OffsetMap::put`] says when it is full.
#[derive(Clone, Debug)]
pub struct OffsetMap {
    shards: Vec<Shard>,
    shard_slots: usize,
    load_factor: f64,
    latest_offset: Offset,
    seed: Hash,
}

impl OffsetMap {
    /// A map of at most `memory_bytes` (`log.cleaner.dedupe.buffer.size` divided by
    /// `log.cleaner.threads`), of which the fraction `load_factor` is used
    /// (`log.cleaner.io.buffer.load.factor`). It always holds one key.
    pub fn new(memory_bytes: usize, load_factor: f64, seed: [u64; 2]) -> Self {
        let slots = (memory_bytes / ENTRY_BYTES).max(2);
        let shards = if slots >= SHARDED_FROM { SHARDS } else { 1 };
        Self {
            shards: vec![Shard::default(); shards],
            shard_slots: slots / shards,
            load_factor: load_factor.clamp(0.01, 0.99),
            latest_offset: Offset(-1),
            seed,
        }
    }

    /// Forgets everything and gives the memory back.
    pub fn clear(&mut self) {
        self.shards.fill(Shard::default());
        self.latest_offset = Offset(-1);
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.len).sum()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that it takes now.
    pub fn memory_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.slots.len() * ENTRY_BYTES).sum()
    }

    /// The last offset of the section that the map speaks for: it knows nothing of later ones. -1
    /// for none.
    pub fn latest_offset(&self) -> Offset {
        self.latest_offset
    }

    /// The section reaches to `offset`.
    pub fn advance(&mut self, offset: Offset) {
        self.latest_offset = self.latest_offset.max(offset);
    }

    /// Notes that `key` was written at `offset`. `false`, and nothing noted, when the map is full.
    #[must_use]
    pub fn put(&mut self, key: &[u8], offset: Offset) -> bool {
        let hash = self.hash(key);
        let (limit, most) = (self.limit(self.shard_slots), self.shard_slots);
        let load_factor = self.load_factor;
        let shard = self.shard_mut(hash);
        if let Some(at) = shard.find(hash) {
            shard.slots[at].offset = shard.slots[at].offset.max(offset.0);
            self.advance(offset);
            return true;
        }
        if shard.len >= limit {
            return false;
        }
        if shard.len + 1 > limit_of(shard.slots.len(), load_factor) {
            shard.grow(most);
        }
        shard.insert(Slot { hash, offset: offset.0 });
        shard.len += 1;
        self.advance(offset);
        true
    }

    /// The last offset at which `key` was written in the section.
    pub fn get(&self, key: &[u8]) -> Option<Offset> {
        let hash = self.hash(key);
        let shard = &self.shards[self.shard_of(hash)];
        shard.find(hash).map(|at| Offset(shard.slots[at].offset))
    }

    fn shard_of(&self, hash: Hash) -> usize {
        (hash[1] % self.shards.len() as u64) as usize
    }

    fn shard_mut(&mut self, hash: Hash) -> &mut Shard {
        let at = self.shard_of(hash);
        &mut self.shards[at]
    }

    fn limit(&self, slots: usize) -> usize {
        limit_of(slots, self.load_factor).max(1)
    }

    fn hash(&self, key: &[u8]) -> Hash {
        siphash_128(self.seed, key)
    }
}

/// Keys that may stand in `slots`: one slot at least stays free, or a search would not end.
fn limit_of(slots: usize, load_factor: f64) -> usize {
    ((slots as f64 * load_factor) as usize).min(slots.saturating_sub(1))
}

impl Shard {
    /// The slot that holds `hash`.
    fn find(&self, hash: Hash) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.probe(hash);
        (self.slots[at].offset >= 0).then_some(at)
    }

    /// The slot that holds `hash`, or the free one where it belongs.
    fn probe(&self, hash: Hash) -> usize {
        let mut at = (hash[0] % self.slots.len() as u64) as usize;
        while self.slots[at].offset >= 0 && self.slots[at].hash != hash {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        at
    }

    fn insert(&mut self, slot: Slot) {
        let at = self.probe(slot.hash);
        self.slots[at] = slot;
    }

    fn grow(&mut self, most: usize) {
        let wanted = (self.slots.len() * 2).max(FIRST_SLOTS).min(most);
        let old = std::mem::replace(&mut self.slots, vec![FREE; wanted]);
        for slot in old.into_iter().filter(|slot| slot.offset >= 0) {
            self.insert(slot);
        }
    }
}

fn siphash_128(seed: Hash, bytes: &[u8]) -> Hash {
    let mut state = [
        seed[0] ^ 0x736f_6d65_7073_6575,
        seed[1] ^ 0x646f_7261_6e64_6f6d ^ 0xee,
        seed[0] ^ 0x6c79_6765_6e65_7261,
        seed[1] ^ 0x7465_6462_7974_6573,
    ];
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        absorb(&mut state, u64::from_le_bytes(word.try_into().unwrap_or_default()));
    }
    let mut last = [0; 8];
    let rest = words.remainder();
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len() as u8;
    absorb(&mut state, u64::from_le_bytes(last));
    state[2] ^= 0xee;
    let first = squeeze(&mut state);
    state[1] ^= 0xdd;
    [first, squeeze(&mut state)]
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn squeeze(state: &mut [u64; 4]) -> u64 {
    for _ in 0..4 {
        round(state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32);
    c = c.wrapping_add(b);
    a = a.wrapping_add(d);
    b = b.rotate_left(17) ^ c;
    d = d.rotate_left(21) ^ a;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash_with_128_bits() {
        let seed = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let bytes = |hash: Hash| -> Vec<u8> { hash.iter().flat_map(|h| h.to_le_bytes()).collect() };
        let hex = |hash| bytes(hash).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(hex(siphash_128(seed, b"")), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(siphash_128(seed, &[0])), "da87c1d86b99af44347659119b22fc45");
    }

    #[test]
    fn a_map_remembers_the_last_offset_of_every_key_until_it_is_full() {
        for memory in [0, 24 * 100, 24 * 50_000] {
            let mut map = OffsetMap::new(memory, 0.9, [1, 2]);
            let mut count = 0;
            while map.put(format!("key {count}").as_bytes(), Offset(count)) {
                count += 1;
                assert!(count < 60_000, "no bound");
            }
            let wanted = (memory / 24) as f64 * 0.9;
            assert!(count >= 1 && count as f64 >= wanted * 0.95 - 1.0, "{count} of {wanted}");
            assert!(count as f64 <= wanted.max(1.0), "{count} of {wanted}");
            assert!(map.memory_bytes() <= memory.max(48));
            assert_eq!(map.len(), count as usize);
            assert_eq!(map.latest_offset(), Offset(count - 1));
            assert!(map.put(b"key 0", Offset(count)), "a known key needs no room");
            assert_eq!(map.get(b"key 0"), Some(Offset(count)));
            for at in 1..count {
                assert_eq!(map.get(format!("key {at}").as_bytes()), Some(Offset(at)));
            }
            assert_eq!(map.get(b"another"), None);
            map.clear();
            assert!(map.is_empty() && map.memory_bytes() == 0);
        }
    }
}
