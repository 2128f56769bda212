//! Runs and a comparison at a terminal, as docs/src/performance/load-generator-terminal.md shows them. The page fails the
//! test once an output has changed, and `make docs` writes it again.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::Generator;
use crate::compare::with_p99;
use crate::server::{Server, right};
use crate::session_page::SessionPage;
use crate::terminal::Terminal;

const PAGE: &str = "../docs/src/performance/load-generator-terminal.md";

/// The run on the page.
const RUN: &str = "carom-loadgen http://127.0.0.1:8080/abc -c 2 -r 300 -d 2s --warmup 0s";

/// Starts a command, given as the page shows it, in the folder of a generator.
fn start(page: &SessionPage, generator: &Generator, command: &str) -> Terminal {
    let mut process = Command::new(env!("CARGO_BIN_EXE_carom-loadgen"));
    process.env_remove("CAROM_API_KEY").current_dir(generator.folder.path());
    process.args(page.real(command).split_whitespace().skip(1).map(|argument| argument.trim_matches('\'')));
    Terminal::start(process)
}

#[test]
fn sessions_are_current() {
    let (server, generator) = (Server::start(right), Generator::new());
    let mut page = SessionPage::new(
        "Load generator at a terminal",
        "loadgen/tests/load/sessions.rs",
        "The output of `carom-loadgen` on a terminal of 80 columns, from runs of this version. [Load \
         generator](load-generator.md) explains the words.",
    );
    page.show(&server.address.to_string(), "127.0.0.1:8080");
    page.section("Run", "On a terminal, a live view shows the progress, and the report takes its place.");
    let view = start(&page, &generator, RUN);
    page.session_of_machine(RUN, &view.screen_with(&"█".repeat(15)), &["last second", "s of 2.0 s"]);
    view.end();
    let command = format!("{RUN} -o base.json");
    let report = start(&page, &generator, &command).end();
    page.session_of_machine(&command, &report, &["latency  ", "corrected:", "throughput", "sent late"]);
    page.section("Comparison", "The exit code is 1 if a condition of `--fail-if` is met.");
    // The figures of the second run are those of the first one, apart from p99.
    let mut base: Value = serde_json::from_slice(&std::fs::read(generator.file("base.json")).unwrap()).unwrap();
    base["verdict"] = json!("ok");
    for (name, factor) in [("base.json", 1.0), ("new.json", 1.2)] {
        std::fs::write(generator.file(name), with_p99(base.clone(), factor, false).to_string()).unwrap();
    }
    let command = "carom-loadgen compare base.json new.json --fail-if 'p99>+10%'";
    let table = start(&page, &generator, command).end();
    page.session(command, &table);
    page.check(&Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE));
}
