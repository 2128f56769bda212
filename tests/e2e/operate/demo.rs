//! `carom demo`: a node with links and visits that ends without a trace.

use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::cli_user::CliUser;
use crate::support::http::Wire;
use crate::support::node::{CAROM, free_address, wait_until};

#[test]
fn demonstration_has_visits_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (public, admin) = (free_address(), free_address());
    let mut command = Command::new(CAROM);
    command.args(["demo", "--listen", &public.to_string(), "--admin-listen", &admin.to_string()]);
    // A demonstration does not follow the environment, apart from the place of its directory.
    command.env("TMPDIR", folder.path()).env("CAROM_DATA_DIR", "/proc/none").stdin(Stdio::null());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("a demonstration that is ready", || {
        assert!(child.try_wait().unwrap().is_none(), "it has ended");
        TcpStream::connect(admin).is_ok() && Wire::open(admin).get("/readyz").status == 200
    });
    let user = CliUser::new().env("CAROM_URL", &format!("http://{public}"));
    let list = user.json(&["link", "list", "--order", "visits", "--limit", "100", "--json"]);
    let links = list["shortUrls"]["data"].as_array().unwrap();
    assert!(links.len() > 20 && links[0]["visitsSummary"]["nonBots"].as_u64() > Some(5_000), "{list:#}");
    let stats = user.done(&["link", "stats", "docs"]);
    assert!(stats.matches('█').count() > 300 && stats.contains("www.google.com"), "{stats}");
    assert_eq!(Wire::open(public).get("/docs").location(), "https://docs.example/start");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the directory is left");
}
