//! Shlink's web component, unmodified, in a browser: it connects to a node from another origin, as Shlink's web client
//! does, and goes through its pages.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key};
use crate::support::browser::{Browser, ENTER};
use crate::support::console::says;
use crate::support::http::SHORT_URLS;
use crate::support::node::{Node, Setup, wait_until};
use crate::support::visits::BROWSER;

/// The page of the client. Its dialogs close at the end of a transition, which the styles of the client have.
const PAGE: &str = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Client</title><link rel=\"icon\" href=\"data:,\">
<style>
form[data-testid=transition-container] { opacity: 0; transition: opacity 1ms }
form[data-testid=transition-container][data-open] { opacity: 1 }
</style></head>
<body><div id=\"root\"></div><script type=\"module\" src=\"/app.js\"></script></body></html>";

const TARGET: &str = "https://example.org/of/the/client";

/// Builds the client. Returns its script.
fn built() -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/npm/web-client");
    let output = Command::new(folder.join("node_modules/.bin/esbuild"))
        .current_dir(&folder)
        .args(["app.jsx", "--bundle", "--format=esm", "--jsx=automatic", "--minify", "--log-level=error"])
        .arg("--define:process.env.NODE_ENV=\"production\"")
        .output();
    let output = output.expect("esbuild, which `make test` installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Serves the client on an origin of its own until the test ends.
fn serve(script: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let script = Arc::clone(&script);
            std::thread::spawn(move || answer(&stream, &script));
        }
    });
    address
}

fn answer(mut stream: &TcpStream, script: &[u8]) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(first) = lines.next() else { return };
    // The head ends with an empty line.
    lines.take_while(|line| !line.is_empty()).for_each(drop);
    let (kind, body) =
        if first.contains(" /app.js ") { ("text/javascript", script) } else { ("text/html", PAGE.as_bytes()) };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // A browser may have gone away.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
}

/// The client in a browser, and the API of the node that it is connected to.
struct Session<'n> {
    browser: Browser,
    origin: String,
    node: &'n Node,
    key: String,
}

impl Session<'_> {
    fn get(&self, path: &str) -> Value {
        ApiClient::new(self.node, &self.key).get(path).json()
    }

    fn go(&self, path: &str) {
        self.browser.go(&format!("{}{path}", self.origin));
    }

    /// Clicks the last button that says this, once it is there.
    fn press(&self, text: &str) {
        let script = format!(
            "(() => {{ const all = [...document.querySelectorAll('button, [role=menuitem]')]; const one = all.filter((it) => it.innerText.trim() === {}).at(-1); one?.click(); return Boolean(one); }})()",
            json!(text)
        );
        wait_until(text, || self.browser.value(&script) == true);
    }

    /// Replaces the text in a field.
    fn replace(&self, selector: &str, text: &str) {
        let script = format!(
            "(() => {{ const one = document.querySelector({}); one?.select(); return Boolean(one?.value); }})()",
            json!(selector)
        );
        wait_until(selector, || self.browser.value(&script) == true);
        self.browser.press(text);
    }

    fn says(&self, text: &str) {
        says(&self.browser, "body", text);
    }

    /// Waits until the API returns this value at a JSON pointer.
    fn becomes(&self, path: &str, pointer: &str, value: &Value) {
        let what = format!("{value} at {pointer} of {path}");
        wait_until(&what, || self.get(path).pointer(pointer) == Some(value));
    }

    fn connect(&self) {
        self.go("/");
        self.browser.fill("[name=baseUrl]", &self.node.url(""));
        self.browser.fill("[name=apiKey]", &self.key);
        self.browser.click("button");
        self.says("Orphan visits");
    }

    fn create(&self) {
        self.browser.click("nav a[href='/create-short-url']");
        // Of these fields, only the title is not on the page before, which is shown until the next one is drawn.
        self.browser.fill("input[placeholder='Title']", "First title");
        self.browser.fill("input[placeholder='Custom slug']", "client");
        self.browser.fill("input[placeholder='URL to be shortened']", TARGET);
        self.browser.fill("input[placeholder^='Add tags']", &format!("red{ENTER}"));
        self.browser.click("button[type=submit]");
        self.says("The short URL is");
        let link = self.get(&format!("{SHORT_URLS}/client"));
        assert_eq!([&link["longUrl"], &link["title"], &link["tags"][0]], [TARGET, "First title", "red"]);
    }

    fn edit(&self) {
        self.go("/short-code/client/edit");
        self.replace("input[placeholder='Title']", "Second title");
        self.browser.click("button[type=submit]");
        self.says("properly edited");
        self.becomes(&format!("{SHORT_URLS}/client"), "/title", &json!("Second title"));
        self.browser.click("nav a[href='/list-short-urls/1']");
        self.says("Second title");
    }

    fn set_rules(&self) {
        self.go("/short-code/client/redirect-rules");
        self.press("Add rule");
        self.browser.fill("dialog input[type=url]", &format!("{TARGET}/android"));
        self.browser.click("dialog button[aria-label='Add condition']");
        self.browser.click("dialog option[value=android]");
        self.browser.click("dialog button[type=submit]");
        self.says(&format!("{TARGET}/android"));
        self.press("Save rules");
        let path = format!("{SHORT_URLS}/client/redirect-rules");
        self.becomes(&path, "/redirectRules/0/longUrl", &json!(format!("{TARGET}/android")));
        self.becomes(&path, "/redirectRules/0/conditions/0/matchValue", &json!("android"));
    }

    fn rename_tag(&self) {
        self.go("/manage-tags");
        self.browser.click("button[aria-label='Options']");
        self.press("Edit");
        self.replace("dialog input[placeholder='Tag']", "blue");
        self.browser.click("dialog button[type=submit]");
        self.becomes(&format!("{SHORT_URLS}/client"), "/tags", &json!(["blue"]));
        self.go("/manage-tags");
        self.says("blue");
    }

    fn edit_domain(&self) {
        self.go("/manage-domains");
        self.browser.click("button[aria-label='Options']");
        self.press("Edit redirects");
        for (place, path) in ["home", "regular", "invalid"].into_iter().enumerate() {
            let field = format!("dialog div:nth-child({}) > input[type=url]", place + 1);
            self.browser.fill(&field, &format!("{TARGET}/{path}"));
        }
        self.browser.click("dialog button[type=submit]");
        let domain = "/domains/data/0/redirects";
        for (field, path) in
            [("baseUrlRedirect", "home"), ("regular404Redirect", "regular"), ("invalidShortUrlRedirect", "invalid")]
        {
            self.becomes("/rest/v3/domains", &format!("{domain}/{field}"), &json!(format!("{TARGET}/{path}")));
        }
        self.go("/manage-domains");
        self.says(&format!("{TARGET}/invalid"));
    }

    fn read_visits(&self) {
        for path in ["/client", "/client", "/missing"] {
            assert_eq!(self.node.wire().ask("GET", path, BROWSER, b"").status, 302, "{path}");
        }
        self.becomes(&format!("{SHORT_URLS}/client/visits"), "/visits/pagination/totalItems", &json!(2));
        self.becomes("/rest/v3/visits/orphan", "/visits/pagination/totalItems", &json!(1));
        for (path, text) in [
            ("/short-code/client/visits/by-time", "Visits (2)"),
            ("/short-code/client/visits/by-context", "Chrome"),
            ("/short-code/client/visits/by-location", "Countries"),
            ("/short-code/client/visits/list", "Linux"),
            ("/tag/blue/visits/by-time", "Visits (2)"),
            ("/domain/DEFAULT/visits/by-time", "Visits (2)"),
            ("/non-orphan-visits/by-time", "Visits (2)"),
            ("/orphan-visits/by-time", "Visits (1)"),
        ] {
            self.go(path);
            self.says(text);
        }
    }
}

#[test]
fn web_client_works_from_another_origin() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).cores(2).env("CAROM_VISITS_LOG", "on");
    let key = new_key(&setup, "web", "admin");
    let node = setup.start();
    let mut browser = Browser::open();
    // Clients ask for a Mercure hub, and expect that there may be none.
    browser.expect("mercure-info");
    let origin = format!("http://{}", serve(built()));
    let session = Session { browser, origin, node: &node, key };
    session.connect();
    session.create();
    session.edit();
    session.set_rules();
    session.rename_tag();
    session.edit_domain();
    session.read_visits();
    session.browser.close();
    node.terminate();
}
