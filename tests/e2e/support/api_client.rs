//! API keys, and a client that sends one.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{CAROM, Node, Setup, wait_until};

pub(crate) const JSON: &str = "Content-Type: application/json\r\n";

/// Runs `carom app` and returns its output, whether it succeeds or not.
pub(crate) fn try_run_app(setup: &Setup, arguments: &[&str]) -> Output {
    let mut command = Command::new(CAROM);
    command.arg("app").args(arguments).arg("--data-dir").arg(setup.data_dir());
    command.output().expect("the command can be run")
}

/// Runs `carom app`, which must succeed. Returns its standard output without the trailing newline.
pub(crate) fn run_app(setup: &Setup, arguments: &[&str]) -> String {
    let output = try_run_app(setup, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

/// Adds a key with this role for an app, and returns the key.
pub(crate) fn new_key(setup: &Setup, name: &str, role: &str) -> String {
    run_app(setup, &["add", name, "--role", role])
}

/// An HTTP client that sends an API key, over one connection.
pub(crate) struct ApiClient {
    pub(crate) wire: Wire,
    pub(crate) fields: String,
}

impl ApiClient {
    pub(crate) fn new(node: &Node, key: &str) -> ApiClient {
        ApiClient { wire: node.wire(), fields: format!("X-Api-Key: {key}\r\n") }
    }

    pub(crate) fn ask(&mut self, method: &str, path: &str, fields: &str, body: &str) -> Reply {
        self.wire.ask(method, path, &format!("{}{fields}", self.fields), body.as_bytes())
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask("GET", path, "", "")
    }

    pub(crate) fn create(&mut self, body: &Value) -> Reply {
        self.ask("POST", SHORT_URLS, JSON, &body.to_string())
    }

    pub(crate) fn shorten(&mut self, target: &str) -> String {
        self.create(&json!({"longUrl": target})).code()
    }

    /// True if every core accepts the key.
    pub(crate) fn is_known(&mut self, node: &Node) -> bool {
        (0..8).all(|_| {
            self.wire = node.wire();
            let mut reply = self.get("/rest/v3/tags");
            // A node that has just started counts its links first, which it tells those who have a key.
            wait_until("counts of links", || {
                let is_counting = reply.status == 503;
                if is_counting {
                    reply = self.get("/rest/v3/tags");
                }
                !is_counting
            });
            match reply {
                reply if reply.status == 200 => true,
                // Tests look often.
                reply if reply.status == 429 => false,
                reply => {
                    reply.problem(401, "/invalid-api-key");
                    false
                }
            }
        })
    }
}

/// `apps.json` with one key of the app `gone`, revoked 401 days ago.
pub(crate) fn with_key_of_long_ago(setup: &Setup) -> String {
    let gone = new_key(setup, "gone", "read");
    run_app(setup, &["revoke", "gone"]);
    let file = setup.data_dir().join("apps.json");
    let mut apps: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let long_ago_ms = carom_telemetry::clock::unix_ms() - 401 * 86_400_000;
    for field in ["createdMs", "revokedMs"] {
        apps["keys"][0][field] = json!(long_ago_ms);
    }
    std::fs::write(&file, apps.to_string()).unwrap();
    gone
}
