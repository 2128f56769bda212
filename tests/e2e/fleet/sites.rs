//! Two sites with a Redis each, 150 ms of round trip apart: links, changes and visits cross, each site goes on alone while
//! they are apart, and both agree afterwards.

use std::time::{Duration, Instant};

use carom_model::replication::PARTITIONS;
use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::api_client::new_key;
use crate::support::browser::{Browser, SCREEN};
use crate::support::cli_user::{CliRan, CliUser};
use crate::support::console::{at, says};
use crate::support::fleet::{delete, known, most_are_shorter, settle, setup};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::change;
use crate::support::node::{Node, Setup, wait_for, wait_until};
use crate::support::proxy::Mode;
use crate::support::redis::{Reply, Server};
use crate::support::sessions::sign_in;
use crate::support::sites::{Sites, all_have, are_apart, are_current};

/// Longest time for two creates, and a margin for a busy machine. One that waited for an answer of the other site would wait
/// for a second.
const CREATES_MAX: Duration = Duration::from_millis(500);

#[test]
fn links_and_changes_cross_both_ways() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    let code = nodes[0].wire().shorten("https://example.org/generated");
    nodes[3].wire().shorten_as("slug", "https://example.org/slug");
    all_have(&nodes, &code, "https://example.org/generated");
    all_have(&nodes, "slug", "https://example.org/slug");
    let changed = json!({"longUrl": "https://example.org/changed"});
    assert_eq!(known(|| change(&mut nodes[2].wire(), &code, &changed)).status, 200);
    all_have(&nodes, &code, "https://example.org/changed");
    delete(&nodes[1], "slug");
    wait_until("the delete", || nodes.iter().all(|node| node.wire().get("/slug").status == 404));
    nodes[0].wire().shorten_as("slug", "https://example.org/again");
    all_have(&nodes, "slug", "https://example.org/again");
    for node in &nodes {
        assert_eq!(node.status()["fleet"]["conflicts"], 0);
    }
    for node in &nodes {
        let metrics = || Wire::open(node.admin).get("/metrics").text().to_owned();
        wait_until("the metrics of sites", || metrics().contains("\ncarom_site_current 1\n"));
    }
    let relays = |nodes: &[Node]| nodes.iter().filter(|node| node.status()["fleet"]["site"]["relay"] == true).count();
    wait_until("a relay of each site", || (relays(&nodes[..2]), relays(&nodes[2..])) == (1, 1));
    // Every node names the relay of its site, and says how far the site is behind the other one.
    let named = |node: &Node| {
        let fleet = node.status()["fleet"].clone();
        let nodes = fleet["nodes"].as_array().unwrap().clone();
        (nodes.iter().filter(|of| of["about"]["relay"] == true).count(), fleet["site"]["lagMillis"].is_u64())
    };
    wait_until("the relay on every node", || nodes.iter().all(|node| named(node) == (1, true)));
    draws_both_sites(&nodes[0]);
}

/// The console of a node of the site `berlin` draws the other site, and names its own relay.
fn draws_both_sites(node: &Node) {
    let browser = Browser::open();
    browser.resize(SCREEN);
    browser.go(&at(node, "fleet"));
    for (part, said) in [(".map-sites", "lisbon"), (".map-between", "Relay: n"), ("main .cards", "Links replaced")] {
        says(&browser, part, said);
    }
    browser.is_accessible();
    browser.close();
}

#[test]
fn each_site_goes_on_alone() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    nodes[0].wire().shorten_as("before", "https://example.org/before");
    all_have(&nodes, "before", "https://example.org/before");
    // Requests vanish, so that a node that waits for an answer waits for a timeout.
    sites.proxies.iter().for_each(|proxy| proxy.set(Mode::BlackHole));
    are_apart(&nodes);
    let mut made = Vec::new();
    for (number, node) in nodes.iter().enumerate() {
        let mut wire = node.wire();
        let times = [0, 1, 2, 3, 4].map(|round| {
            let begun = Instant::now();
            let target = format!("https://example.org/{number}/{round}");
            made.push((wire.shorten(&target), target.clone()));
            let slug = format!("slug-{number}-{round}");
            wire.shorten_as(&slug, &target);
            made.push((slug, target));
            begun.elapsed()
        });
        most_are_shorter(times, CREATES_MAX);
    }
    // A link of the other site is not missing, and neither is any other code.
    for (code, _) in [&made[0], &made[1]] {
        let reply = nodes[2].wire().get(&format!("/{code}"));
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")), "{code}");
    }
    assert_eq!(nodes[1].wire().get("/nobody").status, 503);
    let changed = json!({"longUrl": "https://example.org/changed"});
    assert_eq!(known(|| change(&mut nodes[3].wire(), "before", &changed)).status, 200);
    nodes.iter().for_each(|node| is_seen(node, "site_away"));
    sites.join();
    are_current(&nodes);
    for (code, target) in &made {
        all_have(&nodes, code, target);
    }
    all_have(&nodes, "before", "https://example.org/changed");
    wait_until("404 for an unknown slug", || nodes[1].wire().get("/nobody").status == 404);
    wait_until("the end of the alarm", || !alarms(&nodes[0].status()).contains(&"site_away"));
}

#[test]
fn earlier_link_of_a_slug_stays() {
    let sites = Sites::new();
    let conflicting = |setup: Setup| {
        let setup = setup.expect("alarm=\"conflict\"").expect("two nodes created different links with this code");
        setup.expect("was replaced by one of the other site")
    };
    let nodes = sites.start(conflicting);
    sites.part();
    are_apart(&nodes);
    nodes[0].wire().shorten_as("both", "https://example.org/early");
    std::thread::sleep(Duration::from_millis(20));
    nodes[2].wire().shorten_as("both", "https://example.org/late");
    sites.join();
    all_have(&nodes, "both", "https://example.org/early");
    for node in &nodes[2..] {
        is_seen(node, "conflict");
        let status = node.status();
        assert!(status["alarms"].to_string().contains("both"), "{status}");
        assert!(status["fleet"]["conflicts"].as_u64() > Some(0), "{status}");
    }
    for node in &nodes[..2] {
        assert_eq!(node.status()["fleet"]["conflicts"], 0, "its link stayed");
    }
    let replaced = |node: &Node| node.status()["fleet"]["site"]["replaced"].as_u64().unwrap();
    assert_eq!(nodes[2..].iter().map(replaced).sum::<u64>(), 1);
}

#[test]
fn either_redis_may_come_back_empty() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup.expect("redis_away").expect("counter_regressed"));
    nodes[0].wire().shorten_as("first", "https://example.org/first");
    nodes[2].wire().shorten_as("second", "https://example.org/second");
    all_have(&nodes, "first", "https://example.org/first");
    all_have(&nodes, "second", "https://example.org/second");
    for (round, server) in sites.servers.iter().enumerate() {
        server.kill();
        // The other site goes on meanwhile.
        let other = &nodes[2 - 2 * round];
        other.wire().shorten_as(&format!("meanwhile-{round}"), "https://example.org/meanwhile");
        server.start_again_empty();
        nodes.iter().for_each(settle);
        are_current(&nodes);
        all_have(&nodes, &format!("meanwhile-{round}"), "https://example.org/meanwhile");
        for (number, node) in nodes.iter().enumerate() {
            let slug = format!("after-{round}-{number}");
            node.wire().shorten_as(&slug, "https://example.org/after");
            all_have(&nodes, &slug, "https://example.org/after");
        }
        all_have(&nodes, "first", "https://example.org/first");
        all_have(&nodes, "second", "https://example.org/second");
    }
}

#[test]
fn visits_of_both_sites_add_up() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    nodes[0].wire().shorten_as("counted", "https://example.org/counted");
    all_have(&nodes, "counted", "https://example.org/counted");
    let total = |node: &Node| {
        let told = known(|| node.wire().get(&format!("{SHORT_URLS}/counted/visits"))).json();
        told["visits"]["summary"]["total"].as_u64().unwrap()
    };
    let visit = |times: u64| {
        for node in &nodes {
            let mut wire = node.wire();
            (0..times).for_each(|_| assert_eq!(known(|| wire.get("/counted")).status, 302));
        }
    };
    let before = total(&nodes[0]);
    visit(3);
    let begun = |expected: u64| {
        wait_until("the visits of both sites", || nodes.iter().all(|node| total(node) >= expected));
        nodes.iter().map(total).collect::<Vec<_>>()
    };
    // Those that waited for the link have visited it, too.
    let counted = begun(before + 12);
    sites.part();
    are_apart(&nodes);
    visit(2);
    sites.join();
    let least = counted.iter().max().unwrap() + 8;
    begun(least);
    wait_until("one total on all nodes", || {
        let totals: Vec<u64> = nodes.iter().map(total).collect();
        totals.iter().all(|of| *of == totals[0])
    });
}

#[test]
fn lost_batches_come_as_a_snapshot() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup);
    nodes[0].wire().shorten_as("counted", "https://example.org/counted");
    all_have(&nodes, "counted", "https://example.org/counted");
    sites.part();
    are_apart(&nodes);
    let total = |node: &Node| {
        let told = known(|| node.wire().get(&format!("{SHORT_URLS}/counted/visits"))).json();
        told["visits"]["summary"]["total"].as_u64().unwrap()
    };
    let before = total(&nodes[0]);
    let mut wire = nodes[0].wire();
    (0..7).for_each(|_| assert_eq!(known(|| wire.get("/counted")).status, 302));
    wait_until("the visits at their own site", || nodes[..2].iter().all(|node| total(node) >= before + 7));
    // As if more had been published meanwhile than a stream keeps.
    let script = "for _, key in ipairs(redis.call('KEYS', '*:v:*')) do redis.call('DEL', key) end return 1";
    sites.servers[0].command(&["EVAL", script, "0"]);
    sites.join();
    wait_until("the same total at the other site", || {
        let expected = total(&nodes[0]);
        nodes[2..].iter().all(|node| total(node) >= expected)
    });
    wait_until("no request is left at either site", || {
        sites.servers.iter().all(|server| server.command(&["HLEN", "{carom}:visits:wanted"]) == Reply::Int(0))
    });
}

#[test]
fn single_visits_cross_both_ways() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup.env("CAROM_VISITS_LOG", "on"));
    nodes[0].wire().shorten_as("logged", "https://example.org/logged");
    all_have(&nodes, "logged", "https://example.org/logged");
    for node in [&nodes[1], &nodes[2]] {
        let mut wire = node.wire();
        for _ in 0..3 {
            let visit = || wire.ask("GET", "/logged", "User-Agent: crossing\r\n", b"");
            assert_eq!(known(visit).status, 302);
        }
    }
    let list = |node: &Node| node.wire().get(&format!("{SHORT_URLS}/logged/visits?itemsPerPage=100")).json();
    let crossed = |node: &Node| {
        let told = list(node)["visits"]["data"].clone();
        told.as_array().unwrap().iter().filter(|visit| visit["userAgent"] == "crossing").count()
    };
    wait_until("the visits of both sites", || nodes.iter().all(|node| crossed(node) == 6));
    assert_eq!(list(&nodes[0])["visits"]["pagination"]["complete"], false, "more may come from the other site");
}

#[test]
fn keys_of_one_site_are_valid_at_the_other() {
    let sites = Sites::new();
    let key = new_key(&sites.setup(0), "ops", "admin");
    let nodes: Vec<Node> = (0..4).map(|number| sites.setup(number).start()).collect();
    are_current(&nodes);
    wait_until("the key on every node", || nodes.iter().all(|node| sign_in(node, &key, "").status == 303));
}

/// Declares a site complete at one of its nodes.
fn complete(node: &Node) -> CliRan {
    CliUser::new().run(&["fleet", "site-complete", "--admin", &node.admin.to_string()])
}

/// Declares a site complete, once Redis answers in time. An attempt that was not confirmed may have done it.
fn completes(node: &Node, site: &str) {
    let mut tried = 0;
    wait_until("a site that is declared complete", || {
        tried += 1;
        let ran = complete(node);
        let is_done = ran.code == 0 && ran.out.starts_with(&format!("the site {site} is declared complete"));
        let is_repeated = tried > 1 && ran.err.contains(&format!("The site {site} is not marked"));
        assert!(ran.code != 0 || is_done, "{ran:?}");
        is_done || is_repeated
    });
}

#[test]
fn another_node_takes_the_relay_over() {
    let sites = Sites::new();
    let mut nodes = sites.start(|setup| setup);
    let is_relay = |node: &Node| node.status()["fleet"]["site"]["relay"] == true;
    let relay = wait_for("a relay", || nodes[..2].iter().position(is_relay));
    // The positions are stored once they were held for ten seconds.
    let stored = || sites.servers[0].command(&["HLEN", "{carom}:site:places"]).to_number();
    wait_until("stored positions", || stored() == u64::from(PARTITIONS));
    let killed = nodes.remove(relay);
    let gaps = |node: &Node| node.status()["fleet"]["site"]["gaps"].as_u64();
    let before = gaps(&nodes[0]);
    for number in 0..20 {
        nodes[1].wire().shorten_as(&format!("slug-{number}"), "https://example.org/");
    }
    killed.kill();
    for number in 20..40 {
        nodes[1].wire().shorten_as(&format!("slug-{number}"), "https://example.org/");
    }
    wait_until("another relay", || nodes[0].status()["fleet"]["site"]["relay"] == true);
    for number in 0..40 {
        all_have(&nodes, &format!("slug-{number}"), "https://example.org/");
    }
    are_current(&nodes);
    assert_eq!(gaps(&nodes[0]), before, "it continued from the stored positions");
}

#[test]
fn damaged_notes_are_named_and_replaced() {
    let sites = Sites::new();
    let nodes = sites.start(|setup| setup.expect("of the relay in Redis is damaged").expect("site_lacks"));
    let server = &sites.servers[0];
    for field in ["start:7", "floor:7", "read", "met", "passes", "relay"] {
        server.command(&["HSET", "{carom}:site", field, "nonsense"]);
        let value = || server.command(&["HGET", "{carom}:site", field]);
        wait_until(&format!("another value of {field}"), || value() != "nonsense");
    }
    are_current(&nodes);
    nodes[2].wire().shorten_as("slug", "https://example.org/slug");
    all_have(&nodes, "slug", "https://example.org/slug");
    assert_eq!(nodes[0].status()["fleet"]["site"]["mayLack"], false);
    // A damaged mark counts as one that is set, until an operator has looked.
    server.command(&["HSET", "{carom}:site", "lacks", "nonsense"]);
    is_seen(&nodes[0], "site_lacks");
    wait_until("a mark of the relay", || server.command(&["HGET", "{carom}:site", "lacks"]) == "1");
    completes(&nodes[1], "berlin");
    wait_until("the end of the alarm", || !alarms(&nodes[0].status()).contains(&"site_lacks"));
    are_current(&nodes);
}

#[test]
fn long_separation_that_lost_states_is_told() {
    let sites = Sites::new();
    let brief = |setup: Setup| {
        let setup = setup.env("CAROM_FLEET_RETENTION", "40s").expect("site_lacks").expect("fleet_behind");
        setup.expect("redis_away").expect("counter_regressed")
    };
    let nodes = sites.start(brief);
    sites.part();
    let parted = Instant::now();
    wait_until("half the retention", || parted.elapsed() > Duration::from_secs(22));
    sites.servers[1].kill();
    sites.servers[1].start_again_empty();
    sites.join();
    // One site has lost its place in the streams of the other one, and the other one the streams themselves.
    for node in &nodes {
        is_seen(node, "site_lacks");
        assert_eq!(node.status()["fleet"]["site"]["mayLack"], true);
    }
    are_apart(&nodes);
    // A Redis that loses the mark gets it back.
    sites.servers[0].command(&["DEL", "{carom}:site", "{carom}:site:places"]);
    wait_until("the mark again", || sites.servers[0].command(&["HGET", "{carom}:site", "lacks"]) == "1");
    // An operator has copied the links.
    completes(&nodes[1], "berlin");
    completes(&nodes[2], "lisbon");
    for node in &nodes {
        wait_until("the end of the alarm", || !alarms(&node.status()).contains(&"site_lacks"));
    }
    are_current(&nodes);
    let again = complete(&nodes[0]);
    assert_eq!(again.code, 2, "{again:?}");
    assert!(again.err.contains("The site berlin is not marked"), "{again:?}");
}

#[test]
fn gap_in_the_first_comparison_is_told() {
    let sites = Sites::new();
    let nodes = [0, 2].map(|number| {
        let setup = sites.setup(number).env("CAROM_FLEET_RETENTION", "24s");
        setup.expect("site_lacks").expect("fleet_behind").expect("redis_away").start()
    });
    let note = |site: usize, field: &str| sites.servers[site].command(&["HGET", "{carom}:site", field]);
    wait_until("the first contact", || [0, 1].into_iter().all(|site| note(site, "start:7") != Reply::Nil));
    sites.part();
    let parted = Instant::now();
    for site in [0, 1] {
        let read = note(site, "read");
        assert!(read == Reply::Nil || read == "0", "a pass ends some seconds after the first contact: {read:?}");
    }
    // States that were written at the first contact may have expired after half the retention.
    wait_until("half the retention", || parted.elapsed() > Duration::from_secs(13));
    sites.join();
    for node in &nodes {
        is_seen(node, "site_lacks");
        assert_eq!(node.wire().get("/nobody").status, 503);
    }
}

#[test]
fn settings_that_differ_between_sites_are_named() {
    let sites = Sites::new();
    let start = |number: usize| {
        // The nodes of one site agree.
        let retention = if number < 2 { "8d" } else { "9d" };
        sites.setup(number).env("CAROM_FLEET_RETENTION", retention).expect("settings_differ").start()
    };
    let nodes: Vec<Node> = (0..4).map(start).collect();
    are_current(&nodes);
    let (berlin, lisbon) = nodes.split_at(2);
    for (site, other, at) in [(berlin, "lisbon", "n2, n3"), (lisbon, "berlin", "n0, n1")] {
        let text = format!("at the site {other} differ: fleet.retention (not as on {at})");
        // On a busy machine, another node may become the relay meanwhile.
        wait_until(&text, || {
            let [relay, follower] = [true, false].map(|is_relay| {
                let mut all = site.iter().map(Node::status);
                all.find(|status| status["fleet"]["site"]["relay"] == is_relay)
            });
            relay.is_some_and(|status| status["alarms"].to_string().contains(&text))
                && follower.is_some_and(|status| !alarms(&status).contains(&"settings_differ"))
        });
    }
}

#[test]
fn one_site_cannot_be_declared_complete() {
    let server = Server::start();
    let folder = tempfile::tempdir().unwrap();
    let node = setup(folder.path(), 0, &server.url()).start();
    let ran = CliUser::new().run(&["fleet", "site-complete", "--admin", &node.admin.to_string()]);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains("fleet.site is not set"), "{ran:?}");
    assert_eq!(Wire::open(node.admin).get("/fleet/site/complete").status, 405);
    assert_eq!(Wire::open(node.admin).get("/fleet/site").status, 404);
    for (path, body, wrong) in [
        ("/fleet/site/give-up?confrim=lisbon", &b""[..], "confrim"),
        ("/fleet/site/give-up?acceptLoss=yes", b"", "acceptLoss"),
        ("/fleet/site/give-up", b"confirm=lisbon", "body"),
        ("/fleet/site/complete?confirm=lisbon", b"", "confirm"),
        ("/snapshots?rate=1", b"", "rate"),
        ("/apps?name=x", b"{}", "name"),
    ] {
        let refused = Wire::open(node.admin).ask("POST", path, "", body);
        assert_eq!(refused.problem(400, "invalid-data")["invalidElements"], json!([wrong]), "{path}");
    }
    // Some clients send a body of no bytes in chunks.
    let mut wire = Wire::open(node.admin);
    let head =
        format!("POST /fleet/site/complete HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n", node.admin);
    wire.send(format!("{head}0\r\n\r\n").as_bytes());
    assert!(wire.reply().text().contains("fleet.site is not set"));
}

/// Orders a node to give up the other site, with further arguments.
fn give_up(node: &Node, arguments: &[&str]) -> CliRan {
    let admin = node.admin.to_string();
    let all: Vec<&str> = ["fleet", "site-give-up", "--admin", &admin].iter().chain(arguments).copied().collect();
    CliUser::new().run(&all)
}

/// A node without the settings of two sites, after its site has given up the other one.
fn without_site(sites: &Sites, number: usize) -> Setup {
    setup(&sites.folder.path().join(format!("{number}")), number, &sites.servers[0].url())
        // Until the last node is restarted.
        .expect("settings_differ")
}

/// Restarts the nodes of the site `berlin` without the other one and without unused codes, and creates links on them.
fn continue_alone(sites: &Sites, nodes: Vec<Node>, known: &[(String, String)]) {
    for node in nodes {
        let ended = node.terminate();
        std::fs::remove_dir_all(ended.data_dir().join("ids")).unwrap();
    }
    let nodes: Vec<Node> = (0..2).map(|number| without_site(sites, number).start()).collect();
    nodes.iter().for_each(settle);
    for (code, target) in known {
        all_have(&nodes, code, target);
    }
    wait_until("404 for an unknown slug", || nodes.iter().all(|node| node.wire().get("/nobody").status == 404));
    let mut codes: Vec<String> = known.iter().map(|(code, _)| code.clone()).collect();
    for node in &nodes {
        wait_until("codes", || node.wire().create(&json!({"longUrl": "https://example.org/warm"})).status == 200);
        codes.extend((0..50).map(|_| node.wire().shorten("https://example.org/alone")));
    }
    let count = codes.len();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), count, "a code was given twice");
    let again = give_up(&nodes[0], &[]);
    assert_eq!(again.code, 2, "{again:?}");
    assert!(again.err.contains("fleet.site is not set"), "{again:?}");
}

#[test]
fn stopped_site_is_given_up_without_loss() {
    let sites = Sites::new();
    let mut nodes = sites.start(|setup| setup.expect("settings_differ"));
    let code = nodes[2].wire().shorten("https://example.org/generated");
    nodes[3].wire().shorten_as("slug", "https://example.org/slug");
    let known = [
        (code, "https://example.org/generated".to_owned()),
        ("slug".to_owned(), "https://example.org/slug".to_owned()),
    ];
    let lisbon = nodes.split_off(2);
    let refused = give_up(&nodes[0], &["--confirm", "lisbon", "--accept-loss"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("n2, n3"), "{refused:?}");
    lisbon.into_iter().for_each(|node| drop(node.terminate()));
    for (slug, target) in &known {
        all_have(&nodes, slug, target);
    }
    // The relay has read what the nodes wrote before their last heartbeats.
    wait_until("a dry run without losses", || {
        let told = give_up(&nodes[1], &[]);
        assert_eq!(told.code, 0, "{told:?}");
        assert!(told.out.starts_with("dry run"), "{told:?}");
        told.out.ends_with("no link or change is lost\n")
    });
    let wrong = give_up(&nodes[0], &["--confirm", "berlin"]);
    assert_eq!(wrong.code, 2, "{wrong:?}");
    assert!(wrong.err.contains("is lisbon"), "{wrong:?}");
    let given_up = || sites.servers[0].command(&["HGET", "{carom}:site", "given_up"]);
    assert_eq!(given_up(), Reply::Nil, "nothing was changed so far");
    for node in &nodes {
        let done = give_up(node, &["--confirm", "lisbon"]);
        assert_eq!(done.code, 0, "{done:?}");
        assert!(done.out.starts_with("the site lisbon is given up"), "{done:?}");
    }
    assert_eq!(given_up(), "lisbon");
    // Their settings name a site that no longer counts.
    are_apart(&nodes);
    continue_alone(&sites, nodes, &known);
}

#[test]
fn lost_site_is_given_up_with_its_losses_named() {
    let sites = Sites::new();
    let mut nodes = sites.start(|setup| setup.expect("settings_differ"));
    nodes[2].wire().shorten_as("crossed", "https://example.org/crossed");
    all_have(&nodes, "crossed", "https://example.org/crossed");
    sites.part();
    are_apart(&nodes);
    nodes[2].wire().shorten("https://example.org/lost");
    nodes.split_off(2).into_iter().for_each(|node| drop(node.kill()));
    sites.servers[1].kill();
    let refused = give_up(&nodes[0], &["--confirm", "lisbon"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("Redis of the site lisbon cannot be read"), "{refused:?}");
    let told = give_up(&nodes[0], &[]);
    assert!(told.out.contains("with --accept-loss only"), "{told:?}");
    let done = give_up(&nodes[0], &["--confirm", "lisbon", "--accept-loss"]);
    assert_eq!(done.code, 0, "{done:?}");
    // The codes of the lost site stay its own, as far as this site knows or can guess.
    let number = |command: &[&str]| sites.servers[0].command(command).text().parse::<u64>().unwrap();
    let theirs = number(&["HGET", "{carom}:site", "floor:7"]);
    assert!(number(&["GET", "{carom}:counter:7"]) > theirs, "{theirs}");
    continue_alone(&sites, nodes, &[("crossed".to_owned(), "https://example.org/crossed".to_owned())]);
}
