//! Real RabbitMQ servers for tests, each with ports and a folder of its own, and with an own daemon of Erlang's names.
//!
//! A server runs as the current user, without plugins. Dropping its value ends it.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::support::amqp::Client;
use crate::support::bypass;
use crate::support::node::{free_address, wait_until};
use crate::support::tls::Ca;

/// The program of Debian's package below its wrapper, which would change to another user.
const PROGRAM: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";

/// Longest wait for a server that starts, and for what follows from it: Erlang takes its time on a busy machine.
const START_WITHIN: Duration = Duration::from_secs(120);

/// Interval between two checks of a condition.
const CHECK_EVERY: Duration = Duration::from_millis(20);

/// Number of starts that may fail because the name of the last run is not free yet.
const STARTS_MAX: usize = 5;

/// Waits until a condition holds, as long as a server may take to start.
pub(crate) fn wait_through_start(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < START_WITHIN, "waited in vain for {what}");
        std::thread::sleep(CHECK_EVERY);
    }
}

/// A real server. It is killed when this is dropped.
pub(crate) struct Server {
    folder: TempDir,
    port: u16,
    tls_port: u16,
    /// The port for other servers of a cluster, and for tools.
    erlang_port: u16,
    names_port: u16,
    /// The daemon of Erlang's names.
    names: Child,
    process: Mutex<Option<Child>>,
}

impl Server {
    /// Starts a server and waits until it answers.
    pub(crate) fn start() -> Server {
        Server::start_as("")
    }

    /// Starts a server that also speaks TLS, with the certificate in this file.
    pub(crate) fn start_with_tls(ca: &Ca, file: &str) -> Server {
        let names = [
            ("cacertfile", "ca.pem".to_owned()),
            ("certfile", format!("{file}.pem")),
            ("keyfile", format!("{file}.key")),
        ];
        let lines = names.map(|(name, file)| format!("ssl_options.{name} = {}\n", ca.file(&file)));
        Server::start_as(&(lines.concat() + "ssl_options.verify = verify_none\n"))
    }

    fn start_as(tls: &str) -> Server {
        bypass::enter();
        let folder = tempfile::tempdir().expect("a folder can be made");
        let [port, tls_port, erlang_port, names_port] = [(); 4].map(|()| free_address().port());
        let listener = if tls.is_empty() { String::new() } else { format!("listeners.ssl.1 = 127.0.0.1:{tls_port}\n") };
        write(folder.path(), "rabbitmq.conf", &format!("# Of a test.\n{listener}{tls}"));
        write(folder.path(), "env.conf", "# Nothing.\n");
        write(folder.path(), "plugins", "[].\n");
        let names = Command::new("epmd")
            .args(["-port", &names_port.to_string(), "-address", "127.0.0.1"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("epmd is installed");
        let process = Mutex::new(None);
        let server = Server { folder, port, tls_port, erlang_port, names_port, names, process };
        // Otherwise the server would start a daemon that stays.
        wait_until("the daemon of names", || TcpStream::connect((Ipv4Addr::LOCALHOST, names_port)).is_ok());
        server.start_again();
        server
    }

    /// The address of the server, which stays the same over restarts.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of the server, for its usual user.
    pub(crate) fn url(&self) -> String {
        format!("amqp://{}", self.address())
    }

    /// The URL of the server with TLS.
    pub(crate) fn tls_url(&self) -> String {
        format!("amqps://127.0.0.1:{}", self.tls_port)
    }

    /// A client of the server.
    pub(crate) fn client(&self) -> Client {
        Client::open(self.address()).unwrap_or_else(|error| panic!("{error}, log:\n{}", self.log()))
    }

    /// Ends it with SIGKILL.
    pub(crate) fn kill(&self) {
        let mut child = self.process.lock().unwrap().take().expect("the server runs");
        child.kill().expect("it has not been waited for");
        child.wait().expect("a child can be waited for");
    }

    /// Starts it with what is on disk, and waits until it answers.
    pub(crate) fn start_again(&self) {
        let mut process = self.process.lock().unwrap();
        assert!(process.is_none(), "the server still runs");
        for _ in 0..STARTS_MAX {
            let child = process.insert(self.spawn());
            let mut has_ended = false;
            wait_through_start("a RabbitMQ that answers", || {
                has_ended = child.try_wait().expect("a child can be waited for").is_some();
                has_ended || Client::open(self.address()).is_ok()
            });
            if !has_ended {
                return;
            }
            *process = None;
        }
        panic!("RabbitMQ ended by itself {STARTS_MAX} times");
    }

    /// The log of all runs.
    fn log(&self) -> String {
        let bytes = std::fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn spawn(&self) -> Child {
        let folder = self.folder.path();
        let log = File::options().create(true).append(true).open(folder.join("log")).expect("a log can be opened");
        let mut command = Command::new(if Path::new(PROGRAM).exists() { PROGRAM } else { "rabbitmq-server" });
        // The script then becomes the server, instead of watching over it, and so its process is the one to end.
        command.env("RUNNING_UNDER_SYSTEMD", "true").env_remove("NOTIFY_SOCKET");
        // The cookie of Erlang is in the home.
        command.current_dir(folder).env("HOME", folder).env("ERL_CRASH_DUMP", folder.join("crash"));
        command.env("ERL_EPMD_PORT", self.names_port.to_string()).env("ERL_EPMD_ADDRESS", "127.0.0.1");
        let settings = [
            ("NODENAME", format!("carom-{}@localhost", self.port)),
            ("NODE_IP_ADDRESS", "127.0.0.1".to_owned()),
            ("NODE_PORT", self.port.to_string()),
            ("DIST_PORT", self.erlang_port.to_string()),
            ("LOGS", "-".to_owned()),
            // Few threads, which share their CPUs with other tests.
            ("SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2".to_owned()),
            ("SCHEDULER_BIND_TYPE", "u".to_owned()),
        ];
        command.envs(settings.map(|(name, value)| (format!("RABBITMQ_{name}"), value)));
        let files = [
            ("MNESIA_BASE", "data"),
            ("LOG_BASE", "logs"),
            ("ENABLED_PLUGINS_FILE", "plugins"),
            ("CONFIG_FILE", "rabbitmq.conf"),
            ("CONF_ENV_FILE", "env.conf"),
            ("ADVANCED_CONFIG_FILE", "advanced.config"),
        ];
        command.envs(files.map(|(name, file)| (format!("RABBITMQ_{name}"), folder.join(file))));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file can be cloned")).stderr(log);
        command.spawn().expect("rabbitmq-server is installed")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of RabbitMQ on port {}:\n{}", self.port, self.log());
        }
        let process = self.process.get_mut().unwrap_or_else(PoisonError::into_inner);
        for child in process.iter_mut().chain([&mut self.names]) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).expect("a file can be written");
}
