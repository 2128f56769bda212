//! Man pages: the text of the help, and recipes. Packages contain them.

use std::fs::{self, DirBuilder};
use std::io;
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use crate::command_line::cli::Arguments;
use crate::console::print;
use crate::failure::Failure;

/// Common tasks with their commands, for the page of the program. Lines keep their length, so they are short.
const RECIPES: &str = "\
Measure a redirect at a fixed rate
  carom-loadgen http://127.0.0.1:8080/abc -c 64 -d 30s -r 40000 --slo 'p99<5ms,errors=0'

This sends 40,000 requests a second over 64 connections. The exit code is 1
if an objective is missed. Take a rate that the server can hold: beyond it,
latencies grow for as long as the run lasts. --find-rate finds that rate.

Compare two builds in CI
  carom-loadgen http://127.0.0.1:8080 --create 10000 -r 20000 -d 60s --quiet -o base.json
  carom-loadgen http://127.0.0.1:8080 --create 10000 -r 20000 -d 60s --quiet -o new.json
  carom-loadgen compare base.json new.json --fail-if 'p99>+10%' --fail-if 'errors>+0'

Run the first command against the base and the second one against the new
build, on the same machine and with other CPUs for the server. The exit
code of the comparison is 1 if a condition is met.

Measure redirects and creates over HTTP/2, with an API key
  read -rs CAROM_API_KEY && export CAROM_API_KEY
  carom-loadgen https://go.example --http2 --pipeline 10 --create 1000 --mix redirect=95,create=5 -r 5000 -d 30s

Other users of the machine cannot read the key in the environment. Use a
test server: the links of a run stay, because nothing deletes them.";

/// Part of the help that is a section of its own in a page.
const EXIT_CODES: &str = "Exit codes:\n";

/// Writes the page of the program, and one for each of its commands, to a directory.
///
/// # Errors
/// A message with exit code 2 if the directory or a page cannot be written.
pub(crate) fn write(dir: &Path) -> Result<(), Failure> {
    let refused =
        |error: io::Error| Failure::usage(format!("man pages cannot be written to {}: {error}", dir.display()));
    DirBuilder::new().recursive(true).create(dir).map_err(refused)?;
    let mut root = Arguments::command();
    root.build();
    let commands: Vec<Command> = root.get_subcommands().cloned().collect();
    let count = 1 + commands.len();
    for (command, recipes) in std::iter::once((root, RECIPES)).chain(commands.into_iter().map(|command| (command, "")))
    {
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let text = page(command, recipes).map_err(refused)?;
        fs::write(dir.join(format!("{name}.1")), text).map_err(refused)?;
    }
    print(&format!("{count} man pages in {}\n", dir.display()))
}

/// Returns the page of a command.
fn page(command: Command, recipes: &str) -> io::Result<Vec<u8>> {
    let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let has_commands = command.has_subcommands();
    let man = Man::new(command).source(concat!("carom-loadgen ", env!("CARGO_PKG_VERSION"))).manual("carom");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    write_section(&mut page, "RECIPES", recipes)?;
    let codes = after.split_once(EXIT_CODES).map_or("", |(_, codes)| codes);
    write_section(&mut page, "EXIT STATUS", codes)?;
    Ok(page)
}

/// Writes a section whose lines are not filled, if there is a text for it.
fn write_section(page: &mut Vec<u8>, title: &str, text: &str) -> io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []);
    for line in text.lines() {
        section.text([roman(line)]);
    }
    section.control("fi", []).to_writer(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn pages_have_recipes_and_exit_codes() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man");
        write(&dir).unwrap_or_else(|failure| panic!("{}", failure.text));
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        let page = read("carom-loadgen.1");
        for part in [".TH ", ".SH RECIPES\n.nf\n", ".SH \"EXIT STATUS\"\n", "  130  ", "\\-\\-find\\-rate"] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(page.matches("\n  carom\\-loadgen").count(), 5, "{page}");
        let compare = read("carom-loadgen-compare.1");
        assert!(compare.contains("EXIT STATUS"), "{compare}");
        assert!(!compare.contains("RECIPES"), "{compare}");
        assert!(dir.join("carom-loadgen-man.1").exists());
    }

    #[test]
    fn recipes_are_valid_commands() {
        let commands =
            RECIPES.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| line.starts_with("carom"));
        let mut count = 0;
        for line in commands {
            let words = line.split_whitespace().map(|word| word.trim_matches('\''));
            let arguments = Arguments::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}"));
            assert!(arguments.work.is_some() || arguments.url.len() == 1, "{line}");
            count += 1;
        }
        assert_eq!(count, 5);
        let long = RECIPES.lines().filter(|line| !line.starts_with(' ') && line.chars().count() > 76);
        assert_eq!(long.count(), 0);
    }

    #[test]
    fn unwritable_directories_are_named() {
        let Err(failure) = write(Path::new("/proc/carom")) else { panic!("written") };
        assert!(failure.code == 2, "{}", failure.text);
        assert!(failure.text.contains("/proc/carom"), "{}", failure.text);
    }
}
