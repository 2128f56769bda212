//! The `carom` command: reads the command line, does what it says, and turns the outcome into an exit code.

use std::process::ExitCode;

use carom::cli::{Cli, Command, KeyCommand};
use carom::config::{Settings, Warning, environment};
use carom::exit::{Exit, Reason};
use carom::{logging, node, space_key};
use clap::Parser;

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(arguments) => {
            let (file, flags) = arguments.split();
            settings_with(Settings::load(file.as_deref(), environment(), flags))
                .and_then(|settings| node::serve(&settings))
        }
        Command::Key(KeyCommand::New) => new_key(),
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            print_error(&exit);
            exit.reason.into()
        }
    }
}

fn settings_with(loaded: Result<(Settings, Vec<Warning>), carom::config::ConfigErrors>) -> Result<Settings, Exit> {
    let (settings, warnings) = loaded?;
    logging::start(settings.log_level.as_str());
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(settings)
}

fn new_key() -> Result<(), Exit> {
    let key = space_key::generate()?;
    print_line(&key.to_hex());
    Ok(())
}

/// Writes a line to standard output; that nobody reads it is no error of ours.
fn print_line(line: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn print_error(exit: &Exit) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "carom: {exit}");
}

const _: () = assert!(Reason::Done as u8 == 0);
