//! PEM texts into keys and certificates.

use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::der::SecretDocument;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::settings::{KeyStore, TlsError};

const ENCRYPTED_BEGINS: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_ENDS: &str = "-----END ENCRYPTED PRIVATE KEY-----";

/// All certificates of a text, in order; at least one.
pub(super) fn certificates(text: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| TlsError::Pem(format!("no PEM certificate: {error}")))?;
    if found.is_empty() {
        return Err(TlsError::Pem("there is no certificate in the PEM text".to_owned()));
    }
    Ok(found)
}

/// The certificates of a text as those that are trusted.
pub(super) fn trusted(text: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(text)? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

/// The private key, decrypted where it is encrypted.
pub(super) fn private_key(store: &KeyStore) -> Result<PrivateKeyDer<'static>, TlsError> {
    let encrypted = store.key.find(ENCRYPTED_BEGINS).and_then(|begin| {
        let end = begin + store.key[begin..].find(ENCRYPTED_ENDS)? + ENCRYPTED_ENDS.len();
        Some(&store.key[begin..end])
    });
    match encrypted {
        Some(section) => decrypted(section, store.password.as_deref()),
        None => PrivateKeyDer::from_pem_slice(store.key.as_bytes())
            .map_err(|error| TlsError::Pem(format!("no PEM private key: {error}"))),
    }
}

fn decrypted(section: &str, password: Option<&str>) -> Result<PrivateKeyDer<'static>, TlsError> {
    let refused = |error: String| TlsError::Pem(format!("no encrypted private key: {error}"));
    let Some(password) = password else {
        return Err(TlsError::Password("ssl.key.password is not set".to_owned()));
    };
    let (_, document) =
        SecretDocument::from_pem(section).map_err(|error| refused(error.to_string()))?;
    let info = EncryptedPrivateKeyInfo::try_from(document.as_bytes())
        .map_err(|error| refused(error.to_string()))?;
    let key = info.decrypt(password).map_err(|error| TlsError::Password(error.to_string()))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
