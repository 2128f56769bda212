//! TLS as a layer of bytes: what the socket gave goes in, what HTTP said comes out, and the other way round. No I/O.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// Whom to trust.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trust {
    /// The certificates in a PEM file, or what they have signed.
    File(std::path::PathBuf),
    /// Anybody. For test machines.
    Anybody,
}

/// How connections of a target speak TLS.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl Tls {
    /// TLS to a server of that name.
    ///
    /// # Errors
    /// What is wrong with the name or the file.
    pub(crate) fn new(name: &str, trust: &Trust) -> Result<Tls, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let mut config = match trust {
            Trust::File(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
            Trust::Anybody => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Credulous(provider)))
                .with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(name.to_owned()).map_err(|_| format!("`{name}` is not a name for --sni"))?;
        Ok(Tls { config: Arc::new(config), name })
    }

    /// The TLS side of a new connection.
    ///
    /// # Errors
    /// What rustls says; a name and settings that were checked give none.
    pub(crate) fn connect(&self) -> Result<Session, String> {
        let connection = ClientConnection::new(Arc::clone(&self.config), self.name.clone());
        let mut connection = connection.map_err(|error| error.to_string())?;
        // What is said is taken in the same turn; a pipeline of requests may be longer than the usual limit.
        connection.set_buffer_limit(None);
        Ok(Session { connection })
    }
}

fn roots(path: &Path) -> Result<RootCertStore, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
        roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if roots.is_empty() { Err(wrong(&"it contains no certificate")) } else { Ok(roots) }
}

/// One connection's TLS.
#[derive(Debug)]
pub(crate) struct Session {
    connection: ClientConnection,
}

impl Session {
    /// Whether the handshake is under way.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Takes bytes of the socket and appends what they say.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(crate) fn receive(&mut self, mut bytes: &[u8], plain: &mut Vec<u8>) -> Result<(), String> {
        while !bytes.is_empty() {
            if self.connection.read_tls(&mut bytes).map_err(|error| error.to_string())? == 0 {
                // The server has said goodbye: what it sends behind that is nothing.
                return Ok(());
            }
            self.connection.process_new_packets().map_err(|error| error.to_string())?;
            // `WouldBlock` says that there is no more; the end of the stream is seen on the socket.
            let _ = self.connection.reader().read_to_end(plain);
        }
        Ok(())
    }

    /// Takes what HTTP says.
    pub(crate) fn say(&mut self, plain: &[u8]) {
        self.connection.writer().write_all(plain).expect("a buffer in memory takes what is written");
    }

    /// Appends what is to go to the socket.
    pub(crate) fn take(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            self.connection.write_tls(out).expect("a vector takes what is written");
        }
    }
}

/// Takes any certificate, but checks that its holder speaks.
#[derive(Debug)]
struct Credulous(Arc<CryptoProvider>);

impl ServerCertVerifier for Credulous {
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
