//! AF_XDP sockets: one socket for one receive queue, with rings and frames of its own.
//!
//! Frames have 4,096 bytes each and are named by numbers. Each frame is in one of five states, and every function
//! checks the state:
//!
//! ```text
//!            refill             receive             send                take_completions
//!   Free ───────────► Filling ───────────► Held ───────────► Sending ───────────────────► Held
//!     ▲                                   │  ▲                  │
//!     ├────────────── free ───────────────┘  └── take           │ free
//!     │                                          (from Free)    ▼
//!     └──────────────── take_completions ─────────────────── Leaving
//! ```
//!
//! This file has `unsafe`. These rules make it safe as a whole:
//!
//! * the kernel writes only to frames that are `Filling` and reads only frames that are `Sending` or `Leaving`, because
//!   only [`XdpSocket::refill`] and [`XdpSocket::send`] put frames into its rings, and both change the state;
//! * [`XdpSocket::bytes_mut`] gives out only `Held` frames, and [`XdpSocket::bytes`] only `Held` and `Sending` ones,
//!   which the kernel does not write to; the borrow of the socket keeps the state from changing meanwhile;
//! * a frame returns to `Held` only when the kernel names it in its ring of received or completed frames; a name that
//!   the kernel was not given ends the process;
//! * producer and consumer positions are read with Acquire and written with Release, as the kernel does on its side;
//! * frames and rings stay mapped until after the socket is closed (order of the fields).

#![allow(
    unsafe_code,
    reason = "rings and frames are memory shared with the kernel; see the module's text for the proof"
)]

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, Ordering, fence};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::net::sockopt::{
    set_xdp_rx_ring_size, set_xdp_tx_ring_size, set_xdp_umem_completion_ring_size, set_xdp_umem_fill_ring_size,
    set_xdp_umem_reg, xdp_mmap_offsets, xdp_options, xdp_statistics,
};
use rustix::net::xdp::{
    SocketAddrXdp, SocketAddrXdpFlags, XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING,
    XDP_UMEM_PGOFF_FILL_RING, XdpDesc, XdpDescOptions, XdpOptionsFlags, XdpRingFlags, XdpRingOffset, XdpUmemReg,
    XdpUmemRegFlags,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};

use crate::config::{OpenError, SocketConfig, SocketStatistics, ZeroCopy};
use crate::sys;

/// Bytes of a frame: a page, so that frames need no huge pages and no driver refuses them.
pub const FRAME_LEN: usize = 4_096;

/// System calls of one [`XdpSocket::kick`]. In copy mode the kernel sends 32 frames in each, so this is a full ring.
const KICKS_MAX: usize = 64;

/// Bytes that the kernel may queue for the device in copy mode. The default is used up by some fifty frames.
const SEND_BUFFER_LEN: i32 = 4 << 20;

/// The owner of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum FrameState {
    /// In the list of free frames.
    Free,
    /// In the fill ring, or on its way through the kernel to the ring of received frames. The kernel may write to it.
    Filling,
    /// The caller has it.
    Held,
    /// In the ring of frames to send, or on its way to the ring of completed frames. The kernel may read it.
    Sending,
    /// As `Sending`, but the caller has given it up: it is free once the kernel has sent it.
    Leaving,
}

/// A frame that has arrived. The caller holds it until [`XdpSocket::free`] or [`XdpSocket::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReceivedFrame {
    /// The number of the frame.
    pub frame: u32,
    /// Position of the Ethernet header in the frame.
    pub offset: u32,
    /// Bytes from there on.
    pub len: u32,
}

/// The outcome of a [`XdpSocket::kick`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kick {
    /// The kernel has every frame, or fetches them by itself.
    Done,
    /// The kernel could not take all frames. Kick again in the next turn.
    Again,
    /// The interface is down or gone. Frames stay in the ring.
    Down,
}

/// The AF_XDP socket of a receive queue. It is used on one thread, and may be created on another.
pub struct XdpSocket {
    // Closed before the mappings go (order of the fields).
    fd: OwnedFd,
    fill: ProducerRing<u64>,
    completion: ConsumerRing<u64>,
    rx: ConsumerRing<XdpDesc>,
    tx: ProducerRing<XdpDesc>,
    umem: Mapping,
    states: Vec<FrameState>,
    free: Vec<u32>,
    queue: u32,
    is_zero_copy: bool,
    is_busy_polled: bool,
}

// SAFETY: the pointers are to mappings that this value owns, and nothing in them belongs to a thread.
unsafe impl Send for XdpSocket {}

impl XdpSocket {
    /// Opens the socket of a queue with memory for its frames. The XDP program sends it frames from
    /// `XdpProgram::register` on.
    ///
    /// # Errors
    /// When the kernel refuses; the error says at which step, why, and what to do.
    pub fn open(config: &SocketConfig) -> Result<XdpSocket, OpenError> {
        config.check()?;
        let step =
            |step| move |errno: Errno| OpenError::Refused { step, queue: config.queue, errno: errno.raw_os_error() };
        let fd =
            socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None).map_err(step("socket"))?;
        let umem = Mapping::anonymous(config.frames as usize * FRAME_LEN).map_err(step("memory"))?;
        let region = XdpUmemReg {
            addr: umem.start.as_ptr() as u64,
            len: umem.len as u64,
            chunk_size: FRAME_LEN as u32,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        };
        set_xdp_umem_reg(&fd, region).map_err(step("frames"))?;
        set_xdp_umem_fill_ring_size(&fd, config.ring_len).map_err(step("rings"))?;
        set_xdp_umem_completion_ring_size(&fd, config.ring_len).map_err(step("rings"))?;
        set_xdp_rx_ring_size(&fd, config.ring_len).map_err(step("rings"))?;
        set_xdp_tx_ring_size(&fd, config.ring_len).map_err(step("rings"))?;
        let offsets = xdp_mmap_offsets(&fd).map_err(step("rings"))?;
        let ring = |offset, page| RingMemory::map(&fd, offset, page, config.ring_len);
        let fill = ProducerRing::new(ring(offsets.fr, XDP_UMEM_PGOFF_FILL_RING).map_err(step("rings"))?);
        let completion = ConsumerRing::new(ring(offsets.cr, XDP_UMEM_PGOFF_COMPLETION_RING).map_err(step("rings"))?);
        let rx = RingMemory::map(&fd, offsets.rx, XDP_PGOFF_RX_RING, config.ring_len).map_err(step("rings"))?;
        let tx = RingMemory::map(&fd, offsets.tx, XDP_PGOFF_TX_RING, config.ring_len).map_err(step("rings"))?;
        // Only a hint: without the capability for it, less fits into one kick.
        let _ = sys::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, SEND_BUFFER_LEN);
        if let Some(busy_poll) = config.busy_poll {
            sys::set_busy_poll(fd.as_fd(), busy_poll).map_err(step("busy polling"))?;
        }
        let mut socket = XdpSocket {
            fd,
            fill,
            completion,
            rx: ConsumerRing::new(rx),
            tx: ProducerRing::new(tx),
            umem,
            states: vec![FrameState::Free; config.frames as usize],
            free: (0..config.frames).rev().collect(),
            queue: config.queue,
            is_zero_copy: false,
            is_busy_polled: config.busy_poll.is_some(),
        };
        socket.refill();
        let flags = SocketAddrXdpFlags::XDP_USE_NEED_WAKEUP
            | match config.zero_copy {
                // Without a flag the kernel tries zero copy, then copies.
                ZeroCopy::Auto => SocketAddrXdpFlags::empty(),
                ZeroCopy::On => SocketAddrXdpFlags::XDP_ZEROCOPY,
                ZeroCopy::Off => SocketAddrXdpFlags::XDP_COPY,
            };
        bind(&socket.fd, &SocketAddrXdp::new(flags, config.interface, config.queue)).map_err(step("bind"))?;
        let options = xdp_options(&socket.fd).map_err(step("options"))?;
        socket.is_zero_copy = options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY);
        Ok(socket)
    }

    /// Returns the receive queue.
    pub fn queue(&self) -> u32 {
        self.queue
    }

    /// True if the device reads and writes the frames itself.
    pub fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Returns how many frames are free: neither the caller's nor the kernel's.
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Returns the next frame that has arrived. The caller holds it.
    pub fn receive(&mut self) -> Option<ReceivedFrame> {
        let descriptor = self.rx.next()?;
        let frame = (descriptor.addr / FRAME_LEN as u64) as u32;
        self.change(frame, FrameState::Filling, FrameState::Held);
        let offset = (descriptor.addr as usize % FRAME_LEN) as u32;
        assert!(offset as usize + descriptor.len as usize <= FRAME_LEN, "the kernel writes within a frame");
        Some(ReceivedFrame { frame, offset, len: descriptor.len })
    }

    /// Gives free frames to the kernel to receive into, as many as fit. Call it once a turn.
    pub fn refill(&mut self) {
        self.rx.publish();
        while self.fill.has_room() {
            let Some(frame) = self.free.pop() else { break };
            self.change(frame, FrameState::Free, FrameState::Filling);
            self.fill.push(u64::from(frame) * FRAME_LEN as u64);
        }
        self.fill.publish();
    }

    /// Takes a free frame, to build something to send. The caller holds it.
    pub fn take(&mut self) -> Option<u32> {
        let frame = self.free.pop()?;
        self.change(frame, FrameState::Free, FrameState::Held);
        Some(frame)
    }

    /// Ends the caller's ownership of a frame. It is free at once, or if it is being sent, once the kernel has sent it.
    ///
    /// # Panics
    /// When the caller does not own the frame: an error in the caller.
    pub fn free(&mut self, frame: u32) {
        if self.is_sending(frame) {
            self.change(frame, FrameState::Sending, FrameState::Leaving);
        } else {
            self.change(frame, FrameState::Held, FrameState::Free);
            self.free.push(frame);
        }
    }

    /// True if the kernel is still sending a frame that the caller owns.
    pub fn is_sending(&self, frame: u32) -> bool {
        self.states.get(frame as usize) == Some(&FrameState::Sending)
    }

    /// True if the caller holds the frame: it may be changed, sent and freed.
    pub fn is_held(&self, frame: u32) -> bool {
        self.states.get(frame as usize) == Some(&FrameState::Held)
    }

    /// Returns the bytes of a frame that the caller holds or has sent.
    ///
    /// # Panics
    /// When the frame is free or the kernel's to fill: an error in the caller.
    pub fn bytes(&self, frame: u32) -> &[u8] {
        let state = self.states[frame as usize];
        assert!(matches!(state, FrameState::Held | FrameState::Sending), "frame {frame} is {state:?}");
        // SAFETY: inside the mapping, because `states` has an entry for each frame of it; the kernel does not write to
        // a frame in these states, and the borrow keeps it in its state.
        unsafe { std::slice::from_raw_parts(self.umem.start.as_ptr().add(frame as usize * FRAME_LEN), FRAME_LEN) }
    }

    /// Returns the bytes of a held frame, to change them.
    ///
    /// # Panics
    /// When the caller does not hold the frame: an error in the caller.
    pub fn bytes_mut(&mut self, frame: u32) -> &mut [u8] {
        let state = self.states[frame as usize];
        assert!(state == FrameState::Held, "frame {frame} is {state:?}");
        // SAFETY: inside the mapping as in `bytes`; the kernel neither reads nor writes a held frame, and the borrow of
        // the whole socket keeps others from it.
        unsafe { std::slice::from_raw_parts_mut(self.umem.start.as_ptr().add(frame as usize * FRAME_LEN), FRAME_LEN) }
    }

    /// Queues `len` bytes of a held frame from `offset` on. The kernel has the frame until
    /// [`XdpSocket::take_completions`] returns it. Returns false if the ring is full; the caller still holds the frame.
    ///
    /// # Panics
    /// When the caller does not hold the frame, or the bytes are outside of it: an error in the caller.
    #[must_use = "the frame is not sent if the ring is full"]
    pub fn send(&mut self, frame: u32, offset: u32, len: u32) -> bool {
        assert!(offset as usize + len as usize <= FRAME_LEN, "{len} bytes from {offset} are not in a frame");
        if !self.tx.has_room() {
            return false;
        }
        self.change(frame, FrameState::Held, FrameState::Sending);
        let addr = u64::from(frame) * FRAME_LEN as u64 + u64::from(offset);
        self.tx.push(XdpDesc { addr, len, options: XdpDescOptions::empty() });
        true
    }

    /// Takes back the frames that the kernel has sent. Appends those that the caller still owns: it holds them again. The
    /// others are free.
    pub fn take_completions(&mut self, into: &mut Vec<u32>) {
        while let Some(addr) = self.completion.next() {
            let frame = (addr / FRAME_LEN as u64) as u32;
            if self.states[frame as usize] == FrameState::Leaving {
                self.change(frame, FrameState::Leaving, FrameState::Free);
                self.free.push(frame);
            } else {
                self.change(frame, FrameState::Sending, FrameState::Held);
                into.push(frame);
            }
        }
        self.completion.publish();
    }

    /// Shows queued frames to the kernel, and wakes it if it asks for that. Call it once a turn, after
    /// [`XdpSocket::refill`].
    ///
    /// # Errors
    /// When the kernel reports anything but a transient condition or a lost interface.
    pub fn kick(&mut self) -> io::Result<Kick> {
        self.tx.publish();
        // The kernel sets its flag and then looks at the ring. We publish and then look at the flag.
        fence(Ordering::SeqCst);
        if self.is_busy_polled || self.fill.needs_wakeup() {
            // Any other error, such as that of an empty ring, changes nothing.
            let woken = recv(&self.fd, &mut [0_u8; 0][..], RecvFlags::DONTWAIT);
            if let Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) = woken {
                return Ok(Kick::Down);
            }
        }
        for _ in 0..KICKS_MAX {
            let waiting = self.tx.waiting();
            if waiting == 0 || !self.tx.needs_wakeup() {
                return Ok(Kick::Done);
            }
            match send(&self.fd, &[], SendFlags::DONTWAIT) {
                // In copy mode the kernel sends some and returns EAGAIN.
                Ok(_) | Err(Errno::AGAIN | Errno::INTR) if self.tx.waiting() < waiting => {}
                Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::BUSY | Errno::NOBUFS) => return Ok(Kick::Again),
                Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV) => return Ok(Kick::Down),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Kick::Again)
    }

    /// Returns what the kernel has counted.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn statistics(&self) -> io::Result<SocketStatistics> {
        let counted = xdp_statistics(&self.fd)?;
        Ok(SocketStatistics {
            dropped: counted.rx_dropped,
            rx_ring_full: counted.rx_ring_full.unwrap_or(0),
            fill_ring_empty: counted.rx_fill_ring_empty_descs.unwrap_or(0),
            invalid: counted.rx_invalid_descs + counted.tx_invalid_descs,
        })
    }

    fn change(&mut self, frame: u32, from: FrameState, to: FrameState) {
        let state = &mut self.states[frame as usize];
        assert!(*state == from, "frame {frame} is {state:?}, not {from:?}");
        *state = to;
    }
}

impl AsFd for XdpSocket {
    /// Returns the descriptor, to poll it. Nothing else may be done with it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for XdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "XdpSocket(queue {}, {} of {} frames free)", self.queue, self.free.len(), self.states.len())
    }
}

/// Pages of our own or shared with the kernel.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn anonymous(len: usize) -> Result<Mapping, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap_anonymous(null_mut(), len, protection, flags)? };
        Ok(Mapping { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }

    fn of_ring(fd: &OwnedFd, len: usize, page: u64) -> Result<Mapping, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::POPULATE);
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(null_mut(), len, protection, flags, fd, page)? };
        Ok(Mapping { start: NonNull::new(start.cast()).ok_or(Errno::NOMEM)?, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and its owner, which gave out all pointers into it, is gone.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The memory of a ring of `T`: two positions, flags and entries. `T` is a plain number or a `struct xdp_desc`.
struct RingMemory<T> {
    map: Mapping,
    offset: XdpRingOffset,
    /// Entries less one; their number is a power of two.
    mask: u32,
    entry: std::marker::PhantomData<T>,
}

impl<T: Copy> RingMemory<T> {
    fn map(fd: &OwnedFd, offset: XdpRingOffset, page: u64, entries: u32) -> Result<RingMemory<T>, Errno> {
        assert!(entries.is_power_of_two());
        let len = offset.desc as usize + entries as usize * size_of::<T>();
        let last = [offset.producer, offset.consumer, offset.flags.unwrap_or(0)].into_iter().max().unwrap_or(0);
        // Kernels before 5.4, which have no flags, are refused long before.
        assert!(
            offset.flags.is_some() && last as usize + size_of::<u32>() <= len,
            "the kernel's offsets are in the ring"
        );
        Ok(RingMemory { map: Mapping::of_ring(fd, len, page)?, offset, mask: entries - 1, entry: Default::default() })
    }

    fn number(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: `map` has checked that the number is in the mapping; the kernel aligns it, and both sides use it
        // atomically.
        unsafe { &*self.map.start.as_ptr().add(offset as usize).cast::<AtomicU32>() }
    }

    fn producer(&self) -> &AtomicU32 {
        self.number(self.offset.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.number(self.offset.consumer)
    }

    fn flags(&self) -> u32 {
        self.number(self.offset.flags.unwrap_or(self.offset.producer)).load(Ordering::Relaxed)
    }

    fn entry(&self, position: u32) -> *mut T {
        // SAFETY: the mask keeps the entry among those that `map` has mapped.
        unsafe {
            self.map.start.as_ptr().add(self.offset.desc as usize).cast::<T>().add((position & self.mask) as usize)
        }
    }
}

/// A ring that the kernel consumes.
struct ProducerRing<T> {
    memory: RingMemory<T>,
    /// Position of the next entry. The kernel sees it from `publish` on.
    next: u32,
    /// The kernel's position when it was last read.
    consumed: u32,
}

impl<T: Copy> ProducerRing<T> {
    fn new(memory: RingMemory<T>) -> ProducerRing<T> {
        ProducerRing { memory, next: 0, consumed: 0 }
    }

    fn has_room(&mut self) -> bool {
        if self.next.wrapping_sub(self.consumed) > self.memory.mask {
            self.consumed = self.memory.consumer().load(Ordering::Acquire);
        }
        self.next.wrapping_sub(self.consumed) <= self.memory.mask
    }

    fn push(&mut self, entry: T) {
        assert!(self.has_room());
        // SAFETY: the kernel reads entries only before the published position, and this one is behind it; it has
        // consumed the one that was here before.
        unsafe { self.memory.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
    }

    fn publish(&mut self) {
        self.memory.producer().store(self.next, Ordering::Release);
    }

    fn waiting(&self) -> u32 {
        self.next.wrapping_sub(self.memory.consumer().load(Ordering::Acquire))
    }

    fn needs_wakeup(&self) -> bool {
        self.memory.flags() & XdpRingFlags::XDP_RING_NEED_WAKEUP.bits() != 0
    }
}

/// A ring that the kernel fills.
struct ConsumerRing<T> {
    memory: RingMemory<T>,
    /// Position of the next entry to read. The kernel sees it from `publish` on.
    next: u32,
    /// The kernel's position when it was last read.
    produced: u32,
}

impl<T: Copy> ConsumerRing<T> {
    fn new(memory: RingMemory<T>) -> ConsumerRing<T> {
        ConsumerRing { memory, next: 0, produced: 0 }
    }

    fn next(&mut self) -> Option<T> {
        if self.next == self.produced {
            self.produced = self.memory.producer().load(Ordering::Acquire);
            if self.next == self.produced {
                return None;
            }
        }
        // SAFETY: the kernel has published the entry, and does not write to it before we publish a position behind it.
        let entry = unsafe { self.memory.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    fn publish(&mut self) {
        self.memory.consumer().store(self.next, Ordering::Release);
    }
}
