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
    /// The settings of a node that make it so. `plain`, `ssl` and `control` are `host:port`.
    pub(super) fn settings(
        &self,
        plain: &str,
        ssl: &str,
        control: &str,
    ) -> Vec<(&'static str, String)> {
        let brokers = format!("PLAINTEXT://{plain},SSL://{ssl}");
        vec![
            ("listeners", format!("{brokers},CONTROLLER://{control}")),
            ("advertised.listeners", brokers),
            ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL".into()),
            ("inter.broker.listener.name", "SSL".into()),
            ("ssl.keystore.type", "PEM".into()),
            ("ssl.keystore.location", self.key_store.display().to_string()),
            ("ssl.truststore.type", "PEM".into()),
            ("ssl.truststore.location", self.trust_store.display().to_string()),
            ("ssl.client.auth", self.client_auth.into()),
        ]
    }
}
