//! The text of an access log entry: exactly one line, without secrets.
//!
//! * Of an address only the network, unless the settings request more, because the full address identifies a person.
//! * No query, of neither the request nor its referrer: it may contain anything.
//! * No API key, wherever a client may have put it: it is cut after its prefix.

use std::borrow::Cow;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use memchr::memmem;
use serde::Serialize;

use crate::bridge::access_log::AccessEntry;
use carom_model::access::key;
use carom_model::formats::dates;
use carom_settings::access_log::terms::{AccessFormat, Addresses};

/// The placeholder for a missing value in combined lines.
const NOTHING: &str = "-";

/// A writer of lines in one format.
#[derive(Debug)]
pub struct LineFormatter {
    format: AccessFormat,
    addresses: Addresses,
    /// The second that was formatted last, and its text.
    second: (u64, String),
}

/// A line in JSON.
#[derive(Serialize)]
struct Json<'a> {
    time: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    method: Cow<'a, str>,
    host: Cow<'a, str>,
    path: Cow<'a, str>,
    status: u16,
    micros: u32,
    protocol: &'a str,
    tls: bool,
    referrer: Cow<'a, str>,
    agent: Cow<'a, str>,
    core: &'a str,
}

impl LineFormatter {
    /// Creates a writer for a format and a treatment of addresses.
    pub fn new(format: AccessFormat, addresses: Addresses) -> LineFormatter {
        LineFormatter { format, addresses, second: (u64::MAX, String::new()) }
    }

    /// Appends the line of an entry of a core.
    pub fn write(&mut self, into: &mut Vec<u8>, core: &str, entry: &AccessEntry<'_>) {
        match self.format {
            AccessFormat::Json => self.write_json(into, core, entry),
            AccessFormat::Combined => self.write_combined(into, entry),
        }
        into.push(b'\n');
    }

    fn write_json(&mut self, into: &mut Vec<u8>, core: &str, entry: &AccessEntry<'_>) {
        let address = self.shown(entry.request.address);
        let second = self.second_of(entry, "%Y-%m-%dT%H:%M:%S");
        let time = format!("{second}.{:03}Z", entry.outcome.at_ms % 1_000);
        let request = &entry.request;
        let line = Json {
            time: &time,
            address,
            method: text(request.method),
            host: text(request.host),
            path: text(request.path),
            status: entry.outcome.status,
            micros: entry.outcome.micros,
            protocol: request.protocol.as_str(),
            tls: request.is_secure,
            referrer: text(request.referrer),
            agent: text(request.agent),
            core,
        };
        serde_json::to_writer(into, &line).expect("memory takes any text");
    }

    /// Appends `ADDRESS - - [TIME] "REQUEST" STATUS - "REFERRER" "AGENT"`. The size of the response is omitted: no core
    /// knows it before the response is sent.
    fn write_combined(&mut self, into: &mut Vec<u8>, entry: &AccessEntry<'_>) {
        let address = self.shown(entry.request.address).map_or(Cow::Borrowed(NOTHING), |ip| ip.to_string().into());
        let second = self.second_of(entry, "%d/%b/%Y:%H:%M:%S");
        let request = &entry.request;
        let _ = write!(into, "{address} - - [{second} +0000] \"");
        for (place, part) in [request.method, request.path, request.protocol.as_str().as_bytes()].iter().enumerate() {
            into.extend_from_slice(if place > 0 { b" " } else { b"" });
            write_escaped(into, part);
        }
        let _ = write!(into, "\" {} - \"", entry.outcome.status);
        write_escaped(into, request.referrer);
        into.extend_from_slice(b"\" \"");
        write_escaped(into, request.agent);
        into.push(b'"');
    }

    /// Formats the second of an entry. Most entries share it with the previous one.
    fn second_of(&mut self, entry: &AccessEntry<'_>, format: &str) -> &str {
        let second = entry.outcome.at_ms / 1_000;
        if self.second.0 != second {
            self.second = (second, dates::format_as(second, format));
        }
        &self.second.1
    }

    /// Returns the part of an address that is logged.
    fn shown(&self, address: Option<IpAddr>) -> Option<IpAddr> {
        match (self.addresses, address?) {
            (Addresses::Off, _) => None,
            (Addresses::Full, address) => Some(address),
            (Addresses::Shortened, IpAddr::V4(address)) => {
                let [a, b, c, _] = address.octets();
                Some(Ipv4Addr::new(a, b, c, 0).into())
            }
            (Addresses::Shortened, IpAddr::V6(address)) => {
                let [a, b, c, ..] = address.segments();
                Some(Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into())
            }
        }
    }
}

/// Decodes bytes of a request as text, without API keys and terminal control sequences.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    let text = match without_keys(bytes) {
        Cow::Borrowed(bytes) => String::from_utf8_lossy(bytes),
        Cow::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned().into(),
    };
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if text.contains(is_obeyed) { text.replace(is_obeyed, "\u{fffd}").into() } else { text }
}

/// Decodes the first byte, which may be percent-encoded, and returns it with the length of its encoding.
fn decoded(bytes: &[u8]) -> Option<(u8, usize)> {
    let digit = |byte: &u8| (*byte as char).to_digit(16);
    match bytes {
        [b'%', high, low, ..] => match (digit(high), digit(low)) {
            (Some(high), Some(low)) => Some(((high * 16 + low) as u8, 3)),
            _ => Some((b'%', 1)),
        },
        [byte, ..] => Some((*byte, 1)),
        [] => None,
    }
}

/// Returns the length of an API key's prefix at the beginning, in any percent-encoding; 0 if there is no prefix.
fn prefix_len(bytes: &[u8]) -> usize {
    let mut at = 0;
    for expected in key::PREFIX.bytes() {
        match decoded(&bytes[at..]) {
            Some((byte, len)) if byte == expected => at += len,
            _ => return 0,
        }
    }
    at
}

/// Cuts each API key after its prefix.
fn without_keys(bytes: &[u8]) -> Cow<'_, [u8]> {
    // Nearly always the bytes contain neither a key nor an encoding that could hide one.
    if memmem::find(bytes, key::PREFIX.as_bytes()).is_none() && memchr::memchr(b'%', bytes).is_none() {
        return bytes.into();
    }
    let mut kept = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let len = prefix_len(&bytes[at..]);
        if len == 0 {
            kept.push(bytes[at]);
            at += 1;
            continue;
        }
        kept.extend_from_slice(&bytes[at..at + len]);
        kept.extend_from_slice(b"...");
        at += len;
        while let Some((_, len)) = decoded(&bytes[at..]).filter(|(byte, _)| byte.is_ascii_alphanumeric()) {
            at += len;
        }
    }
    kept.into()
}

/// Appends bytes, escaped as nginx does, so that they end neither quotes nor line.
fn write_escaped(into: &mut Vec<u8>, bytes: &[u8]) {
    if bytes.is_empty() {
        return into.extend_from_slice(NOTHING.as_bytes());
    }
    for &byte in without_keys(bytes).iter() {
        match byte {
            b'"' | b'\\' | 0..0x20 | 0x7f.. => {
                let _ = write!(into, "\\x{byte:02X}");
            }
            byte => into.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::access_log::{Protocol, Request, RequestOutcome};
    use proptest::prelude::*;

    /// The instant 2026-11-22 17:29:37.492 UTC.
    const INSTANT_MS: u64 = 1_795_368_577_492;

    fn entry<'a>(address: &str, path: &'a [u8], agent: &'a [u8]) -> AccessEntry<'a> {
        let request = Request {
            address: address.parse().ok(),
            is_secure: true,
            protocol: Protocol::Http2,
            method: b"GET",
            host: b"go.example",
            path,
            referrer: b"news.example",
            agent,
        };
        AccessEntry { request, outcome: RequestOutcome { at_ms: INSTANT_MS, micros: 12, status: 302 } }
    }

    fn line(format: AccessFormat, addresses: Addresses, entry: &AccessEntry<'_>) -> String {
        let mut lines = LineFormatter::new(format, addresses);
        let mut written = Vec::new();
        lines.write(&mut written, "3", entry);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn lines_look_as_promised() {
        let entry = entry("203.0.113.77", b"/abc", b"curl/8 \"x\"");
        assert_eq!(
            line(AccessFormat::Json, Addresses::Shortened, &entry),
            concat!(
                r#"{"time":"2026-11-22T17:29:37.492Z","address":"203.0.113.0","method":"GET","host":"go.example","#,
                r#""path":"/abc","status":302,"micros":12,"protocol":"HTTP/2.0","tls":true,"referrer":"news.example","#,
                r#""agent":"curl/8 \"x\"","core":"3"}"#,
                "\n"
            )
        );
        assert_eq!(
            line(AccessFormat::Combined, Addresses::Full, &entry),
            concat!(
                r#"203.0.113.77 - - [22/Nov/2026:17:29:37 +0000] "GET /abc HTTP/2.0" 302 - "news.example" "#,
                r#""curl/8 \x22x\x22""#,
                "\n"
            )
        );
    }

    #[test]
    fn of_an_address_its_network_is_written() {
        for (address, addresses, shown) in [
            ("203.0.113.77", Addresses::Shortened, "203.0.113.0 "),
            ("2001:db8:1:2:3:4:5:6", Addresses::Shortened, "2001:db8:1:: "),
            ("2001:db8:1:2:3:4:5:6", Addresses::Full, "2001:db8:1:2:3:4:5:6 "),
            ("203.0.113.77", Addresses::Off, "- "),
            ("", Addresses::Full, "- "),
        ] {
            let line = line(AccessFormat::Combined, addresses, &entry(address, b"/", b""));
            assert!(line.starts_with(shown), "{line}");
        }
        assert!(!line(AccessFormat::Json, Addresses::Off, &entry("203.0.113.77", b"/", b"")).contains("address"));
    }

    #[test]
    fn no_key_is_written_wherever_it_stands() {
        let key = key::ApiKey::generate().unwrap();
        let path = format!("/x/{}/y", key.as_str());
        let agent = format!("a {0} b {0}", key.as_str());
        for format in [AccessFormat::Json, AccessFormat::Combined] {
            let line = line(format, Addresses::Full, &entry("::1", path.as_bytes(), agent.as_bytes()));
            assert!(line.contains("/x/carom_ak_.../y"), "{line}");
            assert!(line.contains("a carom_ak_... b carom_ak_..."), "{line}");
            assert!(!line.contains(&key.as_str()[key::PREFIX.len()..]), "{line}");
        }
        let hidden = format!("/x/carom%5Fak%5f{}%41/y", &key.as_str()[key::PREFIX.len()..]);
        let line = line(AccessFormat::Combined, Addresses::Full, &entry("::1", hidden.as_bytes(), b"50%"));
        assert!(line.contains("/x/carom%5Fak%5f.../y"), "{line}");
        assert!(line.contains("\"50%\""), "{line}");
    }

    proptest! {
        #[test]
        fn nothing_makes_two_lines_of_one(path in any::<Vec<u8>>(), agent in any::<Vec<u8>>()) {
            for format in [AccessFormat::Json, AccessFormat::Combined] {
                let line = line(format, Addresses::Full, &entry("::1", &path, &agent));
                prop_assert_eq!(line.matches('\n').count(), 1);
                prop_assert!(line.trim_end_matches('\n').chars().all(|c| !c.is_control()), "{:?}", line);
            }
            let json = line(AccessFormat::Json, Addresses::Full, &entry("::1", &path, &agent));
            prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok());
        }
    }
}
