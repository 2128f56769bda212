//! The file of API keys: keys that ended long ago, and a file that becomes unreadable.

use serde_json::{Value, json};

use crate::apps::{Caller, app, done, key};
use crate::http::SHORT_URLS;
use crate::node::{Setup, wait_until};

/// `apps.json` with one key of the app `gone`, revoked 401 days ago.
pub(crate) fn with_key_of_long_ago(setup: &Setup) -> String {
    let gone = key(setup, "gone", "read");
    done(setup, &["revoke", "gone"]);
    let file = setup.data_dir().join("apps.json");
    let mut apps: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let long_ago_ms = carom_telemetry::clock::unix_ms() - 401 * 86_400_000;
    for field in ["createdMs", "revokedMs"] {
        apps["keys"][0][field] = json!(long_ago_ms);
    }
    std::fs::write(&file, apps.to_string()).unwrap();
    gone
}

#[test]
fn an_empty_registry_that_has_had_keys_asks_for_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let gone = with_key_of_long_ago(&setup);
    // Any command on the stopped node purges the only key.
    assert!(!app(&setup, &["revoke", "gone"]).status.success());
    assert_eq!(done(&setup, &["list", "--json"]), "{\n  \"keys\": []\n}");
    let node = setup.start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    Caller::new(&node, &gone).get(SHORT_URLS).problem(401, "/invalid-api-key");
    node.terminate();
    // Also where others reach it, which a node that never had keys must be asked for.
    let node = setup.clone().argument("--listen").argument("0.0.0.0:0").start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    node.terminate();
    let node = setup.start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    // The next key opens the API again.
    let shop = key(&setup, "shop", "read");
    let mut shop = Caller::new(&node, &shop);
    wait_until("the new key", || shop.is_known(&node));
    node.terminate();
}

#[test]
fn keys_that_become_unreadable_go_on_to_hold() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).expect("cannot be read or written");
    let good = key(&setup, "shop", "write-own");
    let node = setup.start();
    let file = setup.data_dir().join("apps.json");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    let alarms = || crate::faults::alarms(&node.status()).contains(&"apps_unreadable");
    crate::alarms::is_seen(&node, "apps_unreadable");
    assert!(alarms());
    let mut shop = Caller::new(&node, &good);
    assert!(shop.is_known(&node));
    std::fs::write(&file, whole).unwrap();
    wait_until("no alarm", || !alarms());
    assert!(shop.is_known(&node));
    node.terminate();
}
