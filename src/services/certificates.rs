//! The keeper of TLS certificates. They are read before the node accepts connections, and again when their files change
//! or an operator asks for it. Cores get each usable set; open connections keep the certificates that they began with.
//! An unusable set raises an alarm and changes nothing else.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::Duration;

use carom_shards::CoreCount;

use crate::bridge::{Mailboxes, ToCore};
use crate::services::threads;
use crate::services::threads::priority::Priority;
use carom_model::formats::dates;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::{CertificateStats, NodeStats};
use carom_tls::identity::{CertificateError, Pair, Tickets, TlsIdentity};

/// Interval between two checks of the files. A failed renewal has no other retry: the next check reads the files again,
/// and raises an alarm if it finds the same error.
const CHECK_FILES_EVERY: Duration = Duration::from_secs(2);

/// Largest size of a certificate file, in bytes. A chain is under 10 KB.
const FILE_LEN_MAX: u64 = 1 << 20;

/// Time before the end of a certificate from which an alarm is on, in seconds. Automatic renewal comes 30 days before.
const ENDS_SOON: i64 = 14 * 86_400;

/// The alarm that is on while the files cannot be used.
const REFUSED: Alarm = Alarm::CertificateRefused;

/// The alarm that is on while a certificate in use has expired or expires soon.
const ENDS: Alarm = Alarm::CertificateEnds;

/// The files of the certificates, and the protocols to offer with them.
#[derive(Clone, Debug)]
pub struct Files {
    /// Paths of certificate chains, each with the path of its key.
    pub pairs: Vec<(PathBuf, PathBuf)>,
    /// True if the service speaks HTTP/2.
    pub http2: bool,
}

/// The certificates in use.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    tickets: Tickets,
    read: Vec<Pair>,
    identity: TlsIdentity,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// The path of the first file that cannot be used, and the reason.
    pub fn read(files: Files) -> Result<Certificates, String> {
        let tickets = Tickets::new()?;
        let read = files.read()?;
        let identity = files.identity(&read, &tickets)?;
        Ok(Certificates { files, tickets, read, identity })
    }

    /// Returns the identity of the service, for TLS handshakes.
    pub fn identity(&self) -> TlsIdentity {
        self.identity.clone()
    }
}

impl Files {
    fn read(&self) -> Result<Vec<Pair>, String> {
        let read = |(certificates, key): &(PathBuf, PathBuf)| {
            Ok(Pair { certificates: read_file(certificates)?, key: read_file(key)? })
        };
        self.pairs.iter().map(read).collect()
    }

    fn identity(&self, read: &[Pair], tickets: &Tickets) -> Result<TlsIdentity, String> {
        TlsIdentity::new(read, tickets, self.http2).map_err(|(number, wrong)| {
            let (certificates, key) = &self.pairs[number];
            match wrong {
                CertificateError::Certificates(wrong) => format!("{}: {wrong}", certificates.display()),
                CertificateError::Key(wrong) => format!("{}: {wrong}", key.display()),
            }
        })
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(FILE_LEN_MAX + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > FILE_LEN_MAX {
        return Err(wrong(&"it is too long for a certificate file"));
    }
    Ok(bytes)
}

/// A handle on the thread that watches the files.
pub struct CertificateThread {
    stop: Arc<AtomicBool>,
    reload_requested: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// Asks the thread that keeps the certificates to look at their files at once. Any thread may use it.
#[derive(Clone, Debug)]
pub struct Reload {
    reload_requested: Arc<AtomicBool>,
    thread: Thread,
}

impl Reload {
    /// Makes the thread read the files now and log the result. Returns at once.
    pub fn now(&self) {
        self.reload_requested.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl CertificateThread {
    /// Returns a handle that triggers a reload of the files.
    pub fn reload(&self) -> Reload {
        Reload { reload_requested: Arc::clone(&self.reload_requested), thread: self.thread.thread().clone() }
    }

    /// Stops the thread and waits for it.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().expect("panics abort");
    }
}

/// Starts the thread that watches the files of the certificates in use.
///
/// # Errors
/// If the operating system cannot start a thread.
pub fn start(
    certificates: Certificates,
    mailboxes: Mailboxes,
    cores: CoreCount,
    stats: Arc<NodeStats>,
) -> io::Result<CertificateThread> {
    let (stop, reload_requested) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let mut watcher = CertificateWatcher { certificates, last_error: None, mailboxes, cores, stats };
    watcher.update_stats();
    watcher.warn_of_expiry();
    let (until, requested) = (Arc::clone(&stop), Arc::clone(&reload_requested));
    let run = move || {
        loop {
            std::thread::park_timeout(CHECK_FILES_EVERY);
            if until.load(Ordering::Acquire) {
                return;
            }
            watcher.look(requested.swap(false, Ordering::AcqRel));
            watcher.warn_of_expiry();
        }
    };
    let thread = threads::start(Priority::Long, "certificates", run)?;
    Ok(CertificateThread { stop, reload_requested, thread })
}

struct CertificateWatcher {
    certificates: Certificates,
    /// The error of the last check. It raises an alarm only if the next check finds it again, because two files cannot
    /// be replaced at the same instant.
    last_error: Option<String>,
    mailboxes: Mailboxes,
    cores: CoreCount,
    stats: Arc<NodeStats>,
}

impl CertificateWatcher {
    fn look(&mut self, is_requested: bool) {
        let Certificates { files, tickets, read: used, identity: old } = &self.certificates;
        let read = match files.read() {
            Ok(read) if read == *used => {
                self.last_error = None;
                self.stats.alarms.clear(REFUSED);
                if is_requested {
                    tracing::info!("reloaded the certificates: no change");
                }
                return;
            }
            Ok(read) => read,
            Err(wrong) => return self.refuse(wrong, is_requested),
        };
        match files.identity(&read, tickets).and_then(|new| check_validity(new, old, files)) {
            Ok(identity) => {
                self.last_error = None;
                self.stats.alarms.clear(REFUSED);
                for core in self.cores.cores() {
                    self.mailboxes.to(core).post(ToCore::Identity(identity.clone()));
                }
                (self.certificates.read, self.certificates.identity) = (read, identity);
                self.stats.tls.renewed.add_shared(1);
                self.update_stats();
                tracing::info!("reloaded the certificates: new ones are in use");
            }
            Err(wrong) => self.refuse(wrong, is_requested),
        }
    }

    fn refuse(&mut self, wrong: String, is_requested: bool) {
        if is_requested || self.last_error.as_ref() == Some(&wrong) {
            let text = format!("{wrong}; the previous certificates stay in use");
            self.stats.alarms.raise(REFUSED, text);
        }
        self.last_error = Some(wrong);
    }

    /// Raises the alarm for the certificate that expires first, or clears it.
    fn warn_of_expiry(&self) {
        let now = (unix_ms() / 1_000) as i64;
        let Certificates { files, identity, .. } = &self.certificates;
        let first = identity.about().iter().zip(&files.pairs).min_by_key(|(about, _)| about.until);
        match first {
            Some((about, (file, _))) if about.until - now < ENDS_SOON => {
                let verb = if about.until <= now { "expired at" } else { "expires at" };
                let text = format!("the certificate in {} {verb} {}; replace it", file.display(), date(about.until));
                self.stats.alarms.raise(ENDS, text);
            }
            _ => self.stats.alarms.clear(ENDS),
        }
    }

    fn update_stats(&self) {
        let Certificates { files, identity, .. } = &self.certificates;
        let listed = identity.about().iter().zip(&files.pairs).map(|(about, (file, _))| CertificateStats {
            file: file.display().to_string(),
            names: about.names.clone(),
            until_ms: (about.until.max(0) as u64).saturating_mul(1_000),
        });
        *self.stats.tls.certificates.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = listed.collect();
    }
}

/// Returns `new`, unless one of its certificates has expired or is not valid yet while the old one is valid.
fn check_validity(new: TlsIdentity, old: &TlsIdentity, files: &Files) -> Result<TlsIdentity, String> {
    let now = (unix_ms() / 1_000) as i64;
    let pairs = new.about().iter().zip(old.about()).zip(&files.pairs);
    for ((new, old), (file, _)) in pairs {
        if new.until <= now && old.until > now {
            return Err(format!("{}: the certificate expired at {}", file.display(), date(new.until)));
        }
        if new.since > now && old.since <= now {
            return Err(format!("{}: the certificate is not valid before {}", file.display(), date(new.since)));
        }
    }
    Ok(new)
}

fn date(seconds: i64) -> String {
    dates::format((seconds.max(0) as u64).saturating_mul(1_000))
}
