//! Changes, tags and deletions of many links: by line and by filter, with the rights of single changes.

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, JSON, new_key};
use crate::support::bulk::{BULK, KIND, TARGET, code_of, send_all};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::links::{everybody_gets, moved_to, on_every_kind, wires};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::openapi::is_described;

const CHANGES: &str = "/rest/v3/short-urls/bulk/changes";
const MATCHING: &str = "/rest/v3/short-urls/bulk/matching";

fn make(wire: &mut Wire, slug: &str, tags: &[&str]) {
    assert_eq!(wire.create(&json!({"longUrl": TARGET, "customSlug": slug, "tags": tags})).code(), slug);
}

fn record(wire: &mut Wire, slug: &str) -> Value {
    wire.get(&format!("{SHORT_URLS}/{slug}")).json()
}

fn lines(all: &[Value]) -> String {
    all.iter().map(|line| format!("{line}\n")).collect()
}

fn results(reply: &Reply) -> Vec<Value> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    reply.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// As many tags as a link may have.
fn full_set() -> Vec<String> {
    (0..64).map(|number| format!("tag-{number}")).collect()
}

/// Asks for an edit of all links that match a filter.
fn edit(wire: &mut Wire, query: &str, body: &Value) -> Reply {
    wire.ask("POST", &format!("{MATCHING}{query}"), JSON, body.to_string().as_bytes())
}

/// Lists are counted in the background after a start.
fn wait_for_lists(node: &Node) {
    wait_until("lists", || node.wire().get(SHORT_URLS).status == 200);
}

#[test]
fn each_line_is_carried_out_in_order() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wire = node.wire();
        for slug in ["a", "b", "c", "d"] {
            make(&mut wire, slug, &["old", "kept"]);
        }
        let body = [
            json!({"shortCode": "a", "change": {"longUrl": "https://example.org/new", "title": "T"}, "addTags": ["New"], "removeTags": ["old"]}),
            json!({"shortCode": "b", "delete": true}),
            json!({"shortCode": "b", "change": {"title": "late"}}),
            json!({"shortCode": "none", "delete": true}),
            json!({"shortCode": "c", "colour": 1}),
            json!({"change": {}}),
            json!({"shortCode": "c", "change": {"validSince": "2100-01-01T00:00:00Z", "validUntil": "2026-01-01T00:00:00Z"}}),
            json!({"shortCode": "d", "domain": "nowhere.test", "delete": true}),
            json!({"shortCode": "d", "change": {"archived": true}}),
        ];
        let body = lines(&body) + "not JSON\n\n" + &lines(&[json!({"shortCode": "c", "addTags": full_set()})]);
        let dry: Vec<u64> = send_all(&node, &format!("{CHANGES}?dryRun=true"), body.as_bytes())
            .iter()
            .map(|result| result["status"].as_u64().unwrap())
            .collect();
        assert_eq!(dry, [200, 200, 200, 404, 400, 400, 400, 404, 200, 400, 409]);
        assert_eq!(record(&mut wire, "a")["title"], Value::Null, "a dry run changes nothing");
        let told = send_all(&node, CHANGES, body.as_bytes());
        let seen: Vec<(u64, u64)> =
            told.iter().map(|one| (one["line"].as_u64().unwrap(), one["status"].as_u64().unwrap())).collect();
        let expected = [200, 200, 404, 404, 400, 400, 400, 404, 200, 400]
            .into_iter()
            .zip(1..)
            .map(|(status, line)| (line, status));
        assert_eq!(seen, expected.chain([(12, 409)]).collect::<Vec<(u64, u64)>>());
        assert_eq!(
            (&told[0]["shortCode"], &told[4]["error"]["invalidElements"]),
            (&json!("a"), &json!(["colour", "change"]))
        );
        let a = record(&mut wire, "a");
        assert_eq!((&a["title"], &a["tags"]), (&json!("T"), &json!(["kept", "new"])));
        for (path, expected) in [("/a", moved_to("https://example.org/new")), ("/c", moved_to(TARGET))] {
            assert_eq!(everybody_gets(&mut wires(&node), path), expected);
        }
        assert_eq!(everybody_gets(&mut wires(&node), "/b").0, 404);
        assert_eq!(everybody_gets(&mut wires(&node), "/d").0, 410);
        // A repetition finds everything as it is.
        let again: Vec<u64> =
            send_all(&node, CHANGES, body.as_bytes()).iter().map(|one| one["status"].as_u64().unwrap()).collect();
        assert_eq!(again, [200, 404, 404, 404, 400, 400, 400, 404, 200, 400, 409]);
        node.terminate();
    });
}

#[test]
fn many_lines_reach_all_links() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let count = 1_500;
    let create: Vec<Value> =
        (0..count).map(|number| json!({"longUrl": TARGET, "customSlug": format!("m{number}")})).collect();
    assert_eq!(send_all(&node, BULK, lines(&create).as_bytes()).len(), count);
    // Changes and deletions alternate, so that most batches are short.
    let edits: Vec<Value> = (0..count)
        .map(|number| match number % 3 {
            0 => json!({"shortCode": format!("m{number}"), "delete": true}),
            _ => json!({"shortCode": format!("m{number}"), "addTags": ["t"]}),
        })
        .collect();
    let told = send_all(&node, CHANGES, lines(&edits).as_bytes());
    assert!(told.len() == count, "{:?}", told.first());
    assert!(told.iter().all(|one| one["status"] == 200), "{:?}", told.first());
    wait_for_lists(&node);
    let total =
        node.wire().get(&format!("{SHORT_URLS}?tags[]=t")).json()["shortUrls"]["pagination"]["totalItems"].clone();
    assert_eq!(total, json!(count / 3 * 2));
    node.terminate();
}

#[test]
fn a_filter_is_counted_before_an_edit() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let mut wire = node.wire();
    (0..12).for_each(|number| make(&mut wire, &format!("s{number}"), &["sale"]));
    make(&mut wire, "other", &["else"]);
    wait_for_lists(&node);
    let delete = json!({"delete": true});
    let counted = edit(&mut wire, "?tags[]=sale", &delete);
    is_described(&node, "post", MATCHING, &counted);
    assert_eq!((&counted.json()["count"], counted.json()["sample"].as_array().unwrap().len()), (&json!(12), 10));
    assert_eq!(counted.json()["sample"][0]["shortCode"], "s0");
    // Another link has joined since.
    make(&mut wire, "joined", &["sale"]);
    let refused = edit(&mut wire, "?tags[]=sale&confirm=12", &delete);
    is_described(&node, "post", MATCHING, &refused);
    assert_eq!(refused.problem(409, ":more-links-match")["count"], json!(13));
    assert_eq!(record(&mut wire, "s0")["shortCode"], "s0");
    let retagged = edit(&mut wire, "?tags[]=sale&confirm=13", &json!({"addTags": ["winter"], "removeTags": ["sale"]}));
    is_described(&node, "post", MATCHING, &retagged);
    let told = results(&retagged);
    assert_eq!(told.last(), Some(&json!({"complete": true, "changed": 13, "failed": 0})));
    let first = told.iter().find(|one| one["shortCode"] == "s0").expect("the link has a result");
    assert!(told.len() == 14, "{told:?}");
    assert!(first["status"] == 200, "{told:?}");
    assert!(told[0]["line"] == 1, "{told:?}");
    assert_eq!(record(&mut wire, "joined")["tags"], json!(["winter"]));
    // Fewer links than confirmed are fine: a repeated request continues an interrupted one.
    assert_eq!(wire.ask("DELETE", &format!("{SHORT_URLS}/s5"), "", b"").status, 204);
    let told = results(&edit(&mut wire, "?tags[]=winter&confirm=13", &delete));
    assert_eq!(told.last(), Some(&json!({"complete": true, "changed": 12, "failed": 0})));
    let told = results(&edit(&mut wire, "?tags[]=winter&confirm=13", &delete));
    assert_eq!(told, [json!({"complete": true, "changed": 0, "failed": 0})]);
    assert_eq!(everybody_gets(&mut wires(&node), "/s1").0, 404);
    assert_eq!(everybody_gets(&mut wires(&node), "/other"), moved_to(TARGET));
    for (query, body, field) in [
        ("?confirm=-1", &delete, "confirm"),
        ("?page=1", &delete, "page"),
        ("?state=odd", &delete, "state"),
        ("", &json!({}), "change"),
        ("", &json!({"delete": true, "shortCode": "other"}), "shortCode"),
    ] {
        let reply = edit(&mut wire, query, body);
        is_described(&node, "post", MATCHING, &reply);
        assert_eq!(reply.problem(400, "/invalid-data")["invalidElements"], json!([field]), "{query}");
    }
    let lines_instead = wire.ask("POST", CHANGES, JSON, b"{}");
    is_described(&node, "post", CHANGES, &lines_instead);
    lines_instead.problem(415, ":unsupported-media-type");
    let kinds = [
        json!({"shortCode": "other", "addTags": full_set()}),
        json!({"shortCode": "other", "domain": null, "change": {"title": "T"}}),
        json!({"shortCode": "none", "delete": true}),
        json!({"shortCode": "other"}),
        json!(7),
    ];
    let by_line = wire.ask("POST", CHANGES, KIND, lines(&kinds).as_bytes());
    is_described(&node, "post", CHANGES, &by_line);
    let statuses: Vec<Value> = results(&by_line).iter().map(|one| one["status"].clone()).collect();
    assert_eq!(json!(statuses), json!([409, 200, 404, 400, 400]));
    let all = results(&edit(&mut wire, "?confirm=1", &json!({"change": {"title": "all"}})));
    assert_eq!(all.last(), Some(&json!({"complete": true, "changed": 1, "failed": 0})));
    node.terminate();
}

#[test]
fn an_app_edits_its_own_links_only() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path()).cores(2);
    let [own, other, reader, all] =
        [("shop", "write-own"), ("mail", "write-own"), ("mail", "read"), ("ops", "write-all")]
            .map(|(name, role)| new_key(&setup, name, role));
    let node = setup.start();
    let [mut own, mut other, mut reader, mut all] = [own, other, reader, all].map(|key| ApiClient::new(&node, &key));
    own.create(&json!({"longUrl": TARGET, "customSlug": "shop", "tags": ["t"]})).code();
    other.create(&json!({"longUrl": TARGET, "customSlug": "mail", "tags": ["t"]})).code();
    wait_until("lists", || own.get(SHORT_URLS).status == 200);
    let (delete, line) =
        (json!({"delete": true}).to_string(), json!({"shortCode": "shop", "delete": true}).to_string());
    for (path, kind, body) in [(MATCHING, JSON, &delete), (CHANGES, KIND, &line)] {
        reader.ask("POST", path, kind, body).problem(403, ":forbidden");
    }
    assert_eq!(results(&other.ask("POST", CHANGES, KIND, &line))[0]["status"], 404);
    let counted = other.ask("POST", &format!("{MATCHING}?tags[]=t"), JSON, &delete).json();
    assert_eq!((&counted["count"], &counted["sample"][0]["shortCode"]), (&json!(1), &json!("mail")));
    let told = results(&other.ask("POST", &format!("{MATCHING}?confirm=100"), JSON, &delete));
    assert_eq!(told.last(), Some(&json!({"complete": true, "changed": 1, "failed": 0})));
    assert_eq!(own.get(&format!("{SHORT_URLS}/shop")).status, 200);
    assert_eq!(other.get(&format!("{SHORT_URLS}/mail")).status, 404);
    let told = results(&all.ask("POST", &format!("{MATCHING}?app=shop&confirm=1"), JSON, &delete));
    assert_eq!(told.len(), 2);
    assert_eq!(own.get(&format!("{SHORT_URLS}/shop")).status, 404);
    node.terminate();
}

#[test]
fn repeated_lines_get_the_first_links() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let body = lines(&[
        json!({"longUrl": TARGET, "idempotencyKey": "one"}),
        json!({"longUrl": TARGET, "idempotencyKey": "two"}),
        json!({"longUrl": TARGET}),
        json!({"longUrl": TARGET, "idempotencyKey": "a b"}),
    ]);
    let first = send_all(&node, BULK, body.as_bytes());
    assert_eq!(first[3]["error"]["invalidElements"], json!(["idempotencyKey"]));
    assert!(first[..3].iter().all(|result| result["replayed"] == Value::Null));
    // Even after a crash.
    let node = node.kill().start();
    let again = send_all(&node, BULK, body.as_bytes());
    for at in 0..2 {
        assert_eq!((code_of(&again[at]), &again[at]["replayed"]), (code_of(&first[at]), &json!(true)));
    }
    assert_ne!(code_of(&again[2]), code_of(&first[2]));
    let other = lines(&[json!({"longUrl": TARGET, "idempotencyKey": "one", "title": "T"})]);
    assert_eq!(send_all(&node, BULK, other.as_bytes())[0]["status"], 422);
    // A single create means the same key by its header.
    let fields = format!("{JSON}Idempotency-Key: one\r\n");
    let single = node.wire().ask("POST", SHORT_URLS, &fields, json!({"longUrl": TARGET}).to_string().as_bytes());
    assert_eq!((single.code().as_str(), single.field("idempotent-replayed")), (code_of(&first[0]), Some("true")));
    // A key of the whole request stands for each line.
    let plain = lines(&[json!({"longUrl": TARGET}), json!({"longUrl": TARGET})]);
    let keyed = |node: &Node| {
        let fields = format!("{KIND}Idempotency-Key: whole\r\n");
        results(&node.wire().ask("POST", BULK, &fields, plain.as_bytes()))
    };
    let (first, again) = (keyed(&node), keyed(&node));
    assert_ne!(code_of(&first[0]), code_of(&first[1]));
    for at in 0..2 {
        assert_eq!(code_of(&again[at]), code_of(&first[at]));
    }
    node.terminate();
}

#[test]
fn a_thread_parses_long_lines() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(&dir.path().join("data")).start();
    let mut wire = node.wire();
    // Longer than what a core parses at once.
    let blanks = " ".repeat(20_000);
    let create = format!("{{\"longUrl\": \"{TARGET}\",{blanks}\"customSlug\": \"long\"}}\n");
    let created = node.by_document_thread(|| wire.ask("POST", BULK, KIND, create.as_bytes()));
    assert_eq!(results(&created)[0]["shortUrl"]["shortCode"], "long");
    let change = format!("{{\"shortCode\": \"long\",{blanks}\"addTags\": [\"new\"]}}\n");
    let changed = node.by_document_thread(|| wire.ask("POST", CHANGES, KIND, change.as_bytes()));
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_eq!(record(&mut wire, "long")["tags"], json!(["new"]));
}
