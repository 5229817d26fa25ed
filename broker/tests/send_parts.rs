//! Answers that hold regions of files, over real sockets: every byte in its place whatever the reader's
//! pace, and rule F08: files deleted, cut short or unreadable while they are being sent.

mod support;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use broker::network::{
    NetworkSettings, Reply, RequestContext, RequestService, SendError, Sent, send_parts,
};
use bytes::Bytes;
use parking_lot::Mutex;
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::{FetchRequest, FetchResponse, RequestBody, ResponseBody};
use protocol::{ApiKey, FileRegion, Part, Records};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

use support::{Client, LONG, start};

/// A region of a real file, or one that only `read` knows.
#[derive(Debug)]
struct Region {
    file: Arc<File>,
    start: u64,
    length: usize,
    has_file: bool,
}

impl FileRegion for Region {
    fn len(&self) -> usize {
        self.length
    }

    fn read(&self) -> io::Result<Bytes> {
        use std::os::unix::fs::FileExt;
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.start)?;
        Ok(bytes.into())
    }

    fn file(&self) -> Option<(&File, u64)> {
        self.has_file.then_some((&*self.file, self.start))
    }
}

struct Disk {
    folder: tempfile::TempDir,
    file: Arc<File>,
    content: Vec<u8>,
}

impl Disk {
    fn with_bytes(length: usize) -> Disk {
        let folder = tempfile::tempdir().expect("a folder");
        // No short period, so that a byte sent twice or left out cannot go unseen.
        let mut content = Vec::with_capacity(length + 8);
        while content.len() < length {
            let number = (content.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            content.extend_from_slice(&number.to_le_bytes());
        }
        content.truncate(length);
        let path = folder.path().join("00000000000000000000.log");
        File::create(&path).and_then(|mut file| file.write_all(&content)).expect("written");
        let file = File::options().read(true).write(true).open(&path).expect("opened");
        Disk { folder, file: Arc::new(file), content }
    }

    fn region(&self, start: usize, length: usize) -> Part {
        self.any_region(start, length, true)
    }

    fn any_region(&self, start: usize, length: usize, has_file: bool) -> Part {
        Part::File(Arc::new(Region {
            file: Arc::clone(&self.file),
            start: start as u64,
            length,
            has_file,
        }))
    }
}

async fn socket_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
    (accepted.expect("accepted").0, client.expect("connected"))
}

fn spawn_send(
    stream: TcpStream,
    parts: Vec<Part>,
    patience: Duration,
) -> tokio::task::JoinHandle<(Result<(), SendError>, Sent)> {
    tokio::spawn(async move {
        let mut sent = Sent::default();
        let result = send_parts(&stream, parts, patience, &mut sent).await;
        (result, sent)
    })
}

/// Reads to the end in small, delayed steps at first, so that the sender meets full buffers.
async fn read_slowly(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut chunk = vec![0; 50_021];
    for step in 0.. {
        if step < 40 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        match stream.read(&mut chunk).await.expect("readable") {
            0 => break,
            read => all.extend_from_slice(&chunk[..read]),
        }
    }
    all
}

#[tokio::test]
async fn buffers_and_regions_arrive_byte_exact_at_a_slow_reader() {
    let disk = Disk::with_bytes(20_000_000);
    let mut parts = vec![Part::Bytes(Bytes::from_static(b"head"))];
    let mut expected = b"head".to_vec();
    let mut by_sendfile = 0;
    // Long, short and empty regions, with and without a file, between buffers of all sizes.
    for (index, (start, length, has_file)) in [
        (0, 9_000_000, true),
        (9_000_000, 0, true),
        (17, 15, true),
        (100, 16 * 1024 - 1, true),
        (200, 16 * 1024, true),
        (5_000_000, 3_000_001, false),
        (19_999_999, 1, true),
        (1, 9_999_999, true),
    ]
    .into_iter()
    .enumerate()
    {
        parts.push(disk.any_region(start, length, has_file));
        expected.extend_from_slice(&disk.content[start..start + length]);
        if has_file && length >= 16 * 1024 {
            by_sendfile += length as u64;
        }
        let between = vec![index as u8; index * 1000];
        expected.extend_from_slice(&between);
        parts.push(Part::Bytes(between.into()));
    }
    // More buffers in a row than one system call takes.
    for index in 0..200u8 {
        parts.push(Part::Bytes(vec![index; usize::from(index) * 7].into()));
        expected.extend(vec![index; usize::from(index) * 7]);
    }
    let (server, mut client) = socket_pair().await;
    let sending = spawn_send(server, parts, LONG);
    let received = read_slowly(&mut client).await;
    let (result, sent) = sending.await.expect("no panic");
    result.expect("all sent");
    assert_eq!(received.len(), expected.len());
    assert!(received == expected, "the bytes differ");
    assert_eq!(sent, Sent { bytes: expected.len() as u64, by_sendfile });
}

#[tokio::test]
async fn f08_a_file_deleted_while_it_is_sent_is_sent_to_its_end() {
    let disk = Disk::with_bytes(16_000_000);
    let (server, mut client) = socket_pair().await;
    let sending = spawn_send(server, vec![disk.region(0, 16_000_000)], LONG);
    let mut first = vec![0; 1000];
    client.read_exact(&mut first).await.expect("the first bytes");
    assert!(!sending.is_finished(), "the socket's buffers hold less than the region");
    std::fs::remove_file(disk.folder.path().join("00000000000000000000.log")).expect("deleted");
    first.extend(read_slowly(&mut client).await);
    sending.await.expect("no panic").0.expect("all sent");
    assert!(first == disk.content, "the bytes differ");
}

#[tokio::test]
async fn f08_a_file_cut_short_while_it_is_sent_is_the_disks_fault() {
    let disk = Disk::with_bytes(16_000_000);
    let (server, mut client) = socket_pair().await;
    let sending = spawn_send(server, vec![disk.region(0, 16_000_000)], LONG);
    let mut first = vec![0; 1000];
    client.read_exact(&mut first).await.expect("the first bytes");
    disk.file.set_len(15_999_999).expect("cut");
    first.extend(read_slowly(&mut client).await);
    let (result, sent) = sending.await.expect("no panic");
    let Err(SendError::Disk { error, .. }) = result else {
        panic!("not the disk's fault: {result:?}")
    };
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    assert_eq!(sent.bytes, 15_999_999);
    assert!(first == disk.content[..15_999_999], "no byte was made up");
}

#[tokio::test]
async fn f08_a_short_region_beyond_the_end_of_its_file_is_the_disks_fault() {
    let disk = Disk::with_bytes(1000);
    for has_file in [true, false] {
        let (server, _client) = socket_pair().await;
        let (result, sent) = spawn_send(server, vec![disk.any_region(500, 501, has_file)], LONG)
            .await
            .expect("no panic");
        assert!(matches!(result, Err(SendError::Disk { .. })), "{result:?}");
        assert_eq!(sent.bytes, 0, "nothing goes out before it was read");
    }
}

#[tokio::test]
async fn f08_a_reader_that_goes_away_is_the_clients_fault() {
    let disk = Disk::with_bytes(16_000_000);
    for reset in [false, true] {
        let (server, mut client) = socket_pair().await;
        let sending = spawn_send(server, vec![disk.region(0, 16_000_000)], LONG);
        let mut first = vec![0; 1000];
        client.read_exact(&mut first).await.expect("the first bytes");
        if reset {
            client.set_zero_linger().expect("set");
        }
        drop(client);
        let (result, _) = sending.await.expect("no panic");
        assert!(matches!(result, Err(SendError::Client(_))), "{result:?}");
    }
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_given_up_on() {
    let disk = Disk::with_bytes(16_000_000);
    let (server, _client) = socket_pair().await;
    let patience = Duration::from_millis(100);
    let (result, _) =
        spawn_send(server, vec![disk.region(0, 16_000_000)], patience).await.expect("no panic");
    assert!(matches!(result, Err(SendError::Stalled(_))), "{result:?}");
}

/// Answers every fetch with one region, and keeps what it is told about disks.
struct Fetching {
    region: Arc<Region>,
    disk_errors: Mutex<Vec<io::ErrorKind>>,
}

impl RequestService for Fetching {
    fn serves(&self, _: &str, _: ApiKey, _: i16) -> bool {
        true
    }

    fn call(&self, _: RequestContext, _: RequestBody, reply: Reply) {
        let partition = PartitionData {
            records: Some(Records::File(Arc::clone(&self.region) as Arc<dyn FileRegion>)),
            ..Default::default()
        };
        let topic = FetchableTopicResponse { partitions: vec![partition], ..Default::default() };
        reply.send(ResponseBody::Fetch(FetchResponse {
            responses: vec![topic],
            ..Default::default()
        }));
    }

    fn on_disk_error(&self, region: &Arc<dyn FileRegion>, error: &io::Error) {
        assert_eq!(region.len(), self.region.length);
        self.disk_errors.lock().push(error.kind());
    }
}

fn fetch_request() -> Bytes {
    let header = protocol::frame::request_header(ApiKey::Fetch, 13, 1, None);
    let parts =
        protocol::frame::encode_request(header, &RequestBody::Fetch(FetchRequest::default()));
    protocol::join_parts(parts.expect("writable")).expect("in memory")
}

#[tokio::test]
async fn a_fetch_answer_carries_the_bytes_of_its_file() {
    let disk = Disk::with_bytes(3_000_000);
    let region = Arc::new(Region {
        file: Arc::clone(&disk.file),
        start: 100,
        length: 2_000_000,
        has_file: true,
    });
    let service = Arc::new(Fetching { region, disk_errors: Mutex::default() });
    let server = start(service, NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&[fetch_request(), fetch_request()].concat()).await;
    for _ in 0..2 {
        let frame = client.receive().await.expect("an answer");
        let answer =
            protocol::frame::decode_response(frame.into(), 1, ApiKey::Fetch, 13).expect("readable");
        let ResponseBody::Fetch(answer) = answer else { panic!("not a fetch answer") };
        let records = answer.responses[0].partitions[0].records.as_ref().expect("records");
        assert!(records.read().expect("in memory") == disk.content[100..2_000_100]);
    }
    assert_eq!(server.counters().bytes_sent_by_sendfile.get(), 4_000_000);
}

#[tokio::test]
async fn f08_a_failing_disk_closes_the_connection_and_is_reported() {
    let disk = Disk::with_bytes(100_000);
    let region = Arc::new(Region {
        file: Arc::clone(&disk.file),
        start: 50_000,
        length: 60_000,
        has_file: true,
    });
    let service = Arc::new(Fetching { region, disk_errors: Mutex::default() });
    let server =
        start(Arc::clone(&service) as Arc<dyn RequestService>, NetworkSettings::default()).await;
    let mut client = Client::connect(&server).await;
    client.send(&fetch_request()).await;
    let mut received = Vec::new();
    client.stream.read_to_end(&mut received).await.expect("closed");
    let promised = i32::from_be_bytes(received[..4].try_into().expect("a size")) as usize;
    assert!(received.len() < 4 + promised, "no frame is filled up with other bytes");
    assert_eq!(*service.disk_errors.lock(), [io::ErrorKind::UnexpectedEof]);
    assert_eq!(server.counters().disk_errors.get(), 1);
}
