//! The loop over real sockets: connects, fetches, survives a leader that hangs up.

use super::fake::{Leader, Log, Replicas, assignment, core, tip};
use fetcher::FetcherRequest;
use fetcher::host::{ConnectionConfig, Fetcher, FetcherEnvironment};
use protocol::frame::{self, RequestStart};
use protocol::{ApiKey, BrokerEpoch, NodeId, RequestBody, ResponseBody};
use replication::time::Instant;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

struct Surroundings {
    port: u16,
    start: std::time::Instant,
}

impl FetcherEnvironment for Surroundings {
    fn endpoint(&self, node: NodeId) -> Option<(String, u16)> {
        (node == NodeId(1)).then(|| ("127.0.0.1".to_owned(), self.port))
    }
    fn broker_epoch(&self) -> BrokerEpoch {
        BrokerEpoch(5)
    }
    fn now(&self) -> Instant {
        Instant(self.start.elapsed())
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<RequestStart> {
    let size = stream.read_u32().await.ok()?;
    let mut bytes = vec![0; size as usize];
    stream.read_exact(&mut bytes).await.ok()?;
    Some(RequestStart::read(bytes.into()).unwrap())
}

/// Answers every request; the first connection is cut after its first request.
async fn serve(listener: TcpListener, leader: Leader, connections: Arc<AtomicUsize>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let is_first = connections.fetch_add(1, Ordering::SeqCst) == 0;
        while let Some(request) = read_request(&mut stream).await {
            if is_first {
                break;
            }
            assert_eq!((request.api_key, request.api_version), (ApiKey::Fetch, 18));
            let correlation_id = request.header.correlation_id;
            let RequestBody::Fetch(fetch) = request.read_body().unwrap() else {
                panic!("only fetches are expected");
            };
            let body = ResponseBody::Fetch(leader.fetch(&fetch));
            assert!(matches!(
                leader.answer(&FetcherRequest::Fetch(fetch)),
                fetcher::FetcherResponse::Fetch(_)
            ));
            let parts = frame::encode_response(correlation_id, ApiKey::Fetch, 18, &body).unwrap();
            let bytes = protocol::join_parts(parts).unwrap();
            if stream.write_all(&bytes).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_loop_reconnects_and_copies_the_leaders_log() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let leader_log = Log { high_watermark: 9, ..Log::of(&[(0, 9)]) };
    let expected = leader_log.batches.clone();
    let connections = Arc::new(AtomicUsize::new(0));
    let server =
        tokio::spawn(serve(listener, Leader::new(0, vec![leader_log]), connections.clone()));

    let mut core = core();
    core.set_backoff(Duration::from_millis(5));
    let replicas = Arc::new(Replicas::with(vec![Log::default()]));
    let surroundings = Arc::new(Surroundings { port, start: std::time::Instant::now() });
    let fetcher = Fetcher::new(core, replicas.clone(), surroundings, ConnectionConfig::default());
    let (stop, stopped) = watch::channel(false);
    let running = tokio::spawn(fetcher.clone().run(stopped));
    fetcher.add_partitions([assignment(0, 0)]);

    let copied = async {
        while replicas.log_of(0).batches != expected || replicas.log_of(0).high_watermark != 9 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), copied).await.expect("the log is copied");
    assert!(connections.load(Ordering::SeqCst) >= 2, "the first connection was cut");
    assert_eq!(fetcher.inspect(|core| core.len()), 1);
    assert_eq!(fetcher.remove_partitions([&tip(0)]).len(), 1);
    stop.send(true).unwrap();
    tokio::time::timeout(Duration::from_secs(20), running).await.expect("it stops").unwrap();
    server.abort();
}
