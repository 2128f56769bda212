//! A run as it was asked for, checked.

use std::net::SocketAddr;
use std::time::Duration;

use crate::check::Expectation;
use crate::request::Headers;
use crate::schedule::Arrival;
use crate::tls::Tls;
use crate::traffic::Mix;

/// Whom to ask.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// As it was written.
    pub(crate) name: String,
    /// Its address.
    pub(crate) address: SocketAddr,
    /// What `Host` says.
    pub(crate) host: String,
    /// How TLS is spoken, if it is.
    pub(crate) tls: Option<Tls>,
}

/// When requests are sent.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Loop {
    /// At the instants of a plan.
    Open {
        /// How arrivals are spread.
        arrival: Arrival,
        /// Requests a second, of all threads.
        rate: f64,
    },
    /// Each connection asks again as soon as it was answered.
    Closed,
}

/// What a run does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Whom to ask; connections are spread over them.
    pub(crate) targets: Vec<Target>,
    /// When requests are sent.
    pub(crate) pace: Loop,
    /// Time before the measured time.
    pub(crate) warmup: Duration,
    /// The measured time.
    pub(crate) duration: Duration,
    /// How long an answer may take.
    pub(crate) timeout: Duration,
    /// Connections of all threads.
    pub(crate) connections: usize,
    /// Threads, and the CPU of each.
    pub(crate) cpus: Vec<usize>,
    /// Requests under way on one connection.
    pub(crate) pipeline: usize,
    /// Requests after which a connection is renewed.
    pub(crate) renew: Option<u64>,
    /// Shares of the kinds of requests.
    pub(crate) mix: Mix,
    /// Zipf's exponent, where not all links are alike.
    pub(crate) zipf: Option<f64>,
    /// Which fields go with requests.
    pub(crate) headers: Headers,
    /// More fields.
    pub(crate) extra: Vec<String>,
    /// The key for creates. Never shown.
    pub(crate) api_key: Option<ApiKey>,
    /// What is expected of answers.
    pub(crate) expectation: Expectation,
    /// Where all random numbers come from.
    pub(crate) seed: u64,
    /// Ends the run after that many requests, and collects the links that creates made.
    pub(crate) create_only: Option<u64>,
}

impl Plan {
    /// The rate of an open loop.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self.pace {
            Loop::Open { rate, .. } => Some(rate),
            Loop::Closed => None,
        }
    }
}

/// A secret that no report and no log shows.
#[derive(Clone)]
pub(crate) struct ApiKey(pub(crate) String);

impl std::fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
