//! TLS over real sockets: who is let in, what goes through, and what a client that cannot or will not
//! agree on keys costs the others.

mod kernel;
#[path = "../support/mod.rs"]
mod support;

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;

use broker::network::{
    BoundListeners, KernelTls, NetworkServer, NetworkSettings, Reply, RequestContext,
    RequestService,
};
use broker::tls::{
    ClientAuth, KeyStore, TlsError, TlsSettings, cipher_suite_names, client_config, server_config,
};
use bytes::Bytes;
use controller::handshake::Acceptor;
use pkcs8::pkcs5::pbes2;
use protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use protocol::messages::{FetchRequest, FetchResponse, RequestBody, ResponseBody};
use protocol::{ApiKey, FileRegion, Records, join_parts};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use support::{Client, LONG, echoing, heartbeat, loopback};

/// Somebody who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("signed").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A key and a certificate for `name`.
    fn sign(&self, name: &str) -> KeyStore {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let chain = params.signed_by(&key, &self.issuer).expect("signed").pem();
        KeyStore { key: key.serialize_pem(), chain, password: None }
    }

    /// The settings of a node called `name` that trusts whom this authority signed for.
    fn node(&self, name: &str) -> TlsSettings {
        TlsSettings {
            key_store: Some(self.sign(name)),
            trusted: Some(self.certificate.clone()),
            checks_host_names: true,
            ..TlsSettings::default()
        }
    }

    /// The settings of a client without a certificate.
    fn client(&self) -> TlsSettings {
        TlsSettings { key_store: None, ..self.node("localhost") }
    }
}

/// What the kernel does of TLS. Where it must be able to, the variable says so, lest nothing be proved.
fn kernel() -> Option<Arc<KernelTls>> {
    let kernel = KernelTls::probe();
    if std::env::var_os("HIGHWATER_KERNEL_TLS").is_some() {
        return Some(Arc::new(kernel.expect("this kernel has TLS")));
    }
    kernel.ok().map(Arc::new)
}

async fn serve(service: Arc<dyn RequestService>, settings: &TlsSettings) -> NetworkServer {
    serve_with(service, settings, kernel()).await
}

async fn serve_with(
    service: Arc<dyn RequestService>,
    settings: &TlsSettings,
    kernel: Option<Arc<KernelTls>>,
) -> NetworkServer {
    let bound = BoundListeners::bind(&[loopback("SSL")], NetworkSettings::default()).await;
    let mut bound = bound.expect("a free port");
    let config = server_config(settings).expect("good settings");
    bound.encrypt("SSL", &Acceptor::new(watch::channel(config).1), kernel.as_ref());
    bound.serve(service)
}

/// Connects to the server under the name `localhost`, and shows by one request that it is let in: under
/// TLS 1.3 a client hears only then that its certificate was refused.
async fn connect(
    server: &NetworkServer,
    settings: &TlsSettings,
) -> io::Result<TlsStream<TcpStream>> {
    let config = client_config(settings).map_err(io::Error::other)?;
    let socket = TcpStream::connect(server.address("SSL").expect("the listener")).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = TlsConnector::from(config).connect(name, socket).await?;
    stream.write_all(&heartbeat(1)).await?;
    let answer =
        tokio::time::timeout(LONG, receive(&mut stream)).await.expect("an answer or an end")?;
    assert_eq!(answer[..4], [0, 0, 0, 1]);
    Ok(stream)
}

async fn receive(stream: &mut TlsStream<TcpStream>) -> io::Result<Vec<u8>> {
    let mut frame = vec![0; stream.read_i32().await? as usize];
    stream.read_exact(&mut frame).await?;
    Ok(frame)
}

async fn is_let_in(server: &TlsSettings, client: &TlsSettings) -> bool {
    connect(&serve(echoing(), server).await, client).await.is_ok()
}

#[tokio::test]
async fn a_client_is_served_when_it_trusts_the_node_and_the_node_bears_the_name_it_was_reached_by()
{
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    assert!(is_let_in(&ours.node("localhost"), &ours.client()).await);
    assert!(!is_let_in(&ours.node("localhost"), &theirs.client()).await, "an unknown signer");
    assert!(!is_let_in(&ours.node("elsewhere"), &ours.client()).await, "another name");
    let any_name = TlsSettings { checks_host_names: false, ..ours.client() };
    assert!(is_let_in(&ours.node("elsewhere"), &any_name).await, "any name will do");
    let any_name = TlsSettings { checks_host_names: false, ..theirs.client() };
    assert!(!is_let_in(&ours.node("elsewhere"), &any_name).await, "but not any signer");
}

#[tokio::test]
async fn clients_show_a_certificate_where_it_is_required_and_a_bad_one_is_refused_where_it_is_not()
{
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let known = ours.node("a client");
    let unknown =
        TlsSettings { trusted: Some(ours.certificate.clone()), ..theirs.node("a client") };
    let cases = [
        (ClientAuth::None, [true, true, true]),
        (ClientAuth::Requested, [true, true, false]),
        (ClientAuth::Required, [true, false, false]),
    ];
    for (client_auth, expected) in cases {
        let node = TlsSettings { client_auth, ..ours.node("localhost") };
        for (client, expected) in [&known, &ours.client(), &unknown].into_iter().zip(expected) {
            assert_eq!(is_let_in(&node, client).await, expected, "{client_auth:?}, {client:?}");
        }
    }
}

#[tokio::test]
async fn protocols_and_cipher_suites_are_those_of_the_settings() {
    let ours = Authority::new("ours");
    let with = |protocol: &str, suite: &str, settings: TlsSettings| TlsSettings {
        protocols: vec![protocol.to_owned()],
        cipher_suites: vec![suite.to_owned()],
        ..settings
    };
    let (new, old) = (("TLSv1.3", "TLS_AES_256_GCM_SHA384"), "TLSv1.2");
    let old = (old, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256");
    for node in [new, old] {
        for client in [new, old] {
            let node_settings = with(node.0, node.1, ours.node("localhost"));
            let client_settings = with(client.0, client.1, ours.client());
            let expected = node == client;
            assert_eq!(is_let_in(&node_settings, &client_settings).await, expected);
        }
    }
    let none = with("TLSv1.3", "TLS_NONE", ours.node("localhost"));
    let error = server_config(&none).expect_err("no such suite").to_string();
    assert!(error.contains("TLS_NONE") && error.contains(new.1), "{error}");
    assert!(cipher_suite_names().iter().any(|name| name == old.1));
    let ssl3 = TlsSettings { protocols: vec!["SSLv3".into()], ..ours.node("localhost") };
    let error = server_config(&ssl3).expect_err("too old").to_string();
    assert!(error.contains("SSLv3") && error.contains("TLSv1.2"), "{error}");
}

#[tokio::test]
async fn an_encrypted_key_opens_with_its_password_only() {
    let ours = Authority::new("ours");
    let plain = ours.node("localhost");
    let store = plain.key_store.clone().expect("a key");
    let der = KeyPair::from_pem(&store.key).expect("a key").serialize_der();
    let info = pkcs8::PrivateKeyInfo::try_from(der.as_slice()).expect("a key");
    let parameters = pbes2::Parameters::pbkdf2_sha256_aes256cbc(2048, b"salt1234", &[7; 16]);
    let encrypted = info
        .encrypt_with_params(parameters.expect("parameters"), "secret")
        .expect("encrypted")
        .to_pem("ENCRYPTED PRIVATE KEY", pkcs8::LineEnding::LF)
        .expect("text")
        .to_string();
    let with = |password: Option<&str>| TlsSettings {
        key_store: Some(KeyStore {
            // As in one file with the certificates.
            key: format!("{}\n{encrypted}", store.chain),
            chain: format!("{}\n{encrypted}", store.chain),
            password: password.map(str::to_owned),
        }),
        ..plain.clone()
    };
    assert!(is_let_in(&with(Some("secret")), &ours.client()).await);
    assert!(matches!(server_config(&with(Some("wrong"))), Err(TlsError::Password(_))));
    assert!(matches!(server_config(&with(None)), Err(TlsError::Password(_))));
}

#[test]
fn settings_that_cannot_work_say_why() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let node = ours.node("localhost");
    assert!(matches!(server_config(&ours.client()), Err(TlsError::NoKey)));
    let nobody = TlsSettings { trusted: None, ..node.clone() };
    assert!(matches!(client_config(&nobody), Err(TlsError::NothingTrusted)));
    let strict = TlsSettings { client_auth: ClientAuth::Required, ..nobody };
    assert!(matches!(server_config(&strict), Err(TlsError::NothingTrusted)));
    let text = TlsSettings { trusted: Some("no PEM".into()), ..node.clone() };
    assert!(matches!(client_config(&text), Err(TlsError::Pem(_))));
    let (key, chain) = (theirs.sign("x").key, ours.sign("localhost").chain);
    let mixed = Some(KeyStore { key, chain, password: None });
    let mixed = TlsSettings { key_store: mixed, ..node };
    let error = server_config(&mixed).expect_err("not the certificate's key");
    assert!(error.to_string().contains("does not belong to the first certificate"), "{error}");
}

#[tokio::test]
async fn what_is_put_in_force_later_is_for_new_connections_and_open_ones_stay() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let bound = BoundListeners::bind(&[loopback("SSL")], NetworkSettings::default()).await;
    let mut bound = bound.expect("a free port");
    let config = |authority: &Authority| server_config(&authority.node("localhost")).expect("good");
    let (in_force, config_in_force) = watch::channel(config(&ours));
    bound.encrypt("SSL", &Acceptor::new(config_in_force), kernel().as_ref());
    let server = bound.serve(echoing());
    let mut open = connect(&server, &ours.client()).await.expect("trusted");
    in_force.send_replace(config(&theirs));
    connect(&server, &ours.client()).await.expect_err("signed by somebody else now");
    connect(&server, &theirs.client()).await.expect("trusted");
    open.write_all(&heartbeat(2)).await.expect("sent");
    assert_eq!(receive(&mut open).await.expect("an answer")[..4], [0, 0, 0, 2]);
}

#[tokio::test]
async fn a_client_that_speaks_no_tls_is_closed_and_one_that_says_nothing_holds_nobody_up() {
    let ours = Authority::new("ours");
    let server = serve(echoing(), &ours.node("localhost")).await;
    let mut silent = Client::connect_to(&server, "SSL").await;
    let mut half = Client::connect_to(&server, "SSL").await;
    half.send(&[22, 3, 1, 2, 0, 1]).await;
    let mut plain = Client::connect_to(&server, "SSL").await;
    plain.send(&heartbeat(1)).await;
    // An alert may come before the end; no answer does.
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(LONG, plain.stream.read_to_end(&mut rest)).await.expect("closed");
    assert!(rest.len() < 16, "{rest:?}");
    connect(&server, &ours.client()).await.expect("served beside them");
    assert_eq!(server.counters().handshakes_failed.get(), 1);
    assert_eq!(server.counters().requests.get(), 1);
    // Stopping waits for none of them.
    tokio::time::timeout(LONG, server.shutdown(LONG)).await.expect("stopped");
    assert!(silent.is_closed().await && half.is_closed().await);
}

/// A part of a file.
#[derive(Debug)]
struct Region {
    file: File,
    start: u64,
    length: usize,
}

impl FileRegion for Region {
    fn len(&self) -> usize {
        self.length
    }

    fn read(&self) -> io::Result<Bytes> {
        Err(io::Error::other("a large region is read a piece at a time"))
    }

    fn file(&self) -> Option<(&File, u64)> {
        Some((&self.file, self.start))
    }
}

const LENGTH: usize = 3_000_001;

fn content() -> Vec<u8> {
    (0..LENGTH as u64 + 77).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

/// Answers every fetch with all but the first 77 bytes of the file; any other request as an echo.
struct Fetches {
    path: std::path::PathBuf,
}

impl RequestService for Fetches {
    fn serves(&self, _listener: &str, _api_key: ApiKey, _api_version: i16) -> bool {
        true
    }

    fn call(&self, _context: RequestContext, body: RequestBody, reply: Reply) {
        if matches!(body, RequestBody::Heartbeat(_)) {
            return reply.send(support::echo(&body));
        }
        let file = File::open(&self.path).expect("the file");
        let region = Arc::new(Region { file, start: 77, length: LENGTH });
        let partition =
            PartitionData { records: Some(Records::File(region)), ..PartitionData::default() };
        let topic = FetchableTopicResponse { partitions: vec![partition], ..Default::default() };
        reply.send(ResponseBody::Fetch(FetchResponse {
            responses: vec![topic],
            ..Default::default()
        }));
    }
}

fn fetch() -> Bytes {
    let header = protocol::frame::request_header(ApiKey::Fetch, 12, 2, Some("test"));
    let parts = protocol::frame::encode_request(header, &FetchRequest::default().into());
    join_parts(parts.expect("writable")).expect("in memory")
}

/// A file of records and a server that answers fetches with all but the first 77 bytes of it.
struct Served {
    _folder: tempfile::TempDir,
    path: std::path::PathBuf,
    content: Vec<u8>,
    server: NetworkServer,
}

impl Served {
    async fn start(settings: &TlsSettings, kernel: Option<Arc<KernelTls>>) -> Served {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("0.log");
        let content = content();
        File::create(&path).and_then(|mut file| file.write_all(&content)).expect("written");
        let server = serve_with(Arc::new(Fetches { path: path.clone() }), settings, kernel).await;
        Served { _folder: folder, path, content, server }
    }

    /// Fetches and sees the records whole and in order.
    async fn fetch(&self, stream: &mut TlsStream<TcpStream>) {
        stream.write_all(&fetch()).await.expect("sent");
        let frame = receive(stream).await.expect("an answer");
        let begin = &self.content[77..141];
        let at = frame.windows(64).position(|window| window == begin).expect("the records");
        assert!(frame[at..at + LENGTH] == self.content[77..], "the records, whole and in order");
    }

    /// Cuts the file short: the connection ends within the answer, and the disk is to blame.
    async fn cut_short(&self, stream: &mut TlsStream<TcpStream>) {
        let file = File::options().write(true).open(&self.path).expect("opened");
        file.set_len(1_000_000).expect("cut");
        stream.write_all(&fetch()).await.expect("sent");
        let error = receive(stream).await.expect_err("the frame cannot be finished");
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(self.server.counters().disk_errors.get(), 1, "not the client's fault");
    }
}

#[tokio::test]
async fn f08_records_come_whole_under_tls_and_a_file_that_is_cut_short_closes_the_connection() {
    let ours = Authority::new("ours");
    let served = Served::start(&ours.node("localhost"), None).await;
    let mut stream = connect(&served.server, &ours.client()).await.expect("let in");
    served.fetch(&mut stream).await;
    let by_sendfile = served.server.counters().bytes_sent_by_sendfile.get();
    assert_eq!(by_sendfile, 0, "they had to be encrypted");
    served.cut_short(&mut stream).await;
}
