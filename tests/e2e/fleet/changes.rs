//! Changes of links in a fleet: they reach every node, and none undoes another.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::fleet::{
    Fleet, changed, is_usually_within_a_second, most_are_shorter, redirects, settle, with_usual_timeouts,
};
use crate::support::http::SHORT_URLS;
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/first";

fn read(node: &Node, code: &str) -> Value {
    node.wire().get(&format!("{SHORT_URLS}/{code}")).json()
}

#[test]
fn change_reaches_every_node_within_a_second() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    let code = nodes[0].wire().shorten(TARGET);
    let mut times = Vec::new();
    for number in 0..30 {
        let target = format!("https://example.org/{number}");
        let at = &nodes[number % 3];
        // Some come from a node that has not heard of the link or of the last change yet.
        let answer = changed(at, &code, &json!({"longUrl": target}));
        assert_eq!((answer.status, answer.json()["longUrl"].as_str()), (200, Some(target.as_str())));
        let begin = Instant::now();
        assert_eq!(at.wire().get(&format!("/{code}")).location(), target);
        wait_until("the change on every node", || nodes.iter().all(|node| redirects(node, &code, &target)));
        times.push(begin.elapsed());
    }
    is_usually_within_a_second(times);
    for node in &nodes {
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
}

#[test]
fn concurrent_changes_all_apply() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    nodes[0].wire().shorten_as("shared", TARGET);
    for round in 0..40 {
        let changes = [
            json!({"title": format!("title {round}")}),
            json!({"tags": [format!("tag-{round}")]}),
            json!({"longUrl": format!("https://example.org/{round}")}),
        ];
        std::thread::scope(|scope| {
            for (node, fields) in nodes.iter().zip(&changes) {
                scope.spawn(|| assert_eq!(changed(node, "shared", fields).status, 200));
            }
        });
        for node in &nodes {
            wait_until("all changes on every node", || {
                let link = read(node, "shared");
                let is_shown =
                    |fields: &Value| fields.as_object().unwrap().iter().all(|(field, value)| link[field] == *value);
                changes.iter().all(is_shown)
            });
        }
    }
    nodes.iter().for_each(settle);
    for node in nodes {
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
        let node = node.restart();
        assert_eq!(read(&node, "shared")["title"], "title 39");
    }
}

#[test]
fn outage_refuses_changes_at_once() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    // A node prepares codes when its store runs low, which may be while Redis is away.
    let expected = ["redis_away", "codes_failed", "counter_regressed"];
    let setup = |number| expected.into_iter().fold(with_usual_timeouts(fleet.setup(number)), Setup::expect);
    let nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    let code = nodes[0].wire().shorten(TARGET);
    server.kill();
    let mut wire = nodes[0].wire();
    let times = [(); 3].map(|()| {
        let begin = Instant::now();
        let refused = change(&mut wire, &code, &json!({"longUrl": "https://example.org/other"}));
        let took = begin.elapsed();
        assert!(refused.field("retry-after").is_some());
        refused.problem(503, ":unavailable");
        assert_eq!(nodes[0].wire().get(&format!("/{code}")).location(), TARGET);
        took
    });
    most_are_shorter(times, Duration::from_millis(400));
    server.start_again();
    wait_until("Redis again", || nodes[0].status()["redis"]["connected"] == true);
    settle(&nodes[0]);
    // Redis has come back empty: what the node has is changed all the same, and brought there.
    wait_until("a change", || change(&mut wire, &code, &json!({"title": "T"})).status == 200);
    wait_until("it everywhere", || nodes.iter().all(|node| read(node, &code)["title"] == "T"));
}
