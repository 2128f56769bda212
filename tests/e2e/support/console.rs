//! Steps on pages of the console in a browser.

use std::path::Path;

use serde_json::json;
use tempfile::TempDir;

use crate::support::browser::{Browser, ENTER};
use crate::support::node::{Node, PATIENCE, Setup, pause_after, wait_until};
use crate::support::sessions::{more_keys, with_key};
use crate::support::visits::{FIREFOX, counted, follow, logging};

pub(crate) const TARGET: &str = "https://example.org/a/long/way?to=go&and=more";

/// Script: true if the first plot has the first of its colours.
pub(crate) const IS_IN_ITS_COLOUR: &str = "(() => {
    const [swatch, canvas] = [document.querySelector('.swatch'), document.querySelector('.plot-picture canvas')];
    if (!swatch || !canvas) return false;
    const wanted = getComputedStyle(swatch).backgroundColor.match(/\\d+/g).slice(0, 3).join();
    const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
    copy.drawImage(canvas, 0, 0);
    const { data } = copy.getImageData(0, 0, canvas.width, canvas.height);
    for (let at = 0; at < data.length; at += 4) {
        if (data.slice(at, at + 3).join() === wanted && data[at + 3] === 255) return true;
    }
    return false;
})()";

pub(crate) fn at(node: &Node, page: &str) -> String {
    format!("http://{}/admin/{page}", node.admin)
}

/// A node without keys: every user of this machine may do everything at its console.
pub(crate) fn open_node(dir: &Path) -> Node {
    Setup::new(dir).env("CAROM_PAGES_TITLE", "Go & <co>").start()
}

/// Starts a node whose link `seen` has the visits of two campaigns: two from one, one from the other, and one without any.
pub(crate) fn visited_node(dir: &Path) -> Node {
    let node = logging(dir).start();
    let mut wire = node.wire();
    let fields = json!({"longUrl": TARGET, "customSlug": "seen", "tags": ["news"]});
    assert_eq!(wire.create(&fields).status, 200);
    for query in ["utm_campaign=spring", "utm_campaign=spring", "utm_campaign=autumn", ""] {
        follow(&mut wire, &format!("/seen?{query}"), FIREFOX);
    }
    wait_until("four visits", || {
        node.wire().get("/rest/v3/visits/stats").json()["visitStats"]["total"] == json!(4)
            && counted(&node, "seen") == 4
    });
    node
}

/// A browser for the console of a node that a test has for itself.
pub(crate) struct OpenConsole {
    pub(crate) browser: Browser,
    pub(crate) node: Node,
    /// The data directory of the node.
    _dir: TempDir,
}

impl OpenConsole {
    /// Starts a node without keys, and a browser.
    pub(crate) fn open() -> OpenConsole {
        OpenConsole::with(open_node)
    }

    /// Starts a node with a data directory of its own, and a browser.
    pub(crate) fn with(start: impl FnOnce(&Path) -> Node) -> OpenConsole {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path());
        OpenConsole { browser: Browser::open(), node, _dir: dir }
    }

    /// Starts a node that asks for keys, and a browser. Returns a key with the role admin, too.
    pub(crate) fn with_key() -> (OpenConsole, String) {
        let (console, key, []) = OpenConsole::with_keys([]);
        (console, key)
    }

    /// Starts a node that asks for keys, and a browser. Returns a key with the role admin, and keys of further apps with their
    /// roles, too.
    pub(crate) fn with_keys<const N: usize>(apps: [(&str, &str); N]) -> (OpenConsole, String, [String; N]) {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(dir.path());
        let (node, key) = with_key(&setup);
        let keys = more_keys(&setup, &node, apps);
        (OpenConsole { browser: Browser::open(), node, _dir: dir }, key, keys)
    }

    /// Expects complaints of the browser with one of these texts in them.
    pub(crate) fn expecting(mut self, texts: &[&str]) -> OpenConsole {
        texts.iter().for_each(|text| self.browser.expect(text));
        self
    }

    /// Opens a page in a window of that size, and waits until a part of it says that.
    pub(crate) fn shows_page(&self, size: (u32, u32), page: &str, (part, text): (&str, &str)) {
        self.browser.resize(size);
        self.browser.go(&at(&self.node, page));
        says(&self.browser, part, text);
    }

    /// Closes the browser, which must have had no other complaints, and ends the node.
    pub(crate) fn close(self) {
        self.browser.close();
        self.node.terminate();
    }
}

/// Signs in with a key on the sign-in page, and waits for the page behind it.
pub(crate) fn enter_key(browser: &Browser, key: &str) {
    browser.fill("#key", key);
    browser.fill("#key", ENTER);
    wait_until("a page behind the sign-in page", || !browser.title().starts_with("Sign in - "));
}

/// Signs in with a key, as another page of the same browser would. It ends the session of this page.
pub(crate) fn sign_in_elsewhere(browser: &Browser, key: &str) {
    let body = format!("new URLSearchParams({})", json!({"key": key, "next": "/admin/"}));
    let sign_in = format!("fetch('/admin/sign-in', {{ method: 'POST', body: {body}, redirect: 'manual' }})");
    assert_eq!(browser.value(&format!("{sign_in}.then((answer) => answer.type)")), "opaqueredirect");
}

/// Clicks the first control with that `data-action` within a part of the page, when it is there and can be used.
pub(crate) fn press(browser: &Browser, part: &str, action: &str) {
    let control = format!("{part} [data-action=\"{action}\"]");
    let script = format!(
        "(() => {{ const one = [...document.querySelectorAll({})].find((e) => !e.disabled && e.offsetParent !== null); one?.click(); return Boolean(one); }})()",
        json!(control)
    );
    wait_until(&control, || browser.value(&script) == true);
}

/// Clicks an entry of the menu beside the title of a link.
pub(crate) fn press_in_menu(browser: &Browser, action: &str) {
    press(browser, "main", "link-menu");
    press(browser, ".menu", action);
}

/// Waits until the page has an element that a CSS selector means.
pub(crate) fn shows(browser: &Browser, selector: &str) {
    let script = format!("document.querySelector({}) !== null", json!(selector));
    wait_until(selector, || browser.value(&script) == true);
}

/// Waits until the page has no element that a CSS selector means.
pub(crate) fn lacks(browser: &Browser, selector: &str) {
    let script = format!("document.querySelector({}) === null", json!(selector));
    wait_until(&format!("no {selector}"), || browser.value(&script) == true);
}

/// Waits until the page says that.
pub(crate) fn says(browser: &Browser, selector: &str, text: &str) {
    let script = format!("document.querySelector({})?.innerText ?? ''", json!(selector));
    let start = std::time::Instant::now();
    loop {
        let said = browser.value(&script);
        let said = said.as_str().unwrap_or_default();
        if said.contains(text) {
            return;
        }
        let elapsed = start.elapsed();
        assert!(elapsed < PATIENCE, "{selector} does not say {text}, but: {said}");
        std::thread::sleep(pause_after(elapsed));
    }
}
