//! Messages about the start and the stop of a node. The parent process gets a line with the listeners. A person at a
//! terminal gets a page with the first steps.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use sd_notify::NotifyState;

use super::listeners::Bound;
use crate::startup::domains::url_at;
use carom_model::domains::Domains;
use carom_settings::Settings;
use carom_telemetry::readable;

/// Most domains that the announcement names.
const ANNOUNCED_MAX: usize = 5;

/// The parts of a start that people and parent processes want to know.
#[derive(Debug)]
pub(super) struct Announcement {
    /// The URLs of the public listeners.
    listening: Vec<String>,
    /// The beginnings of short URLs, as one text.
    base_urls: String,
    admin: SocketAddr,
    cores: u64,
    data_dir: PathBuf,
    has_keys: bool,
}

impl Announcement {
    /// Describes a node whose listeners are bound. `has_keys` is false if anyone on this machine can change links.
    pub(super) fn new(settings: &Settings, bound: &Bound, domains: &Domains, has_keys: bool) -> Announcement {
        let listening = bound
            .listening
            .iter()
            .zip(&settings.tls.secure)
            .map(|(address, &secure)| url_at(*address, secure))
            .collect();
        let base_urls: Vec<&str> = domains.all().iter().map(|domain| &*domain.base_url).take(ANNOUNCED_MAX).collect();
        let others = if domains.all().len() > ANNOUNCED_MAX { " and others" } else { "" };
        Announcement {
            listening,
            base_urls: base_urls.join(", ") + others,
            admin: bound.admin_address,
            cores: settings.cores.cpus.len() as u64,
            data_dir: settings.data_dir.clone(),
            has_keys,
        }
    }

    /// Returns one line, for parent processes and logs.
    pub(super) fn line(&self) -> String {
        let Announcement { listening, base_urls, admin, cores, data_dir, .. } = self;
        format!(
            "carom {} serves {} (short URLs start with {base_urls}), status at http://{admin}/status, console at http://{admin}/admin/, {}, data in {}",
            env!("CARGO_PKG_VERSION"),
            listening.join(", "),
            readable::count(*cores, "core"),
            data_dir.display(),
        )
    }

    /// Returns a page for a terminal, with what to do first.
    pub(super) fn page(&self) -> String {
        let Announcement { listening, base_urls, admin, cores, data_dir, has_keys } = self;
        // Clients cannot rely on connecting to the address of all interfaces.
        let reachable = |url: &String| url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:");
        let url = listening.first().map(reachable).unwrap_or_default();
        let key = if *has_keys {
            String::new()
        } else {
            format!("  carom app add NAME --role admin --data-dir {}\n", data_dir.display())
        };
        format!(
            "carom {} is ready, on {}.\n\n  \
             Listens on  {}\n  Short URLs  {base_urls}\n  Console     http://{admin}/admin/\n  \
             Status      http://{admin}/status\n  Data        {}\n\n\
             First steps, in another terminal:\n{key}  carom login {url}\n  carom link create https://example.org/\n  \
             carom status --admin {admin}\n\nCtrl-C stops the node.",
            env!("CARGO_PKG_VERSION"),
            readable::count(*cores, "core"),
            listening.join(", "),
            data_dir.display(),
        )
    }
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

/// Tells the service manager, if it requested notification (`Type=notify`), that the node is ready, or that it is
/// stopping.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement(listening: &str, has_keys: bool) -> Announcement {
        Announcement {
            listening: vec![listening.to_owned()],
            base_urls: "https://go.example".to_owned(),
            admin: SocketAddr::from(([127, 0, 0, 1], 8081)),
            cores: 2,
            data_dir: PathBuf::from("/data"),
            has_keys,
        }
    }

    #[test]
    fn page_says_what_to_do_first() {
        let page = announcement("http://127.0.0.1:8080", false).page();
        for part in [
            " is ready, on 2 cores.\n\n  Listens on  http://127.0.0.1:8080\n  Short URLs  https://go.example\n",
            "  Console     http://127.0.0.1:8081/admin/\n",
            "  carom app add NAME --role admin --data-dir /data\n  carom login http://127.0.0.1:8080\n",
            "  carom login http://127.0.0.1:8080\n  carom link create https://example.org/\n",
            "  carom status --admin 127.0.0.1:8081\n",
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        let other = announcement("https://10.0.0.1:443", true).page();
        assert!(other.contains("terminal:\n  carom login https://10.0.0.1:443\n  carom link create"), "{other}");
        for (everywhere, url) in
            [("http://0.0.0.0:80", "http://127.0.0.1:80"), ("https://[::]:443", "https://[::1]:443")]
        {
            let page = announcement(everywhere, true).page();
            assert!(page.contains(&format!("  carom login {url}\n")), "{page}");
        }
    }

    #[test]
    fn line_is_one_line() {
        let line = announcement("http://127.0.0.1:8080", false).line();
        assert!(line.contains(" serves http://127.0.0.1:8080 (short URLs start with https://go.example), "), "{line}");
        assert!(!line.contains('\n'));
    }
}
