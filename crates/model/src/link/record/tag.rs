//! The tags of the fields of a record.

pub(in crate::link::record) const TARGET: u8 = 1;
pub(in crate::link::record) const CREATED_MS: u8 = 2;
pub(in crate::link::record) const ORIGIN: u8 = 3;
pub(in crate::link::record) const STATUS: u8 = 4;
pub(in crate::link::record) const CACHE_SECONDS: u8 = 5;
pub(in crate::link::record) const VALID_UNTIL_MS: u8 = 6;
pub(in crate::link::record) const DELETED_MS: u8 = 7;
pub(in crate::link::record) const REV: u8 = 8;
pub(in crate::link::record) const CLAIM: u8 = 9;
/// The start of the validity. Only in records of [`VERSION_STRICT`](super::form::VERSION_STRICT).
pub(in crate::link::record) const VALID_SINCE_MS: u8 = 10;
/// True for an archived link. Only in records of [`VERSION_STRICT`](super::form::VERSION_STRICT).
pub(in crate::link::record) const ARCHIVED: u8 = 11;
pub(in crate::link::record) const FORWARD_QUERY: u8 = 12;
pub(in crate::link::record) const TITLE: u8 = 13;
pub(in crate::link::record) const TAGS: u8 = 14;
pub(in crate::link::record) const EDIT: u8 = 15;
/// The maximum number of visits. Only in records of [`VERSION_STRICT`](super::form::VERSION_STRICT).
pub(in crate::link::record) const MAX_VISITS: u8 = 16;
pub(in crate::link::record) const CRAWLABLE: u8 = 17;
pub(in crate::link::record) const DEFAULT_END: u8 = 18;
pub(in crate::link::record) const APP: u8 = 19;
pub(in crate::link::record) const APP_VERSION: u8 = 20;
pub(in crate::link::record) const DOMAIN: u8 = 21;
pub(in crate::link::record) const DELETE_AT_MS: u8 = 22;
pub(in crate::link::record) const IDEMPOTENCY: u8 = 23;
/// The redirect rules. Only in records of [`VERSION_RULES`](super::form::VERSION_RULES), all of which have them.
pub(in crate::link::record) const RULES: u8 = 24;
pub(in crate::link::record) const EARLIER_VISITS: u8 = 25;
