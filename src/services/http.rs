//! The configuration that all HTTP clients of services and commands share.

use std::sync::Arc;

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

use carom_tls::{provider, trust};

/// Returns the configuration of a client: the roots of the system, carom's name, and no error for a response.
pub fn config() -> ConfigBuilder<AgentScope> {
    let roots = trust::system_roots().iter().map(|root| Certificate::from_der(root).to_owned()).collect();
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(provider())
        .root_certs(RootCerts::Specific(Arc::new(roots)));
    Agent::config_builder()
        .http_status_as_error(false)
        .user_agent(concat!("carom/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls.build())
}
