//! Network namespaces for the tests and benchmarks of kernel bypass. The server does not use this crate.
//!
//! A [`Namespace`] has interfaces, addresses and routes of its own. Two of them with a veth pair between are a client
//! and a server on one machine. The user of a namespace makes its interfaces.
//!
//! A process called the holder keeps a namespace alive. It ends with the [`Namespace`], and with this process however
//! that ends, so nothing is left behind. Namespaces need `CAP_SYS_ADMIN`; [`obstacle`] returns the reason if this process
//! cannot make any.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::os::fd::AsFd;
use std::panic::resume_unwind;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The environment variable that has tests fail where they cannot make namespaces, with the value `required`.
const MODE: &str = "E2E_NAMESPACES";

/// A network namespace. It disappears with its interfaces when this value is dropped.
#[derive(Debug)]
pub struct Namespace {
    file: File,
    holder: Child,
}

impl Namespace {
    /// Makes a namespace without interfaces, except for loopback, which is down.
    ///
    /// # Errors
    /// If `unshare` of util-linux is missing, or the kernel refuses a namespace.
    pub fn new() -> io::Result<Namespace> {
        // `cat` ends with the pipe, and the pipe with this process.
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| io::Error::new(error.kind(), format!("unshare cannot be started: {error}")))?;
        let mut line = String::new();
        if let Some(output) = holder.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        if line != "ready\n" {
            let said = holder.wait_with_output()?.stderr;
            return Err(io::Error::other(String::from_utf8_lossy(&said).trim().to_owned()));
        }
        let file = File::open(format!("/proc/{}/ns/net", holder.id()))?;
        Ok(Namespace { file, holder })
    }

    /// Returns the number of a process in the namespace, by which `ip link … netns` and `nsenter` name it.
    pub fn pid(&self) -> u32 {
        self.holder.id()
    }

    /// Moves this thread into the namespace. Threads and processes that it starts from then on are in it, too.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        Ok(move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }

    /// Runs a function on a thread in the namespace. Processes that it starts stay there.
    ///
    /// # Panics
    /// If the function panics, or the kernel refuses.
    pub fn run<T: Send>(&self, function: impl FnOnce() -> T + Send) -> T {
        let run = || {
            self.enter().expect("the process that made a namespace may enter it");
            function()
        };
        thread::scope(|scope| scope.spawn(run).join()).unwrap_or_else(|panic| resume_unwind(panic))
    }

    /// Runs a program in the namespace, with arguments between spaces.
    ///
    /// # Errors
    /// If the program is missing or fails; the error has what it said.
    pub fn command(&self, program: &str, arguments: &str) -> io::Result<()> {
        let failed = |what: &str| io::Error::other(format!("{program} {arguments}: {what}"));
        let output = self.run(|| Command::new(program).args(arguments.split_whitespace()).output());
        let output = output.map_err(|error| failed(&error.to_string()))?;
        if output.status.success() { Ok(()) } else { Err(failed(String::from_utf8_lossy(&output.stderr).trim())) }
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns the reason why this process cannot make namespaces; `None` if it can.
pub fn obstacle() -> Option<String> {
    Namespace::new().err().map(|error| format!("this user cannot make network namespaces: {error}"))
}

/// Returns the reason why a test that needs namespaces is skipped; `None` if it runs.
///
/// # Panics
/// Instead of skipping, where the environment variable `E2E_NAMESPACES` is `required`, as in CI.
pub fn reason_to_skip() -> Option<String> {
    let reason = obstacle()?;
    let is_required = std::env::var_os(MODE).is_some_and(|value| value == "required");
    assert!(!is_required, "network namespaces are required here: {reason}");
    Some(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_has_interfaces_of_its_own() {
        if let Some(reason) = reason_to_skip() {
            eprintln!("skipped: {reason}");
            return;
        }
        let namespace = Namespace::new().unwrap();
        let interfaces = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        namespace.command("ip", "link add of-test type veth peer of-test2").unwrap();
        assert!(namespace.run(interfaces).contains("of-test"));
        assert!(!interfaces().contains("of-test"));
        let error = namespace.command("ip", "link add of-test type veth peer of-test2").unwrap_err();
        assert!(error.to_string().contains("of-test"), "{error}");
    }
}
