//! TLS on listeners and between nodes: what the `ssl.*` keys say ([`TlsSettings`]), and the rustls
//! configurations made of it. Keys and certificates are PEM (KIP-651), in files or in the properties
//! themselves. JKS and PKCS12 stores are refused with what to do instead.

mod build;
mod dates;
mod pem;
mod settings;

pub use build::{client_config, server_config};
pub use dates::{check_names_kept, date_warnings};
pub use settings::{ClientAuth, KeyStore, TlsError, TlsSettings, cipher_suite_names};
