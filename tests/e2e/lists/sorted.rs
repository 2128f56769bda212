//! Lists that a node sorts in the background, because no scan orders them in time.

#![cfg(feature = "faults")]

use std::path::Path;

use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Setup, wait_for, wait_until};

/// More links than are sorted at once.
const LINKS: usize = carom_limits::LIST_SORTED_MAX + 40;

/// A node whose scans end at once.
fn setup(data: &Path) -> Setup {
    Setup::new(data).cores(1).env("CAROM_FAULT", "short-scans").expect("CAROM_FAULT is not a setting")
}

/// Makes links whose titles have the opposite order of their slugs.
fn make_links(wire: &mut Wire) {
    let line = |number: usize| {
        let title = format!("T{:05}", LINKS - number);
        json!({"longUrl": "https://example.org/", "customSlug": format!("long-{number:05}"), "title": title})
    };
    let lines: Vec<String> = (0..LINKS).map(|number| line(number).to_string()).collect();
    for lines in lines.chunks(500) {
        let kind = "Content-Type: application/x-ndjson\r\n";
        let reply = wire.ask("POST", &format!("{SHORT_URLS}/bulk"), kind, lines.join("\n").as_bytes());
        assert_eq!(reply.status, 200, "{reply:?}");
    }
}

/// Reads a page, once the node has sorted the list. Returns its slugs, and where it stands among others.
fn page(wire: &mut Wire, query: &str) -> (Vec<String>, Value) {
    let list = wait_for("a sorted list", || {
        let reply = wire.get(&format!("{SHORT_URLS}?{query}"));
        assert!([200, 503].contains(&reply.status), "{reply:?}");
        (reply.status == 200).then(|| reply.json()["shortUrls"].clone())
    });
    let slug = |link: &Value| link["shortCode"].as_str().unwrap().to_owned();
    (list["data"].as_array().unwrap().iter().map(slug).collect(), list["pagination"].clone())
}

#[test]
fn long_list_is_sorted_in_the_background() {
    let data = tempfile::tempdir().unwrap();
    let node = setup(data.path()).start();
    let mut wire = node.wire();
    make_links(&mut wire);
    wait_until("counts for lists", || node.log().contains("counted all links"));
    let by_title = |of: &str| format!("orderBy=title-ASC&itemsPerPage=500{of}");
    let reply = wire.get(&format!("{SHORT_URLS}?{}", by_title("")));
    let problem = reply.problem(503, "unavailable");
    assert!(problem["sortedPercent"].as_u64().is_some_and(|percent| percent < 100), "{problem}");
    assert!(problem["detail"].as_str().unwrap().contains("The node is sorting it: "), "{problem}");
    assert!(reply.field("retry-after").is_some());
    let (mut found, about) = page(&mut wire, &by_title(""));
    let sorted_at = about["sortedAt"].clone();
    assert!(sorted_at.is_string(), "{about}");
    let mut cursor = about["cursor"].as_str().map(str::to_owned);
    while let Some(next) = cursor {
        let (slugs, about) = page(&mut wire, &by_title(&format!("&cursor={next}")));
        assert_eq!((&about["totalItems"], &about["sortedAt"]), (&json!(LINKS), &sorted_at));
        found.extend(slugs);
        cursor = about["cursor"].as_str().map(str::to_owned);
    }
    let expected: Vec<String> = (0..LINKS).rev().map(|number| format!("long-{number:05}")).collect();
    assert!(found == expected, "{} links", found.len());
    // Any page by its number, and the other direction, come from the same list.
    assert_eq!(page(&mut wire, &by_title("&page=6")).0, expected[2_500..]);
    let reply = wire.get(&format!("{SHORT_URLS}?orderBy=title-DESC&itemsPerPage=1"));
    assert_eq!(reply.json()["shortUrls"]["data"][0]["shortCode"], json!("long-00000"));
    // A deleted link is left out at once.
    assert_eq!(wire.delete(&expected[1]).status, 204);
    let (slugs, about) = page(&mut wire, "orderBy=title-ASC&itemsPerPage=3");
    assert_eq!(slugs, [&*expected[0], &*expected[2]]);
    assert_eq!((&about["itemsInCurrentPage"], &about["totalItems"]), (&json!(2), &json!(LINKS)));
    node.terminate();
}

#[test]
fn sorted_lists_end_with_the_node() {
    let data = tempfile::tempdir().unwrap();
    let folder = data.path().join("sorted-lists");
    let node = setup(data.path()).start();
    let mut wire = node.wire();
    make_links(&mut wire);
    assert_eq!(page(&mut wire, "orderBy=longUrl").0.len(), 10);
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0, "a crash leaves no file");
    node.kill();
    let node = setup(data.path()).start();
    assert!(!folder.exists());
    assert_eq!(page(&mut node.wire(), "orderBy=longUrl").1["totalItems"], json!(LINKS));
    node.terminate();
    assert!(!folder.exists());
}
