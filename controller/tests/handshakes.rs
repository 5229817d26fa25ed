//! What is told of handshakes between nodes that fail: each cause once a peer, with what to do.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use controller::handshake::{Acceptor, Connector};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::subscriber::DefaultGuard;

/// Lines that were told.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Hears what this thread tells until the guard goes.
    fn hear() -> (Lines, DefaultGuard) {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    /// All warnings so far, which are forgotten.
    fn warnings(&self) -> Vec<String> {
        let text = std::mem::take(&mut *self.0.lock().expect("no panic"));
        let text = String::from_utf8(text).expect("text");
        text.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Somebody who signs certificates.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    roots: Arc<RootCertStore>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(vec!["authority".to_owned()]).expect("a name");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let mut roots = RootCertStore::empty();
        roots.add(params.self_signed(&key).expect("signed").der().clone()).expect("added");
        Authority { issuer: Issuer::new(params, key), roots: Arc::new(roots) }
    }

    /// A node that shows a certificate of this authority, and wants one of it if `asks`.
    fn server(&self, asks: bool) -> Arc<ServerConfig> {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let chain = vec![params.signed_by(&key, &self.issuer).expect("signed").der().clone()];
        let builder = ServerConfig::builder();
        let builder = if asks {
            let verifier = WebPkiClientVerifier::builder(self.roots.clone()).build();
            builder.with_client_cert_verifier(verifier.expect("roots"))
        } else {
            builder.with_no_client_auth()
        };
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        Arc::new(builder.with_single_cert(chain, key).expect("a key for it"))
    }

    /// A node that trusts this authority and shows no certificate.
    fn client(&self) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder().with_root_certificates(self.roots.clone());
        Arc::new(builder.with_no_client_auth())
    }
}

/// Answers every connection with one byte; its port.
async fn serve(config: watch::Receiver<Arc<ServerConfig>>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let acceptor = Acceptor::new(config);
    tokio::spawn(async move {
        while let Ok((socket, peer)) = listener.accept().await {
            if let Some(mut stream) = acceptor.accept_node(socket, peer).await {
                let _ = stream.write_all(b"a").await;
                let _ = stream.shutdown().await;
            }
        }
    });
    port
}

/// One try: whether an answer came.
async fn ask(connector: &Connector, port: u16) -> io::Result<()> {
    let mut stream = connector.connect("localhost", port).await?;
    stream.read_u8().await.map(|_| ())
}

#[tokio::test]
async fn a_peer_that_is_not_trusted_is_told_once_and_again_only_after_it_was_trusted() {
    let (lines, _guard) = Lines::hear();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let port = serve(watch::channel(ours.server(false)).1).await;
    let (trust, trusted) = watch::channel(theirs.client());
    let connector = Connector::new(trusted);
    for _ in 0..5 {
        let error = ask(&connector.clone(), port).await.expect_err("not trusted");
        assert!(error.to_string().contains("ssl.truststore"), "{error}");
    }
    let told = lines.warnings();
    let here: Vec<_> = told.iter().filter(|line| line.contains("another node")).collect();
    assert!(here.len() == 1, "{told:?}");
    assert!(here[0].contains(&format!("localhost:{port}")), "{here:?}");
    assert!(here[0].contains("ssl.truststore"), "{here:?}");
    // The other side, too, tells once that it is refused.
    assert!(told.len() == 2 && told.iter().any(|line| line.contains("connects")), "{told:?}");

    trust.send_replace(ours.client());
    ask(&connector, port).await.expect("trusted now");
    assert!(lines.warnings().is_empty());
    trust.send_replace(theirs.client());
    for _ in 0..3 {
        ask(&connector, port).await.expect_err("not trusted");
    }
    assert_eq!(lines.warnings().len(), 1, "news again");
}

#[tokio::test]
async fn a_node_whose_certificate_is_refused_after_the_handshake_tells_so_once() {
    let (lines, _guard) = Lines::hear();
    let ours = Authority::new("ours");
    let (config, in_force) = watch::channel(ours.server(true));
    let port = serve(in_force).await;
    let connector = Connector::new(watch::channel(ours.client()).1);
    for _ in 0..5 {
        ask(&connector, port).await.expect_err("refused");
    }
    let told = lines.warnings();
    assert_eq!(told.len(), 2, "one at each end: {told:?}");
    assert!(told.iter().any(|line| line.contains("give this one a key store")), "{told:?}");
    assert!(told.iter().any(|line| line.contains("ssl.client.auth")), "{told:?}");
    config.send_replace(ours.server(false));
    ask(&connector, port).await.expect("served");
}

#[tokio::test]
async fn a_port_that_speaks_no_tls_is_told_as_such() {
    let (lines, _guard) = Lines::hear();
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    let connector = Connector::new(watch::channel(Authority::new("ours").client()).1);
    for _ in 0..3 {
        ask(&connector, port).await.expect_err("no TLS");
    }
    let told = lines.warnings();
    assert!(told.len() == 1 && told[0].contains("speak TLS at all"), "{told:?}");
}
