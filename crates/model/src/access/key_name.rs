//! The name of an API key, by which people recognise it.

use std::fmt;
use std::sync::Arc;

/// Longest name of a key, in characters.
pub const KEY_NAME_LEN_MAX: usize = 64;

/// The name of a key, such as a person or a device: 1 to 64 characters without hidden ones, and without white space at
/// either end. It grants no rights, and several keys may have the same. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyName(Arc<str>);

impl KeyName {
    /// Parses a name; `None` unless the text is a valid one.
    pub fn parse(text: &str) -> Option<KeyName> {
        let is_valid = (1..=KEY_NAME_LEN_MAX).contains(&text.chars().count())
            && text.trim() == text
            && !text.chars().any(is_hidden)
            && !text.chars().all(is_joiner);
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

/// True for the characters that join two others, or keep them apart. Emoji and some scripts need them.
fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}')
}

/// True for control characters, for those that change the direction of the text around them, and for those without a
/// width, with which two names would look alike. [`is_joiner`] has the exceptions.
fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_printable() {
        for name in ["Anna", "Anna’s phone (2026)", "日本", "👩\u{200d}💻", &"é".repeat(KEY_NAME_LEN_MAX)] {
            assert_eq!(KeyName::parse(name).unwrap().as_str(), name);
        }
        for wrong in ["", " Anna", "Anna ", "a\nb", "a\u{202e}b", &"é".repeat(KEY_NAME_LEN_MAX + 1)] {
            assert_eq!(KeyName::parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(KeyName::parse("\u{200d}"), None);
        for hidden in ["\u{200b}", "\u{feff}", "\u{2060}", "\u{ad}", "\u{61c}", "\u{e0041}"] {
            assert_eq!(KeyName::parse(&format!("Anna{hidden}")), None, "{hidden:?}");
        }
    }
}
