//! Requests that take long to work on leave the threads to the other connections (P05).

mod support;

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use broker::network::{NetworkSettings, Reply, RequestContext};
use parking_lot::Mutex;
use protocol::messages::{HeartbeatRequest, HeartbeatResponse, RequestBody, ResponseBody};

use support::{Client, LONG, Service, framed, heartbeat, start};

/// A heartbeat with a megabyte behind it, which is ignored.
fn large_heartbeat() -> Vec<u8> {
    let whole = heartbeat(1);
    let mut content = whole[4..].to_vec();
    content.resize(content.len() + 1024 * 1024, 0);
    framed(&content)
}

#[test]
fn p05_large_requests_on_every_thread_do_not_keep_a_small_one_waiting() {
    const THREADS: usize = 2;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(THREADS)
        .enable_all()
        .build()
        .expect("a runtime");
    let (small_came, wait_for_small) = mpsc::channel::<()>();
    let wait_for_small = Mutex::new(wait_for_small);
    let (large_came, mut larges) = tokio::sync::mpsc::unbounded_channel();
    let service = Service(move |context: RequestContext, body: RequestBody, reply: Reply| {
        let RequestBody::Heartbeat(HeartbeatRequest { generation_id, .. }) = body else {
            panic!("unexpected request")
        };
        if context.size_bytes > 1024 * 1024 {
            large_came.send(()).expect("the test listens");
            // Works until a small request was served.
            let came = wait_for_small.lock().recv_timeout(LONG / 2);
            came.expect("a small request is served meanwhile");
        } else {
            (0..THREADS).for_each(|_| small_came.send(()).expect("large ones wait"));
        }
        reply.send(ResponseBody::Heartbeat(HeartbeatResponse {
            throttle_time_ms: generation_id,
            ..Default::default()
        }));
    });
    runtime.block_on(async {
        let server = start(Arc::new(service), NetworkSettings::default()).await;
        let mut clients = Vec::new();
        for _ in 0..THREADS {
            let mut client = Client::connect(&server).await;
            client.send(&large_heartbeat()).await;
            larges.recv().await.expect("it is being worked on");
            clients.push(client);
        }
        let mut small = Client::connect(&server).await;
        small.send(&heartbeat(7)).await;
        assert_eq!(small.receive_id().await, 7);
        for client in &mut clients {
            assert_eq!(client.receive_id().await, 1);
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
}
