//! Parsers of addresses that carom sends requests to.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};
use crate::value::secret::Secret;

/// Default ports of RabbitMQ, without and with TLS.
const AMQP_PORTS: [u16; 2] = [5672, 5671];

/// Longest name of a user or virtual host, in bytes.
const AMQP_NAME_MAX: usize = 255;

/// The characters of names that a URL needs escapes for.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A server that speaks AMQP 0-9-1. The `Debug` and `Display` forms hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl {
    /// True to use TLS.
    pub tls: bool,
    /// The host name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user; [`AmqpUrl::GUEST`] if the URL names none.
    pub user: String,
    /// The password, if the URL contains one.
    pub password: Option<Secret>,
    /// The virtual host; `/` if the URL names none.
    pub vhost: String,
}

impl AmqpUrl {
    /// The user of a new server, whose password is its name. It can log in from the same machine only.
    pub const GUEST: &'static str = "guest";
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AmqpUrl { tls, host, port, user, vhost, .. } = self;
        let scheme = if *tls { "amqps" } else { "amqp" };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let [user, vhost] = [user, vhost].map(|name| utf8_percent_encode(name, ESCAPED));
        write!(f, "{scheme}://{user}@{host}:{port}/{vhost}")
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the URL of RabbitMQ. Messages never quote it, since it may contain a password.
pub(crate) fn amqp_url(written: &Written) -> Result<AmqpUrl, InvalidValue> {
    const RIGHT: &str = "write amqp://USER@HOST:PORT/VHOST, or amqps:// for TLS, such as amqp://carom@127.0.0.1:5672/; escape a \
                         slash in the name of a virtual host as %2F";
    let wrong = |why: &str| InvalidValue::new(why, RIGHT);
    let url = url::Url::parse(text(written)?.trim()).map_err(|_| wrong("is not a URL"))?;
    let tls = match url.scheme() {
        "amqp" => false,
        "amqps" => true,
        _ => return Err(wrong("starts with neither amqp:// nor amqps://")),
    };
    if url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("has a query or fragment"));
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
    if !host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte)) {
        return Err(wrong("has a host that is neither a name in ASCII nor an address"));
    }
    let path = url.path().strip_prefix('/').unwrap_or_default();
    if path.contains('/') {
        return Err(wrong("has a path of several parts"));
    }
    let decoded = |part: &str| match percent_decode_str(part).decode_utf8() {
        Ok(text) if text.contains('\0') => Err(wrong("contains a zero byte")),
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(wrong("is not UTF-8")),
    };
    let (vhost, user) = (decoded(path)?, decoded(url.username())?);
    if vhost.len() > AMQP_NAME_MAX || user.len() > AMQP_NAME_MAX {
        return Err(wrong("has a name of more than 255 bytes"));
    }
    let password = decoded(url.password().unwrap_or_default())?;
    Ok(AmqpUrl {
        tls,
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: url.port().unwrap_or(AMQP_PORTS[usize::from(tls)]),
        user: if user.is_empty() { AmqpUrl::GUEST.to_owned() } else { user },
        password: (!password.is_empty()).then_some(Secret(password)),
        vhost: if vhost.is_empty() { "/".to_owned() } else { vhost },
    })
}

/// Reads an `http://` or `https://` URL without credentials. Messages never quote one that has them.
pub(crate) fn http_url(written: &Written) -> Result<String, InvalidValue> {
    const RIGHT: &str = "write an http:// or https:// URL, such as https://hooks.example/carom";
    let text = text(written)?.trim();
    match url::Url::parse(text) {
        // The password would appear among the settings and in alarms.
        Ok(url) if !url.username().is_empty() || url.password().is_some() => {
            Err(InvalidValue::new("contains a user name or password", "use a URL without credentials"))
        }
        Ok(url) if url.fragment().is_some() => Err(InvalidValue::new("has a fragment", RIGHT)),
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => Ok(url.into()),
        Ok(_) => Err(InvalidValue::new(format!("{} starts with neither http:// nor https://", quoted(text)), RIGHT)),
        Err(_) => Err(InvalidValue::new(format!("{} is not a URL", quoted(text)), RIGHT)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn amqp(text: &str) -> Result<AmqpUrl, InvalidValue> {
        amqp_url(&Written::Word(text.to_owned()))
    }

    #[test]
    fn urls_of_rabbitmq_are_read_and_hide_their_password() {
        let plain = amqp("amqp://mq.example").unwrap();
        assert_eq!((plain.tls, plain.port, &*plain.user, &*plain.vhost), (false, 5672, "guest", "/"));
        assert_eq!((plain.password, amqp("amqps://mq.example/").unwrap().port), (None, 5671));
        let full = amqp(" amqps://me:w%40rd%2F@[::1]:9/a%2fb ").unwrap();
        assert_eq!((&*full.host, full.port, &*full.user, &*full.vhost), ("::1", 9, "me", "a/b"));
        let (shown, password) = (format!("{full} {full:?}"), full.password.clone());
        assert_eq!(shown, "amqps://me@[::1]:9/a%2Fb amqps://me@[::1]:9/a%2Fb");
        assert_eq!(password, Some(Secret("w@rd/".to_owned())));
        assert_eq!(amqp(&full.to_string()).unwrap(), AmqpUrl { password: None, ..full });
        assert_eq!(amqp("amqp://a%40b@h/%2F").unwrap().to_string(), "amqp://a%40b@h:5672/%2F");
    }

    #[test]
    fn wrong_urls_of_rabbitmq_are_refused_unseen() {
        let long = format!("amqp://me:geheim@h/{}", "v".repeat(256));
        for wrong in [
            "",
            "mq.example",
            "http://me:geheim@mq.example",
            "amqp://me:geheim@mq.example/?x=1",
            "amqp://me:geheim@mq.example/a/b",
            "amqp://me:geheim%00@mq.example",
            "amqp://me:geheim%ff@mq.example",
            "amqp://me:geheim#@mq.example",
            "amqp://me:geheim@mq.example:99999",
            "amqp:///",
            "amqp://me:geheim@a\"b",
            &long,
        ] {
            let error = format!("{:?}", amqp(wrong).expect_err(wrong));
            assert!(!error.contains("geheim"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_url_of_rabbitmq_panics_or_shows_its_password(
            text in "\\PC{0,40}", user in "[a-z@/% é-]{1,9}", vhost in "[a-z@/% é-]{1,9}", password in "[a-z]{12}",
        ) {
            let _ = amqp(&text);
            let _ = amqp(&format!("amqp://{text}"));
            let url = AmqpUrl {
                tls: false,
                host: "h".to_owned(),
                port: 1,
                user,
                password: Some(Secret(password.clone())),
                vhost,
            };
            let shown = format!("{url} {url:?}");
            prop_assert!(!shown.contains(&password), "{}", shown);
            prop_assert_eq!(amqp(&url.to_string()).unwrap(), AmqpUrl { password: None, ..url });
        }
    }

    #[test]
    fn urls_are_read_strictly() {
        let read = |text: &str| http_url(&Written::Word(text.to_owned()));
        assert_eq!(read(" https://a.example/x?y=z ").unwrap(), "https://a.example/x?y=z");
        assert_eq!(read("http://127.0.0.1:9").unwrap(), "http://127.0.0.1:9/");
        for wrong in ["", "a.example", "ftp://a.example", "https://me:word@a.example/", "https://a.example/#x", "http:"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let secret = format!("{:?}", read("https://me:word@a.example/").unwrap_err());
        assert!(!secret.contains("word@"), "{secret}");
        assert!(!secret.contains("me:"), "{secret}");
    }
}
