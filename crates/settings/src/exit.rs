//! Exit codes: a closed list of the reasons for which the process ends, each with a number, a meaning and a remedy.
//!
//! Scripts and service managers rely on the numbers, so a number keeps its meaning forever. Everything that ends the
//! process builds an [`Exit`]; only `main` turns one into the exit status.

use std::fmt;
use std::process::ExitCode;

/// A numbered reason for the end of the process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Reason {
    /// Success.
    Done = 0,
    /// An import or export skipped lines, or something failed that no other number covers.
    Incomplete = 1,
    /// Wrong arguments or settings.
    Usage = 2,
    /// io_uring is switched off, forbidden, or not built into the kernel.
    RingForbidden = 10,
    /// The kernel lacks a feature that the server needs.
    KernelTooOld = 11,
    /// The limit on locked memory is too low.
    LockedMemory = 12,
    /// The limit on open files is too low.
    OpenFiles = 13,
    /// A listen address is not available.
    Address = 14,
    /// The data directory is locked by another process.
    DataInUse = 15,
    /// The data directory cannot be created or written.
    DataNotWritable = 16,
    /// The disk of the data directory is full.
    DiskFull = 17,
    /// This version cannot read the store.
    StoreDamaged = 18,
    /// The code secret is unusable.
    CodeSecret = 19,
    /// A listener would be open to the network without `--open`.
    PublicWithoutOpen = 20,
    /// A thread of the server ended unexpectedly.
    ThreadEnded = 21,
    /// A certificate or its key cannot be used.
    Certificate = 22,
    /// Kernel bypass is required and cannot be had.
    Bypass = 23,
}

impl Reason {
    /// Every reason, in the order of the numbers.
    pub const ALL: [Reason; 17] = [
        Reason::Done,
        Reason::Incomplete,
        Reason::Usage,
        Reason::RingForbidden,
        Reason::KernelTooOld,
        Reason::LockedMemory,
        Reason::OpenFiles,
        Reason::Address,
        Reason::DataInUse,
        Reason::DataNotWritable,
        Reason::DiskFull,
        Reason::StoreDamaged,
        Reason::CodeSecret,
        Reason::PublicWithoutOpen,
        Reason::ThreadEnded,
        Reason::Certificate,
        Reason::Bypass,
    ];

    /// Returns the exit status of the process.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Returns the meaning of the number, as a phrase without a full stop.
    pub const fn meaning(self) -> &'static str {
        match self {
            Reason::Done => "success: the command did its work, or the server drained and stopped",
            Reason::Incomplete => {
                "some lines were rejected or records damaged, a health check failed, or an unexpected error occurred"
            }
            Reason::Usage => "invalid arguments or settings",
            Reason::RingForbidden => "io_uring is disabled, forbidden or missing in this kernel",
            Reason::KernelTooOld => "the kernel is too old: carom requires Linux 6.1 or newer",
            Reason::LockedMemory => "the limit on locked memory is too low",
            Reason::OpenFiles => "the limit on open files is too low",
            Reason::Address => "a listen address is in use or does not belong to this machine",
            Reason::DataInUse => "another process uses the data directory",
            Reason::DataNotWritable => "the data directory cannot be created or written",
            Reason::DiskFull => "the disk of the data directory is full",
            Reason::StoreDamaged => "the stored links are damaged, or a newer version wrote them",
            Reason::CodeSecret => {
                "the code secret is missing, malformed, readable by other users, or does not match the data"
            }
            Reason::PublicWithoutOpen => "a listener is reachable from other machines while no API key exists",
            Reason::ThreadEnded => "a core or service thread ended unexpectedly",
            Reason::Certificate => "a certificate or its key cannot be read, or the two do not match",
            Reason::Bypass => "kernel bypass is required, but this process, machine or interface cannot use it",
        }
    }

    /// Returns the general remedy, as a phrase without a full stop.
    pub const fn remedy(self) -> &'static str {
        match self {
            Reason::Done => "nothing to do",
            Reason::Incomplete => "read the messages on standard error: each names the line or record, and the reason",
            Reason::Usage => "correct the argument or setting; `carom config check FILE` reports all mistakes at once",
            Reason::RingForbidden => {
                "set `sysctl kernel.io_uring_disabled=0`, or allow the `io_uring_*` system calls in the container's \
                 seccomp profile"
            }
            Reason::KernelTooOld => "boot Linux 6.1 or newer",
            Reason::LockedMemory => "raise `LimitMEMLOCK=` in the unit file, or `ulimit -l` in the shell",
            Reason::OpenFiles => "raise `LimitNOFILE=` in the unit file, or `ulimit -n` in the shell",
            Reason::Address => {
                "stop the program that uses the address (`ss -ltnp` names it), or choose another address"
            }
            Reason::DataInUse => "stop the other process, or choose another `data_dir`",
            Reason::DataNotWritable => {
                "make the user that runs carom the owner of the directory (`chown`), or choose another `data_dir`"
            }
            Reason::DiskFull => "free space on that disk, or move the data directory to a larger one",
            Reason::StoreDamaged => "restore the newest backup, or run the version that wrote the data",
            Reason::CodeSecret => {
                "restore the original code secret with mode 0600; every backup of the data directory contains it"
            }
            Reason::PublicWithoutOpen => {
                "create an API key with `carom app add NAME`, listen on a loopback address, or add `--open` to let anyone create, change and delete links"
            }
            Reason::ThreadEnded => {
                "restart carom (a service manager does so automatically), and report the bug with the last lines of the log"
            }
            Reason::Certificate => {
                "store the certificate with its chain in the `tls.cert` file, and its unencrypted key in the `tls.key` file"
            }
            Reason::Bypass => {
                "remove the obstacle that the message names, or set `bypass.required` to false to serve over the kernel"
            }
        }
    }
}

/// The end of the process, with its details.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exit {
    /// The numbered reason.
    pub reason: Reason,
    /// A description of what happened, with names and numbers.
    pub what: String,
    /// The remedy of this very case, if it says more than [`Reason::remedy`].
    pub remedy: Option<String>,
}

impl Exit {
    /// Creates an exit with the general remedy of its reason.
    pub fn new(reason: Reason, what: impl Into<String>) -> Exit {
        Exit { reason, what: what.into(), remedy: None }
    }

    /// Sets a remedy for this very case.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Exit {
        self.remedy = Some(remedy.into());
        self
    }

    /// Returns the most precise remedy.
    pub fn remedy(&self) -> &str {
        self.remedy.as_deref().unwrap_or(self.reason.remedy())
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}\nhint: {}", self.what, self.remedy())?;
        // Only these numbers say more than that the command failed.
        let code = self.reason.code();
        if code >= Reason::RingForbidden.code() { write!(f, "\nexit code: {code}") } else { Ok(()) }
    }
}

impl std::error::Error for Exit {}

impl From<Reason> for ExitCode {
    fn from(reason: Reason) -> ExitCode {
        ExitCode::from(reason.code())
    }
}

/// Returns the table of all exit codes, for the reference page.
pub fn markdown_table() -> String {
    let mut table = String::from("| code | meaning | what to do |\n|---|---|---|\n");
    for reason in Reason::ALL {
        table.push_str(&format!("| {} | {} | {} |\n", reason.code(), reason.meaning(), reason.remedy()));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_promised_ones() {
        let codes = Reason::ALL.map(Reason::code);
        assert_eq!(codes, [0, 1, 2, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
    }

    #[test]
    fn the_table_has_one_whole_row_for_each_reason() {
        let table = markdown_table();
        let rows: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(rows.len(), Reason::ALL.len());
        for (row, reason) in rows.iter().zip(Reason::ALL) {
            assert!(row.starts_with(&format!("| {} | ", reason.code())), "{row}");
            assert_eq!(row.matches('|').count(), 4, "a cell holds a bar: {row}");
        }
    }

    #[test]
    fn the_precise_remedy_wins_over_the_general_one() {
        let general = Exit::new(Reason::DiskFull, "/data has 12 KiB left");
        assert_eq!(general.remedy(), Reason::DiskFull.remedy());
        let precise = general.with_remedy("free 5 MiB");
        assert_eq!(precise.to_string(), "error: /data has 12 KiB left\nhint: free 5 MiB\nexit code: 17");
        let usual = Exit::new(Reason::Incomplete, "no link").with_remedy("look again");
        assert_eq!(usual.to_string(), "error: no link\nhint: look again");
    }
}
