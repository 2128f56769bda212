//! A client on smoltcp: one interface with one socket, which has one connection after another.

use std::cell::Cell;
use std::collections::VecDeque;
use std::net::SocketAddr;

use rand_pcg::Pcg64Mcg;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{RecvError, Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};

use crate::plan::{Plan, below};

pub(crate) const SERVER_PORT: u16 = 80;

/// Time without an answer after which a client gives up.
const TIMEOUT_US: u64 = 300_000_000;

thread_local! {
    static CLOCK_MS: Cell<u32> = const { Cell::new(0) };
}

fn timestamp() -> u32 {
    CLOCK_MS.get()
}

/// Packets between the interface and the wire.
#[derive(Default)]
struct Queues {
    received: VecDeque<Vec<u8>>,
    sent: Vec<Vec<u8>>,
}

struct Received(Vec<u8>);
struct Sent<'a>(&'a mut Vec<Vec<u8>>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Sent<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut packet = vec![0; len];
        let result = f(&mut packet);
        self.0.push(packet);
        result
    }
}

impl Device for Queues {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sent<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sent<'_>)> {
        let packet = self.received.pop_front()?;
        Some((Received(packet), Sent(&mut self.sent)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sent<'_>> {
        Some(Sent(&mut self.sent))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities
    }
}

/// The state of a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    Open,
    /// Everything has come, with the server's FIN.
    Complete,
    /// The connection has ended before.
    Failed,
    /// The client has nothing to send, and the last segment of its handshake was lost. If the server has sent a SYN
    /// cookie, it does not know of the client, so both wait until the client gives up.
    Unheard,
    /// smoltcp 0.14 has forgotten its FIN: after three duplicate acknowledgements without data in flight it clears its
    /// timer, and has nothing to send at once (`pending_fast_retransmit`).
    FinForgotten,
}

/// A client of the simulation, with a TCP of its own.
pub(crate) struct Client {
    interface: Interface,
    sockets: SocketSet<'static>,
    queues: Queues,
    handle: Option<SocketHandle>,
    address: IpAddress,
    server: IpAddress,
    next_port: u16,
    pub(crate) plan: Option<Plan>,
    uploaded: u32,
    downloaded: u32,
    has_fin: bool,
    connected_us: u64,
}

impl Client {
    pub(crate) fn new(address: IpAddress, server: IpAddress, seed: u64) -> Client {
        let mut queues = Queues::default();
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = seed;
        let mut interface = Interface::new(config, &mut queues, Instant::ZERO);
        interface.update_ip_addrs(|addresses| addresses.push(IpCidr::new(address, 8)).expect("there is room"));
        Client {
            interface,
            sockets: SocketSet::new(vec![]),
            queues,
            handle: None,
            address,
            server,
            next_port: 40_000 + (seed % 1000) as u16,
            plan: None,
            uploaded: 0,
            downloaded: 0,
            has_fin: false,
            connected_us: 0,
        }
    }

    /// Connects, and returns the address of this end.
    pub(crate) fn connect(&mut self, now_us: u64, plan: Plan, random: &mut Pcg64Mcg) -> SocketAddr {
        let mut buffer = || SocketBuffer::new(vec![0; 1024 << below(random, 5)]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_timeout(Some(Duration::from_micros(TIMEOUT_US)));
        socket.set_nagle_enabled(plan.number.is_multiple_of(2));
        if plan.has_timestamps {
            socket.set_tsval_generator(Some(timestamp));
        }
        // Few ports, so that TIME-WAIT meets the next connection.
        self.next_port = 40_000 + (self.next_port + 1) % 16;
        let local = (self.address, self.next_port);
        socket.connect(self.interface.context(), (self.server, SERVER_PORT), local).expect("the socket is closed");
        self.handle = Some(self.sockets.add(socket));
        (self.uploaded, self.downloaded, self.has_fin) = (0, 0, false);
        self.connected_us = now_us;
        self.plan = Some(plan);
        SocketAddr::new(self.address.into(), self.next_port)
    }

    /// Takes a packet from the wire.
    pub(crate) fn receive(&mut self, packet: Vec<u8>) {
        self.queues.received.push_back(packet);
    }

    /// Works at a time until there is nothing to do. Returns what became of the connection, or what is wrong with it.
    pub(crate) fn work(&mut self, now_us: u64, mut send: impl FnMut(Vec<u8>)) -> Result<Progress, String> {
        CLOCK_MS.set((now_us / 1000) as u32);
        let now = Instant::from_micros(now_us as i64);
        let mut progress = Progress::Open;
        for _ in 0..2 {
            self.interface.poll(now, &mut self.queues, &mut self.sockets);
            self.queues.sent.drain(..).for_each(&mut send);
            progress = self.use_socket(now_us)?;
        }
        self.interface.poll(now, &mut self.queues, &mut self.sockets);
        self.queues.sent.drain(..).for_each(&mut send);
        if progress != Progress::Open
            && let Some(handle) = self.handle.take()
        {
            self.sockets.remove(handle);
        }
        Ok(progress)
    }

    /// Returns the time at which the client has something to do by itself.
    pub(crate) fn next_at(&mut self, now_us: u64) -> Option<u64> {
        let now = Instant::from_micros(now_us as i64);
        self.interface.poll_at(now, &self.sockets).map(|at| at.total_micros() as u64)
    }

    fn use_socket(&mut self, now_us: u64) -> Result<Progress, String> {
        let (Some(handle), Some(plan)) = (self.handle, self.plan) else { return Ok(Progress::Open) };
        let socket = self.sockets.get_mut::<Socket<'_>>(handle);
        let mut bytes = [0; 4096];
        loop {
            match socket.recv_slice(&mut bytes) {
                Ok(0) => break,
                Ok(len) => {
                    if !plan.is_download(self.downloaded, &bytes[..len]) {
                        return Err(format!("wrong bytes at {} of {plan:?}", self.downloaded));
                    }
                    self.downloaded += len as u32;
                }
                Err(RecvError::Finished) => {
                    self.has_fin = true;
                    break;
                }
                Err(RecvError::InvalidState) => break,
            }
        }
        if self.has_fin && self.downloaded != plan.download {
            return Err(format!("the FIN came after {} bytes of {plan:?}", self.downloaded));
        }
        while self.uploaded < plan.upload && socket.can_send() {
            let len = bytes.len().min((plan.upload - self.uploaded) as usize);
            plan.write_upload(self.uploaded, &mut bytes[..len]);
            self.uploaded += socket.send_slice(&bytes[..len]).unwrap_or(0) as u32;
        }
        if plan.client_resets_after.is_some_and(|after| self.downloaded >= after)
            && socket.state() == State::Established
        {
            socket.abort();
        }
        let has_sent_all = self.uploaded == plan.upload;
        if has_sent_all && socket.may_send() && (plan.half_closes || self.downloaded == plan.download) {
            socket.close();
        }
        Ok(match socket.state() {
            State::Closed | State::TimeWait if self.has_fin && has_sent_all => Progress::Complete,
            State::Closed | State::TimeWait if now_us - self.connected_us < TIMEOUT_US => Progress::Failed,
            State::Closed | State::TimeWait if (plan.upload, self.downloaded) == (0, 0) => Progress::Unheard,
            State::Closed | State::TimeWait if has_sent_all && self.downloaded == plan.download => {
                Progress::FinForgotten
            }
            State::Closed | State::TimeWait => Progress::Failed,
            _ => Progress::Open,
        })
    }
}
