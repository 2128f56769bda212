//! Renames and removals of tags change all links that have them.

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key};
use crate::support::http::{Reply, SHORT_URLS};
use crate::support::links::on_every_kind;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::openapi::is_described;
use crate::support::visits::{BOT, BROWSER, follow};

const TAGS: &str = "/rest/v3/tags";

/// More links than one batch changes.
const LINKS: usize = 600;

fn client(node: &Node, key: &str) -> ApiClient {
    let mut client = ApiClient::new(node, key);
    wait_until("counts for lists", || client.get(TAGS).status == 200);
    client
}

fn rename(node: &Node, client: &mut ApiClient, fields: &Value) -> Reply {
    let reply = client.ask("PUT", TAGS, JSON, &fields.to_string());
    is_described(node, "put", TAGS, &reply);
    reply
}

fn delete(node: &Node, client: &mut ApiClient, query: &str) -> Reply {
    let reply = client.ask("DELETE", &format!("{TAGS}{query}"), "", "");
    is_described(node, "delete", TAGS, &reply);
    reply
}

/// The number of links with a tag.
fn count(client: &mut ApiClient, tag: &str) -> u64 {
    let list = client.get(&format!("{SHORT_URLS}?tags[]={tag}")).json();
    list["shortUrls"]["pagination"]["totalItems"].as_u64().unwrap()
}

fn make_links(client: &mut ApiClient) {
    let line = |number: usize| {
        let slug = format!("link-{number:03}");
        let tags: &[&str] = if number.is_multiple_of(2) { &["Old one", "even"] } else { &["old-one"] };
        json!({"longUrl": "https://example.org/", "customSlug": slug, "tags": tags, "title": "T", "maxVisits": 9})
    };
    let lines: Vec<String> = (0..LINKS).map(|number| line(number).to_string()).collect();
    let reply =
        client.ask("POST", "/rest/v3/short-urls/bulk", "Content-Type: application/x-ndjson\r\n", &lines.join("\n"));
    assert_eq!(reply.status, 200, "{reply:?}");
}

#[test]
fn renames_and_removals_reach_every_link() {
    on_every_kind(|setup| {
        let key = new_key(setup, "editor", "write-all");
        let node = setup.start();
        let mut editor = client(&node, &key);
        make_links(&mut editor);
        let fields = json!({"oldName": "Old one", "newName": "New one"});
        assert_eq!(rename(&node, &mut editor, &fields).status, 204);
        assert_eq!((count(&mut editor, "old-one"), count(&mut editor, "new-one")), (0, LINKS as u64));
        // Everything else stays.
        let link = editor.get(&format!("{SHORT_URLS}/link-000")).json();
        assert_eq!((&link["tags"], &link["title"]), (&json!(["even", "new-one"]), &json!("T")));
        assert_eq!(link["meta"]["maxVisits"], 9);
        let node = node.restart();
        let mut editor = client(&node, &key);
        assert_eq!(count(&mut editor, "new-one"), LINKS as u64);
        assert_eq!(delete(&node, &mut editor, "?tags[]=even&tags[]=new-one&tags[]=none").status, 204);
        assert_eq!(editor.get(TAGS).json()["tags"]["data"], json!([]));
        assert_eq!(editor.get(&format!("{SHORT_URLS}/link-000")).json()["tags"], json!([]));
    });
}

#[test]
fn conflicts_and_unknown_tags_are_named() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path()).cores(2);
    let key = new_key(&setup, "editor", "admin");
    let node = setup.start();
    let mut editor = client(&node, &key);
    make_links(&mut editor);
    let conflict = rename(&node, &mut editor, &json!({"oldName": "old-one", "newName": "even"}));
    assert_eq!(conflict.problem(409, "/tag-conflict")["newName"], "even");
    assert_eq!(count(&mut editor, "old-one"), LINKS as u64);
    let unknown = rename(&node, &mut editor, &json!({"oldName": "none", "newName": "b"}));
    assert_eq!(unknown.problem(404, "/tag-not-found")["tag"], "none");
    let wrong = rename(&node, &mut editor, &json!({"oldName": "", "colour": 1}));
    assert_eq!(wrong.problem(400, "/invalid-data")["invalidElements"], json!(["oldName", "newName", "colour"]));
    assert_eq!(delete(&node, &mut editor, "").problem(400, "/invalid-data")["invalidElements"], json!(["tags"]));
    // To merge two tags, or to go on with a rename that was interrupted.
    let merge = json!({"oldName": "old-one", "newName": "even", "merge": true});
    assert_eq!(rename(&node, &mut editor, &merge).status, 204);
    assert_eq!((count(&mut editor, "old-one"), count(&mut editor, "even")), (0, LINKS as u64));
    let same = json!({"oldName": "even", "newName": "EVEN"});
    assert_eq!((rename(&node, &mut editor, &same).status, count(&mut editor, "even")), (204, LINKS as u64));
}

#[test]
fn tags_change_only_with_access_to_all_links() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path()).cores(1);
    let (own, read) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "shop", "read"));
    let node = setup.start();
    let mut shop = client(&node, &own);
    shop.create(&json!({"longUrl": "https://example.org/", "tags": ["a"]}));
    let fields = json!({"oldName": "a", "newName": "b"});
    rename(&node, &mut shop, &fields).problem(403, "/forbidden-tag-operation");
    delete(&node, &mut shop, "?tags[]=a").problem(403, "/forbidden-tag-operation");
    let mut reader = client(&node, &read);
    rename(&node, &mut reader, &fields).problem(403, "forbidden");
    assert_eq!(count(&mut shop, "a"), 1);
}

#[test]
fn tags_are_sorted_by_visits() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let mut wire = node.wire();
    for (slug, tags, bots, people) in [("one", json!(["a", "b"]), 4, 0), ("two", json!(["b", "c"]), 0, 2)] {
        let fields = json!({"longUrl": "https://example.org/", "customSlug": slug, "tags": tags});
        assert_eq!(wire.create(&fields).status, 200);
        for agent in std::iter::repeat_n(BOT, bots).chain(std::iter::repeat_n(BROWSER, people)) {
            follow(&mut node.wire(), &format!("/{slug}"), agent);
        }
    }
    let mut sorted = |query: &str| {
        let reply = wire.get(&format!("{TAGS}/stats?{query}"));
        is_described(&node, "get", "/rest/v3/tags/stats", &reply);
        let data = reply.json()["tags"]["data"].clone();
        let tags = data.as_array().into_iter().flatten();
        tags.map(|tag| format!("{} {}", tag["tag"].as_str().unwrap(), tag["visitsSummary"]["total"]))
            .collect::<Vec<_>>()
    };
    wait_until("all visits", || sorted("orderBy=visits-DESC") == ["b 6", "a 4", "c 2"]);
    assert_eq!(sorted("orderBy=visits"), ["c 2", "a 4", "b 6"]);
    assert_eq!(sorted("orderBy=nonBotVisits-DESC"), ["b 6", "c 2", "a 4"]);
    assert_eq!(sorted("orderBy=nonBotVisits-ASC&itemsPerPage=1&page=2"), ["b 6"]);
    assert_eq!(sorted("orderBy=visits-DESC&searchTerm=a&itemsPerPage=-1"), ["a 4"]);
    node.terminate();
}
