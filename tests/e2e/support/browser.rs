//! A real browser, driven through WebDriver (W3C), without its window: Debian's Chromium and ChromeDriver.
//!
//! A test acts with [`Browser::click`] and [`Browser::press`], and reads with [`Browser::value`]. A complaint of the
//! browser (a script that fails, a resource that the content security policy forbids) fails the test when the browser
//! is closed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::bypass;
use crate::support::node::{wait_for, wait_until};

/// The key of an element in the answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// Keys by which people move about.
pub(crate) const TAB: &str = "\u{e004}";
pub(crate) const ENTER: &str = "\u{e007}";
/// The key that removes the letter before the cursor.
pub(crate) const BACKSPACE: &str = "\u{e003}";
pub(crate) const SPACE: &str = " ";
pub(crate) const CONTROL: &str = "\u{e009}";
pub(crate) const DOWN: &str = "\u{e015}";
pub(crate) const END: &str = "\u{e010}";
pub(crate) const LEFT: &str = "\u{e012}";
pub(crate) const RIGHT: &str = "\u{e014}";
pub(crate) const ESCAPE: &str = "\u{e00c}";

/// Time for an answer of the driver. Pages and pictures of a browser take seconds each on a busy machine.
const ANSWER_TIME: Duration = Duration::from_secs(120);

/// Widths of a phone and of a screen.
pub(crate) const PHONE: (u32, u32) = (390, 844);
pub(crate) const SCREEN: (u32, u32) = (1280, 900);

/// Arguments that keep the browser from connecting to anything but the node, from waiting for such connections, and from starting
/// what no page of a test uses.
const ARGUMENTS: [&str; 13] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    // No page draws in three dimensions.
    "--disable-software-rasterizer",
    // A process that waits for a page of another site, which never comes.
    "--disable-features=SpareRendererForSitePerProcess",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--disable-dev-shm-usage",
    // Browsers trust this machine by its own names as they trust TLS; under this one it is anybody's.
    "--host-resolver-rules=MAP plain.test 127.0.0.1, MAP acme.example 127.0.0.1",
    // Date fields follow the language of their page. See `Browser::show_iso_dates`.
    "--enable-blink-features=LangAttributeAwareFormControlUI",
];

/// Changes the language of a page to English as in Sweden, whose dates are as in ISO 8601 and whose day has 24 hours. A
/// field takes the format of its language when it gets its type.
const ISO_DATES: &str = "document.documentElement.lang = 'en-SE';
for (const field of document.querySelectorAll('input[type=date], input[type=datetime-local]')) {
  const { type } = field;
  field.type = 'text';
  field.type = type;
}";

/// Keeps messages of the console on a page, as a pointer on them does: they vanish after seconds, and so may the few steps
/// of a test take.
const MESSAGES_STAY: &str = "new MutationObserver(() => {
  for (const message of document.getElementsByClassName('toast')) {
    message.dispatchEvent(new Event('pointerenter'));
  }
}).observe(document, { childList: true, subtree: true });";

/// Chromium as a program without windows. It shows the same pages and starts at a third of the CPU time.
const HEADLESS_SHELL: &str = "/usr/bin/chromium-headless-shell";

/// The name of the browser for chromedriver, and its program: the headless shell, which Debian packages for itself, or Chromium
/// without its windows.
fn program() -> (&'static str, &'static str) {
    if Path::new(HEADLESS_SHELL).exists() {
        ("chrome-headless-shell", HEADLESS_SHELL)
    } else {
        ("chrome", "/usr/bin/chromium")
    }
}

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    /// The URL of the WebDriver session.
    session: String,
    agent: ureq::Agent,
    /// Texts in complaints that are no surprise.
    expected: Vec<String>,
    _profile: TempDir,
}

/// Starts of chromedriver until one names its port. It takes a free port of IPv4 and then the same one of IPv6, and ends if
/// another process has that one.
const DRIVER_STARTS_MAX: usize = 5;

/// Starts chromedriver. Returns it with its port, or `None` if it ended because the port was in use.
fn started_driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("chromedriver, which `make test` installs");
    let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = lines.find_map(|line| {
        line.split_once("successfully on port ").map(|(_, port)| port.trim_end_matches('.').to_owned())
    });
    if port.is_none() {
        driver.wait().unwrap();
    }
    port.map(|port| (driver, port))
}

impl Browser {
    /// A browser that knows nothing yet, as wide as a screen.
    pub(crate) fn open() -> Browser {
        bypass::enter();
        let profile = tempfile::tempdir().unwrap();
        let (driver, port) = (0..DRIVER_STARTS_MAX)
            .find_map(|_| started_driver())
            .expect("chromedriver names its port in one of several starts");
        let agent = crate::support::http::agent_within(ANSWER_TIME);
        let folder = format!("--user-data-dir={}", profile.path().display());
        let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([folder.as_str()]).collect();
        let (name, program) = program();
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "browserName": name,
            "goog:chromeOptions": {"binary": program, "args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
        }}});
        let root = format!("http://127.0.0.1:{port}/session");
        let made = call(&agent, &root, Some(&wanted));
        let session = format!("{root}/{}", made["sessionId"].as_str().expect("a session"));
        let browser = Browser { driver, session, agent, expected: Vec::new(), _profile: profile };
        browser.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({"source": MESSAGES_STAY}));
        browser.resize(SCREEN);
        browser
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        call(&self.agent, &format!("{}{path}", self.session), Some(body))
    }

    fn get(&self, path: &str) -> Value {
        call(&self.agent, &format!("{}{path}", self.session), None)
    }

    /// A command of the browser's own protocol, for what WebDriver has no word for.
    fn devtools(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({"cmd": command, "params": parameters}))
    }

    /// Complaints with this in them are no surprise.
    pub(crate) fn expect(&mut self, text: &str) {
        self.expected.push(text.to_owned());
    }

    /// Goes to a page, and waits until it is there.
    pub(crate) fn go(&self, url: &str) {
        self.post("/url", &json!({"url": url}));
    }

    /// The URL of the page.
    pub(crate) fn url(&self) -> String {
        self.get("/url").as_str().unwrap().to_owned()
    }

    /// The title of the page.
    pub(crate) fn title(&self) -> String {
        self.get("/title").as_str().unwrap().to_owned()
    }

    /// Makes the window so wide and high.
    pub(crate) fn resize(&self, (width, height): (u32, u32)) {
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            &json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
    }

    /// From now on pages are asked to be dark, or light.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.devtools("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// Shows the dates in the fields of this page as `2026-01-31`, and times as `23:59`. Chromium takes their format
    /// from its own language, of which Debian's has American English only; neither `--lang` nor the environment changes
    /// that.
    pub(crate) fn show_iso_dates(&self) {
        self.post("/execute/sync", &json!({"script": ISO_DATES, "args": []}));
    }

    /// From now on the browser is in that zone.
    pub(crate) fn live_in(&self, zone: &str) {
        self.devtools("Emulation.setTimezoneOverride", &json!({"timezoneId": zone}));
    }

    /// From now on pages run no script.
    pub(crate) fn switch_scripts_off(&self) {
        self.devtools("Emulation.setScriptExecutionDisabled", &json!({"value": true}));
    }

    /// Lets pages write to the clipboard and the test read it.
    pub(crate) fn allow_clipboard(&self) {
        let permissions = json!(["clipboardReadWrite", "clipboardSanitizedWrite"]);
        self.devtools("Browser.grantPermissions", &json!({"permissions": permissions}));
    }

    /// The value of an expression of JavaScript on the page; a promise is waited for.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1]; Promise.resolve().then(() => ({expression})).then(done, (e) => done(String(e)));"
        );
        self.post("/execute/async", &json!({"script": script, "args": []}))
    }

    /// The path of the one element that a CSS selector means, once it is there.
    fn element(&self, selector: &str) -> String {
        let found = wait_for(&format!("{selector} on {}", self.url()), || {
            let found = self.post("/elements", &json!({"using": "css selector", "value": selector}));
            found.as_array().filter(|found| !found.is_empty()).cloned()
        });
        assert_eq!(found.len(), 1, "{selector} means several");
        format!("/element/{}", found[0][ELEMENT].as_str().expect("an element"))
    }

    /// Waits for the one element that matches a CSS selector, and sends the driver a request for it. If the page has replaced
    /// the element meanwhile, the driver refuses the request without acting; then it is sent for the new element.
    fn request_of(&self, selector: &str, path: &str, body: Option<&Value>) -> Value {
        wait_for(&format!("{selector} to stay"), || {
            let url = format!("{}{}{path}", self.session, self.element(selector));
            match answer_of(&self.agent, &url, body) {
                Ok(value) => Some(value),
                Err(refusal) if refusal["error"] == "stale element reference" => None,
                Err(refusal) => panic!("{url}: {refusal}"),
            }
        })
    }

    /// Clicks on what a selector means, as a person would: it must be there to be seen.
    pub(crate) fn click(&self, selector: &str) {
        self.request_of(selector, "/click", Some(&json!({})));
    }

    /// The whole page, as a PNG, as high as it is.
    pub(crate) fn whole_page(&self) -> Vec<u8> {
        // What sticks to the top of the window is in its place only there.
        self.value("scrollTo(0, 0)");
        let sizes = self.value("[innerWidth, innerHeight, document.documentElement.scrollHeight]");
        let [width, height, whole] = [0_usize, 1, 2].map(|at| u32::try_from(sizes[at].as_u64().unwrap()).unwrap());
        if width != PHONE.0 {
            return self.picture(true);
        }
        // What sticks to the bottom of a phone belongs at the end of the picture.
        self.resize((width, whole));
        let picture = self.picture(false);
        self.resize((width, height));
        picture
    }

    /// A picture of the window, as a PNG.
    pub(crate) fn window(&self) -> Vec<u8> {
        self.picture(false)
    }

    fn picture(&self, beyond_window: bool) -> Vec<u8> {
        let wanted = json!({"format": "png", "captureBeyondViewport": beyond_window});
        let told = self.devtools("Page.captureScreenshot", &wanted);
        BASE64_STANDARD.decode(told["data"].as_str().expect("a picture")).expect("DevTools send Base64")
    }

    /// Types into what a selector means.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.request_of(selector, "/value", Some(&json!({"text": text})));
    }

    /// Chooses an option of the first list that a selector means, by its value.
    pub(crate) fn choose(&self, selector: &str, option: &str) {
        let (selector, option) = (json!(selector), json!(option));
        let choose = "list.value = option; list.dispatchEvent(new Event('change')); return list.value;";
        let script = format!("((list, option) => {{ {choose} }})(document.querySelector({selector}), {option})");
        assert_eq!(self.value(&script), option, "{selector} has no such option");
    }

    /// The text that is seen of what a selector means.
    pub(crate) fn text(&self, selector: &str) -> String {
        self.request_of(selector, "/text", None).as_str().unwrap().to_owned()
    }

    /// An attribute of what a selector means.
    pub(crate) fn attribute(&self, selector: &str, name: &str) -> String {
        let value = self.request_of(selector, &format!("/attribute/{name}"), None);
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Presses keys, wherever the focus is.
    pub(crate) fn press(&self, keys: &str) {
        let strokes = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({"type": kind, "value": key.to_string()})));
        let strokes: Vec<Value> = strokes.collect();
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}));
    }

    /// Presses a key while another one is held.
    pub(crate) fn chord(&self, held: &str, key: &str) {
        let strokes = [("keyDown", held), ("keyDown", key), ("keyUp", key), ("keyUp", held)];
        let strokes = strokes.map(|(kind, value)| json!({"type": kind, "value": value}));
        self.post("/actions", &json!({"actions": [{"type": "key", "id": "keys", "actions": strokes}]}));
    }

    /// Fails if axe-core finds a barrier on the page.
    pub(crate) fn is_accessible(&self) {
        // It stays until the next page: half a megabyte to send and to parse.
        if self.value("'axe' in window") != true {
            let axe =
                std::fs::read_to_string(tool("axe-core/axe.min.js")).expect("axe-core, which `make test` installs");
            self.post("/execute/sync", &json!({"script": format!("{axe}; window.axe = axe;"), "args": []}));
        }
        // During a transition, axe would measure a contrast that does not last.
        let is_still = "document.getAnimations().every((one) =>
            one.playState !== 'running' || one.effect.getComputedTiming().iterations === Infinity)";
        wait_until("a page at rest", || self.value(is_still) == true);
        let found = self.value(
            "axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations.map((v) => v.id + ': ' + v.help + ' ' + v.nodes.map((n) => n.html).join(' ')))",
        );
        assert_eq!(found, json!([]), "on {}", self.url());
    }

    /// Asserts that nothing extends beyond the right edge.
    pub(crate) fn fits(&self) {
        let widths = self.value("[document.documentElement.scrollWidth, window.innerWidth]");
        assert!(widths[0].as_u64() <= widths[1].as_u64(), "{widths} on {}", self.url());
    }

    /// Asserts that no part of the page scrolls sideways, except lines that are meant to be copied.
    pub(crate) fn scrolls_nowhere_sideways(&self) {
        let script = "[...document.querySelectorAll('body *')].filter((one) => !one.closest('pre')
            && ['auto', 'scroll'].includes(getComputedStyle(one).overflowX) && one.scrollWidth > one.clientWidth + 1)
            .map((one) => one.cloneNode().outerHTML)";
        assert_eq!(self.value(script), json!([]), "on {}", self.url());
    }

    /// Asserts that a finger can hit each control: 44 pixels high, or 24 for the box of a tick and a link within a sentence.
    pub(crate) fn fits_fingers(&self) {
        let script = "[...document.querySelectorAll('button, select, textarea, input, summary, a.button, nav a, td > a:not(.target), dd > a, .line-tight > a, .card-head > a, .link-head .short, .created .short, .rule-goes > a, .destination > a, .actions a, .made a')].filter((one) => {
            const { width, height } = one.getBoundingClientRect();
            const least = ['checkbox', 'radio'].includes(one.type) ? 24 : 44;
            return one.checkVisibility() && width > 1 && height < least - 0.5;
        }).map((one) => one.outerHTML)";
        assert_eq!(self.value(script), json!([]), "on {}", self.url());
        // A link that wraps has a box in each line. Boxes that overlap would make one of two links hard to hit.
        let script = "[...document.querySelectorAll('main p > a:not(.button), main li > a:not(.button)')].filter((one) =>
            one.checkVisibility() && getComputedStyle(one).display === 'inline' && ([...one.getClientRects()].some(({ height }) => height < 23.5)
                || parseFloat(getComputedStyle(one.parentElement).lineHeight) < 23.5)).map((one) => one.outerHTML)";
        assert_eq!(self.value(script), json!([]), "on {}", self.url());
    }

    /// Asserts that the page fits a phone and a screen, and that no size and colour scheme has a barrier. `check` gets the
    /// size, and adds what holds for this page. Ends with the dark page on a screen.
    pub(crate) fn fits_everywhere(&self, check: impl Fn((u32, u32))) {
        for size in [PHONE, SCREEN] {
            self.resize(size);
            self.fits();
            check(size);
            for scheme in ["light", "dark"] {
                self.prefer(scheme);
                self.is_accessible();
            }
        }
    }

    /// Asserts what [`Browser::fits_everywhere`] does, and that fingers hit what they aim at on a phone.
    pub(crate) fn fits_everywhere_by_finger(&self) {
        self.fits_everywhere(|size| {
            if size == PHONE {
                self.scrolls_nowhere_sideways();
                self.fits_fingers();
            }
        });
    }

    /// Looks at what the browser had to complain about since the last time.
    pub(crate) fn has_no_complaints(&self) {
        let entries = self.post("/se/log", &json!({"type": "browser"}));
        let is_known = |entry: &Value| self.expected.iter().any(|text| entry.to_string().contains(text.as_str()));
        let complaints: Vec<&Value> = entries
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["level"] != "INFO" && !is_known(entry))
            .collect();
        assert!(complaints.is_empty(), "{complaints:?}");
    }

    /// Closes it.
    pub(crate) fn close(self) {
        self.has_no_complaints();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Ends the browser, too. Where a test has failed, that is as far as it goes.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// A file of what npm has installed for tests.
fn tool(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/npm/node_modules").join(path)
}

/// Looks whether these pages, by their names, are sound HTML.
pub(crate) fn are_sound(pages: &[(&str, &str)]) {
    let dir = tempfile::tempdir().unwrap();
    let files = pages.iter().map(|(name, html)| {
        let file = dir.path().join(format!("{name}.html"));
        std::fs::write(&file, html).unwrap();
        file
    });
    let files: Vec<_> = files.collect();
    let settings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/npm/.htmlvalidate.json");
    let said = Command::new("node")
        .arg(tool("html-validate/bin/html-validate.mjs"))
        .arg("--config")
        .arg(settings)
        .args(files)
        .output();
    let said = said.expect("node, which `make test` installs");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&[said.stdout, said.stderr].concat()));
}

/// Posts a body to the driver, or gets what is there. Returns the value of the answer.
fn call(agent: &ureq::Agent, url: &str, body: Option<&Value>) -> Value {
    answer_of(agent, url, body).unwrap_or_else(|refusal| panic!("{url}: {refusal}"))
}

/// Posts a body to the driver, or gets what is there. Returns the value of the answer, or of the driver's refusal.
fn answer_of(agent: &ureq::Agent, url: &str, body: Option<&Value>) -> Result<Value, Value> {
    let answer = match body {
        Some(body) => agent.post(url).send_json(body),
        None => agent.get(url).call(),
    };
    let mut answer = answer.unwrap_or_else(|error| panic!("{url}: {error}"));
    let mut told: Value = answer.body_mut().read_json().expect("the driver speaks JSON");
    let value = told["value"].take();
    if answer.status().is_success() { Ok(value) } else { Err(value) }
}
