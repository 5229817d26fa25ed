//! The TLS of listeners, as settings say it.

use super::tests::{loaded, refused};

/// A key, and a certificate that it signed itself.
fn key_and_certificate() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["node".to_owned()]).expect("made");
    (made.signing_key.serialize_pem(), made.cert.pem())
}

/// The beginning of a key that `openssl rsa -aes256 -traditional` makes.
const OLD: &str = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,00\n\nAA==\n\
                   -----END RSA PRIVATE KEY-----\n";

type Pairs<'a> = &'a [(&'a str, &'a str)];

const SSL: Pairs<'_> = &[
    ("listeners", "PLAINTEXT://:1,OUT://:3,CONTROLLER://:2"),
    ("advertised.listeners", "PLAINTEXT://h:1,OUT://h:3"),
    ("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,OUT:SSL,CONTROLLER:PLAINTEXT"),
];

#[test]
fn a_listeners_own_tls_keys_are_stronger_than_those_of_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.pem");
    let (key, certificate) = key_and_certificate();
    std::fs::write(&path, format!("{key}{certificate}")).expect("written");
    let path = path.to_str().expect("text");
    let (config, warnings) = loaded(
        &[
            SSL,
            &[
                ("ssl.keystore.type", "PEM"),
                ("ssl.keystore.location", "/of/somebody/else"),
                ("listener.name.out.ssl.keystore.location", path),
                ("ssl.truststore.type", "PEM"),
                ("ssl.truststore.certificates", &certificate),
                ("listener.name.out.ssl.client.auth", "required"),
                ("ssl.enabled.protocols", "TLSv1.3"),
                ("ssl.allow.dn.changes", "true"),
                ("listener.name.out.ssl.allow.san.changes", "true"),
                ("ssl.endpoint.identification.algorithm", ""),
            ],
        ]
        .concat(),
    );
    assert_eq!(warnings, []);
    let tls = &config.listeners.tls["OUT"];
    assert_eq!(tls.client_auth, crate::tls::ClientAuth::Required);
    assert_eq!(
        (tls.protocols.as_slice(), tls.checks_host_names),
        (&["TLSv1.3".to_owned()][..], false)
    );
    assert!(tls.may_change_dn && tls.may_change_san, "flags are read for all listeners too");
    assert_eq!(config.listeners.tls.len(), 1, "the others are plain");
    assert!(!format!("{:?}", config.listeners).contains("PRIVATE"), "a key is never told");
}

#[test]
fn tls_that_cannot_work_stops_the_start_and_says_what_is_needed() {
    let (key, certificate) = key_and_certificate();
    let (other, _) = key_and_certificate();
    let folder = tempfile::tempdir().expect("a folder");
    let store = folder.path().join("node.jks");
    std::fs::write(&store, [0xfe, 0xed, 0xfe, 0xed]).expect("written");
    let store = store.to_str().expect("text");
    let (pem, trust) = (("ssl.keystore.type", "PEM"), ("ssl.truststore.type", "PEM"));
    let key = ("ssl.keystore.key", key.as_str());
    let chain = ("ssl.keystore.certificate.chain", certificate.as_str());
    let cases: &[(Pairs<'_>, &[&str])] = &[
        (&[], &["OUT", "needs a private key", "ssl.keystore.location"]),
        (&[("ssl.keystore.location", "/a.jks")], &["ssl.keystore.type", "JKS", "only PEM is read"]),
        (&[pem, ("ssl.keystore.location", "/none.pem")], &["/none.pem", "cannot be read"]),
        (&[pem, ("ssl.keystore.location", "/dev/zero")], &["/dev/zero", "no regular file"]),
        (
            &[pem, ("ssl.keystore.location", store)],
            &["ssl.keystore.location", "not PEM text", "JKS"],
        ),
        (&[pem, ("ssl.keystore.location", store), ("ssl.keystore.type", "JKS")], &["keytool"]),
        (&[pem, key], &["ssl.keystore.certificate.chain", "together"]),
        (
            &[pem, ("ssl.keystore.key", other.as_str()), chain],
            &["does not belong to the first certificate"],
        ),
        (
            &[pem, ("ssl.keystore.key", certificate.as_str()), chain],
            &["no PEM private key in the key store"],
        ),
        (
            &[pem, key, ("ssl.keystore.certificate.chain", key.1)],
            &["no PEM certificate in the key store"],
        ),
        (
            &[pem, ("ssl.keystore.key", OLD), chain],
            &["cannot be decrypted", "openssl pkcs8 -topk8"],
        ),
        (
            &[
                pem,
                key,
                chain,
                ("ssl.client.auth", "required"),
                ("ssl.truststore.certificates", "x"),
                trust,
            ],
            &["no PEM certificate in the trust store"],
        ),
        (&[pem, key, chain, ("ssl.keystore.location", "/a.pem")], &["cannot be set beside"]),
        (&[pem, key, chain, ("ssl.keystore.password", "p")], &["ssl.key.password"]),
        (&[pem, key, chain, ("ssl.client.auth", "required")], &["no trusted certificates"]),
        (&[pem, key, chain, ("ssl.client.auth", "maybe")], &["ssl.client.auth", "maybe"]),
        (
            &[pem, key, chain, ("listener.name.out.ssl.client.auth", "maybe")],
            &["maybe", "requested"],
        ),
        (&[pem, key, chain, ("ssl.cipher.suites", "ROT13")], &["ROT13", "TLS_AES_256_GCM_SHA384"]),
        (
            &[pem, key, chain, ("inter.broker.listener.name", "OUT")],
            &["OUT", "no trusted certificates", "ssl.truststore.location"],
        ),
    ];
    for (pairs, words) in cases {
        let text = refused(&[SSL, pairs].concat());
        for word in *words {
            assert!(text.contains(word), "{pairs:?}: {text}");
        }
        assert!(!text.contains("PRIVATE"), "a key is never told: {text}");
    }
}
