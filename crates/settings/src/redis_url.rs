//! The URL of Redis: a single server, or several servers of a cluster.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::problem::{InvalidValue, quoted};
use super::value::{self, Written};

/// Default port of a server.
const PORT: u16 = 6379;

/// The servers and credentials of Redis. Its `Debug` and `Display` forms hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl {
    /// Hosts and ports, at least one.
    pub servers: Vec<(String, u16)>,
    /// True to use TLS.
    pub tls: bool,
    /// The user name, if the URL contains one.
    pub username: Option<String>,
    /// The password, if the URL contains one.
    pub password: Option<String>,
    /// The number of the database.
    pub database: u32,
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let user = self.username.as_ref().map_or(String::new(), |user| format!("{user}@"));
        let server = |(host, port): &(String, u16)| match host.contains(':') {
            true => format!("[{host}]:{port}"),
            false => format!("{host}:{port}"),
        };
        let servers: Vec<String> = self.servers.iter().map(server).collect();
        write!(f, "{scheme}://{user}{}/{}", servers.join(","), self.database)
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the URL of Redis. Messages never quote it, since it may contain a password.
pub(super) fn url(written: &Written) -> Result<RedisUrl, InvalidValue> {
    const RIGHT: &str =
        "write redis://127.0.0.1:6379, or redis://HOST:PORT,HOST:PORT for servers of a cluster; rediss:// uses TLS";
    let written = value::text(written)?.trim();
    let wrong = |reason: &str| InvalidValue::new(reason, RIGHT);
    let (scheme, rest) = written.split_once("://").ok_or_else(|| wrong("does not start with redis:// or rediss://"))?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "redis" => false,
        "rediss" => true,
        _ => return Err(wrong("does not start with redis:// or rediss://")),
    };
    let (login, rest) = rest.rsplit_once('@').map_or((None, rest), |(login, rest)| (Some(login), rest));
    let (servers, path) = rest.split_once('/').unwrap_or((rest, ""));
    let database =
        if path.is_empty() { 0 } else { path.parse().map_err(|_| wrong("has a database that is not a number"))? };
    let mut found = Vec::new();
    for server in servers.split(',').map(str::trim).filter(|server| !server.is_empty()) {
        // The `url` crate validates the host.
        let parsed =
            url::Url::parse(&format!("{scheme}://{server}")).map_err(|_| wrong("contains an invalid server"))?;
        let host = parsed.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
        if parsed.query().is_some() || parsed.fragment().is_some() {
            return Err(wrong("has a query or fragment"));
        }
        found.push((host.trim_start_matches('[').trim_end_matches(']').to_owned(), parsed.port().unwrap_or(PORT)));
    }
    if found.is_empty() {
        return Err(wrong("has no server"));
    }
    let (username, password) = match login {
        None => (None, None),
        Some(login) => match login.split_once(':') {
            Some((user, password)) => (decoded(user), decoded(password)),
            None => (decoded(login), None),
        },
    };
    Ok(RedisUrl { servers: found, tls, username, password, database })
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
pub(super) fn name(written: &Written) -> Result<String, InvalidValue> {
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
        }
    }
}
