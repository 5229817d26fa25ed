//! TLS that the kernel does. Kernels without it have nothing to show here: the tests say so and end, unless
//! `HIGHWATER_KERNEL_TLS` is set, as it is in the virtual machine of `.ci/kernel-tls`.

use std::io::{self, Read, Write};
use std::net::TcpStream as StdTcpStream;
use std::sync::Arc;
use std::time::Duration;

use broker::network::{KernelTls, NetworkServer, Reply, RequestContext, RequestService};
use broker::tls::{TlsSettings, client_config};
use protocol::messages::RequestBody;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tokio::io::AsyncWriteExt;

use super::support::{LONG, Service, echo, echoing, heartbeat};
use super::{Authority, LENGTH, Served, connect, fetch, kernel, receive, serve_with};

fn kernel_or_say_so() -> Option<Arc<KernelTls>> {
    let kernel = kernel();
    if kernel.is_none() {
        eprintln!("skipped: this kernel has no TLS");
    }
    kernel
}

/// Cipher suites by the protocol they belong to.
const SUITES: [(&str, &str); 6] = [
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
    ("TLSv1.2", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
    ("TLSv1.3", "TLS_AES_128_GCM_SHA256"),
    ("TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ("TLSv1.3", "TLS_CHACHA20_POLY1305_SHA256"),
];

fn only((protocol, suite): (&str, &str), settings: TlsSettings) -> TlsSettings {
    let (protocols, cipher_suites) = (vec![protocol.to_owned()], vec![suite.to_owned()]);
    TlsSettings { protocols, cipher_suites, ..settings }
}

#[tokio::test]
async fn f08_the_kernel_sends_records_from_their_file_under_every_cipher_suite_it_takes() {
    let Some(kernel) = kernel_or_say_so() else { return };
    let ours = Authority::new("ours");
    for suite in SUITES {
        let node = only(suite, ours.node("localhost"));
        let served = Served::start(&node, Some(Arc::clone(&kernel))).await;
        let mut stream = connect(&served.server, &ours.client()).await.expect("let in");
        served.fetch(&mut stream).await;
        served.fetch(&mut stream).await;
        let by_sendfile = served.server.counters().bytes_sent_by_sendfile.get();
        assert_eq!(by_sendfile, 2 * LENGTH as u64, "{suite:?}");
        served.cut_short(&mut stream).await;
    }
}

/// A client that holds the bytes of its records in hand.
struct Raw {
    socket: StdTcpStream,
    connection: ClientConnection,
}

impl Raw {
    /// Agrees on keys, but keeps its last records of that to itself.
    fn agree(server: &NetworkServer, settings: &TlsSettings) -> Raw {
        let config = client_config(settings).expect("good settings");
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(config, name).expect("a connection");
        let socket = StdTcpStream::connect(server.address("SSL").expect("the listener"));
        let mut raw = Raw { socket: socket.expect("connected"), connection };
        raw.socket.set_read_timeout(Some(LONG)).expect("set");
        while raw.connection.is_handshaking() {
            let records = raw.records();
            raw.socket.write_all(&records).expect("sent");
            if raw.connection.is_handshaking() {
                assert_ne!(raw.connection.read_tls(&mut raw.socket).expect("read"), 0);
                raw.connection.process_new_packets().expect("a server");
            }
        }
        raw
    }

    /// What is to be sent.
    fn records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        while self.connection.wants_write() {
            self.connection.write_tls(&mut records).expect("in memory");
        }
        records
    }

    fn encrypted(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.connection.writer().write_all(bytes).expect("in memory");
        self.records()
    }

    /// The next answer's correlation id; an error at an end.
    fn answer(self) -> (io::Result<i32>, Raw) {
        let Raw { socket, connection } = self;
        let mut stream = StreamOwned::new(connection, socket);
        let mut answer = || {
            let mut size = [0; 4];
            stream.read_exact(&mut size)?;
            let mut frame = vec![0; i32::from_be_bytes(size) as usize];
            stream.read_exact(&mut frame)?;
            Ok(i32::from_be_bytes(frame[..4].try_into().expect("four bytes")))
        };
        let answer = answer();
        let (connection, socket) = stream.into_parts();
        (answer, Raw { socket, connection })
    }
}

/// Lets a client loose on a server.
async fn with_client(
    server: NetworkServer,
    client: TlsSettings,
    script: impl FnOnce(Raw) + Send + 'static,
) -> NetworkServer {
    let (server, told) = tokio::task::spawn_blocking(move || {
        let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            script(Raw::agree(&server, &client));
        }));
        (server, told)
    })
    .await
    .expect("ended");
    told.expect("as it should be");
    server
}

/// Serves echoes under one cipher suite and lets a client loose on them.
async fn with_echoes(
    suite: (&str, &str),
    kernel: &Arc<KernelTls>,
    script: impl FnOnce(Raw) + Send + 'static,
) -> NetworkServer {
    let ours = Authority::new("ours");
    let node = only(suite, ours.node("localhost"));
    let server = serve_with(echoing(), &node, Some(Arc::clone(kernel))).await;
    with_client(server, ours.client(), script).await
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_come_with_the_end_of_the_handshake_are_read_before_the_kernel_has_the_keys()
{
    let Some(kernel) = kernel_or_say_so() else { return };
    for suite in [SUITES[0], SUITES[3], SUITES[5]] {
        // How much of the second request comes with the end of the handshake: nothing, a part of a record's
        // header, a part of its body, all of it.
        for part in [0, 3, 20, usize::MAX] {
            let script = move |mut raw: Raw| {
                let mut first = raw.records();
                first.extend(raw.encrypted(&heartbeat(1)));
                let second = raw.encrypted(&heartbeat(2));
                let part = part.min(second.len());
                first.extend(&second[..part]);
                raw.socket.write_all(&first).expect("sent");
                std::thread::sleep(Duration::from_millis(20));
                raw.socket.write_all(&second[part..]).expect("sent");
                for expected in 1..=2 {
                    let (answer, after) = raw.answer();
                    assert_eq!(answer.expect("an answer"), expected, "{suite:?} {part}");
                    raw = after;
                }
                let third = raw.encrypted(&heartbeat(3));
                raw.socket.write_all(&third).expect("sent");
                assert_eq!(raw.answer().0.expect("an answer"), 3);
            };
            with_echoes(suite, &kernel, script).await;
        }
    }
}

/// Answers once its client had time to say goodbye.
fn slow() -> Arc<dyn RequestService> {
    Arc::new(Service(|_: RequestContext, body: RequestBody, reply: Reply| {
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            reply.send(echo(&body));
        });
    }))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_says_goodbye_is_answered_first() {
    let Some(kernel) = kernel_or_say_so() else { return };
    let ours = Authority::new("ours");
    let server = serve_with(slow(), &only(SUITES[3], ours.node("localhost")), Some(kernel)).await;
    let goodbye = |mut raw: Raw| {
        let mut records = raw.encrypted(&heartbeat(1));
        raw.connection.send_close_notify();
        records.extend(raw.records());
        raw.socket.write_all(&records).expect("sent");
        let (answer, raw) = raw.answer();
        assert_eq!(answer.expect("an answer"), 1);
        raw.answer().0.expect_err("the end");
    };
    with_client(server, ours.client(), goodbye).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_wants_other_keys_has_to_connect_again() {
    let Some(kernel) = kernel_or_say_so() else { return };
    let other_keys = |mut raw: Raw| {
        let mut records = raw.encrypted(&heartbeat(1));
        raw.connection.refresh_traffic_keys().expect("TLS 1.3");
        records.extend(raw.encrypted(&heartbeat(2)));
        raw.socket.write_all(&records).expect("sent");
        let (answer, raw) = raw.answer();
        assert_eq!(answer.expect("an answer"), 1);
        raw.answer().0.expect_err("the end");
    };
    let server = with_echoes(SUITES[3], &kernel, other_keys).await;
    assert_eq!(server.counters().requests.get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_cannot_be_decrypted_ends_the_connection_and_the_disk_is_not_to_blame() {
    let Some(kernel) = kernel_or_say_so() else { return };
    for suite in [SUITES[0], SUITES[3]] {
        let ours = Authority::new("ours");
        let node = only(suite, ours.node("localhost"));
        let served = Served::start(&node, Some(Arc::clone(&kernel))).await;
        let script = |mut raw: Raw| {
            // In one piece: the kernel meets the damage before the records of the first are sent.
            let mut records = raw.encrypted(&fetch());
            let mut damaged = raw.encrypted(&heartbeat(2));
            *damaged.last_mut().expect("a record") ^= 1;
            records.extend(damaged);
            raw.socket.write_all(&records).expect("sent");
            let (first, after) = raw.answer();
            assert!(first.is_err() || after.answer().0.is_err(), "the end");
        };
        let server = with_client(served.server, ours.client(), script).await;
        assert_eq!(server.counters().requests.get(), 1);
        assert_eq!(server.counters().disk_errors.get(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_sends_no_tls_while_records_go_out_is_to_blame_and_the_disk_is_not() {
    let Some(kernel) = kernel_or_say_so() else { return };
    for suite in [SUITES[0], SUITES[3]] {
        let ours = Authority::new("ours");
        let node = only(suite, ours.node("localhost"));
        let served = Served::start(&node, Some(Arc::clone(&kernel))).await;
        let script = |mut raw: Raw| {
            let records = raw.encrypted(&fetch());
            raw.socket.write_all(&records).expect("sent");
            // More than fits on the way goes out, so the server waits for room in the middle of the file.
            std::thread::sleep(Duration::from_millis(100));
            raw.socket.write_all(&[0xff; 64]).expect("sent");
            raw.answer().0.expect_err("the end");
        };
        let server = with_client(served.server, ours.client(), script).await;
        assert!(server.counters().bytes_sent_by_sendfile.get() > 0);
        assert_eq!(server.counters().disk_errors.get(), 0);
    }
}

#[tokio::test]
async fn many_requests_on_one_connection_are_answered_in_order_by_the_kernels_tls() {
    let Some(kernel) = kernel_or_say_so() else { return };
    let ours = Authority::new("ours");
    let server = serve_with(echoing(), &ours.node("localhost"), Some(kernel)).await;
    let mut stream = connect(&server, &ours.client()).await.expect("let in");
    let requests: Vec<u8> = (2..2000).flat_map(heartbeat).collect();
    let (mut reading, mut writing) = tokio::io::split(stream);
    let write = async {
        writing.write_all(&requests).await.expect("sent");
        writing.flush().await.expect("sent");
    };
    let read = async {
        for number in 2..2000i32 {
            let mut frame =
                vec![0; tokio::io::AsyncReadExt::read_i32(&mut reading).await? as usize];
            tokio::io::AsyncReadExt::read_exact(&mut reading, &mut frame).await?;
            assert_eq!(frame[..4], number.to_be_bytes());
        }
        io::Result::Ok(())
    };
    let ((), read) = tokio::join!(write, read);
    read.expect("all of them");
    stream = reading.unsplit(writing);
    stream.shutdown().await.expect("ended");
    receive(&mut stream).await.expect_err("the end");
}
