//! The settings as texts: for the help of the command line, and for the README.

use super::keys::{CONFIG_ENV, SETTINGS};

/// Every environment variable with its meaning, for the help text.
pub fn environment_help() -> String {
    let width = SETTINGS.iter().map(|setting| setting.env.len()).max().unwrap_or(0);
    let mut help = format!("  {CONFIG_ENV:width$}  The settings file, as --config.\n");
    for setting in &SETTINGS {
        help.push_str(&format!("  {:width$}  {}\n", setting.env, setting.doc));
        let default = setting.default.map_or(String::new(), |default| format!("; default {default}"));
        help.push_str(&format!("  {:width$}  ({}{default})\n", "", setting.kind));
    }
    help
}

/// The table of all settings, for the README.
pub fn markdown_table() -> String {
    let mut table =
        String::from("| key | environment | flag | value | default | meaning |\n|---|---|---|---|---|---|\n");
    for setting in &SETTINGS {
        let code = |text: &str| format!("`{text}`");
        let name = if setting.secret { "not in the file".to_owned() } else { code(setting.name) };
        let flag = setting.flag.map_or(String::new(), code);
        let default = setting.default.map_or(String::new(), code);
        let (env, kind, doc) = (code(setting.env), setting.kind, setting.doc);
        table.push_str(&format!("| {name} | {env} | {flag} | {kind} | {default} | {doc} |\n"));
    }
    table
}
