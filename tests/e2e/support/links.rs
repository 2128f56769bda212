//! Links on every core and over both HTTP paths.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::api_client::JSON;
use crate::support::http::{Reply, SHORT_URLS, Wire, create_request};
use crate::support::memory::keeping;
use crate::support::node::{Dice, Node, Setup, sum, wait_for};

/// Connections that make links at once, so that many share a sync; and requests that one sends before it reads answers.
pub(crate) const AT_ONCE: usize = 64;

/// Makes so many links with these fields.
pub(crate) fn create_many(node: &Node, fields: &Value, count: usize) -> Vec<String> {
    let request = create_request(fields);
    let mut wires: Vec<Wire> = (0..AT_ONCE).map(|_| node.wire()).collect();
    let mut codes = Vec::new();
    while codes.len() < count {
        let together = &mut wires[..AT_ONCE.min(count - codes.len())];
        together.iter_mut().for_each(|wire| wire.send(&request));
        codes.extend(together.iter_mut().map(|wire| wire.reply().code()));
    }
    codes
}

/// Connections that reach every core, half of them driven by hyper.
pub(crate) fn wires(node: &Node) -> Vec<Wire> {
    let mut wires: Vec<Wire> = (0..12).map(|_| node.wire()).collect();
    wires[6..].iter_mut().for_each(|wire| assert_eq!(wire.get("/rest/health").status, 200));
    wires
}

/// Asks over all connections, and returns the one status and destination. Fails unless all responses agree.
pub(crate) fn everybody_gets(wires: &mut [Wire], path: &str) -> (u16, Option<String>) {
    let mut answers: Vec<_> = wires
        .iter_mut()
        .map(|wire| {
            let reply = wire.get(path);
            (reply.status, reply.field("location").map(str::to_owned))
        })
        .collect();
    answers.dedup();
    assert_eq!(answers.len(), 1, "{path}: {answers:?}");
    answers.remove(0)
}

pub(crate) fn moved_to(target: &str) -> (u16, Option<String>) {
    (302, Some(target.to_owned()))
}

/// A node of each kind: one core, three, and one that has hardly any link in memory.
pub(crate) fn on_every_kind(check: impl Fn(&Setup)) {
    for cores in [1, 3] {
        let data = tempfile::tempdir().unwrap();
        check(&Setup::new(data.path()).cores(cores));
    }
    let data = tempfile::tempdir().unwrap();
    check(&keeping(Setup::new(data.path()), 512 << 10));
}

/// Asks for a change.
pub(crate) fn change(wire: &mut Wire, code: &str, fields: &Value) -> Reply {
    let body = fields.to_string();
    wire.ask("PATCH", &format!("{SHORT_URLS}/{code}"), "Content-Type: application/json\r\n", body.as_bytes())
}

/// Changes links in a random order, with a pause after each, while nodes remove them in the order of their creation.
/// `change` gets a code and its number in the random order, and returns the status. Returns the links that were changed
/// in time, and those that were removed before.
pub(crate) fn race_removal(
    codes: &[String],
    pause: Duration,
    mut change: impl FnMut(&str, usize) -> u16,
) -> (Vec<&String>, Vec<&String>) {
    let mut order: Vec<&String> = codes.iter().collect();
    Dice::new().shuffle(&mut order);
    let (mut kept, mut gone) = (Vec::new(), Vec::new());
    for (number, code) in order.into_iter().enumerate() {
        match change(code, number) {
            200 => kept.push(code),
            404 => gone.push(code),
            other => panic!("{other}"),
        }
        std::thread::sleep(pause);
    }
    assert!(kept.len() > 10, "{} and {}: one was too fast", kept.len(), gone.len());
    assert!(gone.len() > 10, "{} and {}: one was too fast", kept.len(), gone.len());
    (kept, gone)
}

/// Asks for a link with that key of the client, and further fields of the head.
pub(crate) fn create(wire: &mut Wire, key: &str, more: &str, body: &Value) -> Reply {
    let fields = format!("{JSON}Idempotency-Key: {key}\r\n{more}");
    wire.ask("POST", SHORT_URLS, &fields, body.to_string().as_bytes())
}

/// Returns how many codes the cores have left, once the number stays the same: each core tells it four times a second.
pub(crate) fn codes_left(node: &Node) -> u64 {
    const STAYS_FOR: Duration = Duration::from_millis(1_500);
    let left = || sum(&node.status(), "/codes/remaining");
    let (mut seen, mut since) = (left(), Instant::now());
    wait_for("a number of codes that stays", || {
        let now = left();
        if now != seen {
            (seen, since) = (now, Instant::now());
        }
        (since.elapsed() >= STAYS_FOR).then_some(now)
    })
}

/// The codes of all links.
pub(crate) fn codes(node: &Node) -> Vec<String> {
    let listed = Wire::open(node.admin).get("/rest/v3/short-urls?itemsPerPage=100").json();
    let links = listed["shortUrls"]["data"].as_array().unwrap().iter();
    links.map(|link| link["shortCode"].as_str().unwrap().to_owned()).collect()
}
