//! A certificate authority, and clients that trust it.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::support::http::Wire;
use crate::support::node::Setup;

pub(crate) const NAME: &str = "go.example";

/// Somebody whom clients trust, and who confirms_existing for certificates.
pub(crate) struct Ca {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    /// One with its files in that directory.
    pub(crate) fn new(dir: &Path) -> Ca {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "an authority of tests");
        let key = KeyPair::generate().unwrap();
        fs::write(dir.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Ca { dir: dir.to_owned(), issuer: Issuer::new(params, key) }
    }

    /// Writes a certificate for these names, and its key. Returns what it is.
    pub(crate) fn write(&self, file: &str, names: &[&str]) -> CertificateDer<'static> {
        self.write_with(file, names, &KeyPair::generate().unwrap(), |_| {})
    }

    /// Writes a certificate for a given key, after a change of its parameters.
    pub(crate) fn write_with(
        &self,
        file: &str,
        names: &[&str],
        key: &KeyPair,
        change: impl FnOnce(&mut CertificateParams),
    ) -> CertificateDer<'static> {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let certificate = params.signed_by(key, &self.issuer).unwrap();
        fs::write(self.dir.join(format!("{file}.key")), key.serialize_pem()).unwrap();
        fs::write(self.dir.join(format!("{file}.pem")), certificate.pem()).unwrap();
        certificate.der().clone()
    }

    /// Writes a certificate with a new key that is valid from one year to another.
    pub(crate) fn write_for(&self, file: &str, years: std::ops::Range<i32>) -> CertificateDer<'static> {
        self.write_with(file, &[NAME], &KeyPair::generate().unwrap(), |params| {
            params.not_before = rcgen::date_time_ymd(years.start, 1, 1);
            params.not_after = rcgen::date_time_ymd(years.end, 1, 1);
        })
    }

    /// The files of a certificate, as they are now.
    pub(crate) fn read(&self, file: &str) -> (Vec<u8>, Vec<u8>) {
        let read = |ending: &str| fs::read(self.file(&format!("{file}.{ending}"))).unwrap();
        (read("pem"), read("key"))
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    /// The settings of a node with these certificates.
    pub(crate) fn setup(&self, data_dir: &Path, files: &[&str]) -> Setup {
        let list = |ending: &str| files.iter().map(|file| self.file(&format!("{file}.{ending}"))).collect::<Vec<_>>();
        Setup::new(data_dir).env("CAROM_TLS_CERT", &list("pem").join(",")).env("CAROM_TLS_KEY", &list("key").join(","))
    }

    /// Clients that trust it, and speak such versions and protocols.
    pub(crate) fn terms(
        &self,
        versions: &[&'static SupportedProtocolVersion],
        protocols: &[&str],
    ) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.dir.join("ca.pem")).unwrap()).unwrap();
        let builder = ClientConfig::builder_with_provider(carom_tls::provider());
        let mut config =
            builder.with_protocol_versions(versions).unwrap().with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        Arc::new(config)
    }

    /// Clients of today.
    pub(crate) fn usual(&self) -> Arc<ClientConfig> {
        self.terms(rustls::ALL_VERSIONS, &["http/1.1"])
    }
}

/// Somebody who confirms_existing for a service, and the settings of it.
pub(crate) fn service(dir: &Path) -> (Ca, Setup) {
    let ca = Ca::new(dir);
    ca.write("go", &[NAME]);
    let setup = ca.setup(&dir.join("data"), &["go"]);
    (ca, setup)
}

/// A connection with TLS.
pub(crate) fn open(address: SocketAddr, terms: &Arc<ClientConfig>) -> Wire {
    Wire::open(address).secured(terms, NAME).unwrap_or_else(|error| panic!("no handshake: {error}"))
}
