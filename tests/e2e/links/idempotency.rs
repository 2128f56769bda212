//! Creates that are repeated with their `Idempotency-Key` make one link, even over a crash in between.

use serde_json::json;

use crate::support::api_client::{JSON, new_key};
use crate::support::http::{Reply, SHORT_URLS};
use crate::support::links::{codes, codes_left, create};
use crate::support::node::Setup;
use crate::support::openapi::is_described;

const TARGET: &str = "https://example.org/target";

#[test]
fn repeated_create_gets_the_first_link() {
    let dir = tempfile::tempdir().unwrap();
    let mut node = Setup::new(dir.path()).cores(2).start();
    let body = json!({"longUrl": TARGET, "title": "T", "tags": ["a"]});
    let first = create(&mut node.wire(), "one", "", &body);
    assert_eq!(first.field("idempotent-replayed"), None);
    let code = first.code();
    let slug = json!({"longUrl": TARGET, "customSlug": "slug"});
    assert_eq!(create(&mut node.wire(), "two", "", &slug).code(), "slug");
    // However often, in whatever form, on whatever core, and after whatever end.
    for round in 0..4 {
        for shown in ["one", "\"one\""] {
            let again = create(&mut node.wire(), shown, "", &json!({"tags": ["a"], "title": "T", "longUrl": TARGET}));
            assert_eq!(again.field("idempotent-replayed"), Some("true"));
            assert_eq!(again.code(), code.clone());
            is_described(&node, "post", SHORT_URLS, &again);
        }
        assert_eq!(create(&mut node.wire(), "two", "", &slug).code(), "slug");
        assert_eq!(codes(&node).len(), 2);
        node = match round {
            0 => node.kill().start(),
            1 => node.restart(),
            _ => node,
        };
    }
    // It is told as it is now.
    let change = json!({"title": "Other"}).to_string();
    assert_eq!(node.wire().ask("PATCH", &format!("{SHORT_URLS}/{code}"), JSON, change.as_bytes()).status, 200);
    assert_eq!(create(&mut node.wire(), "one", "", &body).json()["title"], "Other");
    for (reply, status, kind) in [
        (create(&mut node.wire(), "one", "", &json!({"longUrl": TARGET})), 422, ":idempotency-key-reused"),
        (
            create(&mut node.wire(), "two", "", &json!({"longUrl": TARGET, "customSlug": "other"})),
            422,
            ":idempotency-key-reused",
        ),
        (create(&mut node.wire(), "three four", "", &body), 400, "/invalid-data"),
        (create(&mut node.wire(), "", "", &body), 400, "/invalid-data"),
        (create(&mut node.wire(), &"x".repeat(256), "", &body), 400, "/invalid-data"),
        (create(&mut node.wire(), "a", "Idempotency-Key: b\r\n", &body), 400, "/invalid-data"),
    ] {
        reply.problem(status, kind);
        is_described(&node, "post", SHORT_URLS, &reply);
    }
    // A request that was refused leaves its key unused.
    create(&mut node.wire(), "five", "", &slug).problem(400, "/non-unique-slug");
    let five = create(&mut node.wire(), "five", "", &body).code();
    assert_eq!(create(&mut node.wire(), "five", "", &body).code(), five);
    assert_eq!(node.wire().delete(&code).status, 204);
    let gone = create(&mut node.wire(), "one", "", &body);
    gone.problem(410, ":created-link-gone");
    is_described(&node, "post", SHORT_URLS, &gone);
    assert_eq!(codes(&node).len(), 2);
    // Codes that repetitions have brought are not lost.
    let before = codes_left(&node);
    (0..100).for_each(|_| _ = create(&mut node.wire(), "five", "", &body).code());
    assert_eq!(codes_left(&node), before);
    let log = node.terminate_and_tell().1;
    assert!(!log.contains("five"), "a key of a client in the log");
}

#[test]
fn keys_are_separate_per_app() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let (shop, mail) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "mail", "write-own"));
    let node = setup.start();
    let body = json!({"longUrl": TARGET});
    let of = |key: &str| create(&mut node.wire(), "one", &format!("X-Api-Key: {key}\r\n"), &body).code();
    let (first, other) = (of(&shop), of(&mail));
    assert_ne!(first, other);
    assert_eq!(of(&shop), first);
    assert_eq!(of(&mail), other);
    node.terminate();
}

#[test]
fn concurrent_creates_make_one_link() {
    let dir = tempfile::tempdir().unwrap();
    let node = Setup::new(dir.path()).cores(2).start();
    let body = json!({"longUrl": TARGET});
    for round in 0..20 {
        let key = format!("key-{round}");
        let replies: Vec<Reply> = std::thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| create(&mut node.wire(), &key, "", &body))).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        let mut made: Vec<String> = replies.iter().filter(|reply| reply.status == 200).map(Reply::code).collect();
        made.dedup();
        assert_eq!(made.len(), 1, "{replies:?}");
        for refused in replies.iter().filter(|reply| reply.status != 200) {
            refused.problem(409, ":request-under-way");
            assert_eq!(refused.field("retry-after"), Some("1"));
            is_described(&node, "post", SHORT_URLS, refused);
        }
        assert_eq!(codes(&node).len(), round + 1);
    }
    node.terminate();
}
