//! A small HTTP server with the behaviour that a test needs: correct, wrong, late or silent.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Reaction of a server to a request.
pub(crate) enum Reply {
    /// Sends these bytes.
    Bytes(String),
    /// Sends these bytes and closes the connection.
    Last(String),
    /// Sends nothing, and waits until the client closes the connection.
    Silence,
}

/// Returns a redirect to `target`.
pub(crate) fn redirect(target: &str) -> String {
    format!("HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n")
}

/// Returns the response to a miss.
pub(crate) fn missing() -> String {
    "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone".to_owned()
}

/// Returns the destination of a test's code.
pub(crate) fn target_of(code: &str) -> String {
    format!("https://example.org/to/{code}")
}

/// Returns the URL that a request asks to shorten.
pub(crate) fn long_url(request: &str) -> &str {
    request.split("\"longUrl\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a longUrl")
}

/// Returns a complete response with this body.
pub(crate) fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// URLs of all links that servers of this process have created. A link's code contains its index.
static MADE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns the correct reaction to a request.
pub(crate) fn right(request: &str) -> Reply {
    let (head, _) = request.split_once("\r\n\r\n").expect("a head");
    let (method, rest) = head.split_once(' ').expect("a request line");
    let path = rest.split(' ').next().expect("a path");
    let code = path.trim_start_matches('/');
    let mut made = MADE.lock().expect("nobody panics with it");
    let bytes = match (method, code.strip_prefix("made").and_then(|number| number.parse::<usize>().ok())) {
        ("POST", _) => {
            let url = long_url(request);
            made.push(url.to_owned());
            ok(&format!("{{\"shortCode\":\"made{}\",\"longUrl\":\"{url}\"}}", made.len() - 1))
        }
        (_, Some(number)) => redirect(&made[number]),
        _ if code.contains('-') => missing(),
        _ => redirect(&target_of(code)),
    };
    if head.contains("Connection: close") { Reply::Last(bytes) } else { Reply::Bytes(bytes) }
}

/// A running server. Its threads end with the test's process, or when their clients disconnect.
pub(crate) struct Server {
    /// Address on which the server listens.
    pub(crate) address: SocketAddr,
    /// Heads of all requests, in the order of their arrival.
    pub(crate) heads: Arc<Mutex<Vec<String>>>,
    /// Number of connections so far.
    pub(crate) connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server that reacts to each request as `answer` decides.
    pub(crate) fn start(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
        Server::start_with(answer, |stream| Box::new(stream))
    }

    /// Starts a server that speaks over the stream that `wrap` makes of each connection.
    pub(crate) fn start_with(
        answer: impl Fn(&str) -> Reply + Send + Sync + 'static,
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + Sync + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let heads = Arc::new(Mutex::new(Vec::new()));
        let connections = Arc::new(AtomicUsize::new(0));
        let (log, count, answer, wrap) =
            (Arc::clone(&heads), Arc::clone(&connections), Arc::new(answer), Arc::new(wrap));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::Relaxed);
                let (log, answer, wrap) = (Arc::clone(&log), Arc::clone(&answer), Arc::clone(&wrap));
                std::thread::spawn(move || {
                    // The client may disconnect at any time.
                    let _ = stream.set_nodelay(true);
                    let _ = serve(&mut *wrap(stream), &log, &*answer);
                });
            }
        });
        Server { address, heads, connections }
    }
}

/// A stream of a connection, for reading and writing.
pub(crate) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

fn serve(stream: &mut dyn Stream, log: &Mutex<Vec<String>>, answer: &dyn Fn(&str) -> Reply) -> std::io::Result<()> {
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        while let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&received[..end]).into_owned();
            let length = head
                .split("Content-Length: ")
                .nth(1)
                .map_or(0, |text| text.split("\r\n").next().and_then(|number| number.parse().ok()).expect("a length"));
            if received.len() < end + 4 + length {
                break;
            }
            let request: Vec<u8> = received.drain(..end + 4 + length).collect();
            let reply = answer(&String::from_utf8_lossy(&request));
            log.lock().expect("nobody panics with it").push(head);
            match reply {
                Reply::Bytes(bytes) => stream.write_all(bytes.as_bytes())?,
                Reply::Last(bytes) => {
                    stream.write_all(bytes.as_bytes())?;
                    return stream.flush();
                }
                Reply::Silence => {
                    while stream.read(&mut buffer)? > 0 {}
                    return Ok(());
                }
            }
        }
        stream.flush()?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => received.extend_from_slice(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sleeps, as a slow server would.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
