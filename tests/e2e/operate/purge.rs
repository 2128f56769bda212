//! `carom purge`: purges from the command line.

use carom_telemetry::readable::count;
use serde_json::json;

use crate::support::bulk::{BULK, send_all};
use crate::support::cli_user::CliUser;
use crate::support::http::Wire;
use crate::support::node::Setup;
use crate::support::purges::{MARKER, marked_files};

fn exists(wire: &mut Wire, slug: &str) -> bool {
    wire.get(&format!("/{slug}")).status == 302
}

#[test]
fn selected_links_are_purged_after_a_question() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    let mut wire = node.wire();
    let target = format!("https://a.example/{MARKER}");
    wire.shorten_as("gone", &target);
    wire.shorten_as("kept", "https://example.org/");
    let counted = user.done(&["purge", "--destination", &target, "--dry-run"]);
    assert_eq!(counted, "1 link would be deleted and purged\n");
    assert!(exists(&mut wire, "gone"));
    user.refused(&["purge", "--destination", &target], 2, &["cannot be undone", "--yes"]);
    assert!(exists(&mut wire, "gone"));
    assert_eq!(user.done(&["purge", "--destination", &target, "--yes"]), "purged 1 link\n");
    assert!(!exists(&mut wire, "gone"));
    assert!(exists(&mut wire, "kept"));
    assert_eq!(marked_files(folder.path()), Vec::<String>::new());
    let nothing = user.run(&["purge", "--tag", "none", "--yes"]);
    assert_eq!(nothing.code, 0, "{nothing:?}");
    assert!(nothing.err.contains("no link matches"), "{nothing:?}");
}

#[test]
fn deleted_links_find_room_after_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new().env("CAROM_URL", &node.url(""));
    let mut wire = node.wire();
    let target = format!("https://a.example/{MARKER}");
    wire.shorten_as("gone", &target);
    assert_eq!(wire.delete("gone").status, 204);
    // As many as one purge takes.
    let line = |number: usize| format!("{}\n", json!({"longUrl": format!("{target}?{number}")}));
    let lines: String = (0..1_000).map(line).collect();
    assert_eq!(send_all(&node, BULK, lines.as_bytes()).len(), 1_000);
    let purged = user.done(&["purge", "--destination", &target, "--yes"]);
    assert_eq!(purged, format!("purged {}\n", count(1_001, "link")));
    assert_eq!(marked_files(folder.path()), Vec::<String>::new());
}

#[test]
fn exactly_one_selector_is_required() {
    let user = CliUser::new();
    user.refused(&["purge", "--yes"], 2, &["--domain"]);
    user.refused(&["purge", "--tag", "a", "--app", "b"], 2, &["cannot be used with"]);
    user.refused(&["purge", "--tag", "a", "--yes", "--dry-run"], 2, &["cannot be used with"]);
}
