//! The name of an API key, by which people recognise it.

use std::fmt;
use std::sync::Arc;

/// Longest name of a key, in characters.
pub const KEY_NAME_LEN_MAX: usize = 64;

/// The name of a key, such as a person or a device: 1 to 64 characters without control characters, and without white
/// space at either end. It grants no rights, and several keys may have the same. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyName(Arc<str>);

impl KeyName {
    /// Parses a name; `None` unless the text is a valid one.
    pub fn parse(text: &str) -> Option<KeyName> {
        let is_valid = (1..=KEY_NAME_LEN_MAX).contains(&text.chars().count())
            && text.trim() == text
            && !text.chars().any(is_hidden);
        is_valid.then(|| KeyName(text.into()))
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// True for control characters, and for those that change the direction of the text around them.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        for name in ["Anna", "Anna’s phone (2026)", "日本", &"é".repeat(KEY_NAME_LEN_MAX)] {
            assert_eq!(KeyName::parse(name).unwrap().as_str(), name);
        }
        for wrong in ["", " Anna", "Anna ", "a\nb", "a\u{202e}b", &"é".repeat(KEY_NAME_LEN_MAX + 1)] {
            assert_eq!(KeyName::parse(wrong), None, "{wrong:?}");
        }
    }
}
