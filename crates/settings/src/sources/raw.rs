//! The raw settings: the values of all sources as written, the strongest source first.

use std::path::{Path, PathBuf};

use crate::keys::{self, COMMAND_ENVS, CONFIG_ENV, Key, SETTINGS};
use crate::problem::{SettingsProblem, ValueSource, Warning};
use crate::sources::file;
use crate::sources::suggest;
use crate::value::{SourcedValue, Written};

/// The flags of `carom serve`. `None` or an empty list means that the flag is absent.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// `--data-dir`
    pub data_dir: Option<String>,
    /// `--listen`, once or more
    pub listen: Vec<String>,
    /// `--admin-listen`
    pub admin_listen: Option<String>,
    /// `--cores`
    pub cores: Option<String>,
    /// `--redis`
    pub redis: Option<String>,
    /// `--base-url`
    pub base_url: Option<String>,
    /// `--open`
    pub open: bool,
}

/// The values of all sources, for each setting.
#[derive(Debug)]
pub(crate) struct Raw {
    found: [Vec<SourcedValue>; Key::COUNT],
}

impl Raw {
    /// Collects the values of flags, environment and file. `file` is the one that a flag named; without it, the
    /// environment may name one.
    pub(crate) fn collect(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: Flags,
        problems: &mut Vec<SettingsProblem>,
        warnings: &mut Vec<Warning>,
    ) -> Raw {
        let mut raw = Raw { found: [const { Vec::new() }; Key::COUNT] };
        raw.take_flags(flags);
        let named = raw.take_environment(env, warnings);
        if let Some(path) = file.map(Path::to_owned).or(named) {
            for (key, found) in file::read(&path, problems) {
                raw.found[key as usize].push(found);
            }
        }
        raw
    }

    /// Returns the values of a setting, the strongest source first.
    pub(crate) fn of(&self, key: Key) -> &[SourcedValue] {
        &self.found[key as usize]
    }

    fn take_flags(&mut self, flags: Flags) {
        let Flags { data_dir, listen, admin_listen, cores, redis, base_url, open } = flags;
        let open = open.then(|| "true".to_owned());
        let single = [
            (Key::DataDir, data_dir),
            (Key::AdminListen, admin_listen),
            (Key::Cores, cores),
            (Key::Redis, redis),
            (Key::BaseUrl, base_url),
            (Key::Open, open),
        ];
        for (key, word) in single {
            if let Some(word) = word {
                self.found[key as usize].push(from_flag(key, Written::Word(word)));
            }
        }
        if !listen.is_empty() {
            let list = listen.into_iter().map(|word| from_flag(Key::Listen, Written::Word(word))).collect();
            self.found[Key::Listen as usize].push(from_flag(Key::Listen, Written::List(list)));
        }
    }

    /// Takes the values of the environment. Returns the settings file that it names.
    fn take_environment(
        &mut self,
        env: impl Iterator<Item = (String, String)>,
        warnings: &mut Vec<Warning>,
    ) -> Option<PathBuf> {
        let mut file = None;
        let is_setting = |name: &str| name.starts_with("CAROM_") && !COMMAND_ENVS.contains(&name);
        for (name, word) in env.filter(|(name, _)| is_setting(name)) {
            let setting = keys::by_env(&name);
            if setting.is_none() && name != CONFIG_ENV {
                warnings.push(unknown(&name));
            } else if word.is_empty() {
                // `CAROM_BASE_URL=` in a compose file means "not set", but the variable may also be missing by mistake.
                warnings.push(Warning(format!("environment variable {name} is empty and is ignored")));
            } else if let Some(setting) = setting {
                let source = ValueSource::Env(name);
                self.found[setting.key as usize].push(SourcedValue { written: Written::Word(word), source });
            } else {
                file = Some(PathBuf::from(word));
            }
        }
        file
    }
}

fn from_flag(key: Key, written: Written) -> SourcedValue {
    SourcedValue { written, source: ValueSource::Flag(key.setting().flag.unwrap_or_default()) }
}

fn unknown(name: &str) -> Warning {
    let known = SETTINGS.iter().map(|setting| setting.env).chain([CONFIG_ENV]);
    let hint = match suggest::nearest(name, known) {
        Some(near) => format!("did you mean {near}?"),
        None => "`carom serve --help` lists all variables".to_owned(),
    };
    Warning(format!("environment variable {name} is not a setting ({hint})"))
}
