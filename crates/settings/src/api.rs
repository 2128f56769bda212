//! The choice of the APIs that the public listeners serve.

use super::check::Checker;
use super::keys::Key;
use super::problem::{InvalidValue, Problem, quoted};
use super::value;

/// The APIs that the public listeners serve.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Api {
    /// True to serve the REST API, which is that of Shlink.
    pub shlink: bool,
    /// True to serve Bitly's API.
    pub bitly: bool,
    /// True to serve the API of YOURLS.
    pub yourls: bool,
    /// True if the API of YOURLS answers JSONP.
    pub yourls_jsonp: bool,
}

/// An item of `api.compat`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interface {
    Off,
    Shlink,
    Bitly,
    Yourls,
}

const RIGHT: &str = "write \"off\", or any of \"shlink\", \"bitly\" and \"yourls\"";

impl Api {
    /// Returns the names of the served APIs, for `api.compat`; `off` if there are none.
    pub(super) fn names(self) -> Vec<&'static str> {
        let all = [(self.shlink, "shlink"), (self.bitly, "bitly"), (self.yourls, "yourls")];
        let served: Vec<&str> = all.into_iter().filter(|(is_served, _)| *is_served).map(|(_, name)| name).collect();
        if served.is_empty() { vec!["off"] } else { served }
    }
}

impl Checker<'_> {
    /// Returns the APIs to serve; `None` if a setting is invalid.
    pub(super) fn api(&mut self) -> Option<Api> {
        let jsonp = self.one(Key::ApiYourlsJsonp, value::boolean);
        let named = self.list(Key::ApiCompat, RIGHT, interface).map(|named| {
            if let Some((_, source)) = named.iter().find(|(one, _)| *one == Interface::Off).filter(|_| named.len() > 1)
            {
                let wrong = InvalidValue::new("combines \"off\" with other values", RIGHT);
                self.problems.push(Problem::of(source.clone(), Key::ApiCompat, wrong));
            }
            named.into_iter().map(|(one, _)| one).collect()
        });
        let default = || vec![Interface::Shlink];
        let named: Vec<Interface> = named.unwrap_or_else(default);
        let has = |one| named.contains(&one);
        Some(Api {
            shlink: has(Interface::Shlink),
            bitly: has(Interface::Bitly),
            yourls: has(Interface::Yourls),
            yourls_jsonp: jsonp?,
        })
    }
}

fn interface(text: &str) -> Result<Interface, InvalidValue> {
    match text.to_ascii_lowercase().as_str() {
        "off" => Ok(Interface::Off),
        "shlink" => Ok(Interface::Shlink),
        "bitly" => Ok(Interface::Bitly),
        "yourls" => Ok(Interface::Yourls),
        other => Err(InvalidValue::new(format!("{} is not a known API", quoted(other)), RIGHT)),
    }
}
