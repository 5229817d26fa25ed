//! The lifecycle against a controller that the test plays (C02, C03).

use std::time::Duration;

use protocol::messages::{BrokerHeartbeatResponse, BrokerRegistrationResponse};
use replication::trace::NoTrace;

use super::*;
use crate::core::host::{
    Clock, ControllerLink, ControllerReply, FetcherLink, FollowedPartition, NoCertificates,
};
use protocol::TopicIdPartition;

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Now {
        Now { monotonic: Instant(Duration::from_secs(1)), wall_clock_ms: 1 }
    }
}

struct NoFetchers;

impl FetcherLink for NoFetchers {
    fn change(&self, _stop: Vec<TopicIdPartition>, _start: Vec<FollowedPartition>) {}
}

/// Keeps the questions and how to answer them.
#[derive(Default)]
struct Asked(Mutex<Vec<(RequestBody, ControllerReply)>>);

impl ControllerLink for Asked {
    fn call(&self, _version: i16, request: RequestBody, _: Duration, reply: ControllerReply) {
        self.0.lock().push((request, reply));
    }
}

impl Asked {
    fn take(&self) -> (RequestBody, ControllerReply) {
        self.0.lock().pop().expect("a question")
    }
}

fn lifecycle() -> (Arc<BrokerLifecycle>, Arc<Asked>) {
    let asked = Arc::new(Asked::default());
    let host = Host {
        clock: Arc::new(FixedClock),
        controller: asked.clone(),
        fetchers: Arc::new(NoFetchers),
        certificates: Arc::new(NoCertificates),
        trace: Arc::new(NoTrace),
        wake_by: Arc::new(|_| {}),
    };
    let config = LifecycleConfig {
        node: NodeId(1),
        cluster_id: "c".into(),
        incarnation: Uuid([1; 16]),
        listeners: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        dir_failure_timeout: Duration::from_secs(30),
        heartbeat_interval: Duration::from_secs(2),
        session_timeout: Duration::from_secs(9),
        previous_broker_epoch: BrokerEpoch::NONE,
    };
    (BrokerLifecycle::new(config, host), asked)
}

fn heartbeat(request: RequestBody) -> BrokerHeartbeatRequest {
    match request {
        RequestBody::BrokerHeartbeat(request) => request,
        other => panic!("no heartbeat: {other:?}"),
    }
}

#[test]
fn c03_a_stop_does_not_wait_for_the_answer_to_an_earlier_heartbeat() {
    let (lifecycle, asked) = lifecycle();
    let tick = || lifecycle.on_tick(FixedClock.now());
    tick();
    let registered = BrokerRegistrationResponse { broker_epoch: 5, ..Default::default() };
    asked.take().1(Ok(registered.into()));
    lifecycle.on_metadata(Offset(5));
    tick();
    let (earlier, answer_earlier) = asked.take();
    assert!(!heartbeat(earlier).want_shut_down);

    // Its controller is silent, perhaps gone for good.
    lifecycle.begin_stop();
    tick();
    let (stopping, answer) = asked.take();
    assert!(heartbeat(stopping).want_shut_down);
    answer_earlier(Ok(BrokerHeartbeatResponse::default().into()));
    assert_eq!(lifecycle.state(), LifecycleState::Stopping);
    let leave = BrokerHeartbeatResponse { should_shut_down: true, ..Default::default() };
    answer(Ok(leave.into()));
    assert_eq!(lifecycle.state(), LifecycleState::Stopped);
}
