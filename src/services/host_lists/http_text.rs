//! A text at an HTTP address that a service thread or a command polls. It is transferred only when it has changed.

use std::sync::Arc;
use std::time::Duration;

use ureq::Agent;
use ureq::config::ConfigBuilder;
use ureq::http::{StatusCode, header};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;

use super::apollo::Signer;
use carom_telemetry::clock::unix_ms;
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

/// An HTTP address, and its last response.
#[derive(Debug)]
pub struct HttpText {
    agent: Agent,
    url: String,
    len_max: u64,
    /// The API key for carom's own listeners.
    key: Option<String>,
    /// Signs requests to Apollo.
    signer: Option<Signer>,
    /// The `ETag` and the text of the last response.
    last: Option<(String, Vec<u8>)>,
}

impl HttpText {
    /// Creates a reader of an `http://` or `https://` address. `time_max` bounds a request including redirects; texts
    /// of more than `len_max` bytes are refused.
    pub fn new(url: &str, time_max: Duration, len_max: u64) -> HttpText {
        let agent = config().timeout_global(Some(time_max)).build();
        HttpText { agent: agent.into(), url: url.to_owned(), len_max, key: None, signer: None, last: None }
    }

    /// Adds an API key of carom to each request.
    #[must_use]
    pub fn with_key(mut self, key: Option<String>) -> HttpText {
        self.key = key;
        self
    }

    /// Signs each request for Apollo.
    #[must_use]
    pub fn with_signer(mut self, signer: Option<Signer>) -> HttpText {
        self.signer = signer;
        self
    }

    /// Returns the current text. Blocks the thread.
    ///
    /// # Errors
    /// The reason for the failure: no response in time, a status other than 200, or a text that is too long.
    pub fn read(&mut self) -> Result<Vec<u8>, String> {
        let mut request = self.agent.get(&self.url).header(header::ACCEPT, "application/json");
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        for (name, value) in self.signer.iter().flat_map(|signer| signer.headers(unix_ms())) {
            request = request.header(name, value);
        }
        if let Some((tag, _)) = &self.last {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        match (answer.status(), &self.last) {
            (StatusCode::NOT_MODIFIED, Some((_, text))) => Ok(text.clone()),
            (StatusCode::OK, _) => {
                let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
                let body = answer.body_mut().with_config().limit(self.len_max);
                let text = body.read_to_vec().map_err(|error| error.to_string())?;
                self.last = tag.map(|tag| (tag, text.clone()));
                Ok(text)
            }
            (status, _) => Err(format!("the server answered {status}")),
        }
    }
}
