//! The totals of all nodes, as each node shows them: which nodes are in them, and what they lack.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::fleet::{Fleet, known, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, wait_for, wait_until};
use crate::support::redis::Server;
use crate::support::store::fill_disk;
use crate::support::visits::counted;

const TARGET: &str = "https://example.org/seen";

/// Returns which nodes are in the visits of a node, and which are missing.
fn sources(node: &Node) -> Value {
    let totals = &node.status()["fleet"]["totals"];
    json!({"nodes": totals["nodes"], "lacks": totals["lacks"]})
}

fn all(nodes: &[&str]) -> Value {
    json!({"nodes": nodes, "lacks": []})
}

/// Makes a link on one node, and waits until all have it.
fn link(nodes: &[Node], slug: &str) {
    nodes[0].wire().shorten_as(slug, TARGET);
    let path = format!("/{slug}");
    wait_until("the link on every node", || nodes.iter().all(|node| node.wire().get(&path).status == 302));
}

/// The page of `carom status`.
fn terminal(node: &Node) -> String {
    let output = Command::new(CAROM).args(["status", "--once", "--admin", &node.admin.to_string()]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the page of `carom status` has all of these parts. A late heartbeat makes a node silent for a moment.
fn shows(node: &Node, parts: &[&str]) {
    wait_until(&format!("{parts:?} in the status"), || {
        let page = terminal(node);
        parts.iter().all(|part| page.contains(part))
    });
}

#[test]
fn killed_node_is_named_until_it_returns() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let mut nodes = fleet.start();
    link(&nodes, "seen");
    wait_until("all nodes in the totals", || nodes.iter().all(|node| sources(node) == all(&["n0", "n1", "n2"])));
    let mut wires: Vec<_> = nodes.iter().map(Node::wire).collect();
    wait_until("redirects of all nodes in one sum", || {
        wires.iter_mut().for_each(|wire| assert_eq!(known(|| wire.get("/seen")).status, 302));
        let fleet = nodes[0].status()["fleet"].clone();
        let of_nodes: Vec<u64> = fleet["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["about"]["redirectsPerSecond"].as_u64().unwrap())
            .collect();
        let sum = of_nodes.iter().sum::<u64>();
        of_nodes.iter().all(|rate| *rate > 0) && fleet["totals"]["redirectsPerSecond"] == sum
    });
    let (browser, admin) = (Browser::open(), nodes[0].admin);
    let says = |page: &str, selector: &str, part: &str| {
        browser.go(&format!("http://{admin}/admin/{page}"));
        wait_until("the note", || {
            let text = browser.value(&format!("document.querySelector('main {selector}')?.textContent ?? ''"));
            text.as_str().unwrap().contains(part)
        });
    };
    let pages = ["fleet", "usage", "links/seen"];
    for page in pages {
        says(page, "p.sources", "Visit counts include all nodes: n0, n1, n2");
    }
    let killed_ms = unix_ms();
    let killed = nodes.pop().unwrap().kill();
    let lacks = wait_for("a node that is silent", || {
        let sources = sources(&nodes[0]);
        (sources["nodes"] == json!(["n0", "n1"])).then(|| sources["lacks"].clone())
    });
    assert_eq!(
        (lacks.as_array().unwrap().len(), &lacks[0]["node"], &lacks[0]["reason"]),
        (1, &json!("n2"), &json!("silent"))
    );
    // Its last heartbeat was at most a second before, and was heard at most a second later, if the machine did not stand still.
    let since_ms = dates::parse(lacks[0]["since"].as_str().unwrap()).unwrap();
    assert!(
        (killed_ms - 4_500..=killed_ms + 4_500).contains(&since_ms),
        "killed at {killed_ms}, missing since {since_ms}"
    );
    wait_until("the same on the other node", || sources(&nodes[1])["nodes"] == json!(["n0", "n1"]));
    shows(&nodes[0], &["visits  of n0, n1; MISSING: n2 since ", "SILENT"]);
    let metrics = || Wire::open(nodes[0].admin).get("/metrics").text().to_owned();
    wait_until("a missing node in the metrics", || metrics().contains("carom_fleet_nodes_missing 1\n"));
    for page in pages {
        says(page, "p.lacks", "Visits are missing: n2 (no heartbeat since ");
        says(page, "p.sources", "Visit counts include only n0, n1");
    }
    browser.close();
    nodes.push(killed.start());
    settle(&nodes[2]);
    wait_until("all nodes again", || nodes.iter().all(|node| sources(node) == all(&["n0", "n1", "n2"])));
    shows(&nodes[2], &["visits  of all nodes: n0, n1, n2", "n2 (this node)"]);
}

#[test]
fn node_without_redis_lacks_all_others() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes: Vec<Node> = (0..2).map(|number| fleet.setup(number).expect("redis_away").start()).collect();
    nodes.iter().for_each(settle);
    link(&nodes, "seen");
    wait_until("counts of both", || counted(&nodes[0], "seen") > 1);
    server.pause();
    let named = |node: &Node| sources(node)["lacks"][0]["node"].clone();
    wait_until("each lacks the other", || (named(&nodes[0]), named(&nodes[1])) == (json!("n1"), json!("n0")));
    server.resume();
    wait_until("both again", || nodes.iter().all(|node| sources(node) == all(&["n0", "n1"])));
}

#[test]
fn full_disk_is_named_on_both_sides() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let small = fleet.setup(1);
    std::fs::create_dir_all(small.data_dir()).unwrap();
    let data = small.data_dir().display().to_string();
    let mount = format!("mount -t tmpfs -o size=192m tmpfs {data}; exec \"$@\"");
    let nodes = [fleet.setup(0).start(), small.unshared(&mount).expect("alarm=\"disk_full\"").start()];
    nodes.iter().for_each(settle);
    nodes[0].wire().shorten_as("seen", TARGET);
    let path = format!("{SHORT_URLS}/seen");
    wait_until("the link on both", || nodes.iter().all(|node| node.wire().get(&path).status == 200));
    // The mount is the node's own; its process leads to it.
    let ballast = format!("/proc/{}/root{data}/ballast", nodes[1].pid());
    fill_disk(Path::new(&ballast), 4 << 20);
    wait_until("a full disk", || nodes[1].status()["store"]["writable"] == json!(false));
    for (node, times) in nodes.iter().zip([3, 5]) {
        let mut wire = node.wire();
        (0..times).for_each(|_| assert_eq!(known(|| wire.get("/seen")).status, 302));
    }
    let lack = |node: &Node| {
        let lacks = sources(node)["lacks"].clone();
        (lacks[0]["node"].clone(), lacks[0]["reason"].clone())
    };
    wait_until("a node that cannot send", || lack(&nodes[0]) == (json!("n1"), json!("unsent")));
    wait_until("counts that cannot be stored", || lack(&nodes[1]) == (json!("n0"), json!("unstored")));
    assert_eq!([counted(&nodes[0], "seen"), counted(&nodes[1], "seen")], [3, 5]);
    std::fs::remove_file(&ballast).unwrap();
    wait_until("all visits on both", || nodes.iter().all(|node| counted(node, "seen") == 8));
    wait_until("both again", || nodes.iter().all(|node| sources(node) == all(&["n0", "n1"])));
}

#[test]
fn stopped_node_leaves_nothing_behind() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = fleet.start();
    link(&nodes, "seen");
    let mut last = nodes[1].wire();
    // After a quiet time, the other node reads the stream of this one only if Redis names a new batch.
    std::thread::sleep(Duration::from_secs(12));
    let before = counted(&nodes[0], "seen");
    for _ in 0..7 {
        assert_eq!(last.get("/seen").status, 302);
    }
    drop(last);
    nodes.pop().unwrap().terminate();
    let begun = Instant::now();
    wait_until("its last visits", || counted(&nodes[0], "seen") == before + 7);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    std::thread::sleep(Duration::from_secs(6).saturating_sub(begun.elapsed()));
    let status = nodes[0].status();
    let stopped =
        status["fleet"]["nodes"].as_array().unwrap().iter().find(|node| node["node"] == "n1").unwrap().clone();
    assert!(stopped["silentMillis"].as_u64().unwrap() >= 5_000, "{stopped}");
    assert!(stopped["about"]["stopped"] == true, "{stopped}");
    wait_until("totals of both", || sources(&nodes[0]) == all(&["n0", "n1"]));
}

#[test]
fn guesses_do_not_look_like_slow_redirects() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let mut wire = nodes[0].wire();
    let private = "/0123456789abcdef";
    wait_until("404 for a private code", || wire.get(private).status == 404);
    let metrics = || Wire::open(nodes[0].admin).get("/metrics").text().to_owned();
    let count = |text: &str, name: &str| {
        let lines = text.lines().filter(|line| line.starts_with(&format!("{name}_count")));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum::<f64>()
    };
    let both = || {
        let text = metrics();
        ["carom_request_duration_seconds", "carom_absent_duration_seconds"].map(|name| count(&text, name))
    };
    let before = both();
    let mut denied = 0.0;
    for number in 0..5 {
        // Each one is new: a node remembers for a moment that a code has no link.
        let status = wire.get(&format!("/0123456789abcde{number}")).status;
        assert!(status == 404 || status == 503, "{status}");
        denied += 1.0;
    }
    wait_until("absent codes in the metrics", || both() == [before[0], before[1] + denied]);
    nodes[0].wire().shorten_as("seen", TARGET);
    assert_eq!(wire.get("/seen").status, 302);
    wait_until("a redirect in the metrics", || both() == [before[0] + 1.0, before[1] + denied]);
}
