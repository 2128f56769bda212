//! The HTTP client of sinks: `POST` with a deadline, without redirects and proxies, and on demand only to addresses on
//! the public Internet.
//!
//! The check looks at the addresses that the connection will use, after the look-up of the name. So a name that leads
//! elsewhere at the next look-up gains nothing.

use std::io::Read;
use std::net::IpAddr;
use std::time::Duration;

use ureq::config::Config;
use ureq::http::{Uri, header};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};
use ureq::{Agent, Error};

use super::sink::SinkFailure;
use crate::services::http::config;
use carom_limits::{SINK_ANSWER_BYTES, SINK_TIME_MAX};
use carom_model::clients::public_addresses::is_public;

/// Statuses that say that the content is at fault, so that the same request cannot succeed later.
const REFUSALS: [u16; 3] = [400, 413, 422];

/// A client for one address.
#[derive(Debug)]
pub(super) struct EventHttpClient {
    agent: Agent,
    url: String,
}

/// Looks names up, and leaves out addresses that are not on the public Internet.
#[derive(Debug)]
struct PublicResolver(DefaultResolver);

/// The name leads to addresses that are not on the public Internet.
#[derive(Debug)]
struct PrivateAddress(IpAddr);

impl std::fmt::Display for PrivateAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the address {} is on this machine or in a private network; to allow that, set events.webhook_private",
            self.0
        )
    }
}

impl std::error::Error for PrivateAddress {}

impl Resolver for PublicResolver {
    fn resolve(&self, uri: &Uri, config: &Config, timeout: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let found = self.0.resolve(uri, config, timeout)?;
        let mut public = self.empty();
        found.iter().filter(|address| is_public(address.ip())).for_each(|address| public.push(*address));
        match found.first() {
            Some(first) if public.is_empty() => Err(Error::Other(Box::new(PrivateAddress(first.ip())))),
            _ => Ok(public),
        }
    }
}

impl EventHttpClient {
    /// Creates a client of an `http://` or `https://` address, which may be private only if `private` is true.
    pub(super) fn new(url: &str, private: bool) -> EventHttpClient {
        let config = config().timeout_global(Some(SINK_TIME_MAX)).max_redirects(0).proxy(None).build();
        let agent = if private {
            config.into()
        } else {
            let resolver = PublicResolver(DefaultResolver::default());
            Agent::with_parts(config, DefaultConnector::default(), resolver)
        };
        EventHttpClient { agent, url: url.to_owned() }
    }

    /// Sends a request. Blocks the thread for [`SINK_TIME_MAX`] at most.
    ///
    /// # Errors
    /// Why the receiver has not accepted it. A redirect is an error and is not followed.
    pub(super) fn post(&self, kind: &str, fields: &[(&str, &str)], body: &[u8]) -> Result<(), SinkFailure> {
        let mut request = self.agent.post(&self.url).header(header::CONTENT_TYPE, kind);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut answer = request.send(body).map_err(|error| SinkFailure::Later(describe(&error), None))?;
        let status = answer.status();
        if status.is_success() {
            // A receiver that sends its answer slowly has accepted the events nevertheless.
            let mut reader = answer.body_mut().as_reader().take(SINK_ANSWER_BYTES);
            let _ = std::io::copy(&mut reader, &mut std::io::sink());
            return Ok(());
        }
        if REFUSALS.contains(&status.as_u16()) {
            return Err(SinkFailure::Refused(format!("the receiver answered {status}")));
        }
        let wait = answer.headers().get(header::RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
        let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
        let why = format!("the receiver answered {status}{note}");
        Err(SinkFailure::Later(why, wait.map(Duration::from_secs)))
    }
}

/// Returns an error in words. The address is not part of it: it may contain a secret.
fn describe(error: &Error) -> String {
    match error {
        Error::Timeout(_) => format!("the receiver did not answer within {} s", SINK_TIME_MAX.as_secs()),
        Error::Other(other) => other.to_string(),
        error => error.to_string(),
    }
}
