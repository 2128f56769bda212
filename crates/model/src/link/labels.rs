//! Properties of a link that plain redirects do not need: its title, tags, app and so on.

use std::fmt;

use carom_shards::DomainId;

use crate::access::app_name::AppName;
use crate::access::idempotency::Idempotency;
use crate::domains::DomainName;
use crate::link::earlier_visits::EarlierVisits;
use crate::link::record::unknown::UnknownFields;
use crate::link::rules::RedirectRules;

/// Longest title, in characters, as in Shlink.
pub const TITLE_CHARS_MAX: usize = 512;

/// Longest tag, in characters, as in Shlink.
pub const TAG_CHARS_MAX: usize = 255;

/// Maximum number of tags of one link.
pub const TAGS_MAX: usize = 64;

/// Maximum number of bytes of all tags of a link: every copy of its record contains them, in Redis as well.
pub const TAGS_LEN_MAX: usize = 4_096;

/// Separator of tags. A tag cannot contain it.
const SEPARATOR: char = '\n';

/// The reason for which a title or tag is invalid. The client must correct it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LabelError {
    /// Longer than [`TITLE_CHARS_MAX`].
    TitleTooLong,
    /// Longer than [`TAG_CHARS_MAX`].
    TagTooLong,
    /// The tags are more than [`TAGS_MAX`], or have more than [`TAGS_LEN_MAX`] bytes.
    TooManyTags,
    /// A control character: pages cannot show it, and log lines should not contain it.
    Control,
    /// An empty tag, or only spaces.
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

/// The properties of a link that plain redirects do not need.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkLabels {
    /// A title for people; never empty.
    pub title: Option<String>,
    /// Tags to find the link by.
    pub tags: Tags,
    /// True if `robots.txt` allows crawlers to follow the link.
    pub crawlable: bool,
    /// True if the expiry of the link is the default one, which links without an explicit expiry get.
    pub default_expiry: bool,
    /// The app that owns the link; `None` if it was created without an API key.
    pub app: Option<AppName>,
    /// The version that the creating app reported of itself; see [`crate::access::is_app_version`].
    pub app_version: Option<String>,
    /// The domain of the code; `None` for the default one. The code has the ID of the domain, and this its name.
    pub domain: Option<DomainName>,
    /// The instant of the scheduled deletion, in milliseconds since 1970 UTC. Until then the link is archived and can
    /// be restored.
    pub delete_at_ms: Option<u64>,
    /// The request that created the link, if it had an idempotency key.
    pub idempotency: Option<Idempotency>,
    /// The destinations for some visitors, and their conditions. A core keeps a link with rules beside its map.
    pub rules: RedirectRules,
    /// The earlier visits: those that the link had before it was imported into a running service.
    pub earlier_visits: Option<EarlierVisits>,
    /// Fields of a later version, which this version keeps and does not interpret.
    pub unknown: UnknownFields,
}

impl LinkLabels {
    /// Returns the ID of the domain in codes; `None` for the default domain.
    pub fn domain_id(&self) -> Option<DomainId> {
        self.domain.as_ref().map(DomainName::id)
    }
}

/// Normalised tags: lower case, without spaces, each once, in the order of their characters.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tags(String);

impl Tags {
    /// Normalises tags as Shlink does, so that a search for the typed text finds them: capital letters become small
    /// ones, and spaces become hyphens.
    ///
    /// # Errors
    /// [`LabelError`] for invalid tags.
    pub fn of<'t>(tags: impl IntoIterator<Item = &'t str>) -> Result<Tags, LabelError> {
        // Duplicates are allowed, but a longer list is not read to its end.
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

    /// Takes a text from [`Tags::joined`].
    pub(super) fn from_joined(joined: &str) -> Tags {
        Tags(joined.to_owned())
    }

    /// Returns all tags in one text, for a record.
    pub fn joined(&self) -> &str {
        &self.0
    }

    /// Iterates over the tags.
    pub fn iter(&self) -> impl Iterator<Item = &str> + Clone {
        in_joined(&self.0)
    }

    /// Returns true if there are no tags.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Iterates over the tags in a text from [`Tags::joined`].
pub fn in_joined(joined: &str) -> impl Iterator<Item = &str> + Clone {
    joined.split(SEPARATOR).filter(|tag| !tag.is_empty())
}

/// Normalises a title: trims it; `None` if nothing is left.
///
/// # Errors
/// [`LabelError`] for an invalid title.
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
