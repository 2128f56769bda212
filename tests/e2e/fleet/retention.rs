//! Redis keeps links for a few seconds after their last change. They stay on all nodes, no slug is given twice, and a node
//! that missed changes says so instead of guessing.

use std::time::Duration;

use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;
use serde_json::{Value, json};

use crate::support::alarms::{alarms, is_seen};
use crate::support::bulk::{BULK, TARGET, send_all};
use crate::support::cli_user::CliUser;
use crate::support::fleet::{Fleet, KEY, changed, delete, known, redirects, settle, setup};
use crate::support::http::SHORT_URLS;
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::Server;
use crate::support::resp::Reply;

/// Time for which Redis keeps a link. Half of it must be longer than any pause of this machine.
const RETENTION: Duration = Duration::from_secs(12);

fn retaining(setup: Setup) -> Setup {
    setup.env("CAROM_FLEET_RETENTION", &format!("{}s", RETENTION.as_secs()))
}

/// Starts nodes, and waits until all of them let states expire.
fn start(fleet: &Fleet, setup_of: impl Fn(Setup) -> Setup) -> Vec<Node> {
    let nodes: Vec<Node> = (0..2).map(|number| setup_of(retaining(fleet.setup(number))).start()).collect();
    nodes.iter().for_each(settle);
    nodes.iter().for_each(is_current);
    nodes
}

fn replica_state(node: &Node) -> Value {
    node.status()["fleet"]["retention"]["state"].clone()
}

/// Returns the number of states in Redis.
fn states(server: &Server) -> usize {
    server.command(&["KEYS", "{carom:*}:l:*"]).list().len()
}

fn used_memory(server: &Server) -> u64 {
    server.info("used_memory").expect("Redis answers").parse().expect("a number")
}

/// Creates links with the slugs `{prefix}0` to `{prefix}{count - 1}`.
fn create(node: &Node, prefix: &str, count: usize) {
    let lines: Vec<String> = (0..count)
        .map(|number| format!("{}\n", json!({"longUrl": TARGET, "customSlug": format!("{prefix}{number}")})))
        .collect();
    for some in lines.chunks(250) {
        let (mut left, mut may_be_taken) = (some.to_vec(), false);
        wait_until("links that Redis confirms in time", || {
            let results = send_all(node, BULK, left.concat().as_bytes());
            may_be_taken |= results.iter().any(|result| result["status"] == 503);
            // Redis may have taken a slug all the same. The node takes it back.
            let is_unsure = |result: &Value| result["status"] == 503 || may_be_taken && result["status"] == 400;
            assert!(results.iter().all(|result| result["status"] == 200 || is_unsure(result)), "{results:?}");
            let mut are_unsure = results.iter().map(is_unsure);
            left.retain(|_| are_unsure.next() == Some(true));
            left.is_empty()
        });
    }
}

fn is_gone(node: &Node, slug: &str) -> bool {
    node.wire().get(&format!("/{slug}")).status == 404
}

/// Waits until a node has recorded that it has all changes, after states have begun to expire. Until then, its lag only grows.
fn has_followed(node: &Node) {
    let mut longest = 0;
    wait_until("a lag that became shorter", || {
        let lag = node.status()["fleet"]["retention"]["lagMillis"].as_u64().expect("a node with a retention");
        longest = lag.max(longest);
        lag < longest
    });
}

/// The destination of links whose slugs were claimed.
const OTHER: &str = "https://example.org/other";

/// Checks that a slug is taken, once Redis has answered in time.
fn is_taken(node: &Node, slug: &str) {
    let reply = known(|| node.wire().create(&json!({"longUrl": OTHER, "customSlug": slug})));
    assert_eq!(reply.status, 400, "{slug} is taken");
}

/// Waits until a node has all changes that Redis no longer has, as far as it knows.
fn is_current(node: &Node) {
    wait_until("a node that is current", || replica_state(node) == "current");
}

/// Returns the status of a create with this slug.
fn claim(node: &Node, slug: &str) -> u16 {
    node.wire().create(&json!({"longUrl": OTHER, "customSlug": slug})).status
}

/// Creates a link with a new slug that begins with `prefix`, and returns the slug. A node needs an answer of Redis for it, and
/// answers 503 if that takes longer than `fleet.answer_ms`, as on a busy machine: then another slug is tried, since Redis may
/// have taken the first one.
fn claim_new(node: &Node, prefix: &str) -> String {
    let mut tried = 0;
    wait_for("a create that Redis answers in time", || {
        tried += 1;
        let slug = format!("{prefix}-{tried}");
        match claim(node, &slug) {
            200 => Some(slug),
            503 => None,
            status => panic!("a create with the new slug {slug} got {status}"),
        }
    })
}

#[test]
fn unchanged_links_cost_redis_nothing() {
    const LINKS: usize = 20_000;
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup);
    let before = used_memory(&server);
    create(&nodes[0], "s", LINKS);
    wait_until("all links on both", || nodes.iter().all(|node| node.status()["links"] == json!(LINKS)));
    nodes.iter().for_each(settle);
    assert!(states(&server) > 0, "Redis has them at first");
    wait_until("a Redis without states", || states(&server) == 0);
    wait_until("a Redis without their memory", || used_memory(&server).saturating_sub(before) / LINKS as u64 <= 20);
    for node in &nodes {
        for number in (0..LINKS).step_by(1_000) {
            assert!(redirects(node, &format!("s{number}"), TARGET));
            assert_eq!(node.wire().get(&format!("{SHORT_URLS}/s{number}")).code(), format!("s{number}"));
        }
        wait_until("an answer that no node has a slug", || is_gone(node, "no-such-slug"));
        is_current(node);
    }
}

#[test]
fn expired_states_are_changed_on_all_nodes() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup);
    create(&nodes[0], "s", 10);
    nodes[0].wire().shorten_as("freed", TARGET);
    delete(&nodes[1], "freed");
    let issued = nodes[0].wire().shorten(TARGET);
    nodes.iter().for_each(settle);
    wait_until("a Redis without states", || states(&server) == 0);
    for node in &nodes {
        is_taken(node, "s1");
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    // An edit, by the node that did not create the link.
    let edited = "https://example.org/edited";
    assert_eq!(changed(&nodes[1], "s2", &json!({"longUrl": edited})).status, 200);
    wait_until("the edit everywhere", || nodes.iter().all(|node| redirects(node, "s2", edited)));
    assert_eq!(states(&server), 1, "Redis has what has changed");
    // A delete, of a slug and of a generated code.
    for slug in ["s3", issued.as_str()] {
        delete(&nodes[1], slug);
        wait_until("the delete everywhere", || nodes.iter().all(|node| is_gone(node, slug)));
    }
    // No generated code is used twice.
    is_taken(&nodes[0], &issued);
    // A slug whose tombstone has expired is free, and its next link reaches all nodes.
    nodes[0].wire().shorten_as("freed", "https://example.org/again");
    wait_until("the next link", || nodes.iter().all(|node| redirects(node, "freed", "https://example.org/again")));
    nodes.iter().for_each(settle);
    assert!(nodes.iter().all(|node| node.status()["fleet"]["conflicts"] == 0));
}

#[test]
fn slugs_stay_taken_with_retention_off() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup.expect("settings_differ").expect("fleet_behind"));
    create(&nodes[0], "s", 10);
    nodes.iter().for_each(settle);
    wait_until("a Redis without states", || states(&server) == 0);
    let setups: Vec<Setup> = nodes.into_iter().map(Node::terminate).collect();
    let forever = |setup: Setup| setup.env("CAROM_FLEET_RETENTION", "forever").start();
    let nodes: Vec<Node> = setups.into_iter().map(forever).collect();
    nodes.iter().for_each(settle);
    nodes.iter().for_each(|node| wait_until("states that are kept", || replica_state(node).is_null()));
    for node in &nodes {
        // Although Redis does not know it.
        is_taken(node, "s1");
        assert!(redirects(node, "s1", TARGET));
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    assert_eq!(nodes[1].wire().delete("s2").status, 204);
    wait_until("the delete everywhere", || nodes.iter().all(|node| is_gone(node, "s2")));
}

#[test]
fn the_longest_retention_of_all_nodes_applies() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let differs = |setup: Setup| setup.expect("settings_differ");
    let forever = differs(fleet.setup(0)).env("CAROM_FLEET_RETENTION", "forever").start();
    settle(&forever);
    let node = retaining(differs(fleet.setup(1))).start();
    settle(&node);
    create(&node, "s", 10);
    // A node lets states expire from its second heartbeat on.
    let beats = || {
        let about = server.command(&["HGET", "{carom}:nodes", "n1"]).text();
        serde_json::from_str::<Value>(&about).unwrap()["beat"].as_u64()
    };
    wait_until("some heartbeats", || beats() >= Some(5));
    create(&node, "later", 10);
    for state in server.command(&["KEYS", "{carom:*}:l:*"]).list() {
        assert_eq!(server.command(&["PTTL", &state.text()]), Reply::Int(-1), "the other node keeps it");
    }
    assert_eq!(server.command(&["HEXISTS", "{carom}:space", "expiring"]).to_number(), 0);
    is_seen(&node, "settings_differ");
    let forever = retaining(forever.terminate()).start();
    settle(&forever);
    wait_until("a Redis without states", || states(&server) == 0);
    assert!(redirects(&forever, "later7", TARGET));
    is_taken(&node, "s7");
}

#[test]
fn links_end_after_their_states_have_expired() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup.env("CAROM_LINKS_KEEP_EXPIRED", "1s"));
    let end_ms = unix_ms() + 2 * RETENTION.as_millis() as u64;
    let link = json!({"longUrl": TARGET, "customSlug": "ends", "validUntil": dates::format(end_ms)});
    assert_eq!(nodes[0].wire().create_named(&link).status, 200);
    wait_until("a Redis without states", || states(&server) == 0);
    assert!(unix_ms() < end_ms, "the machine stood still");
    wait_until("the removal", || nodes.iter().all(|node| node.status()["links"] == 0));
    // No node serves it. That none has it is known once Redis has answered in time.
    for node in &nodes {
        wait_until("an answer that no node has the link", || is_gone(node, "ends"));
    }
    nodes[1].wire().shorten_as("ends", "https://example.org/next");
    wait_until("the next link", || nodes.iter().all(|node| redirects(node, "ends", "https://example.org/next")));
}

#[test]
fn empty_redis_gets_recent_changes() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup.expect("redis_away").expect("counter_regressed"));
    create(&nodes[0], "old", 200);
    nodes.iter().for_each(settle);
    wait_until("a Redis without states", || states(&server) == 0);
    // There is nothing to wait for: the nodes note the end of their logs once a second.
    std::thread::sleep(Duration::from_secs(6));
    create(&nodes[1], "new", 20);
    wait_until("the links on both", || nodes.iter().all(|node| node.status()["links"] == json!(220)));
    nodes.iter().for_each(settle);
    server.kill();
    server.start_again_empty();
    let since = |node: &Node| node.status()["fleet"]["gaps"].as_u64() > Some(0);
    wait_until("lost positions", || nodes.iter().all(since));
    // A gap is counted before its comparison is due.
    wait_until("recent states in Redis", || states(&server) >= 20);
    nodes.iter().for_each(settle);
    assert_eq!(states(&server), 20, "older states are on the nodes only");
    for node in &nodes {
        assert!(redirects(node, "old7", TARGET));
        assert!(redirects(node, "new7", TARGET));
        is_taken(node, "old8");
        is_taken(node, "new8");
        is_current(node);
    }
}

/// Creates links with the slugs `missed0` to `missed1999`, and waits until Redis has neither their states nor the present
/// positions of other nodes.
fn create_and_expire(server: &Server, node: &Node) {
    let end = server.command(&["XREVRANGE", "{carom:00}:s", "+", "-", "COUNT", "1"]);
    let position = end.list()[0].list()[0].text();
    create(node, "missed", 2_000);
    let is_there = || !server.command(&["XRANGE", "{carom:00}:s", &position, &position]).list().is_empty();
    wait_until("a stream without the position of the other node", || !is_there());
    wait_until("a Redis without states", || states(server) == 0);
}

#[test]
fn suspended_node_takes_no_link_for_missing() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet, |setup| setup.expect("fleet_behind"));
    create(&nodes[0], "known", 10);
    wait_until("the links on both", || nodes.iter().all(|node| node.status()["links"] == json!(10)));
    nodes.iter().for_each(settle);
    nodes[1].pause();
    create_and_expire(&server, &nodes[0]);
    nodes[1].resume();
    // It compares with Redis only once it knows for how long it was suspended.
    wait_until("a node that needs a copy", || {
        assert_eq!(nodes[1].wire().get("/missed7").status, 503, "another node has it");
        replica_state(&nodes[1]) == "needsCopy"
    });
    assert!(redirects(&nodes[1], "known1", TARGET));
    assert!(redirects(&nodes[0], "missed7", TARGET));
}

#[test]
fn node_that_was_away_too_long_refuses_writes() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = start(&fleet, |setup| setup.expect("fleet_behind"));
    create(&nodes[0], "known", 10);
    wait_until("the links on both", || nodes.iter().all(|node| node.status()["links"] == json!(10)));
    nodes.iter().for_each(settle);
    let away = nodes.pop().expect("two nodes").terminate();
    create_and_expire(&server, &nodes[0]);
    let back = away.start();
    is_seen(&back, "fleet_behind");
    wait_until("a node that needs a copy", || replica_state(&back) == "needsCopy");
    let status = back.status();
    let told = status["alarms"].as_array().unwrap().iter().find(|alarm| alarm["name"] == "fleet_behind").unwrap();
    assert!(told["text"].as_str().is_some_and(|text| text.contains("carom join --from")), "{told}");
    let problem = back.wire().create(&json!({"longUrl": TARGET, "customSlug": "missed7"})).problem(503, ":unavailable");
    assert!(problem["detail"].as_str().is_some_and(|text| text.contains("missed changes")), "{problem}");
    assert_eq!(back.wire().create(&json!({"longUrl": TARGET})).status, 503, "also without a slug");
    assert_eq!(change(&mut back.wire(), "known1", &json!({"title": "new"})).status, 503);
    assert_eq!(back.wire().delete("known1").status, 503);
    assert!(redirects(&back, "known1", TARGET));
    assert_eq!(back.wire().get("/missed7").status, 503, "another node has it");
    assert!(redirects(&nodes[0], "missed7", TARGET));
    claim_new(&nodes[0], "fresh");
    // A copy of it would lack the same changes.
    let (folder, from) = (tempfile::tempdir().unwrap(), format!("http://{}", back.admin));
    let new = folder.path().join("new");
    let arguments = ["join", "--from", &from, "--data-dir", new.to_str().unwrap()];
    CliUser::new().env("CAROM_SPACE_KEY", KEY).refused(&arguments, 1, &["fleet_behind"]);
    assert!(!new.join("links").exists());
}

#[test]
fn node_that_can_read_on_catches_up() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let proxy = Proxy::start(server.address());
    let through = setup(&folder.path().join("0"), 0, &format!("redis://{}", proxy.address()));
    let direct = setup(&folder.path().join("1"), 1, &server.url());
    let nodes: Vec<Node> = [through, direct]
        .into_iter()
        .map(|setup| retaining(setup).expect("redis_away").expect("fleet_behind").start())
        .collect();
    nodes.iter().for_each(settle);
    wait_until("a node that is current", || replica_state(&nodes[0]) == "current");
    // A node that does not know yet that states expire cannot be behind.
    let mut probes = 0;
    wait_until("a node that lets states expire", || {
        probes += 1;
        let slug = claim_new(&nodes[0], &format!("probe{probes}"));
        let keys = server.command(&["KEYS", &format!("{{carom:*}}:l:{slug}")]);
        let expires = "return redis.call('PTTL', KEYS[1]) > 0 and 1 or 0";
        server.command(&["EVAL", expires, "1", &keys.list()[0].text()]).to_number() == 1
    });
    has_followed(&nodes[0]);
    proxy.set(Mode::Cut);
    assert_eq!(nodes[0].wire().create(&json!({"longUrl": TARGET})).status, 200, "a generated code needs no Redis");
    is_seen(&nodes[0], "fleet_behind");
    assert_eq!(replica_state(&nodes[0]), "behind");
    assert_eq!(nodes[0].wire().create(&json!({"longUrl": TARGET})).status, 503, "another node may know more");
    let meanwhile = claim_new(&nodes[1], "meanwhile");
    proxy.set(Mode::Pass);
    wait_until("a node that has caught up", || replica_state(&nodes[0]) == "current");
    wait_until("the end of the alarm", || !alarms(&nodes[0].status()).contains(&"fleet_behind"));
    wait_until("the link", || redirects(&nodes[0], &meanwhile, OTHER));
    is_taken(&nodes[0], &meanwhile);
    claim_new(&nodes[0], "later");
    nodes.iter().for_each(settle);
    wait_until("the same links on both", || nodes[1].status()["links"] == nodes[0].status()["links"]);
}
