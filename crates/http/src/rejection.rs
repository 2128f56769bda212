//! The reasons to reject a request before its path is looked at, with their status and their text.

/// A reason to reject a request before its path is looked at. The connection is closed after the response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rejection {
    /// 400: not HTTP/1.x, or shaped so that two programs could read it in two ways.
    BadRequest,
    /// 400: plain HTTP on a TLS port.
    NotEncrypted,
    /// 408: the head or the body was not complete in time.
    Timeout,
    /// 413: the body is longer than the limit.
    BodyTooLarge,
    /// 417: an expectation other than `100-continue`.
    ExpectationFailed,
    /// 431: the head is longer, or has more fields, than the limit.
    HeadTooLarge,
    /// 501: a transfer coding other than `chunked`.
    NotImplemented,
    /// 501: `CONNECT`, which asks for a tunnel.
    Tunnel,
    /// 503: the node is stopping or has no room.
    Unavailable,
    /// 505: not HTTP/1.0 or HTTP/1.1.
    VersionNotSupported,
}

impl Rejection {
    /// All rejections.
    pub const ALL: [Rejection; 10] = [
        Rejection::BadRequest,
        Rejection::NotEncrypted,
        Rejection::Timeout,
        Rejection::BodyTooLarge,
        Rejection::ExpectationFailed,
        Rejection::HeadTooLarge,
        Rejection::NotImplemented,
        Rejection::Tunnel,
        Rejection::Unavailable,
        Rejection::VersionNotSupported,
    ];

    /// Returns the status as a number.
    pub fn number(self) -> u16 {
        self.status()[..3].parse().expect("a status begins with its number")
    }

    /// Returns the number and the phrase of the status line.
    pub fn status(self) -> &'static str {
        match self {
            Rejection::BadRequest | Rejection::NotEncrypted => "400 Bad Request",
            Rejection::Timeout => "408 Request Timeout",
            Rejection::BodyTooLarge => "413 Content Too Large",
            Rejection::ExpectationFailed => "417 Expectation Failed",
            Rejection::HeadTooLarge => "431 Request Header Fields Too Large",
            Rejection::NotImplemented | Rejection::Tunnel => "501 Not Implemented",
            Rejection::Unavailable => "503 Service Unavailable",
            Rejection::VersionNotSupported => "505 HTTP Version Not Supported",
        }
    }

    /// Returns a sentence for the person behind the client: the mistake, and what would be right.
    pub fn explanation(self) -> &'static str {
        match self {
            Rejection::BadRequest => "The request is not well-formed HTTP/1.1.",
            Rejection::NotEncrypted => "This port expects TLS. Use https:// at the start of the address.",
            Rejection::Timeout => "The request did not arrive completely in time. Send it again.",
            Rejection::BodyTooLarge => "The request body is too large. Send a smaller one.",
            Rejection::ExpectationFailed => "The only supported expectation is \"Expect: 100-continue\".",
            Rejection::HeadTooLarge => {
                "The request head is too large, or has more than 100 header fields. Shorten the URL, the cookies or other fields."
            }
            Rejection::NotImplemented => "The only supported transfer coding is \"chunked\".",
            Rejection::Tunnel => TUNNEL,
            Rejection::Unavailable => "The service is restarting or at its limit. Try again in a moment.",
            Rejection::VersionNotSupported => "The supported versions are HTTP/1.1 and HTTP/1.0.",
        }
    }
}

/// The explanation of [`Rejection::Tunnel`], which HTTP/2 gives as well.
pub const TUNNEL: &str = "CONNECT is not supported.";
