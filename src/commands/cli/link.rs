//! The grammar of `carom link`.

use std::num::{NonZeroU16, NonZeroU32};

use clap::{Args, Subcommand, ValueEnum};

use super::api::ApiPlace;
use super::days::DAY_END;
use carom_limits::LIST_PER_PAGE_MAX;
use carom_model::formats::dates;
use carom_telemetry::clock::unix_ms;

/// The subcommands of `carom link`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum LinkCommand {
    /// Create a link and print its short URL.
    Create(Box<LinkCreateArgs>),
    /// List or search links, newest first.
    List(Box<LinkListArgs>),
    /// Show a link with all its properties.
    Show(LinkShowArgs),
    /// Change properties of a link; the others keep their values.
    Edit(Box<LinkEditArgs>),
    /// Delete links. For ten minutes, `carom link restore` undoes it.
    Delete(LinkDeleteArgs),
    /// Bring links back that are archived, or that were deleted less than ten minutes ago.
    Restore(LinkRestoreArgs),
    /// Show the visits of a link by day, referrer, country, browser and so on.
    Stats(LinkStatsArgs),
}

/// A link: its slug, or its whole short URL.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkPlace {
    /// Slug or short URL of the link
    #[arg(value_name = "LINK")]
    pub link: String,
    /// Domain of the slug, or DEFAULT for the default domain
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,
}

/// Links: their slugs, or their whole short URLs.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkPlaces {
    /// Slugs or short URLs of the links
    #[arg(value_name = "LINK", required = true)]
    pub links: Vec<String>,
    /// Domain of the slugs, or DEFAULT for the default domain
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,
}

/// The properties of a link that can be set and changed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
pub struct LinkFields {
    /// Title
    #[arg(long, value_name = "TEXT")]
    pub title: Option<String>,
    /// Tag; can be repeated. In a change, the tags replace all others
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Start: a date (from 00:00 UTC), a day such as monday, a date and time, or a time from now such as 12h
    #[arg(long = "starts", alias = "valid-since", value_name = "DATE", value_parser = later)]
    pub valid_since: Option<String>,
    /// Expiry: a date (until its end in UTC), a day such as friday, a date and time, or a time from now such as 30d
    #[arg(long = "expires", alias = "valid-until", value_name = "DATE", value_parser = later_end)]
    pub valid_until: Option<String>,
    /// Number of visits after which the link returns 410
    #[arg(long, value_name = "N")]
    pub max_visits: Option<NonZeroU32>,
    /// Status of the redirect: 301, 302, 303, 307 or 308
    #[arg(long, value_name = "STATUS")]
    pub status: Option<u16>,
    /// Seconds for which clients may cache the redirect
    #[arg(long, value_name = "N")]
    pub cache_seconds: Option<u32>,
    /// Forward the query to the destination: true or false
    #[arg(long, value_name = "BOOL", hide_possible_values = true)]
    pub forward_query: Option<bool>,
    /// Allow crawlers in robots.txt: true or false
    #[arg(long, value_name = "BOOL", hide_possible_values = true)]
    pub crawlable: Option<bool>,
}

/// Options of `carom link create`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkCreateArgs {
    /// Destination, such as https://example.com/a/long/way; without a scheme, https:// is put before it
    #[arg(value_name = "DESTINATION")]
    pub long_url: String,
    /// Slug [default: a generated one]
    #[arg(long, value_name = "SLUG", conflicts_with = "private")]
    pub slug: Option<String>,
    /// Domain of the link [default: the default domain]
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,
    /// The properties that a change may have as well.
    #[command(flatten)]
    pub fields: LinkFields,
    /// Generate a slug of 16 random characters, practically impossible to guess
    #[arg(long)]
    pub private: bool,
    /// Return an existing link with these properties, if there is one
    #[arg(long)]
    pub find_if_exists: bool,
    /// Also print the short URL as a QR code
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
    /// JSON output, as the API returns it.
    #[arg(long)]
    pub json: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link list`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkListArgs {
    /// Text to search for in destinations, slugs, titles, tags and names of domains [default: all links]
    #[arg(value_name = "TEXT")]
    pub search: Option<String>,
    /// Only links with this tag; can be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub tags: Vec<String>,
    /// Only links with all of the tags, instead of any
    #[arg(long, requires = "tags")]
    pub all_tags: bool,
    /// Only links of this domain, or of DEFAULT, the default domain
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,
    /// Only links in this state
    #[arg(long, value_name = "STATE", value_enum)]
    pub state: Option<ListedState>,
    /// Order of the links
    #[arg(long, value_name = "ORDER", value_enum, default_value_t = LinkOrder::Newest)]
    pub order: LinkOrder,
    /// Links on a page, 1 to 500
    #[arg(long, value_name = "N", value_parser = page_len, default_value = "20")]
    pub limit: NonZeroU16,
    /// Page number
    #[arg(long, value_name = "N", default_value = "1")]
    pub page: NonZeroU32,
    /// Cursor of the next page, as the previous page printed it
    #[arg(long, value_name = "CURSOR", conflicts_with = "page")]
    pub cursor: Option<String>,
    /// JSON output, as the API returns it.
    #[arg(long)]
    pub json: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link show`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkShowArgs {
    /// The link.
    #[command(flatten)]
    pub link: LinkPlace,
    /// Also print the short URL as a QR code
    #[arg(long, conflicts_with = "json")]
    pub qr: bool,
    /// JSON output, as the API returns it.
    #[arg(long)]
    pub json: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link edit`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkEditArgs {
    /// The link.
    #[command(flatten)]
    pub link: LinkPlace,
    /// New destination
    #[arg(long, value_name = "URL")]
    pub destination: Option<String>,
    /// The properties that a create may have as well.
    #[command(flatten)]
    pub fields: LinkFields,
    /// Take the link offline until it is false again: true or false
    #[arg(long, value_name = "BOOL", hide_possible_values = true)]
    pub archived: Option<bool>,
    /// Remove a value; can be repeated
    #[arg(long = "clear", value_name = "FIELD", value_enum)]
    pub cleared: Vec<ClearedField>,
    /// JSON output, as the API returns it.
    #[arg(long)]
    pub json: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link delete`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkDeleteArgs {
    /// The links.
    #[command(flatten)]
    pub links: LinkPlaces,
    /// Delete at once and without asking; this cannot be undone
    #[arg(long, short)]
    pub yes: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link restore`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkRestoreArgs {
    /// The links.
    #[command(flatten)]
    pub links: LinkPlaces,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// Options of `carom link stats`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LinkStatsArgs {
    /// The link.
    #[command(flatten)]
    pub link: LinkPlace,
    /// Start of the period: a date, a day such as monday, or a time until now such as 7d
    #[arg(long, value_name = "DATE", value_parser = earlier)]
    pub since: Option<String>,
    /// End of the period: a date (with the whole day), a day such as friday, or a time until now such as 1d
    #[arg(long, value_name = "DATE", value_parser = earlier_end)]
    pub until: Option<String>,
    /// Leave out visits of bots in the lists
    #[arg(long)]
    pub no_bots: bool,
    /// Values in each list
    #[arg(long, value_name = "N", value_parser = page_len, default_value = "5")]
    pub limit: NonZeroU16,
    /// JSON output, as the API returns it.
    #[arg(long)]
    pub json: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}

/// The order of a list of links.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LinkOrder {
    /// By creation, the newest first.
    Newest,
    /// By creation, the oldest first.
    Oldest,
    /// By slug.
    #[value(name = "slug", alias = "code")]
    Code,
    /// By destination.
    Destination,
    /// By title.
    Title,
    /// By visits, the most visited first.
    Visits,
}

impl LinkOrder {
    /// Returns the order as the API calls it.
    pub fn parameter(self) -> &'static str {
        match self {
            LinkOrder::Newest => "dateCreated-DESC",
            LinkOrder::Oldest => "dateCreated-ASC",
            LinkOrder::Code => "shortCode-ASC",
            LinkOrder::Destination => "longUrl-ASC",
            LinkOrder::Title => "title-ASC",
            LinkOrder::Visits => "visits-DESC",
        }
    }
}

/// The state of links in a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ListedState {
    /// Redirects.
    Active,
    /// Not started.
    Scheduled,
    /// Past the expiry.
    Expired,
    /// Taken offline.
    Archived,
    /// The visit limit is reached.
    UsedUp,
}

impl ListedState {
    /// Returns the state as the API calls it.
    pub fn parameter(self) -> &'static str {
        match self {
            ListedState::Active => "active",
            ListedState::Scheduled => "scheduled",
            ListedState::Expired => "ended",
            ListedState::Archived => "archived",
            ListedState::UsedUp => "usedUp",
        }
    }
}

/// A property that a change can remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ClearedField {
    /// The title.
    Title,
    /// All tags.
    Tags,
    /// The start date.
    #[value(name = "starts", alias = "valid-since")]
    ValidSince,
    /// The expiry.
    #[value(name = "expires", alias = "valid-until")]
    ValidUntil,
    /// The visit limit.
    MaxVisits,
    /// The caching of the redirect.
    CacheSeconds,
}

impl ClearedField {
    /// Returns the field as the API calls it.
    pub fn field(self) -> &'static str {
        match self {
            ClearedField::Title => "title",
            ClearedField::Tags => "tags",
            ClearedField::ValidSince => "validSince",
            ClearedField::ValidUntil => "validUntil",
            ClearedField::MaxVisits => "maxVisits",
            ClearedField::CacheSeconds => "cacheSeconds",
        }
    }
}

/// Time of day at which a date begins that is the start of something.
const DAY_BEGIN: &str = "T00:00:00Z";

/// Length of a day, in milliseconds.
const DAY_MS: u64 = 86_400_000;

/// The days of a week. The first one is that of 1970-01-01.
const WEEK: [&str; 7] = ["thursday", "friday", "saturday", "sunday", "monday", "tuesday", "wednesday"];

/// The direction in which a distance or the name of a day counts, from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Direction {
    Later,
    Earlier,
}

/// Parses an instant: the beginning of a date or of the next day with a name, a date and time, or a time from now.
fn later(text: &str) -> Result<String, String> {
    instant(text, DAY_BEGIN, Direction::Later)
}

/// Parses an instant: the end of a date or of the next day with a name, a date and time, or a time from now.
fn later_end(text: &str) -> Result<String, String> {
    instant(text, DAY_END, Direction::Later)
}

/// Parses an instant: the beginning of a date or of the last day with a name, a date and time, or a time until now.
fn earlier(text: &str) -> Result<String, String> {
    instant(text, DAY_BEGIN, Direction::Earlier)
}

/// Parses an instant: the end of a date or of the last day with a name, a date and time, or a time until now.
fn earlier_end(text: &str) -> Result<String, String> {
    instant(text, DAY_END, Direction::Earlier)
}

/// Parses an instant. `time_of_day` is that of a date without one.
fn instant(text: &str, time_of_day: &str, direction: Direction) -> Result<String, String> {
    let now_ms = unix_ms();
    let text = named_day(text, now_ms, direction).unwrap_or_else(|| text.to_owned());
    let ms = match span_ms(&text) {
        Some(span_ms) if direction == Direction::Later => now_ms.checked_add(span_ms),
        Some(span_ms) => now_ms.checked_sub(span_ms),
        None if text.len() == 10 => dates::parse(&format!("{text}{time_of_day}")).ok(),
        None => dates::parse(&text).ok(),
    };
    ms.map(|ms| dates::format(dates::whole_second(ms))).ok_or_else(|| {
        "expected a date such as 2030-01-31 or 2030-01-31T12:00:00+01:00, a day such as friday, or a time such as 90m, \
         12h or 30d"
            .to_owned()
    })
}

/// Returns the date of the next or last day with that name in UTC, such as `friday`; `None` for another text. The name
/// of today means the day a week away.
fn named_day(text: &str, now_ms: u64, direction: Direction) -> Option<String> {
    let name = WEEK.iter().position(|name| name.eq_ignore_ascii_case(text))? as u64;
    let today = now_ms / DAY_MS;
    let day = match direction {
        Direction::Later => today + (name + 6 - today % 7) % 7 + 1,
        Direction::Earlier => today.checked_sub((today % 7 + 6 - name) % 7 + 1)?,
    };
    Some(dates::format(day * DAY_MS).chars().take(10).collect())
}

/// Parses a number of minutes, hours, days or weeks.
fn span_ms(text: &str) -> Option<u64> {
    let number = text.strip_suffix(['m', 'h', 'd', 'w'])?;
    let minutes = match text.as_bytes().last()? {
        b'm' => 1,
        b'h' => 60,
        b'd' => 1_440,
        _ => 7 * 1_440,
    };
    let number: u32 = number.parse().ok()?;
    Some(u64::from(number) * minutes * 60_000)
}

/// Parses the number of items on a page.
fn page_len(text: &str) -> Result<NonZeroU16, String> {
    let number = text.parse::<NonZeroU16>().ok().filter(|number| usize::from(number.get()) <= LIST_PER_PAGE_MAX);
    number.ok_or_else(|| format!("expected a whole number from 1 to {LIST_PER_PAGE_MAX}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_dates_or_distances() {
        assert_eq!(later("2030-01-31").unwrap(), dates::format(dates::parse("2030-01-31T00:00:00Z").unwrap()));
        assert_eq!(later("2030-01-31T02:00:00+02:00"), later("2030-01-31"));
        let (before, after) = (earlier("1d").unwrap(), later("1w").unwrap());
        let distance = dates::parse(&after).unwrap() - dates::parse(&before).unwrap();
        assert!((8 * 86_400_000 - 2_000..8 * 86_400_000 + 10_000).contains(&distance), "{before} {after}");
        for wrong in ["", "d", "soon", "2030-02-30", "-1d", "1.5h", "99999999w", "é"] {
            assert!(earlier(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_of_days_are_dates() {
        // A Monday.
        let now_ms = dates::parse("2026-11-30T12:00:00Z").unwrap();
        let next = |name: &str| named_day(name, now_ms, Direction::Later);
        let last = |name: &str| named_day(name, now_ms, Direction::Earlier);
        assert_eq!(next("friday").as_deref(), Some("2026-12-04"));
        assert_eq!(next("Sunday").as_deref(), Some("2026-12-06"));
        assert_eq!(next("monday").as_deref(), Some("2026-12-07"));
        assert_eq!(next("tuesday").as_deref(), Some("2026-12-01"));
        assert_eq!(last("friday").as_deref(), Some("2026-11-27"));
        assert_eq!(last("monday").as_deref(), Some("2026-11-23"));
        assert_eq!(last("sunday").as_deref(), Some("2026-11-29"));
        assert_eq!(next("soon"), None);
        // A day begins and ends with midnight in UTC.
        for (now, expected) in [
            ("2026-12-03T23:59:59Z", ["2026-12-04", "2026-11-27"]),
            ("2026-12-04T00:00:00Z", ["2026-12-11", "2026-11-27"]),
            ("2026-12-04T23:59:59Z", ["2026-12-11", "2026-11-27"]),
            ("2026-12-05T00:00:00Z", ["2026-12-11", "2026-12-04"]),
        ] {
            let now_ms = dates::parse(now).unwrap();
            let found = [Direction::Later, Direction::Earlier].map(|direction| named_day("friday", now_ms, direction));
            assert_eq!(found.each_ref().map(Option::as_deref), expected.map(Some), "{now}");
        }
        assert!(later_end("friday").unwrap().contains("T23:59:59"));
        assert!(earlier("friday").unwrap().contains("T00:00:00"));
    }

    #[test]
    fn a_date_as_an_end_includes_its_day() {
        for ended in [later_end, earlier_end] {
            assert_eq!(ended("2030-01-31"), later("2030-01-31T23:59:59Z"));
            assert_eq!(ended("2030-01-31T02:00:00+02:00"), later("2030-01-31"));
        }
        assert_eq!(earlier("2030-01-31"), later("2030-01-31"));
    }

    #[test]
    fn pages_are_bounded() {
        assert!(page_len("500").is_ok());
        assert!(page_len("1").is_ok());
        assert!(page_len("501").is_err());
        assert!(page_len("0").is_err());
        assert!(page_len("70000").is_err());
    }
}
