//! The TCP server over real sockets on loopback: rules P01, P02, P03, P04 (acks=0) and P05, limits,
//! idle connections and stopping.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use broker::network::{
    BoundListeners, ConnectionLimits, ListenerAddress, NetworkSettings, Reply, RequestContext,
};
use parking_lot::Mutex;
use protocol::messages::RequestBody;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use support::{Client, Service, echo, echoing, framed, heartbeat, loopback, raw_request, start};

#[tokio::test]
async fn p01_an_unknown_api_versions_version_is_answered_in_version_0_with_error_35() {
    let server = start(echoing(), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    // Version 99 has a flexible header (an empty tag section) and a body nobody can read.
    client.send(&raw_request(18, 99, 7, &[0, 0xde, 0xad, 0xbe, 0xef])).await;
    let newest = *protocol::ApiKey::ApiVersions.served_versions().end() as u8;
    let expected = [0, 0, 0, 7, 0, 35, 0, 0, 0, 1, 0, 18, 0, 0, 0, newest];
    assert_eq!(client.receive().await.expect("an answer"), expected);
    // The connection is still good.
    client.send(&heartbeat(8)).await;
    assert_eq!(client.receive_id().await, 8);
}

#[tokio::test]
async fn p02_a_request_nobody_serves_closes_the_connection_after_the_earlier_answers() {
    let server = start(echoing(), NetworkSettings::default()).await;
    let unknown_key = raw_request(9999, 0, 3, &[]);
    let unknown_version = raw_request(3, 99, 3, &[]);
    let negative_version = raw_request(3, -1, 3, &[]);
    let not_served_here = raw_request(60, 0, 3, &[0, 0, 0]);
    let mut cut_short = heartbeat(3)[4..].to_vec();
    cut_short.pop();
    let bad = [
        unknown_key,
        unknown_version,
        negative_version,
        not_served_here,
        framed(&cut_short),
        framed(&[0, 12]),
    ];
    let mut bystander = Client::connect(&server).await;
    for (index, bad) in bad.iter().enumerate() {
        let mut client = Client::connect(&server).await;
        let mut bytes = [heartbeat(1), heartbeat(2)].concat();
        bytes.extend(bad);
        // What comes after the refused request is never looked at.
        bytes.extend(heartbeat(4));
        bytes.extend([0; 100_000]);
        client.send(&bytes).await;
        assert_eq!((client.receive_id().await, client.receive_id().await), (1, 2), "case {index}");
        assert!(client.is_closed().await, "case {index}");
        assert_eq!(server.counters().requests_refused.get(), index as u64 + 1);
    }
    bystander.send(&heartbeat(5)).await;
    assert_eq!(bystander.receive_id().await, 5, "other connections are unaffected");
}

#[tokio::test]
async fn p03_sizes_that_cannot_be_close_the_connection() {
    let settings = NetworkSettings { max_request_bytes: 1000, ..Default::default() };
    let server = start(echoing(), settings).await;
    for size in [-1, i32::MIN, 0, 1001, i32::MAX] {
        let mut client = Client::connect(&server).await;
        client.send(&size.to_be_bytes()).await;
        assert!(client.is_closed().await, "size {size}");
    }
    let mut client = Client::connect(&server).await;
    client.send(&heartbeat(1)).await;
    assert_eq!(client.receive_id().await, 1);
}

#[tokio::test]
async fn p03_a_huge_array_in_a_small_frame_closes_the_connection() {
    let server = start(echoing(), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    // Metadata version 1: an array of 2^31-1 topics, and no topic.
    client.send(&raw_request(3, 1, 1, &[0x7f, 0xff, 0xff, 0xff])).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn p03_a_client_that_sends_byte_by_byte_is_served_and_blocks_nobody() {
    let server = start(echoing(), NetworkSettings::default()).await;
    let mut slow = Client::connect(&server).await;
    let mut never = Client::connect(&server).await;
    never.send(&[0, 0, 1]).await;
    let mut half = Client::connect(&server).await;
    half.send(&heartbeat(9)[..10]).await;
    for (index, byte) in heartbeat(1).iter().enumerate() {
        slow.send(&[*byte]).await;
        slow.stream.flush().await.expect("sent");
        let mut other = Client::connect(&server).await;
        other.send(&heartbeat(index as i32)).await;
        assert_eq!(other.receive_id().await, index as i32);
    }
    assert_eq!(slow.receive_id().await, 1);
}

#[tokio::test]
async fn p05_pipelined_requests_are_answered_in_order_however_long_one_waits() {
    let (parked, mut parked_replies) = mpsc::unbounded_channel::<(RequestBody, Reply)>();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let service = Service(move |_: RequestContext, body: RequestBody, reply: Reply| {
        counted.fetch_add(1, Ordering::SeqCst);
        let RequestBody::Heartbeat(heartbeat) = &body else { panic!("unexpected request") };
        if heartbeat.generation_id % 3 == 0 {
            parked.send((body, reply)).expect("the test listens");
        } else {
            let answer = echo(&body);
            reply.send(answer);
        }
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    let requests: Vec<_> = (0..12).map(heartbeat).collect();
    client.send(&requests.concat()).await;
    for number in 0..12 {
        if number % 3 == 0 {
            let (body, reply) = parked_replies.recv().await.expect("a parked request");
            assert_eq!(
                calls.load(Ordering::SeqCst),
                number as usize + 1,
                "nothing behind it has begun"
            );
            let answer = echo(&body);
            std::thread::spawn(move || reply.send(answer)).join().expect("answered");
        }
        assert_eq!(client.receive_id().await, number);
    }
}

#[tokio::test]
async fn p05_a_closed_connection_cancels_its_request_in_flight() {
    let (parked, mut parked_requests) = mpsc::unbounded_channel::<(RequestContext, Reply)>();
    let service = Service(move |context: RequestContext, _: RequestBody, reply: Reply| {
        parked.send((context, reply)).expect("the test listens");
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;

    let mut client = Client::connect(&server).await;
    client.send(&heartbeat(1)).await;
    let (context, reply) = parked_requests.recv().await.expect("the request");
    assert!(!context.cancellation.is_cancelled());
    let reply = Arc::new(Mutex::new(Some(reply)));
    let (cancelled, was_cancelled) = tokio::sync::oneshot::channel();
    let parked_reply = Arc::clone(&reply);
    context.cancellation.on_cancel(move || {
        drop(parked_reply.lock().take());
        let _ = cancelled.send(());
    });
    drop(client);
    was_cancelled.await.expect("the close is noticed while the request waits");
    assert!(reply.lock().is_none());
    until(|| server.counters().connections_open.get() == 0).await;

    // A broken connection (a reset) does the same.
    let mut client = Client::connect(&server).await;
    client.send(&heartbeat(1)).await;
    let (context, reply) = parked_requests.recv().await.expect("the request");
    client.stream.set_zero_linger().expect("set");
    drop(client);
    until(|| server.counters().connections_open.get() == 0).await;
    assert!(context.cancellation.is_cancelled());
    drop(reply);
}

#[tokio::test]
async fn a_client_that_only_stopped_sending_still_gets_its_answers() {
    let (parked, mut parked_requests) =
        mpsc::unbounded_channel::<(RequestContext, RequestBody, Reply)>();
    let service = Service(move |context: RequestContext, body: RequestBody, reply: Reply| {
        parked.send((context, body, reply)).expect("the test listens");
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[heartbeat(1), heartbeat(2)].concat()).await;
    client.stream.shutdown().await.expect("no more to send");
    for number in [1, 2] {
        let (context, body, reply) = parked_requests.recv().await.expect("the request");
        until(|| context.cancellation.is_cancelled()).await;
        let answer = echo(&body);
        reply.send(answer);
        assert_eq!(client.receive_id().await, number);
    }
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn p04_no_response_sends_no_byte_and_an_error_closes() {
    let service = Service(|_: RequestContext, body: RequestBody, reply: Reply| {
        let RequestBody::Heartbeat(heartbeat) = &body else { panic!("unexpected request") };
        match heartbeat.generation_id {
            1 | 2 => reply.no_response(),
            4 => reply.close(),
            5 => drop(reply),
            _ => {
                let answer = echo(&body);
                reply.send(answer);
            }
        }
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    for last in [4, 5] {
        let mut client = Client::connect(&server).await;
        client.send(&[heartbeat(1), heartbeat(2), heartbeat(3), heartbeat(last)].concat()).await;
        assert_eq!(client.receive_id().await, 3, "the first bytes answer the third request");
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn the_context_says_who_asks() {
    let (seen, mut contexts) = mpsc::unbounded_channel();
    let service = Service(move |context: RequestContext, body: RequestBody, reply: Reply| {
        let answer = echo(&body);
        seen.send(context).expect("the test listens");
        reply.send(answer);
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&heartbeat(42)).await;
    client.receive_id().await;
    let context = contexts.recv().await.expect("a request");
    assert_eq!(&*context.connection.listener, "PLAINTEXT");
    assert_eq!(context.connection.peer, client.stream.local_addr().expect("connected"));
    assert_eq!(context.client_id.as_deref(), Some("test"));
    assert_eq!((context.api_version, context.correlation_id), (3, 42));
    assert_eq!(context.size_bytes, heartbeat(42).len() - 4);
    assert_eq!(server.connections(), [context.connection]);
}

#[tokio::test]
async fn counters_count_bytes_requests_and_connections() {
    let server = start(echoing(), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[heartbeat(1), heartbeat(2)].concat()).await;
    let answered = client.receive().await.expect("an answer").len() + 4;
    client.receive().await.expect("an answer");
    let counters = server.counters();
    until(|| counters.bytes_sent() == 2 * answered as u64).await;
    assert_eq!(counters.bytes_received.get(), 2 * heartbeat(1).len() as u64);
    assert_eq!(counters.requests.get(), 2);
    assert_eq!((counters.connections_accepted.get(), counters.connections_open.get()), (1, 1));
    drop(client);
    until(|| counters.connections_open.get() == 0).await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_waiting_request_is_not_idle() {
    let (parked, mut parked_requests) = mpsc::unbounded_channel::<(RequestBody, Reply)>();
    let service = Service(move |_: RequestContext, body: RequestBody, reply: Reply| {
        parked.send((body, reply)).expect("the test listens");
    });
    let settings = NetworkSettings { max_idle: Duration::from_millis(200), ..Default::default() };
    let server = start(Arc::new(service), settings).await;
    let mut waiting = Client::connect(&server).await;
    waiting.send(&heartbeat(1)).await;
    let (body, reply) = parked_requests.recv().await.expect("the request");
    let mut idle = Client::connect(&server).await;
    assert!(idle.is_closed().await);
    assert_eq!(server.counters().connections_expired.get(), 1);
    let answer = echo(&body);
    reply.send(answer);
    assert_eq!(waiting.receive_id().await, 1);
}

#[tokio::test]
async fn an_address_with_too_many_connections_is_turned_away() {
    let limits = ConnectionLimits { per_ip: 2, ..Default::default() };
    let server = start(echoing(), NetworkSettings { limits, ..Default::default() }).await;
    let mut first = Client::connect(&server).await;
    let mut second = Client::connect(&server).await;
    for (number, client) in [&mut first, &mut second].into_iter().enumerate() {
        client.send(&heartbeat(number as i32)).await;
        client.receive_id().await;
    }
    assert!(Client::connect(&server).await.is_closed().await);
    assert_eq!(server.counters().connections_refused.get(), 1);
    drop(first);
    until(|| server.counters().connections_open.get() == 1).await;
    let mut third = Client::connect(&server).await;
    third.send(&heartbeat(3)).await;
    assert_eq!(third.receive_id().await, 3);
}

#[tokio::test]
async fn a_full_server_lets_clients_wait_but_not_brokers() {
    let settings = NetworkSettings {
        limits: ConnectionLimits { total: 1, ..Default::default() },
        ..Default::default()
    };
    let addresses =
        [loopback("PLAINTEXT"), ListenerAddress { is_protected: true, ..loopback("BROKER") }];
    let bound = BoundListeners::bind(&addresses, settings).await.expect("free ports");
    let server = bound.serve(echoing());
    let mut first = Client::connect(&server).await;
    first.send(&heartbeat(1)).await;
    assert_eq!(first.receive_id().await, 1);
    let mut second = Client::connect(&server).await;
    second.send(&heartbeat(2)).await;
    // A broker comes in at once; the longest idle client makes way for it.
    let mut broker = Client::connect_to(&server, "BROKER").await;
    broker.send(&heartbeat(3)).await;
    assert_eq!(broker.receive_id().await, 3);
    assert!(first.is_closed().await);
    assert_eq!(server.counters().connections_accepted.get(), 2, "the second client still waits");
    drop(broker);
    assert_eq!(second.receive_id().await, 2);
}

#[tokio::test]
async fn stopping_closes_idle_connections_and_lets_answers_out() {
    let (parked, mut parked_requests) = mpsc::unbounded_channel::<(RequestBody, Reply)>();
    let service = Service(move |_: RequestContext, body: RequestBody, reply: Reply| {
        parked.send((body, reply)).expect("the test listens");
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    let address = server.address("PLAINTEXT").expect("the listener");
    let mut idle = Client::connect(&server).await;
    let mut busy = Client::connect(&server).await;
    busy.send(&[heartbeat(1), heartbeat(2)].concat()).await;
    let (body, reply) = parked_requests.recv().await.expect("the request");
    until(|| server.counters().connections_open.get() == 2).await;
    let stopping = tokio::spawn(server.shutdown(support::LONG));
    assert!(idle.is_closed().await);
    let answer = echo(&body);
    reply.send(answer);
    assert_eq!(busy.receive_id().await, 1, "the request in flight is answered");
    assert!(busy.is_closed().await, "the one behind it is not begun");
    stopping.await.expect("the server stops");
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn stopping_does_not_wait_longer_than_its_grace() {
    let (parked, mut parked_requests) = mpsc::unbounded_channel::<Reply>();
    let service = Service(move |_: RequestContext, _: RequestBody, reply: Reply| {
        parked.send(reply).expect("the test listens");
    });
    let server = start(Arc::new(service), NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&heartbeat(1)).await;
    let reply = parked_requests.recv().await.expect("the request");
    server.shutdown(Duration::from_millis(50)).await;
    assert!(client.is_closed().await);
    reply.no_response();
}

#[tokio::test]
async fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("bound").port();
    let address = ListenerAddress { port, ..loopback("CLIENTS") };
    let error =
        BoundListeners::bind(&[address], NetworkSettings::default()).await.expect_err("taken");
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("listener CLIENTS cannot listen on 127.0.0.1:{port}: ")),
        "{text}"
    );
}

#[tokio::test]
async fn an_empty_host_listens_on_every_address() {
    let address = ListenerAddress { host: String::new(), ..loopback("PLAINTEXT") };
    let bound = BoundListeners::bind(&[address], NetworkSettings::default()).await.expect("bound");
    let port = bound.address("PLAINTEXT").expect("the listener").port();
    let server = bound.serve(echoing());
    let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.expect("connected");
    let mut client = Client { stream };
    client.send(&heartbeat(1)).await;
    assert_eq!(client.receive_id().await, 1);
    assert!(server.connections()[0].peer.is_ipv4(), "an IPv4 client is shown as one");
}

/// Waits for something that another task does; ends the test if it never happens.
async fn until(condition: impl Fn() -> bool) {
    let waiting = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(support::LONG, waiting).await.expect("it happens");
}
