//! The effective settings as TOML that can be read back, each with its source.

use serde::Serialize;

use crate::keys::{SETTINGS, Setting};
use crate::registry::shown::Shown;
use crate::settings::Settings;
use crate::sources::file::table_of;

/// A setting as it may be shown to people.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ShownSetting {
    /// The name, with its table.
    pub name: &'static str,
    /// The value as TOML; `None` if it is not set, or hidden.
    pub value: Option<String>,
    /// True if the setting has a value, which is a secret.
    pub hidden: bool,
    /// A remark about the value.
    pub note: Option<String>,
    /// The source of the value.
    pub source: String,
    /// A description of the setting.
    pub doc: &'static str,
    /// A description of valid values.
    pub kind: &'static str,
}

/// Returns all settings, in the order of the registry.
pub(super) fn shown(settings: &Settings) -> Vec<ShownSetting> {
    let of = |setting: &Setting| {
        let (value, hidden, note) = match (setting.show)(settings) {
            Shown::Value(value) => (Some(value), false, None),
            Shown::Note(value, note) => (Some(value), false, Some(note)),
            Shown::Hidden => (None, true, None),
            Shown::Unset => (None, false, None),
        };
        let source = comment(&settings.source(setting.key).to_string());
        ShownSetting { name: setting.name, value, hidden, note, source, doc: setting.doc, kind: setting.kind }
    };
    SETTINGS.iter().map(of).collect()
}

pub(super) fn describe(settings: &Settings) -> String {
    let mut text = String::from("# Effective settings, each with its source.\n");
    let mut table = None;
    for setting in shown(settings) {
        if table_of(setting.name) != table {
            table = table_of(setting.name);
            text.push_str(&format!("\n[{}]\n", table.unwrap_or_default()));
        }
        describe_one(&setting, &mut text);
    }
    text
}

fn describe_one(setting: &ShownSetting, text: &mut String) {
    let ShownSetting { name, value, hidden, note, source, doc, kind } = setting;
    let key = name.rsplit('.').next().unwrap_or(name);
    let line = match (value, note) {
        (Some(value), None) => format!("{key} = {value}  # {source}"),
        (Some(value), Some(note)) => format!("{key} = {value}  # {source}; {note}"),
        (None, _) if *hidden => format!("# {key} is set (hidden)  # {source}"),
        (None, _) => format!("# {key} is not set"),
    };
    text.push_str(&format!("\n# {doc} ({kind})\n{line}\n"));
}

/// Removes control characters from a source: the name of the settings file may contain a line break.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}
