//! Reports of granted visits: this node tells Redis what it knows of the grants of all limited links. So a Redis that
//! has lost some grants gives none of these visits again ([`carom_model::visits::grants`]).
//!
//! A *pass* asks each partition whether it has the report of this node. It stores the epochs of the partitions that
//! have not, and sends them the stored totals in slices. A pass begins after the first heartbeat, and once this node
//! has heard of all live nodes. It also begins when Redis refuses a visit because it lacks the report, or when another
//! node waits for the report. The totals of all partitions are sent again from time to time, so that Redis does not
//! forget those of links without visits.
//!
//! While another process may have the name of this node, a pass sends the totals without the mark that they are
//! complete: the mark would stand for the totals of the other process, too. This process then gets no visits. Yet Redis
//! may have lost its earlier grants, so it looks for new epochs in each pass.

use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::report_progress::ReportPass;
use super::{Allowances, SharedVisits};
use crate::services::replication::note_error;
use crate::services::replication::redis::{GrantAsker, GrantReport};
use carom_model::replication::Partition;
use carom_model::visits::grants::GrantEpoch;
use carom_shards::Code;
use carom_store::links::StoreError;

/// Links whose totals are sent at once.
pub(super) const SLICE: usize = 500;

/// Slices that are sent while visits wait for a report. The rest follows between later turns.
const SLICES_AT_ONCE: usize = 4;

/// Interval after which the totals of all partitions are sent again, far below the time for which Redis keeps them.
const WHOLE_EVERY: Duration = Duration::from_secs(30 * 86_400);

impl Allowances {
    /// Continues the report of this node, or begins one if it is due.
    pub(super) fn continue_reports(&mut self) {
        let (fleet, now) = (&self.setup.stats.fleet, Instant::now());
        let grants = &fleet.grants;
        let is_waiting = self.reports.waits_until.is_some_and(|until| now < until);
        grants.is_waiting.store(is_waiting, Ordering::Release);
        grants.is_settling.store(self.reports.is_settling(now), Ordering::Release);
        // While Redis is away, the visits of shares would wait for its answers, too.
        let is_connected = fleet.connected.load(Ordering::Acquire);
        // Without heartbeats, a process that gives way does not hear of visits that wait.
        let is_asked = grants.is_asked.load(Ordering::Acquire) || !self.is_alone();
        if self.reports.lacks_mark && self.is_alone() {
            self.reports.mark_at(now);
        }
        if is_connected && self.reports.is_due(is_asked, now) && self.may_share() {
            self.begin_pass(now);
        }
        self.send_slice();
    }

    /// Reports at once, as far as that takes little time, because Redis has refused a visit. Returns true if it now has the
    /// report. All grants must be in the store.
    pub(super) fn report_now(&mut self) -> bool {
        let now = Instant::now();
        if !self.reports.is_needed || !self.reports.is_due(false, now) || !self.may_share() || !self.is_alone() {
            return false;
        }
        self.begin_pass(now);
        for _ in 0..SLICES_AT_ONCE {
            self.send_slice();
        }
        self.reports.pass.is_none() && !self.reports.is_needed
    }

    /// Returns the other nodes that may hold grants, and the time at which the heartbeat was sent that told of them; `None`
    /// while they are unknown.
    pub(super) fn other_holders(&self) -> Option<(Vec<String>, Instant)> {
        self.setup.stats.fleet.grants.others.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// True if no other process may have the name of this node.
    pub(super) fn is_alone(&self) -> bool {
        self.setup.stats.fleet.grants.is_alone.load(Ordering::Acquire)
    }

    /// True if this node may write to the Redis of its fleet, and to its store.
    fn may_share(&self) -> bool {
        let stats = &self.setup.stats;
        let may_write = !self.failed && !stats.writes_refused.load(Ordering::Acquire);
        self.setup.shared.is_some()
            && may_write
            && stats.fleet.same_code_secret.load(Ordering::Acquire)
            && self.other_holders().is_some()
    }

    /// Finds the partitions that need the report of this node, and stores their epochs. From then on, this node takes no
    /// grant of an earlier epoch, so no grant is missing in the slices that follow.
    fn begin_pass(&mut self, now: Instant) {
        let (is_whole, is_alone) = (self.reports.whole_at.is_none_or(|at| now >= at), self.is_alone());
        (self.reports.is_needed, self.reports.lacks_mark) = (false, !is_alone);
        self.setup.stats.fleet.grants.is_asked.store(false, Ordering::Release);
        let holders = self.other_holders();
        let may_complete = |partition| {
            holders.as_ref().is_some_and(|(others, heard)| self.reports.may_complete(partition, others, *heard))
        };
        let question = |partition| GrantReport {
            is_settled: may_complete(partition),
            ..GrantReport::part(partition, self.reports.epoch(partition), Vec::new())
        };
        let questions: Vec<GrantReport> = Partition::all().map(question).collect();
        let is_settled = |(_, heard): &(_, Instant)| Partition::all().all(|of| self.reports.is_settled(of, *heard));
        let are_settled = holders.as_ref().is_some_and(is_settled);
        self.reports.note_look(are_settled, now);
        let answers = self.send_parts(&questions, is_alone);
        self.reports.rest(now, Instant::now());
        let mut pass = ReportPass { targets: BTreeMap::new(), behind: None, is_whole };
        for (partition, answer) in Partition::all().zip(answers) {
            match answer {
                Some((epoch, is_reported)) => {
                    let lacks_mark = is_alone && !is_reported;
                    if is_whole || lacks_mark || epoch != self.reports.epoch(partition) {
                        pass.targets.insert(partition, epoch);
                    }
                }
                None => (self.reports.is_needed, pass.is_whole) = (true, false),
            }
        }
        match self.keep_epochs(&pass.targets) {
            Ok(()) => self.reports.pass = Some(pass).filter(|pass| !pass.targets.is_empty()),
            Err(error) => self.fail(&error),
        }
    }

    /// Stores and syncs the epochs of partitions, and uses them from now on.
    fn keep_epochs(&mut self, epochs: &BTreeMap<Partition, GrantEpoch>) -> Result<(), StoreError> {
        let mut batch = self.setup.links.batch();
        for (partition, epoch) in epochs {
            if *epoch != self.reports.epoch(*partition) {
                batch.set_grant_epoch(*partition, epoch);
            }
        }
        if !batch.is_empty() {
            self.setup.links.commit(batch)?;
            self.setup.links.sync()?;
        }
        for (partition, epoch) in epochs {
            if *epoch != self.reports.epoch(*partition) {
                self.reports.begin_epoch(*partition, *epoch, Instant::now());
            }
        }
        Ok(())
    }

    /// Sends the next totals of the pass under way. After the last ones, tells all its partitions that they have all
    /// totals, unless another process may have the name of this node.
    fn send_slice(&mut self) {
        let Some(mut pass) = self.reports.pass.take() else { return };
        let is_alone = self.is_alone();
        let page = match self.setup.links.allowances_after(pass.behind.as_deref(), SLICE) {
            Ok(page) => page,
            Err(error) => {
                tracing::error!(%error, "the numbers of granted visits cannot be read");
                self.reports.is_needed = true;
                return;
            }
        };
        let mut totals: BTreeMap<Partition, Vec<_>> = BTreeMap::new();
        for (code, stored) in &page.rows {
            totals.entry(Partition::of(code)).or_default().push((*code, stored.of.claim, stored.taken));
        }
        let part = |(partition, epoch): (&Partition, &GrantEpoch)| {
            let totals = totals.remove(partition).filter(|totals| !totals.is_empty())?;
            Some(GrantReport::part(*partition, *epoch, totals))
        };
        let parts: Vec<GrantReport> = pass.targets.iter().filter_map(part).collect();
        self.send_to_targets(&mut pass, &parts, is_alone);
        if page.next.is_some() {
            pass.behind = page.next;
            self.reports.pass = Some(pass);
            return;
        }
        let end = |(partition, epoch): (&Partition, &GrantEpoch)| GrantReport {
            is_last: true,
            ..GrantReport::part(*partition, *epoch, Vec::new())
        };
        let ends: Vec<GrantReport> = pass.targets.iter().filter(|_| is_alone).map(end).collect();
        self.send_to_targets(&mut pass, &ends, is_alone);
        if pass.is_whole {
            self.reports.whole_at = Some(Instant::now() + WHOLE_EVERY);
        }
        tracing::debug!(partitions = pass.targets.len(), "reported the visits that were granted");
    }

    /// Sends the granted visits of links, each with its code and claim, to servers that may have the report of this node
    /// already. Returns false if one of them did not answer. A server in another epoch ignores them: this node has yet to
    /// report to it.
    pub(super) fn send_totals(&mut self, totals: BTreeMap<Partition, Vec<(Code, u64, u64)>>) -> bool {
        let part = |(partition, totals)| GrantReport::part(partition, self.reports.epoch(partition), totals);
        let parts: Vec<GrantReport> = totals.into_iter().map(part).collect();
        let is_alone = self.is_alone();
        self.send_parts(&parts, is_alone).iter().all(Option::is_some)
    }

    /// Sends parts of a report. A partition that did not take its part leaves the pass, and needs another one.
    fn send_to_targets(&mut self, pass: &mut ReportPass, parts: &[GrantReport], is_alone: bool) {
        let answers = self.send_parts(parts, is_alone);
        for (part, answer) in parts.iter().zip(answers) {
            if answer.is_none_or(|(epoch, _)| epoch != part.epoch) {
                pass.targets.remove(&part.partition);
                (self.reports.is_needed, pass.is_whole) = (true, false);
            }
        }
    }

    /// Sends parts of a report, and returns the epoch of the server of each, and true if it has the report of this node;
    /// `None` without an answer. Unless this process is alone, sends them under no name, so that they change the totals only.
    fn send_parts(&mut self, parts: &[GrantReport], is_alone: bool) -> Vec<Option<(GrantEpoch, bool)>> {
        let nonce = self.reports.next_nonce();
        let others = self.other_holders().map_or_else(Vec::new, |(others, _)| others);
        let stats = &self.setup.stats;
        let Some(SharedVisits { redis, node, answer_time }) = &mut self.setup.shared else {
            return vec![None; parts.len()];
        };
        let within = answer_time.at(Duration::from_micros(stats.fleet.round_trip_us.get()));
        let node = if is_alone { node.as_str() } else { "" };
        let answers = redis.report_grants(parts, &GrantAsker { node, nonce, others: &others }, within);
        answers.into_iter().map(|answer| answer.inspect_err(|error| note_error(stats, error)).ok()).collect()
    }
}
