//! Limits of connections: their number, sizes and timeouts, TLS handshakes, and HTTP/2.

use std::time::Duration;

/// Limits on the connections of a core, as an operator may set them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections of a core, at least 1.
    pub connections: usize,
    /// Maximum number of open connections of an address; 0 for no limit.
    pub per_address: usize,
    /// True if the limit by address includes addresses of loopback and of private networks.
    pub counts_private: bool,
    /// Maximum number of TLS handshakes in progress.
    pub handshakes: usize,
    /// Maximum number of requests of a connection; 0 for no limit.
    pub requests: u32,
    /// Idle timeout of a connection between two requests.
    pub idle_time: Duration,
    /// Timeout from the first byte of a head to its last.
    pub head_time: Duration,
    /// Longest head, in bytes.
    pub head_len: u32,
    /// Timeout from the end of a head to the end of its body. A streamed body may be slower than
    /// [`ConnectionLimits::body_rate`] for that long.
    pub body_time: Duration,
    /// Longest body, in bytes, unless it is streamed.
    pub body_len: u32,
    /// Minimum rate of a streamed body, in bytes a second.
    pub body_rate: u32,
    /// Bytes that may wait in either direction of a connection before the writer has to pause (backpressure).
    pub queued_len: usize,
}

impl Default for ConnectionLimits {
    /// Returns the limits of a node without settings.
    fn default() -> ConnectionLimits {
        ConnectionLimits {
            connections: CONNECTIONS_DEFAULT,
            per_address: CONNECTIONS_PER_ADDRESS,
            counts_private: false,
            handshakes: HANDSHAKES,
            requests: 0,
            idle_time: IDLE_TIME,
            head_time: HEAD_TIME,
            head_len: HEAD_LEN_MAX as u32,
            body_time: BODY_TIME,
            body_len: BODY_LEN_MAX as u32,
            body_rate: BODY_RATE,
            queued_len: QUEUED_LEN,
        }
    }
}

impl ConnectionLimits {
    /// Returns the bytes of a streamed body that must arrive within [`ConnectionLimits::body_time`].
    pub fn progress_len(&self) -> usize {
        self.body_rate as usize * self.body_time.as_secs() as usize
    }
}

/// Default of the maximum number of open connections of one core. A full table of idle ones takes about 100 MB.
pub const CONNECTIONS_DEFAULT: usize = 100_000;

/// Maximum number of connections of a public address on a core, unless set otherwise. A browser keeps up to six, so
/// this allows 170 browsers at once behind one address of a carrier's NAT. All connections of one address on a core
/// take less than 256 MB, in the core and the kernel together. Addresses of loopback and of private networks may be a
/// load balancer, and are not counted.
pub const CONNECTIONS_PER_ADDRESS: usize = 1_024;

/// Bytes of responses that the kernel accepts before they can be sent, because the window of the client or of the
/// network is full. The core refills half of them at a time: enough for a client to receive a long response at hundreds
/// of megabytes a second.
pub const UNSENT_LEN: u32 = 32 * 1024;

/// Size in bytes of the kernel's buffer for sent bytes without an acknowledgement; the kernel doubles it for its own
/// bookkeeping. This is its usual bound (`net.core.wmem_max`). A long response over a round trip of 100 ms still flows
/// at 2 MB/s. Without a bound, the kernel would let the buffer grow to 4 MB.
pub const SEND_BUFFER_LEN: usize = 208 * 1024;

/// Bytes that a connection may send in total before the core checks that the client reads them: the first window of a
/// connection. So short connections cost no extra system call.
pub const UNREAD_SMALL: u64 = 16 * 1024;

/// Longest request head, in bytes, unless set otherwise. Browsers with large cookies stay under 8 KiB; twice that is
/// generous.
pub const HEAD_LEN_MAX: usize = 16 * 1024;

/// Maximum number of header fields in a head. It equals hyper's own limit, so that the fast path and hyper agree.
pub const HEADERS_MAX: usize = 100;

/// Longest request body, in bytes, unless set otherwise. A create takes less than 3 KiB.
pub const BODY_LEN_MAX: usize = 1024 * 1024;

/// Total time from the first byte of a head to its last. It ends connections of clients that drip one byte a second.
/// Default of `limits.head_seconds`.
pub const HEAD_TIME: Duration = Duration::from_secs(10);

/// Total time from the end of a head to the end of its body.
/// Default of `limits.body_seconds`.
pub const BODY_TIME: Duration = Duration::from_secs(30);

/// Minimum rate of a streamed body (a bulk request), in bytes a second: a few lines within [`BODY_TIME`].
/// Default of `limits.body_rate`.
pub const BODY_RATE: u32 = 32;

/// Bytes that may wait in either direction of a connection before the writer has to pause. It holds a few
/// responses, or a chunk of a body.
/// Default of `limits.queued_bytes`.
pub const QUEUED_LEN: usize = 64 * 1024;

/// TLS handshakes in progress on one core. Each takes about 16 KiB.
/// Default of `limits.handshakes`.
pub const HANDSHAKES: usize = 1_000;

/// Age after which a handshake may be evicted for a new one, in ticks of a core. An honest client completes its
/// handshake within moments.
pub const HANDSHAKE_TICKS: u32 = 4;

/// Handshakes that advance in one turn of a core. Each takes some 200 microseconds, for which redirects of that core
/// wait.
pub const HANDSHAKES_PER_TURN: usize = 2;

/// Time for the tasks of a core (requests other than redirects) between two turns of its loop. Redirects that arrive
/// meanwhile wait for it. A turn under load takes about as long, so tasks get half of the core when both are in demand.
pub const TASK_TIME_PER_TURN: Duration = Duration::from_millis(1);

/// Time after which a task that continues to read must yield until its next turn. It leaves room in
/// [`TASK_TIME_PER_TURN`] for the work on what was read last.
pub const TASK_SLICE: Duration = Duration::from_micros(500);

/// Time for the handshakes of one turn; further ones wait for the next turn. One step takes 0.2 ms with an ECDSA key
/// and 1 ms with RSA, and cannot be divided.
pub const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Time for the mail of one turn of a core: messages of services and other cores. The rest waits for the next turn. A
/// batch of links that are loaded at start takes some hundred microseconds, and cannot be divided.
pub const MAIL_TIME_PER_TURN: Duration = Duration::from_micros(500);

/// Concurrent streams of an HTTP/2 connection. Browsers open as many requests as a page has links.
pub const STREAMS_MAX: u32 = 128;

/// Concurrent requests with long bodies of an HTTP/2 connection. Each body may be kept in memory until the response.
pub const LONG_BODIES_MAX: usize = 4;

/// Longest short body, in bytes. A create takes less than 3 KiB. A core parses the JSON of such a body itself, in less
/// than 0.3 ms.
pub const SHORT_BODY_LEN: u64 = 16 * 1024;

/// Responses of an HTTP/2 connection that may be in progress, or wait for the client to read them.
pub const ANSWERS_WAITING_MAX: usize = 32;

/// Bytes of a response that are passed to HTTP/2 at once, one frame. No limit counts them after that.
pub const ANSWER_PIECE_LEN: usize = 16 * 1024;

/// Bytes of a response that are passed to HTTP/1.1 at once. More than for HTTP/2, since its frames cost less: copying
/// them takes some microseconds.
pub const ANSWER_CHUNK_LEN: usize = 64 * 1024;

/// Streams that a client may open and reset before the server accepts them. More are an attack (CVE-2023-44487).
pub const STREAMS_RESET_MAX: usize = 32;

/// Flow-control window of a stream, in bytes.
pub const STREAM_WINDOW: u32 = 64 * 1024;

/// Flow-control window of an HTTP/2 connection, over all its streams, in bytes.
pub const STREAMS_WINDOW: u32 = 256 * 1024;

/// Time for an HTTP/2 client to close the connection after GOAWAY.
pub const GOODBYE_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for which a client may leave a response unread, also in the kernel's buffer, before its connection is closed.
pub const SEND_TIME_MAX: Duration = Duration::from_secs(30);

/// Default idle timeout of a connection between requests. It is also the default of the setting `limits.idle_seconds`;
/// a test of the settings compares them.
pub const IDLE_TIME: Duration = Duration::from_secs(75);

/// Time for the API to produce a response; after it, the client gets 503.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);

/// Time for requests in flight when a node drains; after it, their connections are closed. With the time for the admin
/// listener and the last sync, a node ends within 10 seconds.
pub const DRAIN_TIME_MAX: Duration = Duration::from_secs(8);

/// Time for requests in flight on the admin listener, which drains after the cores have ended.
pub const ADMIN_DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
