//! A socket to the kernel's tables of links, routes and neighbours: requests, dumps and notifications.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_recv_buffer_size, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with};

/// Bytes of a read. The kernel fills at most 32 KiB of it with a part of a dump.
const BUFFER_LEN: usize = 64 << 10;

/// Bytes of notifications that the kernel keeps for us: some thousand changes.
const QUEUE_LEN: usize = 1 << 20;

/// The wait for a part of a dump, which the kernel makes while we ask for it.
const DUMP_TIME_MAX: Duration = Duration::from_secs(2);

/// Reads of one dump: a table of a million routes.
const DUMP_READS_MAX: usize = 16_384;

/// Reads of one turn.
const TURN_READS_MAX: usize = 64;

/// The netlink socket, with its buffer.
#[derive(Debug)]
pub(crate) struct Netlink {
    fd: OwnedFd,
    buffer: Vec<u8>,
    sequence: u32,
}

/// A message of the kernel, with the flags of its header.
pub(crate) type FlaggedMessage = (RouteNetlinkMessage, u16);

impl Netlink {
    /// Opens a socket that hears the notifications of some groups (`RTMGRP_…`).
    pub(crate) fn open(groups: u32) -> io::Result<Netlink> {
        // The protocol 0 is NETLINK_ROUTE.
        let fd = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        set_socket_timeout(&fd, Timeout::Recv, Some(DUMP_TIME_MAX))?;
        set_socket_recv_buffer_size(&fd, QUEUE_LEN)?;
        bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Netlink { fd, buffer: vec![0; BUFFER_LEN], sequence: 0 })
    }

    /// Sends a request.
    pub(crate) fn request(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(message));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        sendto(&self.fd, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        Ok(())
    }

    /// Asks for a whole table, and hands over its entries, and the notifications that come meanwhile, in the order in
    /// which the kernel made them.
    pub(crate) fn dump(
        &mut self,
        message: RouteNetlinkMessage,
        mut each: impl FnMut(FlaggedMessage),
    ) -> io::Result<()> {
        self.request(message, NLM_F_DUMP)?;
        for _ in 0..DUMP_READS_MAX {
            match self.read(RecvFlags::empty(), &mut each)? {
                NetlinkRead::End => return Ok(()),
                NetlinkRead::Failed(error) => return Err(error),
                NetlinkRead::More => {}
            }
        }
        Err(io::Error::other("the kernel's table is too large"))
    }

    /// Asks for one entry, and returns it.
    pub(crate) fn ask(&mut self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        self.request(message, 0)?;
        let mut answer = None;
        match self.read(RecvFlags::empty(), &mut |(message, _)| answer = Some(message))? {
            NetlinkRead::Failed(error) => Err(error),
            _ => answer.ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }

    /// Hands over the notifications that wait. An error `ENOBUFS` says that some are lost.
    pub(crate) fn receive(&mut self, mut each: impl FnMut(FlaggedMessage)) -> io::Result<()> {
        for _ in 0..TURN_READS_MAX {
            match self.read(RecvFlags::DONTWAIT, &mut each) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, flags: RecvFlags, each: &mut impl FnMut(FlaggedMessage)) -> io::Result<NetlinkRead> {
        let len = loop {
            match recv(&self.fd, &mut self.buffer[..], flags) {
                Ok((len, _)) => break len,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        };
        let mut rest = &self.buffer[..len];
        let mut outcome = NetlinkRead::More;
        while let Some(head) = rest.first_chunk::<4>() {
            let len = u32::from_ne_bytes(*head) as usize;
            if len < size_of::<libc::nlmsghdr>() || len > rest.len() {
                break;
            }
            // A message of a kind that the crate does not know changes nothing here.
            if let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(&rest[..len]) {
                let is_ours = message.header.sequence_number == self.sequence;
                match message.payload {
                    NetlinkPayload::InnerMessage(inner) => each((inner, message.header.flags)),
                    NetlinkPayload::Done(_) if is_ours => outcome = NetlinkRead::End,
                    NetlinkPayload::Error(error) if is_ours && error.code.is_some() => {
                        outcome = NetlinkRead::Failed(error.to_io());
                    }
                    _ => {}
                }
            }
            rest = &rest[len.next_multiple_of(4).min(rest.len())..];
        }
        Ok(outcome)
    }
}

impl AsFd for Netlink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The outcome of a read.
enum NetlinkRead {
    /// Notifications, or a part of a dump.
    More,
    /// The last part of our dump.
    End,
    /// The kernel refused our request.
    Failed(io::Error),
}
