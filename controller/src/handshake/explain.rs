//! Failures of TLS in words of those who set it up, where rustls speaks of its insides. The same cause has
//! the same words, whenever it is met: no times of day, no counts.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// What went wrong, and what to look at.
pub fn explained(error: &Error) -> String {
    let text = error.to_string();
    let advice = match error {
        Error::InconsistentKeys(_) => {
            return "the private key does not belong to the first certificate of the key store"
                .into();
        }
        Error::InvalidCertificate(reason) => return of_certificate(reason, text),
        Error::AlertReceived(alert) => of_alert(*alert),
        Error::InvalidMessage(_) => "does the other side speak TLS at all?",
        Error::NoCertificatesPresented => {
            "ssl.client.auth asks it for one: give it a key and a certificate by its own ssl.keystore keys"
        }
        Error::PeerIncompatible(_) => NOTHING_IN_COMMON,
        _ => "",
    };
    match advice {
        "" => text,
        advice => format!("{text}; {advice}"),
    }
}

const NOTHING_IN_COMMON: &str = "compare ssl.enabled.protocols and ssl.cipher.suites of both sides";

fn of_certificate(reason: &CertificateError, text: String) -> String {
    match reason {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the other side's certificate has expired: it needs a new one in its key store".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the other side's certificate is not valid yet: compare the clocks, or wait".into()
        }
        CertificateError::UnknownIssuer => format!(
            "{text}: whoever signed the other side's certificate is not among those that ssl.truststore trusts"
        ),
        CertificateError::BadSignature => format!(
            "{text}: whoever signed the other side's certificate has the name of one that ssl.truststore trusts, \
             and another key"
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => format!(
            "{text}: the other side's certificate lacks the name it is reached by; sign one with that \
             subjectAltName, or set ssl.endpoint.identification.algorithm to nothing"
        ),
        _ if text.contains("UnsupportedCertVersion") => {
            "a certificate is X.509 version 1, and only version 3 is read: sign it with extensions, such as \
             subjectAltName"
                .into()
        }
        _ => text,
    }
}

fn of_alert(alert: AlertDescription) -> &'static str {
    match alert {
        AlertDescription::UnknownCA
        | AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::UnsupportedCertificate => {
            "the other side refuses this one's certificate: does its trust store hold who signed it?"
        }
        AlertDescription::CertificateExpired => {
            "the other side refuses this one's certificate, which has expired or is not valid yet"
        }
        AlertDescription::CertificateRequired => {
            "the other side asks for a certificate: give this one a key store by its ssl.keystore keys"
        }
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => NOTHING_IN_COMMON,
        _ => "",
    }
}

/// As [`explained`], of an error of the connection that may hold one of TLS.
pub(crate) fn explained_io(error: &io::Error) -> String {
    match of_tls(error) {
        Some(inner) => explained(inner),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "closed before keys were agreed on; does that port speak TLS?".into()
        }
        None => error.to_string(),
    }
}

/// What rustls said, if it is that.
pub(crate) fn of_tls(error: &io::Error) -> Option<&Error> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::UnixTime;
    use std::time::Duration;

    #[test]
    fn the_same_cause_has_the_same_words_at_any_time() {
        let expired = |seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let not_after = UnixTime::since_unix_epoch(Duration::from_secs(1));
            explained(&CertificateError::ExpiredContext { time, not_after }.into())
        };
        assert_eq!(expired(10), expired(20));
        assert!(expired(10).contains("has expired"));
    }

    #[test]
    fn every_cause_says_what_to_look_at() {
        let cases: [(Error, &str); 7] = [
            (CertificateError::BadSignature.into(), "another key"),
            (CertificateError::UnknownIssuer.into(), "ssl.truststore"),
            (CertificateError::NotValidForName.into(), "ssl.endpoint.identification.algorithm"),
            (CertificateError::NotValidYet.into(), "clocks"),
            (Error::NoCertificatesPresented, "ssl.client.auth"),
            (Error::AlertReceived(AlertDescription::UnknownCA), "trust store"),
            (Error::AlertReceived(AlertDescription::ProtocolVersion), "ssl.enabled.protocols"),
        ];
        for (error, word) in cases {
            let text = explained(&error);
            assert!(text.contains(word), "{text}");
        }
        let eof = io::Error::from(io::ErrorKind::UnexpectedEof);
        assert!(explained_io(&eof).contains("does that port speak TLS"));
        assert_eq!(explained_io(&io::Error::other("gone")), "gone");
    }
}
