//! Completions and man pages, generated from the grammar of the command line.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

use super::{Cli, CompletionShell};
use crate::commands::output::{self, print};
use carom_settings::exit::{Exit, Reason};

/// Prints the completions for a shell.
pub fn completions(shell: CompletionShell) {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "carom", &mut script);
    output::keep(io::stdout().write_all(&script).and_then(|()| io::stdout().flush()));
}

/// Writes a man page of section 1 for each command that the help shows.
///
/// # Errors
/// [`Reason::DataNotWritable`] if the directory or a page cannot be written.
pub fn man(dir: &Path) -> Result<(), Exit> {
    let refused = |error: io::Error| {
        Exit::new(Reason::DataNotWritable, format!("man pages cannot be written to {}: {error}", dir.display()))
            .with_remedy("pass a directory that you can write to")
    };
    DirBuilder::new().recursive(true).create(dir).map_err(refused)?;
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut waiting = vec![root];
    let mut count = 0;
    while let Some(command) = waiting.pop() {
        waiting.extend(command.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        let text = page(command).map_err(refused)?;
        fs::write(dir.join(format!("{name}.1")), text).map_err(refused)?;
        count += 1;
    }
    print(&format!("{count} man pages in {}\n", dir.display()));
    Ok(())
}

/// Returns the man page of a command.
fn page(command: Command) -> io::Result<Vec<u8>> {
    let notes = command.get_after_long_help().map(ToString::to_string);
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_commands = command.has_subcommands();
    let source = concat!("carom ", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command).source(source).manual("carom").date(env!("BUILD_COMMIT_DATE"));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if has_options {
        man.render_options_section(&mut page)?;
    }
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    if let Some(notes) = notes {
        section("NOTES", &notes).to_writer(&mut page)?;
    }
    Ok(page)
}

/// Returns a section whose lines are not filled, so that examples and tables keep their lines.
fn section(title: &str, text: &str) -> Roff {
    let mut section = Roff::new();
    section.control("SH", [title]).control("nf", []);
    for line in text.lines().flat_map(|line| broken(line, NOTES_WIDTH)) {
        section.text([roman(line)]);
    }
    section.control("fi", []);
    section
}

/// Width of lines that are not filled, in characters.
const NOTES_WIDTH: usize = 72;

/// Breaks a line of prose. An indented line is an example or a row of a table, and stays whole.
fn broken(line: &str, width: usize) -> Vec<String> {
    if line.starts_with(' ') || line.is_empty() {
        return vec![line.to_owned()];
    }
    let mut lines: Vec<String> = Vec::new();
    for word in line.split_whitespace() {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= width => {
                last.push(' ');
                last.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn man_pages_cover_every_command() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man");
        man(&dir).unwrap();
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert!(read("carom.1").contains(".SH SUBCOMMANDS") || read("carom.1").contains(".SH COMMANDS"));
        let create = read("carom-link-create.1");
        assert!(create.contains(".TH "), "{create}");
        assert!(create.contains("\\-\\-slug"), "{create}");
        let serve = read("carom-serve.1");
        assert!(serve.contains(".SH NOTES"), "{serve}");
        assert!(serve.contains("CAROM_DATA_DIR"), "{serve}");
        assert!(!dir.join("carom-help.1").exists());
    }

    #[test]
    fn roff_has_no_meaning_in_texts() {
        let notes = section("NOTES", ".a 'b' --c \\d").render();
        assert!(notes.ends_with(".SH NOTES\n.nf\n\\&.a \\*(Aqb\\*(Aq \\-\\-c \\\\d\n.fi\n"), "{notes}");
        assert_eq!(broken("one two three", 7), ["one two", "three"]);
        assert_eq!(broken("  one two three", 7), ["  one two three"]);
    }
}
