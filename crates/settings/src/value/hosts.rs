//! Parsers of host names, of patterns of hosts, and of the sources of host lists.

use super::{Written, path, text};
use crate::problem::{InvalidValue, quoted};
use crate::settings::ListSource;
use carom_model::destination::hosts::HostPattern;

/// Reads a host name, and converts it to lower case.
pub(crate) fn host_name(text: &str) -> Result<String, InvalidValue> {
    let name = text.trim().to_ascii_lowercase();
    let is_fit = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(is_fit) {
        let wrong = format!("{} is not a host name", quoted(text));
        return Err(InvalidValue::new(wrong, "write a host name without scheme and port, such as carom1.example"));
    }
    Ok(name)
}

/// Reads a host, or a pattern for all hosts below one.
pub(crate) fn host(text: &str) -> Result<HostPattern, InvalidValue> {
    let right = "write a host such as shop.example, or *.shop.example for all its subdomains";
    HostPattern::parse(text).map_err(|error| InvalidValue::new(format!("{} {error}", quoted(text)), right))
}

/// Reads the source of the dynamic part of a list of hosts.
pub(crate) fn list_source(written: &Written) -> Result<ListSource, InvalidValue> {
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
