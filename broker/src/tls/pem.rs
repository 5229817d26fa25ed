//! PEM texts into keys and certificates.

use pkcs8::EncryptedPrivateKeyInfo;
use pkcs8::der::SecretDocument;
use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

use super::settings::{KeyStore, TlsError};

/// What messages call the texts.
pub(super) const KEY_STORE: &str = "key store";
pub(super) const TRUST_STORE: &str = "trust store";
const ENCRYPTED_BEGINS: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----";
const ENCRYPTED_ENDS: &str = "-----END ENCRYPTED PRIVATE KEY-----";
/// Stands in keys that OpenSSL encrypted before PKCS#8.
const OLD_ENCRYPTION: &str = "Proc-Type: 4,ENCRYPTED";

/// All certificates of `store`'s text, in order; at least one.
pub(super) fn certificates(
    text: &str,
    store: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    refuse_old_encryption(text)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let found = found.map_err(|error| TlsError::Pem(format!("the {store} is not PEM: {error}")))?;
    if found.is_empty() {
        return Err(TlsError::Pem(format!("there is no PEM certificate in the {store}")));
    }
    Ok(found)
}

fn refuse_old_encryption(text: &str) -> Result<(), TlsError> {
    match text.contains(OLD_ENCRYPTION) {
        true => Err(TlsError::Password(
            "it is encrypted in OpenSSL's old way, which `openssl pkcs8 -topk8` changes to PKCS#8"
                .to_owned(),
        )),
        false => Ok(()),
    }
}

/// The certificates of a text as those that are trusted.
pub(super) fn trusted(text: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(text, TRUST_STORE)? {
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
        None => {
            refuse_old_encryption(&store.key)?;
            PrivateKeyDer::from_pem_slice(store.key.as_bytes()).map_err(|error| match error {
                pem::Error::NoItemsFound => {
                    TlsError::Pem(format!("there is no PEM private key in the {KEY_STORE}"))
                }
                other => TlsError::Pem(format!("the private key is not PEM: {other}")),
            })
        }
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
    let key = info
        .decrypt(password)
        .map_err(|error| TlsError::Password(format!("is ssl.key.password right? {error}")))?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}
