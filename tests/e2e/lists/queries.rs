//! Lists: each write shows in the next list, in every order and with every filter, also after a restart, after an
//! import, and on data of an earlier version.

use std::fs;
use std::process::Command;

use carom_store::links::{Index, Links};
use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire, request};
use crate::support::links::{change, on_every_kind};
use crate::support::node::{CAROM, Node, Setup, wait_for, wait_until};

const TAGS: &str = "/rest/v3/tags";

/// The codes of a page and where it stands among others.
fn page(wire: &mut Wire, query: &str) -> (Vec<String>, Value) {
    let reply = wire.get(&format!("{SHORT_URLS}?{query}"));
    assert_eq!(reply.status, 200, "{query}: {reply:?}");
    let list = reply.json();
    let data = list["shortUrls"]["data"].as_array().unwrap();
    let codes = data.iter().map(|link| link["shortCode"].as_str().unwrap().to_owned()).collect();
    (codes, list["shortUrls"]["pagination"].clone())
}

fn codes(wire: &mut Wire, query: &str) -> Vec<String> {
    page(wire, query).0
}

fn wrong_fields(wire: &mut Wire, path: &str) -> Vec<String> {
    let problem = wire.get(path).problem(400, "invalid-data");
    serde_json::from_value(problem["invalidElements"].clone()).unwrap()
}

/// The counts come a moment after the start.
fn counted(node: &Node) {
    // Counts of tags may be whole before those of dates.
    wait_until("counts for lists", || node.log().contains("counted all links"));
}

/// Makes 25 links with tags and titles. Returns their slugs in order.
fn make_links(node: &Node) -> Vec<String> {
    let mut wire = node.wire();
    let make = |number: u32| {
        let slug = format!("link-{number:02}");
        let target = format!("https://example.org/{}", 99 - number);
        let tags: &[&str] = if number.is_multiple_of(2) { &["even"] } else { &["Odd", "third kind"] };
        let title = format!("Title {}", number % 5);
        let made = json!({"longUrl": target, "customSlug": slug, "tags": tags, "title": title});
        assert_eq!(wire.create(&made).status, 200);
        slug
    };
    (0..25).map(make).collect()
}

/// Checks a node of each kind with the links of [`make_links`], and once more after a restart.
fn over_a_restart(check: impl Fn(&Node, &[String])) {
    on_every_kind(|setup| {
        let node = setup.start();
        let slugs = make_links(&node);
        counted(&node);
        check(&node, &slugs);
        let node = node.restart();
        counted(&node);
        check(&node, &slugs);
        node.terminate();
    });
}

#[test]
fn new_node_has_no_links() {
    on_every_kind(|setup| {
        let node = setup.start();
        assert_eq!(codes(&mut node.wire(), ""), Vec::<String>::new());
        node.terminate();
    });
}

#[test]
fn page_numbers_and_cursors_agree() {
    over_a_restart(|node, slugs| {
        let mut wire = node.wire();
        let (first, about) = page(&mut wire, "");
        assert_eq!(first.len(), 10);
        assert_eq!(about["itemsPerPage"], 10);
        assert_eq!(about["complete"], true);
        let counts = ["currentPage", "pagesCount", "itemsInCurrentPage", "totalItems"].map(|name| about[name].as_u64());
        assert_eq!(counts, [Some(1), Some(3), Some(10), Some(25)]);
        let mut all = first;
        let mut cursor = about["cursor"].as_str().map(str::to_owned);
        for number in 2..=3 {
            let (by_number, _) = page(&mut wire, &format!("page={number}"));
            let (by_cursor, about) = page(&mut wire, &format!("cursor={}", cursor.unwrap()));
            assert_eq!(by_number, by_cursor);
            assert_eq!(about["currentPage"], number);
            cursor = about["cursor"].as_str().map(str::to_owned);
            all.extend(by_number);
        }
        assert_eq!(cursor, None);
        // Each link is there once.
        let mut sorted = all.clone();
        sorted.sort();
        assert_eq!(sorted, slugs);
        all.reverse();
        assert_eq!(codes(&mut wire, "orderBy=dateCreated-ASC&itemsPerPage=25"), all);
    });
}

#[test]
fn orders_sort_by_slug_url_and_title() {
    over_a_restart(|node, slugs| {
        let mut wire = node.wire();
        assert_eq!(codes(&mut wire, "orderBy=shortCode&itemsPerPage=25"), slugs);
        assert_eq!(codes(&mut wire, "orderBy=shortCode&itemsPerPage=-1"), slugs);
        let reversed: Vec<String> = slugs.iter().rev().cloned().collect();
        assert_eq!(codes(&mut wire, "orderBy=longUrl-ASC&itemsPerPage=25"), reversed);
        let by_title = codes(&mut wire, "orderBy=title-DESC&itemsPerPage=25");
        let titles: Vec<usize> = by_title.iter().map(|slug| slug[5..].parse::<usize>().unwrap() % 5).collect();
        assert!(titles.is_sorted_by(|one, next| one >= next), "{by_title:?}");
    });
}

#[test]
fn filters_also_apply_to_exports() {
    over_a_restart(|node, _| {
        let mut wire = node.wire();
        for (query, total) in [
            ("tags[]=even", 13),
            ("tags%5B%5D=ODD", 12),
            ("tags[]=even&tags[]=odd", 25),
            ("tags[]=third+kind&tags[]=odd&tagsMode=all", 12),
            ("tags[]=even&tags[]=odd&tagsMode=all", 0),
            ("tags[]=none", 0),
            ("excludeTags[]=even", 12),
            ("excludeTags[]=even&excludeTags[]=odd", 0),
            ("excludeTags[]=even&excludeTags[]=odd&excludeTagsMode=all", 25),
            ("excludeTags[]=odd&excludeTags[]=third+kind&excludeTagsMode=all&tags[]=odd", 0),
            ("searchTerm=example.org/9&excludeTags[]=odd", 5),
            ("apiKeyName=nobody", 0),
            ("apiKeyName=A+key", 0),
            ("searchTerm=title%203", 5),
            ("searchTerm=example.org/9", 10),
            ("searchTerm=third", 12),
            ("searchTerm=example.org/9&tags[]=even", 5),
            ("startDate=2020-01-01", 25),
            ("endDate=2020-01-01T00:00:00Z", 0),
            ("startDate=2020-01-01T00:00:00+00:00&tags[]=even&excludePastValidUntil=true", 13),
            ("domain=DEFAULT", 25),
            ("domain=elsewhere.example", 0),
            (&format!("searchTerm={}", node.url("/link-07")), 1),
        ] {
            let (_, about) = page(&mut wire, query);
            assert_eq!(about["totalItems"], total, "{query}");
            assert_eq!(about["complete"], true, "{query}");
            assert_eq!(wire.get(&format!("{SHORT_URLS}/export?{query}")).text().lines().count(), total, "{query}");
        }
        let shown = wire.get(&format!("{SHORT_URLS}?searchTerm=LINK-07")).json();
        let alone = wire.get(&format!("{SHORT_URLS}/link-07")).json();
        assert_eq!(shown["shortUrls"]["data"], json!([alone]));
    });
}

#[test]
fn lists_show_each_write_at_once() {
    on_every_kind(|setup| {
        let node = setup.start();
        make_links(&node);
        counted(&node);
        let mut wire = node.wire();
        assert_eq!(wire.delete("link-03").status, 204);
        assert_eq!(change(&mut wire, "link-04", &json!({"tags": ["new"], "title": null})).status, 200);
        assert_eq!(codes(&mut wire, "tags[]=new"), ["link-04"]);
        assert_eq!(page(&mut wire, "tags[]=even").1["totalItems"], 12);
        assert!(!codes(&mut wire, "itemsPerPage=100").contains(&"link-03".to_owned()));
        let stats = wire.get("/rest/v3/tags/stats?orderBy=shortUrlsCount-DESC").json();
        let stats = stats["tags"]["data"].as_array().unwrap();
        let brief: Vec<String> =
            stats.iter().map(|one| format!("{} {}", one["tag"].as_str().unwrap(), one["shortUrlsCount"])).collect();
        assert_eq!(brief, ["even 12", "odd 11", "third-kind 11", "new 1"]);
        assert_eq!(stats[0]["visitsSummary"]["total"], 0);
        let tags = wire.get(&format!("{TAGS}?searchTerm=E&itemsPerPage=2")).json();
        assert_eq!(tags["tags"]["data"], json!(["even", "new"]));
        assert_eq!(tags["tags"]["pagination"]["totalItems"], 2);
        drop(wire);
        node.terminate();
    });
}

#[test]
fn lists_and_tags_show_visits() {
    on_every_kind(|setup| {
        let node = setup.start();
        make_links(&node);
        // Where visits are equal, the newer link stands first.
        counted(&node);
        for slug in ["link-01", "link-05"] {
            assert_eq!(node.wire().get(&format!("/{slug}")).status, 302);
        }
        let mut wire = node.wire();
        let stats = wire.get("/rest/v3/tags/stats?searchTerm=odd").json();
        assert_eq!(stats["tags"]["data"][0]["visitsSummary"], json!({"total": 2, "nonBots": 2, "bots": 0}));
        assert_eq!(codes(&mut wire, "orderBy=visits-DESC&itemsPerPage=2"), ["link-05", "link-01"]);
        let shown = wire.get(&format!("{SHORT_URLS}?searchTerm=link-05")).json();
        assert_eq!(shown["shortUrls"]["data"][0]["visitsSummary"]["total"], 1);
        drop(wire);
        node.terminate();
    });
}

#[test]
fn robots_txt_lists_crawlable_links() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wire = node.wire();
        let robots = |wire: &mut Wire| {
            let reply = wire.get("/robots.txt");
            assert_eq!((reply.status, reply.field("content-type")), (200, Some("text/plain; charset=utf-8")));
            String::from_utf8(reply.body).unwrap()
        };
        assert_eq!(robots(&mut wire), "User-agent: *\nDisallow: /\n");
        let crawlable = json!({"longUrl": "https://example.org/", "customSlug": "seen", "crawlable": true});
        assert_eq!(wire.create(&crawlable).status, 200);
        wire.shorten_as("unseen", "https://example.org/");
        let private = json!({"longUrl": "https://example.org/", "private": true, "crawlable": true});
        assert_eq!(wire.create(&private).status, 200);
        assert_eq!(robots(&mut wire), "User-agent: *\nAllow: /seen\nDisallow: /\n");
        assert_eq!(change(&mut wire, "unseen", &json!({"crawlable": true})).status, 200);
        assert_eq!(change(&mut wire, "seen", &json!({"crawlable": false})).status, 200);
        assert_eq!(robots(&mut wire), "User-agent: *\nAllow: /unseen\nDisallow: /\n");
        drop(wire);
        let node = node.restart();
        assert_eq!(robots(&mut node.wire()), "User-agent: *\nAllow: /unseen\nDisallow: /\n");
        // That is no tag of anybody's.
        counted(&node);
        assert_eq!(node.wire().get(TAGS).json()["tags"]["data"], json!([]));
    });
}

#[test]
fn invalid_parameters_are_named() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).argument("--base-url").argument("https://s.example").start();
    counted(&node);
    let mut wire = node.wire();
    for (query, field) in [
        ("page=0", "page"),
        ("page=-1", "page"),
        ("page=x", "page"),
        ("page=18446744073709551616", "page"),
        ("itemsPerPage=-2", "itemsPerPage"),
        ("itemsPerPage=0", "itemsPerPage"),
        ("itemsPerPage=501", "itemsPerPage"),
        ("orderBy=colour-ASC", "orderBy"),
        ("orderBy=title-UP", "orderBy"),
        ("tagsMode=some", "tagsMode"),
        ("tags[]=%00", "tags"),
        ("startDate=soon", "startDate"),
        ("endDate=1969-01-01T00:00:00Z", "endDate"),
        ("colour=red", "colour"),
        ("excludeTagsMode=some", "excludeTagsMode"),
        ("cursor=0", "cursor"),
        ("cursor=00", "cursor"),
        ("excludeMaxVisitsReached=2", "excludeMaxVisitsReached"),
        ("excludePastValidUntil=no", "excludePastValidUntil"),
    ] {
        assert_eq!(wrong_fields(&mut wire, &format!("{SHORT_URLS}?{query}")), [field], "{query}");
    }
    assert_eq!(wrong_fields(&mut wire, &format!("{TAGS}?page=0&orderBy=x")), ["orderBy", "page"]);
    // Nothing is there, and that is no mistake.
    for query in [
        "page=18446744073709551615",
        "page=2",
        "tags[]=&searchTerm=&cursor=&startDate=&endDate=",
        "searchTerm=%ff%fe",
        "&&=&",
    ] {
        assert_eq!(page(&mut wire, query).1["totalItems"], json!(0), "{query}");
    }
    for path in [SHORT_URLS, TAGS, "/rest/v3/tags/stats", "/rest/v3/domains"] {
        wire.send(&request("HEAD", path, "", b""));
        assert_eq!(wire.try_reply(true).unwrap().status, 200, "{path}");
        let reply = wire.ask("PATCH", path, "", b"");
        assert!(reply.problem(405, "method-not-allowed")["detail"].is_string());
        assert!(reply.field("allow").is_some());
    }
    let domains = wire.get("/rest/v3/domains").json();
    let only = &domains["domains"]["data"][0];
    assert_eq!(&only["domain"], &json!("s.example"));
    assert_eq!(&only["isDefault"], &json!(true));
    assert!(domains["domains"]["defaultRedirects"]["baseUrlRedirect"].is_null());
}

#[test]
fn imported_and_earlier_links_are_listed() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("links.ndjson");
    let line = |number: u64| {
        let date = format!("20{:02}-01-01T00:00:00+00:00", number % 20);
        let tags: &[&str] = if number.is_multiple_of(10) { &["ten"] } else { &[] };
        json!({"shortCode": format!("i{number}"), "longUrl": "https://example.org/", "dateCreated": date, "tags": tags})
    };
    let lines: Vec<String> = (0..3_000).map(|number| line(number).to_string() + "\n").collect();
    fs::write(&file, lines.concat()).unwrap();
    let store = data.path().join("store");
    for _ in 0..2 {
        let imported = Command::new(CAROM).args(["import", "--data-dir"]).arg(&store).arg(&file).output().unwrap();
        assert!(imported.status.success(), "{}", String::from_utf8_lossy(&imported.stderr));
    }
    let check = |node: &Node| {
        counted(node);
        let mut wire = node.wire();
        let (newest, about) = page(&mut wire, "itemsPerPage=1");
        assert!(newest[0].ends_with('9'));
        assert_eq!(&about["totalItems"], &json!(3_000));
        assert_eq!(codes(&mut wire, "itemsPerPage=1&page=3000"), ["i0"]);
        let (_, about) = page(&mut wire, "tags[]=ten&endDate=2009-12-31");
        assert_eq!(about["totalItems"], json!(150));
        assert_eq!(page(&mut wire, "startDate=2005-01-01&endDate=2005-01-01&page=15").0.len(), 10);
    };
    let node = Setup::new(&store).start();
    check(&node);
    node.terminate();
    let key = fs::read_to_string(store.join("space.key")).unwrap();
    let key = carom_shards::CodeSecret::from_hex(key.trim()).unwrap();
    let (links, _) = Links::open(&store.join("links"), &key.fingerprint()).unwrap();
    links.forget_index(Index::Lists).unwrap();
    assert!(!links.has_index(Index::Lists).unwrap());
    drop(links);
    check(&Setup::new(&store).start());
}

/// More links than are sorted at once.
#[test]
fn long_lists_are_sorted_page_by_page() {
    const LINKS: usize = carom_limits::LIST_SORTED_MAX + 40;
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(2).start();
    let mut wire = node.wire();
    // In the opposite order of the slugs, and some alike.
    let line = |number: usize| {
        let url = format!("https://example.org/{:05}", (LINKS - number) / 3);
        json!({"longUrl": url, "customSlug": format!("long-{number:05}"), "title": format!("T{:05}", number / 7)})
    };
    let lines: Vec<String> = (0..LINKS).map(|number| line(number).to_string()).collect();
    let kind = "Content-Type: application/x-ndjson\r\n";
    for lines in lines.chunks(500) {
        let reply = wire.ask("POST", &format!("{SHORT_URLS}/bulk"), kind, lines.join("\n").as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
    }
    counted(&node);
    for (order, field) in [("longUrl", "longUrl"), ("title", "title"), ("visits", "shortCode")] {
        for direction in ["ASC", "DESC"] {
            let (mut all, mut cursor): (Vec<String>, Option<String>) = (Vec::new(), None);
            loop {
                let at = cursor.map_or(String::new(), |cursor| format!("&cursor={cursor}"));
                let path = format!("{SHORT_URLS}?orderBy={order}-{direction}&itemsPerPage=500{at}");
                // A node that is paused again and again may take too long to read its links, and sort them in the background.
                let reply = wait_for("a page", || {
                    let reply = wire.get(&path);
                    (reply.status != 503).then_some(reply)
                });
                assert_eq!(reply.status, 200, "{reply:?}");
                let list = reply.json()["shortUrls"].clone();
                assert_eq!(list["pagination"]["totalItems"], json!(LINKS));
                let shown = list["data"].as_array().unwrap().iter();
                all.extend(
                    shown.map(|link| link[field].as_str().unwrap().to_owned() + link["shortCode"].as_str().unwrap()),
                );
                cursor = list["pagination"]["cursor"].as_str().map(str::to_owned);
                if cursor.is_none() {
                    break;
                }
            }
            let fields: Vec<&str> = all.iter().map(|text| &text[..text.len() - "long-00000".len()]).collect();
            let is_sorted = |one: &&str, next: &&str| if direction == "ASC" { one <= next } else { one >= next };
            assert!(order == "visits" || fields.is_sorted_by(is_sorted), "{order}-{direction}");
            all.sort();
            all.dedup();
            assert_eq!(all.len(), LINKS, "{order}-{direction}: each link once");
        }
    }
    node.terminate();
}
