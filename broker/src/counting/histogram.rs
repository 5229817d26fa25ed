//! A histogram of buckets that grow with what they hold: four to every doubling, so a quantile is off by
//! an eighth at most. Recording costs two relaxed additions, one for a value of 0.

use std::array;

use super::Counter;

/// Buckets to every doubling, as a power of two.
const SHIFT: u32 = 2;
/// Values below this have a bucket each.
const EXACT: u64 = 1 << SHIFT;
/// Values from here on are in the last bucket: 19 hours in microseconds, 64 GiB.
const LIMIT_BITS: u32 = 36;
/// How many buckets there are.
pub const BUCKETS: usize = ((LIMIT_BITS - SHIFT + 1) << SHIFT) as usize;

/// Counts values by size.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: array::from_fn(|_| Counter::default()), sum: Counter::default() }
    }
}

impl Histogram {
    /// Counts `value`.
    pub fn record(&self, value: u64) {
        self.buckets[bucket_of(value)].add(1);
        if value > 0 {
            self.sum.add(value);
        }
    }

    /// Adds what was counted so far to `snapshot`.
    pub fn add_to(&self, snapshot: &mut Snapshot) {
        for (total, bucket) in snapshot.buckets.iter_mut().zip(&self.buckets) {
            *total += bucket.get();
        }
        snapshot.sum += self.sum.get();
    }
}

/// A histogram at one moment, or the difference of two moments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    buckets: Vec<u64>,
    sum: u64,
}

impl Default for Snapshot {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS], sum: 0 }
    }
}

impl Snapshot {
    /// How many values there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// All values together.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Adds the values of another one.
    pub fn add(&mut self, other: &Snapshot) {
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own += other;
        }
        self.sum += other.sum;
    }

    /// What came since `earlier`.
    pub fn since(&self, earlier: &Snapshot) -> Snapshot {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Snapshot {
            buckets: pairs.map(|(now, then)| now.saturating_sub(*then)).collect(),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// The value that the part `quantile` of all values does not exceed; `None` without values.
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        // The values wanted below, at least one: the smallest value is the answer to 0.
        let wanted = (quantile * count as f64).max(1.0);
        let mut below = 0.0;
        for (at, in_bucket) in self.buckets.iter().enumerate() {
            let in_bucket = *in_bucket as f64;
            if below + in_bucket >= wanted {
                let (low, high) = bounds(at);
                let part = (wanted - below) / in_bucket;
                return Some(low as f64 + (high - low) as f64 * part);
            }
            below += in_bucket;
        }
        Some(bounds(BUCKETS - 1).1 as f64)
    }
}

fn bucket_of(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let bits = u64::BITS - value.leading_zeros();
    if bits > LIMIT_BITS {
        return BUCKETS - 1;
    }
    let doubling = bits - SHIFT - 1;
    let within = (value >> doubling) & (EXACT - 1);
    (((doubling + 1) << SHIFT) + within as u32) as usize
}

/// The smallest and the largest value of a bucket.
fn bounds(bucket: usize) -> (u64, u64) {
    if bucket < EXACT as usize {
        return (bucket as u64, bucket as u64);
    }
    let doubling = (bucket >> SHIFT) as u32 - 1;
    let within = bucket as u64 & (EXACT - 1);
    let low = (EXACT + within) << doubling;
    (low, low + (1 << doubling) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_within_the_bounds_of_its_bucket_and_the_buckets_follow_each_other() {
        let mut next = 0;
        for bucket in 0..BUCKETS {
            let (low, high) = bounds(bucket);
            assert_eq!(low, next, "bucket {bucket}");
            assert!((high - low) * 4 <= low.max(4), "bucket {bucket} is too wide");
            for value in [low, (low + high) / 2, high] {
                assert_eq!(bucket_of(value), bucket, "value {value}");
            }
            next = high + 1;
        }
        assert_eq!(next, 1 << LIMIT_BITS);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_right_to_an_eighth() {
        let histogram = Histogram::default();
        (1..=10_000).for_each(|value| histogram.record(value));
        let mut snapshot = Snapshot::default();
        histogram.add_to(&mut snapshot);
        assert_eq!((snapshot.count(), snapshot.sum()), (10_000, 50_005_000));
        for quantile in [0.001, 0.5, 0.75, 0.95, 0.99, 0.999, 1.0] {
            let told = snapshot.quantile(quantile).expect("values");
            let exact = quantile * 10_000.0;
            assert!((told - exact).abs() <= exact / 8.0, "{quantile}: {told}");
        }
    }

    #[test]
    fn a_difference_holds_only_what_came_between_and_nothing_has_no_quantile() {
        let histogram = Histogram::default();
        histogram.record(1_000_000);
        let (mut before, mut after) = (Snapshot::default(), Snapshot::default());
        histogram.add_to(&mut before);
        assert_eq!(before.since(&before).quantile(0.5), None);
        histogram.record(0);
        histogram.record(3);
        histogram.add_to(&mut after);
        let between = after.since(&before);
        assert_eq!((between.count(), between.sum()), (2, 3));
        assert_eq!(between.quantile(0.5), Some(0.0));
        assert_eq!(between.quantile(0.999), Some(3.0));
    }
}
