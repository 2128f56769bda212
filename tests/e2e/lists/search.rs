//! Searches: links that change all the time stay within their memory, and every link is found.

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key};
use crate::support::bulk::{BULK, code_of, send_all};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_until};

/// Links that one key changes again and again.
const LINKS: usize = 64;

/// Changes of each link. Their texts are 128 MB together.
const CHANGES: usize = 512;

/// Most memory by which two nodes differ, in bytes, if searches hold no more than the current texts of the links: what the store
/// has not flushed yet, up to 32 MB, and the slack of an allocator.
const MEMORY_MAX: u64 = 64_000_000;

/// A title and a destination of nearly as many bytes as a link may have.
fn long_texts(link: usize, change: usize) -> Value {
    let title = format!("now {link:02}-{change:04} {}", "\u{1f517}".repeat(490));
    json!({"title": title, "longUrl": format!("https://example.org/{change:04}/{:x<1990}", "")})
}

/// Changes links all the time. Returns the memory that the node takes then.
fn change_links(node: &Node) -> u64 {
    let mut wire = node.wire();
    for link in 0..LINKS {
        let made = wire.create(&json!({"longUrl": "https://example.org/", "customSlug": format!("link-{link:02}")}));
        assert_eq!(made.status, 200);
    }
    for round in 0..CHANGES {
        // A request for each change would take longer than the change.
        let line = |link: usize| json!({"shortCode": format!("link-{link:02}"), "change": long_texts(link, round)});
        let lines: String = (0..LINKS).map(|link| format!("{}\n", line(link))).collect();
        let changed = send_all(node, &format!("{BULK}/changes"), lines.as_bytes());
        assert_eq!(changed.len(), LINKS);
        assert!(changed.iter().all(|result| result["status"] == 200), "{changed:?}");
    }
    node.anonymous_bytes()
}

#[test]
fn old_texts_take_no_memory() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let without = Setup::new(dirs[0].path()).env("CAROM_LINKS_SEARCH_MEMORY", "off").start();
    let with = Setup::new(dirs[1].path()).start();
    let bytes_without = change_links(&without);
    change_links(&with);
    // On a busy machine, the thread that signs texts may still have some to drop.
    wait_until("the memory of old texts", || with.anonymous_bytes() < bytes_without + MEMORY_MAX);
    // Each is found by what it says now.
    for link in [0, LINKS - 1] {
        let term = format!("now%20{link:02}-{:04}", CHANGES - 1);
        let found = with.wire().get(&format!("{SHORT_URLS}?searchTerm={term}")).json();
        assert_eq!(found["shortUrls"]["data"][0]["shortCode"], json!(format!("link-{link:02}")));
        assert_eq!(found["shortUrls"]["pagination"]["totalItems"], json!(1));
    }
}

#[test]
fn tags_return_after_an_overflow() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let writer = new_key(&setup, "writer", "write-own");
    let node = setup.start();
    let mut writer = ApiClient::new(&node, &writer);
    wait_until("counts for lists", || writer.get("/rest/v3/tags").status == 200);
    // 10,048 tags, and of one app 10,000 are counted.
    let codes: Vec<String> = (0..157)
        .map(|link| {
            let tags: Vec<String> = (0..64).map(|number| format!("tag-{link}-{number}")).collect();
            writer.create(&json!({"longUrl": "https://example.org/", "tags": tags})).code()
        })
        .collect();
    let problem = writer.get("/rest/v3/tags").problem(400, ":too-many-tags");
    assert_eq!(problem["status"], json!(400));
    for code in &codes[1..] {
        assert_eq!(writer.ask("DELETE", &format!("{SHORT_URLS}/{code}"), "", "").status, 204);
    }
    wait_until("a list of the tags that are left", || writer.get("/rest/v3/tags").status == 200);
    let tags = writer.get("/rest/v3/tags").json();
    assert_eq!(tags["tags"]["pagination"]["totalItems"], json!(64), "{tags}");
}

/// Too few go for the node to count them again by itself.
#[test]
fn tags_are_recounted_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let writer = new_key(&setup, "writer", "write-own");
    let node = setup.start();
    let mut writer = ApiClient::new(&node, &writer);
    wait_until("counts for lists", || writer.get("/rest/v3/tags").status == 200);
    // 10,048 tags, and of one app 10,000 are counted; and one of them that many links have.
    let mut lines = String::new();
    for link in 0..157 + 1_200 {
        let tags: Vec<String> = match link {
            0..157 => (0..64).map(|number| format!("tag-{link}-{number}")).collect(),
            _ => vec!["tag-0-0".to_owned()],
        };
        lines += &format!("{}\n", json!({"longUrl": format!("https://example.org/{link}"), "tags": tags}));
    }
    let made = writer.ask("POST", BULK, "Content-Type: application/x-ndjson\r\n", &lines);
    let result = |line: &str| code_of(&serde_json::from_str(line).unwrap()).to_owned();
    let codes: Vec<String> = made.text().lines().map(result).collect();
    assert_eq!(codes.len(), 1_357);
    writer.get("/rest/v3/tags").problem(400, ":too-many-tags");
    for code in &codes[155..157] {
        assert_eq!(writer.ask("DELETE", &format!("{SHORT_URLS}/{code}"), "", "").status, 204);
    }
    wait_until("a list of the tags that are left", || writer.get("/rest/v3/tags").status == 200);
    let tags = writer.get("/rest/v3/tags").json();
    assert_eq!(tags["tags"]["pagination"]["totalItems"], json!(155 * 64), "{tags}");
}

/// The log line of a node that has loaded the search index of its last run.
const RESTORED: &str = "loaded the search index of the last run";

#[test]
fn restart_reuses_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).start();
    let mut wire = node.wire();
    for number in 0..200 {
        wire.shorten_as(&format!("link-{number:03}"), &format!("https://example.org/{number:03}"));
    }
    let finds = |node: &Node, number: usize| {
        let found = node.wire().get(&format!("{SHORT_URLS}?searchTerm=example.org/{number:03}")).json();
        assert_eq!(found["shortUrls"]["data"][0]["shortCode"], json!(format!("link-{number:03}")));
    };
    drop(wire);
    let node = node.terminate().start();
    wait_until("sections of the last run", || node.log().contains(RESTORED));
    assert!(node.log().contains("links=200 changed=0"), "{}", node.log());
    finds(&node, 7);
    node.wire().shorten_as("link-200", "https://example.org/200");
    // The file is written at a clean end, and then has what it had: one link is looked up.
    let node = node.kill().start();
    wait_until("sections of the last run", || node.log().contains(RESTORED));
    assert!(node.log().contains("links=201 changed=1"), "{}", node.log());
    [7, 199, 200].into_iter().for_each(|number| finds(&node, number));
}
