//! The file of API keys: keys that expired long ago, and a file that becomes unreadable.

use crate::support::api_client::{ApiClient, new_key, run_app, try_run_app, with_key_of_long_ago};
use crate::support::http::SHORT_URLS;
use crate::support::node::{Setup, wait_until};

#[test]
fn emptied_registry_still_requires_a_key() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data"));
    let gone = with_key_of_long_ago(&setup);
    // Any command on the stopped node purges the only key.
    assert!(!try_run_app(&setup, &["revoke", "gone"]).status.success());
    assert_eq!(run_app(&setup, &["list", "--json"]), "{\n  \"keys\": []\n}");
    let node = setup.start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    ApiClient::new(&node, &gone).get(SHORT_URLS).problem(401, "/invalid-api-key");
    node.terminate();
    // Also where others reach it, which a node that never had keys must be asked for.
    let node = setup.clone().argument("--listen").argument("0.0.0.0:0").start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    node.terminate();
    let node = setup.start();
    node.wire().get(SHORT_URLS).problem(401, "/missing-authentication");
    // The next key opens the API again.
    let shop = new_key(&setup, "shop", "read");
    let mut shop = ApiClient::new(&node, &shop);
    wait_until("the new key", || shop.is_known(&node));
    node.terminate();
}

#[test]
fn unreadable_registry_keeps_keys_valid() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).expect("cannot be read or written");
    let good = new_key(&setup, "shop", "write-own");
    let node = setup.start();
    let file = setup.data_dir().join("apps.json");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    let alarms = || crate::support::alarms::alarms(&node.status()).contains(&"apps_unreadable");
    crate::support::alarms::is_seen(&node, "apps_unreadable");
    assert!(alarms());
    let mut shop = ApiClient::new(&node, &good);
    assert!(shop.is_known(&node));
    std::fs::write(&file, whole).unwrap();
    wait_until("no alarm", || !alarms());
    assert!(shop.is_known(&node));
    node.terminate();
}
