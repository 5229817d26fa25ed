//! What certificates say about themselves: how long they are valid, and whose they are.

use std::time::{Duration, SystemTime};

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

use super::pem;
use super::settings::{TlsError, TlsSettings};

/// Certificates that end sooner are told of.
const SOON: Duration = Duration::from_secs(30 * 24 * 3600);

/// A line for each certificate of the key store and the trust store that is not valid at `now`, or will not
/// be in thirty days: which file, whose certificate, what date.
pub fn date_warnings(settings: &TlsSettings, now: SystemTime) -> Vec<String> {
    let key_store = settings.key_store.as_ref().map(|store| store.chain.as_str());
    let stores = [
        (key_store, &settings.key_source, pem::KEY_STORE),
        (settings.trusted.as_deref(), &settings.trust_source, pem::TRUST_STORE),
    ];
    let mut warnings = Vec::new();
    for (text, source, store) in stores {
        for certificate in text.map(parsed).into_iter().flatten() {
            if let Some(what) = date_warning(&certificate, now) {
                let subject = &certificate.tbs_certificate.subject;
                warnings
                    .push(format!("the certificate of {subject} in the {store} {source} {what}"));
            }
        }
    }
    warnings
}

fn date_warning(certificate: &Certificate, now: SystemTime) -> Option<String> {
    let validity = &certificate.tbs_certificate.validity;
    let (begin, end) = (&validity.not_before, &validity.not_after);
    let date = |time: &Time| time.to_date_time().to_string();
    if now < begin.to_system_time() {
        Some(format!("is not valid before {}; are the clocks right?", date(begin)))
    } else if now > end.to_system_time() {
        Some(format!("has expired at {}: others will refuse it", date(end)))
    } else if now + SOON > end.to_system_time() {
        Some(format!("expires at {}", date(end)))
    } else {
        None
    }
}

/// The certificates of a text; those that are something else were refused by whoever uses them.
fn parsed(text: &str) -> Vec<Certificate> {
    let found = pem::certificates(text, "").unwrap_or_default();
    found.iter().filter_map(|der| Certificate::from_der(der).ok()).collect()
}

/// Whether a key store may take the place of another while the node runs: its owner keeps the name and all
/// the alternative names, unless `ssl.allow.dn.changes` and `ssl.allow.san.changes` say otherwise (KIP-978).
///
/// # Errors
/// Which of them it loses.
pub fn check_names_kept(old: &TlsSettings, new: &TlsSettings) -> Result<(), TlsError> {
    let first = |settings: &TlsSettings| {
        let store = settings.key_store.as_ref()?;
        parsed(&store.chain).into_iter().next()
    };
    let (Some(old), Some(changed)) = (first(old), first(new)) else { return Ok(()) };
    let (was, is) = (&old.tbs_certificate.subject, &changed.tbs_certificate.subject);
    if was != is && !new.may_change_dn {
        return Err(TlsError::Names(format!(
            "the new certificate is of {is}, that in force of {was}; ssl.allow.dn.changes=true allows it"
        )));
    }
    let kept = alternative_names(&changed);
    if !new.may_change_san && !alternative_names(&old).iter().all(|name| kept.contains(name)) {
        return Err(TlsError::Names(
            "the new certificate lacks a subjectAltName of that in force; ssl.allow.san.changes=true allows it"
                .to_owned(),
        ));
    }
    Ok(())
}

fn alternative_names(certificate: &Certificate) -> Vec<GeneralName> {
    let found = certificate.tbs_certificate.get::<SubjectAltName>();
    found.ok().flatten().map(|(_, names)| names.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::settings::KeyStore;
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    /// Valid in 2030, from the first of January to the last day of December.
    fn settings(name: &str, hosts: &[&str]) -> TlsSettings {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2030, 12, 31);
        let key = KeyPair::generate().expect("a key");
        let chain = params.self_signed(&key).expect("signed").pem();
        TlsSettings {
            key_store: Some(KeyStore { key: key.serialize_pem(), chain, password: None }),
            key_source: "/node.pem".into(),
            ..TlsSettings::default()
        }
    }

    #[test]
    fn a_certificate_is_told_of_before_its_time_after_it_and_in_the_last_thirty_days() {
        let node = settings("node", &["localhost"]);
        let begin = SystemTime::from(date_time_ymd(2030, 1, 1));
        let end = SystemTime::from(date_time_ymd(2030, 12, 31));
        let second = Duration::from_secs(1);
        let cases = [
            (begin - second, "is not valid before 2030-01-01T00:00:00Z"),
            (begin, ""),
            (end - 30 * DAY, ""),
            (end - 30 * DAY + second, "expires at 2030-12-31T00:00:00Z"),
            (end, "expires at 2030-12-31"),
            (end + second, "has expired at 2030-12-31T00:00:00Z"),
        ];
        for (now, words) in cases {
            let told = date_warnings(&node, now);
            assert_eq!(told.len(), usize::from(!words.is_empty()), "{told:?}");
            for line in told {
                assert!(line.contains(words) && line.contains("/node.pem"), "{line}");
                assert!(line.contains("node in the key store"), "{line}");
            }
        }
    }

    #[test]
    fn every_certificate_of_both_stores_is_looked_at() {
        let mut node = settings("node", &["localhost"]);
        let chain = node.key_store.as_ref().expect("a key").chain.clone();
        node.trusted = Some(format!("{chain}{chain}"));
        node.trust_source = "/trusted.pem".into();
        let told = date_warnings(&node, SystemTime::UNIX_EPOCH);
        assert_eq!(told.iter().filter(|line| line.contains("trust store /trusted.pem")).count(), 2);
        assert_eq!(told.len(), 3);
    }

    /// KIP-978.
    #[test]
    fn a_certificate_keeps_its_names_unless_they_may_change() {
        let old = settings("node", &["a", "b"]);
        let kept = |name: &str, hosts: &[&str], may: [bool; 2]| {
            let [may_change_dn, may_change_san] = may;
            let new = TlsSettings { may_change_dn, may_change_san, ..settings(name, hosts) };
            check_names_kept(&old, &new).map_err(|error| error.to_string())
        };
        assert_eq!(kept("node", &["c", "b", "a"], [false; 2]), Ok(()));
        assert!(kept("other", &["a", "b"], [false, true]).unwrap_err().contains("dn.changes"));
        assert_eq!(kept("other", &["a", "b"], [true, false]), Ok(()));
        assert!(kept("node", &["a"], [true, false]).unwrap_err().contains("san.changes"));
        assert_eq!(kept("node", &["a"], [false, true]), Ok(()));
        let none = TlsSettings::default();
        assert!(check_names_kept(&none, &old).is_ok() && check_names_kept(&old, &none).is_ok());
    }
}
