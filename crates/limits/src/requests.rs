//! Limits of API requests: their fields, keys, bulk requests, exports, and the console.

use std::time::Duration;

use crate::store::WRITE_QUEUE_LEN;

/// Longest destination in its serialised form, in bytes. Browsers and crawlers handle this length reliably.
pub const DESTINATION_LEN_MAX: usize = 2_048;

/// Maximum number of valid API keys. Every node reads all keys from Redis each second; ten thousand take about 2.5 MB
/// there.
pub const VALID_KEYS_MAX: usize = 10_000;

/// Maximum number of API keys that are kept after they have ended. Each is a tombstone, which informs copies of the
/// registry that missed the revocation. Ten thousand cover the rotations of a platform for weeks, and bound the
/// registry at twice the valid keys.
pub const ENDED_KEYS_MAX: usize = 10_000;

/// Retention of an ended API key, in milliseconds: longer than the longest grace period of a rotation.
pub const ENDED_KEY_TIME_MAX_MS: u64 = 400 * 86_400_000;

/// Longest form, in bytes. A form is read before its sender is authenticated. The longest URL takes 6 KiB of it.
pub const FORM_LEN_MAX: usize = 64 * 1024;

/// Maximum number of fields of a form that are read; further ones are ignored.
pub const FORM_FIELDS_MAX: usize = 128;

/// Maximum number of invalid fields that a response names. A request has some twenty fields, so this covers every
/// honest client; a hostile one can send a hundred thousand.
pub const PROBLEM_FIELDS_MAX: usize = 64;

/// Longest field name in a response, in characters. Every known name is shorter.
pub const PROBLEM_NAME_CHARS_MAX: usize = 64;

/// Maximum rate of creates that an app may be granted, per second.
pub const APP_CREATES_MAX: u32 = 1_000_000;

/// Longest grace period of an API key after its rotation.
pub const KEY_GRACE_MAX: Duration = Duration::from_secs(366 * 86_400);

/// Longest idempotency key of a client, in characters: as long as Stripe's, and several UUIDs.
pub const IDEMPOTENCY_KEY_LEN_MAX: usize = 255;

/// Expired idempotency keys that are removed from the index at once: some milliseconds of work.
pub const IDEMPOTENCY_FORGET_BATCH: usize = 5_000;

/// Longest delay of a scheduled deletion: enough for a console that deletes many links to offer an undo for all.
pub const DELETION_WAIT_MAX: Duration = Duration::from_secs(3_600);

/// Exports that one core serves at once, and the same number of bulk requests. Each takes at most about a megabyte.
pub const LONG_REQUESTS_MAX: usize = 8;

/// Exports of one app on a core, and the same number of bulk requests: half, so that one app leaves room for others.
pub const LONG_REQUESTS_OF_APP_MAX: usize = LONG_REQUESTS_MAX / 2;

/// Lines of a bulk request that are processed together. A millisecond of the core's time, in several turns.
pub const BULK_CHUNK_LINES: usize = 256;

/// Bytes of lines that are processed together. Their responses may be several times as long.
pub const BULK_CHUNK_BYTES: usize = 64 * 1024;

/// Lines of one bulk request that may wait for the store: a group commit's worth, while the next is on its way.
pub const BULK_LINES_WAITING: usize = 2_048;

/// Lines of one bulk request that may wait for the store when many share [`BULK_QUEUE_SHARE`].
pub const BULK_LINES_WAITING_MIN: usize = 64;

/// Bytes of lines of one bulk request that may wait for the store.
pub const BULK_BYTES_WAITING: usize = 512 * 1024;

/// Slugs that a dry run remembers, to report duplicates within the request: about two more megabytes.
pub const BULK_SLUGS_TRIED: usize = 64 * 1024;

/// Places in the writer's queue that all bulk requests of the node share, half of it. The rest is for single creates.
pub const BULK_QUEUE_SHARE: usize = WRITE_QUEUE_LEN / 2;

/// Maximum number of QR codes that wait to be drawn: a tenth of a second of the thread's time, at 0.4 ms each. Further
/// requests get 503.
pub const PICTURE_QUEUE_LEN: usize = 256;

/// Bytes of QR codes that a core caches: some thousand of the usual size.
pub const PICTURES_KEPT_BYTES: usize = 2 * 1024 * 1024;

/// Maximum number of long documents that wait to be parsed or written: half a second of the thread's time, at 2 ms
/// each.
pub const DOCUMENT_QUEUE_LEN: usize = 256;

/// Maximum number of bodies that wait to be compressed: a third of a second of the thread's time, at 5 ms each. Long bodies
/// wait piece by piece. Further bodies are sent as they are.
pub const COMPRESSION_QUEUE_LEN: usize = 64;

/// Time for the compression of a body, or of a part of one. A thread that gets too little of a busy CPU needs longer: then
/// the body is sent as it is.
pub const COMPRESSION_TIME_MAX: Duration = Duration::from_secs(3);

/// Maximum number of links that a core writes as JSON itself: 0.5 ms with the longest fields, and less than a hand-over
/// with usual ones. A thread writes longer responses.
pub const LINKS_WRITTEN_AT_ONCE: usize = 32;

/// Maximum number of tags that a core writes as JSON itself. A thread writes longer responses.
pub const TAGS_WRITTEN_AT_ONCE: usize = 512;

/// Maximum number of conditions of a link's redirect rules that a core writes as JSON or tries itself: about 0.2 ms. A
/// thread handles more of them.
pub const CONDITIONS_WRITTEN_AT_ONCE: usize = 128;

/// Maximum number of API keys that a core writes as JSON itself: about 0.3 ms. A thread writes longer responses.
pub const KEYS_WRITTEN_AT_ONCE: usize = 128;

/// Maximum number of domains that a core writes as JSON itself: 0.2 ms with usual redirects. A thread writes longer
/// responses.
pub const DOMAINS_WRITTEN_AT_ONCE: usize = 128;

/// Maximum number of values (objects, arrays, strings, numbers) of a JSON document that are kept. A link has fewer than
/// a hundred. Further values are checked and dropped, so that a client cannot make a core handle hundreds of thousands
/// of them.
pub const JSON_VALUES_MAX: usize = 4_096;

/// Maximum number of hosts of destination rules that can be saved, in both lists together. They fit into a request, of which
/// [`JSON_VALUES_MAX`] values are kept, and every node of a fleet reads them from Redis once a second. Longer lists have a
/// source.
pub const SAVED_HOSTS_MAX: usize = 4_000;

/// Bytes of lines that an export reads from the store at once: a millisecond or two of its thread.
pub const EXPORT_PAGE_BYTES: usize = 256 * 1024;

/// Maximum number of records that an export reads at once. Many of them may be tombstones, which give no line.
pub const EXPORT_PAGE_RECORDS: usize = 16 * 1024;

/// Pages of exports that may wait for the export thread: one for each export of many cores.
pub const EXPORT_QUEUE_LEN: usize = 1_024;

/// Unreadable records that an export names; the rest is counted.
pub const EXPORT_REPORTS_MAX: usize = 100;

/// Sessions of the console at once. A further sign-in ends a session of the key with the most: the one that has been idle
/// longest.
pub const SESSIONS_MAX: usize = 256;

/// Session cookies that a request may show, one for each port of its host. Further ones are ignored: each needs a look at
/// the sessions, and anyone can send cookies to the public listener.
pub const SESSION_COOKIES_MAX: usize = 32;

/// Idle timeout of a session at the console. An open page with live data counts as use.
pub const SESSION_IDLE_MAX: Duration = Duration::from_secs(2 * 3_600);

/// Lifetime of a session at the console: a working day.
pub const SESSION_TIME_MAX: Duration = Duration::from_secs(12 * 3_600);

/// Pages of the console with live data at once. Each requests the latencies of every core once a second.
pub const WATCHERS_MAX: usize = 64;

/// Edits of one link that are kept, the latest ones.
pub const EDITS_KEPT: usize = 64;

/// Retention of edits: more than a year, for questions about this time last year.
pub const EDITS_KEPT_FOR: Duration = Duration::from_secs(400 * 86_400);

/// Alarms kept for the status.
pub const ALARMS_KEPT: usize = 64;

/// Maximum number of redirect rules of one link. A visitor that no rule matches has every rule checked, within some
/// microseconds.
pub const REDIRECT_RULES_MAX: usize = 50;

/// Maximum number of conditions of one redirect rule: more than there are types of conditions.
pub const RULE_CONDITIONS_MAX: usize = 20;

/// Longest text of a condition, in characters: a query parameter, its value, or the name of a city. As in Shlink.
pub const CONDITION_TEXT_CHARS_MAX: usize = 255;

/// Maximum number of bytes of all redirect rules of a link in their stored form: every copy of its record contains
/// them, in Redis as well.
pub const REDIRECT_RULES_LEN_MAX: usize = 16 * 1024;

/// Bytes of `User-Agent` that redirect rules read. Every browser names its platform within the first hundred.
pub const RULE_AGENT_LEN_MAX: usize = 512;

/// Languages of `Accept-Language` that redirect rules read. Browsers send at most a dozen.
pub const RULE_LANGUAGES_MAX: usize = 32;

/// Bytes of `Accept-Language` that redirect rules read: several times as many as browsers send. Each condition on a
/// language reads them again.
pub const RULE_LANGUAGES_LEN_MAX: usize = 1_024;

/// Parameters of a query that redirect rules read.
pub const RULE_QUERY_PARAMETERS_MAX: usize = 128;
