//! TLS as a layer of bytes, without I/O: bytes of the socket become those of HTTP, and the other way round.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Name of HTTP/2 in ALPN.
const HTTP2: &[u8] = b"h2";

/// Certificates to trust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum TrustedRoots {
    /// The certificates that the system trusts, and those that they have signed.
    System,
    /// The certificates in a PEM file, and those that they have signed.
    File(std::path::PathBuf),
    /// Any certificate. For test machines.
    Anybody,
}

/// TLS settings of a target.
#[derive(Clone, Debug)]
pub(crate) struct TargetTls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl TargetTls {
    /// Returns the settings for a server with that name, and for HTTP/2 or HTTP/1.1.
    ///
    /// # Errors
    /// The fault of the name or the file.
    pub(crate) fn new(name: &str, trust: &TrustedRoots, http2: bool) -> Result<TargetTls, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = match trust {
            TrustedRoots::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
            TrustedRoots::File(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
            TrustedRoots::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![if http2 { HTTP2.to_vec() } else { b"http/1.1".to_vec() }];
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("`{name}` is not a name for --sni"))?;
        Ok(TargetTls { config: Arc::new(config), name })
    }

    /// Starts TLS on a new connection.
    ///
    /// # Errors
    /// The message of rustls; checked names and settings cause none.
    pub(crate) fn connect(&self) -> Result<TlsClientSession, String> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut connection = connection.map_err(|error| error.to_string())?;
        // The buffer is drained in the same turn; a pipeline of requests may exceed the default limit.
        connection.set_buffer_limit(None);
        Ok(TlsClientSession { connection })
    }
}

fn system_roots() -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(carom_tls::trust::system_roots());
    if roots.is_empty() {
        return Err("the system has no CA certificates; pass --tls-ca FILE, or -k to trust any certificate".to_owned());
    }
    Ok(roots)
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it contains no certificate")) } else { Ok(roots) }
}

/// TLS state of one connection.
#[derive(Debug)]
pub(crate) struct TlsClientSession {
    connection: ClientConnection,
}

impl TlsClientSession {
    /// True while the handshake is in progress.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// True if the server has agreed to HTTP/2.
    pub(crate) fn speaks_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Processes bytes of the socket and appends the decrypted ones to `plain`.
    ///
    /// # Errors
    /// The TLS error in those bytes.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())? == 0 {
                // The server has closed TLS: bytes behind that are ignored.
                return Ok(());
            }
            self.connection.process_new_packets().map_err(|error| error.to_string())?;
            // `WouldBlock` means that the buffer is empty; the socket reports the end of the stream.
            let _ = self.connection.reader().read_to_end(plain);
        }
        Ok(())
    }

    /// Encrypts bytes of HTTP.
    pub(crate) fn say(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).expect("a buffer in memory takes what is written");
    }

    /// Appends the bytes that go to the socket.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(out).expect("a vector takes what is written");
        }
    }
}

/// A verifier that accepts any certificate, but checks that the server has its key.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
