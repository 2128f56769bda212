//! The search through sections: it skips those that cannot contain the term.

use std::ops::ControlFlow;

use super::{NgramFilters, Range};
use crate::services::search::section::{Needle, ToRead};

/// Number of sections that are tested under one lock, before other threads get their turn.
const AT_ONCE: usize = if cfg!(test) { 2 } else { 512 };

/// The next step of a search through a range.
#[derive(Debug)]
pub(in crate::services::search) enum SkipStep {
    /// A range to read: its texts if there are any, otherwise its links.
    Read(Range, Option<ToRead>),
    /// No match up to this key.
    On(Vec<u8>),
    /// No match in the rest of the range.
    End,
}

impl NgramFilters {
    /// Returns the next step from the start of a range, or from its end if `descending`. After [`SkipStep::On`], release
    /// the lock before the next step, for threads that wait for it.
    pub(in crate::services::search) fn step(&self, needle: &Needle, (from, to): &Range, descending: bool) -> SkipStep {
        if !to.is_empty() && from >= to {
            return SkipStep::End;
        }
        if descending { self.step_down(needle, from, to) } else { self.step_up(needle, from, to) }
    }

    fn step_up(&self, needle: &Needle, from: &[u8], to: &[u8]) -> SkipStep {
        let Some(at) = self.section_of(from) else {
            let end = self.sections.front().map_or(&[][..], |first| &first.first);
            return SkipStep::Read((from.to_vec(), earlier(end, to).to_vec()), None);
        };
        let walked = (at..self.sections.len()).take(AT_ONCE).try_fold(from, |from, at| {
            let (section, end) = (&self.sections[at], self.end_of(at));
            if section.may_have(needle) {
                let range = (from.to_vec(), earlier(end, to).to_vec());
                return ControlFlow::Break(SkipStep::Read(range, section.to_read()));
            }
            match end {
                [] => ControlFlow::Break(SkipStep::End),
                end if !to.is_empty() && end >= to => ControlFlow::Break(SkipStep::End),
                end => ControlFlow::Continue(end),
            }
        });
        match walked {
            ControlFlow::Break(step) => step,
            ControlFlow::Continue(reached) => SkipStep::On(reached.to_vec()),
        }
    }

    fn step_down(&self, needle: &Needle, from: &[u8], to: &[u8]) -> SkipStep {
        // Only sections that begin before the end.
        let len = match to {
            [] => self.sections.len(),
            to => self.sections.partition_point(|section| *section.first < *to),
        };
        let walked = (0..len).rev().take(AT_ONCE).try_fold(to, |to, at| {
            let section = &self.sections[at];
            if section.may_have(needle) {
                let range = (from.max(&section.first).to_vec(), to.to_vec());
                return ControlFlow::Break(SkipStep::Read(range, section.to_read()));
            }
            match &*section.first {
                first if first <= from => ControlFlow::Break(SkipStep::End),
                first => ControlFlow::Continue(first),
            }
        });
        match walked {
            ControlFlow::Break(step) => step,
            ControlFlow::Continue(reached) if len > AT_ONCE => SkipStep::On(reached.to_vec()),
            // The range before all sections.
            ControlFlow::Continue(reached) => SkipStep::Read((from.to_vec(), reached.to_vec()), None),
        }
    }

    /// Returns the range of the section that covers a key, and true if it may have a match.
    pub(in crate::services::search) fn section_at(&self, needle: &Needle, key: &[u8]) -> (Range, bool) {
        match self.section_of(key) {
            Some(at) => {
                let section = &self.sections[at];
                ((section.first.to_vec(), self.end_of(at).to_vec()), section.may_have(needle))
            }
            None => {
                let end = self.sections.front().map_or(Vec::new(), |first| first.first.to_vec());
                ((Vec::new(), end), true)
            }
        }
    }
}

/// Returns the earlier of two ends; an empty one is the end of the index.
fn earlier<'k>(a: &'k [u8], b: &'k [u8]) -> &'k [u8] {
    match (a, b) {
        ([], other) | (other, []) => other,
        (a, b) => a.min(b),
    }
}
