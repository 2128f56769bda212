//! API keys of a fleet: a key that is created or revoked on one node is so on all, even if Redis loses data.

use std::net::{SocketAddr, TcpListener};

use carom::services::replication::redis::{FieldUpdate, Redis};
use carom_model::access::key::ApiKeyHash;
use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key, run_app, with_key_of_long_ago};
use crate::support::fleet::{Fleet, WITHIN, connect, known, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::redis::{Reply, Server};
use crate::support::sites::Sites;

/// A node of a Redis that comes back empty. The node prepares codes until its reserve is full, which takes seconds on a busy
/// machine, and so may be the one that finds the counter of codes set back.
fn of_emptied_redis(fleet: &Fleet, number: usize) -> Setup {
    fleet.setup(number).expect("counter_regressed")
}

#[test]
fn nodes_share_keys() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = [0, 1].map(|number| of_emptied_redis(&fleet, number).start());
    nodes.iter().for_each(settle);
    let first = new_key(&fleet.setup(0), "shop", "write-own");
    let mut callers = [ApiClient::new(&nodes[0], &first), ApiClient::new(&nodes[1], &first)];
    let asks = |node: &Node| node.wire().get(SHORT_URLS).status == 401;
    wait_until("keys that are asked for on both", || nodes.iter().all(asks));
    let accepted = |callers: &mut [ApiClient; 2]| [0, 1].map(|at| callers[at].is_known(&nodes[at]));
    wait_until("the key on both", || accepted(&mut callers) == [true, true]);
    // A link of an app is one on every node, for the app and for nobody else.
    let code = callers[0].shorten("https://example.org/shared");
    let other = new_key(&fleet.setup(1), "other", "write-own");
    let mut others = [ApiClient::new(&nodes[0], &other), ApiClient::new(&nodes[1], &other)];
    wait_until("the other key on both", || accepted(&mut others) == [true, true]);
    let path = format!("{SHORT_URLS}/{code}");
    wait_until("the link on both", || callers[1].get(&path).status == 200);
    // Redis has shown the link to the second node, which may not have read of it yet, and so asks once more.
    for other in &mut others {
        let stolen = "{\"title\": \"stolen\"}";
        known(|| other.get(&path)).problem(404, "/short-url-not-found");
        known(|| other.ask("PATCH", &path, JSON, stolen)).problem(404, "/short-url-not-found");
        known(|| other.ask("DELETE", &path, "", "")).problem(404, "/short-url-not-found");
    }
    assert_eq!(known(|| callers[1].get(&path)).json()["title"], Value::Null);
    assert_eq!(known(|| callers[1].ask("PATCH", &path, JSON, "{\"title\": \"mine\"}")).json()["app"], "shop");
    // A Redis that has lost everything hears of the keys again, and one that is revoked stays so.
    run_app(&fleet.setup(1), &["revoke", "other"]);
    wait_until("a key that is revoked on both", || accepted(&mut others) == [false, false]);
    server.kill();
    server.start_again_empty();
    nodes.iter().for_each(settle);
    wait_until("keys in the new Redis", || !server.command(&["KEYS", "*:apps"]).list().is_empty());
    let late = Fleet::new(3, &server.url());
    // A public node starts only with keys, which it has from Redis alone, and Redis may be too slow for its first start.
    let setup = of_emptied_redis(&late, 2).argument("--listen").argument("0.0.0.0:0");
    let third = wait_for("a public node with the keys of the fleet", || match setup.start_or_fail() {
        Ok(node) => Some(node),
        Err((1, log)) if log.contains("cannot ask its fleet for API keys") => None,
        Err((code, log)) => panic!("{code}: {log}"),
    });
    let public = SocketAddr::from(([127, 0, 0, 1], third.public.port()));
    let ask = |key: &str| Wire::open(public).ask("GET", SHORT_URLS, &format!("X-Api-Key: {key}\r\n"), b"").status;
    wait_until("the keys of the fleet on a new node", || ask(&first) == 200);
    // Each attempt is a wrong key, of which an address may send some.
    let refused = ask(&other);
    assert!([401, 429].contains(&refused), "{refused}");
    drop((callers, others));
    third.terminate();
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn public_node_may_wait_for_keys() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    server.kill();
    let setup = fleet.setup(0).argument("--listen").argument("0.0.0.0:0");
    // Not the status of a public node without keys, after which the service manager does not start it again.
    let failed = || setup.start_or_fail().err().expect("other machines reach it, and it has no keys");
    let (status, log) = failed();
    assert_eq!(status, 1, "{log}");
    assert!(log.contains("cannot ask its fleet for API keys"), "{log}");
    assert!(log.contains("waiting for the API keys of the fleet"), "{log}");
    assert!(log.contains("start it again once Redis answers"), "{log}");
    server.start_again();
    wait_until("a fleet that has no keys", || failed().0 == 20);
}

/// A machine may start its node before its Redis. The node waits for the keys of its fleet, and starts with them.
#[test]
fn public_node_starts_once_redis_is_back() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = fleet.setup(0).start();
    settle(&first);
    let key = new_key(&fleet.setup(0), "shop", "read-all");
    wait_until("keys in Redis", || !server.command(&["KEYS", "*:apps"]).list().is_empty());
    first.terminate();
    server.save();
    server.kill();
    // Closes the connection with the first question of the node, and refuses all others until Redis is back.
    let in_place_of_redis = TcpListener::bind(server.address()).unwrap();
    in_place_of_redis.set_nonblocking(true).unwrap();
    let setup = fleet.setup(1).argument("--listen").argument("0.0.0.0:0");
    let starts = std::thread::spawn(move || setup.start_or_fail());
    wait_until("a node that asks for keys", || in_place_of_redis.accept().is_ok());
    drop(in_place_of_redis);
    server.start_again();
    let second = starts.join().unwrap().unwrap_or_else(|(code, log)| panic!("{code}: {log}"));
    let log = second.log();
    assert!(log.contains("waiting for the API keys of the fleet"), "{log}");
    let public = SocketAddr::from(([127, 0, 0, 1], second.public.port()));
    let ask = |fields: &str| Wire::open(public).ask("GET", SHORT_URLS, fields, b"").status;
    wait_until("the key on the new node", || ask(&format!("X-Api-Key: {key}\r\n")) == 200);
    assert_eq!(ask(""), 401);
    second.terminate();
}

#[test]
fn new_node_refuses_until_keys_arrive() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    // Redis comes back empty, and either node may be the first to see that.
    let first = fleet.setup(0).expect("Redis").expect("redis").start();
    settle(&first);
    let shop = new_key(&fleet.setup(0), "shop", "write-own");
    wait_until("keys in Redis", || !server.command(&["KEYS", "*:apps"]).list().is_empty());
    server.kill();
    // Redis, which knows of the key, is away when the second node begins.
    let second = fleet.setup(1).expect("Redis").expect("redis").start();
    let url = json!({"longUrl": "https://example.org/"});
    second.wire().create(&url).problem(503, ":unavailable");
    server.start_again();
    wait_until("a node that asks for keys", || second.wire().create(&url).status == 401);
    assert!(ApiClient::new(&second, &shop).is_known(&second));
    drop(first);
    second.kill();
}

#[test]
fn ready_node_knows_of_keys_revoked_meanwhile() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let [here, mut away] = [0, 1].map(|number| fleet.setup(number).start());
    [&here, &away].into_iter().for_each(settle);
    // A start does not wait for a Redis that takes longer than two seconds. Such a node hears of the revocation later.
    for attempt in 0..3 {
        let app = format!("shop-{attempt}");
        let key = new_key(&fleet.setup(0), &app, "write-own");
        let is_known = |node: &Node| ApiClient::new(node, &key).is_known(node);
        wait_until("the key on both", || is_known(&here) && is_known(&away));
        let stopped = away.terminate();
        run_app(&fleet.setup(0), &["revoke", &app]);
        wait_until("a key that is revoked", || !is_known(&here));
        let name = server.command(&["KEYS", "*:apps"]).list()[0].text();
        wait_until("the revocation in Redis", || {
            let held = server.command(&["HVALS", &name]).list().iter().map(Reply::text).collect::<String>();
            !held.contains("\"revokedMs\":null")
        });
        away = stopped.start();
        if !is_known(&away) {
            [here, away].into_iter().for_each(|node| _ = node.terminate());
            return;
        }
    }
    panic!("a node that was ready did not know that a key was revoked");
}

#[test]
fn purged_keys_stay_out_of_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let first = fleet.setup(0);
    with_key_of_long_ago(&first);
    let stored = std::fs::read(first.data_dir().join("apps.json")).unwrap();
    let stored: Value = serde_json::from_slice(&stored).unwrap();
    let node = first.start();
    settle(&node);
    let shop = new_key(&first, "shop", "read");
    wait_until("keys in Redis", || !server.command(&["KEYS", "*:apps"]).list().is_empty());
    let name = server.command(&["KEYS", "*:apps"]).list()[0].text();
    // Another node, of an earlier version, gives Redis the key of long ago.
    let gone = &stored["keys"][0];
    let hash = gone["hash"].as_str().unwrap();
    server.command(&["HSET", &name, hash, &gone.to_string()]);
    wait_until("Redis without the key", || {
        let held = server.command(&["HVALS", &name]).list().iter().map(Reply::text).collect::<String>();
        held.contains("shop") && !held.contains("gone")
    });
    // The fleet's last key goes as well, and a new node still asks for one.
    wait_until("the key on the core", || ApiClient::new(&node, &shop).is_known(&node));
    let held: Vec<String> = server.command(&["HKEYS", &name]).list().iter().map(Reply::text).collect();
    node.terminate();
    for field in held.iter().filter(|field| field.len() == hash.len()) {
        server.command(&["HDEL", &name, field]);
    }
    let second = fleet.setup(1).start();
    settle(&second);
    wait_until("a node that asks for keys", || second.wire().get(SHORT_URLS).status == 401);
    second.terminate();
}

#[test]
fn entry_of_another_node_is_not_replaced() {
    let server = Server::start();
    let mut redis = connect(&server);
    let update = |before: &str, after: &str| {
        let [before, after] = [before, after].map(|text| text.as_bytes().to_vec());
        FieldUpdate { field: "hash".to_owned(), before, after }
    };
    let held = |redis: &mut Redis| redis.keys(WITHIN).unwrap();
    assert!(held(&mut redis).is_empty());
    assert!(redis.update_keys(&[update("", "valid")], WITHIN).unwrap());
    // Two nodes have read the entry. One of them revokes the key, and the other one rotates it.
    assert!(redis.update_keys(&[update("valid", "revoked")], WITHIN).unwrap());
    let other = FieldUpdate { field: "other".to_owned(), ..update("", "new") };
    assert!(!redis.update_keys(&[update("valid", "rotated"), other], WITHIN).unwrap());
    let mut entries = held(&mut redis);
    entries.sort();
    let expected = [("hash", "revoked"), ("other", "new")];
    assert_eq!(entries, expected.map(|(field, text)| (field.to_owned(), text.as_bytes().to_vec())));
}

/// The text of a key that a node of a later version has created. Nodes of this version do not check its form.
const LATER_KEY: &str = "carom_ak_later";

/// The hash of [`LATER_KEY`], which is its field in Redis.
fn later_hash() -> String {
    ApiKeyHash::of(LATER_KEY.as_bytes()).to_hex()
}

/// The entry of [`LATER_KEY`], with a member that this version does not know.
fn later_entry() -> Value {
    let note = json!({"text": "by the door"});
    json!({
        "app": "shop", "name": null, "role": "read", "hash": later_hash(), "createdMs": 1, "expiresMs": null,
        "revokedMs": null, "createsPerSecond": null, "domains": null, "note": note,
    })
}

/// Stores the entry of [`LATER_KEY`] in Redis, and returns its text, with a space that this version does not write.
fn store_later(server: &Server, entry: &Value) -> String {
    let text = format!(" {entry}");
    server.command(&["HSET", "{carom}:apps", &later_hash(), &text]);
    text
}

/// Returns the entry of [`LATER_KEY`] in Redis, or null without an entry.
fn later_in(server: &Server) -> Value {
    let Reply::Text(text) = server.command(&["HGET", "{carom}:apps", &later_hash()]) else { return Value::Null };
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn members_of_later_versions_stay_in_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let setup = |number| of_emptied_redis(&fleet, number).expect("Redis").expect("redis");
    let nodes = [0, 1].map(|number| setup(number).start());
    nodes.iter().for_each(settle);
    let later = later_entry();
    let text = store_later(&server, &later);
    let has_note = |number: usize| {
        let file = std::fs::read_to_string(fleet.setup(number).data_dir().join("apps.json"));
        file.unwrap_or_default().contains("by the door")
    };
    wait_until("the key in the files of both nodes", || has_note(0) && has_note(1));
    assert_eq!(server.command(&["HGET", "{carom}:apps", &later_hash()]), text.as_str());
    run_app(&fleet.setup(1), &["revoke", "shop"]);
    let is_revoked = || {
        let held = later_in(&server);
        held["revokedMs"].is_u64() && held["note"] == later["note"]
    };
    wait_until("the revoked key in Redis", is_revoked);
    server.kill();
    server.start_again_empty();
    wait_until("the revoked key from the files of the nodes", is_revoked);
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn members_of_later_versions_cross_sites() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    store_later(&sites.servers[0], &later_entry());
    wait_until("the key at the other site", || later_in(&sites.servers[1]) == later_entry());
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn key_with_an_unknown_restriction_is_refused() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let reported = format!("the field {} of the hash PREFIX:apps", later_hash());
    let node = fleet.setup(0).expect(&reported).start();
    settle(&node);
    let ops = new_key(&fleet.setup(0), "ops", "read");
    wait_until("a node that asks for keys", || node.wire().get(SHORT_URLS).status == 401);
    let mut entry = later_entry();
    entry["Networks"] = json!(["192.0.2.0/24"]);
    let text = store_later(&server, &entry);
    wait_until("the field in the log", || node.log().contains(&reported));
    let is_accepted = || ApiClient::new(&node, LATER_KEY).is_known(&node);
    assert!(!is_accepted(), "it would be valid in all networks");
    assert!(ApiClient::new(&node, &ops).is_known(&node));
    assert_eq!(server.command(&["HGET", "{carom}:apps", &later_hash()]), text.as_str());
    // The key of a later version may have no such restriction.
    entry["Networks"] = Value::Null;
    store_later(&server, &entry);
    wait_until("the key on all cores", is_accepted);
    node.terminate();
}
