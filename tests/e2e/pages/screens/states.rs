//! Pictures of dialogs, empty pages, errors and work in progress. One browser brings them about on one node, from its
//! first start to its end. Each state must fit a screen and a phone, and a finger must hit its controls.

use std::path::Path;

use serde_json::json;

use super::{HOST, demo_link, follow, is_plain, look, look_at};
use crate::support::alarms::{alarms, is_seen};
use crate::support::api_client::ApiClient;
use crate::support::browser::Browser;
use crate::support::console::{at, enter_key, lacks, press, says, shows, sign_in_elsewhere};
use crate::support::node::{Node, Setup, free_address, wait_until};
use crate::support::sessions::more_keys;

/// Pages of a node without links, visits and keys, by the names of their pictures.
const EMPTY: [(&str, &str); 7] = [
    ("now-empty", ""),
    ("links-empty", "links"),
    ("tags-empty", "tags"),
    ("usage-empty", "usage"),
    ("apps-empty", "apps"),
    ("domains-one", "domains"),
    ("lists-empty", "lists"),
];

/// Lines of an import that can be read: the node answers 2,000 at once.
const LINES: usize = 6_000;

/// Opens another page of the console without loading the document, as a click in the navigation does.
fn turn_to(browser: &Browser, page: &str) {
    let link = json!(format!("#nav a[href='/admin/{page}']"));
    assert_eq!(browser.value(&format!("(document.querySelector({link}).click(), true)")), true, "{page}");
}

/// Lets some requests pass whose path has this part, and gives no answer to those after them, until they are aborted.
/// Lists are asked for six links at a time, so that the first answer is not the last.
fn hold(browser: &Browser, part: &str, passing: usize) {
    let script = format!(
        "(() => {{
            const real = window.fetch.bind(window);
            const isShort = (path) => String(path).replace(/itemsPerPage=\\d+/, 'itemsPerPage=6');
            const silence = (signal) => new Promise((_, fail) =>
                signal?.addEventListener('abort', () => fail(new DOMException('aborted', 'AbortError'))));
            let asked = 0;
            window.fetch = (path, options) => {{
                if (!String(path).includes({part})) return real(path, options);
                asked += 1;
                return asked <= {passing} ? real(isShort(path), options) : silence(options?.signal);
            }};
            return true;
        }})()",
        part = json!(part)
    );
    assert_eq!(browser.value(&script), true);
}

/// Keeps the answers to exports open once all lines have come.
fn hold_exports(browser: &Browser) {
    let script = "(() => {
        const real = window.fetch.bind(window);
        const open = (answer) => new Response(answer.body.pipeThrough(new TransformStream({ flush: () => new Promise(() => {}) })), answer);
        window.fetch = (path, options) => (String(path).includes('/export') ? real(path, options).then(open) : real(path, options));
        return true;
    })()";
    assert_eq!(browser.value(script), true);
}

/// Keeps messages on the page, as a pointer on them does, and stops the clock by which they count down.
fn hold_messages(browser: &Browser) {
    let script = "(() => {
        const now = Date.now();
        Date.now = () => now;
        document.querySelectorAll('.toast').forEach((one) => one.dispatchEvent(new Event('pointerenter')));
    })()";
    browser.value(script);
}

/// Looks at a node that nobody has used yet.
fn look_at_new_node(browser: &Browser, node: &Node) {
    // A node that has just started counts its links first.
    wait_until("counts of links", || node.wire().get("/rest/v3/tags").status == 200);
    for (name, page) in EMPTY {
        look(browser, name, || browser.go(&at(node, page)));
    }
    node.wire().shorten_as("launch", "https://www.example.com/launch");
    look(browser, "link-unvisited", || browser.go(&at(node, "links/launch")));
    look(browser, "settings-none", || browser.go(&at(node, "settings?filter=nothing-of-this-name")));
}

/// Creates the first key in the console, and returns it. Ends on the sign-in page.
fn first_key(browser: &Browser, node: &Node) -> String {
    look(browser, "first-key", || {
        browser.go(&at(node, "apps"));
        press(browser, "main", "first-key");
        shows(browser, "dialog input[name=app]");
    });
    browser.fill("dialog input[name=app]", "ops");
    browser.fill("dialog input[name=name]", "Anna");
    press(browser, "dialog", "submit");
    shows(browser, "dialog .secret");
    look_at(browser, "key-once");
    let key = browser.value("document.querySelector('dialog .secret').textContent");
    press(browser, "dialog", "copied");
    // The page that creates the first key signs in with it.
    browser.click("[data-action=account]");
    press(browser, ".menu", "sign-out");
    wait_until("the sign-in page", || browser.title().starts_with("Sign in - "));
    browser.go(&at(node, "apps"));
    key.as_str().expect("the text of a key").to_owned()
}

/// Signs in, with a wrong key first.
fn sign_in(browser: &Browser, key: &str) {
    browser.fill("#key", "carom_ak_wrong");
    browser.click("button");
    shows(browser, "#key-error");
    look_at(browser, "sign-in-refused");
    enter_key(browser, key);
    // The key is shown by its name.
    says(browser, "main .key-name", "Anna");
}

/// Creates links on the default domain, and visits some of them.
fn fill_node(node: &Node, host: &str, key: &str) {
    let mut caller = ApiClient::new(node, key);
    wait_until("the key", || caller.is_known(node));
    let summer = json!({"longUrl": "https://www.example.com/summer", "customSlug": "summer", "title": "Summer sale", "tags": ["sale", "2026"]});
    let mut codes = vec![caller.create(&summer).code()];
    for number in 0..60 {
        let mut link = demo_link(number);
        link.as_object_mut().expect("an object").remove("domain");
        let code = caller.create(&link).code();
        codes.extend(Some(code).filter(|_| is_plain(number)));
    }
    let mut wire = node.wire();
    (0..60).for_each(|number| follow(&mut wire, host, &codes, number));
}

/// Looks at the list of links with its menus, dialogs and messages.
fn look_at_list(browser: &Browser, node: &Node) {
    look(browser, "account-menu", || {
        browser.go(&at(node, "links"));
        shows(browser, "tbody .short-url");
        browser.click("[data-action=account]");
        shows(browser, ".menu [data-action=sign-out]");
    });
    browser.value("localStorage.setItem('carom-console.saved-filters', JSON.stringify([{ name: 'Archived', query: 'state=archived' }, { name: 'Summer sale', query: 'q=summer&tags=sale' }]))");
    look(browser, "saved-filters", || {
        browser.go(&at(node, "links?state=archived"));
        press(browser, "main", "saved");
        shows(browser, ".menu [data-action=remove-saved]");
    });
    look(browser, "columns", || {
        browser.go(&at(node, "links"));
        shows(browser, "tbody .short-url");
        // A phone has no columns, and so no such button.
        browser.value("document.querySelector('main [data-action=columns]').click()");
        shows(browser, ".menu [data-column=tags]");
    });
    browser.go(&at(node, "links"));
    shows(browser, "tbody .short-url");
    browser.value("[...document.querySelectorAll('tbody input')].slice(0, 3).forEach((one) => one.click())");
    shows(browser, "main [data-selected='3']");
    look_at(browser, "links-selected");
    press(browser, "main", "delete");
    shows(browser, "dialog [data-action=confirm]");
    look_at(browser, "delete-links");
    press(browser, "dialog", "confirm");
    shows(browser, ".toast [data-action=undo-delete]");
    hold_messages(browser);
    shows(browser, "tbody [data-state=deleting]");
    lacks(browser, ".links[aria-busy=true]");
    look_at(browser, "undo-delete");
    press(browser, ".toast", "undo-delete");
    lacks(browser, "tbody [data-state=deleting]");
}

/// Looks at the dialogs of links and of tags.
fn look_at_link_dialogs(browser: &Browser, node: &Node) {
    browser.go(&at(node, "links/summer"));
    press(browser, "main", "qr");
    wait_until("a QR code", || browser.value("document.querySelector('dialog .qr img')?.naturalWidth > 0") == true);
    look_at(browser, "qr-code");
    browser.go(&at(node, "links/summer"));
    press(browser, "main", "edit");
    shows(browser, "dialog input[name=title]");
    look_at(browser, "edit-link");
    browser.go(&at(node, "tags"));
    press(browser, "main", "tag-menu");
    press(browser, ".menu", "rename-tag");
    shows(browser, "dialog input[name=newName]");
    look_at(browser, "rename-tag");
    let create = |destination: &str, slug: Option<&str>| {
        browser.go(&at(node, "links"));
        press(browser, "main", "new-link");
        browser.fill("dialog input[name=longUrl]", destination);
        if let Some(slug) = slug {
            browser.fill("dialog input[name=customSlug]", slug);
        }
        press(browser, "dialog", "submit");
    };
    create("https://www.example.com/launch-day", Some("launch-day"));
    wait_until("a QR code", || browser.value("document.querySelector('dialog .qr img')?.naturalWidth > 0") == true);
    says(browser, "dialog .created-times", "The link redirects now.");
    look_at(browser, "created-link");
    create("www example com", None);
    shows(browser, "dialog .error:not([hidden])");
    look_at(browser, "new-link-invalid");
    create("https://www.example.com/", Some("summer"));
    shows(browser, "dialog .error:not([hidden])");
    look_at(browser, "new-link-taken");
}

/// Looks at the dialogs of keys.
fn look_at_key_dialogs(browser: &Browser, node: &Node) {
    for (name, action, control) in [
        ("new-key", "new-key", "dialog input[name=app]"),
        ("rotate-key", "rotate", "dialog select[name=graceSeconds]"),
        ("revoke-key", "revoke", "dialog [data-action=confirm]"),
    ] {
        browser.go(&at(node, "apps"));
        press(browser, "main", action);
        shows(browser, control);
        look_at(browser, name);
    }
}

/// Looks at a page of the console whose link does not exist, and at the public form with a slug in use.
fn look_at_refusals(browser: &Browser, node: &Node, host: &str, key: &str) {
    browser.go(&at(node, "links/not-there"));
    shows(browser, "main .state.bad");
    look_at(browser, "link-missing");
    browser.go(&format!("http://{host}/"));
    browser.fill("#longUrl", "https://www.example.com/");
    browser.fill("#key", key);
    browser.click("summary");
    browser.fill("#customSlug", "summer");
    browser.click("button.button");
    shows(browser, "#customSlug-error");
    look_at(browser, "form-taken");
}

/// Looks at the public form that waits for its answer, which does not come.
fn look_at_sent_form(browser: &Browser, host: &str, key: &str) {
    browser.go(&format!("http://{host}/"));
    browser.fill("#longUrl", "https://www.example.com/");
    browser.fill("#key", key);
    browser.value("document.querySelector('form').addEventListener('submit', (event) => event.preventDefault())");
    browser.click("button.button");
    shows(browser, "button.button:disabled");
    says(browser, "button.button", "Shortening…");
    look_at(browser, "form-sent");
}

/// Looks at a page that needs another role than that of the key `reader`. Ends with a session of the key `ops`.
fn look_at_refused_role(browser: &Browser, node: &Node, reader: &str, ops: &str) {
    browser.go(&at(node, "links"));
    shows(browser, "tbody .short-url");
    sign_in_elsewhere(browser, reader);
    browser.go(&at(node, "settings"));
    says(browser, "main", "This page needs a key with the role admin");
    look_at(browser, "role-refused");
    sign_in_elsewhere(browser, ops);
}

/// Script: ends the session of the browser, as another page of it would.
const END_SESSION: &str = "(async () => {
    const { csrf } = await (await fetch('/admin/api/session')).json();
    return (await fetch('/admin/api/session', { method: 'DELETE', headers: { 'X-CSRF-Token': csrf } })).status;
})()";

/// Looks at a dialog whose session has ended, and signs in there.
fn look_at_ended_session(browser: &Browser, node: &Node, key: &str) {
    browser.go(&at(node, "links/summer"));
    shows(browser, "#live[data-state=live]");
    press(browser, "main", "edit");
    browser.fill("dialog input[name=title]", " 2027");
    assert_eq!(browser.value(END_SESSION), json!(204));
    shows(browser, "dialog input[name=key]");
    look_at(browser, "session-ended");
    browser.fill("dialog input[name=key]", key);
    press(browser, "dialog:last-of-type", "submit");
    lacks(browser, "dialog input[name=key]");
}

/// Looks at an import of a wrong file, and at one with rejected lines, which stops before its end.
fn look_at_imports(browser: &Browser, node: &Node, folder: &Path) {
    let [wrong, good] = ["contacts.csv", "links.csv"].map(|name| folder.join(name));
    std::fs::write(&wrong, "address,name\nhttps://www.example.com/,Home\n").unwrap();
    let lines = (1..=LINES).map(|number| match number {
        40 => "javascript:alert(1),Broken,,red\n".to_owned(),
        41 => ",No destination,,red\n".to_owned(),
        _ => format!("https://www.example.com/catalogue/{number},Catalogue page {number},catalogue,blue\n"),
    });
    let csv: String = std::iter::once("longUrl,title,tags,colour\n".to_owned()).chain(lines).collect();
    std::fs::write(&good, csv).unwrap();
    browser.go(&at(node, "import"));
    browser.fill("#file", &wrong.to_string_lossy());
    shows(browser, ".state[data-problem]");
    // What a file must hold stands below.
    shows(browser, "main .names");
    look_at(browser, "import-unreadable");
    browser.fill("#file", &good.to_string_lossy());
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true]");
    look_at(browser, "import-rejected");
    hold(browser, "/bulk", 2);
    press(browser, "main", "import");
    wait_until("some lines", || browser.value("document.querySelector('progress')?.value >= 4000") == true);
    look_at(browser, "import-running");
    press(browser, "main", "stop");
    press(browser, "main", "stop");
    shows(browser, ".import-left");
    look_at(browser, "import-stopped");
}

/// Looks at pages that wait for answers.
fn look_at_work(browser: &Browser, node: &Node) {
    let open = || {
        browser.go(&at(node, "domains"));
        shows(browser, "main table");
    };
    open();
    hold(browser, "/", 0);
    turn_to(browser, "links");
    shows(browser, "main .row-skeleton");
    look_at(browser, "links-loading");
    turn_to(browser, "usage");
    shows(browser, "main .period");
    shows(browser, "main .loading");
    look_at(browser, "usage-loading");
    browser.value(
        "(history.pushState(null, '', '/admin/links/summer'), dispatchEvent(new PopStateEvent('popstate')), true)",
    );
    says(browser, "h1", "summer");
    shows(browser, "main .loading");
    look_at(browser, "link-loading");
    open();
    hold(browser, "/rest/v3/short-urls?", 1);
    turn_to(browser, "links");
    says(browser, ".list-status", "so far");
    look_at(browser, "links-searching");
    browser.go(&at(node, "links"));
    shows(browser, "tbody .short-url");
    hold_exports(browser);
    press(browser, "main", "export");
    press(browser, ".menu", "export-csv");
    says(browser, ".toast", "so far");
    look_at(browser, "links-exporting");
}

/// Looks at pages that show an alarm, which is over at the end.
fn look_at_alarm(browser: &Browser, node: &Node, setup: &Setup) {
    let file = setup.data_dir().join("apps.json");
    let whole = std::fs::read(&file).unwrap();
    std::fs::write(&file, "{").unwrap();
    is_seen(node, "apps_unreadable");
    browser.go(&format!("http://{}/status", node.admin));
    shows(browser, ".alarms li");
    look_at(browser, "status-alarm");
    browser.click(".alarms a");
    says(browser, ".runbook", "Repair mode, disk or content");
    says(browser, ".runbook .badge", "Warning");
    says(browser, ".runbook .caption code", "apps_unreadable");
    says(browser, ".command:has(button)", "sudo ls -l /var/lib/carom/apps.json");
    browser.click(":nth-child(1 of .command) button");
    says(browser, ".said", "Copied.");
    browser.fits_everywhere(|_| {});
    browser.go(&at(node, ""));
    says(browser, ".alarm", "The API keys in apps.json cannot be read or written; the known keys stay valid.");
    says(browser, ".alarm", "The file is not a JSON object: EOF");
    shows(browser, ".alarm a[href='/runbook/apps_unreadable']");
    lacks(browser, ".now-head .badge.good");
    look_at(browser, "now-alarm");
    std::fs::write(&file, whole).unwrap();
    wait_until("no alarm", || !alarms(&node.status()).contains(&"apps_unreadable"));
}

/// Looks at pages of a node that has stopped meanwhile.
fn look_at_stopped_node(browser: &mut Browser, node: Node) {
    browser.go(&at(&node, "domains"));
    shows(browser, "main table");
    shows(browser, "#live[data-state=live]");
    browser.has_no_complaints();
    for complaint in ["net::ERR", "Failed to load resource"] {
        browser.expect(complaint);
    }
    node.terminate();
    turn_to(browser, "tags");
    shows(browser, "main .state.bad");
    shows(browser, "#live[data-state=lost]");
    look_at(browser, "tags-unreachable");
    turn_to(browser, "");
    shows(browser, "main .well[data-kind=bad]");
    look_at(browser, "now-lost");
}

#[test]
fn every_state_is_pictured() {
    let dir = tempfile::tempdir().unwrap();
    let public = free_address();
    let host = format!("{HOST}:{}", public.port());
    let setup = Setup::new(&dir.path().join("data"))
        .argument("--listen")
        .argument(public.to_string())
        .env("CAROM_BASE_URL", &format!("http://{host}"))
        .env("CAROM_PAGES_TITLE", "Acme links")
        .env("CAROM_PAGES_ACCENT", "#0b57d0")
        .expect("cannot be read or written");
    let node = setup.start();
    let mut browser = Browser::open();
    let statuses = ["status of 400", "status of 401", "status of 403", "status of 404"];
    for complaint in statuses.into_iter().chain(["ERR_INCOMPLETE_CHUNKED_ENCODING"]) {
        browser.expect(complaint);
    }
    look_at_new_node(&browser, &node);
    let key = first_key(&browser, &node);
    sign_in(&browser, &key);
    let [_, reader] = more_keys(&setup, &node, [("newsletter", "write-own"), ("reports", "read")]);
    fill_node(&node, &host, &key);
    look_at_list(&browser, &node);
    look_at_link_dialogs(&browser, &node);
    look_at_key_dialogs(&browser, &node);
    look_at_refusals(&browser, &node, &host, &key);
    look_at_sent_form(&browser, &host, &key);
    look_at_refused_role(&browser, &node, &reader, &key);
    look_at_ended_session(&browser, &node, &key);
    look_at_work(&browser, &node);
    look_at_imports(&browser, &node, dir.path());
    look_at_alarm(&browser, &node, &setup);
    look_at_stopped_node(&mut browser, node);
    browser.close();
}
