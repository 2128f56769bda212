//! Links that Redis lost, and that return to find others in their place: one stays, and the other is reported.

use crate::support::alarms::is_seen;
use crate::support::fleet::{Fleet, settle};
use crate::support::node::{Setup, wait_until};
use crate::support::redis::Server;

#[test]
fn displaced_link_is_reported() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let node = fleet.setup(0).start();
    let mut wire = node.wire();
    // Each life of the slug raises its revision: the last one is far ahead of any new link.
    for life in 0..3 {
        wire.shorten_as("slug", &format!("https://example.org/old/{life}"));
        if life < 2 {
            assert_eq!(wire.delete("slug").status, 204);
        }
    }
    settle(&node);
    let absent = node.terminate();
    assert_eq!(server.command(&["FLUSHALL"]), "OK");

    // The nodes have seen different values of the counter that Redis has lost.
    let expected = ["alarm=\"conflict\"", "two nodes created different links with this code", "counter_regressed"];
    let newcomer = expected.into_iter().fold(fleet.setup(1), Setup::expect).start();
    settle(&newcomer);
    newcomer.wire().shorten_as("slug", "https://example.org/new");
    let returned = expected.into_iter().fold(absent, Setup::expect).start();
    for node in [&newcomer, &returned] {
        wait_until("one link everywhere", || {
            node.wire().get("/slug").field("location") == Some("https://example.org/old/2")
        });
        settle(node);
    }
    // The node that made the lost link reports it, although the revision says that the link may have been deleted before.
    wait_until("a report", || newcomer.status()["fleet"]["conflicts"].as_u64() > Some(0));
    is_seen(&newcomer, "conflict");
    assert!(newcomer.status()["alarms"].to_string().contains("slug"), "{}", newcomer.status());
}
