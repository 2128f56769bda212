//! Sessions of the console, without a browser.

use serde_json::Value;

use crate::support::api_client::{self, JSON};
use crate::support::http::{Reply, SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, wait_until};

const FORM: &str = "Content-Type: application/x-www-form-urlencoded\r\n";

/// A browser that is signed in, without a screen.
pub(crate) struct SignedIn {
    pub(crate) wire: Wire,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

/// Sends the form of the sign-in page.
pub(crate) fn sign_in(node: &Node, key: &str, fields: &str) -> Reply {
    let body = format!("key={key}&next=%2Fadmin%2Flinks");
    Wire::open(node.admin).ask("POST", "/admin/sign-in", &format!("{FORM}{fields}"), body.as_bytes())
}

/// The cookie that an answer sets, as a browser sends it back.
pub(crate) fn cookie(reply: &Reply) -> String {
    let set = reply.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {reply:?}"));
    set.split(';').next().unwrap().to_owned()
}

impl SignedIn {
    pub(crate) fn new(node: &Node, key: &str) -> SignedIn {
        SignedIn::of(node, &sign_in(node, key, ""))
    }

    /// The browser that a response to a sign-in let in.
    pub(crate) fn of(node: &Node, reply: &Reply) -> SignedIn {
        assert_eq!((reply.status, reply.location()), (303, "/admin/links"), "{}", reply.text());
        let mut signed_in = SignedIn { wire: Wire::open(node.admin), cookie: cookie(reply), csrf: String::new() };
        signed_in.csrf = signed_in.get("/admin/api/session").json()["csrf"].as_str().unwrap().to_owned();
        signed_in
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.wire.ask("GET", path, &format!("Cookie: {}\r\n", self.cookie), b"")
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, fields: &str, body: &str) -> Reply {
        let fields = format!("Cookie: {}\r\nX-CSRF-Token: {}\r\n{fields}", self.cookie, self.csrf);
        self.wire.ask(method, path, &fields, body.as_bytes())
    }

    pub(crate) fn create(&mut self, fields: &Value) -> String {
        self.send("POST", SHORT_URLS, JSON, &fields.to_string()).code()
    }
}

/// Makes keys of further apps with their roles, and waits until they sign in.
pub(crate) fn more_keys<const N: usize>(setup: &Setup, node: &Node, apps: [(&str, &str); N]) -> [String; N] {
    let keys = apps.map(|(app, role)| api_client::new_key(setup, app, role));
    for key in &keys {
        wait_until("a key that signs in", || sign_in(node, key, "").status == 303);
    }
    keys
}

/// A node that asks for keys, and one with the role admin.
pub(crate) fn with_key(setup: &Setup) -> (Node, String) {
    let key = api_client::new_key(setup, "ops", "admin");
    let node = setup.start();
    wait_until("keys that are asked for", || Wire::open(node.admin).get("/admin/api/session").status == 401);
    (node, key)
}
