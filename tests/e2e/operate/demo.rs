//! `carom demo`: a node with links and visits that ends without a trace.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::support::cli_user::CliUser;
use crate::support::demo::{Demonstration, demo};
use crate::support::http::Wire;
use crate::support::node::{free_address, wait_for};

#[test]
fn demonstration_has_visits_and_leaves_nothing() {
    let demonstration = Demonstration::start(Stdio::null());
    let public = demonstration.public;
    let user = CliUser::new().env("CAROM_URL", &format!("http://{public}"));
    let list = user.json(&["link", "list", "--order", "visits", "--limit", "100", "--json"]);
    let links = list["shortUrls"]["data"].as_array().unwrap();
    assert!(links.len() > 20, "{list:#}");
    assert!(links[0]["visitsSummary"]["nonBots"].as_u64() > Some(5_000), "{list:#}");
    let stats = user.done(&["link", "stats", "docs"]);
    assert!(stats.matches('█').count() > 300, "{stats}");
    assert!(stats.contains("www.google.com"), "{stats}");
    for part in ["Countries", "Germany", "Cities", "Devices", "mobile", "Browsers", "Safari", "Operating systems"] {
        assert!(stats.contains(part), "{part} is not in {stats}");
    }
    let details = user.json(&["link", "stats", "docs", "--json"]);
    assert_eq!(details["visitStats"]["complete"], true, "{details:#}");
    let campaigns = user.done(&["link", "stats", "summer"]);
    assert!(campaigns.contains("newsletter"), "{campaigns}");
    assert_eq!(Wire::open(public).get("/docs").location(), "https://docs.example/start");
    demonstration.end(Signal::INT);
}

#[test]
fn closed_terminal_ends_a_demonstration() {
    let (reader, writer) = std::io::pipe().unwrap();
    let demonstration = Demonstration::start(Stdio::from(writer));
    // From now on, every line of its log fails, as on a terminal that is gone.
    drop(reader);
    demonstration.end(Signal::HUP);
}

#[test]
fn signals_between_demonstration_and_node_count() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = demo(folder.path(), free_address(), free_address()).stderr(Stdio::piped()).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    // The last line of the demonstration. The node checks the machine next, before it can stop.
    let mut line = String::new();
    while !line.starts_with("Open http://") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it has ended");
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = wait_for("the end of a demonstration", || child.try_wait().unwrap());
    assert!(status.code() == Some(0) || status.signal() == Some(Signal::INT.as_raw()), "{status}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the directory is left");
}
