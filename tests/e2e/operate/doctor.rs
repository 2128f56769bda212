//! `carom doctor`: what it finds on a machine, and what it says to do.

use serde_json::Value;

use crate::support::cli_user::CliUser;
use crate::support::node::Setup;
use crate::support::redis::Server;

/// The results of all checks whose text contains a part.
fn results<'f>(findings: &'f Value, part: &str) -> Vec<&'f str> {
    let all = findings.as_array().unwrap().iter();
    let found = all.filter(|finding| finding["text"].as_str().unwrap().contains(part));
    found.map(|finding| finding["result"].as_str().unwrap()).collect()
}

#[test]
fn findings_have_results_and_remedies() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).start();
    let user = CliUser::new();
    let data_dir = folder.path().to_str().unwrap();
    // Beside a running node, which has the directory.
    let ran = user.run(&["doctor", "--json", "--data-dir", data_dir]);
    let findings: Value = serde_json::from_str(&ran.out).unwrap();
    for part in ["io_uring", "open files", "can be written", "a sync of the disk", "the clock"] {
        let found = results(&findings, part);
        assert!(found.len() == 1, "{part}: {findings:#}");
        assert!(found[0] != "error", "{part}: {findings:#}");
    }
    assert_eq!(results(&findings, "base_url is not set"), ["warning"]);
    assert_eq!(results(&findings, "no API key exists"), ["warning"]);
    for finding in findings.as_array().unwrap() {
        assert_eq!(finding["result"] == "ok", finding["remedy"].is_null(), "{finding}");
    }
    let text = user.run(&["doctor", "--data-dir", data_dir]).out;
    assert!(text.contains("ok       Linux "), "{text}");
    assert!(text.contains("warning  base_url is not set"), "{text}");
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| { entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".doctor") })
            .count(),
        0
    );
    node.terminate();
}

#[test]
fn running_nodes_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let node = Setup::new(folder.path()).over_kernel().start();
    let user = CliUser::new().env("CAROM_ADMIN_LISTEN", &node.admin.to_string());
    let findings = |arguments: &[&str]| -> Value {
        serde_json::from_str(&user.run(&[&["doctor", "--json"][..], arguments].concat()).out).unwrap()
    };
    let data_dir = folder.path().canonicalize().unwrap();
    let data_dir = data_dir.to_str().unwrap();
    // The settings of the user name a directory that does not exist.
    let found = findings(&[]);
    assert_eq!(results(&found, &format!("has the data directory {data_dir}, not ")), ["warning"], "{found:#}");
    assert_eq!(results(&found, &format!("{data_dir} can be written")).len(), 1, "{found:#}");
    assert!(results(&found, "does not exist").is_empty());
    assert!(results(&found, "no API key exists yet").is_empty());
    let found = findings(&["--data-dir", data_dir]);
    assert_eq!(results(&found, "runs on this data directory"), ["ok"], "{found:#}");
    let found = findings(&["--data-dir", "none"]);
    assert_eq!(results(&found, "none does not exist yet"), ["warning"], "{found:#}");
    node.terminate();
}

#[test]
fn names_and_certificates_are_checked() {
    let user = CliUser::new();
    let own = rcgen::generate_simple_self_signed(["go.example".to_owned()]).unwrap();
    let cert = user.file("go.crt", &own.cert.pem());
    let key = user.file("go.key", &own.signing_key.serialize_pem());
    let settings = format!(
        "base_url = 'https://carom.invalid'\n[tls]\ncert = ['{}']\nkey = ['{}']\n",
        cert.display(),
        key.display()
    );
    user.file("carom.toml", &settings);
    let ran = user.run(&["doctor", "--config", "carom.toml"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    for part in [
        "error    carom.invalid of base_url has no address",
        "go.example: the certificate is valid for",
        "is for carom.invalid",
    ] {
        assert!(ran.out.contains(part), "{part}: {ran:?}");
    }
    assert!(ran.err.contains("error: 2 errors"), "{ran:?}");
    user.file("wrong.toml", "colour = 'red'\n");
    user.refused(&["doctor", "--config", "wrong.toml"], 2, &["wrong.toml:1: colour"]);
}

#[test]
fn redis_is_asked() {
    let redis = Server::start();
    let user = CliUser::new().env("CAROM_REDIS", &redis.url());
    let findings: Value = serde_json::from_str(&user.run(&["doctor", "--json"]).out).unwrap();
    assert_eq!(results(&findings, "answers in").len(), 1, "{findings:#}");
    assert_eq!(results(&findings, "ms apart"), ["ok"]);
    assert_eq!(results(&findings, "removes no keys"), ["ok"]);
    redis.command(&["CONFIG", "SET", "maxmemory", "256mb", "maxmemory-policy", "allkeys-lru"]);
    let findings: Value = serde_json::from_str(&user.run(&["doctor", "--json"]).out).unwrap();
    assert_eq!(results(&findings, "maxmemory-policy is allkeys-lru"), ["warning"]);
    let gone = CliUser::new().env("CAROM_REDIS", "redis://127.0.0.1:1");
    let ran = gone.run(&["doctor", "--json"]);
    let findings: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((ran.code, results(&findings, "Redis does not answer")), (1, vec!["error"]));
}
