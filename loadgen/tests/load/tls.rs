//! TLS: whose certificates are trusted, and under which name.

use std::process::Command;
use std::sync::Arc;

use serde_json::Value;

use crate::server::{Server, right};
use crate::{Generator, number};

/// A server with a certificate for `carom.test`, and a client with that certificate in a file.
struct Secure {
    server: Server,
    generator: Generator,
}

/// Returns the settings of a server for `carom.test` that speaks a protocol, and its certificate in PEM.
pub(crate) fn server_config(protocol: &[u8]) -> (Arc<rustls::ServerConfig>, String) {
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(vec!["carom.test".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    (Arc::new(config), cert.pem())
}

impl Secure {
    fn new() -> Secure {
        let (config, pem) = server_config(b"http/1.1");
        let server = Server::start_with(right, move |stream| {
            let connection =
                rustls::ServerConnection::new(Arc::clone(&config)).expect("a configuration that was checked");
            Box::new(rustls::StreamOwned::new(connection, stream))
        });
        let generator = Generator::new();
        std::fs::write(generator.file("ca.pem"), pem).unwrap();
        Secure { server, generator }
    }

    fn command(&self, options: &str) -> Command {
        let load = "--tls --rate 300 --connections 4 --warmup 100ms --requests 200";
        let mut command = self.generator.command(&self.server, load);
        command.args(options.split_whitespace());
        command
    }

    /// Runs the generator and checks its exit code. Returns the JSON of a run that came to its end.
    fn run(&self, options: &str, code: i32) -> Option<Value> {
        self.generator.finish_or_not(&self.command(options).output().unwrap(), code)
    }
}

#[test]
fn tls_is_spoken_and_certificates_are_checked() {
    let secure = Secure::new();
    let pem = secure.generator.file("ca.pem");
    let json = secure.run(&format!("--tls-ca {} --sni carom.test --renew 20", pem.display()), 0).unwrap();
    assert!(number(&json, "/requests/completed") > 100.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
    assert!(secure.run("--tls-insecure --pipeline 4", 0).is_some());
    assert!(secure.run("-k", 0).is_some());
    assert!(secure.run(&format!("--tls-ca {} --sni other.test", pem.display()), 4).is_none(), "the name is wrong");
}

#[test]
fn certificates_of_the_system_are_trusted_by_default() {
    let secure = Secure::new();
    let with_roots = |file: &str| {
        let mut command = secure.command("--sni carom.test");
        command.env("SSL_CERT_FILE", secure.generator.file(file)).env_remove("SSL_CERT_DIR");
        command.output().unwrap()
    };
    let json = secure.generator.finish(&with_roots("ca.pem"), 0);
    assert_eq!(number(&json, "/errors/total"), 0.0, "{json}");
    let other = rcgen::generate_simple_self_signed(vec!["carom.test".to_owned()]).unwrap();
    std::fs::write(secure.generator.file("other.pem"), other.cert.pem()).unwrap();
    let output = with_roots("other.pem");
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    std::fs::write(secure.generator.file("none.pem"), "").unwrap();
    let output = with_roots("none.pem");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2), "{text}");
    assert!(text.contains("no CA certificates"), "{text}");
}
