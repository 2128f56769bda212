//! Destination rules that are saved on one node of a fleet apply on all of them, and no save replaces one that its admin
//! has not seen.

use serde_json::{Value, json};

use crate::support::destination_rules::{block_in_time, put_block, race_saves, remove_saved, rules, shortens};
use crate::support::fleet::{Fleet, known, settle};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::{Reply, Server};
use crate::support::sites::Sites;

/// A node whose settings block `file.example`.
fn setup(fleet: &Fleet, number: usize) -> Setup {
    fleet.setup(number).env("CAROM_BLOCK_HOSTS", "file.example").expect("Redis").expect("redis")
}

/// A save of a later version, with members that this one does not know.
fn later_save() -> Value {
    let hosts = json!({"allow": [], "block": ["later.example"], "warn": ["odd.example"]});
    json!({"stampMs": 4_102_444_800_000_u64, "by": "ops", "hosts": hosts, "reason": "phishing"})
}

/// Returns the save in Redis, or null before the first save.
fn saved_in(server: &Server) -> Value {
    let Reply::Text(text) = server.command(&["HGET", "{carom}:rules", "saved"]) else { return Value::Null };
    serde_json::from_slice(&text).unwrap()
}

fn start(fleet: &Fleet) -> [Node; 2] {
    let nodes = [0, 1].map(|number| setup(fleet, number).start());
    nodes.iter().for_each(settle);
    nodes
}

#[test]
fn saves_reach_all_nodes_and_later_ones() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = start(&fleet);
    let first = rules(&nodes[0])["version"].clone();
    let saved = block_in_time(nodes[0].admin, &first, "bad.example");
    // The other node need not have heard of the save to refuse one that would replace it.
    let refused = known(|| put_block(nodes[1].admin, &first, "other.example")).problem(409, ":rules-changed");
    assert_eq!(refused["rules"], saved);
    assert_eq!(rules(&nodes[1]), saved);
    // Each core hears of it by itself.
    let shortened = || [shortens(&nodes[1], "bad.example"), shortens(&nodes[1], "file.example")];
    wait_until("the rules on the other node", || shortened() == [400, 200]);
    let second = block_in_time(nodes[1].admin, &saved["version"], "other.example");
    wait_until("the rules of the other node", || rules(&nodes[0]) == second);
    let late = setup(&fleet, 2).start();
    assert_eq!(rules(&late), second, "a node that is ready has them");
    wait_until("the rules on its cores", || shortens(&late, "other.example") == 400);
    // A return to the settings reaches all nodes as well, after a restart too.
    assert_eq!(known(|| remove_saved(&late, &second["version"])).status, 200);
    let [kept, stopped] = nodes;
    let restarted = stopped.kill().start();
    for node in [&kept, &restarted] {
        wait_until("the rules of the settings", || rules(node)["saved"] == Value::Null);
        wait_until("the same on the cores", || shortens(node, "file.example") == 400);
    }
    [late, kept, restarted].into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn one_of_two_saves_at_once_is_refused() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    for round in 0..20 {
        wait_until("the same rules on both nodes", || rules(&nodes[0]) == rules(&nodes[1]));
        let version = rules(&nodes[0])["version"].clone();
        race_saves([nodes[0].admin, nodes[1].admin], &version, round);
    }
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn saves_need_redis_and_outlast_its_data() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    let saved = block_in_time(nodes[0].admin, &rules(&nodes[0])["version"], "bad.example");
    wait_until("the save on the other node", || rules(&nodes[1]) == saved);
    wait_until("the save on all cores", || nodes.iter().all(|node| shortens(node, "bad.example") == 400));
    server.kill();
    let refused = put_block(nodes[1].admin, &saved["version"], "other.example").problem(503, ":unavailable");
    assert!(refused["detail"].as_str().unwrap().contains("Redis"), "{refused}");
    for node in &nodes {
        assert_eq!(rules(node), saved);
        assert_eq!(shortens(node, "bad.example"), 400);
    }
    server.start_again_empty();
    nodes.iter().for_each(settle);
    wait_until("the save in Redis", || server.command(&["HEXISTS", "{carom}:rules", "saved"]).to_number() == 1);
    block_in_time(nodes[1].admin, &saved["version"], "other.example");
    wait_until("the later save", || rules(&nodes[0])["block"]["hosts"] == json!(["other.example"]));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn members_of_later_versions_stay_in_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = start(&fleet);
    // With a space that this version does not write.
    let entry = format!(" {}", later_save());
    server.command(&["HSET", "{carom}:rules", "saved", &entry]);
    for node in &nodes {
        wait_until("the rules of a later version", || rules(node)["block"]["hosts"] == json!(["later.example"]));
    }
    // Each refused save has exchanged the rules with Redis once more.
    for node in &nodes {
        known(|| put_block(node.admin, &json!("0-0"), "other.example")).problem(409, ":rules-changed");
    }
    assert_eq!(server.command(&["HGET", "{carom}:rules", "saved"]), entry.as_str());
    server.kill();
    server.start_again_empty();
    wait_until("the save from the files of the nodes", || saved_in(&server) == later_save());
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn unreadable_save_is_reported_and_kept() {
    let server = Server::start();
    let fleet = Fleet::new(1, &server.url());
    let node = setup(&fleet, 0).expect("the field saved of the hash PREFIX:rules").start();
    settle(&node);
    server.command(&["HSET", "{carom}:rules", "saved", "of a later version"]);
    wait_until("the field in the log", || node.log().contains("the field saved of the hash PREFIX:rules"));
    put_block(node.admin, &rules(&node)["version"], "bad.example").problem(503, ":unavailable");
    assert_eq!(server.command(&["HGET", "{carom}:rules", "saved"]), "of a later version");
    server.command(&["HDEL", "{carom}:rules", "saved"]);
    let save = || put_block(node.admin, &rules(&node)["version"], "bad.example").status;
    wait_until("a node that saves again", || save() == 200);
    node.terminate();
}

#[test]
fn refused_keys_keep_no_rules_from_another_site() {
    let sites = Sites::new();
    let refused = "Redis rejects a command on the API keys";
    let nodes = sites.start(|setup| setup.env("CAROM_BLOCK_HOSTS", "file.example").expect(refused));
    // Another program has replaced the keys of the second site.
    sites.servers[1].command(&["SET", "{carom}:apps", "no hash"]);
    let saved = block_in_time(nodes[0].admin, &rules(&nodes[0])["version"], "berlin.example");
    wait_until("the save on all nodes", || nodes.iter().all(|node| rules(node) == saved));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn saves_of_two_sites_merge() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup.env("CAROM_BLOCK_HOSTS", "file.example"));
    let everywhere = |saved: &Value| nodes.iter().all(|node| rules(node) == *saved);
    let first = block_in_time(nodes[0].admin, &rules(&nodes[0])["version"], "berlin.example");
    wait_until("the save of the first site", || everywhere(&first));
    let second = block_in_time(nodes[3].admin, &first["version"], "lisbon.example");
    wait_until("the save of the second site", || everywhere(&second));
    assert_eq!(second["block"]["hosts"], json!(["lisbon.example"]));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}

#[test]
fn members_of_later_versions_cross_sites() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup.env("CAROM_BLOCK_HOSTS", "file.example"));
    sites.servers[0].command(&["HSET", "{carom}:rules", "saved", &later_save().to_string()]);
    wait_until("the save at the other site", || saved_in(&sites.servers[1]) == later_save());
    let is_read = |node: &Node| rules(node)["block"]["hosts"] == json!(["later.example"]);
    wait_until("its rules on all nodes", || nodes.iter().all(is_read));
    nodes.into_iter().for_each(|node| _ = node.terminate());
}
