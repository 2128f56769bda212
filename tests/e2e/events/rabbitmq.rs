//! The sink of RabbitMQ against real servers, which are killed, refuse what they get, and stand behind a bad network.

use std::path::Path;
use std::time::{Duration, Instant};

use carom_model::events::EventId;
use serde_json::{Value, json};

use super::{all_events, keeping, metric, number};
use crate::support::alarms::{alarms, is_seen};
use crate::support::amqp::{Client, Delivered};
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::rabbitmq::{Server, wait_through_start};
use crate::support::tls::Ca;

const TARGET: &str = "https://example.org/a";

/// The default exchange.
const EXCHANGE: &str = "carom.events";

/// The queue of all events.
const ALL: &str = "all";

/// Longest wait for messages that the server has confirmed.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);

/// A node that publishes to that server.
fn publishing(dir: &Path, url: &str) -> Setup {
    keeping(dir).env("CAROM_EVENTS_RABBITMQ_URL", url)
}

/// A client, and a queue of all events.
fn client_with_queue(server: &Server) -> Client {
    let mut client = server.client();
    client.declare_exchange(EXCHANGE, "topic");
    client.bind(ALL, EXCHANGE, "#");
    client
}

/// The numbers of events, without those that were there before.
fn first_numbers(messages: &[Delivered]) -> Vec<u64> {
    let mut numbers: Vec<u64> = Vec::new();
    for message in messages {
        let number = EventId::parse(&message.id).unwrap().seq;
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    numbers
}

fn numbers(events: &[Value]) -> Vec<u64> {
    events.iter().map(number).collect()
}

fn has_recovered(node: &Node) -> bool {
    metric(node, "lag", "rabbitmq") == 0 && !alarms(&node.status()).contains(&"events_sink_failed")
}

/// Waits until the sink fails, and returns the status, which says why.
fn failing(node: &Node) -> String {
    is_seen(node, "events_sink_failed");
    let status = node.status().to_string();
    assert!(status.contains("rabbitmq ("), "the alarm does not name the sink: {status}");
    status
}

fn check(message: &Delivered, event: &Value) {
    let found = (&json!(message.id), &json!(message.key), &json!(message.of));
    assert_eq!(found, (&event["id"], &event["type"], &event["type"]));
    assert!(message.is_persistent, "{message:?}");
    assert!(message.content_type == "application/json", "{message:?}");
    for field in ["visit", "changes", "cause"] {
        assert_eq!(message.body.get(field), event["data"].get(field), "{field}");
    }
}

#[test]
fn each_event_arrives_once_under_its_keys() {
    let (data, server) = (tempfile::tempdir().unwrap(), Server::start());
    let mut client = client_with_queue(&server);
    let visit = "https://shlink.io/new-visit";
    let of_one = format!("{visit}/one");
    let (orphan, new) = ("https://shlink.io/new-orphan-visit", "https://shlink.io/new-short-url");
    for (queue, key) in
        [("links", "link.*"), ("visits", visit), ("one", of_one.as_str()), ("orphans", orphan), ("new", new)]
    {
        client.bind(queue, EXCHANGE, key);
    }
    let node =
        publishing(data.path(), &server.url()).env("CAROM_VISITS_LOG", "on").env("CAROM_EVENTS_VISITS", "on").start();
    let mut wire = node.wire();
    let mut found = Vec::new();
    let mut arrive = |count: usize| {
        wait_until("messages", || {
            found.extend(client.take_all(ALL));
            found.len() >= count
        });
    };
    wire.shorten_as("one", TARGET);
    wire.get("/one");
    wire.get("/none");
    arrive(3);
    change(&mut wire, "one", &json!({"title": "Second"}));
    assert_eq!(wire.delete("one").status, 204);
    arrive(5);
    wait_until("the counts", || {
        (metric(&node, "delivered_total", "rabbitmq"), metric(&node, "lag", "rabbitmq")) == (5, 0)
    });
    let events = all_events(&node);
    assert_eq!(first_numbers(&found), numbers(&events));
    assert_eq!((found.len(), client.take_all(ALL)), (5, vec![]));
    found.iter().zip(&events).for_each(|(message, event)| check(message, event));
    let links = found.iter().filter(|message| message.more_keys != [orphan]);
    assert!(links.clone().all(|message| message.body["shortUrl"]["shortCode"] == "one"));
    assert!(links.count() == 4);
    for (queue, keys) in [
        ("links", vec!["link.created", "link.changed", "link.deleted"]),
        ("visits", vec!["visit"]),
        ("one", vec!["visit"]),
        ("orphans", vec!["visit"]),
        ("new", vec!["link.created"]),
    ] {
        let taken = client.take_all(queue);
        assert_eq!(taken.iter().map(|message| message.key.as_str()).collect::<Vec<_>>(), keys, "{queue}");
    }
    // The place of the sink outlives a restart, and only new events follow.
    let node = node.restart();
    node.wire().shorten_as("two", TARGET);
    let mut found = Vec::new();
    wait_until("the new event", || {
        found.extend(client.take_all(ALL));
        !found.is_empty()
    });
    assert_eq!((found.len(), &found[0].body["shortUrl"]["shortCode"]), (1, &json!("two")));
    node.terminate();
}

#[test]
fn killed_server_gets_all_events_in_order() {
    let (data, server) = (tempfile::tempdir().unwrap(), Server::start());
    drop(client_with_queue(&server));
    // Otherwise a server confirms and drops events for which it knows no binding. After a kill, it has to recover them.
    let setup = publishing(data.path(), &server.url()).env("CAROM_EVENTS_RABBITMQ_MANDATORY", "true");
    let node = setup.expect("events_sink_failed").start();
    let mut wire = node.wire();
    (0..150).for_each(|_| _ = wire.shorten(TARGET));
    wait_until("a delivery", || metric(&node, "delivered_total", "rabbitmq") > 0);
    server.kill();
    (0..150).for_each(|_| _ = wire.shorten(TARGET));
    failing(&node);
    server.start_again();
    // A server that was killed under load may come back with the queue and without its binding.
    let mut client = client_with_queue(&server);
    wait_through_start("the backlog", || has_recovered(&node));
    let (mut found, begun) = (Vec::new(), Instant::now());
    let sent = numbers(&all_events(&node));
    wait_through_start("messages", || {
        found.extend(client.take_all(ALL));
        first_numbers(&found).len() >= sent.len() || begun.elapsed() > ARRIVES_WITHIN
    });
    // Some may have come twice, under one ID.
    let of_sink = ["delivered_total", "failed_total", "lost_total"].map(|name| metric(&node, name, "rabbitmq"));
    assert_eq!(first_numbers(&found), sent, "delivered, failed and lost, as the sink counts: {of_sink:?}");
    node.terminate();
}

#[test]
fn refusals_are_named_without_the_password() {
    let (server, password) = (Server::start(), "not the password of anybody");
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let node = publishing(one.path(), &format!("amqp://carom@{}", server.address()))
        .env("CAROM_EVENTS_RABBITMQ_PASSWORD", password)
        .expect("events_sink_failed")
        .start();
    node.wire().shorten(TARGET);
    let status = failing(&node);
    assert!(status.contains("403 ACCESS_REFUSED"), "{status}");
    assert!(!status.contains(password));
    assert!(!node.log().contains(password));
    node.terminate();
    let mut client = server.client();
    client.declare_exchange(EXCHANGE, "direct");
    let node = publishing(other.path(), &server.url()).expect("events_sink_failed").start();
    node.wire().shorten(TARGET);
    let status = failing(&node);
    assert!(status.contains("406 PRECONDITION_FAILED"), "{status}");
    assert!(status.contains("'type'"), "{status}");
    client.delete_exchange(EXCHANGE);
    wait_through_start("the end of the failure", || has_recovered(&node));
    node.terminate();
}

#[test]
fn mandatory_events_wait_for_a_queue_over_tls() {
    let data = tempfile::tempdir().unwrap();
    let ca = Ca::new(data.path());
    ca.write("mq", &["127.0.0.1"]);
    let server = Server::start_with_tls(&ca, "mq");
    let setup = publishing(&data.path().join("data"), &server.tls_url())
        .env("CAROM_EVENTS_RABBITMQ_MANDATORY", "true")
        .expect("events_sink_failed");
    let node = setup.start();
    (0..3).for_each(|_| _ = node.wire().shorten(TARGET));
    let status = failing(&node);
    assert!(status.contains("invalid peer certificate"), "{status}");
    node.terminate();
    let node = setup.env("CAROM_EVENTS_RABBITMQ_CA_FILE", &ca.file("ca.pem")).start();
    let status = failing(&node);
    assert!(status.contains("no queue is bound for event"), "{status}");
    assert!(status.contains("312 NO_ROUTE"), "{status}");
    let mut client = server.client();
    client.bind(ALL, EXCHANGE, "link.#");
    wait_through_start("the end of the failure", || has_recovered(&node));
    let mut found = Vec::new();
    wait_until("messages", || {
        found.extend(client.take_all(ALL));
        found.len() >= 3
    });
    assert_eq!((first_numbers(&found), found.len()), (numbers(&all_events(&node)), 3));
    node.terminate();
    let (code, said) = keeping(&data.path().join("data"))
        .env("CAROM_EVENTS_RABBITMQ_URL", &server.tls_url())
        .env("CAROM_EVENTS_RABBITMQ_CA_FILE", &ca.file("mq.key"))
        .fail();
    assert!(code != 0, "{code} {said}");
    assert!(said.contains("events.rabbitmq_ca_file"), "{code} {said}");
}

#[test]
fn bad_network_delays_no_client() {
    let (data, server) = (tempfile::tempdir().unwrap(), Server::start());
    let mut client = client_with_queue(&server);
    let proxy = Proxy::start(server.address());
    let setup = publishing(data.path(), &format!("amqp://{}", proxy.address())).expect("events_sink_failed");
    proxy.set(Mode::BlackHole);
    let node = setup.start();
    let mut wire = node.wire();
    // The sink waits for a server that accepts its connection and says nothing.
    let code = wire.shorten(TARGET);
    assert_eq!(wire.get(&format!("/{code}")).status, 302);
    for mode in [Mode::Garbage, Mode::Cut] {
        let failed = metric(&node, "failed_total", "rabbitmq");
        proxy.reconnect_as(mode);
        // The first one may be the end of the connection that was open.
        wait_until("failures", || metric(&node, "failed_total", "rabbitmq") > failed + 1);
        wire.shorten(TARGET);
    }
    proxy.reconnect_as(Mode::OneByte);
    wait_through_start("the backlog", || has_recovered(&node));
    let (mut found, sent) = (Vec::new(), numbers(&all_events(&node)));
    wait_until("messages", || {
        found.extend(client.take_all(ALL));
        first_numbers(&found).len() >= sent.len()
    });
    assert_eq!(first_numbers(&found), sent);
    // A connection that was idle and is gone is no failure.
    proxy.reconnect_as(Mode::Pass);
    let failed = metric(&node, "failed_total", "rabbitmq");
    wire.shorten(TARGET);
    wait_until("the last event", || client.take_all(ALL).len() == 1);
    assert_eq!(metric(&node, "failed_total", "rabbitmq"), failed);
    node.terminate();
}
