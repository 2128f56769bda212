//! Half-open connections: a bounded cache (RFC 4987, 3.4). Once it is full, SYN cookies take over.

use crate::connection::Handshake;
use crate::headers::address::Flow;

/// Times that an answer to a SYN is sent again: after 1, 3, 7, 15 and 31 seconds.
pub(crate) const ATTEMPTS_MAX: u8 = 5;

/// A SYN that was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HalfOpen {
    pub(crate) handshake: Handshake,
    /// Time of the first answer, in microseconds that wrap.
    pub(crate) sent_us: u32,
    pub(crate) attempts: u8,
}

/// The half-open connections of a stack.
pub(crate) struct SynCache {
    entries: Vec<Option<HalfOpen>>,
    free: Vec<u32>,
    max: u32,
}

impl SynCache {
    pub(crate) fn new(max: u32) -> SynCache {
        SynCache { entries: Vec::with_capacity(max as usize), free: Vec::with_capacity(max as usize), max }
    }

    /// Adds an entry, and returns its place; none if the cache is full.
    pub(crate) fn insert(&mut self, entry: HalfOpen) -> Option<u32> {
        if let Some(place) = self.free.pop() {
            self.entries[place as usize] = Some(entry);
            return Some(place);
        }
        let place = self.entries.len() as u32;
        (place < self.max).then(|| {
            self.entries.push(Some(entry));
            place
        })
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut HalfOpen> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    pub(crate) fn flow(&self, place: u32) -> Option<&Flow> {
        self.entries.get(place as usize)?.as_ref().map(|entry| &entry.handshake.flow)
    }

    pub(crate) fn remove(&mut self, place: u32) -> HalfOpen {
        let entry = self.entries[place as usize].take().expect("the flow table has places of entries only");
        self.free.push(place);
        entry
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn handshakes_mut(&mut self) -> impl Iterator<Item = &mut Handshake> {
        self.entries.iter_mut().flatten().map(|entry| &mut entry.handshake)
    }
}
