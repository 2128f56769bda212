//! The io_uring of one thread, as a safe interface: accepts, connects, receives into a ring of shared buffers, sends,
//! polls, timers and doorbells. The server's cores and the load generator's threads each drive one. It knows neither
//! HTTP nor connections. Read [`Tag`], [`Completion`], [`Ring::enter`] and [`Ring::take_completions`] first.
//!
//! This file has `unsafe`. These rules make it safe as a whole:
//!
//! * the kernel only gets memory that this type owns: the buffer ring, the timer's interval, the addresses to connect
//!   to, the counter of the bell, and the buffers of sends. These move in with [`Ring::send`] and out with
//!   [`Completion::Sent`]. A ring that is dropped leaks memory that the kernel may still use;
//! * a received [`Chunk`] cannot be copied, so the kernel gets each buffer back once;
//! * descriptors stay open while an operation names them: callers hold the connection's [`OwnedFd`] until its last
//!   completion. Each completion carries the generation of the slot it belongs to.

#![allow(unsafe_code, reason = "the kernel's interface is made of raw pointers; see the module's text for the proof")]

mod tag;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use io_uring::types::{BufRingEntry, CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::net::{Shutdown, shutdown};
use socket2::SockAddr;

use tag::Kind;
pub use tag::Tag;

/// Submissions that fit one turn before the ring must be entered early.
const SUBMISSIONS: u32 = 1_024;

/// Completions that the kernel keeps for us. Larger than [`SUBMISSIONS`]: one receive or accept yields many.
const COMPLETIONS: u32 = 8_192;

/// Buffers of the ring: twice the completions of a turn, so that receives seldom run dry. A power of two.
const BUFFERS: u16 = 512;

/// Bytes in a buffer: a browser's request head with its cookies.
pub const BUFFER_LEN: usize = 2_048;

/// Completions handled in one turn.
pub const TURN_COMPLETIONS: usize = BUFFERS as usize / 2;

/// The one group of buffers.
const BUFFER_GROUP: u16 = 0;

/// `IORING_ENTER_GETEVENTS`: run deferred work and post its completions.
const ENTER_GETEVENTS: u32 = 1;

/// Received bytes in a buffer of the ring, which must be given back with [`Ring::give_back`].
#[derive(Debug)]
#[must_use = "the buffer is lost to the ring unless it is given back"]
pub struct Chunk {
    buffer: u16,
    len: u32,
}

/// The outcome of an operation, or an event.
#[derive(Debug)]
pub enum Completion {
    /// A connection, or the reason for none. Without `more` the accept has ended and must be armed again.
    Accepted {
        /// The number given to [`Ring::accept`].
        listener: u32,
        /// The connection, or the error number.
        result: Result<OwnedFd, i32>,
        /// True if the accept continues.
        more: bool,
    },
    /// A connection attempt has ended.
    Connected {
        /// The tag that was given to [`Ring::connect`].
        tag: Tag,
        /// Success, or the error number.
        result: Result<(), i32>,
    },
    /// Bytes, or the end (`Ok(None)`), or the error number. Without `more` the receive has ended.
    Received {
        /// The tag that was given to [`Ring::receive`].
        tag: Tag,
        /// Bytes, or `None` at the end of the stream, or the error number.
        result: Result<Option<Chunk>, i32>,
        /// True if the receive continues.
        more: bool,
    },
    /// A send has ended. The buffer comes back.
    Sent {
        /// The tag that was given to [`Ring::send`].
        tag: Tag,
        /// Number of bytes sent, from the given position on, or the error number.
        result: Result<usize, i32>,
        /// The buffer of the send.
        buffer: Vec<u8>,
    },
    /// A polled descriptor has become readable, or the error number. Without `more` the poll has ended.
    Readable {
        /// The tag that was given to [`Ring::poll`].
        tag: Tag,
        /// Success, or the error number.
        result: Result<(), i32>,
        /// True if the poll continues.
        more: bool,
    },
    /// The interval of the timer is over. The timer continues by itself.
    Tick,
    /// The doorbell was rung: by another ring, or by a thread that wrote to the bell.
    Bell,
}

/// Completions for which [`Ring::gather`] stops waiting: with so many, the share of a wake-up in the cost of each is small.
pub const GATHERED_MAX: usize = 32;

/// An address that connections can be made to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Address(usize);

/// The ring of a thread. It is created and used on that thread.
#[derive(Debug)]
pub struct Ring {
    // Dropped before the buffers: the kernel lets go of them with the ring.
    uring: IoUringDebug,
    buffers: BufferRing,
    /// The buffers of the sends in flight, by slot.
    sends: Vec<Option<Vec<u8>>>,
    interval: Box<Timespec>,
    /// Addresses to connect to.
    #[allow(clippy::vec_box, reason = "the kernel reads an address after the push, when the list may have grown")]
    addresses: Vec<Box<SockAddr>>,
    bell: Option<BellRead>,
    /// True if the kernel can wait for several completions for a bounded time, as Linux 6.12 and later can.
    can_gather: bool,
}

/// The eventfd by which other threads ring, with the place where the kernel puts its count.
#[derive(Debug)]
struct BellRead {
    file: File,
    count: Box<u64>,
}

/// `IoUring` has no `Debug` of its own.
struct IoUringDebug(IoUring);

impl std::fmt::Debug for IoUringDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "IoUring({})", self.0.as_raw_fd())
    }
}

impl Ring {
    /// Creates the ring on the calling thread. `bell` is an eventfd to which other threads write 8 bytes when they want
    /// a [`Completion::Bell`]; nothing else may read it.
    ///
    /// # Errors
    /// If the kernel refuses the ring or its buffers: it is too old, forbids io_uring, or has no memory.
    pub fn new(bell: Option<File>) -> io::Result<Ring> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .setup_submit_all()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let mut buffers = BufferRing::new();
        // SAFETY: the entries are page-aligned, zeroed, and stay allocated until after the ring is dropped (field
        // order).
        unsafe {
            uring.submitter().register_buf_ring_with_flags(
                buffers.entries.as_ptr() as u64,
                BUFFERS,
                BUFFER_GROUP,
                0,
            )?;
        }
        for buffer in 0..BUFFERS {
            buffers.provide(buffer);
        }
        buffers.publish();
        let interval = Box::new(Timespec::new());
        let bell = bell.map(|file| BellRead { file, count: Box::new(0) });
        let can_gather = uring.params().is_feature_min_timeout();
        let uring = IoUringDebug(uring);
        let mut ring = Ring { uring, buffers, sends: Vec::new(), interval, addresses: Vec::new(), bell, can_gather };
        ring.arm_bell();
        Ok(ring)
    }

    /// Returns the descriptor by which other rings ring this one.
    pub fn descriptor(&self) -> RawFd {
        self.uring.0.as_raw_fd()
    }

    /// Accepts connections on a listener until cancelled.
    pub fn accept(&mut self, listener: &impl AsRawFd, index: u32) {
        let tag = Tag { slot: index, generation: 0 };
        let entry =
            opcode::AcceptMulti::new(Fd(listener.as_raw_fd())).flags(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK).build();
        self.push(entry.user_data(tag.user_data(Kind::Accept)));
    }

    /// Ends the accept of a listener; its last completion comes without `more`.
    pub fn cancel_accept(&mut self, index: u32) {
        self.cancel(Tag { slot: index, generation: 0 }.user_data(Kind::Accept));
    }

    /// Stores an address for [`Ring::connect`].
    pub fn add_address(&mut self, address: SocketAddr) -> Address {
        self.addresses.push(Box::new(address.into()));
        Address(self.addresses.len() - 1)
    }

    /// Connects a socket. The outcome is a [`Completion::Connected`].
    pub fn connect(&mut self, socket: &OwnedFd, tag: Tag, to: Address) {
        let address = &self.addresses[to.0];
        let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), address.as_ptr().cast(), address.len()).build();
        self.push(entry.user_data(tag.user_data(Kind::Connect)));
    }

    /// Receives into buffers of the ring until the end, an error, or a lack of buffers.
    pub fn receive(&mut self, socket: &OwnedFd, tag: Tag) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), BUFFER_GROUP).build();
        self.push(entry.user_data(tag.user_data(Kind::Receive)));
    }

    /// Ends the receive of a connection; its last completion comes without `more`.
    pub fn cancel_receive(&mut self, tag: Tag) {
        self.cancel(tag.user_data(Kind::Receive));
    }

    /// Completes a [`Completion::Readable`] each time that a descriptor becomes readable, until cancelled. One that
    /// stays readable completes once: the caller must read it until it is empty.
    pub fn poll(&mut self, descriptor: &impl AsRawFd, tag: Tag) {
        let entry = opcode::PollAdd::new(Fd(descriptor.as_raw_fd()), libc::POLLIN as u32).multi(true).build();
        self.push(entry.user_data(tag.user_data(Kind::Poll)));
    }

    /// Ends the poll of a descriptor; its last completion comes without `more`.
    pub fn cancel_poll(&mut self, tag: Tag) {
        self.cancel(tag.user_data(Kind::Poll));
    }

    /// Sends `buffer` from byte `from` on. At most one send of a slot is in flight.
    ///
    /// # Panics
    /// If a send of this slot is in flight already: an error in the caller.
    pub fn send(&mut self, socket: &OwnedFd, tag: Tag, buffer: Vec<u8>, from: usize) {
        let bytes = &buffer[from..];
        let (start, len) = (bytes.as_ptr(), u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let slot = tag.slot as usize;
        if self.sends.len() <= slot {
            self.sends.resize_with(slot + 1, || None);
        }
        // Moving a Vec does not move its heap memory, so `start` stays valid while the Vec rests in `sends`.
        assert!(self.sends[slot].replace(buffer).is_none(), "one send of a connection at a time");
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), start, len).flags(libc::MSG_NOSIGNAL).build();
        self.push(entry.user_data(tag.user_data(Kind::Send)));
    }

    /// Tells the peer that nothing more will be sent, and continues to receive.
    ///
    /// This and [`Ring::shut_down`] are system calls. As ring entries they would go to a worker thread of the kernel,
    /// which looks the descriptor up when its turn comes. By then the number may be that of another connection.
    pub fn shut_down_sending(socket: &OwnedFd) {
        // A broken connection needs no such message.
        let _ = shutdown(socket, Shutdown::Write);
    }

    /// Shuts down both directions. Every operation in flight on the socket completes.
    pub fn shut_down(socket: &OwnedFd) {
        // A broken connection completes by itself.
        let _ = shutdown(socket, Shutdown::Both);
    }

    /// Completes a [`Completion::Tick`] each interval.
    pub fn start_timer(&mut self, interval: Duration) {
        *self.interval = Timespec::new().sec(interval.as_secs()).nsec(interval.subsec_nanos());
        self.arm_timer();
    }

    fn arm_timer(&mut self) {
        // Multishot: it continues by itself, and ends (to be armed again) only when completions overflow.
        let entry = opcode::Timeout::new(&raw const *self.interval)
            .count(0)
            .flags(io_uring::types::TimeoutFlags::MULTISHOT)
            .build();
        self.push(entry.user_data((Kind::Timer as u64) << 56));
    }

    fn arm_bell(&mut self) {
        let Some(bell) = &mut self.bell else { return };
        let place = (&raw mut *bell.count).cast();
        let entry = opcode::Read::new(Fd(bell.file.as_raw_fd()), place, size_of::<u64>() as u32).build();
        self.push(entry.user_data((Kind::Bell as u64) << 56));
    }

    /// Rings the doorbell of another core's ring.
    pub fn ring_bell(&mut self, ring: RawFd) {
        let entry = opcode::MsgRingData::new(Fd(ring), 0, (Kind::RungByRing as u64) << 56, None).build();
        self.push(entry.user_data((Kind::Ignored as u64) << 56).flags(squeue::Flags::SKIP_SUCCESS));
    }

    fn cancel(&mut self, user_data: u64) {
        let entry = opcode::AsyncCancel2::new(CancelBuilder::user_data(user_data)).build();
        self.push(entry.user_data((Kind::Ignored as u64) << 56));
    }

    #[expect(clippy::needless_pass_by_value, reason = "an entry is pushed once")]
    fn push(&mut self, entry: squeue::Entry) {
        loop {
            // SAFETY: every entry is built above from memory that this type owns until the operation completes (buffer
            // ring, `sends`, `interval`, `bell`, `addresses`, which only grow) and from descriptors that the caller
            // keeps open until then.
            if unsafe { self.uring.0.submission().push(&entry) }.is_ok() {
                return;
            }
            self.submit_full_queue();
        }
    }

    #[cold]
    fn submit_full_queue(&mut self) {
        let _ = self.uring.0.submit();
    }

    /// Submits what was pushed and lets the kernel post what has completed, without waiting. Skips the system call when
    /// there is neither.
    ///
    /// # Errors
    /// If the kernel reports anything but a transient condition. The ring is unusable then.
    pub fn enter(&mut self) -> io::Result<()> {
        self.buffers.publish();
        let submission = self.uring.0.submission();
        let queued = submission.len() as u32;
        let idle = queued == 0 && !submission.taskrun() && !submission.cq_overflow();
        drop(submission);
        if idle {
            return Ok(());
        }
        // SAFETY: no argument is passed.
        match unsafe { self.uring.0.submitter().enter::<libc::sigset_t>(queued, 0, ENTER_GETEVENTS, None) } {
            Ok(_) => Ok(()),
            Err(error) => ignore_transient(error),
        }
    }

    /// Submits what was pushed and waits for a completion, for as long as it takes.
    ///
    /// # Errors
    /// If the kernel reports anything but a transient condition. The ring is unusable then.
    pub fn sleep(&mut self) -> io::Result<()> {
        self.buffers.publish();
        self.uring.0.submit_and_wait(1).map(drop).or_else(ignore_transient)
    }

    /// Submits what was pushed and waits for a completion, for at most `at_most`.
    ///
    /// # Errors
    /// If the kernel reports anything but a transient condition. The ring is unusable then.
    pub fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        if at_most.is_zero() || self.has_work() {
            return self.enter();
        }
        let time = Timespec::from(at_most);
        self.enter_for(1, &SubmitArgs::new().timespec(&time))
    }

    /// True if [`Ring::gather`] works on this kernel.
    pub fn can_gather(&self) -> bool {
        self.can_gather
    }

    /// Submits what was pushed and waits for [`GATHERED_MAX`] completions. After `gather_for` one is enough, and after
    /// `at_most` none is needed. Does not wait if a completion is there already.
    ///
    /// # Errors
    /// If the kernel reports anything but a transient condition. The ring is unusable then.
    pub fn gather(&mut self, gather_for: Duration, at_most: Duration) -> io::Result<()> {
        if at_most <= gather_for || self.has_work() {
            return self.wait(at_most);
        }
        let time = Timespec::from(at_most);
        self.enter_for(GATHERED_MAX, &SubmitArgs::new().timespec(&time).min_wait_usec(gather_for.as_micros() as u32))
    }

    fn enter_for(&mut self, completions: usize, args: &SubmitArgs<'_, '_>) -> io::Result<()> {
        self.buffers.publish();
        self.uring.0.submitter().submit_with_args(completions, args).map(drop).or_else(ignore_transient)
    }

    /// True if a completion waits, or the kernel has deferred work for us.
    fn has_work(&mut self) -> bool {
        !self.uring.0.completion().is_empty() || self.uring.0.submission().taskrun()
    }

    /// Moves completions into `into`, at most [`TURN_COMPLETIONS`] of them.
    pub fn take_completions(&mut self, into: &mut Vec<Completion>) {
        let (mut timer_ended, mut bell_ended) = (false, false);
        for entry in self.uring.0.completion().take(TURN_COMPLETIONS) {
            let data = entry.user_data();
            let tag = Tag::from_user_data(data);
            let more = cqueue::more(entry.flags());
            match Kind::from_user_data(data) {
                Kind::Accept => {
                    // SAFETY: the kernel has just created this descriptor for us, and nothing else knows of it.
                    let accepted = |number| unsafe { OwnedFd::from_raw_fd(number) };
                    let result = result(entry.result()).map(accepted);
                    into.push(Completion::Accepted { listener: tag.slot, result, more });
                }
                Kind::Connect => {
                    into.push(Completion::Connected { tag, result: result(entry.result()).map(|_| ()) });
                }
                Kind::Receive => {
                    let buffer = cqueue::buffer_select(entry.flags());
                    let chunk = |len: i32| buffer.map(|buffer| Chunk { buffer, len: len as u32 });
                    into.push(Completion::Received { tag, result: result(entry.result()).map(chunk), more });
                }
                Kind::Send => {
                    let buffer = self.sends[tag.slot as usize].take().expect("a send in flight has its buffer here");
                    let result = result(entry.result()).map(|sent| sent as usize);
                    into.push(Completion::Sent { tag, result, buffer });
                }
                Kind::Poll => {
                    into.push(Completion::Readable { tag, result: result(entry.result()).map(|_| ()), more });
                }
                Kind::Timer => {
                    timer_ended |= !more;
                    into.push(Completion::Tick);
                }
                Kind::Bell => {
                    bell_ended = true;
                    into.push(Completion::Bell);
                }
                Kind::RungByRing => into.push(Completion::Bell),
                Kind::Ignored => {}
            }
        }
        if timer_ended {
            self.arm_timer();
        }
        if bell_ended {
            self.arm_bell();
        }
    }

    /// Returns the bytes of a chunk.
    pub fn bytes(&self, chunk: &Chunk) -> &[u8] {
        self.buffers.bytes(chunk)
    }

    /// Gives a chunk's buffer back to the kernel, with the next [`Ring::enter`].
    #[expect(clippy::needless_pass_by_value, reason = "a chunk is given back once")]
    pub fn give_back(&mut self, chunk: Chunk) {
        self.buffers.provide(chunk.buffer);
    }
}

/// Returns how many bytes the kernel keeps of a connection because the peer has not acknowledged them, sent or not.
/// After a shutdown it is one more.
///
/// Returns 0 if the connection is closed, for example by a reset of the peer. The kernel has dropped its queue then,
/// while the counters behind `TIOCOUTQ` stay (`tcp_reset` in Linux).
pub fn unacknowledged_len(socket: &OwnedFd) -> usize {
    let mut len: libc::c_int = 0;
    // SAFETY: the request writes one `int`, to a place that outlives the call; the descriptor is open.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut len) };
    match usize::try_from(len) {
        Ok(len) if result == 0 && len > 0 && !is_closed(socket) => len,
        _ => 0,
    }
}

/// True if the connection is closed on both sides: the kernel knows no peer of it.
fn is_closed(socket: &OwnedFd) -> bool {
    rustix::net::getpeername(socket) == Err(rustix::io::Errno::NOTCONN)
}

/// Makes the close of a connection a reset: the kernel drops the data that it still keeps for the peer instead of
/// sending it.
pub fn reset_on_close(socket: &OwnedFd) {
    // A broken connection keeps nothing.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel may still read from these. Rings end with their threads, which is seldom.
        self.sends.drain(..).flatten().for_each(std::mem::forget);
        self.bell.take().into_iter().for_each(|bell| std::mem::forget(bell.count));
    }
}

/// Ignores transient errors of an enter: a timeout, a signal, or a short lack of memory in the kernel. Returns others.
fn ignore_transient(error: io::Error) -> io::Result<()> {
    match error.raw_os_error() {
        Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
        _ => Err(error),
    }
}

fn result(number: i32) -> Result<i32, i32> {
    if number < 0 { Err(-number) } else { Ok(number) }
}

/// The ring of buffers that the kernel fills, and the buffers.
#[derive(Debug)]
struct BufferRing {
    entries: NonNull<BufRingEntry>,
    data: NonNull<u8>,
    /// The position of the next buffer; wraps.
    tail: u16,
}

impl BufferRing {
    const ENTRIES: Layout = layout(BUFFERS as usize * size_of::<BufRingEntry>());
    const DATA: Layout = layout(BUFFERS as usize * BUFFER_LEN);

    fn new() -> BufferRing {
        // SAFETY: both layouts have a size above zero. Zeroed entries are valid: they are plain numbers.
        let (entries, data) = unsafe { (alloc_zeroed(Self::ENTRIES), alloc_zeroed(Self::DATA)) };
        let entries = NonNull::new(entries.cast()).unwrap_or_else(|| handle_alloc_error(Self::ENTRIES));
        let data = NonNull::new(data).unwrap_or_else(|| handle_alloc_error(Self::DATA));
        BufferRing { entries, data, tail: 0 }
    }

    /// Puts a buffer that we own into the ring; the kernel sees it with the next [`BufferRing::publish`].
    fn provide(&mut self, buffer: u16) {
        assert!(buffer < BUFFERS);
        let place = usize::from(self.tail & (BUFFERS - 1));
        // SAFETY: `place` and `buffer` are below BUFFERS, so both pointers stay inside their allocations; the kernel
        // reads entries only before the published tail, and this one is behind it.
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(place);
            entry.set_addr(self.data.as_ptr().add(usize::from(buffer) * BUFFER_LEN) as u64);
            entry.set_len(BUFFER_LEN as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Makes the provided buffers visible to the kernel.
    fn publish(&mut self) {
        // SAFETY: `entries` is the address of the first entry; the tail lies in it and is shared with the kernel, which
        // only reads it. An AtomicU16 has the layout of a u16.
        let tail = unsafe { &*BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }

    fn bytes(&self, chunk: &Chunk) -> &[u8] {
        assert!(chunk.buffer < BUFFERS && chunk.len as usize <= BUFFER_LEN);
        // SAFETY: inside the allocation by the assertion; the kernel has filled it and does not touch it again before
        // the chunk, which cannot be copied, is given back.
        unsafe {
            let start = self.data.as_ptr().add(usize::from(chunk.buffer) * BUFFER_LEN);
            std::slice::from_raw_parts(start, chunk.len as usize)
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated with these layouts in `new`; the ring that used them is closed (field order of `Ring`).
        unsafe {
            dealloc(self.entries.as_ptr().cast(), Self::ENTRIES);
            dealloc(self.data.as_ptr(), Self::DATA);
        }
    }
}

/// Returns the layout of a page-aligned block of `size` bytes, as the kernel wants it.
const fn layout(size: usize) -> Layout {
    match Layout::from_size_align(size, 4_096) {
        Ok(layout) => layout,
        Err(_) => panic!("a size and an alignment that fit"),
    }
}

/// Returns free heap memory of all threads to the kernel.
///
/// Takes milliseconds for each 100 MiB of heap, while other threads may wait for their heap. So a core must not call
/// it. Does nothing without glibc.
pub fn return_free_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes a number, touches free memory alone, and may be called by any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests;
