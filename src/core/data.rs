//! What a core can answer from: the links it owns, copies of other cores' hot links, and the mesh to the owners of the
//! rest. Here is what keeps the copies right; see also [`super::hot`] and [`super::recall`].

use carom_shards::{Code, CodeHash, CoreId};

use super::hot::{HotLinks, Sightings};
use super::mesh::{Arrived, Mesh};
use super::recall::Recalls;
use super::shard::Shard;
use crate::mail::{Change, StoreAnswer, Ticket};
use crate::wire::answer::Found;

/// Links and mesh, for a core that has a shard. The core of the admin listener has none.
#[derive(Debug)]
pub(super) struct Data {
    pub(super) shard: Shard,
    pub(super) mesh: Mesh,
    /// Copies of other cores' links, and what may become one. None where there is no other core.
    hot: Option<(HotLinks, Sightings)>,
    /// Changes of this core's links that other cores must hear of first.
    recalls: Recalls,
}

/// Where the answer for a code is.
#[derive(Debug)]
pub(super) enum Place<'a> {
    /// In this core's own links.
    Here(Found<'a>),
    /// In a copy of another core's link.
    Copy(Found<'a>),
    /// At its owner. The answer should be kept for others who will ask, if it is `wanted`.
    There { owner: CoreId, hash: CodeHash, wanted: bool },
}

/// What other cores have brought to an end.
pub(super) enum Brought<'a> {
    /// The answer to a question of this core.
    Answer { token: u64, found: Found<'a> },
    /// This core has no copy any more of a link that its owner changes: the owner waits to hear of that.
    Dropped { owner: CoreId, number: u64 },
}

impl Data {
    pub(super) fn new(shard: Shard, mesh: Mesh) -> Data {
        let hot = (mesh.peers() > 0).then(|| (HotLinks::new(), Sightings::new()));
        Data { shard, mesh, hot, recalls: Recalls::default() }
    }

    /// Looks for a code, as far as that is possible without asking another core.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, now_ms: u64) -> Place<'_> {
        let (hash, owner) = self.shard.locate(code);
        let Some((hot, seen)) = self.hot.as_mut().filter(|_| owner != self.shard.me) else {
            return Place::Here(self.shard.find(code, hash, now_ms));
        };
        match hot.find(code, hash) {
            Some(found) => Place::Copy(found),
            None => Place::There { owner, hash, wanted: seen.wants(hash) },
        }
    }

    /// Answers other cores' questions, and gives what they have brought to `take`, which returns the code of an answer
    /// that is wanted. Returns how many questions were answered, and whether there was anything to do.
    pub(super) fn serve(&mut self, now_ms: u64, mut take: impl FnMut(Brought<'_>) -> Option<Code>) -> (usize, bool) {
        let Data { shard, mesh, hot, .. } = self;
        let answered = mesh.answer_questions(
            now_ms,
            |questions| shard.foresee(questions.iter().map(|question| question.hash)),
            |question, answer| answer(&shard.find(&question.code, question.hash, now_ms)),
        );
        let taken = mesh.take_answers(|arrived| match arrived {
            Arrived::Answer { token, found, lasts } => {
                let wanted = take(Brought::Answer { token, found });
                if let (Some(code), Found::Link { policy, target }, true, Some((hot, _))) =
                    (wanted, found, lasts, &mut *hot)
                {
                    hot.keep(&code, shard.locate(&code).0, policy, target);
                }
            }
            Arrived::Recall { owner, number, hash } => {
                if let Some((hot, _)) = hot {
                    hot.forget(hash);
                }
                take(Brought::Dropped { owner, number });
            }
        });
        (answered, answered + taken > 0 || mesh.has_more())
    }

    /// Makes a durable change visible. Returns whom to answer what, unless other cores may hold copies of what was there
    /// before: then that waits for [`Data::dropped`].
    pub(super) fn change(
        &mut self,
        change: &Change,
        notify: Option<(Ticket, StoreAnswer)>,
    ) -> Option<(Ticket, StoreAnswer)> {
        let Ok((hash, replaced)) = self.shard.apply(change) else {
            return notify.map(|(ticket, _)| (ticket, StoreAnswer::Unserved));
        };
        let peers = self.mesh.peers();
        // A link that takes the place of one whose delete still waits must wait for the copies of that one.
        if peers == 0 || !(replaced || self.recalls.concern(hash)) {
            return notify;
        }
        self.mesh.recall(self.recalls.begin(hash, peers, notify), hash);
        None
    }

    /// Another core has no copy any more of a link that is being changed. Returns whom to answer what, after the last.
    pub(super) fn dropped(&mut self, number: u64) -> Option<(Ticket, StoreAnswer)> {
        self.recalls.dropped(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::mesh::{Question, weave};
    use crate::link::{Link, Origin, Version};
    use crate::stats::{CoreStats, NodeStats};
    use carom_shards::{CodeHasher, CoreCount, Policy};
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};
    use std::sync::Arc;

    const CORES: usize = 3;
    const CODES: usize = 4;

    fn code(number: usize) -> Code {
        Code::parse(format!("c{number}").as_bytes()).unwrap()
    }

    /// What may happen next.
    #[derive(Clone, Debug)]
    enum Step {
        /// A client asks a core.
        Ask { core: usize, code: usize },
        /// A core takes what others have left for it.
        Serve { core: usize },
        /// A core takes one message of its mailbox.
        Mail { core: usize },
        /// A change of a code is durable, and its owner is told.
        Change { code: usize },
    }

    fn any_step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..CORES, 0..CODES).prop_map(|(core, code)| Step::Ask { core, code }),
            4 => (0..CORES).prop_map(|core| Step::Serve { core }),
            2 => (0..CORES).prop_map(|core| Step::Mail { core }),
            1 => (0..CODES).prop_map(|code| Step::Change { code }),
        ]
    }

    /// Some cores, their mailboxes, and what clients know. A code has versions; every second one is no link.
    struct Node {
        cores: Vec<Data>,
        mail: Vec<VecDeque<u64>>,
        /// The version that was stored last, and the last that was acknowledged, of each code.
        stored: [u64; CODES],
        acknowledged: [u64; CODES],
        /// Asked, not answered: core and code, and the version that was acknowledged when the client asked.
        asking: HashMap<u64, (usize, usize, u64)>,
        /// The code and version of each change that waits.
        changing: HashMap<u64, (usize, u64)>,
        number: u64,
        copies_used: usize,
    }

    impl Node {
        fn new() -> Node {
            let (count, hasher) = (CoreCount::new(CORES).unwrap(), CodeHasher::new(9));
            let shard = |core| {
                Shard::new(CoreId(core), count, hasher, Arc::new(CoreStats::default()), Arc::new(NodeStats::default()))
            };
            Node {
                cores: weave(count).into_iter().zip(0..).map(|(mesh, core)| Data::new(shard(core), mesh)).collect(),
                mail: vec![VecDeque::new(); CORES],
                stored: [0; CODES],
                acknowledged: [0; CODES],
                asking: HashMap::new(),
                changing: HashMap::new(),
                number: 0,
                copies_used: 0,
            }
        }

        fn take(&mut self, step: &Step) {
            match *step {
                Step::Ask { core, code } => self.ask(core, code),
                Step::Serve { core } => self.serve(core),
                Step::Mail { core } => {
                    if let Some(number) = self.mail[core].pop_front()
                        && let Some((ticket, _)) = self.cores[core].dropped(number)
                    {
                        self.acknowledge(ticket);
                    }
                }
                Step::Change { code } => self.change(code),
            }
        }

        fn ask(&mut self, core: usize, number: usize) {
            self.number += 1;
            let known = self.acknowledged[number];
            match self.cores[core].find(&code(number), 0) {
                Place::Here(found) => is_not_older(&found, known),
                Place::Copy(found) => {
                    is_not_older(&found, known);
                    self.copies_used += 1;
                }
                Place::There { owner, hash, .. } => {
                    let question = Question { token: self.number, hash, code: code(number) };
                    self.cores[core].mesh.ask(owner, question);
                    self.cores[core].mesh.hand_over(|_| ());
                    self.asking.insert(self.number, (core, number, known));
                }
            }
        }

        fn serve(&mut self, core: usize) {
            let Node { cores, mail, asking, .. } = self;
            cores[core].serve(0, |brought| match brought {
                Brought::Answer { token, found } => {
                    let (asker, number, known) = asking.remove(&token).expect("a question is answered once");
                    assert_eq!(asker, core);
                    is_not_older(&found, known);
                    // More eager than any core would be.
                    Some(code(number))
                }
                Brought::Dropped { owner, number } => {
                    mail[owner.index()].push_back(number);
                    None
                }
            });
            cores[core].mesh.hand_over(|_| ());
        }

        fn change(&mut self, number: usize) {
            let (code, version) = (code(number), self.stored[number] + 1);
            let (_, owner) = self.cores[0].shard.locate(&code);
            let target = format!("https://example.org/{version}");
            let policy = Policy::default();
            let change = match version % 3 {
                0 => Change::Remove(code),
                _ => Change::Put(Arc::new(Link {
                    code,
                    policy,
                    target,
                    created_ms: 0,
                    origin: Origin::Custom,
                    version: Version::default(),
                })),
            };
            self.number += 1;
            self.stored[number] = version;
            self.changing.insert(self.number, (number, version));
            let ticket = Ticket { core: CoreId(0), token: self.number };
            let done = self.cores[owner.index()].change(&change, Some((ticket, StoreAnswer::Created)));
            self.cores[owner.index()].mesh.hand_over(|_| ());
            if let Some((ticket, _)) = done {
                self.acknowledge(ticket);
            }
        }

        fn acknowledge(&mut self, ticket: Ticket) {
            let (code, version) = self.changing.remove(&ticket.token).expect("a change is acknowledged once");
            self.acknowledged[code] = self.acknowledged[code].max(version);
        }

        /// Goes on until nobody waits for anything.
        fn settle(&mut self) {
            for _ in 0..10 {
                (0..CORES).for_each(|core| self.serve(core));
                for core in 0..CORES {
                    (0..self.mail[core].len()).for_each(|_| self.take(&Step::Mail { core }));
                }
            }
            assert!(self.asking.is_empty() && self.changing.is_empty(), "every question and change comes to an end");
            assert_eq!(self.acknowledged, self.stored);
        }
    }

    /// The versions that say "no link" cannot be told apart, so only those of links are compared; and a version that is
    /// known to be no link, with what must not be there any more.
    fn is_not_older(found: &Found<'_>, known: u64) {
        if let Found::Link { target, .. } = found {
            let version: u64 = std::str::from_utf8(target).unwrap().rsplit('/').next().unwrap().parse().unwrap();
            assert!(version >= known, "version {version} was answered after {known} had been acknowledged");
        }
    }

    #[test]
    fn a_link_without_memory_is_not_acknowledged_and_those_before_it_are_served() {
        let (count, hasher) = (CoreCount::new(1).unwrap(), CodeHasher::new(9));
        let node = Arc::new(NodeStats::default());
        let shard = Shard::new(CoreId(0), count, hasher, Arc::new(CoreStats::default()), Arc::clone(&node));
        let mut data = Data::new(shard.with_little_room(), weave(count).remove(0));
        let answers: Vec<StoreAnswer> = (0..500)
            .map(|number| {
                let (code, target) = (code(number), format!("https://example.org/{}", "x".repeat(2_000)));
                let policy = Policy::default();
                let version = Version::default();
                let link = Link { code, policy, target, created_ms: 0, origin: Origin::Custom, version };
                let ticket = Ticket { core: CoreId(0), token: number as u64 };
                data.change(&Change::Put(Arc::new(link)), Some((ticket, StoreAnswer::Created))).unwrap().1
            })
            .collect();
        assert_eq!((&answers[0], &answers[499]), (&StoreAnswer::Created, &StoreAnswer::Unserved));
        for (number, answer) in answers.iter().enumerate() {
            let is_there = matches!(data.find(&code(number), 0), Place::Here(Found::Link { .. }));
            assert_eq!(is_there, *answer == StoreAnswer::Created, "{number}");
        }
        assert_eq!(node.alarms.list()[0].name, "memory_full");
    }

    #[test]
    fn copies_are_used() {
        let mut node = Node::new();
        (0..CODES).for_each(|code| node.take(&Step::Change { code }));
        node.settle();
        for _ in 0..2 {
            for (core, code) in (0..CORES).flat_map(|core| (0..CODES).map(move |code| (core, code))) {
                node.take(&Step::Ask { core, code });
            }
            node.settle();
        }
        assert_eq!(node.copies_used, (CORES - 1) * CODES, "all but the owner have a copy of each");
    }

    proptest! {
        #[test]
        fn nobody_is_answered_what_was_over_when_they_asked(steps in proptest::collection::vec(any_step(), 1..400)) {
            let mut node = Node::new();
            steps.iter().for_each(|step| node.take(step));
            node.settle();
        }
    }
}
