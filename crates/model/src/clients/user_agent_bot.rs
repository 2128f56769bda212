//! The user agents that count as bots. Visits keep this bit, so a change applies to later visits only.

use memchr::memmem;

/// Longest user agent that is searched, in bytes.
const AGENT_LEN_MAX: usize = 512;

/// Parts of the names of crawlers, monitors, link previews and libraries, in lower case.
const BOT_NAMES: [&[u8]; 28] = [
    b"bot",
    b"crawl",
    b"spider",
    b"slurp",
    b"archiver",
    b"curl/",
    b"wget",
    b"python",
    b"perl",
    b"ruby",
    b"java/",
    b"go-http",
    b"okhttp",
    b"httpclient",
    b"http-client",
    b"libwww",
    b"axios",
    b"node-fetch",
    b"guzzle",
    b"headless",
    b"phantom",
    b"preview",
    b"externalhit",
    b"whatsapp",
    b"monitor",
    b"scan",
    b"feed",
    b"lighthouse",
];

/// Returns true for a user agent that is not a person's browser. A request without one counts as a person's.
pub fn is_bot(user_agent: &[u8]) -> bool {
    let mut small = [0; AGENT_LEN_MAX];
    let len = user_agent.len().min(AGENT_LEN_MAX);
    // Of a long user agent only the end counts, because crawlers name themselves there.
    small[..len].copy_from_slice(&user_agent[user_agent.len() - len..]);
    small.make_ascii_lowercase();
    BOT_NAMES.iter().any(|name| memmem::find(&small[..len], name).is_some())
}
