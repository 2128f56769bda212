//! Configurations for balancers in `deploy/`: each program accepts its own, and HAProxy runs in front of two nodes that
//! restart again and again.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::json;

use crate::support::balancer::{Balancer, HAPROXY, check};
use crate::support::http::Wire;
use crate::support::node::{Node, Setup, free_address, sum, wait_until};
use crate::support::steady_client::{TARGET, ask_until};
use crate::support::stop::StopOnDrop;
use crate::support::tls::{Ca, NAME, open};

const NGINX: &str = include_str!("../../../deploy/nginx/stream.conf");
const KEEPALIVED: &str = include_str!("../../../deploy/keepalived/keepalived.conf");

#[test]
fn configurations_are_valid_and_commented() {
    let dir = tempfile::tempdir().unwrap();
    let written = |name: &str, text: &str| {
        let file = dir.path().join(name);
        fs::write(&file, text).unwrap();
        file.display().to_string()
    };
    check("haproxy", &["-c", "-f", &written("haproxy.cfg", HAPROXY)]);
    check("keepalived", &["-t", "-f", &written("keepalived.conf", KEEPALIVED)]);
    let include = written("stream.conf", NGINX);
    let pid = dir.path().join("pid");
    // Where Debian's package has put the module.
    let module = "/usr/lib/nginx/modules/ngx_stream_module.so";
    let around = format!("load_module {module};\npid {};\nevents {{ }}\ninclude {include};\n", pid.display());
    check("nginx", &["-t", "-c", &written("nginx.conf", &format!("error_log stderr notice;\n{around}"))]);
    for text in [HAPROXY, KEEPALIVED, NGINX] {
        // An option is explained where it first appears.
        let mut explained = BTreeSet::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let is_title = line.ends_with('{') || line == "}" || ["global", "defaults"].contains(&line);
            let is_section = line.starts_with("frontend ") || line.starts_with("backend ");
            let option = line.split(' ').next().unwrap_or_default();
            if line.contains(" # ") {
                explained.insert(option);
            }
            assert!(is_title || is_section || explained.contains(option), "no reason: {line}");
        }
    }
}

#[test]
fn rolling_restart_loses_no_request() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let links = dir.path().join("links");
    fs::write(&links, json!({"shortCode": "shared", "longUrl": TARGET}).to_string() + "\n").unwrap();
    let addresses = [(free_address(), free_address()), (free_address(), free_address())];
    let setups = [0, 1].map(|number: usize| {
        let data = dir.path().join(format!("data-{number}"));
        check(env!("CARGO_BIN_EXE_carom"), &["import", "--data-dir", data.to_str().unwrap(), links.to_str().unwrap()]);
        let (plain, secure) = addresses[number];
        let setup = ca.setup(&data, &["go"]).cores(2).argument("--listen").argument(plain.to_string());
        let setup =
            setup.argument("--listen").argument(secure.to_string()).env("CAROM_TLS_LISTEN", &secure.to_string());
        let setup = setup.env("CAROM_PROXY_PROTOCOL", "require").env("CAROM_TRUSTED_PROXIES", "127.0.0.1");
        // Far more than the balancer needs for its two checks, for which it may be kept waiting.
        setup.env("CAROM_DRAIN_DELAY", "3s")
    });
    let mut nodes: Vec<Node> = setups.iter().map(Setup::start).collect();
    let balancer = Balancer::start(dir.path(), &addresses);
    let terms = ca.usual();
    let (is_over, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let stop = StopOnDrop(&is_over);
        let clients: Vec<_> = (0..6)
            .map(|number| {
                let (balancer, terms, is_over, answered) = (&balancer, &terms, &is_over, &answered);
                let begin = move || match number % 2 {
                    0 => Wire::open(balancer.http),
                    _ => open(balancer.https, terms),
                };
                scope.spawn(move || ask_until(begin, "/shared", is_over, answered))
            })
            .collect();
        for number in 0..6 {
            let node = nodes.remove(0).terminate().start();
            nodes.push(node);
            // It is given clients again, before the other one ends.
            wait_until("clients of the new node", || sum(&nodes[1].status(), "/redirects") > 50);
            println!("restart {number}: {} answers", answered.load(Ordering::Relaxed));
        }
        drop(stop);
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
    assert!(nodes.iter().all(|node| sum(&node.status(), "/badRequests") == 0));
    drop(balancer);
    nodes.into_iter().for_each(|node| drop(node.terminate()));
}
