//! The image of the map: a start loads links from it, and newer changes from the store.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::json;

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::memory::{code, import};
use crate::support::node::{Node, Setup, wait_until};

/// A node with fewer links makes no image.
const LINKS: u64 = 110_000;

const FROM_IMAGE: &str = "links loaded from the image of the links";

const FROM_STORE: &str = "links loaded from the store";

/// Changes a few links, and returns what their codes lead to from then on.
fn change_some(node: &Node, round: u64) -> Vec<(String, Option<String>)> {
    let mut wire = node.wire();
    let mut expected = Vec::new();
    for number in (round * 100)..(round * 100 + 30) {
        let (slug, target) = (code(number), format!("https://changed.example/{round}/{number}"));
        let path = format!("{SHORT_URLS}/{slug}");
        let body = |fields: serde_json::Value| fields.to_string();
        if number % 3 == 0 {
            assert_eq!(wire.ask("DELETE", &path, "", b"").status, 204);
            expected.push((slug, None));
        } else if number % 3 == 1 {
            let fields = body(json!({ "longUrl": target }));
            assert_eq!(wire.ask("PATCH", &path, "Content-Type: application/json\r\n", fields.as_bytes()).status, 200);
            expected.push((slug, Some(target)));
        } else {
            let slug = format!("new-{number}");
            let fields = body(json!({ "longUrl": target, "customSlug": slug }));
            let reply = wire.ask("POST", SHORT_URLS, "Content-Type: application/json\r\n", fields.as_bytes());
            assert!(reply.status < 300, "{}", reply.text());
            expected.push((slug, Some(target)));
        }
    }
    expected
}

fn check(node: &Node, expected: &[(String, Option<String>)]) {
    let mut wire: Wire = node.wire();
    for (slug, target) in expected {
        let reply = wire.get(&format!("/{slug}"));
        match target {
            Some(target) => assert_eq!((reply.status, reply.location()), (302, target.as_str()), "{slug}"),
            None => assert_eq!(reply.status, 404, "{slug}"),
        }
    }
    for number in (5_000..LINKS).step_by(997) {
        assert_eq!(wire.get(&format!("/{}", code(number))).status, 302, "{number}");
    }
}

fn image_is_made(data: &Path) {
    wait_until("an image", || data.join("links.image").exists());
}

#[test]
fn start_reads_image_then_newer_changes() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    import(&data, LINKS);
    let setup = Setup::new(&data).cores(2).env("CAROM_LOG_LEVEL", "info");
    // An import of many links writes the image and the search index.
    let node = setup.start();
    assert!(node.log().contains(FROM_IMAGE), "{}", node.log());
    wait_until("the search index", || node.log().contains("loaded the search index of the last run"));
    let setup = node.terminate();
    fs::remove_file(data.join("links.image")).unwrap();
    let node = setup.start();
    assert!(node.log().contains(FROM_STORE), "{}", node.log());
    image_is_made(&data);
    let mut expected = change_some(&node, 0);
    // After a kill and after a clean stop, and with another number of cores.
    let node = node.kill().cores(1).start();
    assert!(node.log().contains(FROM_IMAGE), "{}", node.log());
    check(&node, &expected);
    expected.extend(change_some(&node, 1));
    let (setup, _) = node.terminate_and_tell();
    let node = setup.start();
    assert!(node.log().contains(FROM_IMAGE), "{}", node.log());
    check(&node, &expected);
    // A damaged image is noticed, and the store has all links.
    expected.extend(change_some(&node, 2));
    let setup = node.kill();
    let image = File::options().read(true).write(true).open(data.join("links.image")).unwrap();
    let (mut byte, middle) = ([0], image.metadata().unwrap().len() / 2);
    image.read_exact_at(&mut byte, middle).unwrap();
    image.write_all_at(&[byte[0] ^ 1], middle).unwrap();
    let node = setup.expect("the image of the links").start();
    assert!(node.log().contains(FROM_STORE), "{}", node.log());
    check(&node, &expected);
    // It is made anew, without what was in the old one.
    image_is_made(&data);
    let node = node.restart();
    assert!(node.log().contains(FROM_IMAGE), "{}", node.log());
    check(&node, &expected);
    // An import writes past the log of changes.
    let setup = node.terminate();
    let lines: String = (0..10)
        .map(|n| format!("{}\n", json!({"shortCode": format!("more{n}"), "longUrl": "https://example.org/more"})))
        .collect();
    let file = folder.path().join("more.ndjson");
    fs::write(&file, lines).unwrap();
    let import = std::process::Command::new(env!("CARGO_BIN_EXE_carom"))
        .arg("import")
        .arg("--data-dir")
        .arg(&data)
        .arg(&file)
        .status();
    assert!(import.unwrap().success());
    let node = setup.start();
    assert!(node.log().contains(FROM_STORE), "{}", node.log());
    expected.push(("more3".to_owned(), Some("https://example.org/more".to_owned())));
    check(&node, &expected);
}
