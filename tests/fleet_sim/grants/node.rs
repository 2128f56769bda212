//! The knowledge of a node about the others, by their heartbeats.

use std::collections::BTreeMap;
use std::time::Duration;

use carom_model::visits::grants::GrantIntroduction;

use super::{Beat, LINKS, Node, name};

impl Node {
    /// Begins another process on the same disk.
    pub(super) fn restart(&mut self) {
        (self.pass, self.has_beaten, self.is_stopped) = (None, false, false);
        (self.introduction, self.is_introduced) = (None, false);
        self.latest.clear();
        self.heard.clear();
        self.is_settled = false;
        self.unseen = self.known.iter().map(|other| (*other, None)).collect();
    }

    /// Hears the heartbeats of the other nodes, as `heartbeat/departures.rs` does. Takes over what a stopped node has left,
    /// unless `keeps_own`.
    pub(super) fn hear(&mut self, node: usize, beats: &BTreeMap<usize, Beat>, keeps_own: bool) {
        self.heard = beats.iter().filter(|(other, _)| **other != node).map(|(other, of)| (*other, of.time)).collect();
        for (other, beat) in beats.iter().filter(|(other, _)| **other != node) {
            let latest = self.latest.entry(*other).or_default();
            *latest = beat.time.max(*latest);
            let is_latest = *latest == beat.time;
            if beat.left.is_none() {
                let before = self.unseen.get_mut(other).and_then(|before| before.replace(beat.time));
                if before.is_some_and(|before| before != beat.time) {
                    self.unseen.remove(other);
                }
            }
            let is_last = is_latest && !self.unseen.contains_key(other);
            if let Some(left) = beat.left.filter(|_| is_last) {
                let left = if keeps_own { [0; LINKS] } else { left };
                self.taken.iter_mut().zip(left).for_each(|(taken, left)| *taken = left.max(*taken));
                self.known.remove(other);
            } else {
                self.known.insert(*other);
            }
        }
    }

    /// Finds out whether all other nodes that may hold grants have heard of this process, whose present heartbeat is `time`.
    /// Heartbeats have numbers here, which take the place of instants. No time passes, so that silent nodes are waited for.
    pub(super) fn introduce(&mut self, node: usize, time: u64, beats: &BTreeMap<usize, Beat>) {
        let introduction = self.introduction.get_or_insert_with(|| GrantIntroduction::begin(Duration::from_secs(time)));
        let heard = self.known.iter().filter(|other| **other != node).map(|other| {
            let number = beats.get(other).and_then(|beat| beat.heard.get(&node));
            (name(*other), number.map(|number| Duration::from_secs(*number)))
        });
        introduction.observe(heard, Duration::ZERO);
        self.is_introduced = introduction.is_over();
    }
}
