//! Each command at a terminal, as docs/src/reference/terminal.md shows it. The page fails the test once the output of a
//! command has changed, and `make docs` writes it again.

use std::path::Path;

use crate::support::cli_user::CliUser;
use crate::support::node::{Node, Setup, free_address, wait_until};
use crate::support::session_page::SessionPage;
use crate::support::terminal::Terminal;

const PAGE: &str = "docs/src/reference/terminal.md";

/// The addresses and directories that the page shows.
const PUBLIC: &str = "127.0.0.1:8080";
const ADMIN: &str = "127.0.0.1:8081";
const DATA_DIR: &str = "/var/lib/carom";
const HOME: &str = "/home/ana";

/// The keys that the page shows: their IDs and their texts.
const KEYS: [(&str, &str); 2] = [
    ("3f9c2a71b04e", "carom_ak_EXAMPLEEXAMPLEEXAMPLEEXAMPLEEXAMPL"),
    ("8d15e6c7a902", "carom_ak_ANOTHERANOTHERANOTHERANOTHERANOTH"),
];

/// A user at a terminal, whose sessions become the page.
struct Recorder {
    user: CliUser,
    page: SessionPage,
    public: String,
    admin: String,
}

impl Recorder {
    /// Starts a command, given as the page shows it.
    fn start(&self, command: &str) -> Terminal {
        let command = self.page.real(command);
        let arguments: Vec<&str> = command.split_whitespace().skip(1).collect();
        Terminal::start(self.user.command(&arguments))
    }

    /// Adds the session of a command.
    fn run(&mut self, command: &str) {
        let output = self.start(command).end();
        self.page.session(command, &output);
    }

    /// Adds the session of a command with the first lines of a long output.
    fn run_head(&mut self, command: &str, lines: usize) {
        let output = self.start(command).end();
        let first: Vec<&str> = output.lines().take(lines).collect();
        self.page.session(&format!("{command} | head -{lines}"), &first.join("\n"));
    }

    /// Adds the session of a command that creates a key, which the page shows as another one. Returns the key.
    fn run_for_key(&mut self, command: &str, shown: (&str, &str)) -> String {
        let output = self.start(command).end();
        let id = output.split("created key ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let key = output.lines().last().unwrap().to_owned();
        self.page.show(id, shown.0);
        self.page.show(&key, shown.1);
        self.page.session(command, &output);
        key
    }
}

#[test]
fn sessions_are_current() {
    let page = SessionPage::new(
        "Commands at a terminal",
        "tests/e2e/operate/terminal.rs",
        "The output of each command on a terminal of 80 columns, from runs of this version.",
    );
    let (public, admin) = (free_address().to_string(), free_address().to_string());
    let mut recorder = Recorder { user: CliUser::new(), page, public, admin };
    recorder.page.show(&recorder.public, PUBLIC);
    recorder.page.show(&recorder.admin, ADMIN);
    recorder.page.show(recorder.user.home().to_str().unwrap(), HOME);
    serve(&mut recorder);
    demo(&mut recorder);
    config(&mut recorder);
    let folder = tempfile::tempdir().unwrap();
    recorder.page.show(folder.path().to_str().unwrap(), DATA_DIR);
    let setup = Setup::new(folder.path()).over_kernel();
    let setup = setup.argument("--listen").argument(&recorder.public);
    let setup = setup.argument("--admin-listen").argument(&recorder.admin);
    let node = setup.env("CAROM_BASE_URL", "https://go.example").env("CAROM_VISITS_LOG", "on").start();
    let url = node.url("");
    recorder.user = recorder.user.env("CAROM_URL", &url).env("CAROM_ADMIN_LISTEN", &recorder.admin);
    link(&mut recorder, &node);
    watch(&mut recorder);
    import(&mut recorder);
    backup(&mut recorder);
    keys(&mut recorder, &node);
    recorder.page.section("carom completions", "The script goes to standard output.");
    recorder.run_head("carom completions fish", 3);
    node.terminate();
    recorder.page.check(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE));
}

fn serve(recorder: &mut Recorder) {
    recorder.page.section("carom serve", "On a terminal, a node says what to do first. Ctrl-C stops it.");
    let (public, admin) = (&recorder.public, &recorder.admin);
    let arguments = ["serve", "--cores", "1", "--listen", public, "--admin-listen", admin];
    let terminal = Terminal::start(recorder.user.command(&arguments));
    terminal.screen_with("Ctrl-C stops the node.");
    terminal.interrupt();
    let compared =
        ["is ready, on", "Short URLs", "Console  ", "carom login", "Ctrl-C stops the node", "draining", "stopped"];
    recorder.page.session_of_machine("carom serve", &terminal.end(), &compared);
}

fn demo(recorder: &mut Recorder) {
    recorder.page.section("carom demo", "The demonstration removes its data at the end.");
    let folder = tempfile::tempdir().unwrap();
    let mut command = recorder.user.command(&["demo", "--listen", &recorder.public, "--admin-listen", &recorder.admin]);
    command.env("TMPDIR", folder.path());
    let terminal = Terminal::start(command);
    terminal.screen_with("Ctrl-C stops the node.");
    terminal.interrupt();
    let output = terminal.end().replace(folder.path().to_str().unwrap(), "/tmp");
    recorder.page.session_of_machine("carom demo", &output, &["links with", "Open http", "removes the data"]);
}

fn config(recorder: &mut Recorder) {
    recorder.page.section("carom config", "A first settings file, its check, and the effective settings.");
    recorder.run("carom config init");
    recorder.run("carom config check carom.toml");
    recorder.run_head("carom config show carom.toml", 12);
}

fn link(recorder: &mut Recorder, node: &Node) {
    recorder
        .page
        .section("carom link", "[Links from the command line](../guides/command-line.md) explains the commands.");
    recorder.run("carom link create https://example.com/sale --slug summer --tag sale --expires 30d");
    recorder.run("carom link create https://example.com/guide --slug guide --title Guide");
    for (slug, visits) in [("summer", 3), ("guide", 1)] {
        let fields = "Referer: https://news.example/page\r\nAccept-Language: de\r\nUser-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0\r\n";
        for _ in 0..visits {
            assert_eq!(node.wire().ask("GET", &format!("/{slug}"), fields, b"").status, 302);
        }
        wait_until("visits in the counts and in the log", || {
            let stats = recorder.user.json(&["link", "stats", slug, "--json"]);
            stats["visits"]["summary"]["total"] == visits && stats["visitStats"]["total"] == visits
        });
    }
    recorder.run("carom link list --order slug");
    recorder.run("carom link list nothing-like-it");
    recorder.run("carom link show summer");
    recorder.run("carom link stats summer");
    recorder.run("carom link edit guide --destination https://example.com/handbook --tag help");
    let command = "carom link delete guide";
    let mut terminal = recorder.start(command);
    terminal.screen_with("[y/N]");
    terminal.press("y\n");
    recorder.page.session(command, &terminal.end());
    recorder.run("carom link restore guide");
    recorder.run("carom link show nothing");
}

fn watch(recorder: &mut Recorder) {
    recorder.page.section("carom status", "Rates are those of one second.");
    recorder.run("carom status");
    let about = "A live view of the same facts; [Watch a node](../guides/command-line.md#watch-a-node) has its keys.";
    recorder.page.section("carom top", about);
    let mut terminal = recorder.start("carom top");
    let view = terminal.screen_with("requests/s of the last");
    terminal.press("q");
    terminal.end();
    recorder.page.session_of_machine("carom top", &view, &["ready", "store accepting", "quit"]);
    recorder.page.section("carom health", "For scripts: the exit code is 0 for yes and 1 for no.");
    recorder.run("carom health");
    recorder.run("carom health --ready");
    recorder.page.section("carom doctor", "Each warning and error comes with what to do.");
    let command = format!("carom doctor --data-dir {DATA_DIR}");
    let output = recorder.start(&command).end();
    let compared = ["base_url is not set", "set base_url", "no API key exists", "carom app add NAME"];
    recorder.page.session_of_machine(&command, &output, &compared);
}

fn import(recorder: &mut Recorder) {
    recorder
        .page
        .section("carom import", "Into the data directory of a stopped node, and with `--to` into a running one.");
    let lines = [("press", "https://example.com/press"), ("jobs", "https://example.com/jobs"), ("wrong", "no URL")];
    let lines = lines.map(|(slug, long_url)| format!("{{\"shortCode\":\"{slug}\",\"longUrl\":\"{long_url}\"}}\n"));
    recorder.user.file("links.ndjson", &lines.concat());
    recorder.run("carom import links.ndjson --data-dir new-data");
    recorder.run(&format!("carom import links.ndjson --to http://{ADMIN}"));
}

fn backup(recorder: &mut Recorder) {
    recorder.page.section("carom backup", "A backup of a running node, its check, and its restoration.");
    recorder.run(&format!("carom backup monday --data-dir {DATA_DIR}"));
    recorder.run("carom verify monday");
    recorder.run("carom restore monday --data-dir restored-data");
}

fn keys(recorder: &mut Recorder, node: &Node) {
    recorder.page.section("carom app", "A running node applies changes of keys within a second.");
    let place = format!("--data-dir {DATA_DIR}");
    recorder.run(&format!("carom app list {place}"));
    let key = recorder.run_for_key(&format!("carom app add shop --role write-all {place}"), KEYS[0]);
    recorder.run_for_key(&format!("carom app rotate shop {place}"), KEYS[1]);
    recorder.run(&format!("carom app list {place}"));
    recorder.page.section("carom login", "The key is not shown while it is typed.");
    wait_until("a node that requires a key", || node.wire().get("/rest/v3/api-key").status == 401);
    let command = format!("carom login http://{PUBLIC}");
    let mut terminal = recorder.start(&command);
    terminal.screen_with("(not shown):");
    terminal.press_hidden(&format!("{key}\n"));
    recorder.page.session(&command, &terminal.end());
    recorder.run("carom link list press");
    recorder.run("carom logout");
    recorder.run(&format!("carom app revoke shop {place}"));
}
