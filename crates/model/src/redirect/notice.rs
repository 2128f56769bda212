//! The notices that visitors see in place of a redirect.

/// Seconds after which an address over the miss limit may miss once more. Any limit allows one miss per second.
pub const MISS_WAIT_SECONDS: u64 = 1;

/// The reason why a link does not redirect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// The link does not exist.
    NotFound,
    /// The link has expired, is archived, or has reached its visit limit.
    Gone,
    /// The link exists, but its destination is on the block list.
    Blocked,
    /// The client requested too many links that do not exist.
    TooMany,
    /// The host is not a domain of the service.
    Misdirected,
    /// The link exists, but its record cannot be read.
    Damaged,
    /// The link cannot be looked up at present.
    Unavailable,
}

impl Notice {
    /// All notices.
    pub const ALL: [Notice; 7] = [
        Notice::NotFound,
        Notice::Gone,
        Notice::Blocked,
        Notice::TooMany,
        Notice::Misdirected,
        Notice::Damaged,
        Notice::Unavailable,
    ];

    /// Returns number and phrase of the status line.
    pub const fn status(self) -> &'static str {
        match self {
            Notice::NotFound => "404 Not Found",
            Notice::Gone | Notice::Blocked => "410 Gone",
            Notice::TooMany => "429 Too Many Requests",
            Notice::Misdirected => "421 Misdirected Request",
            Notice::Damaged => "500 Internal Server Error",
            Notice::Unavailable => "503 Service Unavailable",
        }
    }

    /// Returns the status code.
    pub const fn number(self) -> u16 {
        match self {
            Notice::NotFound => 404,
            Notice::Gone | Notice::Blocked => 410,
            Notice::TooMany => 429,
            Notice::Misdirected => 421,
            Notice::Damaged => 500,
            Notice::Unavailable => 503,
        }
    }

    /// Returns the file name of a template for this notice alone.
    pub const fn template(self) -> &'static str {
        match self {
            Notice::NotFound => "404.html",
            Notice::Gone => "410.html",
            Notice::Blocked => "blocked.html",
            Notice::TooMany => "429.html",
            Notice::Misdirected => "421.html",
            Notice::Damaged => "500.html",
            Notice::Unavailable => "503.html",
        }
    }

    /// Returns the heading of the page.
    pub const fn heading(self) -> &'static str {
        match self {
            Notice::NotFound => "This link does not exist",
            Notice::Gone => "This link is no longer active",
            Notice::Blocked => "This link is disabled",
            Notice::TooMany => "Too many requests",
            Notice::Misdirected => "Unknown domain",
            Notice::Damaged => "This link cannot be opened",
            Notice::Unavailable => "Temporarily unavailable",
        }
    }

    /// Returns the advice below the heading.
    pub const fn text(self) -> &'static str {
        match self {
            Notice::NotFound => "Check the address for typos. Capital letters may matter.",
            Notice::Gone => "Ask the person who shared it for a new one.",
            Notice::Blocked => "The operators of this service have blocked its destination because it may be unsafe.",
            Notice::TooMany => "Your network requested too many links that don’t exist. Try again in a moment.",
            Notice::Misdirected => "This domain isn’t set up for links. Check the domain in the address.",
            Notice::Damaged => "The stored link is damaged. The operators of this service have been notified.",
            Notice::Unavailable => "Try again in a moment.",
        }
    }

    /// Returns the seconds after which a retry may succeed; `None` if a retry is pointless.
    pub const fn retry_after(self) -> Option<u32> {
        match self {
            Notice::TooMany | Notice::Unavailable => Some(1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_status_lines() {
        for notice in Notice::ALL {
            assert!(notice.status().starts_with(&format!("{} ", notice.number())), "{notice:?}");
        }
    }
}
