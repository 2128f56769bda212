//! HTTP/2, in the clear with prior knowledge and over TLS with ALPN.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::server::{Reply, Server, ok, target_of};
use crate::tls::server_config;
use crate::{Generator, number};

/// Longest wait of a server for bytes, between two looks at its responses.
const READ_TIME: Duration = Duration::from_millis(1);

/// A transport with a short timeout of reads, after which it counts as pending.
struct Transport<S>(S);

/// Returns the result of an operation, which is pending if a read has waited for too long. TLS also reads when it writes.
fn poll_of<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Poll::Pending,
        result => Poll::Ready(result),
    }
}

impl<S: Read + Write + Unpin> AsyncRead for Transport<S> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut buffer = [0; 16 * 1024];
        let room = into.remaining().min(buffer.len());
        poll_of(self.0.read(&mut buffer[..room]).map(|len| into.put_slice(&buffer[..len])))
    }
}

impl<S: Read + Write + Unpin> AsyncWrite for Transport<S> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        poll_of(self.0.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        poll_of(self.0.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Redirects every request of a connection, and notes its method and path. Ends the connection in order (GOAWAY) after so
/// many requests.
fn serve(stream: impl Read + Write + Unpin, heads: &Mutex<Vec<String>>, requests_max: usize) {
    let mut context = Context::from_waker(Waker::noop());
    let mut handshake = pin!(h2::server::handshake(Transport(stream)));
    let mut connection = loop {
        match handshake.as_mut().poll(&mut context) {
            Poll::Ready(Ok(connection)) => break connection,
            Poll::Ready(Err(_)) => return,
            Poll::Pending => {}
        }
    };
    let mut requests = 0;
    loop {
        match connection.poll_accept(&mut context) {
            Poll::Ready(Some(Ok((request, mut respond)))) => {
                let path = request.uri().path().to_owned();
                heads.lock().unwrap().push(format!("{} {path}", request.method()));
                let target = target_of(path.trim_start_matches('/'));
                let head = http::Response::builder().status(302).header("location", target).body(()).unwrap();
                // The client may have gone.
                let _ = respond.send_response(head, true);
                requests += 1;
                if requests == requests_max {
                    connection.graceful_shutdown();
                }
            }
            Poll::Ready(_) => return,
            // The read has waited for a while.
            Poll::Pending => {}
        }
    }
}

/// Serves a connection; with `tls`, over TLS.
fn serve_one(
    stream: TcpStream,
    tls: Option<&Arc<rustls::ServerConfig>>,
    heads: &Mutex<Vec<String>>,
    requests_max: usize,
) {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(READ_TIME)).unwrap();
    match tls {
        Some(config) => {
            let session = rustls::ServerConnection::new(Arc::clone(config)).unwrap();
            serve(rustls::StreamOwned::new(session, stream), heads, requests_max);
        }
        None => serve(stream, heads, requests_max),
    }
}

/// Starts a server; with `tls`, over TLS.
fn start(tls: Option<Arc<rustls::ServerConfig>>) -> Server {
    start_leaving(tls, usize::MAX)
}

/// Starts a server that ends each connection after so many requests.
fn start_leaving(tls: Option<Arc<rustls::ServerConfig>>, requests_max: usize) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heads, connections) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<AtomicUsize>::default());
    let (log, count) = (Arc::clone(&heads), Arc::clone(&connections));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            count.fetch_add(1, Ordering::Relaxed);
            let (log, tls) = (Arc::clone(&log), tls.clone());
            std::thread::spawn(move || serve_one(stream, tls.as_ref(), &log, requests_max));
        }
    });
    Server { address, heads, connections }
}

/// Load of all tests, without its end.
const LOAD: &str = "--http2 --rate 300 --connections 4 --warmup 100ms";

#[test]
fn streams_carry_requests_in_the_clear() {
    let (server, generator) = (start(None), Generator::new());
    let json = generator.run(&server, &format!("{LOAD} --requests 200 --mix redirect=90,head=10"), 0);
    assert!(number(&json, "/requests/completed") > 100.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
    assert_eq!(json["http2"], true);
    let heads = server.heads.lock().unwrap().clone();
    assert!(heads.iter().any(|head| head.starts_with("HEAD /c")), "{:?}", heads.first());
    assert_eq!(server.connections.load(Ordering::Relaxed), 4);
}

#[test]
fn streams_share_and_renew_connections() {
    let (server, generator) = (start(None), Generator::new());
    let json = generator.run(&server, "--http2 --closed --connections 2 --pipeline 20 --renew 50 --requests 400", 0);
    assert!(number(&json, "/requests/completed") == 400.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
    let connections = server.connections.load(Ordering::Relaxed);
    assert!((8..=12).contains(&connections), "{connections}");
}

#[test]
fn connections_that_the_server_ends_lose_nothing() {
    let (server, generator) = (start_leaving(None, 50), Generator::new());
    let json = generator.run(&server, "--http2 --closed --connections 2 --pipeline 20 --requests 400", 0);
    assert!(number(&json, "/requests/completed") == 400.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
    assert!(server.connections.load(Ordering::Relaxed) > 4);
}

#[test]
fn tls_agrees_on_http2() {
    let (config, pem) = server_config(b"h2");
    let (server, generator) = (start(Some(config)), Generator::new());
    std::fs::write(generator.file("ca.pem"), pem).unwrap();
    let trust = format!("--tls --sni carom.test --tls-ca {}", generator.file("ca.pem").display());
    let json = generator.run(&server, &format!("{LOAD} --requests 200 {trust}"), 0);
    assert!(number(&json, "/requests/completed") > 100.0, "{json}");
    assert!(number(&json, "/errors/total") == 0.0, "{json}");
}

#[test]
fn servers_without_http2_are_named() {
    // In the clear, the server answers in HTTP/1.1.
    let (server, generator) = (Server::start(|_| Reply::Last(ok(""))), Generator::new());
    let output = generator.command(&server, &format!("{LOAD} --duration 1s --timeout 1s")).output().unwrap();
    assert!(matches!(output.status.code(), Some(1 | 3 | 4)), "{output:?}");
    // Over TLS, the two do not agree.
    let (config, pem) = server_config(b"http/1.1");
    let server = start(Some(config));
    std::fs::write(generator.file("ca.pem"), pem).unwrap();
    let trust = format!("--tls --sni carom.test --tls-ca {}", generator.file("ca.pem").display());
    let output = generator.command(&server, &format!("{LOAD} --duration 1s {trust}")).output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{output:?}");
}
