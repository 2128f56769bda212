//! The numbers of the formats.

/// The format of version 0.1.0.
pub const FIRST: u32 = 1;

/// The first format with redirect rules, in records of [`VERSION_RULES`](crate::link::record::VERSION_RULES). A node
/// accepts rules once all live nodes read it.
pub const RULES: u32 = 2;

/// The first format with slashes in slugs. A node creates such links once all live nodes read it.
pub const SLASHES: u32 = 3;

/// The first format whose readers count the visits that imported links had before
/// ([`EarlierVisits`](crate::link::earlier_visits::EarlierVisits)). A node accepts such links once all live nodes read
/// it.
pub const EARLIER_VISITS: u32 = 3;

/// The first format with conditions on browsers in redirect rules. A node accepts them once all live nodes read it.
pub const BROWSERS: u32 = 4;

/// The first format whose readers know that a state may have expired in Redis: they ask their own store before they take
/// a code. A node lets states expire once all live nodes read it.
pub const RETENTION: u32 = 5;

/// The newest format that this version reads, and writes once all live nodes read it.
pub const NEWEST: u32 = 5;
