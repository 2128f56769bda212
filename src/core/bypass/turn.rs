//! The part of a core's turn that belongs to bypass: frames in at its beginning, frames out at its end.

use std::io;
use std::rc::Rc;

use carom_net::{CloseReason, ConnectionId};
use carom_ring::Tag;

use super::transport::StackTransport;
use super::{Bypass, FRAMES_PER_BATCH, StackReport};
use crate::core::driver::Transport;
use crate::core::run_loop::{Core, REQUESTS_PREFETCHED_MIN, prefetch};
use crate::core::work::CoreState;

/// Frames of one turn. Answers to them go out together; then mail and other cores have their turn.
const FRAMES_PER_TURN: u32 = 256;

/// The tag of a place of the stack without a connection.
const NO_TAG: Tag = Tag { slot: u32::MAX, generation: 0 };

impl Core {
    /// Takes received frames, and runs the timers of the stack. Returns true if there was any work.
    pub(in crate::core) fn begin_bypass(&mut self) -> bool {
        let Some(mut bypass) = self.driver.bypass.take() else { return false };
        let mut worked = self.continue_sent(&mut bypass);
        let datapath = Rc::clone(&bypass.datapath);
        datapath.borrow_mut().begin(self.work.now.instant);
        let mut frames = 0;
        while frames < FRAMES_PER_TURN {
            let batch = datapath.borrow_mut().take_batch();
            if batch >= REQUESTS_PREFETCHED_MIN {
                prefetch(&self.work, &mut self.prefetched, datapath.borrow().payloads());
            }
            for at in 0..batch {
                datapath.borrow_mut().receive(at, &mut bypass.inbox);
                self.deliver(&mut bypass);
            }
            frames += batch as u32;
            if batch < FRAMES_PER_BATCH {
                break;
            }
        }
        self.count_arrivals(frames);
        worked |= frames > 0;
        datapath.borrow_mut().run_timers(&mut bypass.inbox);
        worked |= !bypass.inbox.reports.is_empty();
        self.deliver(&mut bypass);
        self.driver.bypass = Some(bypass);
        worked
    }

    /// Sends the frames of the turn. Returns true if there is more to do at once.
    ///
    /// # Errors
    /// If the socket fails.
    pub(in crate::core) fn end_bypass(&mut self) -> io::Result<bool> {
        let Some(bypass) = &mut self.driver.bypass else { return Ok(false) };
        let is_full = bypass.datapath.borrow_mut().end()?;
        Ok(is_full || !bypass.continues.is_empty())
    }

    /// Continues the connections whose last send was taken whole.
    fn continue_sent(&mut self, bypass: &mut Bypass) -> bool {
        let mut continues = std::mem::take(&mut bypass.continues);
        let worked = !continues.is_empty();
        for tag in continues.drain(..) {
            if let Some(conn) = self.work.conns.find(tag) {
                CoreState::mark_dirty(&mut self.work.dirty, conn);
                self.work.proceed(tag.slot);
            }
        }
        bypass.continues = continues;
        worked
    }

    /// Delivers what the stack has reported.
    fn deliver(&mut self, bypass: &mut Bypass) {
        let mut reports = std::mem::take(&mut bypass.inbox.reports);
        for (id, report) in reports.drain(..) {
            if matches!(report, StackReport::Opened) {
                self.accept(bypass, id);
                continue;
            }
            let tag = bypass.tags[id.index as usize];
            if self.work.conns.find(tag).is_none() {
                continue;
            }
            match report {
                StackReport::Received { is_spilled, start, len } => {
                    self.work.receive(tag.slot, bypass.inbox.bytes(is_spilled, start, len));
                }
                StackReport::Writable => self.send_rest(tag),
                StackReport::PeerFinished | StackReport::Closed(CloseReason::Finished) => {
                    self.work.peer_ended(tag.slot);
                }
                StackReport::Closed(CloseReason::ResetByPeer | CloseReason::TimedOut) => self.work.break_off(tag.slot),
                StackReport::Opened => {}
            }
        }
        bypass.inbox.reports = reports;
    }

    /// Takes a new connection in.
    fn accept(&mut self, bypass: &mut Bypass, id: ConnectionId) {
        let place = id.index as usize;
        if bypass.tags.len() <= place {
            bypass.tags.resize(place + 1, NO_TAG);
        }
        bypass.tags[place] = NO_TAG;
        let addresses = {
            let datapath = bypass.datapath.borrow();
            datapath.stack.local_addr(id).zip(datapath.stack.remote_addr(id))
        };
        // Without addresses the client has left already.
        let Some((local, remote)) = addresses else { return };
        let transport = StackTransport::new(&bypass.datapath, id, remote.ip());
        if let Some(listener) = bypass.listener(local).filter(|_| self.may_admit())
            && let Some(slot) = self.admit(Transport::Stack(transport), listener)
            && let Some(conn) = self.work.conns.get(slot)
        {
            bypass.tags[place] = conn.tag;
        }
    }

    /// Sends what waited for room.
    fn send_rest(&mut self, tag: Tag) {
        let Some(conn) = self.work.conns.find(tag) else { return };
        let Transport::Stack(transport) = &mut conn.transport else { return };
        if !transport.is_sending() {
            return;
        }
        conn.sends.since = self.work.now.tick;
        let done = transport.send_rest();
        CoreState::mark_dirty(&mut self.work.dirty, conn);
        if let Some(buffer) = done {
            self.finish_send(tag, buffer);
        }
    }
}
