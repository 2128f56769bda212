//! Steps of the thread of a node that exchanges batches: it publishes, reads, and sends and receives snapshots.
//!
//! Each command may be lost on its way, its answer may be lost, or it may come late. A step ends with the first command
//! that fails, as a turn of the thread does.

use carom_model::visits::batches::{BatchAdmission, OriginCounts};
use carom_model::visits::count_exchange::{SnapshotRequest, WantedSnapshot};
use carom_model::visits::entries::batches_of;
use carom_model::visits::origins::OriginId;

use super::node::{Process, visits_of};
use super::redis::{Answer, Chunk, Command};
use super::{Guard, World, note};

/// Entries that are read from one stream in a step.
const READ_COUNT: usize = 3;

/// A command has failed.
pub(super) struct Failed;

impl World {
    pub(super) fn process(&mut self, node: usize) -> &mut Process {
        self.nodes[node].process.as_mut().unwrap()
    }

    /// True if a request for something gets through.
    fn reads(&mut self, node: usize) -> Result<(), Failed> {
        let is_lost = self.rng.permille(self.faults.command);
        if self.redis.up && !self.nodes[node].cut && !is_lost { Ok(()) } else { Err(Failed) }
    }

    fn ask(&mut self, node: usize, command: Command) -> Result<Answer, Failed> {
        if !self.redis.up || self.nodes[node].cut {
            return Err(Failed);
        }
        if !self.rng.permille(self.faults.command) {
            return Ok(self.redis.execute(command));
        }
        match self.rng.below(3) {
            0 => {}
            1 => _ = self.redis.execute(command),
            _ => self.redis.delayed.push(command),
        }
        note!(self, "  a command of node {node} goes astray");
        Err(Failed)
    }

    /// A command that was delayed is done.
    pub(super) fn late(&mut self) -> bool {
        if self.redis.delayed.is_empty() || !self.redis.up {
            return false;
        }
        let at = self.rng.below(self.redis.delayed.len());
        let command = self.redis.delayed.swap_remove(at);
        note!(self, "late: {command:?}");
        self.redis.execute(command);
        true
    }

    /// Finds out what Redis has of a node.
    pub(super) fn compare(&mut self, node: usize) -> Result<(), Failed> {
        self.reads(node)?;
        let (own, synced) = self.process(node).counts.own_origin();
        let in_stream = self.redis.last(own);
        let noted = self.redis.notes().get(&own).map_or(0, |(number, _)| *number);
        let synced = if self.guard == Some(Guard::Renew) { u64::MAX } else { synced };
        if !self.process(node).own.compare(synced, in_stream, noted) {
            let id = self.next_id();
            note!(self, "node {node} is another origin from now on: {id}");
            self.nodes[node].renew(id);
        }
        Ok(())
    }

    /// Publishes the batches that Redis lacks.
    pub(super) fn publish(&mut self, node: usize) -> Result<(), Failed> {
        let process = self.process(node);
        let own = process.counts.own_origin().0;
        let ready = process.counts.take_ready();
        process.own.add(ready);
        let is_unsure = process.own.is_unsure();
        let is_compared = is_unsure && self.guard != Some(Guard::Unsure);
        if is_compared {
            self.compare(node)?;
        }
        while let Some(mut entry) = self.process(node).own.next_entry() {
            if self.guard == Some(Guard::Earlier) {
                entry.oldest = entry.last;
            }
            let visits: Vec<u16> =
                batches_of(&entry.bytes, entry.last).unwrap().iter().flat_map(|of| visits_of(&of.content)).collect();
            let last = entry.last;
            note!(self, "node {node} publishes up to batch {last}: {visits:?}");
            match self.ask(node, Command::Publish(own, entry)) {
                Ok(Answer::Refused) if is_compared => {}
                Ok(Answer::Refused) | Err(Failed) => {
                    self.process(node).own.doubt();
                    return Err(Failed);
                }
                Ok(_) => self.sent.push((own, last, visits)),
            }
            self.process(node).own.sent(last);
        }
        Ok(())
    }

    /// Reads how far each origin has come, and the batches of the others; answers requests for snapshots.
    pub(super) fn turn(&mut self, node: usize) -> Result<(), Failed> {
        let own = self.process(node).counts.own_origin().0;
        let origins = self.read_notes(node, own)?;
        let followed = self.follow(node, own, &origins);
        self.answer_wanted(node, own);
        followed
    }

    fn read_notes(&mut self, node: usize, own: OriginId) -> Result<Vec<(OriginId, u64)>, Failed> {
        self.reads(node)?;
        let notes: Vec<(OriginId, u64)> = self.redis.notes().iter().map(|(id, (number, _))| (*id, *number)).collect();
        let now = self.now;
        let process = self.process(node);
        process.others.hear(notes.iter().copied(), now);
        let known = process.others.known_of(own);
        if process.own.hear(known) {
            self.publish(node)?;
        }
        let is_silent = self.guard == Some(Guard::Lagging);
        let process = self.process(node);
        let counted: Vec<OriginId> = process.counts.table().counted().map(|(_, origin)| origin.id).collect();
        let mut set = Vec::new();
        for id in counted.into_iter().filter(|id| *id != own && !is_silent) {
            let number = process.counts.counted_of(id);
            if process.others.must_note(id, number, now) {
                set.push((id, number, "other".to_owned()));
            }
        }
        let synced = process.counts.own_origin().1;
        if let Some(number) = process.own.number_to_note(synced, known) {
            set.push((own, number, "own".to_owned()));
        }
        if !set.is_empty() {
            note!(self, "node {node} notes {set:?}");
            self.ask(node, Command::Note(set.clone()))?;
            for (id, last, visits) in &self.sent {
                if set.iter().any(|(of, number, _)| of == id && number >= last) {
                    visits.iter().for_each(|visit| self.visits[usize::from(*visit)].is_known = true);
                }
            }
        }
        Ok(notes)
    }

    fn follow(&mut self, node: usize, own: OriginId, origins: &[(OriginId, u64)]) -> Result<(), Failed> {
        let mut origins: Vec<(OriginId, u64)> = origins.iter().copied().filter(|(id, _)| *id != own).collect();
        if self.guard != Some(Guard::Turns) {
            let others = &self.process(node).others;
            origins.sort_by_key(|(id, _)| others.tried(*id));
        }
        for (id, number) in origins {
            let now = self.now;
            let process = self.process(node);
            if process.taking.as_ref().is_some_and(|taking| taking.origin == id) {
                continue;
            }
            let counted = process.counts.counted_of(id);
            let is_read = process.others.is_read(id, counted, now);
            let is_whole = !is_read || self.follow_one(node, id, number)?;
            let process = self.process(node);
            if is_whole {
                process.others.is_whole(id);
            } else if process.others.is_late(id, now) && process.taking.is_none() {
                self.requests += 1;
                let request = format!("r{}", self.requests);
                note!(self, "node {node} wants a snapshot of {id}: {request}");
                let process = self.process(node);
                process.others.note_tried(id, now);
                process.taking = Some(WantedSnapshot::new(id, "other", request, now));
            }
        }
        Ok(())
    }

    fn follow_one(&mut self, node: usize, id: OriginId, number: u64) -> Result<bool, Failed> {
        loop {
            self.reads(node)?;
            let counted = self.process(node).counts.counted_of(id);
            let entries = self.redis.entries(id, counted + 1, READ_COUNT);
            if entries.is_empty() {
                return Ok(counted >= number);
            }
            for batch in entries.iter().flat_map(|(last, entry)| batches_of(entry, *last).unwrap()) {
                let mut admission = self.process(node).counts.admits(id, batch.number);
                let known = self.process(node).counts.table().slot_of(id);
                match (admission, self.guard) {
                    (BatchAdmission::Known, Some(Guard::Once)) if known.is_some() => admission = BatchAdmission::Next,
                    (BatchAdmission::Gap, Some(Guard::Gap)) => admission = BatchAdmission::Next,
                    _ => {}
                }
                match admission {
                    BatchAdmission::Known => {}
                    BatchAdmission::Gap => return Ok(false),
                    BatchAdmission::Next => {
                        note!(
                            self,
                            "node {node} applies batch {} of {id}: {:?}",
                            batch.number,
                            visits_of(&batch.content)
                        );
                        let slot = known.filter(|_| self.guard == Some(Guard::Once));
                        self.nodes[node].apply((id, slot), &batch);
                    }
                }
            }
            // Such a node would read the same entries for ever.
            if self.guard == Some(Guard::Once) && self.process(node).counts.counted_of(id) == counted {
                return Ok(true);
            }
        }
    }

    fn answer_wanted(&mut self, node: usize, own: OriginId) {
        let requests = self.redis.wanted().iter();
        let requests = requests.filter_map(|(by, text)| SnapshotRequest::parse(*by, text)).collect();
        let now = self.now;
        let process = self.process(node);
        let due = process.wanted.due(own, requests, now);
        if process.giving.as_ref().is_some_and(|giving| !process.wanted.is_wanted(&giving.request)) {
            process.giving = None;
        }
        for SnapshotRequest { request, of, after, .. } in due {
            if self.process(node).giving.is_some() {
                return;
            }
            match self.process(node).counts.counts_behind(of, after) {
                OriginCounts::Stored { slot, applied } => {
                    if let Ok(Answer::Claimed(true)) = self.ask(node, Command::Claim(request.clone())) {
                        note!(self, "node {node} gives {request} of {of}, up to batch {applied}");
                        self.nodes[node].give(request, (slot, applied), now);
                    }
                }
                OriginCounts::Logged => self.nodes[node].ask_for_fold(),
                OriginCounts::Nothing => {}
            }
        }
    }

    /// Sends the next chunks of a snapshot.
    pub(super) fn give(&mut self, node: usize) -> Result<(), Failed> {
        let Some(mut giving) = self.process(node).giving.take() else { return Err(Failed) };
        self.reads(node)?;
        for _ in 0..self.redis.room(&giving.request) {
            let (chunk, is_last) = giving.next_chunk(self.now);
            self.ask(node, Command::Put(giving.request.clone(), chunk))?;
            if is_last {
                return Ok(());
            }
        }
        let now = self.now;
        self.process(node).giving = Some(giving).filter(|giving| !giving.is_stale(now));
        Ok(())
    }

    /// Asks for a snapshot, or stores the next chunk.
    pub(super) fn take(&mut self, node: usize) -> Result<(), Failed> {
        let Some(mut taking) = self.process(node).taking.take() else { return Err(Failed) };
        let (own, now) = (self.process(node).counts.own_origin().0, self.now);
        if taking.is_stuck(now) {
            self.repeat(node, &taking);
            return Ok(());
        }
        if !taking.is_asked {
            let after = self.process(node).counts.counted_of(taking.origin);
            let (request, of) = (taking.request.clone(), taking.origin);
            let text = SnapshotRequest { by: own, request, of, after, site: None }.to_text();
            taking.is_asked = self.ask(node, Command::Want(own, Some(text))).is_ok();
            self.process(node).taking = Some(taking);
            return Ok(());
        }
        match self.ask(node, Command::Take(taking.request.clone())) {
            Ok(Answer::Chunk(Some(chunk))) if taking.is_next(chunk.number) => self.store_chunk(node, taking, chunk),
            Ok(Answer::Chunk(None)) => {
                self.process(node).taking = Some(taking);
                Ok(())
            }
            _ => {
                self.repeat(node, &taking);
                Err(Failed)
            }
        }
    }

    fn store_chunk(&mut self, node: usize, mut taking: WantedSnapshot, chunk: Chunk) -> Result<(), Failed> {
        if taking.slot.is_none() {
            taking.slot = self.nodes[node].begin_snapshot(taking.origin, self.guard);
        }
        let Some(slot) = taking.slot else { return Err(Failed) };
        note!(self, "node {node} stores {chunk:?} of {}", taking.request);
        taking.progress(self.now);
        if let Some(row) = chunk.row {
            self.nodes[node].put_snapshot(slot, row);
        }
        match chunk.applied {
            Some(applied) => {
                self.nodes[node].end_snapshot(slot, applied, self.guard);
                let own = self.process(node).counts.own_origin().0;
                self.ask(node, Command::Want(own, None)).map(drop)
            }
            None => {
                self.process(node).taking = Some(taking);
                Ok(())
            }
        }
    }

    fn repeat(&mut self, node: usize, taking: &WantedSnapshot) {
        if let Some(slot) = taking.slot {
            self.nodes[node].give_up_snapshot(slot, self.guard);
        }
    }
}
