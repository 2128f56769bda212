//! The HTTP machine, the state machine of a connection: which bytes make a request that is answered immediately, which
//! are passed to hyper, and which end the connection.
//!
//! The machine owns no buffer. The caller shows it the bytes that are not consumed yet; it returns how many of them it
//! consumed and what to do. Feeding it byte by byte or all at once gives the same actions. A connection starts on the
//! fast path. It leaves that for good with the first request that is not exactly a `GET` or `HEAD` for a code. From
//! then on the machine only checks heads and counts bodies, and the checked bytes go to hyper.

use std::net::IpAddr;

use super::chunked::Chunked;
use super::head::{self, Body, Head, HeadScan, Method};
use super::proxy;
use super::redirect::{RedirectRequest, fast_request};
use super::rejection::Rejection;
use carom_limits::{BODY_LEN_MAX, HEAD_LEN_MAX};

/// The caller's next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Wait for more bytes.
    Read,
    /// Look the code up and answer. The caller must not step again before that.
    Lookup(RedirectRequest),
    /// Let hyper drive this connection from now on. Nothing was consumed; step again.
    HandOver,
    /// Pass the consumed bytes to hyper, and step again.
    Pass,
    /// Pass the consumed head to hyper as one of HTTP/1.1, and step again. The digit at this offset is a later minor
    /// version, which hyper does not know.
    PassAsHttp11 {
        /// The offset of the digit in the consumed bytes.
        minor: usize,
    },
    /// Use this address as that of the client, and step again. `None` if the balancer names no client.
    From(Option<IpAddr>),
    /// Close without a response, because the bytes are no PROXY header. No further step.
    HangUp,
    /// Send this rejection after all earlier responses, and close. No further step.
    Reject(Rejection),
}

/// The outcome of one step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Bytes at the front of the input that are consumed.
    pub consumed: usize,
    /// The caller's next action.
    pub action: Action,
}

/// The input that a connection waits for, which decides the timeout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Expects {
    /// The next request, of which nothing has come.
    Request,
    /// The rest of a head.
    Head,
    /// The rest of a body.
    Body,
    /// The rest of a body of unlimited length.
    UnboundedBody,
}

impl Expects {
    /// True if a body is in progress.
    pub fn is_body(self) -> bool {
        matches!(self, Expects::Body | Expects::UnboundedBody)
    }
}

/// Upper bounds for a client's input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Bytes of a head.
    pub head: u32,
    /// Bytes of a body.
    pub body: u32,
    /// Requests on a connection; 0 means no limit.
    pub requests: u32,
    /// The paths that accept a body of any length, for as long as it makes progress. Empty if none does.
    pub stream_paths: &'static [&'static str],
    /// A query parameter with which a request is no visit, so that it leaves the fast path. Empty for none.
    pub nostat: &'static str,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { head: HEAD_LEN_MAX as u32, body: BODY_LEN_MAX as u32, requests: 0, stream_paths: &[], nostat: "" }
    }
}

/// The HTTP machine of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    bounds: Bounds,
    scan: HeadScan,
    mode: Mode,
    heads: u32,
    /// True if the message in progress, or else the next one, is the last.
    last: bool,
    /// True if the body in progress may be of any length.
    endless: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Requests are answered by the core.
    Fast,
    /// hyper answers requests. The next byte belongs to this part of a message.
    Slow(Part),
    /// A PROXY header comes before anything else.
    Proxy,
    /// hyper reads all bytes, and enforces the limits itself.
    Frames,
    /// No more bytes are read.
    Ended { in_body: bool },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Head,
    Length { left: u64 },
    Chunked(Chunked),
}

impl Connection {
    /// Returns a connection that starts on the fast path.
    pub fn for_redirects() -> Connection {
        Connection {
            bounds: Bounds::default(),
            scan: HeadScan::default(),
            mode: Mode::Fast,
            heads: 0,
            last: false,
            endless: false,
        }
    }

    /// Replaces the bounds.
    #[must_use]
    pub fn within(self, bounds: Bounds) -> Connection {
        Connection { bounds, ..self }
    }

    /// Returns a connection that begins with a PROXY header, and continues on the fast path.
    pub fn proxied() -> Connection {
        Connection { mode: Mode::Proxy, ..Connection::for_redirects() }
    }

    /// Returns a connection that hyper drives from its first byte.
    pub fn for_hyper() -> Connection {
        Connection { mode: Mode::Slow(Part::Head), ..Connection::for_redirects() }
    }

    /// Passes every further byte to hyper, which reads HTTP/2 frames from them.
    pub fn pass_all(&mut self) {
        self.mode = Mode::Frames;
    }

    /// True if a PROXY header is still to come.
    pub fn awaits_proxy(&self) -> bool {
        self.mode == Mode::Proxy
    }

    /// Accepts no message after the one in progress, or after the next one if none is in progress.
    pub fn close_after_next(&mut self) {
        self.last = true;
    }

    /// True if the machine accepts no further request. Bytes that still come are ignored without an error.
    pub fn is_ended(&self) -> bool {
        matches!(self.mode, Mode::Ended { .. })
    }

    /// Accepts no further request: hyper's last answer ends the connection. HTTP/2 frames continue, because they carry
    /// more than requests.
    pub fn end(&mut self) {
        if self.mode != Mode::Frames {
            self.mode = Mode::Ended { in_body: false };
        }
    }

    /// Returns the number of complete heads so far; wraps. A change means that another message has begun.
    pub fn heads(&self) -> u32 {
        self.heads
    }

    /// Returns the input that the machine waits for, given the number of unconsumed bytes; after a rejection, the input
    /// that it waited for before.
    pub fn expects(&self, unconsumed: usize) -> Expects {
        match self.mode {
            Mode::Slow(Part::Length { .. } | Part::Chunked(_)) if self.endless => Expects::UnboundedBody,
            Mode::Slow(Part::Length { .. } | Part::Chunked(_)) | Mode::Ended { in_body: true } => Expects::Body,
            Mode::Proxy => Expects::Head,
            Mode::Fast | Mode::Slow(Part::Head) if unconsumed > 0 => Expects::Head,
            _ => Expects::Request,
        }
    }

    /// Advances the machine over all bytes that are not consumed yet. After [`Action::Read`] the caller must show the
    /// same bytes again with more behind them.
    #[inline]
    pub fn step(&mut self, input: &[u8]) -> Step {
        match self.mode {
            Mode::Ended { .. } => Step { consumed: input.len(), action: Action::Read },
            _ if input.is_empty() => Step { consumed: 0, action: Action::Read },
            Mode::Proxy => self.step_proxy(input),
            Mode::Frames => Step { consumed: input.len(), action: Action::Pass },
            Mode::Fast | Mode::Slow(Part::Head) => self.step_head(input),
            Mode::Slow(Part::Length { left }) => {
                let consumed = left.min(input.len() as u64);
                let left = left - consumed;
                self.mode = if left == 0 { self.mode_after_message() } else { Mode::Slow(Part::Length { left }) };
                Step { consumed: consumed as usize, action: Action::Pass }
            }
            Mode::Slow(Part::Chunked(mut chunked)) => match chunked.advance(input, u64::from(self.bounds.body)) {
                Ok((consumed, ended)) => {
                    self.mode = if ended { self.mode_after_message() } else { Mode::Slow(Part::Chunked(chunked)) };
                    Step { consumed, action: Action::Pass }
                }
                Err(rejection) => self.reject(rejection),
            },
        }
    }

    fn step_proxy(&mut self, input: &[u8]) -> Step {
        match proxy::parse(input) {
            proxy::ParsedHeader::Part => Step { consumed: 0, action: Action::Read },
            proxy::ParsedHeader::Header { len, client } => {
                self.mode = Mode::Fast;
                Step { consumed: len, action: Action::From(client) }
            }
            proxy::ParsedHeader::Other => {
                self.mode = Mode::Ended { in_body: false };
                Step { consumed: 0, action: Action::HangUp }
            }
        }
    }

    #[inline]
    fn step_head(&mut self, input: &[u8]) -> Step {
        let (head, end) = match self.scan.parse(input, self.bounds.head as usize) {
            Ok(Some(found)) => found,
            Ok(None) => return Step { consumed: 0, action: Action::Read },
            Err(rejection) => return self.reject(rejection),
        };
        // The number of heads does not wrap on a connection that limits it.
        self.last |= self.bounds.requests > 0 && self.heads + 1 >= self.bounds.requests;
        if self.mode == Mode::Fast {
            if let Some(request) = fast_request(&head, input, self.last, self.bounds.nostat) {
                self.scan = HeadScan::default();
                self.heads = self.heads.wrapping_add(1);
                return Step { consumed: end, action: Action::Lookup(request) };
            }
            self.scan = HeadScan::default();
            self.mode = Mode::Slow(Part::Head);
            return Step { consumed: 0, action: Action::HandOver };
        }
        self.scan = HeadScan::default();
        self.heads = self.heads.wrapping_add(1);
        self.last |= head.close;
        self.endless = is_stream(&head, self.bounds.stream_paths);
        self.mode = match head.body {
            Body::Length(len) if len > u64::from(self.bounds.body) && !self.endless => {
                return self.reject(Rejection::BodyTooLarge);
            }
            Body::None | Body::Length(0) => self.mode_after_message(),
            Body::Length(left) => Mode::Slow(Part::Length { left }),
            Body::Chunked if self.endless => Mode::Slow(Part::Chunked(Chunked::endless())),
            Body::Chunked => Mode::Slow(Part::Chunked(Chunked::default())),
        };
        let action = head::later_minor(&input[..end]).map_or(Action::Pass, |minor| Action::PassAsHttp11 { minor });
        Step { consumed: end, action }
    }

    /// Returns the mode after a message on the slow path.
    fn mode_after_message(&self) -> Mode {
        if self.last { Mode::Ended { in_body: false } } else { Mode::Slow(Part::Head) }
    }

    fn reject(&mut self, rejection: Rejection) -> Step {
        let in_body = matches!(self.mode, Mode::Slow(Part::Length { .. } | Part::Chunked(_)));
        self.mode = Mode::Ended { in_body };
        Step { consumed: 0, action: Action::Reject(rejection) }
    }
}

/// True if a request may have a body of any length, because its path is one of `stream_paths`.
fn is_stream(head: &Head<'_>, stream_paths: &[&str]) -> bool {
    let is_path = |path: &&str| {
        let behind = head.target.strip_prefix(path.as_bytes());
        behind.is_some_and(|rest| matches!(rest.first(), None | Some(b'?')))
    };
    head.method == Method::Other && stream_paths.iter().any(is_path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::{Span, peek_host};
    use carom_shards::Code;
    use proptest::prelude::*;

    /// A caller's view of a stream: the actions with the bytes they consumed.
    #[derive(PartialEq, Eq, Debug)]
    enum Seen {
        /// With the query string.
        Asked(RedirectRequest, String),
        HandedOver,
        Passed(Vec<u8>),
        Rejected(Rejection),
        From(Option<IpAddr>),
        HungUp,
    }

    /// Feeds a stream in the given pieces, as the caller does.
    fn drive(pieces: &[&[u8]]) -> Vec<Seen> {
        drive_on(Connection::for_redirects(), pieces)
    }

    fn drive_on(mut connection: Connection, pieces: &[&[u8]]) -> Vec<Seen> {
        let mut unconsumed = Vec::new();
        let mut seen = Vec::new();
        'pieces: for piece in pieces {
            unconsumed.extend_from_slice(piece);
            loop {
                let step = connection.step(&unconsumed);
                let mut taken: Vec<u8> = unconsumed.drain(..step.consumed).collect();
                match step.action {
                    Action::Read => break,
                    Action::Lookup(ask) => {
                        let query = String::from_utf8(ask.query.of(&taken).to_vec()).unwrap();
                        let none = Span::default();
                        assert_eq!(ask.host.of(&taken), b"a");
                        let ask = RedirectRequest { host: none, query: none, user_agent: none, referer: none, ..ask };
                        seen.push(Seen::Asked(ask, query));
                    }
                    Action::HandOver => seen.push(Seen::HandedOver),
                    action @ (Action::Pass | Action::PassAsHttp11 { .. }) => {
                        if let Action::PassAsHttp11 { minor } = action {
                            taken[minor] = b'1';
                        }
                        match seen.last_mut() {
                            Some(Seen::Passed(bytes)) => bytes.extend(taken),
                            _ => seen.push(Seen::Passed(taken)),
                        }
                    }
                    Action::Reject(rejection) => {
                        seen.push(Seen::Rejected(rejection));
                        break 'pieces;
                    }
                    Action::From(client) => seen.push(Seen::From(client)),
                    Action::HangUp => {
                        seen.push(Seen::HungUp);
                        break 'pieces;
                    }
                }
            }
        }
        seen
    }

    fn ask(code: &str, query: &str) -> Seen {
        let (code, nowhere) = (Code::parse(code.as_bytes()).unwrap(), Span::default());
        let ask = RedirectRequest {
            code,
            host: nowhere,
            forwarded: nowhere,
            x_forwarded_for: nowhere,
            is_split: false,
            query: nowhere,
            user_agent: nowhere,
            referer: nowhere,
            accept_language: nowhere,
            head_only: false,
            accepts_html: false,
            close: false,
            asked_to_close: false,
        };
        Seen::Asked(ask, query.to_owned())
    }

    #[test]
    fn a_proxy_header_comes_first_and_once() {
        let header = b"PROXY TCP4 203.0.113.7 10.0.0.1 5 80\r\n";
        let request = b"GET /abc HTTP/1.1\r\nHost: a\r\n\r\n";
        let client = Seen::From(Some(IpAddr::from([203, 0, 113, 7])));
        let whole = [&header[..], request, request].concat();
        assert_eq!(drive_on(Connection::proxied(), &[&whole]), [client, ask("abc", ""), ask("abc", "")]);
        let bytes: Vec<&[u8]> = whole.chunks(1).collect();
        assert_eq!(drive_on(Connection::proxied(), &bytes), drive_on(Connection::proxied(), &[&whole]));
        let slow = [&header[..], b"POST / HTTP/1.1\r\nHost: a\r\n\r\n"].concat();
        assert!(matches!(
            drive_on(Connection::proxied(), &[&slow])[..],
            [Seen::From(Some(_)), Seen::HandedOver, Seen::Passed(_)]
        ));
        assert_eq!(drive_on(Connection::proxied(), &[request]), [Seen::HungUp]);
        let twice = [&header[..], header, request].concat();
        assert!(matches!(drive_on(Connection::proxied(), &[&twice])[..], [Seen::From(_), Seen::Rejected(_)]));
        // Elsewhere it is no request.
        assert_eq!(drive(&[&whole]), [Seen::Rejected(Rejection::BadRequest)]);
        assert_eq!(Connection::proxied().expects(0), Expects::Head);
    }

    #[test]
    fn pipelined_redirects_stay_on_the_fast_way() {
        let stream = b"GET /abc HTTP/1.1\r\nHost: a\r\n\r\nGET /de-f?utm=1 HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(drive(&[stream]), [ask("abc", ""), ask("de-f", "utm=1")]);
        let head = b"HEAD /abc?a=%20&b?c HTTP/1.1\r\nHost: a\r\n\r\n";
        let Action::Lookup(ask) = Connection::for_redirects().step(head).action else { panic!("no question") };
        assert_eq!(ask.query.of(head), b"a=%20&b?c");
        assert_eq!((ask.host.of(head), peek_host(head)), (&b"a"[..], &b"a"[..]));
        assert!(
            [&b"GET /a HTTP/1.1\r\nAccept: b\r\n"[..], b"GET /a HTTP/1.1\r\nHost: b", b""]
                .iter()
                .all(|head| peek_host(head) == b"")
        );
        let browser = b"GET /abc HTTP/1.1\r\nHost: a\r\nuser-agent: Mozilla/5.0 (X)\r\nReferer:\thttps://b/ \r\n\r\n";
        let Action::Lookup(ask) = Connection::for_redirects().step(browser).action else { panic!("no question") };
        assert_eq!(
            (ask.user_agent.of(browser), ask.referer.of(browser)),
            (&b"Mozilla/5.0 (X)"[..], &b"https://b/"[..])
        );
        let fragment = b"GET /abc?a=1#b HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(Connection::for_redirects().step(fragment).action, Action::HandOver);
    }

    #[test]
    fn anything_else_is_handed_over_whole_and_for_good() {
        for request in [
            "POST /rest/v3/short-urls HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /a/b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET http://a/abc HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET /abc HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
            "GET /abc HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
            "GET /abc HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n",
            "GET /%61bc HTTP/1.1\r\nHost: a\r\n\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        ] {
            let stream = format!("{request}GET /abc HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(
                drive(&[stream.as_bytes()]),
                [Seen::HandedOver, Seen::Passed(stream.clone().into_bytes())],
                "{request:?}"
            );
        }
    }

    #[test]
    fn a_later_minor_version_is_answered_as_http_1_1() {
        assert_eq!(drive(&[b"GET /abc?x HTTP/1.2\r\nHost: a\r\n\r\n"]), [ask("abc", "x")]);
        let sent = "POST /x HTTP/1.9\r\nHost: a\r\n\r\n";
        assert_eq!(drive(&[sent.as_bytes()])[1], Seen::Passed(sent.replace("1.9", "1.1").into_bytes()));
    }

    #[test]
    fn nothing_is_taken_behind_the_last_message() {
        for last in [
            "GET /abc HTTP/1.0\r\n\r\n",
            "GET /rest/health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
            "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
            "POST /x HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ] {
            for behind in ["\r\n", "GET /abc HTTP/1.1\r\nHost: a\r\n\r\n", "\0"] {
                let stream = format!("{last}{behind}");
                let seen = drive(&[stream.as_bytes()]);
                assert_eq!(seen, [Seen::HandedOver, Seen::Passed(last.as_bytes().to_vec())], "{stream:?}");
            }
        }
        let mut connection = Connection::for_hyper();
        connection.close_after_next();
        let head = b"GET /rest/health HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(connection.step(head), Step { consumed: head.len(), action: Action::Pass });
        assert!(connection.is_ended());
        assert_eq!(connection.expects(9), Expects::Request, "what follows has no time limit of its own");
    }

    #[test]
    fn a_close_that_the_client_asked_for_differs_from_one_by_the_server() {
        let asked = |connection: &mut Connection, fields: &str| {
            let head = format!("GET /abc HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
            let Action::Lookup(ask) = connection.step(head.as_bytes()).action else { panic!("{head}") };
            (ask.close, ask.asked_to_close)
        };
        assert_eq!(asked(&mut Connection::for_redirects(), ""), (false, false));
        assert_eq!(asked(&mut Connection::for_redirects(), "Connection: close\r\n"), (true, true));
        // In a drain the server closes: the client may send more.
        let mut draining = Connection::for_redirects();
        draining.close_after_next();
        assert_eq!(asked(&mut draining, ""), (true, false));
    }

    #[test]
    fn a_body_is_never_the_next_request() {
        let hidden = "GET /abc HTTP/1.1\r\nHost: a\r\n\r\n";
        let stream = format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len());
        assert_eq!(drive(&[stream.as_bytes()]), [Seen::HandedOver, Seen::Passed(stream.clone().into_bytes())]);
    }

    #[test]
    fn a_body_that_is_announced_too_long_is_refused_at_its_head() {
        let stream = b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n";
        assert_eq!(drive(&[stream]), [Seen::HandedOver, Seen::Rejected(Rejection::BodyTooLarge)]);
    }

    #[test]
    fn only_the_stream_path_has_bodies_of_any_length() {
        const STREAM_PATH: &str = "/rest/v3/short-urls/bulk";
        let limit = "Content-Length: 99999999999";
        let begin = |line: &str, fields: &str| {
            let bounds =
                Bounds { stream_paths: &[STREAM_PATH, "/rest/v3/short-urls/bulk/changes"], ..Bounds::default() };
            let mut connection = Connection::for_hyper().within(bounds);
            let head = format!("{line} HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n");
            (connection.step(head.as_bytes()).action, connection)
        };
        let changes = format!("POST {STREAM_PATH}/changes");
        for line in [&format!("POST {STREAM_PATH}")[..], &format!("POST {STREAM_PATH}?dryRun=true"), &changes] {
            assert_eq!(begin(line, limit).0, Action::Pass);
            let (_, mut connection) = begin(line, "Transfer-Encoding: chunked");
            for _ in 0..100 {
                let chunk = format!("40000\r\n{}\r\n", "x".repeat(0x40000));
                assert_eq!(connection.step(chunk.as_bytes()), Step { consumed: chunk.len(), action: Action::Pass });
                assert_eq!(connection.expects(0), Expects::UnboundedBody);
            }
            assert_eq!(connection.step(b"0\r\n\r\n").action, Action::Pass);
            assert_eq!(connection.expects(0), Expects::Request);
            // The next message has its limits again.
            connection.step(b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
            assert_eq!(connection.expects(0), Expects::Body);
        }
        for line in ["POST /rest/v3/short-urls", "POST /rest/v3/short-urls/bulk/", "GET /rest/v3/short-urls/bulk"] {
            assert_eq!(begin(line, limit).0, Action::Reject(Rejection::BodyTooLarge), "{line}");
        }
        let head = format!("POST {STREAM_PATH} HTTP/1.1\r\nHost: a\r\n{limit}\r\n\r\n");
        assert_eq!(Connection::for_hyper().step(head.as_bytes()).action, Action::Reject(Rejection::BodyTooLarge));
        // A body that consists of framing alone is rejected.
        let (_, mut connection) = begin(&format!("POST {STREAM_PATH}"), "Transfer-Encoding: chunked");
        let extension = format!("1;{}", "x".repeat(2 * BODY_LEN_MAX));
        connection.step(extension.as_bytes());
        assert_eq!(connection.step(b"x").action, Action::Reject(Rejection::BodyTooLarge));
    }

    /// Requests of every kind, complete and broken.
    fn request() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => "GET /[0-9A-Za-z_-]{1,12} HTTP/1.1\r\nHost: a\r\n\r\n".prop_map(String::into_bytes),
            1 => "HEAD /[0-9A-Za-z]{1,70}(\\?[a-z=&]{0,9})? HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(|body| {
                [format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes(), body].concat()
            }),
            1 => proptest::collection::vec(any::<u8>(), 1..40).prop_map(|body| {
                [format!("PUT /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n", body.len()).into_bytes(), body, b"\r\n0\r\n\r\n".to_vec()].concat()
            }),
            1 => "[A-Z]{1,5} [ -~]{1,20}( HTTP/1\\.[012])?\r\n([A-Za-z-]{1,9}:[ -~]{0,9}\r\n){0,3}\r\n".prop_map(String::into_bytes),
            1 => proptest::collection::vec(any::<u8>(), 1..30),
        ]
    }

    proptest! {
        #[test]
        fn no_bytes_panic(stream in proptest::collection::vec(any::<u8>(), 0..2000)) {
            drive(&[&stream]);
        }

        #[test]
        fn splitting_changes_nothing(requests in proptest::collection::vec(request(), 1..5), cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..6)) {
            let stream = requests.concat();
            let whole = drive(&[&stream]);
            let bytewise: Vec<&[u8]> = stream.chunks(1).collect();
            prop_assert_eq!(&drive(&bytewise), &whole);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            prop_assert_eq!(&drive(&pieces), &whole);
        }
    }

    #[test]
    fn every_boundary_of_a_stream_gives_the_same_answer() {
        let stream = b"GET /abc HTTP/1.1\r\nHost: a\r\n\r\nHEAD /d HTTP/1.1\r\nHost: a\r\n\r\nPOST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nPOST /y HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /z HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
        let whole = drive(&[stream]);
        assert!(matches!(whole.last(), Some(Seen::Rejected(Rejection::BadRequest))));
        for cut in 0..=stream.len() {
            assert_eq!(drive(&[&stream[..cut], &stream[cut..]]), whole, "cut at {cut}");
        }
    }
}
