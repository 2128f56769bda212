//! HTTP clients of service threads and commands: a text at an address that is transferred only when it has changed, and
//! requests that the server may hold.

use std::time::Duration;

use ureq::Agent;
use ureq::http::{StatusCode, header};

use super::apollo::Signer;
use crate::services::http::config;
use carom_telemetry::clock::unix_ms;

/// An HTTP address, and its last response.
#[derive(Debug)]
pub struct HttpText {
    agent: Agent,
    url: String,
    len_max: u64,
    /// The API key for carom's own listeners.
    key: Option<String>,
    /// Signs requests to Apollo.
    signer: Option<Signer>,
    /// The `ETag` and the text of the last response.
    last: Option<(String, Vec<u8>)>,
}

impl HttpText {
    /// Creates a reader of an `http://` or `https://` address. `time_max` bounds a request including redirects; texts of
    /// `len_max` bytes or more are refused.
    pub fn new(url: &str, time_max: Duration, len_max: u64) -> HttpText {
        let agent = config().timeout_global(Some(time_max)).build();
        HttpText { agent: agent.into(), url: url.to_owned(), len_max, key: None, signer: None, last: None }
    }

    /// Creates a reader of an address of a node, and sends an API key if there is one. The requests follow no redirect
    /// and use no proxy of the environment: both would see the key.
    pub fn of_node(url: &str, time_max: Duration, len_max: u64, key: Option<String>) -> HttpText {
        let agent = config().timeout_global(Some(time_max)).max_redirects(0).proxy(None).build();
        HttpText { agent: agent.into(), url: url.to_owned(), len_max, key, signer: None, last: None }
    }

    /// Signs each request for Apollo.
    #[must_use]
    pub fn with_signer(mut self, signer: Option<Signer>) -> HttpText {
        self.signer = signer;
        self
    }

    /// Returns the current text. Blocks the thread.
    ///
    /// # Errors
    /// The reason for the failure: no response in time, a status other than 200, or a text that is too long.
    pub fn read(&mut self) -> Result<Vec<u8>, String> {
        let mut request = self.agent.get(&self.url).header(header::ACCEPT, "application/json");
        if let Some(key) = &self.key {
            request = request.header("X-Api-Key", key);
        }
        for (name, value) in self.signer.iter().flat_map(|signer| signer.headers(unix_ms())) {
            request = request.header(name, value);
        }
        if let Some((tag, _)) = &self.last {
            request = request.header(header::IF_NONE_MATCH, tag);
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        match (answer.status(), &self.last) {
            (StatusCode::NOT_MODIFIED, Some((_, text))) => Ok(text.clone()),
            (StatusCode::OK, _) => {
                let tag = answer.headers().get(header::ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
                let body = answer.body_mut().with_config().limit(self.len_max);
                let text = body.read_to_vec().map_err(|error| error.to_string())?;
                self.last = tag.map(|tag| (tag, text.clone()));
                Ok(text)
            }
            (status, _) => Err(format!("the server answered {status}")),
        }
    }
}

/// A client for requests that the server may hold.
#[derive(Debug)]
pub(super) struct LongPollClient {
    agent: Agent,
    len_max: u64,
}

impl LongPollClient {
    /// Creates a client. `connect_time_max` bounds the connection, and `time_max` the whole request; texts of `len_max`
    /// bytes or more are refused.
    pub(super) fn new(connect_time_max: Duration, time_max: Duration, len_max: u64) -> LongPollClient {
        let config = config().timeout_connect(Some(connect_time_max)).timeout_global(Some(time_max));
        LongPollClient { agent: config.build().into(), len_max }
    }

    /// Returns the status of a response, and its text if the status is 200. Blocks the thread.
    ///
    /// # Errors
    /// The reason for the failure: no response in time, or a text that is too long.
    pub(super) fn get(&self, url: &str, headers: &[(&'static str, String)]) -> Result<(u16, Vec<u8>), String> {
        let mut request = self.agent.get(url).header(header::ACCEPT, "application/json");
        for (name, value) in headers {
            request = request.header(*name, value);
        }
        let mut answer = request.call().map_err(|error| error.to_string())?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Ok((status.as_u16(), Vec::new()));
        }
        let body = answer.body_mut().with_config().limit(self.len_max);
        let text = body.read_to_vec().map_err(|error| error.to_string())?;
        Ok((status.as_u16(), text))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    use super::*;

    /// The result of a request.
    type Answered = Result<(u16, Vec<u8>), String>;

    /// Returns the result of a request that a server answers with a text, and the head of that request.
    fn answered(response: &'static str) -> (Answered, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/a?b=%7B", listener.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            stream.write_all(response.as_bytes()).unwrap();
            head
        });
        let client = LongPollClient::new(Duration::from_secs(10), Duration::from_secs(10), 8);
        let result = client.get(&url, &[("Timestamp", "1234".to_owned())]);
        (result, server.join().unwrap())
    }

    #[test]
    fn response_to_a_poll_is_bounded() {
        let (result, head) = answered("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[1,2,3]");
        assert_eq!(result, Ok((200, b"[1,2,3]".to_vec())));
        assert_eq!(head[0], "GET /a?b=%7B HTTP/1.1");
        assert!(head.iter().any(|line| line.eq_ignore_ascii_case("timestamp: 1234")), "{head:?}");
        let (result, _) = answered("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n[1,2,3,4]");
        assert!(result.is_err(), "{result:?}");
        let (result, _) = answered("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n[1,2,3,4,5]");
        assert!(result.is_err(), "{result:?}");
        assert_eq!(answered("HTTP/1.1 304 Not Modified\r\n\r\n").0, Ok((304, Vec::new())));
        assert_eq!(answered("HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n[1,2,3,4]").0, Ok((404, Vec::new())));
    }
    #[test]
    fn key_of_a_node_follows_no_redirect() {
        let [node, other] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let url = format!("http://{}/status", node.local_addr().unwrap());
        let elsewhere = format!("http://{}/", other.local_addr().unwrap());
        let server = std::thread::spawn(move || {
            let (mut stream, _) = node.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            write!(stream, "HTTP/1.1 302 Found\r\nLocation: {elsewhere}\r\nContent-Length: 0\r\n\r\n").unwrap();
            head
        });
        let failure = HttpText::of_node(&url, Duration::from_secs(10), 8, Some("secret".to_owned())).read();
        assert_eq!(failure, Err("the server answered 302 Found".to_owned()));
        assert!(server.join().unwrap().iter().any(|line| line.eq_ignore_ascii_case("x-api-key: secret")));
        other.set_nonblocking(true).unwrap();
        assert!(other.accept().is_err(), "the key was sent to another place");
    }
}
