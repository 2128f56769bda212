//! The grammar of the command line. The commands themselves are in other modules.
//!
//! On wrong usage, clap ends the process with status 2, the number of [`carom_settings::exit::Reason::Usage`].

use std::ffi::OsString;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::commands::moving::shorteners::Shortener;
use crate::commands::output;
use crate::startup::logging::{self, Verbosity};
use carom_settings::Flags;

mod admin;
mod api;
mod config;
mod days;
mod files;
mod fleet;
mod join;
mod keys;
mod link;
pub mod manual;
mod purge;
mod texts;

pub use self::admin::{AdminPlace, NodeArgs};
pub use self::api::{ApiPlace, LoginArgs};
pub use self::config::{ConfigCommand, ConfigPlace};
pub use self::files::FileOrStdio;
pub use self::fleet::{FleetCommand, GiveUpArgs};
pub use self::join::JoinArgs;
use self::keys::rate;
pub use self::keys::{AppCommand, AppPlace, KeyCommand, KeyPlace};
pub use self::link::{
    ClearedField, LinkCommand, LinkCreateArgs, LinkDeleteArgs, LinkEditArgs, LinkFields, LinkListArgs, LinkOrder,
    LinkPlace, LinkPlaces, LinkRestoreArgs, LinkShowArgs, LinkStatsArgs, ListedState,
};
pub use self::purge::PurgeArgs;

/// A self-hosted URL shortener in one binary.
#[derive(Clone, PartialEq, Eq, Debug, Parser)]
#[command(name = "carom", version, long_version = texts::version(), arg_required_else_help = true, after_help = texts::MORE, after_long_help = texts::EXAMPLES)]
pub struct Cli {
    /// Subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Colours in the output; auto means at a terminal, unless NO_COLOR is set
    #[arg(long = "color", value_name = "WHEN", value_enum, global = true, default_value_t = ColourMode::Auto)]
    pub colour: ColourMode,
    /// No notes on standard error, only warnings and errors
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Details on standard error, such as the requests of `carom link` or the log at level debug
    #[arg(short, long, global = true)]
    pub verbose: bool,
}

/// Whether output has colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ColourMode {
    /// At a terminal, unless NO_COLOR is set.
    Auto,
    /// Also in files and pipes.
    Always,
    /// Without colours.
    Never,
}

/// The subcommands of `carom`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum Command {
    /// Serve redirects and the REST API until SIGTERM or SIGINT.
    Serve(ServeArgs),
    /// Check, show or create settings.
    #[command(subcommand, after_help = texts::settings_hint(), after_long_help = texts::settings())]
    Config(ConfigCommand),
    /// Former name of `carom config check`; also prints the effective settings.
    #[command(name = "check-config", hide = true)]
    CheckConfig {
        /// Settings file; without it, only environment variables are checked.
        file: Option<PathBuf>,
    },
    /// Import links into a stopped or running node, from a file or from another shortener.
    #[command(after_help = texts::HINT, after_long_help = texts::import())]
    Import(ImportArgs),
    /// Export all links of a stopped node, as one JSON object per line.
    #[command(after_help = texts::HINT, after_long_help = texts::NDJSON)]
    Export {
        /// The data directory of the stopped node.
        #[command(flatten)]
        place: AppPlace,
        /// File to write, or - for standard output.
        #[arg(value_name = "FILE", default_value = "-")]
        file: FileOrStdio,
    },
    /// Print the status of a node once.
    Status(StatusArgs),
    /// Watch a node live: traffic, latency, alarms and cores.
    #[command(after_help = texts::HINT, after_long_help = texts::TOP)]
    Top(TopArgs),
    /// Check that a node is alive or, with --ready, ready. Exit code 0 means yes, 1 means no.
    Health(HealthArgs),
    /// Back up the data directory of a running or stopped node.
    #[command(after_help = texts::HINT, after_long_help = texts::BACKUP)]
    Backup {
        /// Directory for the backup: empty, or created if it does not exist. With --keep, the directory of all backups.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Back up to a new directory in DIR, named by the time, and keep only the N newest complete backups there
        #[arg(long, value_name = "N")]
        keep: Option<NonZeroU32>,
        /// The data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Check every record of a backup, or of the data directory of a stopped node.
    Verify {
        /// Directory written by `carom backup`, or a data directory.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Settings file of the node, if it sets space_key_file [default: CAROM_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Restore a backup to a new data directory.
    #[command(after_help = texts::HINT, after_long_help = texts::RESTORE)]
    Restore {
        /// Directory written by `carom backup`.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Revoke all API keys of the backup, because some may have been revoked after it was taken.
        #[arg(long)]
        revoke_keys: bool,
        /// The data directory: empty, or created if it does not exist.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Fill the data directory of a new node of a fleet from a running one.
    #[command(after_help = texts::HINT, after_long_help = texts::JOIN)]
    Join(JoinArgs),
    /// Tell a fleet of two sites that a site is complete again, or is given up.
    #[command(subcommand, after_help = texts::HINT, after_long_help = texts::FLEET)]
    Fleet(FleetCommand),
    /// Manage apps and their API keys.
    #[command(subcommand, after_help = texts::HINT, after_long_help = texts::APPS)]
    App(AppCommand),
    /// Generate or identify a code secret, from which slugs are generated.
    #[command(subcommand)]
    Key(KeyCommand),
    /// Create, list, show, change and delete links of a node.
    #[command(subcommand, after_help = texts::HINT, after_long_help = texts::LINKS)]
    Link(LinkCommand),
    /// Delete links and remove everything else about them from all nodes, for good.
    #[command(after_help = texts::HINT, after_long_help = texts::PURGE)]
    Purge(PurgeArgs),
    /// Log in to a node, for the commands that use its API.
    #[command(after_help = texts::HINT, after_long_help = texts::LOGIN)]
    Login(LoginArgs),
    /// Log out: forget the node and its API key.
    Logout,
    /// Check the machine, the settings, Redis, DNS and certificates, and say what to fix.
    Doctor(DoctorArgs),
    /// Try carom: start a node with sample links and 90 days of visits, removed at the end.
    Demo(DemoArgs),
    /// Print completions for a shell.
    #[command(after_help = texts::HINT, after_long_help = texts::COMPLETIONS)]
    Completions {
        /// Shell
        #[arg(value_name = "SHELL", value_enum)]
        shell: CompletionShell,
    },
    /// Write a man page for each command.
    Man {
        /// Directory for the pages; created if it does not exist
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Options of `carom doctor`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct DoctorArgs {
    /// The data directory.
    #[command(flatten)]
    pub place: AppPlace,
    /// JSON output.
    #[arg(long)]
    pub json: bool,
}

/// Options of `carom demo`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct DemoArgs {
    /// Public listener: redirects, pages and the REST API
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080")]
    pub listen: String,
    /// Admin listener, with the console
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8081")]
    pub admin_listen: String,
}

/// A shell that carom has completions for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum CompletionShell {
    /// Bourne Again Shell.
    Bash,
    /// Z shell.
    Zsh,
    /// Friendly interactive shell.
    Fish,
}

/// Options of `carom import`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ImportArgs {
    /// The data directory of a stopped node, which is created if it does not exist.
    #[command(flatten)]
    pub place: AppPlace,
    /// Running node to import into, over its API: the URL of its admin or public listener
    #[arg(long, value_name = "URL", conflicts_with_all = ["data_dir", "config"])]
    pub to: Option<String>,
    /// File with an admin key of the running node, if it requires one [default: CAROM_IMPORT_TO_KEY]
    #[arg(long, value_name = "FILE", requires = "to", conflicts_with_all = ["data_dir", "config"])]
    pub to_key_file: Option<PathBuf>,
    /// Most links to send to the running node per second [default: no limit]
    #[arg(long, value_name = "N", requires = "to", conflicts_with_all = ["data_dir", "config"], value_parser = rate)]
    pub rate: Option<NonZeroU32>,
    /// The shortener that the links come from: shlink, yourls, bitly, kutt or csv [default: lines of JSON in carom's form]
    #[arg(long, value_name = "SHORTENER", value_parser = shortener)]
    pub from: Option<Shortener>,
    /// Address of the shortener, to read its API instead of a file [default for bitly: its public API]
    #[arg(long, value_name = "URL", requires = "from", conflicts_with = "file")]
    pub url: Option<String>,
    /// File with the key or token of the shortener's API [default: CAROM_IMPORT_KEY]
    #[arg(long, value_name = "FILE", requires = "from", conflicts_with = "file")]
    pub key_file: Option<PathBuf>,
    /// Import the links of a domain under another one, such as bit.ly=go.example or bit.ly=DEFAULT; can be repeated
    #[arg(long = "map-domain", value_name = "FROM=TO", requires = "from", value_parser = renamed_domain)]
    pub map_domains: Vec<(String, String)>,
    /// Check every line and report what would be imported, without changing anything.
    #[arg(long)]
    pub dry_run: bool,
    /// File for the report: one JSON object for each line that was rejected or not imported as a whole.
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// File to import, or - for standard input.
    #[arg(value_name = "FILE", required_unless_present = "from")]
    pub file: Option<FileOrStdio>,
}

/// Flags of `carom serve`. Each is a key of the settings file and an environment variable too.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
#[command(after_help = texts::settings_hint(), after_long_help = texts::settings())]
pub struct ServeArgs {
    /// Settings file, in TOML [default: CAROM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Directory for links, code secret and all other data; created on first start [default: ./carom-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Public listener: redirects, pages and the REST API; can be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Admin listener: console, metrics, status, keys; never expose it publicly [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// Number of cores, or the CPUs to run them on, such as 0,2,4-7 (one CPU: 3-3) [default: all]
    #[arg(long, value_name = "N|LIST")]
    pub cores: Option<String>,
    /// Redis server, seed servers of a Redis Cluster, or sentinels, shared by all nodes of a fleet [default: none]
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// URL that short URLs start with; its host is the default domain [default: http:// and the first listen address]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// Allow listeners that other machines can reach while no API key exists: anyone can then change links
    #[arg(long)]
    pub open: bool,
}

/// Options of `carom status`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StatusArgs {
    /// The node to query.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Print once, which is the default.
    #[arg(long, hide = true)]
    pub once: bool,
    /// JSON output.
    #[arg(long)]
    pub json: bool,
}

/// Options of `carom top`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct TopArgs {
    /// The node to query.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Print the status as one line of JSON a second instead of the view; needs no terminal.
    #[arg(long)]
    pub json: bool,
}

/// Options of `carom health`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct HealthArgs {
    /// Check /readyz instead of /healthz; it returns 503 while the node starts or drains.
    #[arg(long)]
    pub ready: bool,
    /// The node to query.
    #[command(flatten)]
    pub place: AdminPlace,
}

impl Cli {
    /// Parses the command line of this process. Ends the process on wrong usage, or after printing the help.
    pub fn read() -> Cli {
        // Errors and help texts have colours, too, and are printed before the arguments are parsed.
        let matches = Cli::command().color(asked_colour(std::env::args_os())).try_get_matches();
        let parsed = matches.and_then(|mut matches| {
            Cli::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut Cli::command()))
        });
        parsed.unwrap_or_else(|error| end(&error))
    }

    /// Returns how much the command writes to standard error.
    pub fn verbosity(&self) -> Verbosity {
        match (self.quiet, self.verbose) {
            (true, _) => Verbosity::Quiet,
            (false, true) => Verbosity::Verbose,
            (false, false) => Verbosity::Normal,
        }
    }
}

/// Prints the help, the version, or what is wrong with the arguments, and ends the process.
fn end(error: &clap::Error) -> ! {
    let printed = error.print().and_then(|()| io::stdout().flush());
    // A closed standard error is not an error.
    if !error.use_stderr() {
        output::keep(printed);
    }
    if let Err(lost) = output::checked(Ok(())) {
        logging::log_exit(&lost);
        std::process::exit(i32::from(lost.reason.code()));
    }
    std::process::exit(error.exit_code())
}

impl ServeArgs {
    /// Splits the arguments into the file of `--config` and the flags for the settings.
    pub fn split(self) -> (Option<PathBuf>, Flags) {
        let ServeArgs { config, data_dir, listen, admin_listen, cores, redis, base_url, open } = self;
        (config, Flags { data_dir, listen, admin_listen, cores, redis, base_url, open })
    }
}

/// Returns the colours that `--color` asks for, wherever it is. The parser itself refuses wrong values.
fn asked_colour(arguments: impl Iterator<Item = OsString>) -> ColorChoice {
    let arguments: Vec<OsString> = arguments.collect();
    let apart = arguments.windows(2).filter(|pair| pair[0] == "--color").map(|pair| pair[1].to_str());
    let joined = arguments.iter().map(|argument| argument.to_str()?.strip_prefix("--color="));
    match apart.chain(joined).flatten().next() {
        Some("always") => ColorChoice::Always,
        Some("never") => ColorChoice::Never,
        _ => ColorChoice::Auto,
    }
}

/// Parses the name of a shortener.
fn shortener(text: &str) -> Result<Shortener, String> {
    Shortener::parse(text).ok_or_else(|| format!("expected one of {}", Shortener::names()))
}

/// Parses two domains with a sign of equality between them.
fn renamed_domain(text: &str) -> Result<(String, String), String> {
    let domains = text.split_once('=').filter(|(from, to)| !from.is_empty() && !to.is_empty());
    let domains = domains.map(|(from, to)| (from.to_owned(), to.to_owned()));
    domains.ok_or_else(|| "expected two domains, such as bit.ly=go.example or bit.ly=DEFAULT".to_owned())
}

#[cfg(test)]
mod tests;
