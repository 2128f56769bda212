//! Visits between cores and the counting thread: the link and the visitor, in rings that a core fills without waiting.
//!
//! One service thread drains the rings. If a ring is full, the visit is dropped and counted, and the redirect proceeds.
//!
//! [`ring`] defines the entries; [`tally`] and [`history`] hold the counts, and [`origins`] says which node of a fleet
//! counted them. [`batches`] and [`count_exchange`] decide how nodes share counts, and [`entries`] is the form in which they
//! do. The counting thread is `services::visits`. [`allowance`] and [`grants`] limit the visits of a link, on one node and in
//! a fleet; [`left_grants`] is what a node that stops leaves to the others.
//!
//! [`raw`] is a single visit on its way from a core to the visit log, and [`record`] one inside the log. [`campaign`] and
//! [`breakdown`] derive statistics from it. [`shared_log`] decides how nodes share their logs.

pub mod allowance;
pub mod batches;
pub mod breakdown;
pub mod campaign;
pub mod count_exchange;
pub mod entries;
pub mod grants;
pub mod history;
pub mod left_grants;
pub mod origins;
pub mod raw;
pub mod record;
pub mod ring;
pub mod shared_log;
pub mod tally;
mod visit;

use memchr::{memchr3, memmem, memrchr};
use xxhash_rust::xxh3::xxh3_64;

use crate::clients::user_agent_bot::is_bot;
use crate::destination::hosts::without_port;

pub use self::ring::VisitReceiver;
pub use self::visit::{HOST_LEN_MAX, RecordOutcome, Visit, Visitor};

/// Number of user agents whose kind each core caches. Most requests of a service come from some dozens.
const AGENTS: usize = 512;

/// A core's end of its ring, with a cache of user agents.
pub struct VisitSender {
    ring: ring::RingSender,
    /// A part of the hash of each user agent, and whether it is a bot; zero for an empty slot.
    agents: Box<[u32]>,
}

impl std::fmt::Debug for VisitSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitSender")
    }
}

/// Creates a ring that lives as long as the process, as its cores do.
pub fn ring() -> (VisitSender, VisitReceiver) {
    let (ring, receiver) = ring::ring();
    (VisitSender { ring, agents: vec![0; AGENTS].into() }, receiver)
}

impl VisitSender {
    /// Classifies the sender of a request by two fields of its head.
    #[inline]
    pub fn visitor(&mut self, user_agent: &[u8], referer: &[u8]) -> Visitor {
        let mut visitor = Visitor { is_bot: self.is_known_bot(user_agent), host_len: 0, host: [0; HOST_LEN_MAX] };
        if !referer.is_empty() {
            let host = host_of(referer);
            let host = &host[host.len().saturating_sub(HOST_LEN_MAX)..];
            visitor.host_len = host.len() as u8;
            visitor.host[..host.len()].copy_from_slice(host);
            visitor.host.make_ascii_lowercase();
        }
        visitor
    }

    /// Reports a visit. Never waits.
    #[inline]
    pub fn record(&mut self, visit: &Visit) -> RecordOutcome {
        self.ring.record(visit)
    }

    /// Returns the result of [`is_bot`], which it caches: the search takes longer than a look into a table.
    pub fn is_known_bot(&mut self, user_agent: &[u8]) -> bool {
        let hash = xxh3_64(user_agent);
        let place = &mut self.agents[hash as usize % AGENTS];
        let tag = (hash >> 32) as u32 & !3 | 2;
        if *place & !1 != tag {
            *place = tag | u32::from(is_bot(user_agent));
        }
        *place & 1 == 1
    }
}

/// Returns the host of a `Referer`, without port and user; empty if it has none.
pub fn host_of(referer: &[u8]) -> &[u8] {
    let Some(rest) = behind_scheme(referer) else { return &[] };
    let authority = &rest[..memchr3(b'/', b'?', b'#', rest).unwrap_or(rest.len())];
    let host = without_port(&authority[memrchr(b'@', authority).map_or(0, |at| at + 1)..]);
    let is_sound = host.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._[]:".contains(byte));
    if is_sound { host } else { &[] }
}

/// Returns the bytes behind the first `://`.
#[inline]
fn behind_scheme(url: &[u8]) -> Option<&[u8]> {
    // Nearly all URLs have one of two schemes, and two comparisons are cheaper than a search.
    let of_web = url.strip_prefix(b"https://").or_else(|| url.strip_prefix(b"http://"));
    of_web.or_else(|| memmem::find(url, b"://").map(|at| &url[at + 3..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn bots_are_known_by_their_names() {
        let browser =
            "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36";
        let google = format!("{browser} (compatible; Googlebot/2.1; +http://www.google.com/bot.html)");
        let padded = format!("{}{google}", "x".repeat(2_000));
        for (agent, bot) in [
            ("", false),
            (browser, false),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 Version/18.0 Safari/604.1",
                false,
            ),
            (&google, true),
            (&padded, true),
            ("curl/8.5.0", true),
            ("python-requests/2.31", true),
            ("facebookexternalhit/1.1", true),
            ("Go-http-client/1.1", true),
        ] {
            let (mut sender, _) = ring();
            assert_eq!(is_bot(agent.as_bytes()), bot, "{agent}");
            for _ in 0..2 {
                assert_eq!(sender.visitor(agent.as_bytes(), b"").is_bot, bot, "{agent}");
            }
        }
    }

    #[test]
    fn a_referrer_is_a_host() {
        let (mut sender, _) = ring();
        for (referer, host) in [
            ("https://News.Example.org/a?b=c", "news.example.org"),
            ("http://user:word@a.example:8080", "a.example"),
            ("https://[2001:db8::1]:443/x", "[2001:db8::1]"),
            ("android-app://com.example.app/", "com.example.app"),
            ("HTTPS://a@b@c.example?d@e", "c.example"),
            ("https:/http://a.example#@b", "a.example"),
            ("http://", ""),
            ("about:blank", ""),
            ("https://a b/", ""),
            ("", ""),
        ] {
            assert_eq!(sender.visitor(b"", referer.as_bytes()).host(), host.as_bytes(), "{referer}");
        }
        let long = format!("https://{}.example.org/", "sub.".repeat(40));
        let visitor = sender.visitor(b"", long.as_bytes());
        assert!(visitor.host().len() == HOST_LEN_MAX);
        assert!(visitor.host().ends_with(b".example.org"));
    }

    proptest! {
        #[test]
        fn any_head_is_taken(agent in any::<Vec<u8>>(), referer in any::<Vec<u8>>(), url in "[a-z]{1,5}://.{0,100}") {
            let (mut sender, _) = ring();
            let _ = (sender.visitor(&agent, &referer), sender.visitor(&agent, url.as_bytes()));
        }
    }
}
