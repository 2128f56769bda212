//! The settings of events and of the sinks that deliver them.

use std::path::PathBuf;
use std::time::Duration;

use crate::value::redis_url::RedisUrl;
use crate::value::secret::Secret;
use crate::value::urls::AmqpUrl;

/// The settings of events. Without the log, no sink runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventSettings {
    /// True if the node keeps an event log.
    pub is_on: bool,
    /// True if visits are events.
    pub visits: bool,
    /// Time for which events are kept; `None`: until the log is too large.
    pub keep: Option<Duration>,
    /// Bytes on disk above which the oldest events are removed.
    pub keep_bytes: u64,
    /// The sinks that deliver events.
    pub sinks: SinkSettings,
}

/// The sinks that deliver events.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SinkSettings {
    /// The webhook, if there is one.
    pub webhook: Option<WebhookSettings>,
    /// The Redis stream, if there is one.
    pub redis: Option<RedisSinkSettings>,
    /// The exchange of RabbitMQ, if there is one.
    pub rabbitmq: Option<RabbitSettings>,
    /// The Mercure hub, if there is one.
    pub mercure: Option<MercureSettings>,
}

/// The source of a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SecretSource {
    /// The secret itself, from the environment.
    Given(Secret),
    /// A file whose content is the secret.
    File(PathBuf),
}

/// The receiver of events by HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WebhookSettings {
    /// The `http://` or `https://` address.
    pub url: String,
    /// The key of the signatures.
    pub secret: SecretSource,
    /// True if the receiver may be in a private network or on this machine.
    pub private: bool,
}

/// The Redis stream that gets events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisSinkSettings {
    /// The servers.
    pub url: RedisUrl,
    /// The password, if the URL has none.
    pub password: Option<Secret>,
    /// The key of the stream.
    pub stream: String,
    /// Approximate number of entries that the stream keeps.
    pub entries: u64,
}

/// The exchange of RabbitMQ that gets events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RabbitSettings {
    /// The server.
    pub url: AmqpUrl,
    /// The password, if the URL has none. Without any, the user is `guest`, whose password is its name.
    pub password: Option<SecretSource>,
    /// The CA certificates to trust; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
    /// The name of the exchange.
    pub exchange: String,
    /// True if an event counts as delivered only once a queue has it.
    pub mandatory: bool,
}

/// The Mercure hub that gets events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MercureSettings {
    /// The address to which this node publishes.
    pub url: String,
    /// The address for browsers.
    pub public_url: String,
    /// The key of the tokens (HS256).
    pub secret: SecretSource,
}
