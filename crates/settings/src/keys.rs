//! The look-up of a setting by its key, name or environment variable. The settings themselves are in the table of
//! `registry`.
//!
//! Help texts, messages, the effective settings and the documentation are generated from that table. `value` parses
//! values; `raw` decides which source wins.

pub use crate::registry::SETTINGS;
pub use crate::registry::key::Key;
pub use crate::registry::setting::Setting;

/// Environment variable with the path of the settings file. The file itself has no such key.
pub const CONFIG_ENV: &str = "CAROM_CONFIG";

/// Environment variable with the key of another shortener's API, for imports. It is no setting.
pub const IMPORT_KEY_ENV: &str = "CAROM_IMPORT_KEY";

/// Environment variable with the API key of the node that an import sends its links to. It is no setting.
pub const IMPORT_TO_KEY_ENV: &str = "CAROM_IMPORT_TO_KEY";

/// Environment variable with the address of the node for the commands that use its API.
pub const URL_ENV: &str = "CAROM_URL";

/// Environment variable with the file of the API key for the commands that use the API of a node.
pub const KEY_FILE_ENV: &str = "CAROM_KEY_FILE";

/// Environment variables of single commands, which are not settings.
pub const COMMAND_ENVS: [&str; 4] = [IMPORT_KEY_ENV, IMPORT_TO_KEY_ENV, URL_ENV, KEY_FILE_ENV];

impl Key {
    /// Returns the row of the setting.
    pub fn setting(self) -> &'static Setting {
        &SETTINGS[self as usize]
    }
}

/// Returns the setting with that name in the file.
pub fn by_name(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// Returns the setting with that environment variable.
pub(crate) fn by_env(env: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.env == env)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_stands_at_the_place_of_its_key() {
        for (place, setting) in SETTINGS.iter().enumerate() {
            assert_eq!(setting.key as usize, place, "{}", setting.name);
            assert_eq!(setting.key.setting().name, setting.name);
        }
    }

    #[test]
    fn names_follow_one_rule() {
        for setting in &SETTINGS {
            assert_eq!(setting.env, format!("CAROM_{}", setting.name.to_uppercase().replace('.', "_")));
            if let Some(flag) = setting.flag {
                assert_eq!(flag, format!("--{}", setting.name.replace('_', "-")));
            }
            assert!(setting.doc.ends_with('.'), "{}", setting.name);
            assert!(!setting.secret || setting.flag.is_none(), "a secret on the command line is seen by `ps`");
        }
    }
}
