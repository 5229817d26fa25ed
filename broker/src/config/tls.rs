//! The `ssl.*` keys of each listener with TLS: `listener.name.<name>.<key>` is stronger than the key
//! itself, as in Kafka. PEM is read (KIP-651); other kinds of stores stop the start.

use std::collections::BTreeMap;

use super::endpoint::SecurityProtocol;
use super::listeners::ListenersConfig;
use super::reader::Reader;
use crate::tls::{ClientAuth, KeyStore, TlsSettings, client_config, server_config};

/// The keys that a listener may have for itself.
pub(super) const LISTENER_KEYS: &[&str] = &[
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
const CONVERT: &str =
    "only PEM is read: set it to PEM, and convert other stores with keytool and openssl";

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
            reader.conflict(format!(
                "listener {name} has the protocol SSL: {error}. ssl.keystore.type=PEM with ssl.keystore.location \
                 (or ssl.keystore.key and ssl.keystore.certificate.chain) gives its key, ssl.truststore.type=PEM \
                 with ssl.truststore.location (or ssl.truststore.certificates) whom it trusts"
            ));
        }
        all.insert(name.clone(), settings);
    }
    all
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
    TlsSettings {
        key_store: read_key_store(reader, listener),
        trusted: read_trusted(reader, listener),
        client_auth,
        protocols: names(reader.listener_text(listener, "ssl.enabled.protocols")),
        cipher_suites: names(reader.listener_text(listener, "ssl.cipher.suites")),
        checks_host_names: reader
            .listener_text(listener, "ssl.endpoint.identification.algorithm")
            .is_some_and(|name| name.eq_ignore_ascii_case("https")),
    }
}

fn read_key_store(reader: &mut Reader<'_>, listener: &str) -> Option<KeyStore> {
    let location = reader.listener_text(listener, "ssl.keystore.location");
    let key = reader.listener_text(listener, "ssl.keystore.key");
    let chain = reader.listener_text(listener, "ssl.keystore.certificate.chain");
    let password = reader.listener_text(listener, "ssl.key.password");
    check_kind(
        reader,
        listener,
        ["ssl.keystore.type", "ssl.keystore.password"],
        location.is_some() || key.is_some(),
    );
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
    check_kind(
        reader,
        listener,
        ["ssl.truststore.type", "ssl.truststore.password"],
        location.is_some() || text.is_some(),
    );
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

/// A store that is given must be PEM, which has no password of its own.
fn check_kind(
    reader: &mut Reader<'_>,
    listener: &str,
    [kind_key, password_key]: [&'static str; 2],
    is_given: bool,
) {
    let kind = reader.listener_text(listener, kind_key).unwrap_or_default();
    let password = reader.listener_text(listener, password_key);
    if is_given && !kind.eq_ignore_ascii_case(PEM) {
        reader.refuse(kind_key, kind, CONVERT);
    } else if is_given && password.is_some() {
        let reason = "a PEM store has no password; that of an encrypted key is ssl.key.password";
        reader.refuse(password_key, "[hidden]", reason);
    }
}

fn read_file(reader: &mut Reader<'_>, key: &'static str, path: &str) -> Option<String> {
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) => {
            reader.refuse(key, path, format!("the file cannot be read: {error}"));
            None
        }
    }
}
