//! The `carom` command: parses the command line, runs the command, and turns its result into an exit code.

use std::process::ExitCode;

use carom::commands::cli::{Cli, Command, DemoArgs, KeyCommand, ServeArgs, manual};
use carom::commands::{
    app, backup, config, demo, doctor, fleet, import, join, link, login, offline, output, purge, status, terminal, top,
};
use carom::node::{self, Hangup, SignalInbox};
use carom::startup::logging;
use carom_settings::exit::Exit;
use carom_settings::{LogFormat, Settings, environment};
use carom_telemetry::panics;

fn main() -> ExitCode {
    panics::abort_on_panic();
    let cli = Cli::read();
    logging::set_verbosity(cli.verbosity());
    let Cli { command, colour, .. } = cli;
    terminal::set_colours(colour);
    let done = match command {
        Command::Serve(arguments) => serve(arguments),
        Command::Config(command) => config::run(&command),
        Command::CheckConfig { file } => config::check_config(file.as_deref()),
        Command::Import(arguments) => import::run(arguments),
        Command::Export { place, file } => offline::export(place, &file),
        Command::Status(arguments) => status::status(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Health(arguments) => status::health(&arguments),
        Command::Backup { dir, keep, place } => backup::backup(&dir, keep, place),
        Command::Verify { dir, config } => backup::verify(&dir, config.as_deref()),
        Command::Restore { dir, revoke_keys, place } => backup::restore(&dir, revoke_keys, place),
        Command::Join(arguments) => join::run(&arguments),
        Command::Fleet(command) => fleet::run(&command),
        Command::App(command) => app::run(command),
        Command::Key(KeyCommand::New) => offline::new_key(),
        Command::Key(KeyCommand::ShowFingerprint(place)) => offline::show_fingerprint(place),
        Command::Link(command) => link::run(&command),
        Command::Purge(arguments) => purge::run(&arguments),
        Command::Login(arguments) => login::login(&arguments),
        Command::Logout => login::logout(),
        Command::Demo(arguments) => serve_demo(&arguments),
        Command::Doctor(arguments) => doctor::run(&arguments),
        Command::Completions { shell } => {
            manual::completions(shell);
            Ok(())
        }
        Command::Man { dir } => manual::man(&dir),
    };
    match output::checked(done) {
        Ok(()) => ExitCode::SUCCESS,
        Err(exit) => {
            logging::log_exit(&exit);
            exit.reason.into()
        }
    }
}

fn serve(arguments: ServeArgs) -> Result<(), Exit> {
    let (file, flags) = arguments.split();
    let (settings, warnings) = Settings::load(file.as_deref(), environment(), flags)?;
    logging::start(settings.log_level.as_str(), settings.log_format == LogFormat::Json);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    #[cfg(feature = "next-format")]
    if std::env::var_os("CAROM_NEXT_FORMAT").is_some() {
        use carom_model::replication::formats;
        formats::next::enable();
        if settings.fleet.redis.is_none() {
            // A node alone asks nobody which format it may write.
            formats::next::agree(formats::newest());
        }
    }
    node::serve(&settings)
}

fn serve_demo(arguments: &DemoArgs) -> Result<(), Exit> {
    // Its directory is removed once the node has ended.
    let demo = demo::prepare(arguments)?;
    logging::start(demo.settings.log_level.as_str(), demo.settings.log_format == LogFormat::Json);
    // From here on, the demonstration passes signals to the node, which takes them once it runs. If the node received
    // signals itself, it would miss one that has reached the demonstration just before.
    let (signals, inbox) = SignalInbox::channel(Hangup::Stop);
    demo.hand_over_signals(move |signal| signals.send(signal));
    node::serve_with(&demo.settings, inbox)
}
