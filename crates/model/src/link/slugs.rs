//! The slugs that clients may choose for links. Links that exist keep theirs, also if the rules have changed.

use std::borrow::Cow;
use std::fmt;

use carom_shards::{Code, CodeError};

/// The treatment of upper and lower case in slugs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SlugCase {
    /// A slug names exactly one link.
    #[default]
    Sensitive,
    /// New custom slugs are stored in lower case, and match in any case.
    Insensitive,
}

impl SlugCase {
    /// All treatments.
    pub const ALL: [SlugCase; 2] = [SlugCase::Sensitive, SlugCase::Insensitive];

    /// Returns the name in the settings file.
    pub fn as_str(self) -> &'static str {
        match self {
            SlugCase::Sensitive => "sensitive",
            SlugCase::Insensitive => "insensitive",
        }
    }
}

/// The rules for slugs that clients choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SlugRules {
    /// True if slugs may have slashes.
    pub multi_segment: bool,
    /// The treatment of upper and lower case.
    pub case: SlugCase,
}

/// The reason why a client cannot have a slug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlugError {
    /// No slug has this form.
    Form(CodeError),
    /// The slug has a slash, and the settings allow none.
    Slash {
        /// Position of the slash, from 0.
        at: usize,
    },
    /// The service needs the path itself.
    Reserved,
}

impl fmt::Display for SlugError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SlugError::Form(error) => write!(f, "{error}"),
            SlugError::Slash { at } => {
                write!(f, "has a slash at byte {at}; slashes need the setting links.multi_segment_slugs = true")
            }
            SlugError::Reserved => f.write_str("is reserved by the service; choose another"),
        }
    }
}

impl std::error::Error for SlugError {}

impl SlugRules {
    /// True if links are found under their slug in any case.
    pub fn ignores_case(self) -> bool {
        self.case == SlugCase::Insensitive
    }

    /// Returns the beginning of a slug in the form in which it is stored. With several segments, slashes before it are
    /// left out, as in Shlink.
    pub fn beginning(self, text: &str) -> Cow<'_, str> {
        let text = if self.multi_segment { text.trim_start_matches('/') } else { text };
        if self.ignores_case() { Cow::Owned(text.to_ascii_lowercase()) } else { Cow::Borrowed(text) }
    }

    /// Parses a slug that a client has chosen, in the form in which it is stored. With several segments, slashes around
    /// it are left out, as in Shlink.
    ///
    /// # Errors
    /// [`SlugError`], if the client cannot have it.
    pub fn parse(self, text: &str) -> Result<Code, SlugError> {
        let text = self.beginning(text);
        let text = if self.multi_segment { text.trim_end_matches('/') } else { &*text };
        if let (false, Some(at)) = (self.multi_segment, text.find('/')) {
            return Err(SlugError::Slash { at });
        }
        let code = Code::from_slug(text.as_bytes()).map_err(SlugError::Form)?;
        if code.is_reserved() { Err(SlugError::Reserved) } else { Ok(code) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN: SlugRules = SlugRules { multi_segment: false, case: SlugCase::Sensitive };
    const PATHS: SlugRules = SlugRules { multi_segment: true, case: SlugCase::Sensitive };
    const LOOSE: SlugRules = SlugRules { multi_segment: true, case: SlugCase::Insensitive };

    #[test]
    fn slashes_need_their_setting() {
        assert_eq!(PLAIN.parse("docs/a"), Err(SlugError::Slash { at: 4 }));
        assert_eq!(PLAIN.parse("/docs"), Err(SlugError::Slash { at: 0 }));
        assert_eq!(PATHS.parse("/docs/a/").map(|code| code.to_string()), Ok("docs/a".to_owned()));
        assert_eq!(PATHS.parse("docs//a"), Err(SlugError::Form(CodeError::EmptySegment { at: 5 })));
        for empty in ["", "/", "//"] {
            assert_eq!(PATHS.parse(empty), Err(SlugError::Form(CodeError::Empty)), "{empty}");
        }
        for reserved in ["rest/a", "a/track", "STATUS"] {
            assert_eq!(PATHS.parse(reserved), Err(SlugError::Reserved), "{reserved}");
        }
        assert_eq!(SlugError::Slash { at: 4 }.to_string().split(';').next(), Some("has a slash at byte 4"));
    }

    proptest! {
        #[test]
        fn parsed_slugs_are_those_that_are_stored(text in "[a-zA-Z/_.-]{0,12}|.{0,8}") {
            for rules in [PLAIN, PATHS, LOOSE] {
                if let Ok(code) = rules.parse(&text) {
                    let stored = code.to_string();
                    prop_assert!(stored.eq_ignore_ascii_case(text.trim_matches('/')));
                    prop_assert_eq!(rules.parse(&stored), Ok(code));
                    prop_assert_eq!(rules.ignores_case(), rules.ignores_case() && code.in_lower_case().is_none());
                    prop_assert!(rules.multi_segment || !code.has_slashes());
                }
            }
        }
    }
}
