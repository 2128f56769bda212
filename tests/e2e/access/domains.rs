//! Several short domains on one service: a link is served at its own host only. Each test runs with one core and with
//! three, over both HTTP paths.

use std::io::Write as _;
use std::process::{Command, Stdio};

use carom_model::redirect::Notice;
use serde_json::{Value, json};

use crate::support::api_client::JSON;
use crate::support::domains::{TARGET, codes, create, everybody, leads, make, setup, status, target};
use crate::support::http::{SHORT_URLS, Wire, curl, request_at};
use crate::support::node::{CAROM, Node, Setup, sum, wait_until};
use crate::support::openapi::is_described;

const LOST: &str = "https://example.org/lost";
const ENDED: &str = "https://example.org/ended";
const BULK: &str = "/rest/v3/short-urls/bulk";

#[test]
fn each_domain_serves_only_its_links() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        let mut wire = node.wire();
        // One slug, once for each domain.
        for (domain, short_url, shown) in [
            ("", "https://s.test/sale", Value::Null),
            ("GO.test", "https://go.test/sale", json!("go.test")),
            ("b\u{fc}cher.test", "http://xn--bcher-kva.test:8080/sale", json!("xn--bcher-kva.test")),
        ] {
            let link = make(&mut wire, domain, "sale");
            assert_eq!(link["shortUrl"].as_str(), Some(short_url));
            assert_eq!(&link["domain"], &shown);
            assert_eq!(link["shortCode"], "sale");
            let again = json!({"longUrl": "https://example.net/", "domain": domain, "customSlug": "sale"});
            let taken = wire.create(&again).problem(400, "/non-unique-slug");
            assert_eq!((&taken["customSlug"], &taken["domain"]), (&json!("sale"), &shown));
        }
        assert_eq!(leads(&node, "s.test", "/sale"), target("", "sale"));
        assert_eq!(leads(&node, "S.TEST:443", "/sale?x=1"), target("", "sale") + "?x=1");
        assert_eq!(leads(&node, "go.test", "/sale"), target("GO.test", "sale"));
        assert_eq!(leads(&node, "Go.Test.:8443", "/sale"), target("GO.test", "sale"));
        assert_eq!(leads(&node, "xn--bcher-kva.test", "/sale"), "https://example.org/b%C3%BCcher.test/sale");
        // No other host knows of a link.
        let own = create(&mut wire, &json!({"longUrl": TARGET, "domain": "go.test"}));
        let path = format!("/{}", own["shortCode"].as_str().unwrap());
        assert_eq!(leads(&node, "go.test", &path), TARGET);
        for host in
            ["s.test", "xn--bcher-kva.test", "other.test", "go.test.evil.test", "xgo.test", "127.0.0.1", "[::1]:80"]
        {
            assert_eq!(status(&node, host, &path), 404, "{host}");
            assert_eq!(status(&node, host, &format!("{path}+")), 404, "{host}");
            let unknown = everybody(&node, host, "/none", |reply| (reply.status, reply.text().to_owned()));
            assert_eq!(everybody(&node, host, &path, |reply| (reply.status, reply.text().to_owned())), unknown);
        }
        assert_eq!(status(&node, "other.test", "/sale"), 404);
        assert_eq!(status(&node, "go.test", "/sale+"), 200);
        // HEAD selects a link by its Host like GET, and an absolute URL replaces the Host.
        let head = {
            wire.send(&request_at("go.test", "HEAD", "/sale", "", b""));
            wire.try_reply(true).unwrap()
        };
        assert_eq!((head.status, head.location()), (302, &*target("GO.test", "sale")));
        wire.send(b"GET http://go.test/sale HTTP/1.1\r\nHost: s.test\r\n\r\n");
        assert_eq!(wire.reply().location(), target("GO.test", "sale"));
        wire.send(b"GET /sale HTTP/1.0\r\n\r\n");
        assert_eq!(wire.reply().status, 404);
        // Two at once, for two domains, over one connection.
        let mut pair = node.wire();
        pair.send(
            &[request_at("s.test", "GET", "/sale", "", b""), request_at("go.test", "GET", "/sale", "", b"")].concat(),
        );
        assert_eq!(
            (pair.reply().location(), pair.reply().location()),
            (&*target("", "sale"), &*target("GO.test", "sale"))
        );
        // What is stored is read back.
        drop((wire, pair));
        let node = node.restart();
        assert_eq!(leads(&node, "s.test", "/sale"), target("", "sale"));
        assert_eq!(leads(&node, "go.test", "/sale"), target("GO.test", "sale"));
        assert_eq!(status(&node, "go.test", "/none"), 404);
        node.terminate();
    }
}

/// A node with the links `one` and `two` in the default domain and in `go.test`, with one core and with three.
fn with_equal_slugs(check: impl Fn(&Node)) {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        for domain in ["DEFAULT", "go.test"] {
            make(&mut node.wire(), domain, "one");
            make(&mut node.wire(), domain, "two");
        }
        check(&node);
        node.terminate();
    }
}

/// The path of the link `one` of a domain.
fn one(domain: &str) -> String {
    format!("{SHORT_URLS}/one?domain={domain}")
}

#[test]
fn api_selects_links_by_domain() {
    with_equal_slugs(|node| {
        let mut wire = node.wire();
        let target_of = |wire: &mut Wire, path: &str| wire.get(path).json()["longUrl"].as_str().unwrap().to_owned();
        for domain in ["", "DEFAULT", "s.test", "S.TEST"] {
            assert_eq!(target_of(&mut wire, &one(domain)), target("DEFAULT", "one"), "{domain}");
        }
        assert_eq!(target_of(&mut wire, &one("Go.Test")), target("go.test", "one"));
        for domain in ["xn--bcher-kva.test", "other.test", "a%20b", "%00", "go.test%2Fx"] {
            wire.get(&one(domain)).problem(404, "/short-url-not-found");
        }
        for (method, body) in [("GET", &b""[..]), ("PATCH", b"{\"title\": \"T\"}"), ("DELETE", b"")] {
            let missing = wire.ask(method, &one("other.test"), JSON, body).problem(404, "/short-url-not-found");
            assert_eq!(missing["detail"], "No URL found with short code \"one\" for domain \"other.test\"", "{method}");
            assert_eq!((&missing["shortCode"], &missing["domain"]), (&json!("one"), &json!("other.test")), "{method}");
        }
        assert_eq!(wire.get(&format!("{SHORT_URLS}/none")).problem(404, "/short-url-not-found")["domain"], Value::Null);
    });
}

#[test]
fn change_and_delete_concern_one_domain() {
    with_equal_slugs(|node| {
        let mut wire = node.wire();
        let changed = wire.ask("PATCH", &one("go.test"), JSON, b"{\"longUrl\": \"https://example.net/\"}");
        assert_eq!((changed.status, &changed.json()["domain"]), (200, &json!("go.test")));
        assert_eq!(leads(node, "go.test", "/one"), "https://example.net/");
        assert_eq!(leads(node, "s.test", "/one"), target("DEFAULT", "one"));
        assert_eq!(wire.ask("DELETE", &one("go.test"), "", b"").status, 204);
        assert_eq!(status(node, "go.test", "/one"), 404);
        assert_eq!(status(node, "s.test", "/one"), 302);
        wire.ask("DELETE", &one("go.test"), "", b"").problem(404, "/short-url-not-found");
        make(&mut wire, "go.test", "one");
        assert_eq!(leads(node, "go.test", "/one"), target("go.test", "one"));
    });
}

#[test]
fn visits_are_counted_per_domain() {
    with_equal_slugs(|node| {
        let mut wire = node.wire();
        let visits = |wire: &mut Wire, code: &str, domain: &str| {
            let reply = wire.get(&format!("{SHORT_URLS}/{code}/visits?domain={domain}"));
            reply.json()["visits"]["summary"]["total"].as_u64()
        };
        (0..3).for_each(|_| assert_eq!(node.wire().get_at("go.test", "/two").status, 302));
        wait_until("visits of the link of the domain", || visits(&mut wire, "two", "go.test") == Some(3));
        assert_eq!(visits(&mut wire, "two", ""), Some(0));
    });
}

#[test]
fn lists_and_exports_filter_by_domain() {
    with_equal_slugs(|node| {
        let mut wire = node.wire();
        assert_eq!(wire.ask("PATCH", &one("go.test"), JSON, b"{\"tags\": [\"new\"]}").status, 200);
        let list = |wire: &mut Wire, query: &str| codes(&wire.get(&format!("{SHORT_URLS}?orderBy=shortCode&{query}")));
        assert_eq!(list(&mut wire, "domain=go.test"), ["https://go.test/one", "https://go.test/two"]);
        assert_eq!(list(&mut wire, "domain=DEFAULT"), ["https://s.test/one", "https://s.test/two"]);
        assert_eq!(list(&mut wire, "domain=go.test&tags[]=new"), ["https://go.test/one"]);
        assert_eq!(list(&mut wire, "domain=DEFAULT&tags[]=new"), [""; 0]);
        assert_eq!(list(&mut wire, "domain=other.test"), [""; 0]);
        assert_eq!(list(&mut wire, "").len(), 4);
        let dated = wire.get(&format!("{SHORT_URLS}?domain=go.test&itemsPerPage=1"));
        assert_eq!(dated.json()["shortUrls"]["pagination"]["totalItems"], 2);
        let export = wire.get("/rest/v3/short-urls/export?domain=go.test");
        let of_go = export.text().lines().filter(|line| line.contains("\"domain\":\"go.test\"")).count();
        assert_eq!(of_go, 2, "{export:?}");
        assert_eq!(export.text().lines().count(), 2);
        let domains = wire.get("/rest/v3/domains").json()["domains"]["data"].clone();
        let names: Vec<&str> = domains.as_array().unwrap().iter().map(|it| it["domain"].as_str().unwrap()).collect();
        assert_eq!(names, ["s.test", "go.test", "xn--bcher-kva.test"]);
        assert_eq!(domains[0]["isDefault"], true);
        assert_eq!(domains[1]["isDefault"], false);
    });
}

#[test]
fn long_lists_of_domains_are_whole() {
    let dir = tempfile::tempdir().unwrap();
    let serve: Vec<String> = (0..300).map(|number| format!("https://d{number}.test")).collect();
    let node = setup(dir.path(), 1).env("CAROM_DOMAINS_SERVE", &serve.join(", ")).start();
    let mut wire = node.wire();
    let shown = node.by_document_thread(|| wire.get("/rest/v3/domains").json()["domains"].clone());
    let names: Vec<&str> = shown["data"].as_array().unwrap().iter().map(|it| it["domain"].as_str().unwrap()).collect();
    assert_eq!((names.len(), names[0], names[300]), (301, "s.test", "d299.test"));
    assert_eq!(shown["defaultRedirects"]["baseUrlRedirect"], Value::Null);
    drop(wire);
    node.terminate();
}

#[test]
fn creates_and_bulk_select_a_domain() {
    with_equal_slugs(|node| {
        let mut wire = node.wire();
        let found = json!({"longUrl": target("go.test", "two"), "domain": "go.test", "findIfExists": true});
        assert_eq!(create(&mut wire, &found)["shortUrl"], "https://go.test/two");
        // Without a domain, the link of any domain will do.
        let anywhere = json!({"longUrl": target("go.test", "two"), "findIfExists": true});
        assert_eq!(create(&mut wire, &anywhere)["shortUrl"], "https://go.test/two");
        // The same destination in another domain is another link.
        let elsewhere = json!({"longUrl": target("go.test", "two"), "domain": "DEFAULT", "findIfExists": true});
        let other = create(&mut wire, &elsewhere);
        assert_eq!(other["domain"], Value::Null);
        assert_eq!(create(&mut wire, &elsewhere)["shortUrl"], other["shortUrl"]);
        let lines = "{\"longUrl\": \"https://example.org/b\", \"domain\": \"go.test\"}\n{\"longUrl\": \"https://example.org/b\", \"domain\": \"no.test\"}\n";
        let bulk = wire.ask("POST", BULK, "Content-Type: application/x-ndjson\r\n", lines.as_bytes());
        let results: Vec<Value> = bulk.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(results[0]["shortUrl"]["shortUrl"].as_str().unwrap().starts_with("https://go.test/"), "{bulk:?}");
        assert_eq!(results[1]["error"]["invalidElements"], json!(["domain"]));
    });
}

#[test]
fn invalid_domain_is_refused_and_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 1).start();
    let mut wire = node.wire();
    let long = "x".repeat(64 * 1024);
    for domain in [
        json!("other.test"),
        json!("go.test/x"),
        json!("https://go.test"),
        json!("go.test\r\nSET x y"),
        json!("go.test\u{0}"),
        json!("*.go.test"),
        json!("'\"; DROP"),
        json!(" "),
        json!(long),
        json!(7),
        json!(["go.test"]),
        json!({"domain": "go.test"}),
        json!(true),
    ] {
        let problem = wire.create(&json!({"longUrl": TARGET, "domain": domain})).problem(400, "/invalid-data");
        assert_eq!(problem["invalidElements"], json!(["domain"]), "{domain}");
        assert!(problem.to_string().len() < 2_000);
    }
    let refused = wire.create(&json!({"longUrl": TARGET, "domain": "other.test"})).problem(400, "/invalid-data");
    assert!(refused["detail"].as_str().unwrap().contains("s.test, go.test"), "{refused}");
    // Nothing leads in circles, and no link changes its domain.
    for own in ["https://go.test/x", "http://xn--bcher-kva.test:8080/", "https://s.test/"] {
        wire.create(&json!({"longUrl": own})).problem(400, "/invalid-data");
    }
    make(&mut wire, "go.test", "stays");
    let path = format!("{SHORT_URLS}/stays?domain=go.test");
    let moved = wire.ask("PATCH", &path, JSON, b"{\"domain\": \"s.test\"}").problem(400, "/invalid-data");
    assert_eq!(moved["invalidElements"], json!(["domain"]));
    assert_eq!(wire.ask("PATCH", &path, JSON, b"{\"domain\": null, \"title\": \"T\"}").json()["title"], "T");
    assert_eq!(codes(&wire.get(SHORT_URLS)), ["https://go.test/stays"]);
    node.terminate();
}

#[test]
fn fallback_serves_links_of_the_default() {
    for (cores, residency) in [(1, "all"), (3, "all"), (3, "hot")] {
        let dir = tempfile::tempdir().unwrap();
        let mut setup =
            setup(dir.path(), cores).env("CAROM_DOMAINS_FALLBACK", "true").env("CAROM_LINKS_KEEP_EXPIRED", "forever");
        if residency == "hot" {
            setup = setup.env("CAROM_LINKS_RESIDENCY", "hot").env("CAROM_LINKS_MEMORY_LIMIT", "64MiB");
        }
        let node = setup.start();
        let mut wire = node.wire();
        let mut slugs: Vec<String> = (0..20).map(|number| format!("both-{number}")).collect();
        for slug in &slugs {
            make(&mut wire, "", slug);
        }
        slugs.iter().step_by(2).for_each(|slug| _ = make(&mut wire, "go.test", slug));
        for (number, slug) in slugs.iter().enumerate() {
            let path = format!("/{slug}");
            let of_go = if number % 2 == 0 { target("go.test", slug) } else { target("", slug) };
            assert_eq!(leads(&node, "go.test", &path), of_go);
            assert_eq!(leads(&node, "s.test", &path), target("", slug));
            assert_eq!(status(&node, "other.test", &path), 404);
        }
        // One's own that has ended, or has not begun, is not covered up.
        let over =
            json!({"longUrl": TARGET, "customSlug": "over", "domain": "go.test", "validUntil": "2020-01-01T00:00:00Z"});
        let early = json!({"longUrl": TARGET, "customSlug": "early", "domain": "go.test", "validSince": "2090-01-01T00:00:00Z"});
        create(&mut wire, &over);
        create(&mut wire, &early);
        ["over", "early"].iter().for_each(|slug| _ = make(&mut wire, "", slug));
        assert_eq!(status(&node, "go.test", "/over"), 410);
        assert_eq!(status(&node, "go.test", "/early"), 404);
        // What is deleted is; visits are those of the link that is followed.
        assert_eq!(wire.ask("DELETE", &format!("{SHORT_URLS}/both-0?domain=go.test"), "", b"").status, 204);
        assert_eq!(leads(&node, "go.test", "/both-0"), target("", "both-0"));
        create(&mut wire, &json!({"longUrl": TARGET, "customSlug": "few", "maxVisits": 8}));
        assert_eq!(leads(&node, "go.test", "/few"), TARGET);
        assert_eq!(status(&node, "go.test", "/few"), 410);
        assert_eq!(status(&node, "s.test", "/few"), 410);
        assert_eq!(status(&node, "go.test", "/few+"), 410);
        assert_eq!(status(&node, "go.test", "/both-1+"), 200);
        assert_eq!(status(&node, "go.test", "/none"), 404);
        // Each request is counted once, over both ways.
        let counted = |node: &Node| {
            let status = node.status();
            (sum(&status, "/redirects"), sum(&status, "/misses"))
        };
        let (redirects, misses) = counted(&node);
        leads(&node, "go.test", "/both-1");
        ["/none", "/none-2"].iter().for_each(|path| _ = status(&node, "go.test", path));
        status(&node, "other.test", "/both-1");
        assert_eq!(counted(&node), (redirects + 8, misses + 24));
        // Many at once over one connection, on other cores too.
        slugs.truncate(10);
        let mut many = node.wire();
        let asked: Vec<u8> =
            slugs.iter().flat_map(|slug| request_at("go.test", "GET", &format!("/{slug}"), "", b"")).collect();
        many.send(&asked);
        for (number, slug) in slugs.iter().enumerate() {
            let own = if number % 2 == 0 && number > 0 { "go.test" } else { "" };
            assert_eq!(many.reply().location(), target(own, slug));
        }
        drop((wire, many));
        let node = node.restart();
        assert_eq!(leads(&node, "go.test", "/both-1"), target("", "both-1"));
        assert_eq!(leads(&node, "go.test", "/both-2"), target("go.test", "both-2"));
        node.terminate();
    }
}

#[test]
fn missing_and_expired_links_redirect() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let serve = format!(
            "https://go.test home={TARGET} not_found={LOST} expired={ENDED}, https://plain.test, https://s.test not_found={LOST}?default"
        );
        // A link that ended long ago stays, however long the test takes.
        let setup =
            setup(dir.path(), cores).env("CAROM_DOMAINS_SERVE", &serve).env("CAROM_LINKS_KEEP_EXPIRED", "forever");
        let node = setup.clone().env("CAROM_DOMAINS_UNKNOWN_HOST", "misdirected").start();
        let mut wire = node.wire();
        for domain in ["go.test", "plain.test", "s.test"] {
            create(
                &mut wire,
                &json!({"longUrl": TARGET, "customSlug": "over", "domain": domain, "validUntil": "2020-01-01T00:00:00Z"}),
            );
            create(&mut wire, &json!({"longUrl": TARGET, "customSlug": "once", "domain": domain, "maxVisits": 1}));
            make(&mut wire, domain, "here");
        }
        let misses = sum(&node.status(), "/misses");
        for path in ["/none", "/none+", "/no/such/path", "/%20"] {
            assert_eq!(leads(&node, "go.test", path), LOST, "{path}");
            assert_eq!(leads(&node, "plain.test", path), "404", "{path}");
            assert_eq!(leads(&node, "s.test", path), format!("{LOST}?default"), "{path}");
            assert_eq!(leads(&node, "other.test", path), "421", "{path}");
        }
        assert!(sum(&node.status(), "/misses") > misses);
        assert_eq!(leads(&node, "go.test", "/over"), ENDED);
        assert_eq!(leads(&node, "go.test", "/over+"), ENDED);
        assert_eq!(leads(&node, "plain.test", "/over"), "410");
        assert_eq!(leads(&node, "s.test", "/over"), "410");
        assert_eq!(node.wire().get_at("go.test", "/once").location(), TARGET);
        assert_eq!(leads(&node, "go.test", "/once"), ENDED);
        assert_eq!(leads(&node, "other.test", "/here"), "421");
        assert_eq!(leads(&node, "go.test", "/here"), target("go.test", "here"));
        // The root, and what is asked of the service itself.
        assert_eq!(leads(&node, "go.test", "/"), TARGET);
        assert_eq!(leads(&node, "plain.test", "/"), "200");
        assert_eq!(leads(&node, "other.test", "/"), "421");
        assert_eq!(leads(&node, "other.test", "/rest/health"), "200");
        // No browser keeps where it is led; who posts is not led.
        let fast = wire.get_at("go.test", "/none");
        assert_eq!((fast.status, fast.field("cache-control")), (302, Some("private, max-age=0")));
        wire.get("/rest/health");
        let slow = wire.get_at("go.test", "/none");
        assert_eq!(slow.lasting_fields(), fast.lasting_fields());
        wire.send(&request_at("go.test", "POST", "/no/such", "", b""));
        assert_eq!(wire.reply().status, 404);
        is_described(&node, "get", "/{shortCode}", &slow);
        is_described(&node, "get", "/{shortCode}+", &wire.get_at("go.test", "/none+"));
        is_described(&node, "get", "/", &wire.get_at("go.test", "/"));
        is_described(&node, "get", "/robots.txt", &wire.get_at("other.test", "/robots.txt"));
        let page = wire.ask("GET", "/none", "Accept: text/html\r\n", b"");
        is_described(&node, "get", "/{shortCode}", &page);
        assert_eq!(page.status, 421, "{page:?}");
        assert!(page.text().contains(Notice::Misdirected.heading()), "{page:?}");
        let shown = wire.get("/rest/v3/domains").json()["domains"].clone();
        assert_eq!(
            shown["data"][1]["redirects"],
            json!({"baseUrlRedirect": TARGET, "regular404Redirect": LOST, "invalidShortUrlRedirect": LOST, "expiredShortUrlRedirect": ENDED})
        );
        assert_eq!(shown["defaultRedirects"]["invalidShortUrlRedirect"], format!("{LOST}?default"));
        drop(wire);
        node.terminate();
    }
}

#[test]
fn robots_txt_lists_links_of_the_domain() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        let mut wire = node.wire();
        for domain in ["", "go.test"] {
            let slug = format!("open-{}", domain.len());
            create(&mut wire, &json!({"longUrl": TARGET, "customSlug": slug, "domain": domain, "crawlable": true}));
        }
        let robots = |wire: &mut Wire, host: &str| wire.get_at(host, "/robots.txt").text().to_owned();
        assert_eq!(robots(&mut wire, "go.test"), "User-agent: *\nAllow: /open-7\nDisallow: /\n");
        assert_eq!(robots(&mut wire, "s.test"), "User-agent: *\nAllow: /open-0\nDisallow: /\n");
        assert_eq!(robots(&mut wire, "xn--bcher-kva.test"), "User-agent: *\nDisallow: /\n");
        // It follows each change, and nobody takes it for a tag.
        create(&mut wire, &json!({"longUrl": TARGET, "customSlug": "late", "domain": "go.test", "crawlable": true}));
        let two = robots(&mut wire, "go.test");
        assert!(two.contains("Allow: /late\n"), "{two}");
        assert!(two.contains("Allow: /open-7\n"), "{two}");
        assert_eq!(two.lines().count(), 4, "{two}");
        assert_eq!(wire.ask("DELETE", &format!("{SHORT_URLS}/open-7?domain=go.test"), "", b"").status, 204);
        assert_eq!(robots(&mut wire, "go.test"), "User-agent: *\nAllow: /late\nDisallow: /\n");
        assert_eq!(wire.get("/rest/v3/tags").json()["tags"]["data"], json!([]));
        assert_eq!(wire.get_at("other.test", "/robots.txt").status, 404);
        node.terminate();
    }
}

#[test]
fn changed_default_domain_raises_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let node = setup(dir.path(), 1).start();
    make(&mut node.wire(), "go.test", "old");
    assert_eq!(crate::support::alarms::alarms(&node.status()), [""; 0]);
    node.terminate();
    let moved = Setup::new(dir.path())
        .argument("--base-url")
        .argument("https://go.test")
        .env("CAROM_DOMAINS_SERVE", "https://s.test");
    let node = moved.expect("alarm=\"domain_hidden\"").start();
    assert_eq!(crate::support::alarms::alarms(&node.status()), ["domain_hidden"]);
    crate::support::alarms::is_seen(&node, "domain_hidden");
    assert_eq!(status(&node, "go.test", "/old"), 404);
    assert_eq!(status(&node, "s.test", "/old"), 404);
    node.terminate();
}

/// Runs a command of carom with some input, and returns its output.
fn run(setup: &Setup, arguments: &[&str], input: &str) -> String {
    let mut command = Command::new(CAROM);
    command.args(arguments).arg("--data-dir").arg(setup.data_dir()).env("CAROM_BASE_URL", "https://s.test");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn removed_domain_keeps_links_and_exports() {
    let dir = tempfile::tempdir().unwrap();
    let with = setup(dir.path(), 1);
    let lines = "{\"shortCode\":\"a\",\"longUrl\":\"https://example.org/1\",\"domain\":\"go.test\"}\n\
                 {\"shortCode\":\"a\",\"longUrl\":\"https://example.org/2\",\"domain\":\"S.test\"}\n\
                 {\"shortCode\":\"a\",\"longUrl\":\"https://example.org/3\",\"domain\":\"later.test\"}\n\
                 {\"longUrl\":\"https://example.org/4\",\"domain\":\"go.test\"}\n";
    run(&with, &["import", "-"], lines);
    let node = with.start();
    assert_eq!(leads(&node, "go.test", "/a"), "https://example.org/1");
    assert_eq!(leads(&node, "s.test", "/a"), "https://example.org/2");
    assert_eq!(status(&node, "later.test", "/a"), 404);
    let listed = codes(&node.wire().get(&format!("{SHORT_URLS}?domain=go.test")));
    assert_eq!(listed.len(), 2);
    let issued = listed.iter().find(|url| !url.ends_with("/a")).unwrap();
    assert_eq!(leads(&node, "go.test", issued.strip_prefix("https://go.test").unwrap()), "https://example.org/4");
    let later = node.wire().get(&format!("{SHORT_URLS}/a?domain=later.test")).json();
    assert_eq!(&later["shortUrl"], &json!("http://later.test/a"));
    assert_eq!(&later["domain"], &json!("later.test"));
    let found = |term: &str| codes(&node.wire().get(&format!("{SHORT_URLS}?searchTerm={term}")));
    assert_eq!(found("ATER.te"), ["http://later.test/a"]);
    assert_eq!(found("go.test").len(), 2);
    node.terminate();
    let exported = run(&with, &["export", "-"], "");
    let other = tempfile::tempdir().unwrap();
    let copy = setup(other.path(), 1).env("CAROM_DOMAINS_SERVE", "https://later.test");
    run(&copy, &["import", "-"], &exported);
    let mut again: Vec<String> = run(&copy, &["export", "-"], "").lines().map(str::to_owned).collect();
    let mut before: Vec<&str> = exported.lines().collect();
    again.sort();
    before.sort_unstable();
    assert_eq!(again, before);
    let node = copy.start();
    assert_eq!(leads(&node, "later.test", "/a"), "https://example.org/3");
    assert_eq!(leads(&node, "go.test", "/a"), "404");
    // None configured: any host means the default domain, and no other link is given away.
    let bare = Setup::new(other.path()).argument("--base-url").argument("https://s.test");
    drop(node.terminate());
    let node = bare.start();
    assert_eq!(leads(&node, "go.test", "/a"), "https://example.org/2");
    assert_eq!(leads(&node, "x", "/a"), "https://example.org/2");
    assert_eq!(node.wire().get(&format!("{SHORT_URLS}/a?domain=go.test")).json()["longUrl"], "https://example.org/1");
    node.terminate();
}

#[test]
fn part_of_a_unicode_name_finds_its_links() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).start();
        let mut wire = node.wire();
        create(&mut wire, &json!({"longUrl": TARGET, "domain": "go.test", "customSlug": "other"}));
        create(&mut wire, &json!({"longUrl": TARGET, "domain": "b\u{fc}cher.test", "customSlug": "one"}));
        for term in ["%C3%BCch", "B%C3%9CCHER", "%C3%BCcher.te", "xn--bcher", "kva.test"] {
            let found = codes(&wire.get(&format!("{SHORT_URLS}?searchTerm={term}")));
            assert_eq!(found, ["http://xn--bcher-kva.test:8080/one"], "{term}");
        }
        node.terminate();
    }
}

#[test]
fn bitly_and_yourls_select_a_domain() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = setup(dir.path(), cores).all_interfaces().start();
        let mut wire = node.wire();
        make(&mut wire, "", "same");
        make(&mut wire, "go.test", "same");
        let bitly = |wire: &mut Wire, path: &str, body: &Value| {
            wire.ask("POST", path, JSON, body.to_string().as_bytes()).json()
        };
        let made = bitly(&mut wire, "/v4/shorten", &json!({"long_url": "https://example.org/b", "domain": "go.test"}));
        assert!(made["link"].as_str().unwrap().starts_with("https://go.test/"), "{made}");
        let foreign =
            bitly(&mut wire, "/v4/shorten", &json!({"long_url": "https://example.org/b", "domain": "bit.ly"}));
        assert!(foreign["link"].as_str().unwrap().starts_with("https://s.test/"), "{foreign}");
        for (id, domain) in [("go.test/same", "go.test"), ("s.test/same", ""), ("bit.ly/same", ""), ("same", "")] {
            let expanded = bitly(&mut wire, "/v4/expand", &json!({"bitlink_id": id}));
            assert_eq!(expanded["long_url"], target(domain, "same"), "{id}");
        }
        // YOURLS is asked at the domain that it serves.
        let url = node.url("/yourls-api.php?action=shorturl&format=simple&url=https://example.org/y&keyword=y");
        assert_eq!(curl(&["-H", "Host: go.test", &url]).text(), "https://go.test/y");
        assert_eq!(curl(&[&url]).text(), "https://s.test/y");
        for (host, short_url, domain) in [
            ("go.test", "same", "go.test"),
            ("s.test", "same", ""),
            ("s.test", "https://go.test/same", "go.test"),
            ("other", "same", ""),
        ] {
            let url = node.url(&format!("/yourls-api.php?action=expand&format=simple&shorturl={short_url}"));
            assert_eq!(curl(&["-H", &format!("Host: {host}"), &url]).text(), target(domain, "same"));
        }
        let totals = |host: &str| {
            let url = node.url("/yourls-api.php?action=db-stats&format=json");
            curl(&["-H", &format!("Host: {host}"), &url]).json()["db-stats"]["total_links"].clone()
        };
        assert_eq!(totals("go.test"), json!("3"));
        assert_eq!(totals("s.test"), json!("3"));
        assert_eq!(totals("xn--bcher-kva.test"), json!("0"));
        // A link of another domain is no answer, although the REST API would return it.
        let url = node.url("/yourls-api.php?action=shorturl&format=simple&url=https://example.org/z");
        let [first, other, again] = ["go.test", "s.test", "go.test"]
            .map(|host| curl(&["-H", &format!("Host: {host}"), &url]).text().to_owned());
        assert!(first.starts_with("https://go.test/"), "{first} {other}");
        assert!(other.starts_with("https://s.test/"), "{first} {other}");
        assert_eq!(again, first);
        drop(wire);
        node.terminate();
    }
}
