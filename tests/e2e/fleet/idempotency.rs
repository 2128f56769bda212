//! Creates that are repeated on another node, and delayed deletes that another node finishes.

use serde_json::{Value, json};

use crate::support::fleet::{Fleet, known, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::create;
use crate::support::node::{Node, wait_for, wait_until};
use crate::support::redis::Server;

const TARGET: &str = "https://example.org/target";

#[test]
fn repeat_on_another_node_gets_the_link() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let body = json!({"longUrl": TARGET});
    let code = create(&mut nodes[0].wire(), "one", "", &body).code();
    // The API would answer from Redis, too. The index of keys is in the store of a node, with the link.
    wait_until("the link in the memory of both nodes", || nodes.iter().all(|node| node.status()["links"] == 1));
    for node in &nodes {
        let again = create(&mut node.wire(), "one", "", &body);
        assert_eq!(again.field("idempotent-replayed"), Some("true"));
        assert_eq!(again.code(), code.clone());
        let slug = json!({"longUrl": TARGET, "customSlug": "slug"});
        create(&mut node.wire(), "one", "", &slug).problem(422, ":idempotency-key-reused");
    }
    // A slug is taken in Redis by its own first create.
    let slug = json!({"longUrl": TARGET, "customSlug": "slug"});
    for _ in 0..2 {
        // A Redis that is too slow makes the node refuse a name.
        let made = || Some(create(&mut nodes[0].wire(), "two", "", &slug)).filter(|reply| reply.status == 200);
        assert_eq!(wait_for("a link of that name", made).code(), "slug");
    }
    nodes.iter().for_each(settle);
    let total = |wire: &mut Wire| wire.get(SHORT_URLS).json()["shortUrls"]["pagination"]["totalItems"].clone();
    wait_until("two links at both nodes", || nodes.iter().all(|node| total(&mut node.wire()) == 2));
}

#[test]
fn any_node_finishes_a_delayed_delete() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let mut nodes = fleet.start();
    nodes[0].wire().shorten_as("gone", TARGET);
    nodes[0].wire().shorten_as("back", TARGET);
    let delete = |nodes: &[Node], code: &str, seconds: u32| {
        let path = format!("{SHORT_URLS}/{code}?after={seconds}");
        assert_eq!(known(|| nodes[0].wire().ask("DELETE", &path, "", b"")).status, 200, "{code}");
    };
    // With time for the other node to hear of both, however slow the machine is.
    for code in ["gone", "back"] {
        delete(&nodes, code, 3_600);
        wait_until("a link that waits", || {
            nodes[1].wire().get(&format!("{SHORT_URLS}/{code}")).json()["deletesAt"].is_string()
        });
    }
    let json = "Content-Type: application/json\r\n";
    let body = json!({"archived": false}).to_string();
    let back = known(|| nodes[1].wire().ask("PATCH", &format!("{SHORT_URLS}/back"), json, body.as_bytes()));
    assert_eq!((back.status, &back.json()["deletesAt"]), (200, &Value::Null), "{back:?}");
    delete(&nodes, "gone", 3);
    let left = nodes.remove(0).kill();
    wait_until("a link that is gone", || nodes[0].wire().get("/gone").status == 404);
    assert_eq!(known(|| nodes[0].wire().get("/back")).status, 302);
    // The node that was away hears of both.
    let returned = left.start();
    settle(&returned);
    wait_until("the same there", || {
        (returned.wire().get("/gone").status, returned.wire().get("/back").status) == (404, 302)
    });
}
