//! Parsers of addresses that carom sends requests to.

use std::fmt;

use percent_encoding::percent_decode_str;

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};
use crate::secret::Secret;

/// Default port of RabbitMQ.
const AMQP_PORT: u16 = 5672;

/// A server that speaks AMQP 0-9-1. The `Debug` and `Display` forms hide the password.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpUrl {
    /// The host name or address.
    pub host: String,
    /// The TCP port.
    pub port: u16,
    /// The user; `guest` if the URL names none.
    pub user: String,
    /// The password, if the URL contains one.
    pub password: Option<Secret>,
    /// The virtual host; `/` if the URL names none.
    pub vhost: String,
}

impl fmt::Display for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let vhost = self.vhost.replace('%', "%25").replace('/', "%2f");
        write!(f, "amqp://{}@{host}:{}/{vhost}", self.user, self.port)
    }
}

impl fmt::Debug for AmqpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the URL of RabbitMQ. Messages never quote it, since it may contain a password.
pub(crate) fn amqp_url(written: &Written) -> Result<AmqpUrl, InvalidValue> {
    const RIGHT: &str = "write amqp://USER@HOST:PORT/VHOST, such as amqp://carom@127.0.0.1:5672/";
    let wrong = |why: &str| InvalidValue::new(why, RIGHT);
    let url = url::Url::parse(text(written)?.trim()).map_err(|_| wrong("is not a URL"))?;
    if url.scheme() == "amqps" {
        return Err(wrong("asks for TLS, which carom does not speak with RabbitMQ"));
    }
    if url.scheme() != "amqp" || url.query().is_some() || url.fragment().is_some() {
        return Err(wrong("is not an amqp:// URL without query"));
    }
    let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
    let decoded =
        |part: &str| percent_decode_str(part).decode_utf8().map(String::from).map_err(|_| wrong("is not UTF-8"));
    let vhost = decoded(url.path().trim_start_matches('/'))?;
    let user = decoded(url.username())?;
    if vhost.len() > 255 || user.len() > 255 {
        return Err(wrong("has a name of more than 255 bytes"));
    }
    Ok(AmqpUrl {
        host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
        port: url.port().unwrap_or(AMQP_PORT),
        user: if user.is_empty() { "guest".to_owned() } else { user },
        password: url.password().map(|password| decoded(password).map(Secret)).transpose()?,
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
    use super::*;

    #[test]
    fn urls_of_rabbitmq_are_read_and_hide_their_password() {
        let read = |text: &str| amqp_url(&Written::Word(text.to_owned()));
        let plain = read("amqp://mq.example").unwrap();
        assert_eq!((plain.port, &*plain.user, &*plain.vhost, plain.password.is_none()), (5672, "guest", "/", true));
        let full = read("amqp://me:w%40rd@[::1]:9/a%2fb").unwrap();
        assert_eq!((&*full.host, full.port, &*full.user, &*full.vhost), ("::1", 9, "me", "a/b"));
        assert_eq!(
            (full.to_string(), full.password.clone()),
            ("amqp://me@[::1]:9/a%2fb".to_owned(), Some(Secret("w@rd".to_owned())))
        );
        assert_eq!(read(&full.to_string()).unwrap(), AmqpUrl { password: None, ..full });
        for wrong in ["", "mq.example", "amqps://mq.example", "http://mq.example", "amqp://mq.example/?x=1", "amqp:///"]
        {
            assert!(read(wrong).is_err(), "{wrong}");
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
        assert!(!secret.contains("word@") && !secret.contains("me:"), "{secret}");
    }
}
