//! The encoding of links and tombstones as records.

use carom_shards::map::INSTANT_MS_MAX;
use carom_shards::{Policy, RedirectStatus};

use super::form::{HEAD_LEN, Tombstone, VERSION, VERSION_RULES, VERSION_STRICT, checksum};
use super::tag;
use super::unknown::UnknownFields;
use crate::link::labels::LinkLabels;
use crate::link::{Link, Origin, Version};

/// Appends the stored form of a link to `out`.
///
/// # Panics
/// If the target or the validity violates the promises of [`Link`], which the caller must check.
pub fn encode_link(key: &[u8], link: &Link, out: &mut Vec<u8>) {
    assert!(crate::link::is_target(link.target.as_bytes()), "a target that was not checked came to the store");
    let mut instants = [link.policy.valid_since_ms, link.policy.valid_until_ms].into_iter().flatten();
    assert!(instants.all(|ms| ms <= INSTANT_MS_MAX));
    let Policy { valid_since_ms, archived, max_visits, .. } = link.policy;
    let is_strict = valid_since_ms.is_some() || archived || max_visits.is_some();
    let version = match (link.has_rules(), is_strict) {
        (true, _) => VERSION_RULES,
        (false, true) => VERSION_STRICT,
        (false, false) => VERSION,
    };
    #[cfg(feature = "next-format")]
    let version = super::next::written(version, link.labels.tags.joined());
    let mut writer = RecordEncoder::begin(out, version);
    writer.field(tag::CREATED_MS, &link.created_ms.to_le_bytes());
    writer.field(tag::ORIGIN, &[origin_number(link.origin)]);
    if link.policy.status != RedirectStatus::default() {
        writer.field(tag::STATUS, &link.policy.status.number().to_le_bytes());
    }
    if let Some(seconds) = link.policy.cache_seconds {
        writer.field(tag::CACHE_SECONDS, &seconds.to_le_bytes());
    }
    if let Some(until_ms) = link.policy.valid_until_ms {
        writer.field(tag::VALID_UNTIL_MS, &until_ms.to_le_bytes());
    }
    if let Some(since_ms) = link.policy.valid_since_ms {
        writer.field(tag::VALID_SINCE_MS, &since_ms.to_le_bytes());
    }
    if link.policy.archived {
        writer.field(tag::ARCHIVED, &[]);
    }
    if link.policy.forward_query {
        writer.field(tag::FORWARD_QUERY, &[]);
    }
    if let Some(visits) = max_visits {
        writer.field(tag::MAX_VISITS, &visits.get().to_le_bytes());
    }
    if link.labels.crawlable {
        writer.field(tag::CRAWLABLE, &[]);
    }
    if link.labels.default_expiry {
        writer.field(tag::DEFAULT_END, &[]);
    }
    writer.version(link.version);
    writer.labels(&link.labels);
    writer.field(tag::TARGET, link.target.as_bytes());
    if link.has_rules() {
        writer.field(tag::RULES, link.labels.rules.encoded());
    }
    if let Some(visits) = link.labels.earlier_visits {
        writer.field(tag::EARLIER_VISITS, &visits.to_bytes());
    }
    writer.unknown(&link.labels.unknown);
    writer.finish(key);
}

/// Appends the stored form of a tombstone to `out`.
pub fn encode_tombstone(key: &[u8], tombstone: &Tombstone, out: &mut Vec<u8>) {
    let mut writer = RecordEncoder::begin(out, VERSION);
    // The first field, so that a single byte tells a tombstone from a link.
    writer.field(tag::DELETED_MS, &tombstone.deleted_ms.to_le_bytes());
    if tombstone.origin != Origin::Issued {
        writer.field(tag::ORIGIN, &[origin_number(tombstone.origin)]);
    }
    writer.version(tombstone.version);
    writer.unknown(&tombstone.unknown);
    writer.finish(key);
}

fn origin_number(origin: Origin) -> u8 {
    match origin {
        Origin::Issued => 1,
        Origin::Custom => 2,
    }
}

/// Appends a record to a buffer.
pub(super) struct RecordEncoder<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
}

impl<'o> RecordEncoder<'o> {
    pub(super) fn begin(out: &'o mut Vec<u8>, version: u8) -> RecordEncoder<'o> {
        let start = out.len();
        out.push(version);
        out.extend_from_slice(&[0; HEAD_LEN - 1]);
        RecordEncoder { out, start }
    }

    pub(super) fn field(&mut self, tag: u8, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).expect("fields are bounded well below 64 KiB");
        self.out.push(tag);
        self.out.extend_from_slice(&len.to_le_bytes());
        self.out.extend_from_slice(bytes);
    }

    pub(super) fn version(&mut self, version: Version) {
        if version != Version::default() {
            self.field(tag::REV, &version.rev.to_le_bytes());
            self.field(tag::CLAIM, &version.claim.to_le_bytes());
        }
        if version.edit != 0 {
            self.field(tag::EDIT, &version.edit.to_le_bytes());
        }
    }

    /// Appends the labels that stand before the destination.
    fn labels(&mut self, labels: &LinkLabels) {
        if let Some(app) = &labels.app {
            self.field(tag::APP, app.as_str().as_bytes());
        }
        if let Some(version) = &labels.app_version {
            self.field(tag::APP_VERSION, version.as_bytes());
        }
        if let Some(domain) = &labels.domain {
            self.field(tag::DOMAIN, domain.as_str().as_bytes());
        }
        if let Some(at_ms) = labels.delete_at_ms {
            self.field(tag::DELETE_AT_MS, &at_ms.to_le_bytes());
        }
        if let Some(idempotency) = &labels.idempotency {
            self.field(tag::IDEMPOTENCY, &idempotency.to_bytes());
        }
        if let Some(title) = &labels.title {
            self.field(tag::TITLE, title.as_bytes());
        }
        if !labels.tags.is_empty() {
            self.field(tag::TAGS, labels.tags.joined().as_bytes());
        }
    }

    /// Appends the fields of a later version. They are the last ones in every version.
    fn unknown(&mut self, fields: &UnknownFields) {
        self.out.extend_from_slice(fields.as_bytes());
    }

    pub(super) fn finish(self, key: &[u8]) {
        seal(key, &mut self.out[self.start..]);
    }
}

/// Writes the checksum of a record.
pub(super) fn seal(key: &[u8], record: &mut [u8]) {
    let sum = checksum(key, record[0], &record[HEAD_LEN..]);
    record[1..HEAD_LEN].copy_from_slice(&sum.to_le_bytes());
}
