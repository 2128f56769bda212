//! The checked plan of a run.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use crate::protocol::request::Headers;
use crate::protocol::tls::TargetTls;
use crate::results::check::Expectation;
use crate::workload::schedule::ArrivalProcess;
use crate::workload::traffic::Mix;

/// A server to measure.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Name of the target as the user wrote it.
    pub(crate) name: String,
    /// Resolved address.
    pub(crate) address: SocketAddr,
    /// Value of the header `Host`.
    pub(crate) host: String,
    /// Path and query, for requests to the URL as given.
    pub(crate) path: String,
    /// TLS settings; `None` for plain HTTP.
    pub(crate) tls: Option<TargetTls>,
}

/// Rule for the instants of requests.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Loop {
    /// Sends at planned instants.
    Open {
        /// Distribution of the instants.
        arrival: ArrivalProcess,
        /// Requests per second, of all threads.
        rate: f64,
    },
    /// Sends the next request of a connection as soon as the previous one is answered.
    Closed,
}

/// Everything that a run does.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Servers to measure; connections are spread over them.
    pub(crate) targets: Vec<Target>,
    /// Rule for the instants of requests.
    pub(crate) pace: Loop,
    /// Time before the measured time.
    pub(crate) warmup: Duration,
    /// Length of the measured time.
    pub(crate) duration: Duration,
    /// Timeout of a response.
    pub(crate) timeout: Duration,
    /// Connections of all threads.
    pub(crate) connections: usize,
    /// Client addresses, which connections take in turn; if empty, the kernel chooses.
    pub(crate) clients: Vec<IpAddr>,
    /// CPU of each thread.
    pub(crate) cpus: Vec<usize>,
    /// True for HTTP/2, false for HTTP/1.1.
    pub(crate) http2: bool,
    /// Requests in flight on each connection.
    pub(crate) pipeline: usize,
    /// Requests after which a connection is replaced.
    pub(crate) renew: Option<u64>,
    /// Shares of the kinds of requests.
    pub(crate) mix: Mix,
    /// Zipf's exponent; `None` if all links are equally popular.
    pub(crate) zipf: Option<f64>,
    /// Header fields of each request.
    pub(crate) headers: Headers,
    /// Additional header fields, as `Name: value`.
    pub(crate) extra: Vec<String>,
    /// API key for creates. It is never shown.
    pub(crate) api_key: Option<RedactedKey>,
    /// Expectation for responses.
    pub(crate) expectation: Expectation,
    /// Seed of all random numbers.
    pub(crate) seed: u64,
    /// Measured requests after which the run ends.
    pub(crate) requests: Option<u64>,
    /// True to collect the created links, so that they can be requested.
    pub(crate) collects_created: bool,
}

impl Plan {
    /// Returns the client address of a connection, by its index among those of all threads.
    pub(crate) fn client_address(&self, connection: usize) -> Option<IpAddr> {
        // Connections to one target take all addresses in turn.
        let turn = connection / self.targets.len();
        self.clients.get(turn % self.clients.len().max(1)).copied()
    }

    /// Returns the rate of an open loop in requests per second; `None` for a closed loop.
    pub(crate) fn rate(&self) -> Option<f64> {
        match self.pace {
            Loop::Open { rate, .. } => Some(rate),
            Loop::Closed => None,
        }
    }
}

/// A secret that no report and no log shows.
#[derive(Clone)]
pub(crate) struct RedactedKey(pub(crate) String);

impl std::fmt::Debug for RedactedKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(secret)")
    }
}
