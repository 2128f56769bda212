//! What is told to who follows a link that cannot be followed.

/// Why a link is not followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notice {
    /// There is no such link.
    NotFound,
    /// There was such a link.
    Gone,
    /// There is such a link, but its target is on the block list.
    Blocked,
    /// Whoever asks has asked for too many links that do not exist.
    TooMany,
    /// The host that was asked is no domain of the service.
    Misdirected,
    /// There is such a link, but where it leads cannot be read.
    Damaged,
    /// The answer is not to be had now.
    Unavailable,
}

impl Notice {
    /// All of them.
    pub const ALL: [Notice; 7] = [
        Notice::NotFound,
        Notice::Gone,
        Notice::Blocked,
        Notice::TooMany,
        Notice::Misdirected,
        Notice::Damaged,
        Notice::Unavailable,
    ];

    /// Number and phrase of the status line.
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

    /// The number alone.
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

    /// What its template is called, where there is one for it alone.
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

    /// What it is about.
    pub const fn heading(self) -> &'static str {
        match self {
            Notice::NotFound => "This link does not exist",
            Notice::Gone => "This link has ended",
            Notice::Blocked => "This link was stopped",
            Notice::TooMany => "Too many wrong links",
            Notice::Misdirected => "Nothing is served here",
            Notice::Damaged => "This link cannot be followed",
            Notice::Unavailable => "Not available right now",
        }
    }

    /// What to do about it.
    pub const fn text(self) -> &'static str {
        match self {
            Notice::NotFound => "Check that the address is complete: capital and small letters matter.",
            Notice::Gone => "It was valid for a limited time. Ask whoever gave it to you for a new one.",
            Notice::Blocked => {
                "Where it leads is blocked by the operators of this service. Do not look for another way there."
            }
            Notice::TooMany => {
                "From where you are, too many links were asked for that do not exist. Try again in a moment."
            }
            Notice::Misdirected => {
                "This address leads to a service of short links, but its host name is none of theirs. Check how the link begins."
            }
            Notice::Damaged => "Its record is damaged. The operators of this service have been told.",
            Notice::Unavailable => "Try again in a moment.",
        }
    }

    /// After how many seconds a client should come again, where that may help.
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
