//! All sources of a core's answers: its own links, copies of other cores' hot links, and the mesh to the owners of the
//! rest.
//!
//! This module keeps the copies correct; see also [`super::hot_copies`] and [`super::recalls`].

use carom_shards::{Code, CodeHash, CoreId};

use super::all_links::Placed;
use super::hot_copies::{ALL_COPIES, LinkCopies, RecentRequests};
use super::mesh::{Mesh, ReceivedMessage};
use super::recalls::PendingRecalls;
use super::shard::{ForgottenLinks, Shard};
use crate::bridge::{LinkChange, WriterReply};
use carom_model::redirect::{BorrowedLookup, Destination, Lookup};

/// Links and mesh of a core that has a shard. The core of the admin listener has none.
#[derive(Debug)]
pub(super) struct LinkSources {
    pub(super) shard: Shard,
    pub(super) mesh: Mesh,
    /// Copies of other cores' links, and candidates for one. `None` without other cores.
    copies: Option<(LinkCopies, RecentRequests)>,
    /// Changes of this core's links that wait until other cores have dropped their copies.
    recalls: PendingRecalls,
}

/// The core to ask for a code that this one does not own, and has no copy of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote {
    pub(super) owner: CoreId,
    pub(super) hash: CodeHash,
    /// True if the answer should be kept as a copy for later requests.
    pub(super) keeps_copy: bool,
}

impl LinkSources {
    pub(super) fn new(mut shard: Shard, mesh: Mesh) -> LinkSources {
        shard.share_ruled_codes(mesh.ruled_codes());
        let copies = (mesh.peers() > 0).then(|| (LinkCopies::new(), RecentRequests::new()));
        LinkSources { shard, mesh, copies, recalls: PendingRecalls::default() }
    }

    /// Looks for a code without asking another core: in this core's own links, and in its copies of others.
    ///
    /// # Errors
    /// The core to ask.
    #[inline]
    pub(super) fn find(&mut self, code: &Code, now_ms: u64) -> Result<BorrowedLookup<'_>, Remote> {
        let (hash, owner) = self.shard.resolve(code);
        let Some((copies, seen)) = self.copies.as_mut().filter(|_| owner != self.shard.me) else {
            return Ok(self.shard.find(code, hash, now_ms));
        };
        match copies.find(code, hash, now_ms) {
            Some(found) => {
                self.shard.stats.hot_hits.add(1);
                Ok(found)
            }
            None => Err(Remote { owner, hash, keeps_copy: seen.note_request(hash) }),
        }
    }

    /// Answers other cores' questions, and passes the messages for this core to `take`. `take` returns the code of an
    /// answer of which a copy should be kept. Returns the number of questions answered, and true if there was any work.
    pub(super) fn serve(
        &mut self,
        now_ms: u64,
        mut take: impl FnMut(ReceivedMessage<'_>) -> Option<Code>,
    ) -> (usize, bool) {
        let LinkSources { shard, mesh, copies, .. } = self;
        let answered = mesh.answer_questions(
            shard,
            |shard, questions| shard.prefetch(questions.iter().map(|question| question.hash)),
            |shard, question, answer| match shard.find(&question.code, question.hash, now_ms) {
                Lookup::Ruled => shard.ruled(&question.code).cloned(),
                found => {
                    answer(&found);
                    None
                }
            },
        );
        let taken = mesh.take_answers(|arrived| match arrived {
            ReceivedMessage::Answer { token, found } => {
                let kept_code = take(ReceivedMessage::Answer { token, found });
                if let (Some(code), Lookup::Live(Destination { policy, target }), Some((copies, _))) =
                    (kept_code, found, &mut *copies)
                {
                    debug_assert_ne!(shard.resolve(&code).1, shard.me, "nobody recalls a copy of an own link");
                    copies.keep(&code, shard.resolve(&code).0, policy, target);
                }
            }
            // The destination of a link with rules depends on the request, so no copy is kept.
            ruled @ ReceivedMessage::Ruled { .. } => _ = take(ruled),
            ReceivedMessage::Recall { owner, number, hash } => {
                debug_assert_ne!(owner, shard.me, "a core recalls its own links itself");
                if let Some((copies, _)) = copies {
                    copies.forget(hash);
                }
                take(ReceivedMessage::Recall { owner, number, hash });
            }
        });
        (answered, answered + taken > 0 || mesh.has_more())
    }

    /// Makes a change visible that is durable with commit number `commit`. Returns the answer to send, unless other
    /// cores may hold copies of the previous link. Then [`LinkSources::confirm_dropped`] returns it later.
    pub(super) fn apply(
        &mut self,
        change: &LinkChange,
        commit: u64,
        answer: Option<WriterReply>,
    ) -> Option<WriterReply> {
        let (hash, Placed { replaced, is_served }) = self.shard.apply(change, commit);
        let answer = match answer {
            Some(reply) if !is_served => Some(reply.unserved()),
            answer => answer,
        };
        let peers = self.mesh.peers();
        // A new link also waits if the delete of its predecessor waits for dropped copies.
        if peers == 0 || !(replaced || self.recalls.has(hash)) {
            return answer;
        }
        self.mesh.recall(self.recalls.begin(hash, peers, answer), hash);
        debug_assert!(self.recalls.has(hash), "a later change would be acknowledged before this one");
        None
    }

    /// Takes all links of this core out of memory, and makes the other cores drop their copies of them. Links that were
    /// read before commit number `commit` and arrive later are not kept.
    pub(super) fn forget_all(&mut self, commit: u64) -> ForgottenLinks {
        let forgotten = self.shard.forget_all(commit);
        let peers = self.mesh.peers();
        if peers > 0 {
            // Through the mesh, so that no older answer arrives behind it and is kept as a copy.
            self.mesh.recall(self.recalls.begin(ALL_COPIES, peers, None), ALL_COPIES);
        }
        forgotten
    }

    /// Notes that another core no longer has a copy of a link that is being changed. Returns the answer to send, after
    /// the last core.
    pub(super) fn confirm_dropped(&mut self, number: u64) -> Option<WriterReply> {
        self.recalls.confirm_dropped(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::{CreateAnswer, Ticket, WriterAnswer};
    use crate::core::link_memory::MemoryBudget;
    use crate::core::mesh::{Question, create_meshes};
    use carom_model::link::labels::LinkLabels;
    use carom_model::link::rules::{RedirectRules, RuleVisitor};
    use carom_model::link::{Link, Origin, Version};
    use carom_shards::{CodeHasher, CoreCount, Policy};
    use carom_telemetry::alarms::Alarm;
    use carom_telemetry::stats::{CoreStats, NodeStats};
    use proptest::prelude::*;
    use std::collections::{HashMap, VecDeque};
    use std::sync::Arc;

    const CORES: usize = 3;
    const CODES: usize = 4;

    fn code(number: usize) -> Code {
        Code::parse(format!("c{number}").as_bytes()).unwrap()
    }

    /// An event of the simulated node.
    #[derive(Clone, Debug)]
    enum MeshStep {
        /// A client asks a core.
        Ask { core: usize, code: usize },
        /// A core takes the messages that others have left for it.
        Serve { core: usize },
        /// A core takes one message of its mailbox.
        Mail { core: usize },
        /// A change of a code becomes durable.
        Change { code: usize },
        /// The owner of the oldest unannounced change gets its message.
        Tell,
        /// A reader reads the store for one of the waiting look-ups.
        Read { at: usize },
        /// A reader posts its result.
        Post { at: usize },
        /// An owner that keeps only links in use evicts this one.
        Evict { code: usize },
    }

    fn any_step() -> impl Strategy<Value = MeshStep> {
        prop_oneof![
            6 => (0..CORES, 0..CODES).prop_map(|(core, code)| MeshStep::Ask { core, code }),
            4 => (0..CORES).prop_map(|core| MeshStep::Serve { core }),
            4 => (0..CORES).prop_map(|core| MeshStep::Mail { core }),
            1 => (0..CODES).prop_map(|code| MeshStep::Change { code }),
            1 => Just(MeshStep::Tell),
            2 => (0..8usize).prop_map(|at| MeshStep::Read { at }),
            2 => (0..8usize).prop_map(|at| MeshStep::Post { at }),
            1 => (0..CODES).prop_map(|code| MeshStep::Evict { code }),
        ]
    }

    /// A client's question: code, and the version that was acknowledged when it was asked.
    #[derive(Clone, Copy, Debug)]
    struct Asked {
        core: usize,
        code: usize,
        known: u64,
    }

    /// A message of a mailbox.
    enum Mail {
        Dropped(u64),
        Apply { code: usize, version: u64, commit: u64, number: u64 },
        Fetched { code: usize, version: u64, as_of: u64 },
        LookedUp { asked: Asked, version: u64 },
    }

    /// Some cores, their mailboxes, the store and its readers, and the clients' knowledge. A code has versions; every
    /// third one is no link.
    struct Node {
        cores: Vec<LinkSources>,
        mail: Vec<VecDeque<Mail>>,
        /// For each code, the version stored last, and the last one acknowledged.
        stored: [u64; CODES],
        acknowledged: [u64; CODES],
        commits: u64,
        /// Changes that are stored, and whose owners have no message yet.
        untold: VecDeque<(usize, Mail)>,
        /// Questions to another core without an answer.
        asking: HashMap<u64, Asked>,
        /// Questions to the store that it has not read yet.
        fetching: Vec<Asked>,
        /// Reads that are not posted yet: with the version found, and the number of commits at that time.
        read: Vec<(Asked, u64, u64)>,
        /// The code and version of each change that waits.
        changing: HashMap<u64, (usize, u64)>,
        number: u64,
        fetched: usize,
    }

    impl Node {
        fn new(memory_budget: MemoryBudget) -> Node {
            let (count, hasher) = (CoreCount::new(CORES).unwrap(), CodeHasher::new(9));
            let shard = |core| Shard::new(CoreId(core), count, hasher, memory_budget, Arc::default(), Arc::default());
            Node {
                cores: create_meshes(count)
                    .into_iter()
                    .zip(0..)
                    .map(|(mesh, core)| LinkSources::new(shard(core), mesh))
                    .collect(),
                mail: (0..CORES).map(|_| VecDeque::new()).collect(),
                stored: [0; CODES],
                acknowledged: [0; CODES],
                commits: 0,
                untold: VecDeque::new(),
                asking: HashMap::new(),
                fetching: Vec::new(),
                read: Vec::new(),
                changing: HashMap::new(),
                number: 0,
                fetched: 0,
            }
        }

        fn owner(&self, number: usize) -> usize {
            self.cores[0].shard.resolve(&code(number)).1.index()
        }

        fn take(&mut self, step: &MeshStep) {
            match *step {
                MeshStep::Ask { core, code } => self.ask(core, code),
                MeshStep::Serve { core } => self.serve(core),
                MeshStep::Mail { core } => self.take_mail(core),
                MeshStep::Change { code } => self.change(code),
                MeshStep::Tell => {
                    if let Some((owner, mail)) = self.untold.pop_front() {
                        self.mail[owner].push_back(mail);
                    }
                }
                MeshStep::Read { at } if at < self.fetching.len() => {
                    let asked = self.fetching.remove(at);
                    self.read.push((asked, self.stored[asked.code], self.commits));
                }
                MeshStep::Post { at } if at < self.read.len() => {
                    let (asked, version, as_of) = self.read.remove(at);
                    let owner = self.owner(asked.code);
                    if is_link(version) {
                        self.mail[owner].push_back(Mail::Fetched { code: asked.code, version, as_of });
                    }
                    self.mail[asked.core].push_back(Mail::LookedUp { asked, version });
                }
                MeshStep::Read { .. } | MeshStep::Post { .. } => {}
                MeshStep::Evict { code: number } => {
                    let owner = self.owner(number);
                    self.cores[owner].shard.evict(&code(number));
                }
            }
        }

        fn ask(&mut self, core: usize, number: usize) {
            self.number += 1;
            let asked = Asked { core, code: number, known: self.acknowledged[number] };
            let stored = self.stored[number];
            match self.cores[core].find(&code(number), 0) {
                Ok(Lookup::NotResident) => self.fetching.push(asked),
                Ok(Lookup::Ruled) => {
                    let link = self.cores[core].shard.ruled(&code(number)).expect("the look-up has found it");
                    is_right(&whole(link), asked, stored);
                }
                Ok(found) => is_right(&found, asked, stored),
                Err(Remote { owner, hash, .. }) => {
                    let question = Question { token: self.number, hash, code: code(number) };
                    self.cores[core].mesh.ask(owner, question);
                    self.cores[core].mesh.flush_to_peers(|_| ());
                    self.asking.insert(self.number, asked);
                }
            }
        }

        fn serve(&mut self, core: usize) {
            let Node { cores, mail, asking, fetching, stored, .. } = self;
            cores[core].serve(0, |brought| match brought {
                ReceivedMessage::Answer { token, found } => {
                    let asked = asking.remove(&token).expect("a question is answered once");
                    assert_eq!(asked.core, core);
                    match found {
                        Lookup::NotResident => fetching.push(asked),
                        found => is_right(&found, asked, stored[asked.code]),
                    }
                    // More eager than any core would be.
                    Some(code(asked.code))
                }
                ReceivedMessage::Ruled { token, link } => {
                    let asked = asking.remove(&token).expect("a question is answered once");
                    is_right(&whole(&link), asked, stored[asked.code]);
                    None
                }
                ReceivedMessage::Recall { owner, number, .. } => {
                    mail[owner.index()].push_back(Mail::Dropped(number));
                    None
                }
            });
            cores[core].mesh.flush_to_peers(|_| ());
        }

        fn take_mail(&mut self, core: usize) {
            let done = match self.mail[core].pop_front() {
                None => None,
                Some(Mail::Dropped(number)) => self.cores[core].confirm_dropped(number),
                Some(Mail::Apply { code: number, version, commit, number: token }) => {
                    let change = if is_link(version) {
                        LinkChange::Put(Arc::new(link(number, version)))
                    } else {
                        LinkChange::Remove(code(number))
                    };
                    let ticket = Ticket::new(CoreId(0), token);
                    self.cores[core].apply(&change, commit, Some(CreateAnswer::Created.to(ticket)))
                }
                Some(Mail::Fetched { code, version, as_of }) => {
                    self.cores[core].shard.keep(&self::code(code), Some(&Arc::new(link(code, version))), as_of);
                    None
                }
                Some(Mail::LookedUp { asked, version }) => {
                    self.fetched += 1;
                    let target = target(version);
                    let found = if is_link(version) {
                        Lookup::Live(Destination { policy: Policy::default(), target: target.as_bytes() })
                    } else {
                        Lookup::Missing
                    };
                    is_right(&found, asked, self.stored[asked.code]);
                    None
                }
            };
            self.cores[core].mesh.flush_to_peers(|_| ());
            if let Some(WriterReply::Create(ticket, _)) = done {
                self.acknowledge(ticket);
            }
        }

        fn change(&mut self, number: usize) {
            self.number += 1;
            self.commits += 1;
            self.stored[number] += 1;
            let (version, commit) = (self.stored[number], self.commits);
            self.changing.insert(self.number, (number, version));
            let apply = Mail::Apply { code: number, version, commit, number: self.number };
            self.untold.push_back((self.owner(number), apply));
        }

        fn acknowledge(&mut self, ticket: Ticket<CreateAnswer>) {
            let (code, version) = self.changing.remove(&ticket.token).expect("a change is acknowledged once");
            self.acknowledged[code] = self.acknowledged[code].max(version);
        }

        /// Continues until nothing waits.
        fn settle(&mut self) {
            for _ in 0..10 {
                (0..self.untold.len()).for_each(|_| self.take(&MeshStep::Tell));
                (0..CORES).for_each(|core| self.serve(core));
                (0..self.fetching.len()).for_each(|_| self.take(&MeshStep::Read { at: 0 }));
                (0..self.read.len()).for_each(|_| self.take(&MeshStep::Post { at: 0 }));
                for core in 0..CORES {
                    (0..self.mail[core].len()).for_each(|_| self.take(&MeshStep::Mail { core }));
                }
            }
            assert!(self.asking.is_empty(), "every question and change comes to an end");
            assert!(self.changing.is_empty(), "every question and change comes to an end");
            assert!(self.fetching.is_empty());
            assert!(self.read.is_empty());
            assert_eq!(self.acknowledged, self.stored);
        }
    }

    fn is_link(version: u64) -> bool {
        !version.is_multiple_of(3)
    }

    fn target(version: u64) -> String {
        format!("https://example.org/{version}")
    }

    /// The result of a look-up of a link with rules, for a visitor that none of them matches.
    fn whole(link: &Link) -> BorrowedLookup<'_> {
        assert!(link.has_rules());
        link.for_visitor(&RuleVisitor::default())
    }

    fn link(number: usize, version: u64) -> Link {
        let rules = carom_model::testing::rules("https://ios.test/", "device", "ios");
        let rules = if version % 5 == 4 { rules } else { RedirectRules::default() };
        Link {
            code: code(number),
            policy: Policy::default(),
            target: target(version),
            created_ms: 0,
            origin: Origin::Custom,
            version: Version::default(),
            labels: LinkLabels { rules, ..LinkLabels::default() },
        }
    }

    /// Asserts that an answer was right at some time between question and answer.
    fn is_right(found: &BorrowedLookup<'_>, asked: Asked, stored: u64) {
        let Asked { known, .. } = asked;
        match found {
            Lookup::Live(Destination { target, .. }) => {
                let version: u64 = std::str::from_utf8(target).unwrap().rsplit('/').next().unwrap().parse().unwrap();
                assert!(version >= known, "version {version} was answered after {known} had been acknowledged");
            }
            Lookup::Missing => {
                assert!((known..=stored).any(|version| !is_link(version)), "of {known} to {stored} all are links");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_link_without_memory_is_not_acknowledged_and_those_before_it_are_served() {
        let (count, hasher) = (CoreCount::new(1).unwrap(), CodeHasher::new(9));
        let node = Arc::new(NodeStats::default());
        let shard =
            Shard::new(CoreId(0), count, hasher, MemoryBudget::Tiny, Arc::new(CoreStats::default()), Arc::clone(&node));
        let mut data = LinkSources::new(shard, create_meshes(count).remove(0));
        let answers: Vec<WriterReply> = (0..500)
            .map(|number| {
                let (code, target) = (code(number), format!("https://example.org/{}", "x".repeat(2_000)));
                let policy = Policy::default();
                let version = Version::default();
                let (origin, labels) = (Origin::Custom, LinkLabels::default());
                let link = Link { code, policy, target, created_ms: 0, origin, version, labels };
                let ticket = Ticket::new(CoreId(0), number as u64);
                data.apply(&LinkChange::Put(Arc::new(link)), 1, Some(CreateAnswer::Created.to(ticket))).unwrap()
            })
            .collect();
        let expected = |number, answer: CreateAnswer| answer.to(Ticket::new(CoreId(0), number));
        assert_eq!(answers[0], expected(0, CreateAnswer::Created));
        assert_eq!(answers[499], expected(499, CreateAnswer::Unserved));
        for (number, answer) in answers.iter().enumerate() {
            let is_there = matches!(data.find(&code(number), 0), Ok(Lookup::Live(_)));
            assert_eq!(is_there, *answer == expected(number as u64, CreateAnswer::Created), "{number}");
        }
        assert_eq!(node.alarms.list()[0].alarm, Alarm::MemoryFull);
    }

    /// Returns a core with hardly any memory for links, its neighbour, and the codes of its links. No other link fits.
    fn full_core() -> (Vec<LinkSources>, Vec<usize>) {
        let (count, hasher) = (CoreCount::new(2).unwrap(), CodeHasher::new(9));
        let shard = |core| Shard::new(CoreId(core), count, hasher, MemoryBudget::Tiny, Arc::default(), Arc::default());
        let mut cores: Vec<LinkSources> =
            create_meshes(count).into_iter().zip(0..).map(|(mesh, core)| LinkSources::new(shard(core), mesh)).collect();
        let mut stored = Vec::new();
        for number in 0.. {
            if cores[0].shard.resolve(&code(number)).1 != CoreId(0) {
                continue;
            }
            let ticket = Ticket::new(CoreId(0), number as u64);
            let put = LinkChange::Put(Arc::new(Link { target: target_of(1_900), ..link(number, 1) }));
            match cores[0].apply(&put, 1, Some(CreateAnswer::Created.to(ticket))) {
                Some(WriterReply::Create(_, CreateAnswer::Created)) => stored.push(number),
                Some(WriterReply::Create(_, CreateAnswer::Unserved)) => return (cores, stored),
                other => panic!("{other:?}"),
            }
        }
        unreachable!("memory ends");
    }

    fn target_of(len: usize) -> String {
        format!("https://example.org/{}", "x".repeat(len))
    }

    #[test]
    fn a_change_that_finds_no_memory_leaves_neither_the_old_link_nor_copies_of_it() {
        let (mut cores, stored) = full_core();
        let changed = code(stored[0]);
        // The neighbour has a copy.
        let (hash, _) = cores[0].shard.resolve(&changed);
        cores[1].copies.as_mut().unwrap().0.keep(&changed, hash, Policy::default(), b"https://example.org/1");
        let ticket = Ticket::new(CoreId(0), 7);
        let put = LinkChange::Put(Arc::new(Link { target: target_of(2_000), ..link(stored[0], 2) }));
        assert_eq!(
            cores[0].apply(&put, 2, Some(CreateAnswer::Created.to(ticket))),
            None,
            "a copy is to be dropped first"
        );
        cores[0].mesh.flush_to_peers(|_| ());
        let mut dropped = None;
        cores[1].serve(0, |brought| {
            let ReceivedMessage::Recall { number, .. } = brought else { panic!("nobody asked") };
            dropped = Some(number);
            None
        });
        assert_eq!(cores[0].confirm_dropped(dropped.unwrap()), Some(CreateAnswer::Unserved.to(ticket)));
        assert!(matches!(cores[0].find(&changed, 0), Ok(Lookup::NotResident)), "503, not the old destination");
        assert!(matches!(cores[1].find(&changed, 0), Err(Remote { .. })));
        assert!(matches!(cores[0].find(&code(stored[1]), 0), Ok(Lookup::Live(_))), "others are served");
        // Once there is room again, the next change is served.
        assert_eq!(cores[0].apply(&LinkChange::Remove(code(stored[1])), 3, None), None);
        let put = LinkChange::Put(Arc::new(link(stored[0], 3)));
        let _ = cores[0].apply(&put, 4, None);
        assert!(matches!(cores[0].find(&changed, 0), Ok(Lookup::Live(_))));
    }

    #[test]
    fn copies_are_used() {
        let mut node = Node::new(MemoryBudget::All);
        (0..CODES).for_each(|code| node.take(&MeshStep::Change { code }));
        node.settle();
        for _ in 0..2 {
            for (core, code) in (0..CORES).flat_map(|core| (0..CODES).map(move |code| (core, code))) {
                node.take(&MeshStep::Ask { core, code });
            }
            node.settle();
        }
        let copies_used: u64 = node.cores.iter().map(|core| core.shard.stats.hot_hits.get()).sum();
        assert_eq!(copies_used, ((CORES - 1) * CODES) as u64, "all but the owner have a copy of each");
    }

    proptest! {
        #[test]
        fn nobody_is_answered_what_was_over_when_they_asked(steps in proptest::collection::vec(any_step(), 1..400)) {
            for memory_budget in [MemoryBudget::All, MemoryBudget::Bytes(512 << 10), MemoryBudget::Shared(512 << 10)] {
                let mut node = Node::new(memory_budget);
                steps.iter().for_each(|step| node.take(step));
                node.settle();
                assert!(memory_budget != MemoryBudget::All || node.fetched == 0);
            }
        }
    }
}
