//! What a listener's `ssl.*` keys say, as plain data.

use std::fmt;

use controller::handshake::explained;
use rustls::crypto::ring::ALL_CIPHER_SUITES;

/// `ssl.client.auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// Clients are not asked who they are.
    #[default]
    None,
    /// A certificate is checked if the client has one.
    Requested,
    /// A client without a certificate that is trusted is refused.
    Required,
}

/// A private key and its certificates, as PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyStore {
    /// The private key, encrypted or not.
    pub key: String,
    /// The certificate, then those that lead to one that is trusted.
    pub chain: String,
    /// `ssl.key.password`, of an encrypted key.
    pub password: Option<String>,
}

impl fmt::Debug for KeyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyStore(hidden)")
    }
}

/// The TLS of one listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsSettings {
    /// Who this node is; a listener needs it.
    pub key_store: Option<KeyStore>,
    /// The certificates whose owners' signatures are trusted, as PEM text.
    pub trusted: Option<String>,
    /// Whether clients must show a certificate.
    pub client_auth: ClientAuth,
    /// `TLSv1.2` and `TLSv1.3`, or one of them; both where it is empty.
    pub protocols: Vec<String>,
    /// Java's names of the cipher suites that may be used; all that rustls has where it is empty.
    pub cipher_suites: Vec<String>,
    /// Whether a node's certificate must name the host it is reached at
    /// (`ssl.endpoint.identification.algorithm=https`).
    pub checks_host_names: bool,
    /// `ssl.allow.dn.changes`: whether a key store of another owner may take its place.
    pub may_change_dn: bool,
    /// `ssl.allow.san.changes`: whether one with fewer alternative names may.
    pub may_change_san: bool,
    /// The file or key that the key store is from.
    pub key_source: String,
    /// The file or key that the trusted certificates are from.
    pub trust_source: String,
}

/// Why no TLS can be made of settings.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A listener has no key.
    #[error("a listener with TLS needs a private key and a certificate")]
    NoKey,
    /// Nobody can be trusted.
    #[error("there are no trusted certificates")]
    NothingTrusted,
    /// A PEM text that is none, or holds something else.
    #[error("{0}")]
    Pem(String),
    /// The encrypted key does not open.
    #[error("the private key cannot be decrypted: {0}")]
    Password(String),
    /// Names that rustls does not have.
    #[error("{name} is not one of {}", .allowed.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        allowed: Vec<String>,
    },
    /// A certificate of others than the one it would replace.
    #[error("{0}")]
    Names(String),
    /// Key, certificates and options do not go together.
    #[error("{}", explained(.0))]
    Rustls(#[from] rustls::Error),
}

impl TlsError {
    /// Whether keys are missing, not wrong.
    pub fn is_missing(&self) -> bool {
        matches!(self, TlsError::NoKey | TlsError::NothingTrusted)
    }
}

/// The cipher suites there are, by their names in Java.
pub fn cipher_suite_names() -> Vec<String> {
    ALL_CIPHER_SUITES.iter().map(|suite| java_name(suite.suite())).collect()
}

/// rustls sets the suites of TLS 1.3 apart by their prefix.
pub(super) fn java_name(suite: rustls::CipherSuite) -> String {
    let name = format!("{suite:?}");
    name.strip_prefix("TLS13_").map_or(name.clone(), |rest| format!("TLS_{rest}"))
}
