//! The values of settings as they are shown to people, in the syntax of TOML.

use std::net::SocketAddr;
use std::time::Duration;

use crate::settings::{HostListSettings, ListSource, Settings};
use crate::value::cpus::{self, CpuChoice};
use crate::value::quantities;
use crate::value::redis_url::RedisUrl;
use carom_model::replication::round_trips::RedisTimeout;

/// The value of a setting, as TOML.
pub(crate) enum Shown {
    /// The value, in the syntax of TOML.
    Value(String),
    /// A value, and a remark about it.
    Note(String, String),
    /// A value that is a secret.
    Hidden,
    /// No value.
    Unset,
}

#[allow(clippy::needless_pass_by_value)] // Nearly all callers pass temporaries.
impl Shown {
    /// Shows a number or a boolean, which needs no quotes.
    pub(crate) fn plain(value: impl ToString) -> Shown {
        Shown::Value(value.to_string())
    }

    /// Shows a text in quotes.
    pub(crate) fn text(value: impl ToString) -> Shown {
        Shown::Value(quote(&value.to_string()))
    }

    /// Shows a text in quotes, if there is one.
    pub(crate) fn optional(value: Option<impl ToString>) -> Shown {
        value.map_or(Shown::Unset, Shown::text)
    }

    /// Shows a list of texts.
    pub(crate) fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> Shown {
        let texts: Vec<String> = values.into_iter().map(|value| quote(&value.to_string())).collect();
        Shown::Value(format!("[{}]", texts.join(", ")))
    }

    /// Shows a list of texts; an empty one counts as not set.
    pub(crate) fn some_list<T: ToString>(values: impl IntoIterator<Item = T>) -> Shown {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() { Shown::Unset } else { Shown::list(values) }
    }

    /// Shows a size in bytes.
    pub(crate) fn size(bytes: u64) -> Shown {
        Shown::text(quantities::show_size(bytes))
    }

    /// Shows a timeout of Redis in milliseconds, or that it follows from round trips.
    pub(crate) fn timeout(timeout: RedisTimeout) -> Shown {
        match timeout {
            RedisTimeout::Fixed(time) => Shown::plain(time.as_millis()),
            RedisTimeout::Derived(_) => Shown::text("auto"),
        }
    }

    /// Shows a time, or a word for none.
    pub(crate) fn time_or(word: &str, time: Option<Duration>) -> Shown {
        Shown::text(time.map_or(word.to_owned(), quantities::show_time))
    }
}

/// Shows the listeners that require a PROXY header.
pub(crate) fn proxy_protocol(settings: &Settings) -> Shown {
    let proxied = marked(&settings.listen, &settings.proxied);
    match proxied.len() {
        0 => Shown::text("off"),
        all if all == settings.listen.len() => Shown::text("require"),
        _ => Shown::list(proxied),
    }
}

/// Shows the listeners that use TLS.
pub(crate) fn tls_listen(settings: &Settings) -> Shown {
    let secure = marked(&settings.listen, &settings.tls.secure);
    match secure.len() {
        _ if settings.tls.pairs.is_empty() => Shown::Unset,
        all if all == settings.listen.len() => Shown::text("all"),
        _ => Shown::list(secure),
    }
}

/// Returns the addresses whose mark is true.
fn marked<'a>(addresses: &'a [SocketAddr], marks: &[bool]) -> Vec<&'a SocketAddr> {
    addresses.iter().zip(marks).filter(|(_, mark)| **mark).map(|(address, _)| address).collect()
}

/// Shows the choice of cores, and the CPUs that it means on this machine.
pub(crate) fn cores(settings: &Settings) -> Shown {
    let choice = match &settings.cores.choice {
        CpuChoice::Count(count) => count.to_string(),
        other => quote(&other.to_string()),
    };
    Shown::Note(choice, cpus::on_cpus(&settings.cores.cpus))
}

/// Shows the Redis servers without their password.
pub(crate) fn redis(settings: &Settings) -> Shown {
    without_password(settings.fleet.redis.as_ref())
}

/// Shows the Redis servers of the other site without their password.
pub(crate) fn other_redis(settings: &Settings) -> Shown {
    without_password(settings.fleet.site.as_ref().map(|site| &site.other_redis))
}

fn without_password(url: Option<&RedisUrl>) -> Shown {
    match url {
        Some(url) if url.has_password() => Shown::Note(quote(&url.to_string()), "password hidden".to_owned()),
        url => Shown::optional(url),
    }
}

/// Shows the source of the dynamic part of a list of hosts.
pub(crate) fn source(list: &HostListSettings) -> Shown {
    match &list.source {
        // The query may contain a secret.
        Some(ListSource::Http(url)) if url.contains('?') => Shown::Hidden,
        source => Shown::optional(source.as_ref()),
    }
}

/// Returns a text in quotes.
pub(crate) fn quote(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
