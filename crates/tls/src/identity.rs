//! The TLS identity of the service: its certificates, the rule by which one is chosen, and the protocol settings.
//!
//! An [`TlsIdentity`] is built whole from files and never changes. Cores get a new one by message; connections keep the
//! one that they began with.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{CipherSuite, InconsistentKeys, ServerConfig};
use x509_parser::extensions::GeneralName;

use crate::provider;

/// ALPN name of HTTP/2 (RFC 9113, section 3.2).
pub const HTTP2: &[u8] = b"h2";

/// ALPN name of HTTP/1.1 (RFC 7301, section 6).
const HTTP1: &[u8] = b"http/1.1";

/// Moves the suites with SHA-256 before those with SHA-384, whatever clients prefer. Many CPUs have instructions for
/// SHA-256 only, and SHA-384 then costs a fifth of a handshake. AES with 128-bit keys is as safe for this purpose.
fn quick_first(provider: Arc<CryptoProvider>) -> Arc<CryptoProvider> {
    let mut provider = Arc::unwrap_or_clone(provider);
    let is_quick = |suite| {
        matches!(
            suite,
            CipherSuite::TLS13_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256
                | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256
        )
    };
    provider.cipher_suites.sort_by_key(|suite| !is_quick(suite.suite()));
    Arc::new(provider)
}

/// The keys of session tickets, which exist in memory only. They rotate every six hours, and the previous ones stay
/// valid for as long. All cores share them, so a session that began on one core can resume on any.
#[derive(Clone, Debug)]
pub struct Tickets(Arc<dyn ProducesTickets>);

impl Tickets {
    /// Generates the first keys.
    ///
    /// # Errors
    /// A message if the system provides no random bytes.
    pub fn new() -> Result<Tickets, String> {
        rustls::crypto::aws_lc_rs::Ticketer::new().map(Tickets).map_err(|error| error.to_string())
    }
}

/// A certificate chain and its private key, both in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Pair {
    /// The certificate of the service first, then the intermediate certificates.
    pub certificates: Vec<u8>,
    /// The private key, not encrypted.
    pub key: Vec<u8>,
}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pair")
    }
}

/// The defect of a certificate chain or a private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CertificateError {
    /// A description of the defect of the certificates.
    Certificates(String),
    /// A description of the defect of the key, without any of its content.
    Key(String),
}

/// Public properties of a certificate in use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateInfo {
    /// The names that the certificate is for, in lower case.
    pub names: Vec<String>,
    /// Start of its validity, in seconds since 1970 UTC.
    pub since: i64,
    /// End of its validity, in seconds since 1970 UTC.
    pub until: i64,
}

/// The TLS identity of the service.
#[derive(Clone, Debug)]
pub struct TlsIdentity {
    config: Arc<ServerConfig>,
    about: Arc<[CertificateInfo]>,
}

impl TlsIdentity {
    /// Creates an identity from certificates. A client gets the first one that fits its requested name and its
    /// signature algorithms. If no certificate has the name, it gets the first of all. TLS 1.3 and 1.2 are enabled.
    ///
    /// # Errors
    /// The index of the first defective pair, and its defect.
    pub fn new(pairs: &[Pair], tickets: &Tickets, http2: bool) -> Result<TlsIdentity, (usize, CertificateError)> {
        let provider = quick_first(provider());
        let mut by_name = ByName::default();
        let mut about = Vec::new();
        for (number, pair) in pairs.iter().enumerate() {
            let (key, of_key) = certified(pair, &provider).map_err(|wrong| (number, wrong))?;
            by_name.add(&Arc::new(key), &of_key.names);
            about.push(of_key);
        }
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider can do both versions")
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(by_name));
        config.ticketer = Arc::clone(&tickets.0);
        config.ignore_client_order = true;
        // Tickets need no memory on the server, and no lock.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = if http2 { vec![HTTP2.to_vec(), HTTP1.to_vec()] } else { vec![HTTP1.to_vec()] };
        Ok(TlsIdentity { config: Arc::new(config), about: about.into() })
    }

    /// Returns the TLS settings of a new connection.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }

    /// Returns the certificates, in their order.
    pub fn about(&self) -> &[CertificateInfo] {
        &self.about
    }
}

/// The certificates of an identity, by name.
#[derive(Debug, Default)]
struct ByName {
    named: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// Certificates by the parent of a wildcard, whose star stands for one label (RFC 9525, section 6.3).
    below: HashMap<String, Vec<Arc<CertifiedKey>>>,
    all: Vec<Arc<CertifiedKey>>,
}

impl ByName {
    fn add(&mut self, key: &Arc<CertifiedKey>, names: &[String]) {
        for name in names {
            let place = match name.strip_prefix("*.") {
                Some(parent) => self.below.entry(parent.to_owned()),
                None => self.named.entry(name.clone()),
            };
            place.or_default().push(Arc::clone(key));
        }
        self.all.push(Arc::clone(key));
    }

    /// Returns the certificates for a name, the best first: exact names, then wildcards. If none matches, returns all
    /// of them.
    fn of(&self, name: Option<&str>) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let name = name.unwrap_or_default().to_ascii_lowercase();
        let named = self.named.get(&name);
        let below = name.split_once('.').and_then(|(_, parent)| self.below.get(parent));
        let all = (named.is_none() && below.is_none()).then_some(&self.all);
        named.into_iter().chain(below).chain(all).flatten()
    }
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let fits = |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let mut keys = self.of(hello.server_name());
        keys.find(fits).or_else(|| self.of(hello.server_name()).next()).cloned()
    }
}

/// Parses a pair, and returns it with its public properties.
fn certified(pair: &Pair, provider: &CryptoProvider) -> Result<(CertifiedKey, CertificateInfo), CertificateError> {
    let in_pem = |error: &dyn fmt::Display| CertificateError::Certificates(format!("it is not a PEM file: {error}"));
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&pair.certificates).collect::<Result<_, _>>().map_err(|error| in_pem(&error))?;
    let Some(first) = chain.first() else {
        return Err(CertificateError::Certificates(
            "it contains no certificate (`-----BEGIN CERTIFICATE-----`)".to_owned(),
        ));
    };
    let about = about(first).map_err(CertificateError::Certificates)?;
    let key =
        PrivateKeyDer::from_pem_slice(&pair.key).map_err(|_| CertificateError::Key(no_key(&pair.key).to_owned()))?;
    match CertifiedKey::from_der(chain, key, provider) {
        Ok(certified) => Ok((certified, about)),
        Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(CertificateError::Key("the key does not match the certificate".to_owned()))
        }
        Err(error) => Err(CertificateError::Key(format!("it cannot be used: {error}"))),
    }
}

/// Returns the reason for which a file has no usable key, without any of its content.
fn no_key(pem: &[u8]) -> &'static str {
    match memchr::memmem::find(pem, b"ENCRYPTED") {
        Some(_) => "it is encrypted; store the key without a password",
        None => "it contains no private key (`-----BEGIN PRIVATE KEY-----`)",
    }
}

fn about(certificate: &CertificateDer<'_>) -> Result<CertificateInfo, String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
        .map_err(|error| format!("its first certificate cannot be read: {error}"))?;
    let names = match parsed.subject_alternative_name() {
        Ok(Some(extension)) => {
            let names = extension.value.general_names.iter().filter_map(|name| match name {
                GeneralName::DNSName(name) => Some(name.to_ascii_lowercase()),
                _ => None,
            });
            names.collect()
        }
        _ => Vec::new(),
    };
    let validity = parsed.validity();
    Ok(CertificateInfo { names, since: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(names: &[&str]) -> Pair {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        Pair { certificates: made.cert.pem().into_bytes(), key: made.signing_key.serialize_pem().into_bytes() }
    }

    fn chosen(by_name: &ByName, name: Option<&str>) -> usize {
        let first = by_name.of(name).next().unwrap();
        by_name.all.iter().position(|key| Arc::ptr_eq(key, first)).unwrap()
    }

    #[test]
    fn the_name_that_a_client_asks_for_chooses() {
        let mut by_name = ByName::default();
        let all = [&["go.example"][..], &["*.shop.example", "shop.example"], &["a.shop.example"]];
        for names in all {
            let (key, about) = certified(&pair(names), &provider()).unwrap();
            assert_eq!(about.names, names);
            assert!(about.since < about.until);
            by_name.add(&Arc::new(key), &about.names);
        }
        let expected = [
            (Some("go.example"), 0),
            (Some("GO.Example"), 0),
            (Some("shop.example"), 1),
            (Some("b.shop.example"), 1),
            (Some("a.shop.example"), 2),
            // A star stands for one label; an unknown name gets the first certificate.
            (Some("c.b.shop.example"), 0),
            (Some("example"), 0),
            (Some(""), 0),
            (None, 0),
        ];
        for (name, number) in expected {
            assert_eq!(chosen(&by_name, name), number, "{name:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_and_no_key_is_shown() {
        let (good, other) = (pair(&["a.example"]), pair(&["b.example"]));
        let tickets = Tickets::new().unwrap();
        let encrypted = b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nc2VjcmV0\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let garbled = [&good.key[..60], b"!", &good.key[61..]].concat();
        let wrong = [
            (Pair { certificates: b"".to_vec(), ..good.clone() }, "it contains no certificate"),
            (Pair { certificates: good.key.clone(), ..good.clone() }, "it contains no certificate"),
            (
                Pair {
                    certificates: b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec(),
                    ..good.clone()
                },
                "cannot be read",
            ),
            (Pair { key: b"".to_vec(), ..good.clone() }, "it contains no private key"),
            (Pair { key: encrypted.to_vec(), ..good.clone() }, "it is encrypted"),
            (Pair { key: other.key.clone(), ..good.clone() }, "the key does not match the certificate"),
            (Pair { key: garbled, ..good.clone() }, ""),
        ];
        for (pair, reason) in wrong {
            let (number, wrong) = TlsIdentity::new(&[good.clone(), pair], &tickets, true).unwrap_err();
            let said = format!("{wrong:?}");
            assert!(number == 1, "{said}");
            assert!(said.contains(reason), "{said}");
            assert!(!said.contains("c2VjcmV0"));
            assert!(!said.contains(std::str::from_utf8(&good.key[30..90]).unwrap()));
        }
        assert!(TlsIdentity::new(&[good, other], &tickets, false).is_ok());
    }
}
