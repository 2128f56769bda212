//! Redis, as far as visits go through it: streams of batches, the numbers of origins, requests for snapshots, and chunks.
//!
//! A server keeps streams by their origin, and another one keeps the rest. Each has a replica that lags behind.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use carom_model::visits::count_exchange::VisitEntry;
use carom_model::visits::origins::OriginId;

/// Servers: the last one has everything but the streams.
const SERVERS: usize = 3;

/// Chunks of a snapshot that wait at once.
const CHUNKS_HELD: usize = 2;

/// A chunk of a snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    /// The number of the chunk, from 0.
    pub(crate) number: u64,
    /// The visits of a link.
    pub(crate) row: Option<(u16, Vec<u16>)>,
    /// The number of the last batch in the snapshot; only in the last chunk.
    pub(crate) applied: Option<u64>,
}

/// A stream of an origin.
#[derive(Clone, Default, Debug)]
struct Stream {
    last: u64,
    entries: VecDeque<(u64, Vec<u8>)>,
}

/// The data of a server.
#[derive(Clone, Default, Debug)]
struct Data {
    streams: BTreeMap<OriginId, Stream>,
    notes: BTreeMap<OriginId, (u64, String)>,
    wanted: BTreeMap<OriginId, String>,
    given: BTreeSet<String>,
    chunks: BTreeMap<String, VecDeque<Chunk>>,
}

#[derive(Clone, Default, Debug)]
struct Server {
    master: Data,
    replica: Data,
}

/// A command that changes something.
#[derive(Clone, Debug)]
pub(crate) enum Command {
    /// Appends an entry to the stream of an origin.
    Publish(OriginId, VisitEntry),
    /// Sets the numbers of origins.
    Note(Vec<(OriginId, u64, String)>),
    /// Asks for a snapshot, or takes the request back.
    Want(OriginId, Option<String>),
    /// Claims a request.
    Claim(String),
    /// Adds a chunk.
    Put(String, Chunk),
    /// Takes a chunk.
    Take(String),
}

/// The answer to a command.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The command was carried out.
    Done,
    /// The stream has this entry already.
    Refused,
    /// A request is claimed, if it was free.
    Claimed(bool),
    /// The next chunk.
    Chunk(Option<Chunk>),
}

/// All servers.
#[derive(Debug)]
pub(crate) struct Redis {
    servers: [Server; SERVERS],
    /// Entries that each stream keeps.
    window: usize,
    /// True if it answers.
    pub(crate) up: bool,
    /// Commands on their way that nobody waits for any more.
    pub(crate) delayed: Vec<Command>,
}

fn server_of(origin: OriginId) -> usize {
    (origin.0 % (SERVERS as u64 - 1)) as usize
}

impl Redis {
    pub(crate) fn new(window: usize) -> Redis {
        Redis { servers: Default::default(), window, up: true, delayed: Vec::new() }
    }

    fn space(&self) -> &Data {
        &self.servers[SERVERS - 1].master
    }

    fn stream(&self, origin: OriginId) -> Option<&Stream> {
        self.servers[server_of(origin)].master.streams.get(&origin)
    }

    /// Runs a command.
    pub(crate) fn execute(&mut self, command: Command) -> Answer {
        let window = self.window;
        let space = &mut self.servers[SERVERS - 1].master;
        match command {
            Command::Publish(origin, VisitEntry { last, bytes, oldest }) => {
                let stream = self.servers[server_of(origin)].master.streams.entry(origin).or_default();
                if last <= stream.last {
                    return Answer::Refused;
                }
                stream.last = last;
                stream.entries.push_back((last, bytes));
                stream.entries.retain(|(last, _)| *last >= oldest);
                while stream.entries.len() > window {
                    stream.entries.pop_front();
                }
            }
            Command::Note(notes) => {
                space.notes.extend(notes.into_iter().map(|(origin, number, node)| (origin, (number, node))));
            }
            Command::Want(origin, Some(text)) => _ = space.wanted.insert(origin, text),
            Command::Want(origin, None) => _ = space.wanted.remove(&origin),
            Command::Claim(request) => return Answer::Claimed(space.given.insert(request)),
            Command::Put(request, chunk) => space.chunks.entry(request).or_default().push_back(chunk),
            Command::Take(request) => {
                return Answer::Chunk(space.chunks.get_mut(&request).and_then(VecDeque::pop_front));
            }
        }
        Answer::Done
    }

    /// The last batch in the stream of an origin, or 0.
    pub(crate) fn last(&self, origin: OriginId) -> u64 {
        self.stream(origin).and_then(|stream| stream.entries.back()).map_or(0, |(last, _)| *last)
    }

    /// Entries of a stream from the one with that batch on.
    pub(crate) fn entries(&self, origin: OriginId, from: u64, most: usize) -> Vec<(u64, Vec<u8>)> {
        let entries = self.stream(origin).into_iter().flat_map(|stream| &stream.entries);
        entries.filter(|(last, _)| *last >= from).take(most).cloned().collect()
    }

    /// The numbers of all origins, with the names of their nodes.
    pub(crate) fn notes(&self) -> &BTreeMap<OriginId, (u64, String)> {
        &self.space().notes
    }

    /// The requests for snapshots, by the origin that asks.
    pub(crate) fn wanted(&self) -> &BTreeMap<OriginId, String> {
        &self.space().wanted
    }

    /// Returns the number of chunks that there is room for.
    pub(crate) fn room(&self, request: &str) -> usize {
        CHUNKS_HELD.saturating_sub(self.space().chunks.get(request).map_or(0, VecDeque::len))
    }

    /// A replica has what its master has.
    pub(crate) fn replicate(&mut self, server: usize) {
        let server = &mut self.servers[server % SERVERS];
        server.replica = server.master.clone();
    }

    /// A replica takes over: what it lacks is lost.
    pub(crate) fn fail_over(&mut self, server: usize) {
        let server = &mut self.servers[server % SERVERS];
        server.master = server.replica.clone();
    }

    /// Everything is lost, on one server or on all.
    pub(crate) fn empty(&mut self, server: Option<usize>) {
        match server {
            Some(server) => self.servers[server % SERVERS] = Server::default(),
            None => self.servers = Default::default(),
        }
        self.delayed.clear();
    }
}
