//! The `ssl.*` keys of each listener with TLS: `listener.name.<name>.<key>` is stronger than the key
//! itself, as in Kafka. PEM is read (KIP-651); other kinds of stores stop the start.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use controller::config::STORE_KEYS;

use super::endpoint::SecurityProtocol;
use super::listeners::ListenersConfig;
use super::reader::Reader;
use crate::tls::{ClientAuth, KeyStore, TlsSettings, client_config, server_config};

/// The keys that a listener may have for itself.
pub(super) const LISTENER_KEYS: &[&str] = &[
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

const PEM: &str = "PEM";
/// Stores that are larger are not read.
const MOST_BYTES: u64 = 16 * 1024 * 1024;
const CONVERT: &str = "only PEM is read: set it to PEM, and convert other stores, JKS to PKCS12 with `keytool \
                       -importkeystore` and PKCS12 to PEM with `openssl pkcs12`";

/// What to set where something is missing.
const KEYS: &str = ". ssl.keystore.type=PEM with ssl.keystore.location (or ssl.keystore.key and \
                    ssl.keystore.certificate.chain) gives its key, ssl.truststore.type=PEM with \
                    ssl.truststore.location (or ssl.truststore.certificates) whom it trusts";

/// The TLS of all listeners that this node listens on or connects to, by name; each is tried, so that the
/// start does not fail later.
pub(super) fn read(
    reader: &mut Reader<'_>,
    listeners: &ListenersConfig,
    protocols: &BTreeMap<String, SecurityProtocol>,
) -> BTreeMap<String, TlsSettings> {
    let own = listeners.broker.iter().chain(&listeners.controller);
    let own: Vec<&str> = own.map(|endpoint| endpoint.listener.as_str()).collect();
    let mut reached: Vec<&str> = Vec::new();
    if !listeners.broker.is_empty() {
        reached.push(&listeners.inter_broker_name);
    }
    reached.extend(listeners.controller_names.first().map(String::as_str));
    let mut all = BTreeMap::new();
    for (name, _) in protocols.iter().filter(|(_, protocol)| **protocol == SecurityProtocol::Ssl) {
        let (accepts, connects) = (own.contains(&name.as_str()), reached.contains(&name.as_str()));
        if !accepts && !connects {
            continue;
        }
        let errors = reader.errors.len();
        let settings = read_one(reader, name);
        if reader.errors.len() > errors {
            continue;
        }
        let tried = [
            accepts.then(|| server_config(&settings).map(|_| ())),
            connects.then(|| client_config(&settings).map(|_| ())),
        ];
        if let Some(error) = tried.into_iter().flatten().find_map(Result::err) {
            let keys = if error.is_missing() { KEYS } else { "" };
            reader.conflict(format!("listener {name} has the protocol SSL: {error}{keys}"));
        }
        all.insert(name.clone(), settings);
    }
    all
}

/// The TLS of one listener once `dynamic` keys, `listener.name.<listener>.<key>` of this broker's configs,
/// lie over what it was started with. Files are read anew.
///
/// # Errors
/// All that is wrong, in one text.
pub(crate) fn read_again(
    properties: &BTreeMap<String, String>,
    dynamic: &BTreeMap<String, String>,
    listener: &str,
) -> Result<TlsSettings, String> {
    let prefix = listener_prefix(listener);
    let mut settings = properties.clone();
    for (key, value) in dynamic {
        if key.strip_prefix(&prefix).is_some_and(|key| STORE_KEYS.contains(&key)) {
            settings.insert(key.clone(), value.clone());
        }
    }
    let mut reader = Reader::new(&settings);
    let read = read_one(&mut reader, listener);
    match reader.errors.is_empty() {
        true => Ok(read),
        false => {
            let errors: Vec<String> = reader.errors.iter().map(ToString::to_string).collect();
            Err(errors.join("; "))
        }
    }
}

/// What a key of a listener's own begins with.
pub(crate) fn listener_prefix(listener: &str) -> String {
    format!("listener.name.{}.", listener.to_lowercase())
}

fn read_one(reader: &mut Reader<'_>, listener: &str) -> TlsSettings {
    let client_auth = match reader.listener_text(listener, "ssl.client.auth").as_deref() {
        Some("required") => ClientAuth::Required,
        Some("requested") => ClientAuth::Requested,
        _ => ClientAuth::None,
    };
    let names = |text: Option<String>| {
        let text = text.unwrap_or_default();
        text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    };
    let flag = |text: Option<String>| text.is_some_and(|text| text.eq_ignore_ascii_case("true"));
    TlsSettings {
        key_store: read_key_store(reader, listener),
        trusted: read_trusted(reader, listener),
        key_source: source(reader, listener, ["ssl.keystore.location", "ssl.keystore.key"]),
        trust_source: source(
            reader,
            listener,
            ["ssl.truststore.location", "ssl.truststore.certificates"],
        ),
        may_change_dn: flag(reader.listener_text(listener, "ssl.allow.dn.changes")),
        may_change_san: flag(reader.listener_text(listener, "ssl.allow.san.changes")),
        client_auth,
        protocols: names(reader.listener_text(listener, "ssl.enabled.protocols")),
        cipher_suites: names(reader.listener_text(listener, "ssl.cipher.suites")),
        checks_host_names: reader
            .listener_text(listener, "ssl.endpoint.identification.algorithm")
            .is_some_and(|name| name.eq_ignore_ascii_case("https")),
    }
}

/// The file's name, or the key that holds the text itself.
fn source(reader: &mut Reader<'_>, listener: &str, [file, text]: [&'static str; 2]) -> String {
    reader.listener_text(listener, file).unwrap_or_else(|| text.to_owned())
}

fn read_key_store(reader: &mut Reader<'_>, listener: &str) -> Option<KeyStore> {
    let location = reader.listener_text(listener, "ssl.keystore.location");
    let key = reader.listener_text(listener, "ssl.keystore.key");
    let chain = reader.listener_text(listener, "ssl.keystore.certificate.chain");
    let password = reader.listener_text(listener, "ssl.key.password");
    let keys = ["ssl.keystore.type", "ssl.keystore.password"];
    if !is_kind_read(reader, listener, keys, location.is_some() || key.is_some()) {
        return None;
    }
    match (location, key, chain) {
        (None, None, None) => None,
        (Some(path), None, None) => {
            let text = read_file(reader, "ssl.keystore.location", &path)?;
            Some(KeyStore { key: text.clone(), chain: text, password })
        }
        (None, Some(key), Some(chain)) => Some(KeyStore { key, chain, password }),
        (Some(_), _, _) => {
            reader.conflict(
                "ssl.keystore.location cannot be set beside ssl.keystore.key or ssl.keystore.certificate.chain",
            );
            None
        }
        (None, _, _) => {
            reader.conflict(
                "ssl.keystore.key and ssl.keystore.certificate.chain must be set together",
            );
            None
        }
    }
}

fn read_trusted(reader: &mut Reader<'_>, listener: &str) -> Option<String> {
    let location = reader.listener_text(listener, "ssl.truststore.location");
    let text = reader.listener_text(listener, "ssl.truststore.certificates");
    let keys = ["ssl.truststore.type", "ssl.truststore.password"];
    if !is_kind_read(reader, listener, keys, location.is_some() || text.is_some()) {
        return None;
    }
    match (location, text) {
        (Some(_), Some(_)) => {
            reader.conflict(
                "ssl.truststore.location cannot be set beside ssl.truststore.certificates",
            );
            None
        }
        (Some(path), None) => read_file(reader, "ssl.truststore.location", &path),
        (None, text) => text,
    }
}

/// A store that is given must be PEM, which has no password of its own. What is in another is not looked at.
fn is_kind_read(
    reader: &mut Reader<'_>,
    listener: &str,
    [kind_key, password_key]: [&'static str; 2],
    is_given: bool,
) -> bool {
    let kind = reader.listener_text(listener, kind_key).unwrap_or_default();
    let password = reader.listener_text(listener, password_key);
    if is_given && !kind.eq_ignore_ascii_case(PEM) {
        reader.refuse(kind_key, kind, CONVERT);
        return false;
    }
    if is_given && password.is_some() {
        let reason = "a PEM store has no password; that of an encrypted key is ssl.key.password";
        reader.refuse(password_key, "[hidden]", reason);
    }
    true
}

fn read_file(reader: &mut Reader<'_>, key: &'static str, path: &str) -> Option<String> {
    // Clients may name files of a running node: none that never ends, or that nobody can hold.
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() || found.len() > MOST_BYTES => {
            reader.refuse(key, path, "it is no regular file of at most 16 MiB");
            return None;
        }
        // What cannot be looked at cannot be read either.
        _ => {}
    }
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            reader.refuse(
                key,
                path,
                "the file is not PEM text; JKS and PKCS12 stores must be converted",
            );
            None
        }
        Err(error) => {
            reader.refuse(key, path, format!("the file cannot be read: {error}"));
            None
        }
    }
}
