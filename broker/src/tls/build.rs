//! rustls configurations out of settings.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

use super::pem;
use super::settings::{ClientAuth, TlsError, TlsSettings, cipher_suite_names, java_name};

/// What a listener accepts connections with.
///
/// # Errors
/// A listener needs a key; keys and certificates must be readable and go together.
pub fn server_config(settings: &TlsSettings) -> Result<Arc<ServerConfig>, TlsError> {
    let store = settings.key_store.as_ref().ok_or(TlsError::NoKey)?;
    let provider = provider(settings)?;
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions(settings)?)?;
    let roots = || -> Result<_, TlsError> {
        let text = settings.trusted.as_deref().ok_or(TlsError::NothingTrusted)?;
        Ok(Arc::new(pem::trusted(text)?))
    };
    let verifier = |allow_none: bool| -> Result<_, TlsError> {
        let builder = WebPkiClientVerifier::builder_with_provider(roots()?, provider.clone());
        let builder = if allow_none { builder.allow_unauthenticated() } else { builder };
        builder.build().map_err(|error| TlsError::Pem(error.to_string()))
    };
    let builder = match settings.client_auth {
        ClientAuth::None => builder.with_no_client_auth(),
        ClientAuth::Requested => builder.with_client_cert_verifier(verifier(true)?),
        ClientAuth::Required => builder.with_client_cert_verifier(verifier(false)?),
    };
    let chain = pem::certificates(&store.chain, pem::KEY_STORE)?;
    let mut config = builder.with_single_cert(chain, pem::private_key(store)?)?;
    // For the kernel, where it has TLS; nothing else asks for them.
    config.enable_secret_extraction = true;
    Ok(Arc::new(config))
}

/// What connections to other nodes are made with. Shows the node's own certificate where it has one.
///
/// # Errors
/// The other nodes' certificates need something that is trusted.
pub fn client_config(settings: &TlsSettings) -> Result<Arc<ClientConfig>, TlsError> {
    let provider = provider(settings)?;
    let text = settings.trusted.as_deref().ok_or(TlsError::NothingTrusted)?;
    let roots = Arc::new(pem::trusted(text)?);
    let verifier = WebPkiServerVerifier::builder_with_provider(roots, provider.clone())
        .build()
        .map_err(|error| TlsError::Pem(error.to_string()))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(settings)?)?;
    let builder = if settings.checks_host_names {
        builder.with_webpki_verifier(verifier)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyHostName { verifier }))
    };
    let config = match &settings.key_store {
        Some(store) => {
            let chain = pem::certificates(&store.chain, pem::KEY_STORE)?;
            builder.with_client_auth_cert(chain, pem::private_key(store)?)?
        }
        None => builder.with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

fn provider(settings: &TlsSettings) -> Result<Arc<CryptoProvider>, TlsError> {
    let mut provider = ring::default_provider();
    if !settings.cipher_suites.is_empty() {
        let allowed = cipher_suite_names();
        if let Some(name) = settings.cipher_suites.iter().find(|name| !allowed.contains(name)) {
            return Err(TlsError::Unknown { name: name.clone(), allowed });
        }
        let wanted = &settings.cipher_suites;
        provider.cipher_suites.retain(|suite| wanted.contains(&java_name(suite.suite())));
    }
    Ok(Arc::new(provider))
}

fn versions(settings: &TlsSettings) -> Result<Vec<&'static SupportedProtocolVersion>, TlsError> {
    let known = [("TLSv1.2", &TLS12), ("TLSv1.3", &TLS13)];
    if settings.protocols.is_empty() {
        return Ok(known.map(|(_, version)| version).to_vec());
    }
    let find = |name: &String| {
        let found = known.iter().find(|(own, _)| own == name).map(|(_, version)| *version);
        found.ok_or_else(|| TlsError::Unknown {
            name: name.clone(),
            allowed: known.map(|(own, _)| own.to_owned()).to_vec(),
        })
    };
    settings.protocols.iter().map(find).collect()
}

/// Trusts a certificate by who signed it, whatever name it bears: what an empty
/// `ssl.endpoint.identification.algorithm` asks for.
#[derive(Debug)]
struct AnyHostName {
    verifier: Arc<WebPkiServerVerifier>,
}

impl ServerCertVerifier for AnyHostName {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match verified {
            // The name is looked at last, when all else is in order.
            Err(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            other => other,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
