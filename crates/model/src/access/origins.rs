//! Origins of web pages whose scripts may call the API from a browser (CORS).

/// The origins that may call the API.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CorsOrigins {
    /// No origin but that of the service.
    #[default]
    Own,
    /// Every origin, for calls that carry an API key.
    Any,
    /// The listed origins, as [`parse_origin`] returns them.
    Listed(Vec<String>),
}

/// The permission of a request from another origin, in the form of its response headers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OriginGrant {
    /// No permission.
    Refused,
    /// Scripts of every origin may read the response.
    Everyone,
    /// Scripts of this origin may read the response.
    Only(String),
}

impl CorsOrigins {
    /// Decides on a request that a page of `origin` sent. `has_key` is true if it carries an API key, and for
    /// preflight requests, which never carry one.
    pub fn grant(&self, origin: &str, has_key: bool) -> OriginGrant {
        match self {
            CorsOrigins::Any if has_key => OriginGrant::Everyone,
            // Browsers send origins in lower case, without the usual port.
            CorsOrigins::Listed(listed) if listed.iter().any(|one| one == origin) => {
                OriginGrant::Only(origin.to_owned())
            }
            CorsOrigins::Own | CorsOrigins::Any | CorsOrigins::Listed(_) => OriginGrant::Refused,
        }
    }
}

/// Parses an origin: `http` or `https`, a host, and a port unless it is the usual one. Returns it as browsers write it.
///
/// # Errors
/// The text is not an origin. A retry cannot succeed.
pub fn parse_origin(text: &str) -> Result<String, &'static str> {
    let text = text.to_ascii_lowercase();
    let (scheme, authority) = text.split_once("://").ok_or("has no scheme")?;
    let usual = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return Err("has a scheme other than http and https"),
    };
    let authority = authority.strip_suffix(usual).unwrap_or(authority);
    let behind_brackets = authority.starts_with('[').then(|| authority.rfind(']')).flatten().map_or(0, |at| at + 1);
    let (host, port) = match authority[behind_brackets..].split_once(':') {
        Some((host, port)) => (&authority[..behind_brackets + host.len()], Some(port)),
        None => (authority, None),
    };
    let is_of_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._[]:".contains(&byte);
    if host.is_empty() || !host.bytes().all(is_of_host) {
        return Err("has no host, or more than a host and a port");
    }
    match port.map(str::parse::<u16>) {
        None | Some(Ok(1..)) => Ok(format!("{scheme}://{authority}")),
        Some(_) => Err("has an invalid port"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_parsed_as_browsers_write_them() {
        for (text, parsed) in [
            ("https://App.Example", Ok("https://app.example")),
            ("https://app.example:443", Ok("https://app.example")),
            ("http://app.example:443", Ok("http://app.example:443")),
            ("http://[::1]:3000", Ok("http://[::1]:3000")),
            ("http://[::1]", Ok("http://[::1]")),
            ("http://127.0.0.1:8080", Ok("http://127.0.0.1:8080")),
            ("app.example", Err("has no scheme")),
            ("ftp://app.example", Err("has a scheme other than http and https")),
            ("https://app.example/", Err("has no host, or more than a host and a port")),
            ("https://user@app.example", Err("has no host, or more than a host and a port")),
            ("https://", Err("has no host, or more than a host and a port")),
            ("https://*.example", Err("has no host, or more than a host and a port")),
            ("https://app.example:0", Err("has an invalid port")),
            ("https://app.example:x", Err("has an invalid port")),
        ] {
            assert_eq!(parse_origin(text).as_deref(), parsed.as_ref().copied(), "{text}");
        }
    }

    #[test]
    fn origins_are_granted_with_a_key_or_by_name() {
        let listed = CorsOrigins::Listed(vec!["https://app.example".to_owned()]);
        let only = OriginGrant::Only("https://app.example".to_owned());
        for (origins, origin, has_key, grant) in [
            (&CorsOrigins::Own, "https://app.example", true, OriginGrant::Refused),
            (&CorsOrigins::Any, "null", true, OriginGrant::Everyone),
            (&CorsOrigins::Any, "https://app.example", false, OriginGrant::Refused),
            (&listed, "https://app.example", false, only),
            (&listed, "http://app.example", true, OriginGrant::Refused),
            (&listed, "https://app.example.evil.example", true, OriginGrant::Refused),
        ] {
            assert_eq!(origins.grant(origin, has_key), grant, "{origins:?} {origin}");
        }
    }
}
