//! The check of responses against the links. Pure.

use std::hash::{DefaultHasher, Hasher};

use crate::protocol::response::ParsedResponse;
use crate::workload::links::LinkTable;
use crate::workload::traffic::{Call, RequestKind};

/// Kinds of errors, in the order of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A connection failed to open.
    Connect,
    /// No response arrived within the timeout.
    Timeout,
    /// The connection ended before the response.
    Closed,
    /// The response has an unexpected status.
    Status,
    /// The redirect has another destination than the link.
    Location,
    /// The bytes are not an HTTP response.
    Malformed,
    /// The response to a create names no code, one that was issued before, or another URL than the one sent.
    Created,
}

impl Fault {
    /// All kinds of errors.
    pub(crate) const ALL: [Fault; 7] = [
        Fault::Connect,
        Fault::Timeout,
        Fault::Closed,
        Fault::Status,
        Fault::Location,
        Fault::Malformed,
        Fault::Created,
    ];

    /// Returns the name of the kind in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Connect => "connect",
            Fault::Timeout => "timeout",
            Fault::Closed => "closed",
            Fault::Status => "status",
            Fault::Location => "location",
            Fault::Malformed => "malformed",
            Fault::Created => "created",
        }
    }

    /// True if the server sent a wrong response, rather than none.
    pub(crate) fn is_wrong_answer(self) -> bool {
        matches!(self, Fault::Status | Fault::Location | Fault::Malformed | Fault::Created)
    }
}

/// Expectation for responses.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// Expected status of redirects and of URLs. `None` expects the status of the link, or any redirect if it is
    /// unknown. For a URL, `None` expects any success or redirect.
    pub(crate) status: Option<u16>,
    /// True if `Location` must be the destination of the link.
    pub(crate) location: bool,
}

impl Expectation {
    /// Checks a response. `bytes` is the input in which the response was found.
    ///
    /// # Errors
    /// The fault of the response.
    pub(crate) fn check(
        &self,
        call: Call,
        response: &ParsedResponse,
        bytes: &[u8],
        links: &LinkTable,
    ) -> Result<(), Fault> {
        let status_is_right = match call.kind {
            RequestKind::Redirect | RequestKind::Head => match self.status {
                Some(status) => response.status == status,
                None => match links.status(call.number) {
                    Some(status) => response.status == status,
                    None => matches!(response.status, 301 | 302 | 303 | 307 | 308),
                },
            },
            RequestKind::Miss => response.status == 404,
            RequestKind::Create => matches!(response.status, 200 | 201),
            RequestKind::Url => match self.status {
                Some(status) => response.status == status,
                None => (200..400).contains(&response.status),
            },
        };
        if !status_is_right {
            return Err(Fault::Status);
        }
        match call.kind {
            RequestKind::Redirect | RequestKind::Head if self.location => {
                let location = response.location.clone().map(|range| &bytes[range]);
                if location == Some(links.target(call.number)) { Ok(()) } else { Err(Fault::Location) }
            }
            _ => Ok(()),
        }
    }
}

/// Returns the code and the destination that the response to a create names.
pub(crate) fn created(body: &[u8]) -> Option<(String, String)> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Created {
        short_code: String,
        long_url: String,
    }
    let created: Created = serde_json::from_slice(body).ok()?;
    (!created.short_code.is_empty()).then_some((created.short_code, created.long_url))
}

/// Returns a hash that identifies a code among some millions of others.
pub(crate) fn hash(code: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(code.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::response;

    fn check(kind: RequestKind, bytes: &str, expectation: &Expectation) -> Result<(), Fault> {
        let mut links = LinkTable::default();
        links.push(b"abc", b"https://a/", None).unwrap();
        let response = response::parse(bytes.as_bytes(), false, false).unwrap().unwrap();
        expectation.check(Call { kind, number: 0 }, &response, bytes.as_bytes(), &links)
    }

    #[test]
    fn redirects_must_lead_where_the_link_does() {
        let any = Expectation { status: None, location: true };
        let answer = |status: u16, target: &str| {
            format!("HTTP/1.1 {status} X\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
        };
        assert_eq!(check(RequestKind::Redirect, &answer(308, "https://a/"), &any), Ok(()));
        assert_eq!(check(RequestKind::Redirect, &answer(302, "https://a"), &any), Err(Fault::Location));
        assert_eq!(check(RequestKind::Redirect, &answer(200, "https://a/"), &any), Err(Fault::Status));
        assert_eq!(
            check(RequestKind::Redirect, "HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n", &any),
            Err(Fault::Location)
        );
        let exact = Expectation { status: Some(302), location: false };
        assert_eq!(check(RequestKind::Redirect, &answer(301, "https://a/"), &exact), Err(Fault::Status));
        assert_eq!(check(RequestKind::Redirect, &answer(302, "elsewhere"), &exact), Ok(()));
        assert_eq!(check(RequestKind::Miss, &answer(302, "https://a/"), &any), Err(Fault::Status));
        assert_eq!(check(RequestKind::Miss, "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", &any), Ok(()));
    }

    #[test]
    fn links_with_a_status_of_their_own_must_have_it() {
        let mut links = LinkTable::default();
        links.push(b"abc", b"https://a/", Some(301)).unwrap();
        let any = Expectation { status: None, location: false };
        let check = |status: u16| {
            let bytes = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            let response = response::parse(bytes.as_bytes(), false, false).unwrap().unwrap();
            any.check(Call { kind: RequestKind::Redirect, number: 0 }, &response, bytes.as_bytes(), &links)
        };
        assert_eq!((check(301), check(302)), (Ok(()), Err(Fault::Status)));
    }

    #[test]
    fn urls_must_succeed_or_redirect() {
        let answer = |status: u16| format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
        let any = Expectation { status: None, location: true };
        for (status, expected) in [(200, Ok(())), (302, Ok(())), (404, Err(Fault::Status)), (503, Err(Fault::Status))] {
            assert_eq!(check(RequestKind::Url, &answer(status), &any), expected, "{status}");
        }
        let exact = Expectation { status: Some(404), location: true };
        assert_eq!(check(RequestKind::Url, &answer(404), &exact), Ok(()));
        assert_eq!(check(RequestKind::Url, &answer(200), &exact), Err(Fault::Status));
    }

    #[test]
    fn creates_must_name_their_code() {
        let made = |body: &str| created(body.as_bytes());
        assert_eq!(made("{\"shortCode\":\"x\",\"longUrl\":\"y\"}"), Some(("x".to_owned(), "y".to_owned())));
        for wrong in ["{}", "", "{\"shortCode\":\"\",\"longUrl\":\"y\"}"] {
            assert_eq!(made(wrong), None, "{wrong}");
        }
    }
}
