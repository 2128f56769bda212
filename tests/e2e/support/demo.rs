//! A running `carom demo`, whose directory is removed at the end.

use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::http::Wire;
use crate::support::node::{CAROM, free_address, wait_until};

/// Returns the command for a demonstration whose directory is in `folder`.
pub(crate) fn demo(folder: &Path, public: SocketAddr, admin: SocketAddr) -> Command {
    let mut command = Command::new(CAROM);
    command.args(["demo", "--listen", &public.to_string(), "--admin-listen", &admin.to_string()]);
    // A demonstration does not follow the environment, apart from the place of its directory.
    command.env("TMPDIR", folder).env("CAROM_DATA_DIR", "/proc/none").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A running demonstration. It is killed if a test fails before its end.
pub(crate) struct Demonstration {
    folder: TempDir,
    child: Child,
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Demonstration {
    /// Starts a demonstration that writes to `errors`, and waits until it is ready.
    pub(crate) fn start(errors: Stdio) -> Demonstration {
        let folder = tempfile::tempdir().unwrap();
        let (public, admin) = (free_address(), free_address());
        let child = demo(folder.path(), public, admin).stderr(errors).spawn().unwrap();
        let mut demonstration = Demonstration { folder, child, public, admin };
        wait_until("a demonstration that is ready", || {
            assert!(demonstration.child.try_wait().unwrap().is_none(), "it has ended");
            TcpStream::connect(admin).is_ok() && Wire::open(admin).get("/readyz").status == 200
        });
        assert_eq!(demonstration.files().len(), 1);
        demonstration
    }

    /// Content of the folder of the demonstration: its data directory, until it ends.
    fn files(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.folder.path()).unwrap().map(|file| file.unwrap().path()).collect()
    }

    /// Adds a key with the role `admin`, waits until the demonstration asks for it, and returns the key.
    pub(crate) fn admin_key(&self, app: &str) -> String {
        let mut command = Command::new(CAROM);
        command.args(["app", "add", app, "--role", "admin", "--data-dir"]).arg(&self.files()[0]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // Pages answer at the address of their listener only.
        let host = self.admin.to_string();
        let session = || Wire::open(self.admin).get_at(&host, "/admin/api/session");
        wait_until("a demonstration that asks", || session().status == 401);
        String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
    }

    /// Ends the demonstration, which must leave nothing.
    pub(crate) fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        assert_eq!(self.files(), Vec::<PathBuf>::new(), "the directory is left");
    }
}

impl Drop for Demonstration {
    fn drop(&mut self) {
        // Fails for one that has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
