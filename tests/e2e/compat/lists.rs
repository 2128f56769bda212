//! Lists of links with the cases of Shlink's own API tests, and with further filters: the same six links, keys and queries
//! have the same results.
//!
//! Shlink leaves the order of links with equal sort keys to its database. Here it is that of their age.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key, run_app};
use crate::support::http::SHORT_URLS;
use crate::support::node::{CAROM, Setup, wait_until};

const TITLED: &str = "http://s.test/abc123";
const DOCS: &str = "http://s.test/ghi789";
const WITH_DOMAIN: &str = "http://some-domain.com/custom-with-domain";
const STARTED: &str = "http://s.test/def456";
const CUSTOM: &str = "http://s.test/custom";
const OF_EXAMPLE: &str = "http://example.com/ghi789";

/// All links, the newest first.
const ALL: &[&str] = &[OF_EXAMPLE, CUSTOM, STARTED, WITH_DOMAIN, TITLED, DOCS];

const SERVED: &str = "http://example.com, http://some-domain.com";

/// A query, and the short URLs of its result.
type Case = (&'static str, &'static [&'static str]);

/// Filters of a key that sees all links.
const FILTERS: &[Case] = &[
    ("", ALL),
    ("excludePastValidUntil=true", &[OF_EXAMPLE, CUSTOM, STARTED, WITH_DOMAIN, TITLED]),
    ("excludeMaxVisitsReached=true", &[OF_EXAMPLE, CUSTOM, STARTED, WITH_DOMAIN, DOCS]),
    ("excludeMaxVisitsReached=true&excludePastValidUntil=true", &[OF_EXAMPLE, CUSTOM, STARTED, WITH_DOMAIN]),
    ("startDate=2018-12-01T00:00:00%2B00:00", &[OF_EXAMPLE, CUSTOM, STARTED]),
    ("endDate=2018-12-01T00:00:00%2B00:00", &[WITH_DOMAIN, TITLED, DOCS]),
    ("startDate=2018-05-01T00:00:00%2B00:00&endDate=2018-12-01T00:00:00%2B00:00", &[WITH_DOMAIN, TITLED]),
    ("tags[]=foo", &[OF_EXAMPLE, STARTED, TITLED]),
    ("tags[0]=bar", &[STARTED]),
    ("tags[0]=foo&tags[1]=bar", &[OF_EXAMPLE, STARTED, TITLED]),
    ("tags[]=foo&tags[]=bar&tagsMode=any", &[OF_EXAMPLE, STARTED, TITLED]),
    ("tags[]=foo&tags[]=bar&tagsMode=all", &[STARTED]),
    ("tags[]=foo&tags[]=bar&tags[]=baz", &[OF_EXAMPLE, STARTED, TITLED]),
    ("tags[]=foo&tags[]=bar&tags[]=baz&tagsMode=all", &[]),
    ("tags[]=foo&endDate=2018-12-01T00:00:00%2B00:00", &[TITLED]),
    ("excludeTags[]=foo", &[CUSTOM, WITH_DOMAIN, DOCS]),
    ("excludeTags[]=bar", &[OF_EXAMPLE, CUSTOM, WITH_DOMAIN, TITLED, DOCS]),
    ("excludeTags[]=foo&excludeTags[]=bar&excludeTagsMode=any", &[CUSTOM, WITH_DOMAIN, DOCS]),
    ("excludeTags[]=foo&excludeTags[]=bar&excludeTagsMode=all", &[OF_EXAMPLE, CUSTOM, WITH_DOMAIN, TITLED, DOCS]),
    ("tags[]=foo&excludeTags[]=bar", &[OF_EXAMPLE, TITLED]),
    ("searchTerm=blog", &[OF_EXAMPLE, STARTED]),
    ("searchTerm=COOL", &[TITLED]),
    ("searchTerm=foo", &[OF_EXAMPLE, STARTED, TITLED]),
    ("searchTerm=example.com", &[OF_EXAMPLE]),
    ("searchTerm=some-domain", &[WITH_DOMAIN]),
    ("searchTerm=.COM", &[OF_EXAMPLE, WITH_DOMAIN]),
    ("searchTerm=s.test", &[CUSTOM, STARTED, TITLED, DOCS]),
    ("searchTerm=s.test&domain=DEFAULT", &[]),
    ("searchTerm=example.com&domain=example.com", &[OF_EXAMPLE]),
    ("searchTerm=example.com&domain=some-domain.com", &[]),
    ("searchTerm=example.com&tags[]=foo", &[OF_EXAMPLE]),
    ("searchTerm=example.com&tags[]=bar", &[]),
    ("searchTerm=example.com&excludeTags[]=foo", &[]),
    ("searchTerm=s.test&startDate=2019-01-01T00:00:20%2B00:00", &[CUSTOM]),
    ("domain=example.com", &[OF_EXAMPLE]),
    ("domain=DEFAULT", &[CUSTOM, STARTED, TITLED, DOCS]),
    ("domain=unknown.example", &[]),
    ("apiKeyName=author", &[CUSTOM, STARTED, TITLED]),
    ("apiKeyName=nobody", &[]),
    ("apiKeyName=author&tags[]=foo", &[STARTED, TITLED]),
];

/// Orders of a key that sees all links.
const ORDERS: &[Case] = &[
    ("orderBy=dateCreated-DESC", ALL),
    ("orderBy=dateCreated-ASC", &[DOCS, TITLED, WITH_DOMAIN, STARTED, CUSTOM, OF_EXAMPLE]),
    ("orderBy=shortCode", &[TITLED, CUSTOM, WITH_DOMAIN, STARTED, DOCS, OF_EXAMPLE]),
    ("orderBy=shortCode-DESC", &[OF_EXAMPLE, DOCS, STARTED, WITH_DOMAIN, CUSTOM, TITLED]),
    ("orderBy=longUrl-ASC", &[STARTED, OF_EXAMPLE, WITH_DOMAIN, TITLED, CUSTOM, DOCS]),
    ("orderBy=title-ASC", &[DOCS, WITH_DOMAIN, STARTED, CUSTOM, OF_EXAMPLE, TITLED]),
    ("orderBy=title-DESC", &[TITLED, OF_EXAMPLE, CUSTOM, STARTED, WITH_DOMAIN, DOCS]),
    ("orderBy=visits-DESC", &[TITLED, STARTED, DOCS, OF_EXAMPLE, CUSTOM, WITH_DOMAIN]),
    ("orderBy=nonBotVisits-DESC", &[TITLED, DOCS, STARTED, OF_EXAMPLE, CUSTOM, WITH_DOMAIN]),
    ("orderBy=nonBotVisits-ASC", &[WITH_DOMAIN, CUSTOM, OF_EXAMPLE, STARTED, DOCS, TITLED]),
    ("orderBy=shortCode&searchTerm=.com", &[WITH_DOMAIN, OF_EXAMPLE]),
    ("orderBy=title-ASC&searchTerm=s.test", &[DOCS, STARTED, CUSTOM, TITLED]),
    ("orderBy=dateCreated-ASC&searchTerm=.com", &[WITH_DOMAIN, OF_EXAMPLE]),
];

/// The links of Shlink's API tests: creation dates, tags and so on are theirs, unless sort keys would be equal.
fn links() -> [Value; 6] {
    let (shop, blog) = ("https://shop.example.org", "https://blog.example.org");
    let visits = |total: u64, bots: u64| json!({"total": total, "bots": bots});
    [
        json!({"shortCode": "abc123", "longUrl": shop, "dateCreated": "2018-05-01T00:00:00+00:00", "tags": ["foo"],
            "title": "My cool title", "crawlable": true, "maxVisits": 2, "app": "author", "visitsSummary": visits(3, 0)}),
        json!({"shortCode": "ghi789", "longUrl": format!("{shop}/documentation/"),
            "dateCreated": "2018-04-30T00:00:00+00:00", "validUntil": "2020-05-01T00:00:00+00:00",
            "visitsSummary": visits(2, 0)}),
        json!({"shortCode": "custom-with-domain", "longUrl": "https://other.example.org", "domain": "some-domain.com",
            "dateCreated": "2018-10-20T00:00:00+00:00"}),
        json!({"shortCode": "def456", "longUrl": format!("{blog}/2017/12/09/release/"),
            "dateCreated": "2019-01-01T00:00:10+00:00", "validSince": "2020-05-01T00:00:00+00:00",
            "tags": ["foo", "bar"], "app": "author", "visitsSummary": visits(2, 1)}),
        json!({"shortCode": "custom", "longUrl": shop, "dateCreated": "2019-01-01T00:00:20+00:00", "maxVisits": 2,
            "forwardQuery": false, "crawlable": true, "app": "author"}),
        json!({"shortCode": "ghi789", "longUrl": format!("{blog}/2019/04/27/considerations/"), "domain": "example.com",
            "dateCreated": "2019-01-01T00:00:30+00:00", "tags": ["foo"]}),
    ]
}

/// Imports the links into the data directory of a node that does not run.
fn import(dir: &Path, setup: &Setup) {
    let file = dir.join("links.ndjson");
    let lines: Vec<String> = links().iter().map(|link| format!("{link}\n")).collect();
    std::fs::write(&file, lines.concat()).unwrap();
    let mut command = Command::new(CAROM);
    command.args(["import", "--data-dir"]).arg(setup.data_dir()).arg(&file);
    command.env("CAROM_BASE_URL", "http://s.test").env("CAROM_DOMAINS_SERVE", SERVED);
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    assert!(told.contains("imported 6 links with 7 visits"), "{told}");
}

/// Starts a node with the links. Calls `check` with keys that see all links, those of the app `author`, and those of the
/// domain `example.com`.
fn with_links(check: impl FnOnce([ApiClient; 3])) {
    let dir = tempfile::tempdir().unwrap();
    // A link that expired long ago would be removed within seconds.
    let setup = Setup::new(&dir.path().join("data"))
        .cores(2)
        .env("CAROM_BASE_URL", "http://s.test")
        .env("CAROM_DOMAINS_SERVE", SERVED)
        .env("CAROM_LINKS_KEEP_EXPIRED", "forever");
    import(dir.path(), &setup);
    let config = dir.path().join("carom.toml");
    let served = SERVED.split(", ").map(|name| format!("'{name}'")).collect::<Vec<_>>().join(",");
    std::fs::write(&config, format!("base_url = 'http://s.test'\n[domains]\nserve = [{served}]\n")).unwrap();
    let (valid, author) = (new_key(&setup, "valid", "read-all"), new_key(&setup, "author", "read"));
    let of_domain = ["add", "of-domain", "--role", "read-all", "--domain", "example.com", "--config"];
    let of_domain = run_app(&setup, &[&of_domain[..], &[config.to_str().unwrap()]].concat());
    let node = setup.start();
    let mut clients = [&valid, &author, &of_domain].map(|key| ApiClient::new(&node, key));
    wait_until("counts for lists", || clients[0].get("/rest/v3/tags").status == 200);
    check(clients);
    node.terminate();
}

/// Returns the short URLs of a list, which fits on one page.
fn listed(client: &mut ApiClient, query: &str) -> Vec<String> {
    let reply = client.get(&format!("{SHORT_URLS}?{query}"));
    assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    let list = reply.json()["shortUrls"].clone();
    let links = list["data"].as_array().unwrap();
    let count = links.len();
    let one_page = json!({"currentPage": 1, "pagesCount": 1, "itemsPerPage": 10, "itemsInCurrentPage": count,
        "totalItems": count, "cursor": null, "complete": true});
    assert_eq!(list["pagination"], one_page, "{query}");
    links.iter().map(|link| link["shortUrl"].as_str().unwrap().to_owned()).collect()
}

fn check(client: &mut ApiClient, cases: &[Case]) {
    for (query, expected) in cases {
        assert_eq!(listed(client, query), *expected, "{query}");
    }
}

#[test]
fn filters_and_orders_are_those_of_shlink() {
    with_links(|[mut valid, ..]| {
        check(&mut valid, FILTERS);
        check(&mut valid, ORDERS);
    });
}

#[test]
fn keys_limit_lists_as_in_shlink() {
    with_links(|[_, mut author, mut of_domain]| {
        check(
            &mut author,
            &[
                ("", &[CUSTOM, STARTED, TITLED]),
                ("searchTerm=s.test", &[CUSTOM, STARTED, TITLED]),
                ("searchTerm=.com", &[]),
                ("tags[]=foo", &[STARTED, TITLED]),
                ("orderBy=shortCode", &[TITLED, CUSTOM, STARTED]),
                ("apiKeyName=author", &[CUSTOM, STARTED, TITLED]),
                ("apiKeyName=valid", &[]),
            ],
        );
        check(
            &mut of_domain,
            &[
                ("", &[OF_EXAMPLE]),
                ("searchTerm=example.com", &[OF_EXAMPLE]),
                ("searchTerm=s.test", &[]),
                ("tags[]=foo", &[OF_EXAMPLE]),
                ("domain=DEFAULT", &[]),
            ],
        );
    });
}

#[test]
fn wrong_values_are_named_as_in_shlink() {
    with_links(|[mut valid, ..]| {
        for (query, mut expected) in [
            ("tagsMode=invalid", vec!["tagsMode"]),
            ("orderBy=invalid", vec!["orderBy"]),
            ("orderBy=invalid&tagsMode=invalid", vec!["tagsMode", "orderBy"]),
            ("excludeTagsMode=invalid", vec!["excludeTagsMode"]),
        ] {
            let problem = valid.get(&format!("{SHORT_URLS}?{query}")).problem(400, "/invalid-data");
            let named = problem["invalidElements"].as_array().unwrap();
            let mut named: Vec<&str> = named.iter().map(|name| name.as_str().unwrap()).collect();
            named.sort_unstable();
            expected.sort_unstable();
            assert_eq!(named, expected, "{query}");
        }
    });
}
