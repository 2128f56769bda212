//! The connection to Redis that the settings describe.

use std::path::PathBuf;

use carom_redis::{ClientSettings, SentinelSettings, ServerAddress};
use carom_settings::{RedisUrl, Secret};

/// Returns the addresses and the login of the Redis servers of a URL. `password` is used if the URL has none.
pub(crate) fn client_settings(url: &RedisUrl, password: Option<&Secret>, ca_file: Option<PathBuf>) -> ClientSettings {
    let password = url.password.clone().or_else(|| password.map(|secret| secret.0.clone()));
    let sentinel = url.sentinel.as_ref().map(|sentinel| SentinelSettings {
        service: sentinel.service.clone(),
        username: sentinel.username.clone(),
        password: sentinel.password.clone(),
    });
    ClientSettings {
        sentinel,
        seeds: url.servers.iter().map(|(host, port)| ServerAddress { host: host.clone(), port: *port }).collect(),
        username: url.username.clone(),
        password,
        database: i64::from(url.database),
        tls: url.tls,
        ca_file,
    }
}
