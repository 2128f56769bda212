//! The settings as text, for the help of the command line.

use crate::keys::{CONFIG_ENV, SETTINGS};

/// Widest line of the list of settings in the help, in columns.
const WIDTH: usize = 100;

/// Returns the number of settings.
pub fn settings_count() -> usize {
    SETTINGS.len()
}

/// Lists every environment variable with its meaning, values and default, in lines of at most 100 columns.
pub fn environment_help() -> String {
    let width = SETTINGS.iter().map(|setting| setting.env.len()).max().unwrap_or(0);
    let mut help = String::new();
    let mut add = |name: &str, doc: &str, values: &str| {
        let lines = wrapped(doc, WIDTH - width - 4).into_iter().chain(wrapped(values, WIDTH - width - 4));
        for (place, line) in lines.enumerate() {
            let name = if place == 0 { name } else { "" };
            help.push_str(&format!("  {name:width$}  {line}\n"));
        }
    };
    add(CONFIG_ENV, "Settings file, as --config.", "");
    for setting in &SETTINGS {
        let default = setting.default.map_or(String::new(), |default| format!("; default {default}"));
        add(setting.env, setting.doc, &format!("({}{default})", setting.kind));
    }
    help
}

/// Breaks a text at spaces into lines of at most `width` characters; a longer word has a line of its own.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
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
    fn lines_are_broken_at_spaces() {
        assert_eq!(wrapped("a bc def ghijkl m", 6), ["a bc", "def", "ghijkl", "m"]);
        assert_eq!(wrapped("", 6), Vec::<String>::new());
        let help = environment_help();
        assert!(help.lines().all(|line| line.chars().count() <= WIDTH), "{help}");
    }
}
