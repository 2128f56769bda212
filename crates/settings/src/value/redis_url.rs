//! The URL of Redis: a single server, several servers of a cluster, or the sentinels that watch a master.

use std::fmt;

use percent_encoding::percent_decode_str;

use crate::problem::{InvalidValue, quoted};
use crate::value::{self, Written};

/// Default port of a server.
const PORT: u16 = 6379;

/// Default port of a sentinel.
const SENTINEL_PORT: u16 = 26379;

/// The master that sentinels watch, and the login at the sentinels.
#[derive(Clone, PartialEq, Eq)]
pub struct SentinelService {
    /// The name of the master in the configuration of the sentinels.
    pub service: String,
    /// The user name at the sentinels, if the URL contains one.
    pub username: Option<String>,
    /// The password of the sentinels, if the URL contains one.
    pub password: Option<String>,
}

/// The servers and credentials of Redis. Its `Debug` and `Display` forms hide passwords, and the login at sentinels.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Hosts and ports, at least one. With `sentinel`, those of the sentinels.
    pub servers: Vec<(String, u16)>,
    /// True to use TLS.
    pub tls: bool,
    /// The user name, if the URL contains one.
    pub username: Option<String>,
    /// The password, if the URL contains one.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
    /// The service whose master the sentinels name; `None` for a single server or a cluster.
    pub sentinel: Option<SentinelService>,
}

impl RedisUrl {
    /// True if the URL contains a password, of Redis or of the sentinels.
    pub(crate) fn has_password(&self) -> bool {
        self.password.is_some() || self.sentinel.as_ref().is_some_and(|sentinel| sentinel.password.is_some())
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, service) = match &self.sentinel {
            None => ("", String::new()),
            Some(sentinel) => ("+sentinel", format!("/{}", sentinel.service)),
        };
        let scheme = format!("redis{}{scheme}", if self.tls { "s" } else { "" });
        let user = self.username.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let server = |(host, port): &(String, u16)| {
            if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
        };
        let servers: Vec<String> = self.servers.iter().map(server).collect();
        write!(f, "{scheme}://{user}{}{service}/{}", servers.join(","), self.database)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Advice for a URL of a server or a cluster.
const RIGHT: &str = "write redis://127.0.0.1:6379, redis://HOST:PORT,HOST:PORT for servers of a cluster, or \
                     redis+sentinel://HOST:PORT,HOST:PORT/SERVICE for sentinels; rediss:// and rediss+sentinel:// use TLS";

/// Advice for a URL of sentinels.
const RIGHT_SENTINEL: &str = "write redis+sentinel://HOST:PORT,HOST:PORT/SERVICE or .../SERVICE/DATABASE, where SERVICE is the \
                              name of the master in the configuration of the sentinels; if the sentinels have a login, add \
                              ?sentinel_password=PASSWORD and &sentinel_username=USER";

/// Reads the URL of Redis. Messages never quote it, since it may contain a password.
pub(crate) fn url(written: &Written) -> Result<RedisUrl, InvalidValue> {
    let written = value::text(written)?.trim();
    let unknown =
        || InvalidValue::new("does not start with redis://, rediss://, redis+sentinel:// or rediss+sentinel://", RIGHT);
    let (scheme, rest) = written.split_once("://").ok_or_else(unknown)?;
    match scheme.to_ascii_lowercase().as_str() {
        "redis" => server_url(rest, false),
        "rediss" => server_url(rest, true),
        "redis+sentinel" => sentinel_url(rest, false),
        "rediss+sentinel" => sentinel_url(rest, true),
        _ => Err(unknown()),
    }
}

/// Reads the URL of a server, or of servers of a cluster, behind its scheme.
fn server_url(rest: &str, tls: bool) -> Result<RedisUrl, InvalidValue> {
    let wrong = |reason: &str| InvalidValue::new(reason, RIGHT);
    let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
    let (listed, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database = database(path).ok_or_else(|| wrong("has a database that is not a number"))?;
    let servers = servers(listed, PORT).map_err(wrong)?;
    let (username, password) = credentials(login);
    Ok(RedisUrl { servers, tls, username, password, database, sentinel: None })
}

/// Reads the URL of sentinels, behind its scheme. Its options begin at the first question mark.
fn sentinel_url(rest: &str, tls: bool) -> Result<RedisUrl, InvalidValue> {
    let wrong = |reason: &str| InvalidValue::new(reason, RIGHT_SENTINEL);
    let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
    let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
    let (listed, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (service, path) = path.split_once('/').unwrap_or((path, ""));
    if !is_name(service) {
        return Err(wrong("does not name the service, of at most 64 letters, digits, dots, dashes or underscores"));
    }
    let database = database(path).ok_or_else(|| wrong("has a database that is not a number"))?;
    let mut sentinel = SentinelService { service: service.to_owned(), username: None, password: None };
    for option in options.split('&').filter(|option| !option.is_empty()) {
        match option.split_once('=') {
            Some(("sentinel_username", name)) => sentinel.username = decoded(name),
            Some(("sentinel_password", password)) => sentinel.password = decoded(password),
            _ => return Err(wrong("has an option that is neither sentinel_username nor sentinel_password")),
        }
    }
    if sentinel.username.is_some() && sentinel.password.is_none() {
        return Err(wrong("has a sentinel_username without a sentinel_password"));
    }
    let servers = servers(listed, SENTINEL_PORT).map_err(wrong)?;
    let (username, password) = credentials(login);
    Ok(RedisUrl { servers, tls, username, password, database, sentinel: Some(sentinel) })
}

/// Reads the number of a database; 0 for an empty path.
fn database(path: &str) -> Option<u32> {
    if path.is_empty() { Some(0) } else { path.parse().ok() }
}

/// Reads hosts with their ports, separated by commas. Returns what is wrong with them otherwise.
fn servers(listed: &str, default_port: u16) -> Result<Vec<(String, u16)>, &'static str> {
    let mut found = Vec::new();
    for server in listed.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        // The `url` crate validates the host.
        let parsed = url::Url::parse(&format!("redis://{server}")).map_err(|_| "contains an invalid server")?;
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or("has no host")?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err("has a query or fragment");
        }
        let port = parsed.port().unwrap_or(default_port);
        found.push((host.trim_start_matches('[').trim_end_matches(']').to_owned(), port));
    }
    if found.is_empty() { Err("has no server") } else { Ok(found) }
}

/// Reads a user name and a password, separated by a colon.
fn credentials(login: Option<&str>) -> (Option<String>, Option<String>) {
    match login.map(|login| login.split_once(':').ok_or(login)) {
        None => (None, None),
        Some(Ok((user, password))) => (decoded(user), decoded(password)),
        Some(Err(user)) => (decoded(user), None),
    }
}

/// A part of a URL without its percent escapes; `None` for an empty one. A malformed escape stays as it is.
fn decoded(part: &str) -> Option<String> {
    (!part.is_empty()).then(|| percent_decode_str(part).decode_utf8_lossy().into_owned())
}

/// True for a valid name of a node: 1 to 64 letters, digits, `-`, `_` and `.`.
pub fn is_name(text: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=64).contains(&text.len()) && text.bytes().all(good)
}

/// Reads the key prefix in Redis, or the name of a node. Neither needs escapes anywhere.
pub(crate) fn name(written: &Written) -> Result<String, InvalidValue> {
    let name = value::text(written)?.trim();
    if is_name(name) {
        return Ok(name.to_owned());
    }
    Err(InvalidValue::new(
        format!("{} is not a valid name", quoted(name)),
        "write at most 64 letters, digits, dots, dashes or underscores",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<RedisUrl, InvalidValue> {
        url(&Written::Text(text.to_owned()))
    }

    #[test]
    fn urls_name_servers_logins_and_databases() {
        let one = read("redis://127.0.0.1").unwrap();
        assert_eq!((one.servers, one.tls, one.database), (vec![("127.0.0.1".to_owned(), 6379)], false, 0));
        let cluster = read("rediss://ops:s%40cret@[::1]:7001,b.example:7002/3").unwrap();
        assert_eq!(cluster.servers, [("::1".to_owned(), 7001), ("b.example".to_owned(), 7002)]);
        assert_eq!((cluster.username.as_deref(), cluster.password.as_deref()), (Some("ops"), Some("s@cret")));
        assert_eq!((cluster.tls, cluster.database), (true, 3));
        assert_eq!(cluster.to_string(), "rediss://ops@[::1]:7001,b.example:7002/3");
        assert_eq!(read("redis://:pw@h").unwrap().username, None);
        for (login, password) in [("50%", "50%"), ("%+f%zz", "%+f%zz"), ("%2540", "%40"), ("%C3%A4", "\u{e4}")] {
            assert_eq!(read(&format!("redis://:{login}@h")).unwrap().password.as_deref(), Some(password), "{login}");
        }
        assert_eq!(read(&cluster.to_string()).unwrap(), RedisUrl { password: None, ..cluster });
    }

    #[test]
    fn urls_name_sentinels() {
        let one = read("redis+sentinel://s/main").unwrap();
        assert_eq!((&one.servers[..], one.tls, one.database), (&[("s".to_owned(), 26_379)][..], false, 0));
        assert_eq!(one.sentinel.as_ref().map(|sentinel| sentinel.service.as_str()), Some("main"));
        let whole = "REDISS+Sentinel://ops:p%40w@[::1]:1,b.example/my.main-1_x/3?sentinel_username=watch&\
                     sentinel_password=a@b%2Fc%26d=";
        let url = read(whole).unwrap();
        assert_eq!(url.servers, [("::1".to_owned(), 1), ("b.example".to_owned(), 26_379)]);
        assert_eq!((url.username.as_deref(), url.password.as_deref()), (Some("ops"), Some("p@w")));
        assert_eq!((url.tls, url.database), (true, 3));
        let sentinel = url.sentinel.as_ref().unwrap();
        assert_eq!((sentinel.service.as_str(), sentinel.username.as_deref()), ("my.main-1_x", Some("watch")));
        assert_eq!(sentinel.password.as_deref(), Some("a@b/c&d="));
        assert_eq!(url.to_string(), "rediss+sentinel://ops@[::1]:1,b.example:26379/my.main-1_x/3");
        assert_eq!(read(&url.to_string()).unwrap().sentinel.unwrap().service, "my.main-1_x");
        assert!(read("redis://s/0").unwrap().sentinel.is_none());
        let only_password = read("redis+sentinel://s/main?sentinel_password=x").unwrap().sentinel.unwrap();
        assert_eq!((only_password.username, only_password.password.as_deref()), (None, Some("x")));
    }

    #[test]
    fn unclear_sentinel_urls_are_refused_without_being_shown() {
        for (wrong, reason) in [
            ("redis+sentinel://h", "service"),
            ("redis+sentinel://h/", "service"),
            ("redis+sentinel://h/a b", "service"),
            ("redis+sentinel:///main", "no server"),
            ("redis+sentinel://:geheim@h/main/x", "database"),
            ("redis+sentinel://h/main/0/geheim", "database"),
            ("redis+sentinel://h/main?password=geheim", "option"),
            ("redis+sentinel://h/main?sentinel_username=geheim", "without a sentinel_password"),
            ("redis+sentinel://:geh?eim@h/main", "service"),
            ("sentinel://h:1/main", "does not start with"),
        ] {
            let error = format!("{:?}", read(wrong).unwrap_err());
            assert!(error.contains(reason), "{wrong}: {error}");
            assert!(!error.contains("geheim"), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused_without_being_shown() {
        for wrong in [
            "",
            "h:1",
            "http://h",
            "redis://",
            "redis://h:99999",
            "redis://geheim@",
            "redis://a:geheim@h/x",
            "redis://h?geheim",
        ] {
            let error = format!("{:?}", read(wrong).unwrap_err());
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_no_password_is_shown(text in "\\PC{0,40}", password in "[a-z]{12}") {
            let _ = read(&text);
            if let Ok(url) = read(&format!("redis://u:{password}@h")) {
                let shown = format!("{url:?} {url}");
                prop_assert!(!shown.contains(&password));
            }
            let _ = read(&format!("redis+sentinel://{text}"));
            let sentinels = format!("redis+sentinel://u:{password}@h/s?sentinel_username={password}&sentinel_password={password}");
            let url = read(&sentinels).unwrap();
            let shown = format!("{url:?} {url}");
            prop_assert!(!shown.contains(&password));
        }
    }
}
