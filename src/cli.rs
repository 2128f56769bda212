//! The command line: what can be typed, and nothing of what it does.
//!
//! clap ends the process with status 2 on wrong usage, the number of [`crate::exit::Reason::Usage`].

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::apps::{AppName, Role};
use crate::config::{Flags, help};
use crate::dates;
use crate::limits::{APP_CREATES_MAX, KEY_GRACE_MAX};
use crate::stats::unix_ms;

/// A URL shortener and redirect appliance.
#[derive(Clone, PartialEq, Eq, Debug, Parser)]
#[command(name = "carom", version, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum Command {
    /// Serve redirects and the REST API until SIGTERM or SIGINT.
    Serve(ServeArgs),
    /// Check the settings and print those that hold, each with its source.
    #[command(name = "check-config", after_help = environment())]
    CheckConfig {
        /// The settings file; without it, flags and environment are all there is.
        file: Option<PathBuf>,
    },
    /// Read links into a data directory that no server uses, one JSON object a line.
    #[command(after_help = NDJSON)]
    Import {
        /// The data directory; made if it does not exist.
        #[arg(long, value_name = "DIR")]
        data_dir: String,
        /// The settings file of the node, which names its base URL and domains [default: CAROM_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
        /// The file to read; `-` is standard input.
        #[arg(value_name = "FILE")]
        file: Source,
    },
    /// Write every link of a data directory that no server uses, one JSON object a line.
    #[command(after_help = NDJSON)]
    Export {
        /// The data directory.
        #[arg(long, value_name = "DIR")]
        data_dir: String,
        /// The file to write; without it, or as `-`, standard output.
        #[arg(value_name = "FILE", default_value = "-")]
        file: Source,
    },
    /// Show how a node is, again each second.
    Status(StatusArgs),
    /// Copy everything of a data directory to a folder, consistently, while its node runs or not.
    #[command(after_help = BACKUP)]
    Backup {
        /// The folder to write; made if it does not exist, otherwise empty.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Which data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Look at every record of a backup, or of a data directory that no server uses.
    Verify {
        /// A folder that `carom backup` has made, or a data directory.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The settings file of the node, which says where the secret key of a data directory is [default: CAROM_CONFIG]
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Make a data directory of a backup.
    #[command(after_help = RESTORE)]
    Restore {
        /// The folder that `carom backup` has made.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Which data directory: an empty one, or one that is not there yet.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Manage the callers of the API and their keys.
    #[command(subcommand, after_help = APPS)]
    App(AppCommand),
    /// Make or recognise the secret key that short codes are made with.
    #[command(subcommand)]
    Key(KeyCommand),
}

/// Flags of `carom serve`. Each is a key of the settings file and an environment variable too.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
#[command(after_help = environment())]
pub struct ServeArgs {
    /// The settings file, in TOML.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the links and the secret key are kept; made on first start [default: ./carom-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// Where to serve redirects and the REST API; may be repeated [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Where to serve health and status; not for the public [default: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub admin_listen: Option<String>,
    /// A count of cores, or the CPUs to run on, as 0,2,4-7 (one CPU: 3-3) [default: all]
    #[arg(long, value_name = "N|LIST")]
    pub cores: Option<String>,
    /// The Redis, or some servers of the Redis Cluster, that all nodes of a fleet share [default: none]
    #[arg(long, value_name = "URL")]
    pub redis: Option<String>,
    /// What short URLs start with [default: http:// and the first listen address]
    #[arg(long, value_name = "URL")]
    pub base_url: Option<String>,
    /// Let listeners be reachable from other machines, although anybody there may create, change and delete links
    #[arg(long)]
    pub open: bool,
}

/// Which node to ask, and how to show what it says.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct StatusArgs {
    /// Where its admin listener is [default: admin_listen of the settings]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// The settings file of the node [default: CAROM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file with a key of the role admin, where one is asked for.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Once, and not again each second.
    #[arg(long)]
    pub once: bool,
    /// As JSON, one line for each look.
    #[arg(long)]
    pub json: bool,
}

/// What to do with apps and their keys.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum AppCommand {
    /// Make an API key for an app; the app is new, or has one already. The key is printed this once.
    Add {
        /// What the app is called: a-z, 0-9, and . _ - after the first
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// What the key allows: read, write-own, write-all or admin
        #[arg(long, value_name = "ROLE", default_value = "write-own", value_parser = role)]
        role: Role,
        /// When the key ends, such as 2030-01-31 [default: never]
        #[arg(long, value_name = "DATE", value_parser = end)]
        expires: Option<u64>,
        /// Links that the app may make a second on each node [default: limits.creates_per_second]
        #[arg(long, value_name = "N", value_parser = rate)]
        creates_per_second: Option<NonZeroU32>,
        /// A domain whose links the key reaches, as in domains.serve, or DEFAULT; may be given several times [default: all]
        #[arg(long = "domain", value_name = "HOST")]
        domains: Vec<String>,
        /// Which data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Show all apps and their keys.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Which data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// End all keys of an app, or one of them, for good.
    Revoke {
        /// Which app.
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// Which of its keys, as `carom app list` calls it [default: all]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// Which data directory.
        #[command(flatten)]
        place: AppPlace,
    },
    /// Make a key that follows another one, which ends.
    Rotate {
        /// Which app.
        #[arg(value_name = "NAME", value_parser = app_name)]
        app: AppName,
        /// Which of its keys, as `carom app list` calls it [default: the only one]
        #[arg(long, value_name = "KEY")]
        key: Option<String>,
        /// How long the old one still holds, such as 0, 30m, 24h or 7d
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = grace)]
        grace: Duration,
        /// Which data directory.
        #[command(flatten)]
        place: AppPlace,
    },
}

/// Where a node keeps everything.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct AppPlace {
    /// The data directory of the node [default: CAROM_DATA_DIR, or ./carom-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
    /// The settings file of the node, which names its data directory and domains [default: CAROM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What to do with secret keys.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum KeyCommand {
    /// Print a new random key.
    New,
    /// Print the fingerprint of a key, which tells keys apart without giving them away.
    ShowFingerprint(KeyPlace),
}

/// Where a key is: exactly one of the two.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
#[group(required = true, multiple = false)]
pub struct KeyPlace {
    /// The data directory that holds the key.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// The file that holds the key.
    #[arg(long, value_name = "FILE")]
    pub space_key_file: Option<PathBuf>,
}

/// A file, or the standard stream that `-` stands for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Source {
    /// Standard input or output.
    Standard,
    /// A file.
    File(PathBuf),
}

impl Cli {
    /// Reads the command line of this process; ends the process where it is wrong, or asks for help.
    pub fn read() -> Cli {
        Cli::parse()
    }
}

impl From<OsString> for Source {
    fn from(name: OsString) -> Source {
        if name == "-" { Source::Standard } else { Source::File(PathBuf::from(name)) }
    }
}

impl ServeArgs {
    /// The file that `--config` named, and the flags as the settings take them.
    pub fn split(self) -> (Option<PathBuf>, Flags) {
        let ServeArgs { config, data_dir, listen, admin_listen, cores, redis, base_url, open } = self;
        (config, Flags { data_dir, listen, admin_listen, cores, redis, base_url, open })
    }
}

impl KeyPlace {
    /// The file with the key, given its name within a data directory.
    pub fn file(&self, name_in_data_dir: &str) -> PathBuf {
        match (&self.space_key_file, &self.data_dir) {
            (Some(file), _) => file.clone(),
            (None, folder) => folder.as_deref().unwrap_or(Path::new(".")).join(name_in_data_dir),
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  carom serve                            a first try: on 127.0.0.1:8080, data in ./carom-data
  carom serve --config /etc/carom.toml   with settings from a file
  carom check-config /etc/carom.toml     are they right, and what holds in the end?
  carom import --data-dir /var/lib/carom links.ndjson
  carom export --data-dir /var/lib/carom | gzip > links.ndjson.gz
  carom status                           how the node on this machine is
  carom backup /backups/today            a consistent copy of a running node; `verify` and `restore` read it
  carom app add shop                     a key for a caller of the API
  (umask 077; carom key new > space.key) a key that several data directories can share

A first link:
  curl -H 'Content-Type: application/json' -d '{\"longUrl\": \"https://example.org/\"}' \\
    http://127.0.0.1:8080/rest/v3/short-urls

`carom serve --help` lists the settings. Exit codes are numbered by reason; the README has the list.";

const APPS: &str = "\
A node that runs on the data directory takes up each change within a second; in a fleet, all nodes do. As soon as there is a
key, the API asks for one:
  curl -H \"X-Api-Key: $KEY\" https://s.example/rest/v3/short-urls

Roles, each with what the one before it allows:
  read       reads the app's own links
  write-own  makes links, changes and deletes the app's own
  write-all  reads, changes and deletes the links of all apps
  admin      manages apps and keys over the admin listener";

const BACKUP: &str = "\
The backup shows one moment, and no write waits for it: every link that was acknowledged before it began is in it. Run it as
the user of the node, which it asks through control.sock in the data directory:
  sudo -u carom carom backup /backups/$(date +%F) --data-dir /var/lib/carom

It holds the links with all that is known of them, their visits but for the last minutes, the API keys, and the secret key: keep it as
safe as the data directory.";

const RESTORE: &str = "\
A backup that is not what was written is refused, and nothing is made of it. A restored node passes over the codes that the old one
may have given out after the backup, so that no code leads to two places.";

const NDJSON: &str = "\
A line:
  {\"shortCode\":\"abc1234\",\"longUrl\":\"https://example.org/\",\"dateCreated\":\"2026-01-31T12:00:00Z\",\"validUntil\":null}

The summary goes to standard error. Exit code 0 means that every line was taken; 1 that some were left out.
CAROM_SPACE_KEY and CAROM_SPACE_KEY_FILE say where the secret key is, if not in the data directory.";

/// The settings for the help text, from the one registry.
fn environment() -> String {
    format!("Environment (a flag wins over it, and it wins over the settings file):\n{}", help::environment_help())
}

/// Reads the name of an app, for the command line.
fn app_name(text: &str) -> Result<AppName, String> {
    AppName::parse(text).map_err(|error| error.to_string())
}

/// Reads a role, for the command line.
fn role(text: &str) -> Result<Role, String> {
    Role::parse(text).ok_or_else(|| format!("is no role; choose among {}", Role::names()))
}

/// Reads when a key ends, for the command line: a date, in milliseconds since 1970 UTC.
fn end(text: &str) -> Result<u64, String> {
    let is_day = text.len() == 10;
    let ms = dates::parse(&if is_day { format!("{text}T00:00:00Z") } else { text.to_owned() });
    match ms.map_err(|error| error.to_string())? {
        ms if ms <= unix_ms() => Err("is over already".to_owned()),
        ms => Ok(ms),
    }
}

/// Reads a rate, for the command line.
fn rate(text: &str) -> Result<NonZeroU32, String> {
    let most = APP_CREATES_MAX;
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= most);
    number.ok_or_else(|| format!("must be a whole number from 1 to {most}"))
}

/// Reads how long an old key still holds, for the command line: such as `0`, `30m`, `24h` or `7d`.
fn grace(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, &text[number.len()..]),
        None if text == "0" => ("0", "s"),
        None => ("", ""),
    };
    let seconds = match unit {
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => 1,
    };
    let time = number.parse::<u32>().ok().map(|number| Duration::from_secs(u64::from(number) * seconds));
    time.filter(|time| *time <= KEY_GRACE_MAX)
        .ok_or_else(|| "must be a time of at most a year such as 0, 30m, 24h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use super::*;
    use crate::config::keys::SETTINGS;

    fn parse(line: &str) -> Result<Command, ErrorKind> {
        Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|error| error.kind())
    }

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_takes_every_flag() {
        let line = "carom serve --config c.toml --data-dir d --listen 127.0.0.1:1 --listen [::1]:2 --admin-listen a \
                    --cores 3-3 --redis redis://h:1 --base-url https://example.org --open";
        let Ok(Command::Serve(args)) = parse(line) else { panic!("refused") };
        let (config, flags) = args.split();
        assert_eq!(config, Some(PathBuf::from("c.toml")));
        let expected = Flags {
            data_dir: Some("d".into()),
            listen: vec!["127.0.0.1:1".into(), "[::1]:2".into()],
            admin_listen: Some("a".into()),
            cores: Some("3-3".into()),
            redis: Some("redis://h:1".into()),
            base_url: Some("https://example.org".into()),
            open: true,
        };
        assert_eq!(flags, expected);
        let Ok(Command::Serve(args)) = parse("carom serve") else { panic!("refused") };
        assert_eq!(args.split(), (None, Flags::default()));
    }

    #[test]
    fn flags_and_help_agree_with_the_registry() {
        let mut command = Cli::command();
        let serve = command.find_subcommand_mut("serve").unwrap();
        let mut flags: Vec<String> =
            serve.get_arguments().filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))).collect();
        flags.retain(|flag| flag != "--config");
        let known: Vec<&str> = SETTINGS.iter().filter_map(|setting| setting.flag).collect();
        assert_eq!(flags, known);
        let help = serve.render_long_help().to_string();
        for setting in &SETTINGS {
            assert!(help.contains(setting.env), "{}", setting.env);
        }
        for setting in SETTINGS.iter().filter(|setting| setting.flag.is_some()) {
            let default = setting.default.unwrap_or_default();
            assert!(default == "false" || help.contains(&format!("[default: {default}")), "{}", setting.name);
        }
    }

    #[test]
    fn files_and_standard_streams_are_told_apart() {
        let (data_dir, links) = ("d".to_owned(), Source::File("l".into()));
        let import = |file| Ok(Command::Import { data_dir: data_dir.clone(), config: None, file });
        let export = |file| Ok(Command::Export { data_dir: data_dir.clone(), file });
        assert_eq!(parse("carom import --data-dir d l"), import(links.clone()));
        assert_eq!(parse("carom import --data-dir d -"), import(Source::Standard));
        assert_eq!(parse("carom export --data-dir d"), export(Source::Standard));
        assert_eq!(parse("carom export --data-dir d l"), export(links));
        assert_eq!(parse("carom import --data-dir d"), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(parse("carom export l"), Err(ErrorKind::MissingRequiredArgument));
    }

    #[test]
    fn a_fingerprint_is_of_one_key() {
        let Ok(Command::Key(KeyCommand::ShowFingerprint(place))) = parse("carom key show-fingerprint --data-dir d")
        else {
            panic!("refused")
        };
        assert_eq!(place.file("space.key"), PathBuf::from("d/space.key"));
        let line = "carom key show-fingerprint --space-key-file f";
        let Ok(Command::Key(KeyCommand::ShowFingerprint(place))) = parse(line) else { panic!("refused") };
        assert_eq!(place.file("space.key"), PathBuf::from("f"));
        assert_eq!(parse("carom key show-fingerprint"), Err(ErrorKind::MissingRequiredArgument));
        assert_eq!(parse(&format!("{line} --data-dir d")), Err(ErrorKind::ArgumentConflict));
        assert_eq!(parse("carom key new"), Ok(Command::Key(KeyCommand::New)));
    }

    #[test]
    fn wrong_usage_ends_with_the_promised_number() {
        let error = Cli::try_parse_from(["carom", "serve", "--lisen", "x"]).unwrap_err();
        assert_eq!(error.exit_code(), i32::from(crate::exit::Reason::Usage.code()));
        assert_eq!(Cli::try_parse_from(["carom", "--version"]).unwrap_err().exit_code(), 0);
    }

    #[test]
    fn times_are_read() {
        for (text, seconds) in [("0", 0), ("90s", 90), ("30m", 1_800), ("24h", 86_400), ("7d", 604_800)] {
            assert_eq!(grace(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "h", "5", "-1h", "1.5h", "400d", "é", "9999999999d"] {
            assert!(grace(wrong).is_err(), "{wrong}");
        }
        assert_eq!(end("9000-01-01"), end("9000-01-01T00:00:00Z"));
        assert!(end("2020-01-01").is_err() && end("soon").is_err());
        assert!(rate("0").is_err() && rate("5") == Ok(NonZeroU32::new(5).unwrap()));
    }
}
