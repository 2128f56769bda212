//! The stored form of a link: a versioned value with a checksum, which later versions can extend.
//!
//! A record is a version byte, a checksum over the key and everything else, then fields: tag (1 byte), length (2 bytes,
//! little-endian) and value. A reader keeps fields with unknown tags and passes them on ([`unknown`]). So an older
//! program can read and rewrite the records of a newer one with the same version. A field that an old reader must not
//! ignore requires a new version. The checksum covers the key, so a record under another key counts as damaged. This
//! module does no I/O, and decodes without allocation (except redirect rules and unknown fields of tombstones), on any
//! thread.

mod damaged;
mod encode;
mod form;
mod newer;
#[cfg(feature = "next-format")]
pub mod next;
mod tag;
pub mod unknown;

use std::fmt;
use std::num::NonZeroU32;

use carom_shards::map::INSTANT_MS_MAX;
use carom_shards::{Code, Policy, RedirectStatus};

pub use damaged::DamagedRange;
pub use encode::{encode_link, encode_tombstone};
pub use form::{HEAD_LEN, Tombstone, VERSION, VERSION_RULES, VERSION_STRICT};
pub use newer::NewerRecord;
#[cfg(any(test, feature = "testing"))]
pub use newer::make_newer;

use self::form::checksum;
use crate::access::app_name::{AppName, is_app_version};
use crate::access::idempotency::Idempotency;
use crate::domains::DomainName;
use crate::link::earlier_visits::EarlierVisits;
use crate::link::labels::{LinkLabels, Tags};
use crate::link::record::unknown::{UnknownRef, is_unknown};
use crate::link::rules::RedirectRules;
use crate::link::{Link, Origin, Version};

/// A record, borrowed from its stored form.
#[derive(Clone, PartialEq, Eq, Debug)]
// Nearly all records are links, each is read once, and a box would cost an allocation for each of millions.
#[allow(clippy::large_enum_variant)]
pub enum RecordRef<'a> {
    /// A link that exists.
    Link(LinkRef<'a>),
    /// The rest of a deleted link.
    Tombstone(Tombstone),
}

/// A link without its code, borrowed from its stored form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkRef<'a> {
    /// The redirect policy.
    pub policy: Policy,
    /// The destination: 1 to [`carom_limits::DESTINATION_LEN_MAX`] printable ASCII characters.
    pub target: &'a str,
    /// The creation time, in milliseconds since 1970 UTC.
    pub created_ms: u64,
    /// The origin of the code.
    pub origin: Origin,
    /// The version of this state of the code.
    pub version: Version,
    /// A title for people.
    pub title: Option<&'a str>,
    /// The tags, as [`Tags::joined`] returns them.
    pub tags: &'a str,
    /// True if crawlers may follow the link, as in [`LinkLabels::crawlable`].
    pub crawlable: bool,
    /// True if the expiry is the default one, as in [`LinkLabels::default_expiry`].
    pub default_expiry: bool,
    /// The name of the app that owns the link.
    pub app: Option<&'a str>,
    /// The version of the creating app, as in [`LinkLabels::app_version`].
    pub app_version: Option<&'a str>,
    /// The name of the domain of the code.
    pub domain: Option<&'a str>,
    /// The instant of the scheduled deletion, as in [`LinkLabels::delete_at_ms`].
    pub delete_at_ms: Option<u64>,
    /// The request that created the link, as in [`LinkLabels::idempotency`].
    pub idempotency: Option<Idempotency>,
    /// The redirect rules in their stored form; empty without any.
    pub rules: &'a [u8],
    /// The visits before an import, as in [`LinkLabels::earlier_visits`].
    pub earlier_visits: Option<EarlierVisits>,
    /// Fields of a later version.
    pub unknown: UnknownRef<'a>,
}

impl LinkRef<'_> {
    /// Returns the link with its code, owned.
    pub fn to_link(&self, code: Code) -> Link {
        Link {
            code,
            policy: self.policy,
            target: self.target.to_owned(),
            created_ms: self.created_ms,
            origin: self.origin,
            version: self.version,
            labels: self.labels(),
        }
    }

    /// Returns the properties that redirects do not need, owned.
    pub fn labels(&self) -> LinkLabels {
        LinkLabels {
            title: self.title.map(str::to_owned),
            tags: Tags::from_joined(self.tags),
            crawlable: self.crawlable,
            default_expiry: self.default_expiry,
            app: self.app.and_then(|name| AppName::parse(name).ok()),
            app_version: self.app_version.map(str::to_owned),
            domain: self.domain.and_then(DomainName::from_normal),
            delete_at_ms: self.delete_at_ms,
            idempotency: self.idempotency,
            rules: self.rules(),
            earlier_visits: self.earlier_visits,
            unknown: self.unknown.to_fields(),
        }
    }

    /// Returns the redirect rules, owned.
    pub fn rules(&self) -> RedirectRules {
        RedirectRules::from_encoded(self.rules).unwrap_or_default()
    }

    /// True if this is the stored form of a link, apart from its code.
    pub fn is_same(&self, link: &Link) -> bool {
        self.policy == link.policy
            && self.target == link.target
            && self.created_ms == link.created_ms
            && self.origin == link.origin
            && self.version == link.version
            && self.title == link.labels.title.as_deref()
            && self.tags == link.labels.tags.joined()
            && self.crawlable == link.labels.crawlable
            && self.default_expiry == link.labels.default_expiry
            && self.app == link.labels.app.as_ref().map(AppName::as_str)
            && self.app_version == link.labels.app_version.as_deref()
            && self.domain == link.labels.domain.as_ref().map(DomainName::as_str)
            && self.delete_at_ms == link.labels.delete_at_ms
            && self.idempotency == link.labels.idempotency
            && self.rules == link.labels.rules.encoded()
            && self.earlier_visits == link.labels.earlier_visits
            && self.unknown.to_fields() == link.labels.unknown
    }
}

/// The reason for which bytes are not a record of this key. The disk is damaged, or a newer carom wrote them
/// ([`RecordError::is_newer`]); a retry cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordError {
    /// Shorter than the shortest record.
    Short,
    /// An intact record of a later version of the format.
    UnknownVersion(u8),
    /// A byte has changed, or the record belongs to another key.
    Checksum,
    /// A field of an intact record that contradicts the others, or that this program never writes.
    BadField {
        /// The tag of the field.
        tag: u8,
    },
    /// Fields of an intact record are missing, both for a link and for a tombstone.
    Incomplete,
}

impl RecordError {
    /// True if a later version of carom wrote the record: its checksum matches, but this version cannot decode it. Such a
    /// record must stay as it is until this node is upgraded.
    pub fn is_newer(self) -> bool {
        matches!(self, RecordError::UnknownVersion(_) | RecordError::BadField { .. } | RecordError::Incomplete)
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Short => f.write_str("the record is truncated"),
            RecordError::UnknownVersion(version) => write!(
                f,
                "the record has version {version}, expected {VERSION} to {VERSION_RULES}: a newer carom wrote it"
            ),
            RecordError::Checksum => f.write_str("the checksum of the record does not match"),
            RecordError::BadField { tag } => {
                write!(f, "this version cannot read field {tag} of the record: a newer carom wrote it")
            }
            RecordError::Incomplete => {
                f.write_str("the record lacks a field that this version needs: a newer carom wrote it")
            }
        }
    }
}

impl std::error::Error for RecordError {}

/// Returns false if the value is a link or damaged, and true if it may be a tombstone. Reads a single byte.
pub fn may_be_tombstone(value: &[u8]) -> bool {
    value.get(HEAD_LEN) == Some(&tag::DELETED_MS)
}

/// True if the record of a link says that it has redirect rules. Reads a single byte.
pub fn may_have_rules(value: &[u8]) -> bool {
    value.first() == Some(&VERSION_RULES)
}

/// True if each start must read this record, because an image of the map cannot stand for it. Then the link has
/// redirect rules, or something else that an older version must not ignore. An older version may be the next one to
/// load the image. Reads a single byte.
pub fn is_read_at_start(value: &[u8]) -> bool {
    value.first().is_some_and(|version| *version > VERSION_STRICT)
}

/// Decodes the record of a key. Total: any bytes give a record or an error.
///
/// # Errors
/// [`RecordError`] unless a program with this version of the format wrote the bytes for this key.
pub fn decode<'a>(key: &[u8], value: &'a [u8]) -> Result<RecordRef<'a>, RecordError> {
    if value.len() < HEAD_LEN {
        return Err(RecordError::Short);
    }
    let (head, fields) = value.split_at(HEAD_LEN);
    // First the checksum, which all versions write in one way: it tells a later version from damage.
    if head[1..] != checksum(key, head[0], fields).to_le_bytes() {
        return Err(RecordError::Checksum);
    }
    if !is_known(head[0]) {
        return Err(RecordError::UnknownVersion(head[0]));
    }
    let mut found = RecordFields::default();
    let mut rest = fields;
    while let Some((&[tag, low, high], behind)) = rest.split_first_chunk::<3>() {
        let len = usize::from(u16::from_le_bytes([low, high]));
        let bytes = behind.get(..len).ok_or(RecordError::BadField { tag })?;
        if is_unknown(tag) && found.unknown.0.is_empty() {
            found.unknown = UnknownRef(rest);
        }
        found.take(tag, bytes).ok_or(RecordError::BadField { tag })?;
        rest = &behind[len..];
    }
    if !rest.is_empty() {
        return Err(RecordError::Incomplete);
    }
    let record = found.finish()?;
    match record {
        // The version says whether there are rules.
        RecordRef::Link(LinkRef { rules, .. }) if rules.is_empty() == (head[0] == VERSION_RULES) => {
            Err(RecordError::BadField { tag: tag::RULES })
        }
        // The domain name must match the domain ID in the code.
        RecordRef::Link(LinkRef { domain: Some(name), .. }) if !is_of_domain(key, name) => {
            Err(RecordError::BadField { tag: tag::DOMAIN })
        }
        record => Ok(record),
    }
}

/// True if some version wrote this record for this key, even if this version cannot decode it: the version and the
/// checksum stay where they are in every version.
pub fn is_intact(key: &[u8], value: &[u8]) -> bool {
    value.len() >= HEAD_LEN && value[1..HEAD_LEN] == checksum(key, value[0], &value[HEAD_LEN..]).to_le_bytes()
}

/// True if this program reads records of this version.
fn is_known(version: u8) -> bool {
    #[cfg(feature = "next-format")]
    if next::reads(version) {
        return true;
    }
    matches!(version, VERSION | VERSION_STRICT | VERSION_RULES)
}

fn is_of_domain(key: &[u8], name: &str) -> bool {
    let of_name = DomainName::from_normal(name).map(|name| name.id());
    Code::from_key(key).is_ok_and(|code| code.domain() == of_name)
}

/// The fields of a record, as far as they are read.
#[derive(Default)]
struct RecordFields<'a> {
    target: Option<&'a str>,
    created_ms: Option<u64>,
    origin: Option<Origin>,
    status: Option<RedirectStatus>,
    cache_seconds: Option<u32>,
    valid_since_ms: Option<u64>,
    valid_until_ms: Option<u64>,
    archived: Option<()>,
    forward_query: Option<()>,
    title: Option<&'a str>,
    tags: Option<&'a str>,
    deleted_ms: Option<u64>,
    rev: Option<u32>,
    claim: Option<u64>,
    edit: Option<u32>,
    max_visits: Option<NonZeroU32>,
    crawlable: Option<()>,
    default_expiry: Option<()>,
    app: Option<&'a str>,
    app_version: Option<&'a str>,
    domain: Option<&'a str>,
    delete_at_ms: Option<u64>,
    idempotency: Option<Idempotency>,
    rules: Option<&'a [u8]>,
    earlier_visits: Option<EarlierVisits>,
    unknown: UnknownRef<'a>,
}

impl<'a> RecordFields<'a> {
    /// Adds a field; `None` if it is invalid or a duplicate.
    fn take(&mut self, tag: u8, bytes: &'a [u8]) -> Option<()> {
        match tag {
            tag::TARGET if crate::link::is_target(bytes) => once(&mut self.target, std::str::from_utf8(bytes).ok()),
            tag::CREATED_MS => once(&mut self.created_ms, number(bytes)),
            tag::ORIGIN => once(&mut self.origin, origin(bytes)),
            tag::STATUS => {
                let status = bytes.try_into().ok().map(u16::from_le_bytes);
                once(&mut self.status, status.and_then(|number| RedirectStatus::from_number(u64::from(number))))
            }
            tag::CACHE_SECONDS => once(&mut self.cache_seconds, bytes.try_into().ok().map(u32::from_le_bytes)),
            tag::VALID_UNTIL_MS => once(&mut self.valid_until_ms, number(bytes).filter(|&ms| ms <= INSTANT_MS_MAX)),
            tag::VALID_SINCE_MS => once(&mut self.valid_since_ms, number(bytes).filter(|&ms| ms <= INSTANT_MS_MAX)),
            tag::ARCHIVED => once(&mut self.archived, bytes.is_empty().then_some(())),
            tag::FORWARD_QUERY => once(&mut self.forward_query, bytes.is_empty().then_some(())),
            tag::TITLE => once(&mut self.title, std::str::from_utf8(bytes).ok()),
            tag::TAGS => once(&mut self.tags, std::str::from_utf8(bytes).ok()),
            tag::DELETED_MS => once(&mut self.deleted_ms, number(bytes)),
            tag::REV => once(&mut self.rev, bytes.try_into().ok().map(u32::from_le_bytes)),
            tag::CLAIM => once(&mut self.claim, number(bytes)),
            tag::EDIT => once(&mut self.edit, bytes.try_into().ok().map(u32::from_le_bytes)),
            tag::MAX_VISITS => {
                let visits = bytes.try_into().ok().map(u32::from_le_bytes);
                once(&mut self.max_visits, visits.and_then(NonZeroU32::new))
            }
            tag::CRAWLABLE => once(&mut self.crawlable, bytes.is_empty().then_some(())),
            tag::DEFAULT_END => once(&mut self.default_expiry, bytes.is_empty().then_some(())),
            tag::APP => once(&mut self.app, std::str::from_utf8(bytes).ok().filter(|name| AppName::is_name(name))),
            tag::APP_VERSION => {
                once(&mut self.app_version, std::str::from_utf8(bytes).ok().filter(|text| is_app_version(text)))
            }
            tag::DOMAIN => {
                let is_name = |text: &&str| DomainName::from_normal(text).is_some();
                once(&mut self.domain, std::str::from_utf8(bytes).ok().filter(is_name))
            }
            tag::DELETE_AT_MS => once(&mut self.delete_at_ms, number(bytes).filter(|&ms| ms <= INSTANT_MS_MAX)),
            tag::IDEMPOTENCY => once(&mut self.idempotency, bytes.try_into().ok().map(Idempotency::from_bytes)),
            tag::RULES => {
                once(&mut self.rules, Some(bytes).filter(|bytes| RedirectRules::from_encoded(bytes).is_some()))
            }
            tag::EARLIER_VISITS => once(&mut self.earlier_visits, EarlierVisits::from_bytes(bytes)),
            tag::TARGET => None,
            _ => Some(()),
        }
    }

    fn finish(self) -> Result<RecordRef<'a>, RecordError> {
        let version = Version {
            rev: self.rev.unwrap_or_default(),
            claim: self.claim.unwrap_or_default(),
            edit: self.edit.unwrap_or_default(),
        };
        match (self.deleted_ms, self.target, self.created_ms, self.origin) {
            (Some(deleted_ms), None, _, origin) => {
                let (origin, unknown) = (origin.unwrap_or(Origin::Issued), self.unknown.to_fields());
                Ok(RecordRef::Tombstone(Tombstone { deleted_ms, origin, version, unknown }))
            }
            (None, Some(target), Some(created_ms), Some(origin)) => {
                let policy = Policy {
                    status: self.status.unwrap_or_default(),
                    cache_seconds: self.cache_seconds,
                    valid_since_ms: self.valid_since_ms,
                    valid_until_ms: self.valid_until_ms,
                    forward_query: self.forward_query.is_some(),
                    archived: self.archived.is_some(),
                    max_visits: self.max_visits,
                };
                let (title, tags) = (self.title, self.tags.unwrap_or_default());
                let (crawlable, default_expiry) = (self.crawlable.is_some(), self.default_expiry.is_some());
                Ok(RecordRef::Link(LinkRef {
                    policy,
                    target,
                    created_ms,
                    origin,
                    version,
                    title,
                    tags,
                    crawlable,
                    default_expiry,
                    app: self.app,
                    app_version: self.app_version,
                    domain: self.domain,
                    delete_at_ms: self.delete_at_ms,
                    idempotency: self.idempotency,
                    rules: self.rules.unwrap_or_default(),
                    earlier_visits: self.earlier_visits,
                    unknown: self.unknown,
                }))
            }
            _ => Err(RecordError::Incomplete),
        }
    }
}

/// Fills an empty slot; `None` if it is full or the value is missing.
fn once<T>(place: &mut Option<T>, value: Option<T>) -> Option<()> {
    if place.is_some() {
        return None;
    }
    *place = Some(value?);
    Some(())
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn origin(bytes: &[u8]) -> Option<Origin> {
    match bytes {
        [1] => Some(Origin::Issued),
        [2] => Some(Origin::Custom),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::encode::RecordEncoder;
    use super::unknown::UnknownFields;
    use super::*;
    use crate::testing::any_link;
    use proptest::prelude::*;

    fn stored(link: &Link) -> (String, Vec<u8>) {
        let key = link.code.to_string();
        let mut value = Vec::new();
        encode_link(key.as_bytes(), link, &mut value);
        (key, value)
    }

    proptest! {
        #[test]
        fn links_round_trip(link in any_link()) {
            let (key, value) = stored(&link);
            prop_assert!(!may_be_tombstone(&value));
            let Ok(RecordRef::Link(read)) = decode(key.as_bytes(), &value) else { panic!("no link") };
            prop_assert!(read.is_same(&link));
            prop_assert_eq!(read.to_link(link.code), link);
        }

        #[test]
        fn decoding_is_total(key in any::<Vec<u8>>(), value in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&key, &value);
            // Behind a valid header as well, so that the fields are read.
            let mut sealed = vec![VERSION];
            sealed.extend_from_slice(&checksum(&key, VERSION, &value).to_le_bytes());
            sealed.extend_from_slice(&value);
            let _ = decode(&key, &sealed);
        }

        #[test]
        fn any_flipped_byte_is_an_error(link in any_link(), at in any::<prop::sample::Index>(), flip in 1u8..) {
            let (key, mut value) = stored(&link);
            let at = at.index(value.len());
            value[at] ^= flip;
            prop_assert!(decode(key.as_bytes(), &value).is_err());
        }

        #[test]
        fn a_record_under_another_key_is_an_error(link in any_link(), other in "[0-9A-Za-z_-]{1,64}") {
            let (key, value) = stored(&link);
            prop_assume!(key != other);
            prop_assert_eq!(decode(other.as_bytes(), &value), Err(RecordError::Checksum));
        }
    }

    #[test]
    fn tombstones_round_trip() {
        let mut value = Vec::new();
        let oldest = Tombstone { deleted_ms: 77, ..crate::testing::tombstone() };
        for tombstone in [
            oldest.clone(),
            Tombstone { origin: Origin::Custom, ..oldest.clone() },
            Tombstone { version: Version { rev: 3, claim: u64::MAX, edit: 0 }, ..oldest.clone() },
            Tombstone { unknown: UnknownFields::of(200, b"of a later program"), ..oldest },
        ] {
            value.clear();
            encode_tombstone(b"abc", &tombstone, &mut value);
            assert!(may_be_tombstone(&value));
            assert_eq!(decode(b"abc", &value), Ok(RecordRef::Tombstone(tombstone)));
        }
    }

    #[test]
    fn another_version_says_so() {
        let mut value = Vec::new();
        let tombstone = crate::testing::tombstone();
        encode_tombstone(b"abc", &tombstone, &mut value);
        value[0] = 200;
        assert_eq!(decode(b"abc", &value), Err(RecordError::Checksum), "a wrong byte is no other version");
        encode::seal(b"abc", &mut value);
        let error = decode(b"abc", &value).unwrap_err();
        assert_eq!(error, RecordError::UnknownVersion(200));
        assert!(error.is_newer());
        assert!(error.to_string().contains("newer carom"));
        assert!(decode(b"other", &value).is_err_and(|error| !error.is_newer()));
    }

    #[test]
    fn what_an_older_program_must_not_skip_is_of_a_version_that_it_does_not_read() {
        let version = |policy| {
            let mut value = Vec::new();
            let code = Code::parse(b"abc").unwrap();
            let (target, origin, version) = ("http://a/".to_owned(), Origin::Issued, Version::default());
            let link = Link { code, policy, target, created_ms: 1, origin, version, labels: LinkLabels::default() };
            encode_link(b"abc", &link, &mut value);
            value[0]
        };
        let plain = Policy::default();
        assert_eq!(version(Policy { forward_query: true, valid_until_ms: Some(1), ..plain }), VERSION);
        assert_eq!(version(Policy { valid_since_ms: Some(1), ..plain }), VERSION_STRICT);
        assert_eq!(version(Policy { archived: true, ..plain }), VERSION_STRICT);
        let mut link = crate::testing::link("abc", Origin::Issued);
        link.labels.rules = crate::testing::rules("https://b/", "device", "ios");
        let (key, value) = stored(&link);
        assert!(value[0] == VERSION_RULES);
        assert!(may_have_rules(&value));
        for wrong in [VERSION, VERSION_STRICT] {
            let mut value = value.clone();
            value[0] = wrong;
            encode::seal(key.as_bytes(), &mut value);
            let error = decode(key.as_bytes(), &value);
            assert_eq!(error, Err(RecordError::BadField { tag: tag::RULES }), "the link would look like a plain one");
        }
    }

    #[test]
    fn what_was_asked_of_a_link_besides_is_kept() {
        let (target, origin, version) = ("http://a/".to_owned(), Origin::Issued, Version::default());
        let (code, policy) = (Code::parse(b"abc").unwrap(), Policy::default());
        let mut link = Link { code, policy, target, created_ms: 1, origin, version, labels: LinkLabels::default() };
        link.labels.idempotency = Some(Idempotency::from_bytes([7; 24]));
        link.labels.delete_at_ms = Some(9);
        let (key, value) = stored(&link);
        let Ok(RecordRef::Link(read)) = decode(key.as_bytes(), &value) else { panic!("no link") };
        assert!(read.is_same(&link));
        assert!(read.to_link(link.code) == link);
    }

    #[test]
    fn values_that_no_program_wrote_are_refused() {
        for (tag, bytes) in [
            (tag::TARGET, &b"with space "[..]),
            (tag::TARGET, b""),
            (tag::TARGET, b"line\r\nbreak"),
            (tag::STATUS, &200u16.to_le_bytes()),
            (tag::ORIGIN, &[3]),
            (tag::VALID_UNTIL_MS, &u64::MAX.to_le_bytes()),
            (tag::CREATED_MS, &[1, 2, 3]),
            (tag::VALID_SINCE_MS, &u64::MAX.to_le_bytes()),
            (tag::ARCHIVED, &[1]),
            (tag::TITLE, b"\xff"),
            (tag::TAGS, b"\xff"),
            (tag::EARLIER_VISITS, &[0; 16]),
        ] {
            let mut value = Vec::new();
            let mut writer = RecordEncoder::begin(&mut value, VERSION);
            writer.field(tag, bytes);
            writer.finish(b"k");
            let error = decode(b"k", &value).unwrap_err();
            assert_eq!(error, RecordError::BadField { tag }, "{bytes:?}");
            assert!(error.is_newer(), "a later version may write it");
        }
    }
}
