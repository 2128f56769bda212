//! What is noted of a link, and what no redirect needs: a title, tags and the like.

use std::fmt;

use carom_shards::DomainId;

use crate::access::AppName;
use crate::access::idempotency::Idempotency;
use crate::domains::DomainName;

/// Longest title, in characters: as in Shlink.
pub const TITLE_CHARS_MAX: usize = 512;

/// Longest tag, in characters: as in Shlink.
pub const TAG_CHARS_MAX: usize = 255;

/// Most tags of one link.
pub const TAGS_MAX: usize = 64;

/// Most bytes of all tags of one link: they stand in every record of it, also in Redis.
pub const TAGS_LEN_MAX: usize = 4_096;

/// Stands between two tags. No tag can have it.
const SEPARATOR: char = '\n';

/// Why a title or tag is not taken. Who wrote it is to be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelError {
    /// Longer than [`TITLE_CHARS_MAX`].
    TitleTooLong,
    /// Longer than [`TAG_CHARS_MAX`].
    TagTooLong,
    /// More than [`TAGS_MAX`], or more than [`TAGS_LEN_MAX`] bytes.
    TooManyTags,
    /// A control character, which no page shows and no line of a log should have.
    Control,
    /// Nothing but spaces.
    EmptyTag,
}

impl fmt::Display for LabelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabelError::TitleTooLong => write!(f, "is longer than {TITLE_CHARS_MAX} characters"),
            LabelError::TagTooLong => write!(f, "has a tag of more than {TAG_CHARS_MAX} characters"),
            LabelError::TooManyTags => {
                write!(f, "are too many: a link has at most {TAGS_MAX} tags of {TAGS_LEN_MAX} bytes in total")
            }
            LabelError::Control => f.write_str("has a control character, such as a line break or a tab"),
            LabelError::EmptyTag => f.write_str("has an empty tag"),
        }
    }
}

impl std::error::Error for LabelError {}

/// What is noted of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels {
    /// What a person calls it; never empty.
    pub title: Option<String>,
    /// What it is found by.
    pub tags: Tags,
    /// Whether `robots.txt` lets crawlers follow it.
    pub crawlable: bool,
    /// Whether its end is the one that links get which are made without one.
    pub default_end: bool,
    /// Whose it is; nobody's where it was made without an API key.
    pub app: Option<AppName>,
    /// What the app that made it said of its own version; see [`crate::access::is_app_version`].
    pub app_version: Option<String>,
    /// The domain of its code; `None`: the default one. The code says which, and this how that is called.
    pub domain: Option<DomainName>,
    /// When it is to be deleted unless somebody brings it back before, in milliseconds since 1970 UTC. Such a link is archived.
    pub delete_at_ms: Option<u64>,
    /// The request that created it, where that can be repeated safely.
    pub idempotency: Option<Idempotency>,
}

impl Labels {
    /// What stands for the domain in codes.
    pub fn domain_id(&self) -> Option<DomainId> {
        self.domain.as_ref().map(DomainName::id)
    }
}

/// Tags in the form in which they are kept: lower-case, without spaces, each once, in the order of their characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tags(String);

impl Tags {
    /// Brings tags into the form in which they are kept. It is Shlink's, so that what people type finds what they meant:
    /// capital letters become small ones, and spaces hyphens.
    ///
    /// # Errors
    /// [`LabelError`] for tags that cannot be kept.
    pub fn of<'t>(tags: impl IntoIterator<Item = &'t str>) -> Result<Tags, LabelError> {
        // Some may be the same, but a list without end is not looked through.
        let tags = tags.into_iter().enumerate().map(|(number, tag)| {
            let tag = tag.trim();
            let is_bad = |(bad, error): (bool, LabelError)| if bad { Err(error) } else { Ok(()) };
            is_bad((number >= 4 * TAGS_MAX, LabelError::TooManyTags))?;
            is_bad((tag.len() > 4 * TAG_CHARS_MAX, LabelError::TagTooLong))?;
            is_bad((tag.is_empty(), LabelError::EmptyTag))?;
            is_bad((tag.chars().any(char::is_control), LabelError::Control))?;
            let tag = tag.to_lowercase().replace(' ', "-");
            is_bad((tag.chars().count() > TAG_CHARS_MAX, LabelError::TagTooLong))?;
            Ok(tag)
        });
        let mut tags: Vec<String> = tags.collect::<Result<_, LabelError>>()?;
        tags.sort_unstable();
        tags.dedup();
        let joined = tags.join("\n");
        if tags.len() > TAGS_MAX || joined.len() > TAGS_LEN_MAX {
            return Err(LabelError::TooManyTags);
        }
        Ok(Tags(joined))
    }

    /// What [`Tags::joined`] gave.
    pub fn from_joined(joined: &str) -> Tags {
        Tags(joined.to_owned())
    }

    /// All in one text, for a record.
    pub fn joined(&self) -> &str {
        &self.0
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        in_joined(&self.0)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The tags of what [`Tags::joined`] gave.
pub fn in_joined(joined: &str) -> impl Iterator<Item = &str> + Clone {
    joined.split(SEPARATOR).filter(|tag| !tag.is_empty())
}

/// A title as it is kept: without spaces around it, `None` if nothing is left.
///
/// # Errors
/// [`LabelError`] for one that cannot be kept.
pub fn title(text: &str) -> Result<Option<String>, LabelError> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err(LabelError::Control);
    }
    if text.chars().count() > TITLE_CHARS_MAX {
        return Err(LabelError::TitleTooLong);
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::any_labels;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_is_read_back(labels in any_labels()) {
            prop_assert_eq!(&Tags::from_joined(labels.tags.joined()), &labels.tags);
            let again = Tags::of(labels.tags.iter());
            prop_assert_eq!(again, Ok(labels.tags));
        }

        #[test]
        fn reading_is_total(text in any::<String>()) {
            let _ = (title(&text), Tags::of([&*text]));
        }
    }

    #[test]
    fn tags_are_kept_in_one_form() {
        let tags = Tags::of(["  Summer Sale ", "b", "a", "B"]).unwrap();
        assert_eq!(tags.iter().collect::<Vec<_>>(), ["a", "b", "summer-sale"]);
        assert!(Tags::of([]).unwrap().is_empty());
        assert_eq!(Tags::of([""]), Err(LabelError::EmptyTag));
        assert_eq!(Tags::of(["a\nb"]), Err(LabelError::Control));
        assert_eq!(Tags::of(["é".repeat(256).as_str()]), Err(LabelError::TagTooLong));
        assert!(Tags::of(["é".repeat(255).as_str()]).is_ok());
        let many: Vec<String> = (0..65).map(|number| number.to_string()).collect();
        assert_eq!(Tags::of(many.iter().map(String::as_str)), Err(LabelError::TooManyTags));
    }

    #[test]
    fn titles_are_trimmed_and_bounded() {
        assert_eq!(title("  A <b>title</b> "), Ok(Some("A <b>title</b>".to_owned())));
        assert_eq!((title(""), title("  ")), (Ok(None), Ok(None)));
        assert_eq!(title("a\u{7}b"), Err(LabelError::Control));
        assert_eq!(title(&"é".repeat(513)), Err(LabelError::TitleTooLong));
    }
}
