//! The choice of the APIs that the public listeners serve.

use carom_model::access::origins::CorsOrigins;

/// The APIs that the public listeners serve.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Api {
    /// True to serve the REST API, which is that of Shlink.
    pub shlink: bool,
    /// True to serve Bitly's API.
    pub bitly: bool,
    /// True to serve the API of YOURLS.
    pub yourls: bool,
    /// True if the API of YOURLS answers JSONP.
    pub yourls_jsonp: bool,
    /// Origins of web pages that may call the REST API.
    pub cors: CorsOrigins,
    /// True to behave like Shlink where carom differs.
    pub shlink_strict: bool,
}

impl Api {
    /// Returns the names of the served APIs, for `api.compat`; `off` if there are none.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        let all = [(self.shlink, "shlink"), (self.bitly, "bitly"), (self.yourls, "yourls")];
        let served: Vec<&str> = all.into_iter().filter(|(is_served, _)| *is_served).map(|(_, name)| name).collect();
        if served.is_empty() { vec!["off"] } else { served }
    }

    /// Returns the items of `api.cors_origins`.
    pub(crate) fn origins(&self) -> Vec<&str> {
        match &self.cors {
            CorsOrigins::Own => vec!["off"],
            CorsOrigins::Any => vec!["*"],
            CorsOrigins::Listed(listed) => listed.iter().map(String::as_str).collect(),
        }
    }
}
