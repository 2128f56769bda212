//! Destination rules at the admin listener of a node without keys.

use std::net::SocketAddr;
use std::sync::Barrier;

use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::http::{Reply, Wire};
use crate::support::node::{Node, wait_for};

/// The path of the rules in the admin API.
pub(crate) const RULES: &str = "/admin/api/destination-rules";

/// The rules in force.
pub(crate) fn rules(node: &Node) -> Value {
    Wire::open(node.admin).get(RULES).json()
}

/// Saves rules at an admin listener.
pub(crate) fn put_rules(admin: SocketAddr, body: &Value) -> Reply {
    Wire::open(admin).ask("PUT", RULES, JSON, body.to_string().as_bytes())
}

/// Saves rules that block a host, in place of those of a version.
pub(crate) fn put_block(admin: SocketAddr, version: &Value, host: &str) -> Reply {
    put_rules(admin, &json!({"version": version, "block": {"hosts": [host]}}))
}

/// Saves rules that block these hosts, in place of the rules in force, and returns them.
pub(crate) fn save_block(node: &Node, hosts: &[&str]) -> Value {
    let reply = put_rules(node.admin, &json!({"version": rules(node)["version"], "block": {"hosts": hosts}}));
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.json()
}

/// Saves rules that block a host, in place of those of a version, once Redis answers in time. Returns the rules. A save that was not
/// confirmed (503) may have been made, and is refused then.
pub(crate) fn block_in_time(admin: SocketAddr, version: &Value, host: &str) -> Value {
    let mut may_be_saved = false;
    wait_for("a save that Redis confirms in time", || {
        let reply = put_block(admin, version, host);
        let rules = reply.json();
        match reply.status {
            200 => Some(rules),
            503 => {
                may_be_saved = true;
                None
            }
            409 if may_be_saved && rules["rules"]["block"]["hosts"] == json!([host]) => Some(rules["rules"].clone()),
            _ => panic!("{}", reply.text()),
        }
    })
}

/// Saves rules at two admin listeners at once, in place of those of a version. One of the saves must be refused because of
/// the other one, whose rules are returned. `round` makes the rules differ from those of other rounds.
pub(crate) fn race_saves(admins: [SocketAddr; 2], version: &Value, round: usize) -> Value {
    let barrier = Barrier::new(2);
    let replies = std::thread::scope(|scope| {
        let saves = [0, 1].map(|number| {
            let (admin, barrier) = (admins[number], &barrier);
            scope.spawn(move || {
                barrier.wait();
                put_block(admin, version, &format!("host-{round}-{number}.example"))
            })
        });
        saves.map(|save| save.join().unwrap())
    });
    let (saved, refused): (Vec<Reply>, Vec<Reply>) = replies.into_iter().partition(|reply| reply.status == 200);
    if refused.iter().any(Reply::waits_for_redis) {
        // One that was not confirmed may have been made all the same.
        assert!(saved.len() < 2, "one save for each version: {saved:?}");
        return saved.first().map_or(Value::Null, Reply::json);
    }
    let [saved] = &saved[..] else { panic!("one save for each version: {refused:?}") };
    assert_eq!(refused[0].problem(409, ":rules-changed")["rules"], saved.json());
    saved.json()
}

/// Removes the saved rules of a version.
pub(crate) fn remove_saved(node: &Node, version: &Value) -> Reply {
    let path = format!("{RULES}?version={}", version.as_str().unwrap());
    Wire::open(node.admin).ask("DELETE", &path, "", b"")
}

/// The status of a request to shorten a URL of a host.
pub(crate) fn shortens(node: &Node, host: &str) -> u16 {
    node.wire().create(&json!({"longUrl": format!("https://{host}/")})).status
}
