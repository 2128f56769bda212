//! A world: one stack, many clients, a wire between them, and a clock that jumps from event to event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::net::SocketAddr;

use carom_net::{ConnectionId, MemoryPool, Stack, StackConfig, StackCounters};
use rand_pcg::Pcg64Mcg;

use crate::client::{Client, Progress, SERVER_PORT};
use crate::plan::{Plan, below, chance};
use crate::server::Server;
use crate::wire::{Quality, Wrapping, client_address, server_address};

const FRAMES: u32 = 2048;

/// Frames of a world whose clients take them all at times.
const FRAMES_FEW: u32 = 32;

/// Settings of a world.
pub(crate) struct Setting {
    pub(crate) seed: u64,
    pub(crate) clients: u32,
    pub(crate) connections: u64,
    pub(crate) quality: Option<Quality>,
    pub(crate) config: StackConfig,
}

/// The result of a world without a violation.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) connections: u64,
    /// Connections that have ended early without a plan for it, for any reason.
    pub(crate) failed: u64,
    /// Clients among them that had nothing to say ([`Progress::Unheard`]).
    pub(crate) unheard: u64,
    /// Clients among them that have not sent their FIN again ([`Progress::FinForgotten`]).
    pub(crate) fin_forgotten: u64,
    /// Connections whose plan has a reset.
    pub(crate) reset: u64,
    pub(crate) finished: u64,
    pub(crate) counters: StackCounters,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    ToServer(Vec<u8>),
    ToClient(u32, Vec<u8>),
    Connect(u32),
    Client(u32),
    Server,
    Completed(u32),
    Resume(u32, u32),
}

/// A world that runs.
pub(crate) struct World {
    now_us: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    number: u64,
    random: Pcg64Mcg,
    quality: Quality,
    wrapping: Wrapping,
    stack: Stack,
    pool: MemoryPool,
    server: Server,
    server_at: u64,
    clients: Vec<Client>,
    client_at: Vec<u64>,
    by_address: HashMap<std::net::IpAddr, u32>,
    plans: HashMap<SocketAddr, Plan>,
    left: u64,
    report: Report,
}

impl World {
    pub(crate) fn new(setting: &Setting) -> World {
        let mut random = Pcg64Mcg::new(u128::from(setting.seed) << 64 | 0xcafe_f00d_d15e_a5e5);
        let is_v4 = chance(&mut random, 500);
        let wrapping = match below(&mut random, 6) {
            0..3 => Wrapping::Bare,
            3 => Wrapping::Tagged(below(&mut random, 4096) as u16),
            4 => Wrapping::Ipip,
            _ => Wrapping::Gue,
        };
        let quality = setting.quality.unwrap_or_else(|| Quality::of_world(&mut random));
        let config = StackConfig {
            connections_max: setting.clients * 4,
            half_open_max: 1 + below(&mut random, setting.clients),
            // A quarter of the worlds is short of frames.
            frames_held_max: if setting.seed % 4 == 3 { FRAMES_FEW } else { FRAMES - 512 },
            time_wait_ms: 5_000,
            rto_max_ms: 5_000,
            decapsulate: wrapping.decapsulate(),
            ..setting.config.clone()
        };
        let start_us = 1_000_000_000 * u64::from(below(&mut random, 5000));
        let mut stack = Stack::new(config, &[7; 16], start_us);
        let server = server_address(is_v4);
        stack.listen(Some(server.into()), SERVER_PORT);
        let addresses = (0..setting.clients).map(|at| client_address(is_v4, at));
        let mut world = World {
            now_us: start_us,
            events: BinaryHeap::new(),
            number: 0,
            quality,
            wrapping,
            stack,
            pool: MemoryPool::new(FRAMES),
            server: Server::default(),
            server_at: u64::MAX,
            by_address: addresses.clone().map(std::net::IpAddr::from).zip(0..).collect(),
            clients: addresses.zip(setting.seed..).map(|(address, seed)| Client::new(address, server, seed)).collect(),
            client_at: vec![u64::MAX; setting.clients as usize],
            plans: HashMap::new(),
            left: setting.connections,
            report: Report::default(),
            random,
        };
        for client in 0..setting.clients {
            let after = below(&mut world.random, 50_000);
            world.at(u64::from(after), Event::Connect(client));
        }
        world
    }

    fn at(&mut self, after_us: u64, event: Event) {
        self.number += 1;
        self.events.push(Reverse((self.now_us + after_us, self.number, event)));
    }

    /// Runs until nothing happens any more. Returns the first violation, if there is one.
    pub(crate) fn run(mut self) -> Result<Report, String> {
        self.run_events()?;
        // A reset that was lost leaves an idle connection, which a driver ends after its own timeout.
        let abandoned = self.server.abandon(self.now_us, &mut self.stack, &mut self.pool);
        if abandoned > self.report.failed + self.report.reset {
            return Err(format!("{abandoned} connections stay open, more than have ended early"));
        }
        self.end_turn();
        self.run_events()?;
        let counters = self.stack.counters();
        let left =
            [counters.open, counters.half_open, counters.time_wait, counters.frames_held, self.pool.in_use() as u64];
        if left != [0; 5] {
            return Err(format!("left: connections, half-open, TIME-WAIT, held and used frames {left:?}"));
        }
        Ok(Report { counters, finished: self.server.finished, ..self.report })
    }

    /// Runs until there is no event.
    fn run_events(&mut self) -> Result<(), String> {
        let mut steps = 0_u64;
        while let Some(Reverse((at_us, _, event))) = self.events.pop() {
            assert!(at_us >= self.now_us, "time goes on");
            self.now_us = at_us;
            self.step(event)?;
            if let Some(violation) = self.server.violation.take() {
                return Err(violation);
            }
            steps += 1;
            if steps > 200_000 + 2_000 * self.report.connections {
                return Err(format!("no end after {steps} steps: {:?}", self.stack.counters()));
            }
        }
        Ok(())
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::ToServer(frame) => {
                let (now_us, mut hops) = (self.now_us, self.wrapping);
                self.stack.receive(now_us, &frame, &mut self.pool, &mut hops, &mut self.server);
                self.end_turn();
            }
            Event::Server => {
                if self.server_at <= self.now_us {
                    self.server_at = u64::MAX;
                    self.stack.poll(self.now_us, &mut self.pool, &mut self.server);
                    self.end_turn();
                }
            }
            Event::Completed(frame) => self.pool.complete(frame),
            Event::Resume(index, generation) => {
                self.stack.resume(self.now_us, ConnectionId { index, generation }, &mut self.pool);
                self.end_turn();
            }
            Event::Connect(client) => self.connect(client)?,
            Event::Client(client) => {
                if self.client_at[client as usize] <= self.now_us {
                    self.client_at[client as usize] = u64::MAX;
                    self.work(client)?;
                }
            }
            Event::ToClient(client, packet) => {
                self.clients[client as usize].receive(packet);
                self.work(client)?;
            }
        }
        Ok(())
    }

    /// Lets the application act, sends acknowledgements, and moves frames to the wire.
    fn end_turn(&mut self) {
        self.server.act(self.now_us, &mut self.stack, &mut self.pool, &self.plans, &mut self.random);
        for id in std::mem::take(&mut self.server.paused) {
            let after = below(&mut self.random, 100_000);
            self.at(u64::from(after), Event::Resume(id.index, id.generation));
        }
        self.stack.flush(self.now_us, &mut self.pool);
        let mut arrivals = Vec::new();
        let mut completed = Vec::new();
        while let Some((frame, bytes)) = self.pool.next_queued() {
            let packet = self.wrapping.packet(bytes).to_vec();
            if let Some(client) = self.by_address.get(&destination(&packet)) {
                self.quality.pass(packet, &mut self.random, |after, packet| arrivals.push((after, *client, packet)));
            }
            completed.push(frame);
        }
        arrivals.into_iter().for_each(|(after, client, packet)| self.at(after, Event::ToClient(client, packet)));
        for frame in completed {
            // Some frames stay with the NIC for longer than a timeout.
            let after = if chance(&mut self.random, 2) {
                below(&mut self.random, 1_000_000)
            } else {
                below(&mut self.random, 100)
            };
            self.at(u64::from(after), Event::Completed(frame));
        }
        if let Some(at_us) = self.stack.next_deadline(self.now_us).filter(|at_us| *at_us < self.server_at) {
            self.server_at = at_us;
            self.at(at_us - self.now_us, Event::Server);
        }
    }

    fn connect(&mut self, client: u32) -> Result<(), String> {
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.report.connections += 1;
        let plan = Plan::new(self.report.connections, &mut self.random);
        let address = self.clients[client as usize].connect(self.now_us, plan, &mut self.random);
        self.plans.insert(address, plan);
        self.work(client)
    }

    fn work(&mut self, client: u32) -> Result<(), String> {
        let mut packets = Vec::new();
        let progress = self.clients[client as usize].work(self.now_us, |packet| packets.push(packet))?;
        if self.quality.is_server_full(self.now_us) {
            packets.clear();
        }
        let mut arrivals = Vec::new();
        for packet in packets {
            let frame = self.wrapping.frame(&packet);
            self.quality.pass(frame, &mut self.random, |after, frame| arrivals.push((after, frame)));
        }
        arrivals.into_iter().for_each(|(after, frame)| self.at(after, Event::ToServer(frame)));
        if progress != Progress::Open
            && let Some(plan) = self.clients[client as usize].plan.take()
        {
            if !plan.has_reset() {
                self.report.failed += u64::from(progress != Progress::Complete);
                self.report.unheard += u64::from(progress == Progress::Unheard);
                self.report.fin_forgotten += u64::from(progress == Progress::FinForgotten);
            }
            self.report.reset += u64::from(plan.has_reset());
            let after = below(&mut self.random, 20_000);
            self.at(u64::from(after), Event::Connect(client));
        }
        let now_us = self.now_us;
        if let Some(at_us) = self.clients[client as usize].next_at(now_us) {
            let at_us = at_us.max(now_us + 1);
            if at_us < self.client_at[client as usize] {
                self.client_at[client as usize] = at_us;
                self.at(at_us - now_us, Event::Client(client));
            }
        }
        Ok(())
    }
}

/// Returns the destination of a packet.
fn destination(packet: &[u8]) -> std::net::IpAddr {
    match packet[0] >> 4 {
        4 => <[u8; 4]>::try_from(&packet[16..20]).expect("four bytes").into(),
        _ => <[u8; 16]>::try_from(&packet[24..40]).expect("sixteen bytes").into(),
    }
}
