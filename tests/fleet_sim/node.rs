//! A node: its store, its writer, and the orders of its other threads to the writer.
//!
//! In production these are threads with a queue to the writer. Here each of them has a queue of its own, and the writer
//! takes from them in any order: that is every order in which the one queue could have been filled.

use std::collections::VecDeque;

use carom::bridge::{
    ChangeAnswer, CreateAnswer, DeleteAnswer, FleetDecision, LinkChange, StoreRequest, StreamChange, WriterOrder,
    WriterReply,
};
use carom::services::writer::planner::{CommitEffect, CommitPlanner};
use carom_model::replication::outbox::{Delivery, Outbox};
use carom_model::replication::state::ReceivedState;
use carom_model::replication::{Echo, State, rules};

use crate::adapter;
use crate::codes::{Index, PARTS, States, index_of};
use crate::follower::Follower;
use crate::guards::Guard;
use crate::ledger::{Fate, Ledger, What};
use crate::rng::Rng;
use crate::store::{Batch, Store};
use crate::versions::{self, Places};

/// A node of the fleet.
#[derive(Debug)]
pub(crate) struct Node {
    /// The number of the node.
    pub(crate) id: usize,
    /// The store of the node.
    pub(crate) store: Store,
    /// The outbox, which belongs to the writer.
    pub(crate) outbox: Outbox,
    /// The links that its cores have in memory.
    pub(crate) served: States,
    /// Requests of clients with what Redis said to them.
    pub(crate) gateway: VecDeque<WriterOrder>,
    /// Orders of the follower: from the streams, from the outbox, and from comparisons.
    pub(crate) followed: VecDeque<WriterOrder>,
    /// Results of look-ups.
    pub(crate) found: VecDeque<WriterOrder>,
    /// Changes to deliver.
    pub(crate) deliveries: VecDeque<Delivery>,
    /// The followers, one for each stream.
    pub(crate) followers: [Follower; PARTS],
    /// Counter values that it may use.
    pub(crate) values: VecDeque<u64>,
    /// True if it is cut off from Redis.
    pub(crate) cut: bool,
    /// The error of its clock.
    pub(crate) clock: i64,
    /// The newest states that it has read and could not decode.
    pub(crate) places: Places,
    /// Echoes that the outbox waits for; only for the guard that ends the waiting.
    echoes: Vec<Echo>,
}

/// The point of a commit at which the node goes down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cut {
    /// The node does not go down.
    Not,
    /// After the batch is written, before it is synced.
    Written,
    /// After the sync, before anybody is told.
    Synced,
}

impl Node {
    /// A new node with an empty store.
    pub(crate) fn new(id: usize) -> Node {
        Node {
            id,
            store: Store::default(),
            outbox: Outbox::default(),
            served: States::default(),
            gateway: VecDeque::new(),
            followed: VecDeque::new(),
            found: VecDeque::new(),
            deliveries: VecDeque::new(),
            followers: Default::default(),
            values: VecDeque::new(),
            cut: false,
            clock: 0,
            places: Places::default(),
            echoes: Vec::new(),
        }
    }

    /// The process starts, with what is in the store.
    pub(crate) fn start(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        ledger.crash(self.id);
        self.gateway.clear();
        self.followed.clear();
        self.found.clear();
        self.values.clear();
        self.echoes.clear();
        let stored = &self.store.now;
        self.outbox = adapter::restore(&stored.outbox, &stored.positions, &stored.compare_later);
        self.deliveries = self.outbox.take_deliveries().into();
        for (follower, position) in self.followers.iter_mut().zip(self.store.now.positions) {
            *follower = Follower::at(position);
        }
        self.served = States::default();
        for (index, state) in self.store.now.states.iter() {
            if state.is_link() {
                self.served.set(*index, Some(state.clone()));
                self.check_served(ledger, *index, state)?;
            }
        }
        Ok(())
    }

    /// Checks that a node may show this link.
    pub(crate) fn check_served(&self, ledger: &Ledger, index: Index, state: &State) -> Result<(), String> {
        let claim = state.version().claim;
        if ledger.has_deleted(self.id, index, claim) {
            return Err(format!("node {} serves code {index}, claim {claim:x}, which it has deleted", self.id));
        }
        Ok(())
    }

    /// True if the writer has nothing to do.
    pub(crate) fn is_idle(&self) -> bool {
        self.gateway.is_empty() && self.followed.is_empty() && self.found.is_empty()
    }

    /// Some time has passed.
    pub(crate) fn tick(&mut self) {
        adapter::tick(&mut self.outbox);
        self.followers.iter_mut().for_each(Follower::tick);
        self.deliveries.extend(self.outbox.take_deliveries());
    }

    /// Takes one order from any of the queues.
    fn take(&mut self, rng: &mut Rng) -> Option<WriterOrder> {
        let first = rng.below(4);
        (0..3).find_map(|nth| match (first + nth) % 3 {
            0 => self.followed.pop_front(),
            1 => self.gateway.pop_front(),
            _ => self.found.pop_front(),
        })
    }

    /// The writer takes some orders and commits them. Says what it did.
    pub(crate) fn commit(
        &mut self,
        (rng, ledger): (&mut Rng, &mut Ledger),
        now: u64,
        (most, cut): (usize, Cut),
        guard: Option<Guard>,
        tell: &mut dyn FnMut(&dyn std::fmt::Debug),
    ) -> Result<bool, String> {
        let mut orders: Vec<WriterOrder> = (0..most).map_while(|_| self.take(rng)).collect();
        if orders.is_empty() {
            return Ok(false);
        }
        if let Some(guard) = guard {
            self.leave_out(guard, &mut orders, ledger)?;
        }
        let mut removed = Vec::new();
        let mut plan = CommitPlanner::new(&mut self.outbox, now);
        let disk = &self.store.now;
        for order in orders {
            tell(&order);
            match &order {
                WriterOrder::Client(StoreRequest::Delete { ticket, .. }, FleetDecision::Accepted { state, .. }) => {
                    removed.push((ticket.token, state.version().claim));
                }
                WriterOrder::PositionLost { partition, .. } => self.followers[partition.index()].gaps_open -= 1,
                _ => {}
            }
            self.places.note(&order, guard);
            let order = if guard == Some(Guard::Place) { versions::without_unread(order) } else { order };
            plan.add(order, |code| disk.code_state(index_of(code)));
        }
        let acknowledges = plan.needs_sync();
        for conflict in plan.conflicts() {
            tell(conflict);
            ledger.report(index_of(&conflict.code), conflict.lost, conflict.kept)?;
        }
        let (writes, outcomes) = plan.finish();
        tell(&writes);
        self.store.commit(Batch::Commit(Box::new(writes)));
        if cut == Cut::Written {
            return Ok(true);
        }
        if acknowledges && guard != Some(Guard::Sync) {
            self.store.sync();
        }
        if cut == Cut::Synced {
            return Ok(true);
        }
        for outcome in outcomes {
            tell(&outcome);
            self.tell(outcome, ledger, &removed)?;
        }
        self.deliveries.extend(self.outbox.take_deliveries());
        if guard == Some(Guard::Echo) {
            for Delivery { code, .. } in &self.store.now.outbox {
                if !self.outbox.is_undelivered(code) {
                    self.outbox.remove(code);
                }
            }
        }
        self.check_memory()?;
        Ok(true)
    }

    /// The cores have what the store has.
    fn check_memory(&self) -> Result<(), String> {
        let stored = self.store.now.states.iter().filter(|(_, state)| state.is_link());
        let claims = |(index, state): &(Index, State)| (*index, state.version().claim);
        if stored.map(claims).eq(self.served.iter().map(claims)) {
            return Ok(());
        }
        Err(format!("node {} serves {:?}, and has {:?}", self.id, self.served, self.store.now.states))
    }

    /// Carries out an outcome.
    fn tell(&mut self, outcome: CommitEffect, ledger: &mut Ledger, removed: &[(u64, u64)]) -> Result<(), String> {
        let mut here = None;
        let told = match outcome {
            CommitEffect::Answer(reply) => Some(reply),
            CommitEffect::Apply { code, change, answer } => {
                let index = index_of(&code);
                match change {
                    LinkChange::Remove(_) => {
                        here = self.served.get(index).map(|state| state.version().claim);
                        self.served.set(index, None);
                    }
                    LinkChange::Put(link) => {
                        let state = State::Link(link);
                        self.check_served(ledger, index, &state)?;
                        self.served.set(index, Some(state));
                    }
                }
                answer
            }
        };
        let Some(reply) = told else { return Ok(()) };
        let (_, token, _) = reply.clone().into_parts();
        let fate = match reply {
            WriterReply::Create(_, CreateAnswer::Created) => Fate::Done,
            WriterReply::Create(_, CreateAnswer::Taken) | WriterReply::Change(_, ChangeAnswer::Displaced) => {
                Fate::Taken
            }
            WriterReply::Delete(_, DeleteAnswer::Deleted) => {
                let by_redis = removed.iter().find(|(removed, _)| *removed == token).map(|(_, claim)| *claim);
                ledger.requests[token as usize].what = What::Delete(by_redis, here);
                Fate::Done
            }
            WriterReply::Change(_, ChangeAnswer::Changed(link)) => {
                let what = &mut ledger.requests[token as usize].what;
                if let What::Change(_, claim) = what {
                    *claim = Some(link.version.claim);
                }
                Fate::Done
            }
            WriterReply::Create(..) | WriterReply::Change(..) | WriterReply::Delete(..) => Fate::Refused,
        };
        ledger.end(token, fate);
        Ok(())
    }

    /// Does without one of the things that keep the promises, where the code cannot be told to.
    fn leave_out(&mut self, guard: Guard, orders: &mut [WriterOrder], ledger: &Ledger) -> Result<(), String> {
        for order in orders {
            match (guard, order) {
                (Guard::Withdraw, WriterOrder::Client(_, FleetDecision::NoReply { was_sent, .. })) => *was_sent = false,
                (Guard::Passed, WriterOrder::Client(_, FleetDecision::Accepted { echo, .. })) => {
                    self.echoes.push(*echo);
                }
                (Guard::Passed, WriterOrder::Delivered(delivered)) => {
                    let echoes = delivered.iter().filter_map(|delivered| delivered.echo);
                    self.echoes.extend(echoes);
                }
                (Guard::Passed, WriterOrder::Followed(followed)) => {
                    for echo in &self.echoes {
                        if echo.partition == followed.partition && echo.id <= followed.to.id {
                            adapter::seen(&mut self.outbox, *echo);
                        }
                    }
                }
                (Guard::Undelivered, WriterOrder::Followed(followed)) => {
                    for StreamChange { code, state, .. } in
                        followed.entries.iter().filter_map(|(_, told)| told.as_ref())
                    {
                        if let ReceivedState::Known(state) = state {
                            self.overwrite(index_of(code), code, state, ledger)?;
                        }
                    }
                }
                (Guard::Undelivered, WriterOrder::ComparedStates(states)) => {
                    for (code, state) in states {
                        self.overwrite(index_of(code), code, state, ledger)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn overwrite(
        &mut self,
        index: Index,
        code: &carom_shards::Code,
        state: &State,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let mine = self.store.now.states.get(index);
        if !self.outbox.is_undelivered(code) || !rules::adopts(mine, state) {
            return Ok(());
        }
        self.store.commit(Batch::Commit(Box::new(carom::services::writer::planner::Writes {
            states: vec![(*code, Some(state.clone()))],
            ..Default::default()
        })));
        if state.is_link() {
            self.check_served(ledger, index, state)?;
        }
        self.served.set(index, state.is_link().then(|| state.clone()));
        Ok(())
    }
}
