//! Links of other shorteners, imported from a server that answers as their APIs do, and from their exports.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::domains::{leads, setup};
use crate::support::http::SHORT_URLS;
use crate::support::node::{CAROM, Node, Setup};

/// A request as the other shortener sees it.
struct Asked {
    path: String,
    /// Header fields, names in lower case.
    fields: Vec<(String, String)>,
    body: String,
}

impl Asked {
    fn field(&self, name: &str) -> &str {
        self.fields.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value.as_str())
    }

    /// A parameter of the query or of the form.
    fn parameter(&self, name: &str) -> Option<String> {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').chain(self.body.split('&')).filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    }
}

/// A server whose answers the test decides. It ends with the process.
struct Other {
    address: SocketAddr,
    /// Paths that were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Other {
    fn start(answer: impl Fn(&Asked) -> (u16, Value) + Send + 'static) -> Other {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let _ = serve(stream.unwrap(), &answer, &seen);
            }
        });
        Other { address, asked }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(
    stream: TcpStream,
    answer: &impl Fn(&Asked) -> (u16, Value),
    seen: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut fields = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        fields.push((name.to_lowercase(), value.to_owned()));
    }
    let mut asked = Asked { path, fields, body: String::new() };
    let len = asked.field("content-length").parse().unwrap_or(0);
    reader.take(len).read_to_string(&mut asked.body)?;
    seen.lock().unwrap().push(asked.path.clone());
    let (status, body) = answer(&asked);
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} Status\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = stream;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Runs an import into a data directory, with the domains of the node that is started later.
fn import(setup: &Setup, arguments: &[&str]) -> Output {
    let mut command = Command::new(CAROM);
    command.args(["import", "--data-dir"]).arg(setup.data_dir()).args(arguments);
    command.env("CAROM_BASE_URL", "https://s.test").env("CAROM_DOMAINS_SERVE", "https://go.test");
    command.env("CAROM_IMPORT_KEY", "the-key");
    command.output().unwrap()
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn ended(output: &Output, code: i32, text: &str) {
    let told = told(output);
    assert!(output.status.code() == Some(code), "{:?} {text}: {told}", output.status);
    assert!(told.contains(text), "{:?} {text}: {told}", output.status);
    assert!(!told.contains("the-key"), "{told}");
}

fn visits(node: &Node, path: &str) -> Value {
    node.wire().get(&format!("{SHORT_URLS}/{path}")).json()["visitsSummary"].clone()
}

fn findings(path: &Path) -> Vec<Value> {
    std::fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The links of a Shlink server, as its API shows them.
fn shlink_links() -> Vec<Value> {
    let link = |code: &str, more: Value| {
        let mut link = json!({"shortCode": code, "shortUrl": format!("https://old.example/{code}"),
            "longUrl": format!("https://example.org/{code}"), "dateCreated": "2025-06-01T12:00:00+02:00",
            "visitsSummary": {"total": 0, "nonBots": 0, "bots": 0}, "tags": [],
            "meta": {"validSince": null, "validUntil": null, "maxVisits": null}, "domain": null, "title": null,
            "crawlable": false, "forwardQuery": true, "hasRedirectRules": false});
        link.as_object_mut().unwrap().append(&mut more.as_object().unwrap().clone());
        link
    };
    let mut links = vec![
        link(
            "sale",
            json!({"visitsSummary": {"total": 12, "nonBots": 9, "bots": 3}, "tags": ["a", "b"], "title": "Sale"}),
        ),
        link("sale", json!({"domain": "go.test", "longUrl": "https://example.org/go"})),
        link(
            "over",
            json!({"meta": {"validSince": null, "validUntil": "2026-01-01T00:00:00+00:00", "maxVisits": null}}),
        ),
        link(
            "few",
            json!({"meta": {"validSince": null, "validUntil": null, "maxVisits": 5},
            "visitsSummary": {"total": 4, "nonBots": 4, "bots": 0}}),
        ),
        link("rules", json!({"hasRedirectRules": true})),
        link("sp ace", json!({})),
        link("ftp", json!({"longUrl": "ftp://example.org/"})),
        link("away", json!({"domain": "not-ours.test"})),
    ];
    links.extend((0..1_000).map(|number| link(&format!("n{number}"), json!({"visitsSummary": {"total": number}}))));
    links
}

/// A Shlink server. Page 2 fails `failures` times with that status.
fn shlink(failures: u64, status: u16) -> Other {
    let (links, failed) = (shlink_links(), AtomicU64::new(0));
    Other::start(move |asked| {
        if asked.field("x-api-key") != "the-key" {
            return (
                401,
                json!({"title": "Invalid API key", "detail": "Provided API key does not exist or is invalid."}),
            );
        }
        if asked.path == "/rest/v3/short-urls/rules/redirect-rules" {
            let condition = json!({"type": "query-param", "matchKey": "to", "matchValue": "special"});
            let rule = json!({"longUrl": "https://example.org/special", "priority": 1, "conditions": [condition]});
            return (200, json!({"defaultLongUrl": "https://example.org/rules", "redirectRules": [rule]}));
        }
        // In any other order, links may come twice or never.
        if asked.parameter("orderBy").as_deref() != Some("shortCode-ASC") {
            return (400, json!({"detail": "the pages overlap"}));
        }
        let number = |name| asked.parameter(name).and_then(|text| text.parse::<usize>().ok()).unwrap();
        let (page, per_page) = (number("page"), number("itemsPerPage"));
        if page == 2 && failed.fetch_add(1, Ordering::Relaxed) < failures {
            return (status, json!({"detail": "not now"}));
        }
        let shown: Vec<&Value> = links.iter().skip((page - 1) * per_page).take(per_page).collect();
        let pages = links.len().div_ceil(per_page);
        let pagination = json!({"currentPage": page, "pagesCount": pages, "itemsPerPage": per_page,
            "itemsInCurrentPage": shown.len(), "totalItems": links.len()});
        (200, json!({"shortUrls": {"data": shown, "pagination": pagination}}))
    })
}

#[test]
fn links_of_shlink_move_in_with_their_visits() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 2).env("CAROM_LINKS_KEEP_EXPIRED", "forever");
    let report = dir.path().join("report.ndjson");
    let other = shlink(0, 0);
    let url = other.url();
    let arguments = ["--from", "shlink", "--url", &url, "--report", report.to_str().unwrap()];
    let dry = import(&setup, &[&arguments[..], &["--dry-run"]].concat());
    ended(&dry, 1, "dry run: would import 1");
    assert!(told(&dry).contains("does not check whether slugs are taken"), "{}", told(&dry));
    assert!(!setup.data_dir().exists(), "a dry run creates nothing");
    let first = import(&setup, &arguments);
    ended(&first, 1, "3 rejected");
    let named: Vec<(u64, String)> = findings(&report)
        .iter()
        .map(|one| (one["line"].as_u64().unwrap(), one["shortUrl"].as_str().unwrap().to_owned()))
        .collect();
    assert_eq!(named, [(6, "sp ace".to_owned()), (7, "ftp".to_owned()), (8, "not-ours.test/away".to_owned())]);
    for part in ["line 6 (sp ace)", "longUrl is neither http", "not-ours.test is not served"] {
        assert!(told(&first).contains(part), "{part}: {}", told(&first));
    }
    // A repetition takes nothing twice.
    let again = import(&setup, &[&arguments[..], &["--dry-run"]].concat());
    ended(&again, 1, "dry run: would import 0 links");
    assert!(!told(&again).contains("does not check"), "{}", told(&again));
    ended(&import(&setup, &arguments), 1, "imported 0 links, 1005 unchanged, 3 rejected");
    let node = setup.start();
    assert_eq!(leads(&node, "s.test", "/sale"), "https://example.org/sale");
    assert_eq!(leads(&node, "go.test", "/sale"), "https://example.org/go");
    assert_eq!(leads(&node, "s.test", "/over"), "410");
    assert_eq!(leads(&node, "s.test", "/rules?to=special"), "https://example.org/special?to=special");
    let sale = node.wire().get(&format!("{SHORT_URLS}/sale")).json();
    assert_eq!((&sale["tags"], &sale["title"]), (&json!(["a", "b"]), &json!("Sale")));
    assert_eq!(sale["dateCreated"], "2025-06-01T10:00:00+00:00");
    assert_eq!(sale["visitsSummary"]["bots"], json!(3), "{sale}");
    assert!(sale["visitsSummary"]["total"].as_u64() >= Some(12), "{sale}");
    assert_eq!(visits(&node, "n999")["total"], json!(999));
    // Four of its five visits were at the other shortener.
    let few: Vec<u16> = (0..3).map(|_| node.wire().get_at("s.test", "/few").status).collect();
    assert_eq!(few, [302, 410, 410]);
    let all = node.wire().get("/rest/v3/visits").json()["visits"].to_string();
    let total = node.wire().get("/rest/v3/visits").json()["visits"]["nonOrphanVisits"]["total"].as_u64();
    assert!(total >= Some(999 * 500 + 16), "{all}");
    node.terminate();
}

#[test]
fn an_interrupted_import_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 2);
    // A page that fails for a moment is asked for again.
    let other = shlink(2, 503);
    ended(&import(&setup, &["--from", "shlink", "--url", &other.url(), "--dry-run"]), 1, "would import 1,005 links");
    assert_eq!(other.asked().iter().filter(|path| path.contains("page=2&")).count(), 3);
    // A page that is refused ends the import, after everything before it.
    let other = shlink(1, 400);
    let arguments = ["--from", "shlink", "--url", &other.url()].map(str::to_owned);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let first = import(&setup, &arguments);
    ended(&first, 1, "not all links could be read");
    assert!(told(&first).contains("imported 497 links"), "{}", told(&first));
    assert!(told(&first).contains("400 (not now)"), "{}", told(&first));
    let second = import(&setup, &arguments);
    ended(&second, 1, "imported 508 links");
    assert!(told(&second).contains("497 unchanged"), "{}", told(&second));
    let key = dir.path().join("key");
    std::fs::write(&key, "wrong\n").unwrap();
    let refused = import(&setup, &[&arguments[..], &["--key-file", key.to_str().unwrap()]].concat());
    ended(&refused, 1, "check the key");
}

#[test]
fn links_that_change_pages_are_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let links = shlink_links().split_off(8);
    // While the pages are read, a link is created on the first one, and moves its last link to the second.
    let other = Other::start(move |asked| {
        let shown = if asked.parameter("page").as_deref() == Some("1") { &links[..2] } else { &links[1..3] };
        (200, json!({"shortUrls": {"data": shown, "pagination": {"pagesCount": 2, "totalItems": 4}}}))
    });
    let dry = import(&setup, &["--from", "shlink", "--url", &other.url(), "--dry-run"]);
    ended(&dry, 0, "would import 3 links");
    assert!(told(&dry).contains("announced 4 links and returned 3"), "{}", told(&dry));
    // YOURLS sorts links of one second as it likes: one comes twice, and another one never.
    let yourls = Other::start(|asked| {
        let link = |keyword: &str| {
            json!({"shorturl": format!("https://s.test/{keyword}"), "url": "https://example.org/yourls",
                "timestamp": "2025-06-01 10:00:00", "clicks": "0"})
        };
        let links = match asked.parameter("start").as_deref() {
            Some("0") => json!({"link_1": link("y1"), "link_2": link("y2")}),
            Some("2") => json!({"link_1": link("y2")}),
            _ => Value::Null,
        };
        (200, json!({"links": links, "stats": {"total_links": "3"}}))
    });
    let dry = import(&setup, &["--from", "yourls", "--url", &yourls.url(), "--dry-run"]);
    assert!(told(&dry).contains("announced 3 links and returned 2"), "{}", told(&dry));
}

#[test]
fn links_of_yourls_and_kutt_move_in() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let yourls = Other::start(|asked| {
        assert_eq!(
            (asked.path.as_str(), asked.parameter("signature").as_deref()),
            ("/yourls-api.php", Some("the-key"))
        );
        let stats = json!({"total_links": "2", "total_clicks": "9"});
        let link = |keyword: &str| {
            json!({"shorturl": format!("https://s.test/{keyword}"), "url": "https://example.org/yourls", "title": "Y",
                "timestamp": "2025-06-01 10:00:00", "ip": "192.0.2.1", "clicks": "7"})
        };
        match asked.parameter("start").as_deref() {
            Some("0") => (200, json!({"links": {"link_1": link("y1"), "link_2": link("y2")}, "stats": stats})),
            _ => (200, json!({"stats": stats, "statusCode": "200", "message": "success"})),
        }
    });
    ended(&import(&setup, &["--from", "yourls", "--url", &yourls.url()]), 0, "imported 2 links with 14 visits");
    let kutt = Other::start(|asked| {
        assert_eq!(asked.field("x-api-key"), "the-key");
        let link = |address: &str, password: bool| {
            json!({"id": address, "address": address, "target": "https://example.org/kutt", "password": password, "banned": false,
                "created_at": "2025-06-01T10:00:00.000Z", "expire_in": null, "visit_count": 3, "description": null, "domain": null})
        };
        // The user is no admin, and Kutt 2 has no list for admins.
        if asked.path.starts_with("/api/v2/links/admin") {
            return (404, json!({"error": "Not found."}));
        }
        assert_eq!(asked.parameter("all").as_deref(), Some("true"));
        let all = [link("k1", false), link("k2", true)];
        let skip: usize = asked.parameter("skip").unwrap().parse().unwrap();
        (200, json!({"total": 2, "limit": 50, "skip": skip, "data": all.iter().skip(skip).collect::<Vec<_>>()}))
    });
    ended(&import(&setup, &["--from", "kutt", "--url", &kutt.url()]), 1, "line 2 (k2): is protected by a password");
    let node = setup.start();
    for (path, target) in [("/y2", "yourls"), ("/k1", "kutt")] {
        assert_eq!(leads(&node, "s.test", path), format!("https://example.org/{target}"));
    }
    assert!(visits(&node, "k1")["total"].as_u64() >= Some(3));
    node.terminate();
}

#[test]
fn an_admin_of_kutt_moves_the_links_of_all_users() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let kutt = Other::start(|asked| {
        if !asked.path.starts_with("/api/v2/links/admin?") {
            return (404, json!({"error": "Not found."}));
        }
        let link = |address: &str, domain: (Value, &str)| {
            json!({"id": address, "address": address, "target": format!("https://example.org/{address}"), "password": false,
                "banned": 0, "created_at": "2025-06-01T10:00:00.000Z", "expire_in": null, "visit_count": "1,234",
                "description": null, "domain_id": domain.0, "domain": domain.1, "email": "user@example.org"})
        };
        let all = [link("k1", (json!(null), "kutt.example")), link("k2", (json!(5), "go.test"))];
        let skip: usize = asked.parameter("skip").unwrap().parse().unwrap();
        (200, json!({"total": 2, "limit": 50, "skip": skip, "data": all.iter().skip(skip).collect::<Vec<_>>()}))
    });
    ended(&import(&setup, &["--from", "kutt", "--url", &kutt.url()]), 0, "imported 2 links with 2,468 visits");
    let node = setup.start();
    assert_eq!(leads(&node, "s.test", "/k1"), "https://example.org/k1");
    assert_eq!(leads(&node, "go.test", "/k2"), "https://example.org/k2");
    node.terminate();
}

#[test]
fn links_of_bitly_move_in() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let bitly = Other::start(|asked| {
        assert_eq!(asked.field("authorization"), "Bearer the-key");
        let link = |id: &str, custom: Value| {
            json!({"id": id, "link": format!("https://{id}"), "custom_bitlinks": custom, "title": "B", "tags": ["t"],
                "long_url": "https://example.org/bitly", "created_at": "2025-06-01T10:00:00+0000", "archived": false, "deeplinks": []})
        };
        match asked.path.split('?').next().unwrap() {
            "/v4/groups" => (200, json!({"groups": [{"guid": "G1"}]})),
            "/v4/groups/G1/bitlinks" => match asked.parameter("search_after").as_deref() {
                None => (
                    200,
                    json!({"links": [link("bit.ly/b1", json!(["https://go.test/b-sale"]))], "pagination": {"search_after": "x=="}}),
                ),
                Some("x%3D%3D") => {
                    (200, json!({"links": [link("go.test/b2", json!([]))], "pagination": {"search_after": ""}}))
                }
                other => panic!("{other:?}"),
            },
            "/v4/bitlinks/bit.ly/b1/clicks/summary" => (200, json!({"total_clicks": 5})),
            "/v4/bitlinks/go.test/b2/clicks/summary" => (200, json!({"total_clicks": 0})),
            other => panic!("{other}"),
        }
    });
    ended(
        &import(&setup, &["--from", "bitly", "--url", &bitly.url()]),
        1,
        "line 2 (bit.ly/b1): the domain bit.ly is not served",
    );
    let mapped = import(&setup, &["--from", "bitly", "--url", &bitly.url(), "--map-domain", "bit.ly=DEFAULT"]);
    ended(&mapped, 0, "imported 1 link, 2 unchanged");
    let node = setup.start();
    for (host, path) in [("go.test", "/b-sale"), ("s.test", "/b1"), ("go.test", "/b2")] {
        assert_eq!(leads(&node, host, path), "https://example.org/bitly");
    }
    assert!(visits(&node, "b-sale?domain=go.test")["total"].as_u64() >= Some(5));
    node.terminate();
}

#[test]
fn exports_are_read_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let setup = setup(&dir.path().join("data"), 1);
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let sql = file(
        "yourls.sql",
        "-- MySQL dump\nINSERT INTO `yourls_url` VALUES ('q1','https://example.org/sql','It\\'s','2025-06-01 10:00:00','::1',4),\n('q.2','https://example.org/','','2025-06-01 10:00:00','::1',0);\n",
    );
    ended(&import(&setup, &["--from", "yourls", &sql]), 1, "line 2 (q.2): shortCode");
    let table = file(
        "links.csv",
        "slug;url;tags;clicks;created\nc1;https://example.org/csv;a|b;6;2025-06-01\n;https://example.org/;;;\nc2;https://example.org/csv;;many;\n",
    );
    ended(&import(&setup, &["--from", "csv", &table]), 1, "imported 1 link with 6 visits");
    let pages = file("shlink.json", &format!("{{\"shortUrls\":{{\"data\":{}}}}}\n", json!(shlink_links()[..2])));
    ended(&import(&setup, &["--from", "shlink", &pages]), 0, "imported 2 links with 12 visits");
    for (arguments, text) in [
        (&["--from", "kutt"][..], "--url"),
        (&["--from", "csv"], "needs a file"),
        (&["--from", "csv", &pages], "the first line of the file"),
        (&["--from", "bitly", &table, "--map-domain", "bit.ly=nowhere.test"], "does not serve nowhere.test"),
    ] {
        let output = import(&setup, arguments);
        assert!(!output.status.success(), "{arguments:?}: {}", told(&output));
        assert!(told(&output).contains(text), "{arguments:?}: {}", told(&output));
    }
    let node = setup.start();
    for (host, path, target) in [("s.test", "/q1", "sql"), ("s.test", "/c1", "csv"), ("go.test", "/sale", "go")] {
        assert_eq!(leads(&node, host, path), format!("https://example.org/{target}"));
    }
    assert_eq!(visits(&node, "c1")["bots"], json!(0));
    node.terminate();
}
