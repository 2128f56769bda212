//! Destination rules that an admin saves at run time: `PUT` and `DELETE /admin/api/destination-rules`.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::api_client::{JSON, run_app};
use crate::support::cli_user::{done, text};
use crate::support::destination_rules::{RULES, put_rules, race_saves, remove_saved, rules, save_block, shortens};
use crate::support::domains::status;
use crate::support::http::{HOST, Wire};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::sessions::{SignedIn, sign_in, with_key};

/// A node whose settings block `file.example`.
fn setup(dir: &Path, cores: usize) -> Setup {
    Setup::new(dir).cores(cores).env("CAROM_BLOCK_HOSTS", "file.example")
}

#[test]
fn saves_apply_on_every_core_and_last() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        let path = format!("/{}", node.wire().shorten("https://bad.example/"));
        let visit = |node: &Node| status(node, HOST, &path);
        assert_eq!(rules(&node)["saved"], Value::Null);
        let saved = save_block(&node, &["bad.example"]);
        assert_eq!(saved["block"]["hosts"], json!(["bad.example"]));
        assert_eq!(rules(&node), saved);
        // Every core applies them as soon as the save is acknowledged.
        assert_eq!(visit(&node), 410);
        assert_eq!([shortens(&node, "bad.example"), shortens(&node, "file.example")], [400, 200]);
        let told = [
            node.status()["destinationRules"]["saved"].clone(),
            Wire::open(node.admin).get("/admin/api/settings").json()["rulesSaved"].clone(),
        ];
        assert_eq!(told, [saved["saved"]["at"].clone(), saved["saved"]["at"].clone()]);
        let node = node.kill().start();
        assert_eq!(visit(&node), 410);
        assert_eq!(rules(&node), saved);
        // A host that is no longer on the list redirects again, without a list as well.
        save_block(&node, &[]);
        assert_eq!(visit(&node), 302);
        assert_eq!(node.status()["blockList"], Value::Null);
        let node = node.restart();
        assert_eq!(visit(&node), 302);
        node.terminate();
    }
}

#[test]
fn allow_list_begins_and_ends() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 2).start();
    let version = rules(&node)["version"].clone();
    let draft = json!({"version": version, "toml": "[allow]\nhosts = ['shop.example']\n"});
    let saved = put_rules(node.admin, &draft).json();
    assert_eq!([shortens(&node, "shop.example"), shortens(&node, "other.example")], [200, 400]);
    assert_eq!(put_rules(node.admin, &json!({"version": saved["version"]})).status, 200);
    assert_eq!(shortens(&node, "other.example"), 200);
    node.terminate();
}

#[test]
fn removed_save_gives_way_to_settings() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 1).start();
    let first = rules(&node);
    let saved = save_block(&node, &["bad.example"]);
    remove_saved(&node, &first["version"]).problem(409, ":rules-changed");
    let removed = remove_saved(&node, &saved["version"]);
    assert_eq!(removed.json()["block"], first["block"], "{}", removed.text());
    assert_eq!([shortens(&node, "bad.example"), shortens(&node, "file.example")], [200, 400]);
    assert_eq!(node.status()["destinationRules"]["saved"], Value::Null);
    let node = node.kill().start();
    assert_eq!(rules(&node), removed.json());
    Wire::open(node.admin).ask("DELETE", RULES, "", b"").problem(400, "/invalid-data");
    node.terminate();
}

#[test]
fn second_of_two_saves_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 2).start();
    for round in 0..20 {
        let version = rules(&node)["version"].clone();
        assert_eq!(race_saves([node.admin; 2], &version, round), rules(&node));
    }
    node.terminate();
}

#[test]
fn invalid_saves_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("blocked.json");
    std::fs::write(&list, r#"{"1": "read.example"}"#).unwrap();
    let node = setup(&dir.path().join("data"), 1).env("CAROM_BLOCK_SOURCE", text(&list)).start();
    let before = rules(&node);
    let version = &before["version"];
    for (body, fields) in [
        (json!({"block": {"hosts": []}}), json!(["version"])),
        (json!({"version": 7}), json!(["version"])),
        (json!({"version": version, "block": {"hosts": ["a b"]}}), json!(["block.hosts[0]"])),
        (json!({"version": version, "block": {"source": "/etc/passwd"}}), json!(["block.source"])),
        (json!({"version": version, "toml": "[log]\nlevel = 'warn'\n"}), json!(["toml"])),
        (json!({"version": version, "deny": {}}), json!(["deny"])),
    ] {
        let problem = put_rules(node.admin, &body).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], fields, "{body}");
    }
    put_rules(node.admin, &json!({"version": "0-0", "block": {"hosts": []}})).problem(409, ":rules-changed");
    assert_eq!(rules(&node), before);
    // The hosts of the source stay when those of the settings are replaced.
    save_block(&node, &["bad.example"]);
    let refused = ["bad.example", "read.example", "file.example"].map(|host| shortens(&node, host));
    assert_eq!(refused, [400, 400, 200]);
    node.terminate();
}

#[test]
fn only_admins_of_all_domains_save() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(dir.path(), 1);
    let limited = run_app(&setup, &["add", "limited", "--role", "admin", "--domain", "DEFAULT"]);
    let reader = run_app(&setup, &["add", "reader", "--role", "read-all"]);
    let (node, admin) = with_key(&setup);
    for key in [&limited, &reader] {
        wait_until("a key that signs in", || sign_in(&node, key, "").status == 303);
    }
    let mut boss = SignedIn::new(&node, &admin);
    let version = boss.get(RULES).json()["version"].clone();
    let body = json!({"version": version, "block": {"hosts": ["bad.example"]}}).to_string();
    for key in [&limited, &reader] {
        SignedIn::new(&node, key).send("PUT", RULES, JSON, &body).problem(403, ":forbidden");
    }
    assert_eq!(Wire::open(node.admin).ask("PUT", RULES, JSON, body.as_bytes()).status, 401);
    assert_eq!(boss.send("PUT", RULES, JSON, &body).status, 200);
    let read = SignedIn::new(&node, &reader).get(RULES).json();
    assert_eq!(read["saved"]["by"], "ops");
    assert_eq!(read["block"]["hosts"], json!(["bad.example"]));
    assert_eq!(SignedIn::new(&node, &limited).get(RULES).status, 403);
    node.terminate();
}

#[test]
fn backups_and_commands_know_saved_rules() {
    let dir = tempfile::tempdir().unwrap();
    let [data, restored, backup] = ["data", "restored", "backup"].map(|name| dir.path().join(name));
    let node = setup(&data, 1).start();
    let show = |data: &Path| done(&["config", "show", "--data-dir", text(data)]);
    assert!(!show(&data).contains("destination rules saved"), "nothing was saved");
    save_block(&node, &["bad.example"]);
    let said = show(&data);
    assert!(said.contains("instead of allow.hosts and block.hosts: 0 allowed hosts and 1 blocked host"), "{said}");
    done(&["backup", text(&backup), "--data-dir", text(&data)]);
    node.terminate();
    done(&["restore", text(&backup), "--data-dir", text(&restored)]);
    done(&["verify", text(&backup)]);
    let node = setup(&restored, 1).start();
    assert_eq!([shortens(&node, "bad.example"), shortens(&node, "file.example")], [400, 200]);
    node.terminate();
}

#[test]
fn malformed_saved_rules_stay() {
    let dir = tempfile::tempdir().unwrap();
    setup(dir.path(), 1).start().terminate();
    let file = dir.path().join("destination-rules.json");
    std::fs::write(&file, "{").unwrap();
    let (_, said) = setup(dir.path(), 1).fail();
    assert!(said.contains("destination-rules.json"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"{");
}
