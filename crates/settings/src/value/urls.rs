//! Parsers of addresses that carom sends requests to.

use super::{Written, text};
use crate::problem::{InvalidValue, quoted};

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
