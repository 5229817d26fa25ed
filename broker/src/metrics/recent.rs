//! What is told of the last minutes rather than of everything since the start: quantiles, and rates that
//! decay. It is kept by whoever renders pages and brought up to date when a page is made, so that nothing
//! runs while nobody looks.
//!
//! Quantiles cover what came since five to ten minutes ago, or since the page before if that is longer
//! ago. Rates decay as Kafka's do, from page to page instead of every five seconds.

use std::collections::BTreeMap;
use std::time::Duration;

use replication::time::Instant;

use crate::counting::Snapshot;

/// The least time that quantiles cover.
const WINDOW: Duration = Duration::from_secs(300);

/// Where a histogram stood at two earlier moments.
#[derive(Debug)]
struct Window {
    older: Snapshot,
    newer: Snapshot,
    newer_at: Instant,
}

/// Recent parts of many histograms.
#[derive(Debug)]
pub struct RecentQuantiles<K> {
    windows: BTreeMap<K, Window>,
}

impl<K> Default for RecentQuantiles<K> {
    fn default() -> Self {
        Self { windows: BTreeMap::new() }
    }
}

impl<K: Ord> RecentQuantiles<K> {
    /// What is recent of the histogram `key`, which stands at `now_at` now.
    pub fn recent(&mut self, key: K, stands: &Snapshot, now: Instant) -> Snapshot {
        let window = self.windows.entry(key).or_insert_with(|| Window {
            older: Snapshot::default(),
            newer: Snapshot::default(),
            newer_at: now,
        });
        let recent = stands.since(&window.older);
        if now.since(window.newer_at) >= WINDOW {
            window.older = std::mem::replace(&mut window.newer, stands.clone());
            window.newer_at = now;
        }
        recent
    }
}

/// A rate per second, as it stood when it was last asked for.
#[derive(Clone, Copy, Debug)]
struct Rate {
    count: u64,
    at: Instant,
    per_second: f64,
}

/// Rates of many counters that decay over some minutes.
#[derive(Debug)]
pub struct DecayingRates<K: Ord> {
    over: Duration,
    rates: BTreeMap<K, Rate>,
}

impl<K: Ord> DecayingRates<K> {
    /// Rates over about so long.
    pub fn over(over: Duration) -> Self {
        Self { over, rates: BTreeMap::new() }
    }

    /// The rate of the counter `key`, which stands at `count` now. The first rate is that since `start`.
    pub fn rate(&mut self, key: K, count: u64, now: Instant, start: Instant) -> f64 {
        let over = self.over.as_secs_f64();
        let rate = self.rates.entry(key);
        let rate = rate.or_insert(Rate { count: 0, at: start, per_second: f64::NAN });
        let seconds = now.since(rate.at).as_secs_f64();
        if seconds > 0.0 {
            let lately = count.saturating_sub(rate.count) as f64 / seconds;
            rate.per_second = if rate.per_second.is_nan() {
                lately
            } else {
                let weight = 1.0 - (-seconds / over).exp();
                rate.per_second + weight * (lately - rate.per_second)
            };
            (rate.count, rate.at) = (count, now);
        }
        if rate.per_second.is_nan() { 0.0 } else { rate.per_second }
    }

    /// Forgets the counters that are gone.
    pub fn retain(&mut self, is_there: impl Fn(&K) -> bool) {
        self.rates.retain(|key, _| is_there(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counting::Histogram;

    fn at(seconds: u64) -> Instant {
        Instant(Duration::from_secs(seconds))
    }

    #[test]
    fn quantiles_forget_what_is_ten_minutes_old_and_never_what_is_newer_than_five() {
        let histogram = Histogram::default();
        let mut recent = RecentQuantiles::default();
        let mut median = |seconds: u64, value: Option<u64>| {
            value.into_iter().for_each(|value| histogram.record(value));
            let mut stands = Snapshot::default();
            histogram.add_to(&mut stands);
            recent.recent("times", &stands, at(seconds)).quantile(1.0)
        };
        assert_eq!(median(0, None), None);
        assert_eq!(median(10, Some(3)), Some(3.0));
        assert_eq!(median(300, None), Some(3.0));
        assert_eq!(median(310, Some(1)), Some(3.0));
        assert_eq!(median(600, None), Some(3.0));
        assert_eq!(median(620, None), Some(1.0), "only what came after 300 s");
        assert_eq!(median(900, None), Some(1.0));
        assert_eq!(median(901, None), None);
    }

    #[test]
    fn a_rate_begins_with_what_it_sees_and_decays_towards_what_it_sees_later() {
        let mut rates = DecayingRates::over(Duration::from_secs(900));
        assert_eq!(rates.rate("t", 0, at(0), at(0)), 0.0);
        assert_eq!(rates.rate("t", 1000, at(10), at(0)), 100.0);
        let later = rates.rate("t", 1000, at(910), at(0));
        assert!((later - 100.0 / std::f64::consts::E).abs() < 1e-6, "{later}");
        rates.retain(|_| false);
        assert_eq!(rates.rate("t", 0, at(1000), at(990)), 0.0);
    }
}
