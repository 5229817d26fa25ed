//! The purgatory: exactly once, nothing missed, one order (rules F02, F04, P05).

use replication::purgatory::{
    DelayedOperation, Purgatory, StandingWatch, Trigger, Watch, WatchHandle,
};
use replication::time::Instant;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn at(ms: u64) -> Instant {
    Instant(Duration::from_millis(ms))
}

/// Satisfied once the shared counter reaches `wants`.
#[derive(Debug)]
struct Wait {
    name: u32,
    counter: Arc<AtomicUsize>,
    wants: usize,
    evaluations: Arc<AtomicUsize>,
    /// Raises the counter when evaluated for this time: a change that slips in.
    bump_at: Option<usize>,
}

impl DelayedOperation for Wait {
    type Key = u32;
    fn is_satisfied(&self, _: Trigger<'_, u32>) -> bool {
        let seen = self.counter.load(Ordering::SeqCst) >= self.wants;
        let evaluation = self.evaluations.fetch_add(1, Ordering::SeqCst);
        if self.bump_at == Some(evaluation) {
            self.counter.fetch_add(1, Ordering::SeqCst);
        }
        seen
    }
}

fn wait(name: u32, counter: &Arc<AtomicUsize>, wants: usize) -> Wait {
    Wait { name, counter: counter.clone(), wants, evaluations: Arc::default(), bump_at: None }
}

fn parked(watch: Watch<Wait>) -> WatchHandle<Wait> {
    match watch {
        Watch::Parked(handle) => handle,
        Watch::Satisfied(wait) => panic!("{wait:?} was satisfied"),
    }
}

fn names(operations: Vec<Wait>) -> Vec<u32> {
    operations.into_iter().map(|operation| operation.name).collect()
}

#[test]
fn an_operation_completes_at_once_when_it_is_satisfied() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(1));
    let watch = purgatory.watch(wait(1, &counter, 1), &[1], at(10));
    assert!(matches!(watch, Watch::Satisfied(_)));
    assert_eq!((purgatory.delayed(), purgatory.watched()), (0, 0));
}

#[test]
fn f04_a_change_between_the_first_look_and_the_registration_is_not_missed() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let slips_in = Wait { bump_at: Some(0), ..wait(1, &counter, 1) };
    let watch = purgatory.watch(slips_in, &[1], at(10));
    assert!(matches!(watch, Watch::Satisfied(_)));
    assert_eq!(purgatory.delayed(), 0);
    assert!(purgatory.check(&1).is_empty());
}

#[test]
fn a_check_takes_the_satisfied_in_the_order_they_came_and_only_once() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    parked(purgatory.watch(wait(1, &counter, 2), &[1, 2], at(10)));
    parked(purgatory.watch(wait(2, &counter, 1), &[2, 1], at(5)));
    parked(purgatory.watch(wait(3, &counter, 1), &[1], at(7)));
    assert!(purgatory.check(&1).is_empty());
    counter.store(1, Ordering::SeqCst);
    assert!(purgatory.check(&3).is_empty(), "nobody waits there");
    assert_eq!(names(purgatory.check(&1)), [2, 3]);
    assert!(purgatory.check(&2).is_empty(), "2 is gone from its other key too");
    assert_eq!((purgatory.delayed(), purgatory.waiting_under(&1)), (1, 1));
    counter.store(2, Ordering::SeqCst);
    assert_eq!(names(purgatory.check(&2)), [1]);
    assert_eq!(purgatory.delayed(), 0);
    assert!(names(purgatory.expire(at(100))).is_empty());
}

#[test]
fn deadlines_are_kept_to_the_instant_and_in_order() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    for (name, deadline) in [(1, 10), (2, 5), (3, 5)] {
        parked(purgatory.watch(wait(name, &counter, 1), &[name], at(deadline)));
    }
    assert_eq!(purgatory.next_deadline(), Some(at(5)));
    assert!(purgatory.expire(at(4)).is_empty());
    assert_eq!(names(purgatory.expire(at(5))), [2, 3]);
    counter.store(1, Ordering::SeqCst);
    assert!(purgatory.check(&2).is_empty(), "expired is completed");
    assert_eq!(names(purgatory.expire(at(10))), [1]);
    assert_eq!(purgatory.next_deadline(), None);
}

#[test]
fn p05_a_cancelled_operation_is_handed_back_once_and_never_completes() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let handle = parked(purgatory.watch(wait(1, &counter, 1), &[1], at(10)));
    assert_eq!(purgatory.cancel(&handle).map(|wait| wait.name), Some(1));
    assert!(purgatory.cancel(&handle).is_none());
    counter.store(1, Ordering::SeqCst);
    assert!(purgatory.check(&1).is_empty());
    assert!(purgatory.expire(at(20)).is_empty());
    assert_eq!((purgatory.delayed(), purgatory.watched()), (0, 0));
}

#[test]
fn leftovers_under_other_keys_go_when_those_are_used_or_swept() {
    // A list this long is cleaned before it grows.
    const MOST_UNDER_A_KEY: usize = 17;
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let keys: Vec<u32> = (0..100).collect();
    for round in 0..1100 {
        counter.store(0, Ordering::SeqCst);
        parked(purgatory.watch(wait(round, &counter, 1), &keys, at(10)));
        assert!(purgatory.watched() <= 100 * MOST_UNDER_A_KEY, "leftovers pile up");
        counter.store(1, Ordering::SeqCst);
        assert_eq!(purgatory.check(&7).len(), 1);
    }
    assert_eq!(purgatory.delayed(), 0);
    parked(purgatory.watch(wait(0, &counter, 9), &[5], at(10)));
    assert_eq!(names(purgatory.drain()), [0]);
    assert_eq!((purgatory.delayed(), purgatory.watched()), (0, 0));
}

#[test]
fn with_many_threads_every_operation_completes_exactly_once() {
    const OPERATIONS: usize = 400;
    let purgatory = Arc::new(Purgatory::new());
    let counter = Arc::new(AtomicUsize::new(0));
    let completed = Arc::new(Mutex::new(Vec::new()));
    let checkers: Vec<_> = (0..3u32)
        .map(|_| {
            let (purgatory, counter, completed) =
                (purgatory.clone(), counter.clone(), completed.clone());
            std::thread::spawn(move || {
                for _ in 0..OPERATIONS {
                    counter.fetch_add(1, Ordering::SeqCst);
                    for key in 0..4 {
                        let done = names(purgatory.check(&key));
                        completed.lock().unwrap().extend(done);
                    }
                }
            })
        })
        .collect();
    for name in 0..OPERATIONS {
        let key = name as u32 % 4;
        let operation = wait(name as u32, &counter, name * 3);
        match purgatory.watch(operation, &[key, (key + 1) % 4], at(10)) {
            Watch::Satisfied(done) => completed.lock().unwrap().push(done.name),
            Watch::Parked(_) => {}
        }
    }
    for checker in checkers {
        checker.join().unwrap();
    }
    // The last change was announced after it was made: nothing satisfied can still be parked.
    assert_eq!(purgatory.delayed(), 0);
    let mut completed = completed.lock().unwrap().clone();
    completed.sort_unstable();
    assert_eq!(completed, (0..OPERATIONS as u32).collect::<Vec<_>>());
}

#[test]
fn a_place_that_stands_serves_the_next_operation_until_it_is_given_up() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    parked(purgatory.watch_standing(wait(1, &counter, 1), &[1, 2], at(10)));
    let mut expired = purgatory.expire_standing(at(10));
    let place = expired.pop().and_then(|expired| expired.standing).expect("a place");
    for key in [1, 2] {
        assert!(purgatory.check(&key).is_empty(), "nobody waits");
    }
    assert_eq!((purgatory.delayed(), purgatory.watched()), (0, 2), "the place stays");
    parked(purgatory.watch_again(place, wait(2, &counter, 1), at(20)));
    assert_eq!((purgatory.delayed(), purgatory.watched()), (1, 2));
    assert_eq!(purgatory.next_deadline(), Some(at(20)));
    counter.store(1, Ordering::SeqCst);
    assert_eq!(names(purgatory.check(&2)), [2], "woken under its second key");
    assert!(purgatory.check(&1).is_empty());
    assert_eq!((purgatory.delayed(), purgatory.watched()), (0, 0), "once woken the place is gone");
    assert!(purgatory.expire(at(30)).is_empty(), "its deadline went with it");
}

#[test]
fn a_place_that_is_dropped_or_whose_operation_is_cancelled_is_given_up() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    parked(purgatory.watch_standing(wait(1, &counter, 1), &[1], at(10)));
    drop(purgatory.expire_standing(at(10)));
    assert!(purgatory.check(&1).is_empty());
    assert_eq!(purgatory.watched(), 0, "dropped");
    let handle = parked(purgatory.watch_standing(wait(2, &counter, 1), &[1], at(10)));
    assert!(purgatory.cancel(&handle).is_some());
    assert!(purgatory.check(&1).is_empty());
    assert_eq!(purgatory.watched(), 0, "cancelled");
    parked(purgatory.watch_checked(wait(3, &counter, 1), &[1], at(10)));
    let expired = purgatory.expire_standing(at(10));
    assert!(expired[0].standing.is_none(), "not asked for");
}

#[test]
fn a_change_between_two_operations_at_a_place_is_seen_when_the_second_comes() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    parked(purgatory.watch_standing(wait(1, &counter, 1), &[1], at(10)));
    let place = purgatory.expire_standing(at(10)).remove(0).standing.expect("a place");
    counter.store(1, Ordering::SeqCst);
    assert!(purgatory.check(&1).is_empty(), "nobody waits");
    let watch = purgatory.watch_again(place, wait(2, &counter, 1), at(20));
    assert!(matches!(watch, Watch::Satisfied(_)));
    assert_eq!(purgatory.delayed(), 0);
}

/// The one place of an operation whose time is up.
fn place(purgatory: &Purgatory<Wait>, at_ms: u64) -> StandingWatch<Wait> {
    purgatory.expire_standing(at(at_ms)).remove(0).standing.expect("a place")
}

#[test]
fn what_is_kept_at_a_place_is_dropped_by_a_change_under_a_key_or_with_the_place() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let kept = Arc::new(());
    parked(purgatory.watch_standing(wait(1, &counter, 1), &[1, 2], at(10)));
    let first = place(&purgatory, 10);
    first.keep(Box::new(kept.clone()));
    assert!(purgatory.check(&3).is_empty());
    assert_eq!(Arc::strong_count(&kept), 2, "nothing of its own changed");
    assert!(purgatory.check(&2).is_empty());
    assert_eq!(Arc::strong_count(&kept), 1, "a change");
    assert!(first.take_kept().is_none());
    first.keep(Box::new(kept.clone()));
    assert!(first.take_kept().is_some(), "no change since");
    first.keep(Box::new(kept.clone()));
    drop(first);
    assert_eq!(Arc::strong_count(&kept), 1, "given up");
}

#[test]
fn a_place_that_served_many_operations_leaves_nothing_behind() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let handle = parked(purgatory.watch_standing(wait(0, &counter, 9), &[1], at(10)));
    for turn in 1..5 {
        let place = place(&purgatory, 10 * turn);
        parked(purgatory.watch_again(place, wait(turn as u32, &counter, 9), at(10 * turn + 10)));
    }
    drop(place(&purgatory, 50));
    assert!(purgatory.check(&1).is_empty());
    assert_eq!(handle.holders(), 1, "nobody else knows the place");
    assert_eq!((purgatory.watched(), Arc::strong_count(&counter)), (0, 1));
}

#[test]
fn who_takes_an_operation_back_does_not_take_the_next_one_at_its_place() {
    let purgatory = Purgatory::new();
    let counter = Arc::new(AtomicUsize::new(0));
    let first = parked(purgatory.watch_standing(wait(1, &counter, 9), &[1], at(10)));
    let place = place(&purgatory, 10);
    let second = parked(purgatory.watch_again(place, wait(2, &counter, 9), at(20)));
    assert!(purgatory.cancel(&first).is_none(), "its time was up");
    assert_eq!(purgatory.delayed(), 1);
    assert_eq!(purgatory.cancel(&second).map(|wait| wait.name), Some(2));
}
