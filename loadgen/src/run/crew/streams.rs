//! HTTP/2 on the connections of one thread: each request has a stream, and responses arrive in any order.

use super::Crew;
use crate::protocol::http2::Http2;
use crate::results::check::Fault;
use crate::workload::traffic::Call;

impl Crew {
    /// Begins HTTP/2 on a connection whose transport is open.
    ///
    /// # Errors
    /// The reason why the connection cannot carry it.
    pub(super) fn begin_http2(&mut self, slot: u32) -> Result<(), String> {
        let client = &mut self.clients[slot as usize];
        if client.tls.as_ref().is_some_and(|session| !session.speaks_http2()) {
            return Err("the server does not offer HTTP/2 (ALPN)".to_owned());
        }
        client.http2 = Some(Http2::begin(client.tls.is_some())?);
        self.flush(slot)
    }

    /// Sends a request, which is the last one in flight, on a new stream. `freed_ns` is the instant at which the connection
    /// got room for it.
    pub(super) fn send_stream(&mut self, slot: u32, call: Call, freed_ns: u64, now_ns: u64) {
        let mut plain = Vec::with_capacity(1024);
        self.requests[self.target(slot)].write(call, &self.links, false, &mut plain);
        let http2 = self.clients[slot as usize].http2.as_mut();
        let sent = http2.map_or(Ok(()), |http2| http2.send(&plain));
        if sent.and_then(|()| self.flush(slot)).is_err() {
            return self.fail(slot, Fault::Closed, now_ns);
        }
        if self.clients[slot as usize].in_flight.len() < self.plan.pipeline {
            self.set_free(slot, freed_ns);
        }
        self.touch(slot);
    }

    /// Processes frames, and the responses that they complete.
    pub(super) fn take_streams(&mut self, slot: u32, bytes: &[u8], now_ns: u64) {
        let Some(http2) = &mut self.clients[slot as usize].http2 else { return };
        if http2.receive(bytes).is_err() {
            return self.fail(slot, Fault::Malformed, now_ns);
        }
        if http2.is_leaving() {
            // As after `--renew`: the requests in flight get their responses, and then a new connection replaces this one.
            self.clients[slot as usize].is_last_sent = true;
        }
        while let Some((place, answer)) = self.clients[slot as usize].http2.as_mut().and_then(Http2::next_answer) {
            let Some(sent) = self.clients[slot as usize].in_flight.get(place).copied() else { break };
            let verdict = answer.map_err(|_| Fault::Closed).and_then(|answer| {
                let (response, bytes) = answer.parts();
                self.check_response(sent.call, &response, bytes)
            });
            self.answered(slot, place, sent, verdict, now_ns);
            if self.clients[slot as usize].is_finished() {
                return self.end_after_last(slot, false, now_ns);
            }
        }
        if self.flush(slot).is_err() {
            return self.fail(slot, Fault::Malformed, now_ns);
        }
        if self.clients[slot as usize].http2.as_ref().is_some_and(Http2::is_ended) {
            return self.end_after_last(slot, true, now_ns);
        }
        self.touch(slot);
    }

    /// Passes the frames that wait to the socket.
    fn flush(&mut self, slot: u32) -> Result<(), String> {
        let client = &mut self.clients[slot as usize];
        let frames = client.http2.as_mut().map_or(Ok(Vec::new()), Http2::take)?;
        client.say(&frames);
        Ok(())
    }
}
