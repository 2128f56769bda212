//! The settings of a client, and its logins at servers and sentinels.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use rustls::ClientConfig;

use super::address::ServerAddress;

/// Settings of the connection to Redis. The `Debug` form hides passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientSettings {
    /// Servers for the first contact: a single one, or some of a cluster. With `sentinel`, these are the sentinels.
    pub seeds: Vec<ServerAddress>,
    /// The service whose master the sentinels name; `None` for a single server or a cluster.
    pub sentinel: Option<SentinelSettings>,
    /// The user name at Redis; `None` for the default user.
    pub username: Option<String>,
    /// The Redis password, if any.
    pub password: Option<String>,
    /// The database of a server outside a cluster.
    pub database: i64,
    /// True to use TLS.
    pub tls: bool,
    /// A PEM file with trusted certificates; `None` for those of the system.
    pub ca_file: Option<PathBuf>,
}

impl ClientSettings {
    /// Returns the settings for one server that needs no login, without TLS.
    pub fn plain(server: ServerAddress) -> ClientSettings {
        ClientSettings {
            seeds: vec![server],
            sentinel: None,
            username: None,
            password: None,
            database: 0,
            tls: false,
            ca_file: None,
        }
    }

    /// The service that the sentinels watch; empty for other topologies.
    pub(super) fn service(&self) -> &str {
        self.sentinel.as_ref().map_or("", |sentinel| &sentinel.service)
    }
}

impl fmt::Display for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let servers: Vec<String> = self.seeds.iter().map(ServerAddress::to_string).collect();
        f.write_str(&servers.join(", "))?;
        if self.sentinel.is_some() { write!(f, " for {}", self.service()) } else { Ok(()) }
    }
}

impl fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientSettings({self})")
    }
}

/// The service that sentinels watch, and the login at the sentinels. The `Debug` form hides the login.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelSettings {
    /// The name of the master in the configuration of the sentinels.
    pub service: String,
    /// The user name at the sentinels; `None` for the default user.
    pub username: Option<String>,
    /// The password of the sentinels, if they require one.
    pub password: Option<String>,
}

impl fmt::Debug for SentinelSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SentinelSettings({})", self.service)
    }
}

/// Credentials and TLS settings for the servers.
pub(super) struct Login {
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) database: i64,
    pub(super) sentinel: Option<SentinelSettings>,
    pub(super) tls: Option<Arc<ClientConfig>>,
}
