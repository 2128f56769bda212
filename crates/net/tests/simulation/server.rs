//! The application behind the stack: it follows the plans, and checks every byte and every event.

use std::collections::HashMap;
use std::net::SocketAddr;

use carom_net::{CloseReason, ConnectionId, Events, MemoryPool, Stack};
use rand_pcg::Pcg64Mcg;

use crate::plan::{Begins, Plan, chance};

struct Session {
    id: ConnectionId,
    plan: Option<Plan>,
    /// Bytes that were not compared yet.
    pending: Vec<u8>,
    received: u32,
    sent: u32,
    has_peer_finished: bool,
    has_shut_down: bool,
}

/// All sessions, by the index of their connection.
#[derive(Default)]
pub(crate) struct Server {
    sessions: Vec<Option<Session>>,
    /// Sessions with something to do.
    touched: Vec<ConnectionId>,
    /// Sessions that were paused.
    pub(crate) paused: Vec<ConnectionId>,
    pub(crate) finished: u64,
    pub(crate) violation: Option<String>,
}

impl Events for Server {
    fn opened(&mut self, id: ConnectionId) {
        let at = id.index as usize;
        self.sessions.resize_with(self.sessions.len().max(at + 1), || None);
        if self.sessions[at].is_some() {
            self.violation = Some(format!("{id:?} opens before the last one at its place has ended"));
        }
        self.sessions[at] = Some(Session {
            id,
            plan: None,
            pending: Vec::new(),
            received: 0,
            sent: 0,
            has_peer_finished: false,
            has_shut_down: false,
        });
        self.touched.push(id);
    }

    fn received(&mut self, id: ConnectionId, bytes: &[u8]) {
        self.session(id, |session| {
            session.pending.extend_from_slice(bytes);
            !session.has_peer_finished
        });
    }

    fn peer_finished(&mut self, id: ConnectionId) {
        self.session(id, |session| !std::mem::replace(&mut session.has_peer_finished, true));
    }

    fn writable(&mut self, id: ConnectionId) {
        self.session(id, |_| true);
    }

    fn closed(&mut self, id: ConnectionId, reason: CloseReason) {
        self.check(id);
        self.session(id, |_| true);
        let session = self.sessions[id.index as usize].take();
        if let (Some(session), CloseReason::Finished) = (session, reason) {
            self.finished += 1;
            let plan = session.plan.expect("a session that was shut down has a plan");
            if session.received != plan.upload || session.sent != plan.download {
                self.violation =
                    Some(format!("finished after {} and {} bytes of {plan:?}", session.received, session.sent));
            }
        }
    }
}

impl Server {
    /// Runs `act` on the session of a connection. Notes a violation if the connection has no session, or if `act`
    /// returns false.
    fn session(&mut self, id: ConnectionId, act: impl FnOnce(&mut Session) -> bool) {
        let session =
            self.sessions.get_mut(id.index as usize).and_then(Option::as_mut).filter(|session| session.id == id);
        if session.is_none_or(|session| !act(session)) {
            self.violation = Some(format!("an event of {id:?} does not fit"));
        }
        self.touched.push(id);
    }

    /// Compares what has come.
    fn check(&mut self, id: ConnectionId) {
        let Some(session) = self.sessions[id.index as usize].as_mut().filter(|session| session.id == id) else {
            return;
        };
        let Some(plan) = session.plan else { return };
        if !plan.is_upload(session.received, &session.pending) {
            self.violation = Some(format!("wrong bytes after {} of {plan:?}", session.received));
        }
        session.received += session.pending.len() as u32;
        session.pending.clear();
        if session.has_peer_finished && session.received != plan.upload {
            self.violation = Some(format!("the FIN came after {} bytes of {plan:?}", session.received));
        }
    }

    /// Resets every connection that is still open, and returns their number.
    pub(crate) fn abandon(&mut self, now_us: u64, stack: &mut Stack, pool: &mut MemoryPool) -> u64 {
        let open = self.sessions.drain(..).flatten().filter(|session| stack.is_open(session.id));
        let open: Vec<ConnectionId> = open.map(|session| session.id).collect();
        open.iter().for_each(|id| stack.reset(now_us, *id, pool));
        open.len() as u64
    }

    /// Does what plans say, for all sessions with events.
    pub(crate) fn act(
        &mut self,
        now_us: u64,
        stack: &mut Stack,
        pool: &mut MemoryPool,
        plans: &HashMap<SocketAddr, Plan>,
        random: &mut Pcg64Mcg,
    ) {
        while let Some(id) = self.touched.pop() {
            if stack.is_open(id) {
                let session = self.sessions[id.index as usize].as_mut().expect("an open connection has a session");
                let remote = stack.remote_addr(id).expect("it is open");
                session.plan.get_or_insert_with(|| plans[&remote]);
                self.check(id);
                self.follow_plan(now_us, id, stack, pool, random);
            }
        }
    }

    fn follow_plan(
        &mut self,
        now_us: u64,
        id: ConnectionId,
        stack: &mut Stack,
        pool: &mut MemoryPool,
        random: &mut Pcg64Mcg,
    ) {
        let place = &mut self.sessions[id.index as usize];
        let session = place.as_mut().expect("an open connection has a session");
        let plan = session.plan.expect("it was looked up");
        if plan.server_resets_after.is_some_and(|after| session.received >= after) {
            stack.reset(now_us, id, pool);
            *place = None;
            return;
        }
        if plan.server_pauses && chance(random, 200) {
            stack.pause(id);
            self.paused.push(id);
        }
        let begins = match plan.begins {
            Begins::Opening => true,
            Begins::FirstByte => session.received > 0,
            Begins::LastByte => session.received == plan.upload,
        };
        while begins && session.sent < plan.download {
            let len = plan.piece.min(plan.download - session.sent);
            let mut bytes = vec![0; len as usize];
            plan.write_download(session.sent, &mut bytes);
            let is_last = session.sent + len == plan.download && plan.server_ends_first;
            let taken =
                if is_last { stack.send_last(now_us, id, &bytes, pool) } else { stack.send(now_us, id, &bytes, pool) };
            session.sent += taken as u32;
            session.has_shut_down |= is_last && taken == bytes.len();
            if taken < bytes.len() {
                break;
            }
        }
        let ends = plan.server_ends_first && begins || session.has_peer_finished;
        if session.sent == plan.download && ends && !session.has_shut_down {
            session.has_shut_down = true;
            stack.shutdown(now_us, id, pool);
        }
    }
}
