//! The checks of the APIs that the public listeners serve.

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem, quoted};
use crate::settings::api::Api;
use crate::value;
use carom_model::access::origins::{CorsOrigins, parse_origin};

/// An item of `api.compat`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interface {
    Off,
    Shlink,
    Bitly,
    Yourls,
}

/// An item of `api.cors_origins`.
#[derive(Clone, PartialEq, Eq)]
enum CorsOrigin {
    Off,
    Any,
    Named(String),
}

const RIGHT_ORIGIN: &str = "write \"*\", \"off\", or a list of origins without a path, such as \"https://app.example\"";

const RIGHT: &str = "write \"off\", or any of \"shlink\", \"bitly\" and \"yourls\"";

impl Checker<'_> {
    /// Returns the APIs to serve; `None` if a setting is invalid.
    pub(super) fn api(&mut self) -> Option<Api> {
        let jsonp = self.one(Key::ApiYourlsJsonp, value::boolean);
        let shlink_strict = self.one(Key::ApiShlinkStrict, value::boolean);
        let named = self.list(Key::ApiCompat, RIGHT, interface).map(|named| {
            if let Some((_, source)) = named.iter().find(|(one, _)| *one == Interface::Off).filter(|_| named.len() > 1)
            {
                let wrong = InvalidValue::new("combines \"off\" with other values", RIGHT);
                self.problems.push(SettingsProblem::of(source.clone(), Key::ApiCompat, wrong));
            }
            named.into_iter().map(|(one, _)| one).collect()
        });
        let cors = self.cors();
        let default = || vec![Interface::Shlink];
        let named: Vec<Interface> = named.unwrap_or_else(default);
        let has = |one| named.contains(&one);
        Some(Api {
            shlink: has(Interface::Shlink),
            bitly: has(Interface::Bitly),
            yourls: has(Interface::Yourls),
            yourls_jsonp: jsonp?,
            cors,
            shlink_strict: shlink_strict?,
        })
    }

    /// Returns the origins that may call the REST API.
    fn cors(&mut self) -> CorsOrigins {
        let Some(named) = self.list(Key::ApiCorsOrigins, RIGHT_ORIGIN, origin) else { return CorsOrigins::Any };
        match &named[..] {
            [(CorsOrigin::Off, _)] => return CorsOrigins::Own,
            [(CorsOrigin::Any, _)] => return CorsOrigins::Any,
            _ => {}
        }
        let mut listed = Vec::new();
        for (one, source) in named {
            let word = match one {
                CorsOrigin::Named(origin) => {
                    listed.push(origin);
                    continue;
                }
                CorsOrigin::Off => "off",
                CorsOrigin::Any => "*",
            };
            let wrong = InvalidValue::new(format!("combines {} with other values", quoted(word)), RIGHT_ORIGIN);
            self.problems.push(SettingsProblem::of(source, Key::ApiCorsOrigins, wrong));
        }
        CorsOrigins::Listed(listed)
    }
}

fn origin(text: &str) -> Result<CorsOrigin, InvalidValue> {
    match text {
        "off" => Ok(CorsOrigin::Off),
        "*" => Ok(CorsOrigin::Any),
        _ => parse_origin(text)
            .map(CorsOrigin::Named)
            .map_err(|why| InvalidValue::new(format!("{} {why}", quoted(text)), RIGHT_ORIGIN)),
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
