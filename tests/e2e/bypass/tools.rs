//! Programs of the field as clients over a wire that treats frames badly. Each answer is checked by the program or here.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::browser::Browser;
use crate::support::bulk::{BULK, KIND};
use crate::support::bypass::{Pair, SERVER, counter, open};
use crate::support::http::SHORT_URLS;
use crate::support::node::wait_until;
use crate::support::tls::{Ca, NAME};
use crate::support::wire::{Badness, bad};

/// Frames of a run that may reach the kernel, because the wire has damaged their destination.
const DAMAGED_MAX: u64 = 20;

/// A bad network: every frame has one chance in thirty to be treated badly.
const BAD: Badness = Badness { loss: 10, double: 10, late: 20, damage: 5, cut: 2 };

/// A worse network, for a client of few frames: every frame has one chance in seven.
const WORSE: Badness = Badness { loss: 30, double: 30, late: 60, damage: 15, cut: 6 };

/// Links of each node.
const LINKS: usize = 200;

fn code(at: usize) -> String {
    format!("code-{at}")
}

/// Destinations of four hundred bytes, so that an export takes many frames.
fn long_url(at: usize) -> String {
    format!("https://example.org/{at:05}/{}", "x".repeat(400))
}

/// Seconds that a program may take.
const PATIENCE: &str = "120";

/// Returns a program that is killed if it takes too long.
fn program(name: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([PATIENCE, name]);
    command
}

/// Runs a program, and returns its standard output. Fails unless it succeeds.
fn run(command: &mut Command) -> String {
    let made = command.output().unwrap_or_else(|error| panic!("{command:?}, which `make test` installs: {error}"));
    let [said, told] = [made.stdout, made.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(made.status.success(), "{command:?}: {}\n{said}\n{told}", made.status);
    said
}

/// Disturbances of clients that send one request at a time, in one segment. Segments of such a connection stay in order.
const OF_SINGLE_SEGMENTS: [&str; 2] = ["retransmissions", "dropped"];

/// Disturbances of clients that send many frames at once.
const OF_MANY_SEGMENTS: [&str; 3] = ["retransmissions", "dropped", "outOfOrder"];

/// Starts a node behind a bad wire, gives it links, and runs clients in their namespace with a directory of their own.
/// Nothing may reach the kernel's TCP. `disturbances` are counters of the node that must have counted something.
fn survives(
    seed: u64,
    badness: Badness,
    is_secure: bool,
    disturbances: &[&str],
    clients: impl FnOnce(&Path, &Ca) + Send,
) {
    println!("seed {seed}");
    let Some((pair, _wire)) = Pair::over_wire(0..0, bad(badness, seed)) else { return };
    // Addresses of IPv6 come a second after the link, and a browser takes them for a network that changes.
    // ChromeDriver needs that of loopback.
    for (interface, is_off) in [("all", "1"), ("lo", "0")] {
        let setting = format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6");
        pair.client.run(|| fs::write(setting, is_off).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    let mut setup = pair.setup(&dir.path().join("data"));
    setup = if is_secure {
        setup.env("CAROM_TLS_CERT", &ca.file("go.pem")).env("CAROM_TLS_KEY", &ca.file("go.key"))
    } else {
        setup.env("CAROM_BASE_URL", &format!("http://{SERVER}"))
    };
    let node = pair.start(&setup);
    let before = pair.kernel_segments();
    pair.client.run(|| {
        let mut wire = if is_secure { open().secured(&ca.usual(), NAME).unwrap() } else { open() };
        let link = |at| json!({"longUrl": long_url(at), "customSlug": code(at)}).to_string() + "\n";
        let links: String = (0..LINKS).map(link).collect();
        assert_eq!(wire.ask("POST", BULK, KIND, links.as_bytes()).text().lines().count(), LINKS);
        drop(wire);
        clients(dir.path(), &ca);
    });
    // A frame whose port or address was damaged passes to the kernel.
    assert!(pair.kernel_segments() - before <= DAMAGED_MAX);
    wait_until("counted connections", || counter(&pair.status(&node), "opened") > 1);
    let status = pair.status(&node);
    for name in disturbances {
        assert!(counter(&status, name) > 0, "{name}: {status}");
    }
    node.terminate();
}

/// Follows all links with curl, over several connections at once, and compares destinations; then exports and creates
/// links.
fn ask_with_curl(dir: &Path, options: &[&str]) {
    let curl = |more: &[&str]| {
        let limits = ["-sS", "--max-time", "60"];
        run(program("curl").args(limits).args(options).args(more))
    };
    let url = |path: &str| format!("https://{NAME}:8080{path}");
    let all = url(&format!("/code-[0-{}]", LINKS - 1));
    let told = curl(&[
        "--parallel",
        "--parallel-max",
        "4",
        "-o",
        "/dev/null",
        "-w",
        "%{url_effective} %{http_code} %{redirect_url}\n",
        &all,
    ]);
    let mut found: Vec<&str> = told.lines().collect();
    found.sort_unstable();
    let answer = |at| format!("{} 302 {}", url(&format!("/{}", code(at))), long_url(at));
    let mut wanted: Vec<String> = (0..LINKS).map(answer).collect();
    wanted.sort_unstable();
    assert!(found == wanted, "{options:?}: {told}");
    // A large body in each direction.
    let file = dir.join("lines");
    let line = |at| json!({"longUrl": long_url(at), "findIfExists": true}).to_string() + "\n";
    fs::write(&file, (0..LINKS).map(line).collect::<String>()).unwrap();
    let told = curl(&["-H", KIND.trim_end(), "--data-binary", &format!("@{}", file.display()), &url(BULK)]);
    assert_eq!(told.lines().count(), LINKS, "{options:?}: {told}");
    for _ in 0..4 {
        let export = curl(&[&url(&format!("{SHORT_URLS}/export"))]);
        let destination = |line| serde_json::from_str::<Value>(line).unwrap()["longUrl"].as_str().unwrap().to_owned();
        let mut found: Vec<String> = export.lines().map(destination).collect();
        found.sort_unstable();
        assert!(found == (0..LINKS).map(long_url).collect::<Vec<_>>(), "{options:?}: {} links", found.len());
    }
}

#[test]
fn curl_gets_every_answer_over_a_bad_wire() {
    survives(11, BAD, true, &OF_MANY_SEGMENTS, |dir, ca| {
        let host = SERVER.trim_end_matches(":8080");
        let (roots, name) = (ca.file("ca.pem"), format!("{NAME}:8080:{host}"));
        for options in [&["--http1.1"][..], &["--http2"], &["--http1.1", "--tls-max", "1.2"]] {
            ask_with_curl(dir, &[&["--cacert", &roots, "--resolve", &name], options].concat());
        }
    });
}

/// Each thread of wrk follows a link of its own, and compares status and destination of each answer.
const CHECK: &str = r#"
local threads = {}
function setup(thread)
  thread:set("number", #threads)
  table.insert(threads, thread)
end
function init(arguments)
  seen, wrong = 0, 0
  wanted = string.format("https://example.org/%05d/%s", number, string.rep("x", 400))
  asked = wrk.format("GET", "/code-" .. number)
end
function request()
  return asked
end
function response(status, headers, body)
  seen = seen + 1
  if status ~= 302 or headers["Location"] ~= wanted then wrong = wrong + 1 end
end
function done(summary, latency, requests)
  local all_seen, all_wrong = 0, 0
  for _, thread in ipairs(threads) do
    all_seen = all_seen + thread:get("seen")
    all_wrong = all_wrong + thread:get("wrong")
  end
  local errors = summary.errors
  print(string.format("%d answers, wrong %d, connect %d, read %d, write %d, timeout %d",
    all_seen, all_wrong, errors.connect, errors.read, errors.write, errors.timeout))
end
"#;

#[test]
fn wrk_gets_every_answer_over_a_bad_wire() {
    survives(12, BAD, false, &OF_SINGLE_SEGMENTS, |dir, _| {
        let script = dir.join("check.lua");
        fs::write(&script, CHECK).unwrap();
        let limits = ["-t", "4", "-c", "16", "-d", "3s", "--timeout", "30s", "-s"];
        let said = run(program("wrk").args(limits).arg(&script).arg(format!("http://{SERVER}/")));
        let line = said.lines().find(|line| line.contains(" answers, ")).unwrap_or_else(|| panic!("{said}"));
        assert!(line.ends_with("answers, wrong 0, connect 0, read 0, write 0, timeout 0"), "{said}");
        let answers: usize = line.split(' ').next().and_then(|number| number.parse().ok()).expect("a number");
        assert!(answers > 20, "{said}");
    });
}

/// Sends requests with h2load over four connections. Each must succeed with a status of that class, and bring so many
/// bytes of body.
fn load(options: &[&str], requests: usize, class: &str, body_len: usize) {
    let said = run(program("h2load").args(["-c", "4", "-n", &requests.to_string()]).args(options));
    let succeeded = format!("{requests} succeeded, 0 failed, 0 errored, 0 timeout");
    assert!(said.contains(&succeeded), "{options:?}: {said}");
    assert!(said.contains(&format!("{requests} {class}")), "{options:?}: {said}");
    assert!(said.contains(&format!("({}) data", requests * body_len)), "{options:?}: {said}");
}

#[test]
fn h2load_gets_every_answer_over_a_bad_wire() {
    survives(13, BAD, true, &OF_MANY_SEGMENTS, |dir, ca| {
        let urls = dir.join("urls");
        let url = |path: &str| format!("https://{SERVER}{path}");
        fs::write(&urls, (0..LINKS).map(|at| url(&format!("/{}\n", code(at)))).collect::<String>()).unwrap();
        let urls = urls.display().to_string();
        let large = "/rest/v3/openapi.json";
        let mut wire = open().secured(&ca.usual(), NAME).unwrap();
        let lens = ["/code-0", large].map(|path| wire.get(path).body.len());
        for mode in [&["-m", "16"][..], &["--h1"]] {
            load(&[mode, &["-i", &urls]].concat(), 1_000, "3xx", lens[0]);
            load(&[mode, &[&url(large)]].concat(), 20, "2xx", lens[1]);
        }
    });
}

#[test]
fn openssl_gets_every_answer_over_a_bad_wire() {
    survives(14, BAD, true, &[], |_, ca| {
        let roots = ca.file("ca.pem");
        for at in 0..20 {
            let version = if at % 2 == 0 { "-tls1_3" } else { "-tls1_2" };
            let mut client = program("openssl")
                .args(["s_client", "-connect", SERVER, "-servername", NAME, "-CAfile", &roots, version])
                .args(["-verify_return_error", "-verify_hostname", NAME, "-quiet"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .expect("openssl, which `make test` installs");
            let request = format!("GET /{} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n\r\n", code(at));
            client.stdin.as_mut().expect("a pipe").write_all(request.as_bytes()).unwrap();
            let ended = client.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stdout).into_owned();
            assert!(said.starts_with("HTTP/1.1 302 "), "{at}: {} {said}", ended.status);
            assert!(said.contains(&format!("\r\nLocation: {}\r\n", long_url(at))), "{at}: {said}");
        }
    });
}

/// Links that a person creates.
const CREATED: usize = 10;

#[test]
fn browser_shows_every_page_over_a_bad_wire() {
    survives(15, WORSE, false, &OF_SINGLE_SEGMENTS, |_, _| {
        let browser = Browser::open();
        let form = format!("http://{SERVER}/");
        for at in 0..CREATED {
            let (slug, destination) = (format!("by-browser-{at}"), long_url(LINKS + at));
            let short = format!("{form}{slug}");
            browser.go(&form);
            browser.value(&format!("document.querySelector('#longUrl').value = {}", json!(destination)));
            browser.click("summary");
            browser.fill("#customSlug", &slug);
            browser.click("button.button");
            assert_eq!(browser.attribute("#short-url", "href"), short);
            wait_until("a picture", || browser.value("document.querySelector('.qr img').naturalWidth > 0") == true);
            browser.go(&format!("{short}+"));
            assert_eq!(browser.text("h1"), format!("{short} goes to"));
            assert_eq!(browser.text(".url"), destination);
            assert_eq!(browser.attribute("a.button", "href"), destination);
        }
        browser.close();
    });
}
