//! Domains of a fleet: a slug exists once per domain on all nodes, and every node serves the links of the others.

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::fleet::{Fleet, agreeing_rounds, changed, delete, known, settle};
use crate::support::http::Wire;
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::redis::{Reply, Server};
use crate::support::sites::Sites;

const TARGET: &str = "https://example.org/";

const REDIRECTS: &str = "/rest/v3/domains/redirects";

/// Two nodes, each with the same domains.
fn start(fleet: &Fleet) -> Vec<Node> {
    let setup = |number| {
        let setup = fleet.setup(number).argument("--base-url").argument("https://s.test");
        let setup = setup.env("CAROM_DOMAINS_SERVE", "https://go.test, https://own.test");
        setup.env("CAROM_DOMAINS_FALLBACK", "true").env("CAROM_LINKS_DEDUPE", "1h")
    };
    // A test adds a node with other domains.
    let start = |number| setup(number).expect("settings_differ").start();
    let nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    nodes
}

fn fields(domain: &str, slug: &str) -> Value {
    json!({"longUrl": format!("{TARGET}{domain}/{slug}"), "domain": domain, "customSlug": slug})
}

/// Creates a link with a slug that is free in its domain.
fn create(node: &Node, domain: &str, slug: &str) {
    assert_eq!(node.wire().create_named(&fields(domain, slug)).status, 200, "{slug} at {domain}");
}

/// Checks that a slug is taken in a domain, once Redis has answered in time.
fn is_taken(node: &Node, domain: &str, slug: &str) {
    known(|| node.wire().create(&fields(domain, slug))).problem(400, "/non-unique-slug");
}

/// The destination for a slug at a host, or the status where there is none. `slow` asks over a connection that hyper
/// drives.
fn leads(node: &Node, host: &str, slug: &str, slow: bool) -> String {
    let mut wire = node.wire();
    if slow {
        wire.get("/rest/health");
    }
    let reply = wire.get_at(host, &format!("/{slug}"));
    reply.field("location").map_or_else(|| reply.status.to_string(), str::to_owned)
}

/// Checks the destination or status for a slug at a host, once Redis has answered in time.
fn assert_leads(node: &Node, host: &str, slug: &str, slow: bool, expected: &str) {
    let led = wait_for("an answer that is known", || Some(leads(node, host, slug, slow)).filter(|led| led != "503"));
    assert_eq!(led, expected, "{slug} at {host}");
}

#[test]
fn slug_is_unique_per_domain() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    for round in 0..10 {
        let slug = format!("sale-{round}");
        let slow = round % 2 == 0;
        let (at, elsewhere) = (&nodes[round % 2], &nodes[1 - round % 2]);
        create(at, "s.test", &slug);
        // It stands in for one that there is not, on a node that has heard of neither.
        assert_leads(elsewhere, "go.test", &slug, slow, &format!("{TARGET}s.test/{slug}"));
        create(at, "own.test", &slug);
        assert_leads(elsewhere, "own.test", &slug, slow, &format!("{TARGET}own.test/{slug}"));
        assert_leads(elsewhere, "s.test", &slug, slow, &format!("{TARGET}s.test/{slug}"));
        assert_leads(elsewhere, "other.test", &slug, slow, "404");
        is_taken(elsewhere, "own.test", &slug);
        is_taken(elsewhere, "s.test", &slug);
        create(elsewhere, "go.test", &slug);
        wait_until("the link of the domain", || leads(at, "go.test", &slug, slow) == format!("{TARGET}go.test/{slug}"));
        // A change and an end concern one of them.
        let of = |domain: &str| format!("{slug}?domain={domain}");
        let after = changed(elsewhere, &of("own.test"), &json!({"longUrl": "https://example.net/"}));
        assert_eq!(after.json()["domain"], "own.test");
        delete(at, &of("go.test"));
        for node in &nodes {
            wait_until("the change", || leads(node, "own.test", &slug, slow) == "https://example.net/");
            wait_until("the end", || leads(node, "go.test", &slug, slow) == format!("{TARGET}s.test/{slug}"));
        }
    }
    // The same destination is one link for each domain.
    agreeing_rounds(&nodes, 1, |round| {
        let found = |node: &Node, domain: &str| -> Value {
            let fields = json!({"longUrl": format!("https://example.org/same/{round}"), "domain": domain});
            node.wire().create(&fields).json()["shortUrl"].clone()
        };
        let (of_go, of_default) = (found(&nodes[0], "go.test"), found(&nodes[0], ""));
        assert!(of_go.as_str().unwrap().starts_with("https://go.test/"));
        assert!(of_default.as_str().unwrap().starts_with("https://s.test/"));
        found(&nodes[1], "go.test") == of_go && found(&nodes[1], "") == of_default
    });
    // No more visits than were allowed, whatever node is asked.
    let few = json!({"longUrl": TARGET, "customSlug": "few", "domain": "go.test", "maxVisits": 6});
    assert_eq!(nodes[0].wire().create_named(&few).status, 200);
    wait_until("the first visit", || leads(&nodes[0], "go.test", "few", false) == TARGET);
    let led = (0..30).filter(|number| leads(&nodes[number % 2], "go.test", "few", false) == TARGET).count();
    assert!(led < 6, "{led} after the first");
    // A new node gets everything, and so does one that has lost its disk.
    let third = Fleet::new(3, &server.url());
    let late = third
        .setup(2)
        .argument("--base-url")
        .argument("https://s.test")
        .env("CAROM_DOMAINS_SERVE", "https://own.test")
        .expect("settings_differ")
        .start();
    settle(&late);
    wait_until("all links", || late.status()["links"] == nodes[0].status()["links"]);
    assert_leads(&late, "own.test", "sale-3", false, "https://example.net/");
    assert_leads(&late, "s.test", "sale-3", true, &format!("{TARGET}s.test/sale-3"));
    for node in nodes.iter().chain([&late]) {
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    late.terminate();
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn changed_redirects_reach_all_nodes() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| {
        let setup = fleet.setup(number).argument("--base-url").argument("https://s.test");
        setup.env("CAROM_DOMAINS_SERVE", "https://go.test, https://own.test").expect("Redis").expect("redis")
    };
    let nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    let edit = |node: &Node, body: Value| node.wire().ask("PATCH", REDIRECTS, JSON, body.to_string().as_bytes());
    let lost = |path: &str| format!("{TARGET}{path}");
    assert_eq!(edit(&nodes[0], json!({"domain": "go.test", "invalidShortUrlRedirect": lost("a")})).status, 200);
    wait_until("the redirect on the other node", || leads(&nodes[1], "go.test", "none", false) == lost("a"));
    // Each node changes another redirect, and neither change replaces the other.
    assert_eq!(edit(&nodes[1], json!({"domain": "own.test", "invalidShortUrlRedirect": lost("b")})).status, 200);
    assert_eq!(edit(&nodes[0], json!({"domain": "own.test", "baseUrlRedirect": lost("c")})).status, 200);
    for node in &nodes {
        wait_until("both redirects", || {
            (leads(node, "own.test", "none", true), leads(node, "own.test", "", true)) == (lost("b"), lost("c"))
        });
    }
    // The last change wins, on whatever node it is made.
    assert_eq!(edit(&nodes[1], json!({"domain": "go.test", "invalidShortUrlRedirect": null})).status, 200);
    wait_until("a node without the redirect", || leads(&nodes[0], "go.test", "none", false) == "404");
    // While Redis is down, a node accepts changes and sends them later, even to a Redis that has lost everything. It answers
    // 503 for a code that it does not know, since another node may have it.
    server.kill();
    assert_eq!(edit(&nodes[0], json!({"domain": "go.test", "baseUrlRedirect": lost("d")})).status, 200);
    assert_eq!(leads(&nodes[0], "go.test", "", false), lost("d"));
    assert_eq!(leads(&nodes[0], "go.test", "none", false), "503");
    server.start_again_empty();
    wait_until("the later change", || leads(&nodes[1], "go.test", "", false) == lost("d"));
    // A node answers 503 for an unknown code until it has reconnected to Redis.
    wait_until("the earlier change", || leads(&nodes[1], "own.test", "none", false) == lost("b"));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

/// Redirects of a later version: one with a member that this version does not know, and one of a kind that it does not know.
fn later_redirects() -> Value {
    let stamp_ms = 4_102_444_800_000_u64;
    let home = json!({"stampMs": stamp_ms, "url": format!("{TARGET}later"), "status": 301});
    json!({"baseUrlRedirect": home, "botRedirect": {"stampMs": stamp_ms, "url": TARGET}})
}

/// The redirects of a domain in Redis; null if there are none.
fn redirects_in(server: &Server) -> Value {
    let Reply::Text(text) = server.command(&["HGET", "{carom}:domains", "go.test"]) else { return Value::Null };
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn members_of_later_versions_stay_in_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| {
        let setup = fleet.setup(number).argument("--base-url").argument("https://s.test");
        setup.env("CAROM_DOMAINS_SERVE", "https://go.test, https://own.test").expect("Redis").expect("redis")
    };
    let nodes = [0, 1].map(|number| setup(number).start());
    nodes.iter().for_each(settle);
    // With a space that this version does not write.
    let entry = format!(" {}", later_redirects());
    server.command(&["HSET", "{carom}:domains", "go.test", &entry]);
    for node in &nodes {
        let is_read = || leads(node, "go.test", "", false) == format!("{TARGET}later");
        wait_until("the redirect of a later version", is_read);
    }
    let edit = |node: &Node, domain: &str| {
        let body = json!({"domain": domain, "invalidShortUrlRedirect": TARGET}).to_string();
        assert_eq!(node.wire().ask("PATCH", REDIRECTS, JSON, body.as_bytes()).status, 200);
    };
    // Each change of another domain has exchanged the redirects with Redis once more.
    nodes.iter().for_each(|node| edit(node, "own.test"));
    assert_eq!(server.command(&["HGET", "{carom}:domains", "go.test"]), entry.as_str());
    let (later, fields) = (later_redirects(), ["baseUrlRedirect", "botRedirect"]);
    let has_all = || {
        let held = redirects_in(&server);
        held["invalidShortUrlRedirect"]["url"] == TARGET && fields.into_iter().all(|field| held[field] == later[field])
    };
    edit(&nodes[0], "go.test");
    wait_until("a change beside those of a later version", has_all);
    let changed = || leads(&nodes[1], "go.test", "none", true) == TARGET;
    wait_until("the change on the other node", changed);
    server.kill();
    server.start_again_empty();
    wait_until("the redirects from the files of the nodes", has_all);
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn members_of_later_versions_cross_sites() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| {
        let setup = setup.argument("--base-url").argument("https://s.test");
        setup.env("CAROM_DOMAINS_SERVE", "https://go.test")
    });
    sites.servers[0].command(&["HSET", "{carom}:domains", "go.test", &later_redirects().to_string()]);
    wait_until("the redirects at the other site", || redirects_in(&sites.servers[1]) == later_redirects());
    let is_read = |node: &Node| leads(node, "go.test", "", false) == format!("{TARGET}later");
    wait_until("the redirect on all nodes", || nodes.iter().all(is_read));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn unreadable_redirects_are_reported_and_kept() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let setup = fleet.setup(0).argument("--base-url").argument("https://s.test");
    let reported = "the field go.test of the hash PREFIX:domains";
    let node = setup.env("CAROM_DOMAINS_SERVE", "https://go.test").expect(reported).start();
    settle(&node);
    let edit = |path: &str| {
        let body = json!({"domain": "go.test", "baseUrlRedirect": format!("{TARGET}{path}")}).to_string();
        node.wire().ask("PATCH", REDIRECTS, JSON, body.as_bytes()).status
    };
    assert_eq!(edit("a"), 200);
    let of_later_version = r#"{"baseUrlRedirect": 7}"#;
    server.command(&["HSET", "{carom}:domains", "go.test", of_later_version]);
    assert_eq!(edit("b"), 200);
    assert_eq!(server.command(&["HGET", "{carom}:domains", "go.test"]), of_later_version);
    assert_eq!(leads(&node, "go.test", "", false), format!("{TARGET}b"));
    wait_until("the field in the log", || node.log().contains(reported));
    node.terminate();
}

#[test]
fn concurrent_changes_are_all_in_redis() {
    const FIELDS: [&str; 2] = ["baseUrlRedirect", "invalidShortUrlRedirect"];
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| {
        let setup = fleet.setup(number).argument("--base-url").argument("https://s.test");
        setup.env("CAROM_DOMAINS_SERVE", "https://go.test")
    };
    let nodes: Vec<Node> = (0..2).map(|number| setup(number).start()).collect();
    nodes.iter().for_each(settle);
    let mut wires: Vec<Wire> = nodes.iter().map(Node::wire).collect();
    let mut late = 0;
    for round in 0..60 {
        let target = format!("{TARGET}{round}");
        // Both nodes change another redirect of the domain, and so the same field of the hash in Redis.
        std::thread::scope(|scope| {
            for (wire, field) in wires.iter_mut().zip(FIELDS) {
                let body = json!({"domain": "go.test", field: target}).to_string();
                scope.spawn(move || assert_eq!(wire.ask("PATCH", REDIRECTS, JSON, body.as_bytes()).status, 200));
            }
        });
        let has_both = || {
            let held = server.command(&["HGET", "{carom}:domains", "go.test"]);
            let held: Value =
                if held == Reply::Nil { Value::Null } else { serde_json::from_str(&held.text()).unwrap() };
            FIELDS.into_iter().all(|field| held[field]["url"] == target)
        };
        // A node that is lost now must not take its change along. Only a Redis that does not answer gets a change later.
        late += u32::from(!has_both());
        wait_until("both changes in Redis", has_both);
    }
    assert!(late <= 3, "{late} of 60 rounds were late");
    drop(wires);
    nodes.into_iter().for_each(|node| _ = node.terminate());
}
