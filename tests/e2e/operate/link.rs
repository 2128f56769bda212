//! `carom link`: the links of a node, from the command line.

use serde_json::{Value, json};

use crate::support::api_client::new_key;
use crate::support::cli_user::CliUser;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::terminal::Terminal;

/// A node without keys, and a user whose commands use it.
fn with_user(setup: &Setup) -> (Node, CliUser) {
    let node = setup.clone().over_kernel().start();
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    (node, user)
}

#[test]
fn created_links_redirect() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    // In a pipe, the short URL alone.
    let out = user.done(&["link", "create", "https://example.org/first"]);
    let code = out.trim_end().rsplit('/').next().unwrap().to_owned();
    assert_eq!(node.wire().get(&format!("/{code}")).location(), "https://example.org/first");
    let arguments = "link create https://example.org/sale --slug sale --tag b --tag a --title Sale --valid-until 30d \
        --max-visits 5 --status 301 --cache-seconds 60 --forward-query false --crawlable true --json";
    let link = user.json(&arguments.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        (&link["shortCode"], &link["tags"], &link["title"]),
        (&json!("sale"), &json!(["a", "b"]), &json!("Sale"))
    );
    assert_eq!((&link["redirectStatus"], &link["cacheSeconds"]), (&json!(301), &json!(60)));
    assert_eq!((&link["forwardQuery"], &link["crawlable"]), (&json!(false), &json!(true)));
    assert!(link["meta"]["maxVisits"] == 5, "{link}");
    assert!(link["meta"]["validUntil"].is_string(), "{link}");
    let bare = user.json(&["link", "create", "example.org:8443/bare?a=b", "--json"]);
    assert_eq!(bare["longUrl"], "https://example.org:8443/bare?a=b");
    user.refused(&["link", "create", "bare"], 2, &["longUrl", "hint: change the destination"]);
    let taken = ["already in use", "hint: choose another --slug; `carom link show sale`"];
    user.refused(&["link", "create", "https://example.org/other", "--slug", "sale"], 2, &taken);
    let again = user.done(&["link", "create", "https://example.org/first", "--find-if-exists"]);
    assert_eq!(again, out);
    let private = user.json(&["link", "create", "https://example.org/", "--private", "--json"]);
    assert_eq!(private["private"], true);
    let drawn = user.done(&["link", "show", "sale", "--qr"]);
    assert!(drawn.contains("Short URL"), "{drawn}");
    assert!(drawn.contains('▄'), "{drawn}");
    node.terminate();
}

#[test]
fn lists_search_and_turn_pages() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    for (slug, tag) in [("one", "odd"), ("two", "even"), ("three", "odd")] {
        let long_url = format!("https://example.org/{slug}");
        user.done(&["link", "create", &long_url, "--slug", slug, "--tag", tag]);
    }
    let list = |arguments: &[&str]| user.done(&[&["link", "list"][..], arguments].concat());
    let codes = |text: &str| -> Vec<String> {
        let rows = text.lines().skip(1).filter_map(|row| row.split_whitespace().next());
        rows.map(|url| url.rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(codes(&list(&["--order", "oldest"])), ["one", "two", "three"]);
    assert_eq!(codes(&list(&["--order", "slug", "--tag", "odd"])), ["one", "three"]);
    // The name of earlier versions.
    assert_eq!(codes(&list(&["--order", "code"])), ["one", "three", "two"]);
    assert_eq!(codes(&list(&["tw"])), ["two"]);
    assert_eq!(codes(&list(&["--state", "archived"])), Vec::<String>::new());
    let second = user.run(&["link", "list", "--order", "oldest", "--limit", "2", "--page", "1"]);
    assert!(codes(&second.out) == ["one", "two"], "{second:?}");
    assert!(second.err.contains("page 1 of 2; --page 2"), "{second:?}");
    assert_eq!(codes(&list(&["--order", "oldest", "--limit", "2", "--page", "2"])), ["three"]);
    let page = user.json(&["link", "list", "--limit", "1", "--json"]);
    assert_eq!(page["shortUrls"]["pagination"]["totalItems"], 3);
    let cursor = page["shortUrls"]["pagination"]["cursor"].as_str().unwrap();
    assert_eq!(codes(&list(&["--limit", "1", "--cursor", cursor])), ["two"]);
    assert_eq!(user.done(&["link", "list", "nothing-like-it"]), "");
    node.terminate();
}

#[test]
fn edits_set_and_remove_values() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    user.done(&["link", "create", "https://example.org/a", "--slug", "a", "--tag", "x", "--valid-until", "30d"]);
    let edited = ["link", "edit", "a", "--destination", "https://example.org/b", "--title", "B", "--json"];
    assert_eq!(user.json(&edited)["longUrl"], "https://example.org/b");
    assert_eq!(node.wire().get("/a").location(), "https://example.org/b");
    let cleared = user.json(&["link", "edit", "a", "--clear", "valid-until", "--clear", "tags", "--json"]);
    assert_eq!((&cleared["meta"]["validUntil"], &cleared["tags"]), (&Value::Null, &json!([])));
    assert_eq!(cleared["title"], "B", "a field that was not named has changed");
    let card = user.done(&["link", "edit", "a", "--archived", "true"]);
    assert!(card.contains("State         archived\n"), "{card}");
    assert!(card.contains("Title         B\n"), "{card}");
    assert_eq!(node.wire().get("/a").status, 410);
    user.refused(&["link", "edit", "a"], 2, &["error: nothing to change", "hint: "]);
    user.refused(&["link", "edit", "a", "--title", "x", "--clear", "title"], 2, &["set and cleared"]);
    user.refused(&["link", "edit", "a", "--status", "200"], 2, &["redirectStatus", "hint: change --status;"]);
    node.terminate();
}

#[test]
fn dates_of_ends_include_their_day() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    let create = ["link", "create", "https://example.org/", "--slug", "fair", "--starts", "2030-01-31"];
    let link = user.json(&[&create[..], &["--expires", "2030-01-31", "--json"]].concat());
    assert_eq!(link["meta"]["validSince"], "2030-01-31T00:00:00+00:00");
    assert_eq!(link["meta"]["validUntil"], "2030-01-31T23:59:59+00:00");
    let cleared = user.json(&["link", "edit", "fair", "--clear", "starts", "--clear", "expires", "--json"]);
    assert_eq!((&cleared["meta"]["validSince"], &cleared["meta"]["validUntil"]), (&Value::Null, &Value::Null));
    // The names of earlier versions.
    let former = ["link", "edit", "fair", "--valid-since", "2031-01-31", "--clear", "valid-until", "--json"];
    assert_eq!(user.json(&former)["meta"]["validSince"], "2031-01-31T00:00:00+00:00");
    node.terminate();
}

#[test]
fn deletes_ask_or_are_told_not_to() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    for slug in ["a", "b", "bulk"] {
        user.done(&["link", "create", "https://example.org/", "--slug", slug]);
    }
    user.refused(&["link", "delete", "a"], 2, &["--yes", "--archived true"]);
    let mut terminal = Terminal::start(user.command(&["link", "delete", "a"]));
    terminal.screen_with("Delete 1 link? You can undo this for 10 minutes. [y/N]");
    terminal.press("n\n");
    assert!(terminal.end().contains("nothing was deleted"));
    assert_eq!(node.wire().get("/a").status, 302);
    let some = user.run(&["link", "delete", "a", "none", "b", "--yes"]);
    assert_eq!((some.code, &*some.out), (1, "deleted a\ndeleted b\n"), "{some:?}");
    assert!(some.err.contains("none: "), "{some:?}");
    assert!(some.err.contains("1 link could not be deleted"), "{some:?}");
    assert!(some.err.contains("the others are deleted"), "{some:?}");
    let none = user.run(&["link", "delete", "none", "nil", "--yes"]);
    assert_eq!((none.code, &*none.out), (1, ""), "{none:?}");
    assert!(none.err.contains("2 links could not be deleted"), "{none:?}");
    assert!(!none.err.contains("the others"), "{none:?}");
    // The API has a path of that name.
    let url = node.url("/bulk");
    user.done(&["link", "delete", &url, "-y"]);
    for slug in ["a", "b", "bulk"] {
        assert_eq!(node.wire().get(&format!("/{slug}")).status, 404, "{slug}");
    }
    node.terminate();
}

#[test]
fn confirmed_deletes_are_undone() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()));
    for slug in ["a", "b", "c"] {
        user.done(&["link", "create", "https://example.org/", "--slug", slug]);
    }
    let mut terminal = Terminal::start(user.command(&["link", "delete", "a", "b"]));
    terminal.screen_with("Delete 2 links? You can undo this for 10 minutes. [y/N]");
    terminal.press("y\n");
    let screen = terminal.end();
    assert!(screen.contains("deleted a"), "{screen}");
    assert!(screen.contains("undo within 10 minutes: carom link restore a b"), "{screen}");
    assert_eq!(["/a", "/b"].map(|path| node.wire().get(path).status), [410, 410]);
    let card = user.done(&["link", "show", "a"]);
    assert!(card.contains("State         deleted\n"), "{card}");
    assert!(card.contains("Deleted on"), "{card}");
    assert_eq!(user.done(&["link", "restore", "a", "b"]), "restored a\nrestored b\n");
    assert_eq!(["/a", "/b"].map(|path| node.wire().get(path).status), [302, 302]);
    assert!(!user.done(&["link", "show", "a"]).contains("Deleted on"), "the deletion is still scheduled");
    // An archived link is brought back by the same command.
    user.done(&["link", "edit", "c", "--archived", "true"]);
    user.done(&["link", "restore", "c"]);
    assert_eq!(node.wire().get("/c").status, 302);
    user.refused(&["link", "restore", "none"], 1, &["none", "hint: "]);
    node.terminate();
}

#[test]
fn undo_keeps_archived_links_archived() {
    let folder = tempfile::tempdir().unwrap();
    let (node, _) = with_user(&Setup::new(folder.path()));
    // No variable names the node, so the undo must.
    let (user, url) = (CliUser::new(), node.url(""));
    user.done(&["link", "create", "https://example.org/", "--slug", "a", "--url", &url]);
    user.done(&["link", "edit", "a", "--archived", "true", "--url", &url]);
    let mut terminal = Terminal::start(user.command(&["link", "delete", "a", "--url", &url]));
    terminal.screen_with("[y/N]");
    terminal.press("y\n");
    let screen = terminal.end();
    let undo = format!("carom link edit --archived true --url {url} a");
    assert!(screen.contains(&format!("undo within 10 minutes: {undo}")), "{screen}");
    user.done(&undo.split(' ').skip(1).collect::<Vec<_>>());
    let card = user.done(&["link", "show", "a", "--url", &url]);
    assert!(card.contains("State         archived\n"), "{card}");
    assert!(!card.contains("Deleted on"), "{card}");
    node.terminate();
}

#[test]
fn stats_show_days_and_referrers() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()).env("CAROM_VISITS_LOG", "on"));
    user.done(&["link", "create", "https://example.org/", "--slug", "seen"]);
    for _ in 0..3 {
        let fields = "Referer: https://news.example/page\r\nAccept-Language: de\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";
        assert_eq!(node.wire().ask("GET", "/seen?utm_campaign=spring", fields, b"").status, 302);
    }
    let stats = || user.json(&["link", "stats", "seen", "--json"]);
    wait_until("three visits in the counts and in the log", || {
        let stats = stats();
        stats["visits"]["summary"]["total"] == 3 && stats["visitStats"]["total"] == 3
    });
    let page = user.done(&["link", "stats", &node.url("/seen"), "--since", "7d"]);
    let week_ago = page.strip_prefix("Visits, since ").and_then(|rest| rest.get(..10)).unwrap();
    for part in [
        "  3  ███",
        &format!("Visits, since {week_ago}: 3\n\nBy day, "),
        &format!("Referrers, since {week_ago}\n  3  news.example\n"),
        &format!("Languages, since {week_ago}\n  3  de\n"),
        &format!("Campaigns, since {week_ago}\n  3  spring\n"),
        "Firefox",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    let page = user.done(&["link", "stats", "seen"]);
    assert!(page.starts_with("Visits, all time: 3\n"), "{page}");
    assert!(page.contains("Browsers, logged since 20"), "{page}");
    user.refused(&["link", "stats", "none"], 1, &["none", "hint: "]);
    node.terminate();
}

#[test]
fn errors_name_the_cause_and_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path());
    let key = new_key(&setup, "shop", "read");
    let (node, user) = with_user(&setup);
    user.refused(&["link", "list"], 2, &[" requires an API key\n", "hint: log in with `carom login`"]);
    let file = user.file("key", &key);
    let user = user.env("CAROM_KEY_FILE", file.to_str().unwrap());
    user.done(&["link", "list"]);
    user.refused(&["link", "create", "https://example.org/"], 2, &["role read", "--role"]);
    user.refused(&["link", "show", "none"], 1, &["error: no link has the slug \"none\"", "hint: "]);
    user.refused(&["link", "show", "https://other.example/a b"], 2, &["neither a slug nor a short URL"]);
    user.refused(&["link", "list", "--limit", "501"], 2, &["1 to 500"]);
    user.refused(&["link", "list", "--cursor", "wrong"], 2, &["cursor", "hint: change --cursor;"]);
    node.terminate();
    let gone = user.run(&["link", "list"]);
    assert!(gone.code == 1, "{gone:?}");
    assert!(gone.err.contains("does not answer"), "{gone:?}");
    assert!(!gone.err.contains(&key), "{gone:?}");
}

#[test]
fn slugs_with_slashes_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (node, user) = with_user(&Setup::new(folder.path()).env("CAROM_LINKS_MULTI_SEGMENT_SLUGS", "true"));
    for slug in ["a", "docs/a", "docs/visits"] {
        user.done(&["link", "create", &format!("https://example.org/of/{slug}"), "--slug", slug]);
    }
    for link in ["docs/visits", &node.url("/docs/visits")] {
        assert_eq!(user.json(&["link", "show", link, "--json"])["longUrl"], "https://example.org/of/docs/visits");
    }
    user.json(&["link", "stats", "docs/visits", "--json"]);
    assert_eq!(user.done(&["link", "delete", "docs/a", "-y"]), "deleted docs/a\n");
    assert_eq!((node.wire().get("/docs/a").status, node.wire().get("/a").status), (404, 302));
    // Neither a slug that does not exist nor a short URL of another service means the link of its last segment.
    user.refused(&["link", "delete", "docs/none/a", "-y"], 1, &["none"]);
    user.refused(&["link", "delete", "https://other.example/a", "-y"], 2, &["other.example is not a domain"]);
    assert_eq!(node.wire().get("/a").status, 302);
    node.terminate();
}

#[test]
fn domains_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let setup =
        Setup::new(folder.path()).env("CAROM_BASE_URL", "https://s.test").env("CAROM_DOMAINS_SERVE", "https://go.test");
    let (node, user) = with_user(&setup);
    user.done(&["link", "create", "https://example.org/s", "--slug", "same"]);
    let out = user.done(&["link", "create", "https://example.org/go", "--slug", "same", "--domain", "go.test"]);
    assert_eq!(out, "https://go.test/same\n");
    let long_url = |link: &str, more: &[&str]| {
        let arguments = [&["link", "show", link, "--json"][..], more].concat();
        user.json(&arguments)["longUrl"].as_str().unwrap().to_owned()
    };
    assert_eq!(long_url("same", &[]), "https://example.org/s");
    assert_eq!(long_url("https://s.test/same", &[]), "https://example.org/s");
    assert_eq!(long_url("https://GO.test/same+", &[]), "https://example.org/go");
    assert_eq!(long_url("same", &["--domain", "go.test"]), "https://example.org/go");
    user.refused(&["link", "show", "https://other.test/same"], 2, &["other.test is not a domain", "go.test"]);
    user.refused(&["link", "show", "https://go.test/same", "--domain", "go.test"], 2, &["names its domain already"]);
    node.terminate();
}
