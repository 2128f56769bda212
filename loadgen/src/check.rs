//! Whether an answer is right. Pure.

use crate::links::Links;
use crate::response::Response;
use crate::traffic::{Call, Kind};

/// Kinds of errors, in the order of reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A connection could not be made.
    Connect,
    /// No answer came in time.
    Timeout,
    /// The connection ended before the answer.
    Closed,
    /// The answer has another status than it should.
    Status,
    /// The redirect leads elsewhere.
    Location,
    /// What came is no HTTP response, or the answer to a create is not one.
    Malformed,
}

impl Fault {
    /// All of them.
    pub(crate) const ALL: [Fault; 6] =
        [Fault::Connect, Fault::Timeout, Fault::Closed, Fault::Status, Fault::Location, Fault::Malformed];

    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Fault::Connect => "connect",
            Fault::Timeout => "timeout",
            Fault::Closed => "closed",
            Fault::Status => "status",
            Fault::Location => "location",
            Fault::Malformed => "malformed",
        }
    }

    /// Whether the server said something wrong, rather than nothing.
    pub(crate) fn is_wrong_answer(self) -> bool {
        matches!(self, Fault::Status | Fault::Location | Fault::Malformed)
    }
}

/// What is expected of redirects.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// Their status; any redirect where none is given.
    pub(crate) status: Option<u16>,
    /// Whether they must lead where the link does.
    pub(crate) location: bool,
}

impl Expectation {
    /// Checks a response. `bytes` is the input that the response was found in.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn check(&self, call: Call, response: &Response, bytes: &[u8], links: &Links) -> Result<(), Fault> {
        let status_is_right = match call.kind {
            Kind::Redirect | Kind::Head => match self.status {
                Some(status) => response.status == status,
                None => matches!(response.status, 301 | 302 | 303 | 307 | 308),
            },
            Kind::Miss => response.status == 404,
            Kind::Create => matches!(response.status, 200 | 201),
        };
        if !status_is_right {
            return Err(Fault::Status);
        }
        match call.kind {
            Kind::Redirect | Kind::Head if self.location => {
                let location = response.location.clone().map(|range| &bytes[range]);
                if location == Some(links.target(call.number)) { Ok(()) } else { Err(Fault::Location) }
            }
            Kind::Create => created(&bytes[response.body.clone()]).map(|_| ()).ok_or(Fault::Malformed),
            _ => Ok(()),
        }
    }
}

/// The code and the long URL that the answer to a create names.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response;

    fn check(kind: Kind, bytes: &str, expectation: &Expectation) -> Result<(), Fault> {
        let mut links = Links::default();
        links.push(b"abc", b"https://a/").unwrap();
        let response = response::parse(bytes.as_bytes(), false, false).unwrap().unwrap();
        expectation.check(Call { kind, number: 0 }, &response, bytes.as_bytes(), &links)
    }

    #[test]
    fn redirects_must_lead_where_the_link_does() {
        let any = Expectation { status: None, location: true };
        let answer = |status: u16, target: &str| {
            format!("HTTP/1.1 {status} X\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
        };
        assert_eq!(check(Kind::Redirect, &answer(308, "https://a/"), &any), Ok(()));
        assert_eq!(check(Kind::Redirect, &answer(302, "https://a"), &any), Err(Fault::Location));
        assert_eq!(check(Kind::Redirect, &answer(200, "https://a/"), &any), Err(Fault::Status));
        assert_eq!(check(Kind::Redirect, "HTTP/1.1 302 X\r\nContent-Length: 0\r\n\r\n", &any), Err(Fault::Location));
        let exact = Expectation { status: Some(302), location: false };
        assert_eq!(check(Kind::Redirect, &answer(301, "https://a/"), &exact), Err(Fault::Status));
        assert_eq!(check(Kind::Redirect, &answer(302, "elsewhere"), &exact), Ok(()));
        assert_eq!(check(Kind::Miss, &answer(302, "https://a/"), &any), Err(Fault::Status));
        assert_eq!(check(Kind::Miss, "HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n", &any), Ok(()));
    }

    #[test]
    fn creates_must_name_their_code() {
        let any = Expectation { status: None, location: true };
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        assert_eq!(check(Kind::Create, &answer("{\"shortCode\":\"x\",\"longUrl\":\"y\"}"), &any), Ok(()));
        for wrong in ["{}", "", "{\"shortCode\":\"\",\"longUrl\":\"y\"}"] {
            assert_eq!(check(Kind::Create, &answer(wrong), &any), Err(Fault::Malformed), "{wrong}");
        }
    }
}
