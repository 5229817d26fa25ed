//! How many operations a purgatory parks and completes in a second on one core, with others waiting beside
//! them, and what its timing wheels cost beside a sorted tree of the same deadlines.
//!
//! `cargo run --release -p testkit --example purgatory`

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant as Clock};

use replication::purgatory::{DelayedOperation, Purgatory, Trigger, Watch};
use replication::time::Instant;
use replication::timer::Timer;

/// Waits under one key for a number that never comes by itself.
struct Wait {
    key: u64,
    done: bool,
}

impl DelayedOperation for Wait {
    type Key = u64;

    fn is_satisfied(&self, trigger: Trigger<'_, u64>) -> bool {
        self.done && trigger == Trigger::Key(&self.key)
    }
}

/// Rounds per second of something done over and over for a second.
fn rate(mut round: impl FnMut(u64)) -> f64 {
    let began = Clock::now();
    let mut rounds = 0;
    while began.elapsed() < Duration::from_secs(1) {
        for _ in 0..1000 {
            round(rounds);
            rounds += 1;
        }
    }
    rounds as f64 / began.elapsed().as_secs_f64()
}

fn deadline(number: u64) -> Instant {
    Instant(Duration::from_micros(500_000 + number % 1000))
}

/// Parks an operation and completes it by an event, beside `others` that wait under keys of their own.
fn park_and_complete(others: u64) -> f64 {
    let purgatory = Purgatory::new();
    for key in 0..others {
        let waiting = Wait { key, done: false };
        assert!(matches!(purgatory.watch(waiting, [&key], deadline(key)), Watch::Parked(_)));
    }
    rate(|number| {
        let key = others + number % 1024;
        let parked = purgatory.watch_checked(Wait { key, done: true }, [&key], deadline(number));
        assert!(matches!(parked, Watch::Parked(_)));
        assert_eq!(purgatory.check(&key).len(), 1);
    })
}

/// Parks and takes back, beside `others` under the same key: many consumers of one partition.
fn park_and_cancel_under_one_key(others: u64) -> f64 {
    let purgatory = Purgatory::new();
    let key = 7;
    for number in 0..others {
        let _ = purgatory.watch(Wait { key, done: false }, [&key], deadline(number));
    }
    rate(|number| {
        let parked = purgatory.watch_checked(Wait { key, done: false }, [&key], deadline(number));
        let Watch::Parked(handle) = parked else { panic!("nothing satisfies it") };
        assert!(purgatory.cancel(&handle).is_some());
    })
}

fn wheel(others: u64) -> f64 {
    let mut timer = Timer::new();
    for number in 0..others {
        timer.schedule(deadline(number * 7919), number);
    }
    rate(|number| {
        let key = timer.schedule(deadline(number * 7919), number);
        black_box(timer.cancel(key));
    })
}

fn tree(others: u64) -> f64 {
    let mut tree = BTreeMap::new();
    for number in 0..others {
        tree.insert((deadline(number * 7919), number), number);
    }
    rate(|number| {
        let key = (deadline(number * 7919), others + number);
        tree.insert(key, number);
        black_box(tree.remove(&key));
    })
}

fn main() {
    let model = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    println!("machine: {}; one core is used", model.trim_start_matches(['\t', ':', ' ']));
    println!("command: cargo run --release -p testkit --example purgatory");
    println!(
        "{:>10} {:>22} {:>24} {:>16} {:>16}",
        "waiting", "park+complete /s", "park+cancel, one key /s", "wheel /s", "tree /s"
    );
    for others in [0, 1000, 10_000, 100_000] {
        println!(
            "{others:>10} {:>22.0} {:>24.0} {:>16.0} {:>16.0}",
            park_and_complete(others),
            park_and_cancel_under_one_key(others),
            wheel(others),
            tree(others)
        );
    }
}
