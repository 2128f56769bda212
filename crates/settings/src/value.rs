//! Parsers of setting values, one for each kind.

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use carom_shards::{CodeLength, CodeSecret};

use super::ListSource;
use super::problem::{InvalidValue, ValueSource, quoted};
use carom_limits::SEARCH_MEMORY_MIN;
use carom_model::clients::forwarded::Field;
use carom_model::clients::networks::Network;
use carom_model::destination::hosts::{HostPattern, host_of};
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::{Domain, DomainName, Targets, UnknownHost};

/// A value as a source wrote it, not yet parsed.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Written {
    /// Text from the environment or a flag, which may also mean a number or a boolean.
    Word(String),
    /// A string in the file.
    Text(String),
    /// An integer in the file, in decimal.
    Integer(String),
    /// A boolean in the file.
    Bool(bool),
    /// A list in the file, or a repeated flag: each element has its own source.
    List(Vec<Found>),
    /// A TOML type that no setting accepts, by its name.
    Other(&'static str),
}

/// A value and its source.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Found {
    pub(super) written: Written,
    pub(super) source: ValueSource,
}

/// The beginning of short URLs: scheme, host and port, without a trailing slash.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BaseUrl(String);

impl BaseUrl {
    /// Returns the URL, for example `https://example.org`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The format of log lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// JSON for programs.
    Json,
}

impl LogFormat {
    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        if self == LogFormat::Json { "json" } else { "text" }
    }
}

/// Reads a log format.
pub(super) fn log_format(written: &Written) -> Result<LogFormat, InvalidValue> {
    let name = text(written)?.trim();
    let known =
        [LogFormat::Text, LogFormat::Json].into_iter().find(|format| format.as_str().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        InvalidValue::new(format!("{} is neither text nor json", quoted(name)), "write \"text\" or \"json\"")
    })
}

/// Reads a host name, and converts it to lower case.
pub(super) fn host_name(text: &str) -> Result<String, InvalidValue> {
    let name = text.trim().to_ascii_lowercase();
    let is_fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(is_fit) {
        let wrong = format!("{} is not a host name", quoted(text));
        return Err(InvalidValue::new(wrong, "write a host name without scheme and port, such as carom1.example"));
    }
    Ok(name)
}

/// The log level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// Also events that may need an operator.
    Warn,
    /// Also ordinary events, a few lines an hour.
    Info,
    /// Also details of events.
    Debug,
    /// All messages.
    Trace,
}

impl LogLevel {
    const ALL: [LogLevel; 5] = [LogLevel::Error, LogLevel::Warn, LogLevel::Info, LogLevel::Debug, LogLevel::Trace];

    /// Returns the name in the settings, which `tracing-subscriber` accepts as a filter, too.
    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}

impl Written {
    fn type_name(&self) -> &'static str {
        match self {
            Written::Word(_) | Written::Text(_) => "text",
            Written::Integer(_) => "a number",
            Written::Bool(_) => "a boolean",
            Written::List(_) => "a list",
            Written::Other(name) => name,
        }
    }
}

/// Reads a text that is not empty.
pub(super) fn text(written: &Written) -> Result<&str, InvalidValue> {
    const RIGHT: &str = "write text in quotes";
    match written {
        Written::Word(text) | Written::Text(text) if text.is_empty() => Err(InvalidValue::new("is empty", RIGHT)),
        Written::Word(text) | Written::Text(text) => Ok(text),
        other => Err(InvalidValue::new(format!("is {}", other.type_name()), RIGHT)),
    }
}

/// Reads the path of a file or directory.
pub(super) fn path(written: &Written) -> Result<PathBuf, InvalidValue> {
    let name = text(written)?;
    if name.contains('\0') {
        return Err(InvalidValue::new("contains a zero byte", "write a path without zero bytes"));
    }
    Ok(PathBuf::from(name))
}

/// Reads a boolean.
pub(super) fn boolean(written: &Written) -> Result<bool, InvalidValue> {
    match written {
        Written::Bool(truth) => Ok(*truth),
        Written::Word(word) => match word.trim().to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err(InvalidValue::new(format!("{} is neither true nor false", quoted(word)), "write true or false")),
        },
        other => Err(InvalidValue::new(format!("is {}", other.type_name()), "write true or false")),
    }
}

/// Reads an integer from `least` to `most`.
pub(super) fn integer(written: &Written, least: u64, most: u64) -> Result<u64, InvalidValue> {
    let right = || format!("write a whole number from {least} to {most}");
    let digits = match written {
        Written::Integer(digits) => digits,
        Written::Word(word) => word.trim(),
        Written::Text(text) => {
            return Err(InvalidValue::new(
                format!("{} is text; expected a number", quoted(text)),
                right() + " without quotes",
            ));
        }
        other => return Err(InvalidValue::new(format!("is {}", other.type_name()), right())),
    };
    match digits.parse::<u64>() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        Ok(number) if number < least => Err(InvalidValue::new(format!("{number} is too small"), right())),
        Ok(number) => Err(InvalidValue::new(format!("{number} is too large"), right())),
        Err(_) if digits.parse::<i128>().is_ok() => {
            Err(InvalidValue::new(format!("{} is out of range", quoted(digits)), right()))
        }
        Err(_) => Err(InvalidValue::new(format!("{} is not a whole number", quoted(digits)), right())),
    }
}

/// Reads the length of new codes. Shorter codes exist, but could be guessed.
pub(super) fn code_length(written: &Written) -> Result<CodeLength, InvalidValue> {
    let characters = integer(written, 6, CodeLength::MAX.get() as u64)?;
    CodeLength::new(characters as usize).ok_or_else(|| {
        InvalidValue::new(format!("{characters} is not a valid code length"), "write a number from 6 to 10")
    })
}

/// Reads the residency: true if only links in use are kept in memory.
pub(super) fn is_hot(written: &Written) -> Result<bool, InvalidValue> {
    match text(written)?.trim() {
        "all" => Ok(false),
        "hot" => Ok(true),
        other => {
            Err(InvalidValue::new(format!("{} is neither all nor hot", quoted(other)), "write \"all\" or \"hot\""))
        }
    }
}

/// Units of sizes, binary and then decimal, each the largest first. The decimal ones are accepted as well, because
/// people often write them for the binary ones.
const UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

/// Reads a size of at least `least` bytes.
pub(super) fn size(written: &Written, least: u64) -> Result<u64, InvalidValue> {
    let right = || format!("write a size of at least {}, such as 512MiB or 8GiB", show_size(least));
    let text = match written {
        Written::Integer(digits) => digits,
        other => text(other)?,
    };
    let text = text.trim();
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(text.len() - digits);
    let unit = unit.trim();
    let factor = match unit {
        "" => Some(1),
        unit => UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor),
    };
    let Some((number, factor)) = number.parse::<u64>().ok().zip(factor) else {
        return Err(InvalidValue::new(format!("{} is not a size", quoted(text)), right()));
    };
    match number.checked_mul(factor) {
        Some(bytes) if bytes >= least => Ok(bytes),
        Some(_) => Err(InvalidValue::new(format!("{} is too small", quoted(text)), right())),
        None => Err(InvalidValue::new(format!("{} is too large", quoted(text)), right())),
    }
}

/// Reads the memory for searches in bytes, or `off` for 0.
pub(super) fn search_memory(written: &Written) -> Result<u64, InvalidValue> {
    match written {
        Written::Text(text) | Written::Word(text) if text.trim() == "off" => Ok(0),
        other => {
            let or_off = |wrong: InvalidValue| InvalidValue { right: format!("{}, or \"off\"", wrong.right), ..wrong };
            size(other, SEARCH_MEMORY_MIN).map_err(or_off)
        }
    }
}

/// Reads a size from `least` to `most` bytes.
pub(super) fn size_within(written: &Written, least: u64, most: u64) -> Result<u64, InvalidValue> {
    match size(written, least)? {
        bytes if bytes <= most => Ok(bytes),
        bytes => Err(InvalidValue::new(
            format!("{} is too large", show_size(bytes)),
            format!("write a size of at most {}", show_size(most)),
        )),
    }
}

/// Formats a size so that [`size`] can read it.
pub(super) fn show_size(bytes: u64) -> String {
    let binary = UNITS[..4].iter().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor));
    binary.map_or_else(|| bytes.to_string(), |(name, factor)| format!("{}{name}", bytes / factor))
}

/// Units of times, each with its seconds.
const TIME_UNITS: [(char, u64); 4] = [('d', 86_400), ('h', 3_600), ('m', 60), ('s', 1)];

/// Longest time in seconds: ten years, longer than anybody would wait.
const WINDOW_MAX: u64 = 3_650 * 86_400;

/// Reads a time, or `off`.
pub(super) fn window(written: &Written) -> Result<Option<Duration>, InvalidValue> {
    span(written, "off")
}

/// Reads a time, or `forever`.
pub(super) fn kept(written: &Written) -> Result<Option<Duration>, InvalidValue> {
    span(written, "forever")
}

/// Reads a time from 0 to an hour.
pub(super) fn delay(written: &Written) -> Result<Duration, InvalidValue> {
    const RIGHT: &str = "write a time from \"0s\" to \"1h\", such as \"10s\"";
    let time = span(written, "0s").map_err(|wrong| InvalidValue { right: RIGHT.into(), ..wrong })?.unwrap_or_default();
    match time.as_secs() {
        0..=3_600 => Ok(time),
        _ => Err(InvalidValue::new(format!("{} is more than an hour", quoted(&window_text(time))), RIGHT)),
    }
}

/// Reads a time, or a word for no limit.
fn span(written: &Written, word: &str) -> Result<Option<Duration>, InvalidValue> {
    let right = format!("write \"{word}\", or a time such as \"90s\", \"30m\", \"12h\" or \"1d\"");
    let text = match written {
        Written::Integer(digits) => return Err(InvalidValue::new(format!("{} has no unit", quoted(digits)), right)),
        written => text(written).map_err(|wrong| InvalidValue { right: right.clone(), ..wrong })?.trim(),
    };
    if text.eq_ignore_ascii_case(word) {
        return Ok(None);
    }
    let unit = |(unit, seconds)| text.strip_suffix(unit).map(|number| (number, seconds));
    let Some((number, unit)) = TIME_UNITS.into_iter().find_map(unit) else {
        return Err(InvalidValue::new(format!("{} is not a time", quoted(text)), right));
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(seconds @ 1..=WINDOW_MAX) => Ok(Some(Duration::from_secs(seconds))),
        Some(0) => Err(InvalidValue::new(format!("{} is zero", quoted(text)), right)),
        Some(_) => Err(InvalidValue::new(format!("{} is longer than ten years", quoted(text)), right)),
        None => Err(InvalidValue::new(format!("{} is not a time", quoted(text)), right)),
    }
}

/// Formats a time as in settings.
pub(super) fn window_text(window: Duration) -> String {
    let seconds = window.as_secs();
    let fits = TIME_UNITS.into_iter().find(|(_, unit)| seconds.is_multiple_of(*unit));
    let (unit, in_seconds) = fits.unwrap_or(('s', 1));
    format!("{}{unit}", seconds / in_seconds)
}

/// Reads a log level.
pub(super) fn log_level(written: &Written) -> Result<LogLevel, InvalidValue> {
    let name = text(written)?.trim();
    let known = LogLevel::ALL.into_iter().find(|level| level.as_str().eq_ignore_ascii_case(name));
    known.ok_or_else(|| {
        InvalidValue::new(format!("{} is not a log level", quoted(name)), "write error, warn, info, debug or trace")
    })
}

/// Reads a code secret. Messages never quote it.
pub(super) fn space_key(written: &Written) -> Result<CodeSecret, InvalidValue> {
    let wrong =
        |reason: String| InvalidValue::new(reason, "write 64 hexadecimal digits, as printed by `carom key new`");
    let digits = text(written).map_err(|_| wrong("is not text".into()))?;
    CodeSecret::from_hex(digits).map_err(|error| wrong(error.to_string()))
}

/// Reads a base URL.
pub(super) fn base_url(written: &Written) -> Result<BaseUrl, InvalidValue> {
    let written = text(written)?.trim();
    let wrong = |reason: &str| {
        Err(InvalidValue::new(format!("{} {reason}", quoted(written)), "write a URL such as https://example.org"))
    };
    let lower = written.to_ascii_lowercase();
    if !lower.starts_with("http://") && !lower.starts_with("https://") {
        return wrong("does not start with http:// or https://");
    }
    let url = match url::Url::parse(written) {
        Ok(url) => url,
        Err(reason) => return wrong(&format!("is not a URL: {reason}")),
    };
    if url.host_str().is_none_or(str::is_empty) {
        return wrong("has no host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return wrong("contains a user name or password, which every short URL would reveal");
    }
    if url.query().is_some() || url.fragment().is_some() {
        return wrong("has a query or fragment");
    }
    if url.path() != "/" {
        return wrong("has a path; in short URLs, the code directly follows the host");
    }
    Ok(BaseUrl(url.as_str().trim_end_matches('/').to_owned()))
}

/// Splits a list into its texts: the elements of an array or of a repeated flag, and the parts between commas in a
/// text.
pub(super) fn items(found: &Found) -> Vec<Result<(String, ValueSource), (InvalidValue, ValueSource)>> {
    match &found.written {
        Written::List(list) => list.iter().flat_map(items).collect(),
        written => match text(written) {
            Ok(text) => text.split(',').map(|item| Ok((item.trim().to_owned(), found.source.clone()))).collect(),
            Err(wrong) => vec![Err((wrong, found.source.clone()))],
        },
    }
}

/// A selection of listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Chosen {
    /// No listener.
    Off,
    /// All listeners.
    All,
    /// The listener with this address.
    At(SocketAddr),
}

/// Reads an item of the listeners that require a PROXY header.
pub(super) fn proxied(text: &str) -> Result<Chosen, InvalidValue> {
    match text {
        "off" => Ok(Chosen::Off),
        "require" => Ok(Chosen::All),
        text => text.parse().map(Chosen::At).map_err(|_| {
            let reason = format!("{} is neither off, require, nor an address", quoted(text));
            InvalidValue::new(reason, "write \"off\", \"require\", or addresses of listen")
        }),
    }
}

/// Reads an item of the listeners that use TLS.
pub(super) fn secure(text: &str) -> Result<Chosen, InvalidValue> {
    if text == "all" {
        return Ok(Chosen::All);
    }
    text.parse().map(Chosen::At).map_err(|_| {
        let reason = format!("{} is neither all nor an address", quoted(text));
        InvalidValue::new(reason, "write \"all\" or addresses of listen")
    })
}

/// Reads the path of a file in a list.
pub(super) fn file(text: &str) -> Result<PathBuf, InvalidValue> {
    if text.trim().is_empty() {
        return Err(InvalidValue::new("is empty", "write the path of a file"));
    }
    Ok(PathBuf::from(text))
}

/// Reads the field in which proxies name the client.
pub(super) fn forwarded_field(written: &Written) -> Result<Field, InvalidValue> {
    let text = text(written)?.trim();
    Field::ALL.into_iter().find(|field| field.as_str().eq_ignore_ascii_case(text)).ok_or_else(|| {
        let reason = format!("{} is not off, x-forwarded-for or forwarded", quoted(text));
        InvalidValue::new(reason, "write the header that your proxies set")
    })
}

/// Reads a network of addresses.
pub(super) fn network(text: &str) -> Result<Network, InvalidValue> {
    let right = "write an IP address, or a network such as 10.0.0.0/8";
    Network::parse(text).map_err(|error| InvalidValue::new(format!("{} {error}", quoted(text)), right))
}

/// Reads a domain: its base URL, then its redirect targets for requests that find no link.
pub(super) fn domain(text: &str) -> Result<Domain, InvalidValue> {
    const RIGHT: &str = "write https://go.example, optionally followed by home=URL, not_found=URL and expired=URL";
    let mut words = text.split_ascii_whitespace();
    let base_url = base_url(&Written::Word(words.next().unwrap_or_default().to_owned()))?;
    let host = host_of(base_url.as_str().as_bytes());
    let name = DomainName::parse(host).map_err(|why| InvalidValue::new(format!("{} {why}", quoted(host)), RIGHT))?;
    let mut targets = Targets::default();
    for word in words {
        let wrong = |reason: String| InvalidValue::new(format!("{} {reason}", quoted(word)), RIGHT);
        let (which, url) = word.split_once('=').ok_or_else(|| wrong("is not home=, not_found= or expired=".into()))?;
        let target = match which {
            "home" => &mut targets.home,
            "not_found" => &mut targets.not_found,
            "expired" => &mut targets.expired,
            _ => return Err(wrong("is not home=, not_found= or expired=".into())),
        };
        let url = LongUrl::parse(url, &[]).map_err(|error| wrong(format!("has a URL that {error}")))?;
        if target.replace(url.into()).is_some() {
            return Err(wrong(format!("contains {which}= twice")));
        }
    }
    Ok(Domain { name, base_url: base_url.as_str().to_owned(), targets })
}

/// Formats a domain so that [`domain`] can read it.
pub(super) fn domain_text(domain: &Domain) -> String {
    let Targets { home, not_found, expired } = &domain.targets;
    let targets = [("home", home), ("not_found", not_found), ("expired", expired)];
    let targets = targets.into_iter().filter_map(|(name, url)| Some(format!(" {name}={}", url.as_ref()?)));
    std::iter::once(domain.base_url.clone()).chain(targets).collect()
}

/// Returns the conflict of a domain with others. `other` is an earlier domain with the same ID, `default` the default
/// domain, and `own` all hosts of the service, whatever their ports are.
pub(super) fn wrong_with_domain(
    domain: &Domain,
    other: Option<&Domain>,
    default: Option<&BaseUrl>,
    own: &HashSet<String>,
) -> Vec<InvalidValue> {
    let mut all = Vec::new();
    if let Some(other) = other {
        let reason = match other.name == domain.name {
            true => format!("{} is listed twice", domain.name),
            false => format!(
                "{} and {} have the same 48-bit hash, by which carom distinguishes domains",
                domain.name, other.name
            ),
        };
        all.push(InvalidValue::new(reason, "remove one of the two"));
    }
    if let Some(default) = default
        && host_of(default.as_str().as_bytes()) == domain.name.as_str()
        && default.as_str() != domain.base_url
    {
        let reason = format!("{} is the host of base_url, but base_url is {default}", domain.base_url);
        all.push(InvalidValue::new(reason, "write the same scheme and port in both"));
    }
    let Targets { home, not_found, expired } = &domain.targets;
    for (which, url) in [("home", home), ("not_found", not_found), ("expired", expired)] {
        if let Some(url) = url.as_ref().filter(|url| own.contains(host_of(url.as_bytes()))) {
            let reason = format!("{which}={url} is on a host of this service, so the redirect would loop");
            all.push(InvalidValue::new(reason, "use a page on another server"));
        }
    }
    all
}

/// Reads the response to a request for an unknown host.
pub(super) fn unknown_host(written: &Written) -> Result<UnknownHost, InvalidValue> {
    match text(written)?.trim() {
        "not_found" => Ok(UnknownHost::NotFound),
        "misdirected" => Ok(UnknownHost::Misdirected),
        other => {
            let wrong = format!("{} is neither not_found nor misdirected", quoted(other));
            Err(InvalidValue::new(wrong, "write \"not_found\" or \"misdirected\""))
        }
    }
}

/// Reads a host, or a pattern for all hosts below one.
pub(super) fn host(text: &str) -> Result<HostPattern, InvalidValue> {
    let right = "write a host such as shop.example, or *.shop.example for all its subdomains";
    HostPattern::parse(text).map_err(|error| InvalidValue::new(format!("{} {error}", quoted(text)), right))
}

/// Reads the source of the dynamic part of a list of hosts.
pub(super) fn list_source(written: &Written) -> Result<ListSource, InvalidValue> {
    let text = text(written)?;
    let wrong = |reason: &str| {
        Err(InvalidValue::new(
            format!("{} {reason}", quoted(text)),
            "write a file, an http:// or https:// URL, or redis",
        ))
    };
    match text.split_once("://") {
        None if text == "redis" => Ok(ListSource::Redis),
        None => Ok(ListSource::File(path(written)?)),
        Some(("http" | "https", _)) => match url::Url::parse(text) {
            Err(_) => wrong("is not a URL"),
            // The password would appear among the settings and in alarms.
            Ok(url) if !url.username().is_empty() || url.password().is_some() => {
                Err(InvalidValue::new("contains a user name or password", "use a URL without credentials"))
            }
            Ok(url) => Ok(ListSource::Http(url.into())),
        },
        Some(_) => wrong("starts with neither http:// nor https://"),
    }
}

/// Reads an IP address and a port. Names are not resolved: a name server could change the networks that can reach the
/// node.
pub(super) fn address(text: &str) -> Result<SocketAddr, InvalidValue> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.strip_prefix(':').unwrap_or(text);
    let (reason, right) = if text.is_empty() {
        ("is empty".to_owned(), "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080".to_owned())
    } else if port.parse::<u16>().is_ok() {
        (
            format!("{} has no IP address", quoted(text)),
            format!("write 127.0.0.1:{port}, or 0.0.0.0:{port} for all addresses"),
        )
    } else if let Ok(ip) = text.trim_matches(['[', ']']).parse::<std::net::IpAddr>() {
        (format!("{} has no port", quoted(text)), format!("write {}", SocketAddr::new(ip, 8080)))
    } else if let Some(port) = text.strip_prefix("localhost:").filter(|port| port.parse::<u16>().is_ok()) {
        (format!("{} is a name", quoted(text)), format!("write 127.0.0.1:{port} or [::1]:{port}"))
    } else {
        (
            format!("{} is not an address", quoted(text)),
            "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
        )
    };
    Err(InvalidValue::new(reason, right))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(text: &str) -> Written {
        Written::Word(text.to_owned())
    }

    #[test]
    fn addresses_of_both_families_are_read() {
        assert_eq!(address("127.0.0.1:0").unwrap(), SocketAddr::from(([127, 0, 0, 1], 0)));
        assert!(address(" [::1]:8080 ").unwrap().is_ipv6());
    }

    #[test]
    fn a_wrong_address_is_answered_with_the_right_one() {
        for (wrong, right) in [
            ("8080", "write 127.0.0.1:8080, or 0.0.0.0:8080 for all addresses"),
            (":80", "write 127.0.0.1:80, or 0.0.0.0:80 for all addresses"),
            ("10.0.0.1", "write 10.0.0.1:8080"),
            ("::1", "write [::1]:8080"),
            ("[::1]", "write [::1]:8080"),
            ("localhost:99", "write 127.0.0.1:99 or [::1]:99"),
            ("localhost:99999", "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
            ("", "write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080"),
        ] {
            assert_eq!(address(wrong).unwrap_err().right, right, "{wrong}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (written, bytes) in
            [("1048576", 1 << 20), ("1MiB", 1 << 20), (" 2 gib ", 2 << 30), ("3GB", 3_000_000_000), ("700kB", 700_000)]
        {
            assert_eq!(size(&word(written), 1).unwrap(), bytes, "{written}");
            assert_eq!(size(&word(&show_size(bytes)), 1).unwrap(), bytes);
        }
        for wrong in ["", "MiB", "-1", "1.5GiB", "5 parsecs", "0", "18446744073709551616"] {
            assert!(size(&word(wrong), 1).is_err(), "{wrong}");
        }
    }

    #[test]
    fn base_urls_keep_scheme_host_and_port_only() {
        for (written, kept) in [
            ("https://Example.ORG", "https://example.org"),
            ("http://example.org:80/", "http://example.org"),
            ("http://[::1]:8080", "http://[::1]:8080"),
            ("https://bücher.example", "https://xn--bcher-kva.example"),
        ] {
            assert_eq!(base_url(&word(written)).unwrap().as_str(), kept);
        }
        for wrong in [
            "example.org",
            "ftp://example.org",
            "http:example.org",
            "http://",
            "http://u:p@example.org",
            "http://example.org/s",
            "http://example.org/?",
            "http://example.org/#a",
            "",
        ] {
            assert!(base_url(&word(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn numbers_are_bounded_and_typed() {
        assert_eq!(integer(&word("7"), 6, 10), Ok(7));
        assert_eq!(integer(&Written::Integer("10".into()), 6, 10), Ok(10));
        for wrong in ["5", "11", "-1", "7.5", "", "99999999999999999999999", "seven"] {
            assert!(integer(&word(wrong), 6, 10).is_err(), "{wrong}");
        }
        assert!(integer(&Written::Text("7".into()), 6, 10).unwrap_err().right.ends_with("without quotes"));
        assert!(integer(&Written::Bool(true), 0, 1).is_err());
    }

    #[test]
    fn windows_have_units() {
        for (written, seconds) in [("off", None), ("OFF", None), ("90s", Some(90)), ("30m", Some(1_800))]
            .into_iter()
            .chain([("12h", Some(43_200)), ("1d", Some(86_400)), ("3650d", Some(WINDOW_MAX)), ("61m", Some(3_660))])
        {
            let read = window(&word(written)).unwrap();
            assert_eq!(read.map(|window| window.as_secs()), seconds, "{written}");
            let text = read.map_or("off".to_owned(), window_text);
            assert_eq!(window(&Written::Text(text)).unwrap(), read);
        }
        assert_eq!(window_text(Duration::from_secs(90 * 60)), "90m");
        for wrong in ["", "0s", "d", "1", "1w", "-1d", "1.5h", "1 d", "99999999999999999d", "3651d", "1ä", "1dd"] {
            assert!(window(&word(wrong)).is_err(), "{wrong}");
        }
        assert!(window(&Written::Integer("5".into())).unwrap_err().reason.contains("no unit"));
        assert!(window(&Written::Bool(false)).is_err());
    }

    #[test]
    fn truths_are_few() {
        assert_eq!(boolean(&word("TRUE")), Ok(true));
        assert_eq!(boolean(&word("0")), Ok(false));
        assert!(boolean(&word("yes")).is_err());
        assert!(boolean(&Written::Text("true".into())).is_err());
    }

    #[test]
    fn a_secret_is_in_no_message() {
        let key = "0123456789abcdef".repeat(4);
        let read = space_key(&word(&format!("{key}\n"))).unwrap();
        assert_eq!(read.to_hex(), key);
        assert!(!format!("{read:?}").contains(&key));
        for wrong in [&key[1..], "geheim", ""] {
            let message = format!("{:?}", space_key(&word(wrong)).unwrap_err());
            assert!(wrong.is_empty() || !message.contains(wrong), "{message}");
        }
    }
}
