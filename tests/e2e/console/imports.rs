//! Imports in the console: files of many kinds, a report of rejected lines, and runs that stop and resume.

use std::io::Write;

use serde_json::json;

use crate::support::browser::{Browser, PHONE};
use crate::support::console::{OpenConsole, TARGET, at, enter_key, lacks, press, says, shows};
use crate::support::http::Wire;
use crate::support::node::{Node, Setup, free_address, wait_until};
use crate::support::sessions::with_key;

/// Opens the page of imports, and waits for its field for a file.
fn open_imports(browser: &Browser, node: &Node) {
    browser.go(&at(node, "import"));
    wait_until("a field for a file", || browser.value("document.querySelector('#file') !== null") == true);
}

#[test]
fn large_file_reports_refused_lines() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    node.wire().shorten_as("taken", TARGET);
    let file = files.path().join("links.csv");
    let mut csv = std::fs::File::create(&file).unwrap();
    csv.write_all("\u{feff}Long URL,customSlug,title,tags,colour\r\n".as_bytes()).unwrap();
    for number in 0..10_000 {
        let line = match number {
            7 => "https://example.org/7,taken,,,\r\n".to_owned(),
            8 => "javascript:alert(1),,,,\r\n".to_owned(),
            9 => ",no-target,,,\r\n".to_owned(),
            10 => "https://example.org/10,,\"Two\r\nlines\",,red\r\n".to_owned(),
            11 => "https://example.org/11,,\"Commas, \"\"quotes\"\"\",\"a|b\",red\r\n".to_owned(),
            // In chunks of their own.
            20 | 5_000 => format!("https://example.org/{number},double,,,\r\n"),
            _ => format!("https://example.org/{number},,Title {number},bulk,\r\n"),
        };
        csv.write_all(line.as_bytes()).unwrap();
    }
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    // The check finds a line without a destination, and one whose destination is no web address.
    says(browser, "main", "9,998");
    says(browser, ".rejected", "javascript:alert(1)");
    says(browser, ".rejected", "not a valid destination");
    says(browser, "main .notice", "colour");
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true][data-made='9995'][data-rejected='3']");
    // It names the line that has the slug.
    says(browser, ".rejected tbody tr:last-child", "Line 23");
    assert_eq!(node.status()["links"], 1, "a dry run has made something");
    press(browser, "main", "import");
    shows(browser, ".import-done[data-dry=false][data-made='9995'][data-rejected='3']");
    // Each by the number of its line in the file, with its reason.
    says(browser, "main", "The slug “taken” is already in use.");
    let lines = browser.value("[...document.querySelector('.rejected').querySelectorAll('tbody td:first-child')].map((cell) => cell.textContent)");
    // A title has no line breaks, and what comes behind one is on the next line.
    assert_eq!(lines, json!(["9", "12", "5003"]));
    browser.is_accessible();
    wait_until("all links", || node.status()["links"] == 9_996);
    let found = Wire::open(node.admin).get("/rest/v3/short-urls?tags[]=a&tags[]=b&tagsMode=all").json();
    assert_eq!(found["shortUrls"]["data"][0]["title"], "Commas, \"quotes\"");
    console.close();
}

/// The button for an import counts the links that a dry run has found.
#[test]
fn imports_without_a_link_are_off() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    node.wire().shorten_as("taken", TARGET);
    let file = files.path().join("links.csv");
    std::fs::write(&file, "url,slug\nhttps://example.org/,taken\n").unwrap();
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    says(browser, "main [data-action=import]", "Import links");
    press(browser, "main", "import");
    shows(browser, ".import-done[data-dry=false][data-made='0'][data-rejected='1']");
    says(browser, ".bad-text", "Nothing imported");
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true][data-made='0']");
    says(browser, "main [data-action=import]", "Import 0 links");
    shows(browser, "main [data-action=import]:disabled");
    says(browser, ".bad-text", "Nothing would be imported");
    browser.is_accessible();
    // On a phone, what the line holds has the width of its card.
    browser.resize(PHONE);
    browser.fits();
    let width = browser.value("document.querySelector('.rejected td:last-child > *').getBoundingClientRect().width");
    assert!(width.as_f64() > Some(150.0), "{width}");
    console.close();
}

/// A preview says how much of the file it shows, with the names of fields in the console.
#[test]
fn previews_name_fields_and_their_lines() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("links.csv");
    std::fs::write(&file, lines(12)).unwrap();
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    says(browser, "main", "The first 10 of 12 readable lines");
    // Only a dry run checks slugs, so no line counts as valid before.
    says(browser, "main", "A dry run checks slugs and destinations");
    let titles = "[...document.querySelectorAll('main thead th')].map((one) => one.textContent)";
    assert_eq!(browser.value(titles), json!(["Line", "Destination", "Custom slug"]));
    console.close();
}

/// Script: which parts of the page that belong to a file before its import are visible.
const BEFORE_AN_IMPORT: &str = "['.import-controls', '[data-action=import]', 'main tbody'].filter((part) => document.querySelector(part)?.checkVisibility())";

#[test]
fn finished_imports_leave_nothing_stale() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("links.csv");
    std::fs::write(&file, lines(3)).unwrap();
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true][data-made='3']");
    says(browser, "main [data-action=import]", "Import 3 links");
    // The result of a dry run ends with the choice that it was for.
    browser.choose("select[name=existing]", "skip");
    lacks(browser, ".import-done");
    says(browser, "main [data-action=import]", "Import links");
    says(browser, ".import-controls", "The existing link stays as it is.");
    press(browser, "main", "import");
    shows(browser, ".import-done[data-dry=false][data-made='3']");
    says(browser, ".import-done", "3 links imported, in ");
    assert_eq!(browser.value(BEFORE_AN_IMPORT), json!([]));
    browser.fits_everywhere(|_| {});
    console.close();
}

/// An edited export updates the links that differ from it, or skips all of them.
#[test]
fn edited_exports_update_links() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("links.csv");
    let csv = "shortCode,longUrl,title\nedited,TARGET,New title\nsame,TARGET,\nnew,TARGET,\nnew,TARGET,\n";
    std::fs::write(&file, csv.replace("TARGET", TARGET)).unwrap();
    for code in ["edited", "same"] {
        node.wire().shorten_as(code, TARGET);
    }
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    shows(browser, "select[name=existing]");
    browser.choose("select[name=existing]", "skip");
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true][data-made='1'][data-skipped='2'][data-rejected='1']");
    browser.choose("select[name=existing]", "update");
    press(browser, "main", "dry-run");
    shows(browser, ".import-done[data-dry=true][data-made='1'][data-updated='1'][data-same='1'][data-rejected='1']");
    says(browser, "main [data-action=import]", "Import 1 link, update 1");
    browser.is_accessible();
    press(browser, "main", "import");
    shows(browser, ".import-done[data-dry=false][data-made='1'][data-updated='1'][data-same='1'][data-rejected='1']");
    let title = |code: &str| node.wire().get(&format!("/rest/v3/short-urls/{code}")).json()["title"].clone();
    assert_eq!([title("edited"), title("same")], [json!("New title"), json!(null)]);
    console.close();
}

/// A script that returns the problem of the whole file, or else the first line that was rejected.
const PROBLEM: &str =
    "document.querySelector('.state')?.dataset.problem ?? document.querySelector('.rejected tbody td')?.textContent";

#[test]
fn wrong_files_are_explained() {
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    open_imports(browser, node);
    let wrong: [(&str, &[u8], &str); 9] = [
        ("empty.csv", b"", "empty"),
        ("head.csv", b"longUrl,title\r\n", "header-only"),
        ("other.csv", b"address,name\nhttps://example.org/,x\n", "no-long-url"),
        ("twice.csv", b"url,longUrl\nhttps://example.org/,https://example.org/\n", "twice"),
        ("latin.csv", b"longUrl,title\nhttps://example.org/,Gr\xfc\xdfe\n", "encoding"),
        ("broken.json", b"[{\"longUrl\":\"https://example.org/\"},", "bad-array"),
        ("object.json", b"{\n\"longUrl\":\n\"https://example.org/\"\n}", "one-object"),
        (
            "quote.csv",
            b"longUrl,title\nhttps://example.org/1,\"open\nhttps://example.org/2,x\nhttps://example.org/3,y\n",
            "2",
        ),
        ("page.ndjson", b"<html>\n", "1"),
    ];
    let path = |name: &str| files.path().join(name).to_string_lossy().into_owned();
    for (name, bytes, said) in wrong {
        std::fs::write(path(name), bytes).unwrap();
        browser.fill("#file", &path(name));
        wait_until(name, || browser.value(PROBLEM) == said);
    }
    // In the ways of other spreadsheets and programs.
    let marked: Vec<u8> =
        "\u{feff}url;title\r\nhttps://example.org/a,b;Grüße\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let good: [(&str, &[u8], &str); 4] = [
        ("semicolons.csv", "url;title\nhttps://example.org/a,b;Grüße\n".as_bytes(), "Grüße"),
        ("tabs.tsv", "url\ttitle\nhttps://example.org/a,b\tGrüße\n".as_bytes(), "Grüße"),
        ("utf-16.csv", &marked, "Grüße"),
        ("array.json", "[{\"longUrl\":\"https://example.org/a,b\",\n\"title\":\"Grüße\"}]".as_bytes(), "Grüße"),
    ];
    for (name, bytes, said) in good {
        std::fs::write(path(name), bytes).unwrap();
        browser.fill("#file", &path(name));
        says(browser, "main", name);
        says(browser, "main tbody", said);
        press(browser, "main", "import");
        shows(browser, ".import-done[data-dry=false][data-made='1'][data-rejected='0']");
    }
    let list = Wire::open(node.admin).get("/rest/v3/short-urls?searchTerm=a,b").json();
    let titles: Vec<_> = list["shortUrls"]["data"].as_array().unwrap().iter().map(|link| &link["title"]).collect();
    assert_eq!(titles, vec!["Grüße"; 4]);
    console.close();
}

/// Lines with slugs of their own, of which the server refuses each tenth, as CSV.
fn lines(count: usize) -> String {
    let line = |number: usize| match number % 10 {
        0 => format!("https://example.org/{number},line/{number}\n"),
        _ => format!("https://example.org/{number},line-{number}\n"),
    };
    ["longUrl,customSlug\n".to_owned()].into_iter().chain((1..=count).map(line)).collect()
}

/// Stopped between two chunks, nothing is left open: going on makes every link once, and the report has every refused
/// line once.
#[test]
fn stopped_import_resumes() {
    const LINES: usize = 60_000;
    let console = OpenConsole::open();
    let OpenConsole { node, browser, .. } = &console;
    let files = tempfile::tempdir().unwrap();
    let file = files.path().join("links.csv");
    std::fs::write(&file, lines(LINES)).unwrap();
    open_imports(browser, node);
    browser.fill("#file", &file.to_string_lossy());
    press(browser, "main", "import");
    press(browser, "main", "stop");
    shows(browser, ".import-left");
    assert_eq!(browser.value("document.querySelector('.import-left').dataset.unsure"), json!("0"));
    // It goes on while another page is shown, and is found again.
    press(browser, "main", "resume");
    browser.value("document.querySelector('#nav a[href=\"/admin/usage\"]').click()");
    shows(browser, "main .period");
    browser.value("document.querySelector('#nav a[href=\"/admin/import\"]').click()");
    shows(browser, ".import-done[data-made='54000'][data-rejected='6000']");
    wait_until("all links", || node.status()["links"] == 54_000);
    shows(browser, ".rejected > .soft");
    console.close();
}

/// A node that ends while lines come has answered for some: the others are sent to the next one.
#[test]
fn import_survives_a_restart() {
    const LINES: usize = 60_000;
    let dir = tempfile::tempdir().unwrap();
    let admin = free_address();
    let node = Setup::new(&dir.path().join("data")).argument("--admin-listen").argument(admin.to_string()).start();
    node.wire().shorten_as("first", TARGET);
    let file = dir.path().join("links.csv");
    std::fs::write(&file, lines(LINES)).unwrap();
    let mut browser = Browser::open();
    open_imports(&browser, &node);
    for complaint in
        ["ERR_CONNECTION_REFUSED", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_NETWORK"]
    {
        browser.expect(complaint);
    }
    browser.fill("#file", &file.to_string_lossy());
    press(&browser, "main", "import");
    wait_until("some lines", || browser.value("document.querySelector('progress')?.value > 0") == true);
    let node = node.restart();
    shows(&browser, ".import-left");
    wait_until("the rest", || {
        press(&browser, "main", "resume");
        wait_until("an end", || browser.value("document.querySelector('.import-done') !== null") == true);
        browser.value("document.querySelector('.import-done').matches('[data-made=\"54000\"][data-rejected=\"6000\"]')")
            == true
    });
    wait_until("all links", || node.status()["links"] == 54_001);
    browser.close();
    node.terminate();
}

/// The restart ends the session as well: one signs in where the import stands, and goes on.
#[test]
fn import_survives_an_ended_session() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(&dir.path().join("data")).argument("--admin-listen").argument(free_address().to_string());
    let (node, key) = with_key(&setup);
    let file = dir.path().join("links.csv");
    std::fs::write(&file, lines(10_000)).unwrap();
    let mut browser = Browser::open();
    for complaint in
        ["status of 400", "status of 401", "ERR_CONNECTION", "ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_NETWORK"]
    {
        browser.expect(complaint);
    }
    browser.go(&at(&node, "import"));
    enter_key(&browser, &key);
    wait_until("a field for a file", || browser.value("document.querySelector('#file') !== null") == true);
    browser.fill("#file", &file.to_string_lossy());
    press(&browser, "main", "dry-run");
    shows(&browser, ".import-done[data-dry=true]");
    let node = node.restart();
    let asked = "document.querySelector('dialog input[name=key]') !== null";
    wait_until("who asks for a key", || browser.value(asked) == true);
    browser.press(&key);
    press(&browser, "dialog", "submit");
    wait_until("the page", || browser.value(asked) == false);
    press(&browser, "main", "import");
    shows(&browser, ".import-done[data-dry=false]");
    browser.close();
    node.terminate();
}
