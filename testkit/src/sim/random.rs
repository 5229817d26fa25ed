//! The one source of chance in a simulation: everything random is drawn from one seed, so that the
//! same seed tells the same story.

/// SplitMix64: small, fast, and the same on every machine and in every version of every crate.
#[derive(Clone, Debug)]
pub struct SimRandom {
    state: u64,
}

impl SimRandom {
    /// A generator that draws the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        // The bias of a 64-bit product is far below anything a simulation could notice.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `low..high`; `low` when the range is empty.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low))
    }

    /// True once in `times` draws.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of the items; `None` when there are none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// A generator of its own for a part of the simulation, so that more draws in one part do not
    /// change what another part sees.
    pub fn fork(&mut self) -> SimRandom {
        SimRandom::new(self.next_u64())
    }
}
