//! The end of a schedule: faults stop, everything comes to rest, and all agree.

use carom_model::replication::State;

use crate::codes::{Index, PARTS};
use crate::faults::Faults;
use crate::node::{Cut, Node};
use crate::trace::note;
use crate::world::World;

/// Rounds within which everything must come to rest.
const ROUNDS_MAX: usize = 400;

/// Rounds in which each part of a node may be slow, so that not all go on in step.
const LAZY_ROUNDS: usize = 40;

/// Number of ticks without anything to do that count as rest: what waits in vain for an echo, or at the end of a
/// comparison, is tried again after two.
const TICKS: usize = 4;

impl World {
    /// Nothing fails any more; everything must come to rest, and all must agree.
    pub(crate) fn come_to_rest(&mut self) -> Result<(), String> {
        self.step += 1;
        note!(self, "everything is well again");
        self.redis.up = true;
        self.faults = Faults::default();
        self.nodes.iter_mut().for_each(|node| node.cut = false);
        while !self.redis.delayed.is_empty() {
            if self.rng.permille(500) {
                self.late();
            } else {
                self.redis.delayed.pop();
            }
        }
        self.settle_down()?;
        // The nodes of the older version are upgraded, and read again what they could not decode.
        if self.upgrade_all()? { self.settle_down() } else { Ok(()) }
    }

    fn settle_down(&mut self) -> Result<(), String> {
        let mut ticks = 0;
        for round in 0..ROUNDS_MAX {
            (self.step, self.now) = (self.step + 1, self.now + 1);
            let lazy = if round < LAZY_ROUNDS { 300 } else { 0 };
            let mut moved = round < LAZY_ROUNDS;
            for node in 0..self.nodes.len() {
                let mut may = || !self.rng.permille(lazy);
                let (commits, delivers, follows, compares) = (may(), may(), may(), may());
                if follows {
                    moved |= (0..PARTS).fold(false, |moved, part| self.follow_part(node, part, 10) | moved);
                }
                if commits {
                    moved |= self.commit_up_to(node, 8, Cut::Not)?;
                }
                moved |= delivers && self.deliver(node);
                if compares {
                    moved |= (0..PARTS).fold(false, |moved, part| self.compare_part(node, part) | moved);
                }
            }
            if !moved {
                if ticks == TICKS {
                    return self.agree();
                }
                ticks += 1;
                self.nodes.iter_mut().for_each(Node::tick);
                // As long as Redis has an older state than a marked one, it is read in vain.
                (0..self.nodes.len()).for_each(|node| _ = self.read_again(node));
            }
        }
        Err("it does not come to rest".to_owned())
    }

    /// All nodes have what Redis has, and wait for nothing.
    fn agree(&self) -> Result<(), String> {
        let theirs: Vec<_> = self.redis.states().cloned().collect();
        for node in &self.nodes {
            let disk = &node.store.now;
            if !node.is_idle() || !node.outbox.is_empty() || disk.compare.contains(&true) || !disk.outbox.is_empty() {
                return Err(format!("node {} still waits: {:?}, {:?}", node.id, node.outbox, disk.compare));
            }
            self.check_marks(node)?;
            let differs = |(index, state): &&(Index, State)| {
                self.redis.state(*index) != Some(state) && !self.brings_later(node, *index, state)
            };
            if let Some((index, state)) = disk.states.iter().find(differs) {
                let has = self.redis.state(*index);
                return Err(format!("node {} has {state:?} under code {index}, Redis has {has:?}", node.id));
            }
            let lacks = |index: Index| disk.states.get(index).is_none() && !disk.unread.contains_key(&index);
            if let Some((index, state)) = theirs.iter().find(|(index, _)| lacks(*index)) {
                return Err(format!("node {} has nothing under code {index}, Redis has {state:?}", node.id));
            }
        }
        Ok(())
    }
}
