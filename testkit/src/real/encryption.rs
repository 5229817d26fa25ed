//! TLS for a whole cluster: a listener `SSL` for clients beside the plain one, which brokers reach each
//! other by too, and a controller listener under TLS.

use std::path::PathBuf;

/// The PEM files of an encrypted cluster. All nodes share them; their certificate is for `127.0.0.1`.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// A private key, its certificate, and those that lead to a trusted one.
    pub key_store: PathBuf,
    /// The certificates that nodes trust.
    pub trust_store: PathBuf,
    /// `ssl.client.auth`.
    pub client_auth: &'static str,
}

impl Encryption {
    /// The lines of a node's properties that make it so. `plain`, `ssl` and `control` are `host:port`.
    pub(super) fn properties(&self, plain: &str, ssl: &str, control: &str) -> String {
        let brokers = format!("PLAINTEXT://{plain},SSL://{ssl}");
        format!(
            "listeners={brokers},CONTROLLER://{control}\n\
             advertised.listeners={brokers}\n\
             listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL\n\
             inter.broker.listener.name=SSL\n\
             ssl.keystore.type=PEM\n\
             ssl.keystore.location={}\n\
             ssl.truststore.type=PEM\n\
             ssl.truststore.location={}\n\
             ssl.client.auth={}\n",
            self.key_store.display(),
            self.trust_store.display(),
            self.client_auth
        )
    }
}
