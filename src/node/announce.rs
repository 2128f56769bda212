//! Messages about the start and the stop of a node: the line with its listeners, for people and for the parent process.

use std::net::SocketAddr;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::startup::domains::url_at;
use carom_model::domains::Domains;
use carom_settings::Settings;
use carom_telemetry::readable;

/// Most domains that the announcement names.
const ANNOUNCED_MAX: usize = 5;

/// The line of a node whose listeners have these addresses.
pub(super) fn announce(settings: &Settings, listening: &[SocketAddr], admin: SocketAddr, domains: &Domains) -> String {
    let listening: Vec<String> =
        listening.iter().zip(&settings.tls.secure).map(|(address, &secure)| url_at(*address, secure)).collect();
    let base_urls: Vec<&str> = domains.all().iter().map(|domain| &*domain.base_url).take(ANNOUNCED_MAX).collect();
    let others = if domains.all().len() > ANNOUNCED_MAX { " and others" } else { "" };
    let base_urls = base_urls.join(", ") + others;
    format!(
        "carom {} serves {} (short URLs start with {base_urls}), status at http://{admin}/status, console at http://{admin}/admin/, {}, data in {}",
        env!("CARGO_PKG_VERSION"),
        listening.join(", "),
        readable::count(settings.cores.cpus.len() as u64, "core"),
        settings.data_dir.display(),
    )
}

/// Logs that a signal came, and how long new connections are still accepted.
pub(super) fn log_shutdown(signal: &str, delay: Duration) {
    match delay.as_secs() {
        0 => tracing::info!("{signal}: draining; finishing open requests, then stopping"),
        seconds => {
            tracing::info!(
                "{signal}: draining; not ready, but accepting connections for another {seconds} s (drain.delay)"
            );
        }
    }
}

/// Tells the service manager, if it requested notification (`Type=notify`), that clients are accepted, or that the node
/// is stopping.
pub(super) fn notify_manager(is_ready: bool) {
    let state = if is_ready { NotifyState::Ready } else { NotifyState::Stopping };
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!("the service manager could not be notified: {error}");
    }
}

/// Returns the time within which the service manager expects each keep-alive ping of this process, if it expects any
/// (`WatchdogSec=`).
pub(super) fn watchdog_timeout() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|timeout| !timeout.is_zero())
}

/// Sends the service manager a keep-alive ping.
pub(super) fn notify_alive() {
    if let Err(error) = sd_notify::notify(&[NotifyState::Watchdog]) {
        tracing::warn!("cannot send a keep-alive ping to the service manager: {error}");
    }
}
