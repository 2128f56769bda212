//! Shlink's JavaScript SDK, unmodified, on a node. `tests/npm/shlink-sdk.mjs` calls each of its methods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use crate::support::api_client::new_key;
use crate::support::node::Setup;

/// Methods of the SDK that fail, each with the reason. This list may only shrink: a method that works must not be on
/// it.
const EXPECTED_FAILURES: &[&str] = &[];

/// Calls every method of the SDK, and returns the fault of each method that failed.
fn faults(base_url: &str, key: &str, transport: &str) -> BTreeMap<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/npm/shlink-sdk.mjs");
    let output = Command::new("node").arg(script).args([base_url, key, transport]).output();
    let output = output.expect("node, which `make test` installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let results: BTreeMap<String, Option<String>> = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results.len() >= 23, "the SDK has 23 methods: {results:?}");
    results.into_iter().filter_map(|(method, fault)| Some((method, fault?))).collect()
}

fn only_expected_methods_fail(transport: &str) {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).cores(2).env("CAROM_VISITS_LOG", "on");
    let key = new_key(&setup, "sdk", "admin");
    let node = setup.start();
    let faults = faults(&node.url(""), &key, transport);
    let failed: BTreeSet<&str> = faults.keys().map(String::as_str).collect();
    let expected: BTreeSet<&str> = EXPECTED_FAILURES.iter().copied().collect();
    assert_eq!(failed, expected, "{faults:#?}");
}

#[test]
fn methods_work_over_the_http_client_of_node() {
    only_expected_methods_fail("node");
}

#[test]
fn methods_work_over_fetch() {
    only_expected_methods_fail("fetch");
}
