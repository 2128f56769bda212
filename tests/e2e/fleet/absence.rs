//! A code that a node does not have: 404 only if no other node can have it, otherwise 503.

use carom_shards::{CodeLength, CodeSecret, CodeSpace, CounterValue};
use serde_json::json;
use tempfile::TempDir;

use crate::support::fleet::{Fleet, KEY, known, most_are_shorter, settle, setup, stored_members};
use crate::support::http::{Reply, Wire};
use crate::support::node::{Dice, Node, Setup, wait_until};
use crate::support::proxy::{Mode, Proxy};
use crate::support::redis::Server;

/// The codes of the nodes of tests.
fn space() -> CodeSpace {
    CodeSpace::new(&CodeSecret::from_hex(KEY).unwrap())
}

/// A code that was never leased: far beyond every counter of a test.
fn guess(space: &CodeSpace, dice: &mut Dice) -> String {
    let length = CodeLength::DEFAULT;
    let value = length.codes() / 2 + dice.below(length.codes() / 2);
    space.code(length, CounterValue(value)).to_code().to_string()
}

/// A code that is leased, and that no node has used: the leases of a fleet's first nodes begin with small values.
fn leased_code(space: &CodeSpace, node: &Node) -> String {
    let code = |value: u64| space.code(CodeLength::DEFAULT, CounterValue(value)).to_code().to_string();
    let mut wire = node.wire();
    let is_unused = |code: &String| wire.get(&format!("/{code}")).status != 302;
    (1..1_000).map(code).find(is_unused).expect("every code is used")
}

/// Two nodes; the first reaches Redis through a proxy.
fn behind_a_proxy(server: &Server) -> (TempDir, Proxy, Vec<Node>) {
    behind_a_proxy_with(server, |setup| setup)
}

/// Two nodes with more settings; the first reaches Redis through a proxy.
fn behind_a_proxy_with(server: &Server, more: impl Fn(Setup) -> Setup) -> (TempDir, Proxy, Vec<Node>) {
    let (folder, proxy) = (tempfile::tempdir().unwrap(), Proxy::start(server.address()));
    let urls = [format!("redis://{}", proxy.address()), server.url()];
    let start = |(number, url): (usize, &String)| {
        more(setup(&folder.path().join(number.to_string()), number, url)).expect("redis_away").start()
    };
    let nodes: Vec<Node> = urls.iter().enumerate().map(start).collect();
    nodes.iter().for_each(settle);
    (folder, proxy, nodes)
}

/// A second domain, for which links of the default one stand in.
fn with_fallback(setup: Setup) -> Setup {
    let setup = setup.argument("--base-url").argument("https://s.test");
    setup.env("CAROM_DOMAINS_SERVE", "https://go.test").env("CAROM_DOMAINS_FALLBACK", "true")
}

/// Both hosts at which a link of the default domain redirects.
const HOSTS: [&str; 2] = ["go.test", "s.test"];

fn is_unsure(reply: &Reply) {
    assert_eq!((reply.status, reply.field("retry-after")), (503, Some("1")), "{}", reply.text());
}

#[test]
fn guesses_reach_no_redis() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let (space, mut dice) = (space(), Dice::new());
    let mut wire = nodes[0].wire();
    wait_until("a node that has heard of the counter", || {
        let before = server.calls("get");
        let is_missing = wire.get(&format!("/{}", guess(&space, &mut dice))).status == 404;
        is_missing && server.calls("get") == before
    });
    const GUESSES: u64 = 2_000;
    // While a busy machine delays heartbeats or the reading of streams, a guess is unsure, or Redis is asked.
    wait_until("guesses that Redis is not asked for", || {
        let before = server.calls("get");
        let statuses: Vec<u16> =
            (0..GUESSES).map(|_| wire.get(&format!("/{}", guess(&space, &mut dice))).status).collect();
        let asked = server.calls("get") - before;
        let unsure = statuses.iter().filter(|status| **status == 503).count() as u64;
        assert!(statuses.iter().all(|status| [404, 503].contains(status)), "{statuses:?}");
        println!("{GUESSES} guesses: {asked} commands, {unsure} unsure");
        asked <= GUESSES / 10 && unsure <= GUESSES / 10
    });
    // A slug has to be asked for each time: another node may create it at any moment.
    let before = server.calls("get");
    for _ in 0..20 {
        assert_eq!(known(|| wire.get("/no-such-slug")).status, 404);
    }
    assert!(server.calls("get") >= before + 20);
}

#[test]
fn link_made_alone_is_never_missing_elsewhere() {
    let server = Server::start();
    let (_folder, proxy, nodes) = behind_a_proxy(&server);
    proxy.set(Mode::BlackHole);
    let mut alone = nodes[0].wire();
    let codes: Vec<String> = (0..20).map(|number| alone.shorten(&format!("https://example.org/{number}"))).collect();
    let mut other = nodes[1].wire();
    for code in &codes {
        is_unsure(&other.get(&format!("/{code}")));
        is_unsure(&other.get(&format!("/{code}+")));
        is_unsure(&other.get(&format!("/rest/v3/short-urls/{code}")));
        let patch = json!({"title": "mine"}).to_string();
        let path = format!("/rest/v3/short-urls/{code}");
        is_unsure(&other.ask("PATCH", &path, "Content-Type: application/json\r\n", patch.as_bytes()));
        is_unsure(&other.delete(code));
    }
    proxy.set(Mode::Pass);
    wait_until("links on the other node", || codes.iter().all(|code| other.get(&format!("/{code}")).status == 302));
    assert_eq!(known(|| other.get(&format!("/rest/v3/short-urls/{}", codes[0]))).status, 200);
}

#[test]
fn node_without_redis_knows_what_it_deleted() {
    let server = Server::start();
    let (_folder, proxy, nodes) = behind_a_proxy(&server);
    let mut cut = nodes[0].wire();
    let mut other = nodes[1].wire();
    let deleted = cut.shorten("https://example.org/deleted");
    assert_eq!(cut.delete(&deleted).status, 204);
    wait_until("a slug that nobody has", || cut.get("/nobody-s").status == 404);
    proxy.set(Mode::BlackHole);
    is_unsure(&cut.get("/nobody-s"));
    other.shorten_as("nobody-s", "https://example.org/");
    let fresh = other.shorten("https://example.org/fresh");
    for path in ["nobody-s", &fresh] {
        is_unsure(&cut.get(&format!("/{path}")));
        is_unsure(&cut.get(&format!("/rest/v3/short-urls/{path}")));
    }
    assert_eq!(cut.get(&format!("/{deleted}")).status, 404, "a generated code is used once");
    // Once the streams are too old, even a guess may be a slug that somebody has just chosen.
    let mut dice = Dice::new();
    wait_until("a guess that is unsure", || cut.get(&format!("/{}", guess(&space(), &mut dice))).status == 503);
    proxy.set(Mode::Pass);
    wait_until("both links", || ["nobody-s", &fresh].iter().all(|path| cut.get(&format!("/{path}")).status == 302));
}

#[test]
fn slug_like_a_code_is_there_at_once() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    for number in 0..40 {
        let slug = format!("slug{number:03}");
        // Its reader has asked for it a moment before.
        let before = there.get(&format!("/{slug}")).status;
        assert!(before == 404 || before == 503, "{before}");
        here.shorten_as(&slug, "https://example.org/");
        let after = there.get(&format!("/{slug}")).status;
        assert!(after == 302 || after == 503, "{slug}: {after}");
    }
}

#[test]
fn slug_like_a_private_code_is_there_at_once() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let nodes = fleet.start();
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    for number in 0..5 {
        let slug = format!("private0slug0{number:03}");
        // Its reader has asked for it a moment before, and must not believe that answer for any time.
        wait_until("404 for a slug that nobody has", || there.get(&format!("/{slug}")).status == 404);
        here.shorten_as(&slug, "https://example.org/");
        let after = there.get(&format!("/{slug}")).status;
        assert!(after == 302 || after == 503, "{slug}: {after}");
    }
}

#[test]
fn leased_codes_that_nobody_used_are_missing() {
    let server = Server::start();
    let fleet = Fleet::new(3, &server.url());
    let nodes = fleet.start();
    let mut wire = nodes[0].wire();
    let private = "0123456789abcdef";
    wait_until("404 for a private code", || wire.get(&format!("/{private}")).status == 404);
    let leased = leased_code(&space(), &nodes[0]);
    wait_until("404 for a leased code", || wire.get(&format!("/{leased}")).status == 404);
    wait_until("404 for its record", || wire.get(&format!("/rest/v3/short-urls/{leased}")).status == 404);
    // Each request waits for the others again, for at most 1.5 seconds. A machine that stands still makes one longer.
    let times = [(); 3].map(|()| {
        let begun = std::time::Instant::now();
        let status = wire.get(&format!("/{private}")).status;
        println!("{status} after {:?}", begun.elapsed());
        begun.elapsed()
    });
    most_are_shorter(times, std::time::Duration::from_secs(5));
}

#[test]
fn silent_node_keeps_leased_codes_unsure() {
    let server = Server::start();
    let (_folder, proxy, nodes) = behind_a_proxy(&server);
    let mut other = nodes[1].wire();
    let private = "0123456789abcdef";
    wait_until("404 for a private code", || other.get(&format!("/{private}")).status == 404);
    proxy.set(Mode::BlackHole);
    let mut alone = nodes[0].wire();
    let codes: Vec<String> = (0..3).map(|number| alone.shorten(&format!("https://example.org/{number}"))).collect();
    for code in codes.iter().map(String::as_str).chain([private]) {
        is_unsure(&other.get(&format!("/{code}")));
    }
    // Once the silence is old, nobody waits. Before that, a request waits for one and a half seconds.
    wait_until("an answer at once", || {
        let begun = std::time::Instant::now();
        is_unsure(&other.get(&format!("/{private}")));
        begun.elapsed() < std::time::Duration::from_secs(1)
    });
    proxy.set(Mode::Pass);
    wait_until("404 again", || other.get(&format!("/{private}")).status == 404);
    wait_until("the links", || codes.iter().all(|code| other.get(&format!("/{code}")).status == 302));
}

#[test]
fn stand_in_is_never_missing_elsewhere() {
    let server = Server::start();
    let (_folder, proxy, nodes) = behind_a_proxy_with(&server, with_fallback);
    let (mut here, mut there) = (nodes[0].wire(), nodes[1].wire());
    let status = |wire: &mut Wire, host: &str, slug: &str| wire.get_at(host, &format!("/{slug}")).status;
    for number in 0..20 {
        let slug = format!("stand-in-{number}");
        // Its reader has asked for it a moment before, at both domains.
        for host in HOSTS {
            let before = status(&mut there, host, &slug);
            assert!(before == 404 || before == 503, "{before}");
        }
        here.shorten_as(&slug, "https://example.org/");
        for host in HOSTS {
            let after = status(&mut there, host, &slug);
            assert!(after == 302 || after == 503, "{slug} at {host}: {after}");
        }
    }
    // Each node creates links of which the other one cannot hear.
    proxy.set(Mode::BlackHole);
    let alone: Vec<String> = (0..3).map(|number| here.shorten(&format!("https://example.org/{number}"))).collect();
    there.shorten_as("made-there", "https://example.org/");
    for host in HOSTS {
        alone.iter().for_each(|code| is_unsure(&there.get_at(host, &format!("/{code}"))));
        is_unsure(&here.get_at(host, "/made-there"));
    }
    proxy.set(Mode::Pass);
    for host in HOSTS {
        for code in &alone {
            wait_until("a link of the other node", || status(&mut there, host, code) == 302);
        }
        wait_until("the slug of the other node", || status(&mut here, host, "made-there") == 302);
    }
    // A link that nobody has is 404 again, at both domains.
    for host in HOSTS {
        wait_until("404 for a slug that nobody has", || status(&mut here, host, "nobody-s") == 404);
    }
}

#[test]
fn stand_in_is_there_while_a_node_catches_up() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let start = |number: usize| with_fallback(fleet.setup(number)).start();
    let mut nodes: Vec<Node> = (0..2).map(start).collect();
    nodes.iter().for_each(settle);
    nodes.remove(1).terminate();
    let mut here = nodes[0].wire();
    let codes: Vec<String> = (0..300).map(|number| here.shorten(&format!("https://example.org/{number}"))).collect();
    here.shorten_as("a-slug", "https://example.org/");
    let late = start(1);
    let mut there = late.wire();
    let status = |wire: &mut Wire, host: &str, slug: &str| wire.get_at(host, &format!("/{slug}")).status;
    // At the other domain, a code in the form of a generated one waits for a confirmation of the other node, so there
    // are few.
    let last: Vec<&str> = codes.iter().rev().take(3).map(String::as_str).chain(["a-slug"]).collect();
    let at_other = last.iter().map(|slug| ("go.test", *slug));
    for (host, slug) in at_other.chain(codes.iter().rev().map(|code| ("s.test", code.as_str()))) {
        let status = status(&mut there, host, slug);
        assert!(status == 302 || status == 503, "{slug} at {host}: {status}");
    }
    wait_until("all links", || codes.iter().all(|code| status(&mut there, "s.test", code) == 302));
    for slug in last {
        wait_until("a link that stands in", || status(&mut there, "go.test", slug) == 302);
    }
}

#[test]
fn emptied_redis_denies_no_link_of_absent_node() {
    let server = Server::start();
    let fleet = Fleet::new(2, &server.url());
    let [here, maker] = [0, 1].map(|number| fleet.setup(number).expect("counter_regressed").start());
    [&here, &maker].into_iter().for_each(settle);
    wait_until("the names on disk", || stored_members(&fleet.setup(0)) == ["n0", "n1"]);
    let here = here.terminate();
    let mut wire = maker.wire();
    wire.shorten_as("made-there", "https://example.org/");
    let code = wire.shorten("https://example.org/");
    let maker = maker.terminate();
    server.command(&["FLUSHALL"]);
    let back = here.start();
    settle(&back);
    for path in ["made-there", &code] {
        is_unsure(&back.wire().get(&format!("/{path}")));
        is_unsure(&back.wire().get(&format!("/rest/v3/short-urls/{path}")));
    }
    // A later process remembers it as well.
    let back = back.restart();
    settle(&back);
    is_unsure(&back.wire().get("/made-there"));
    let _maker = maker.start();
    wait_until("the links of the other node", || {
        let statuses = ["made-there", &code].map(|path| back.wire().get(&format!("/{path}")).status);
        assert!(statuses.iter().all(|status| [302, 503].contains(status)), "{statuses:?}");
        statuses == [302, 302]
    });
    wait_until("404 for a slug that nobody has", || back.wire().get("/nobody-s").status == 404);
}
