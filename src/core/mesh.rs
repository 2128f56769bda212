//! The mesh: look-ups between the cores of one node.
//!
//! Each ordered pair of cores has two bounded single-producer single-consumer rings of small `Copy` messages: one for
//! questions, one for their answers. A core gathers its messages for a peer during a turn of its loop and puts them
//! into the ring at the end. Otherwise an awake peer would take each message in a turn of its own.
//!
//! A sleeping peer is woken once. It announces its sleep before its last look at the rings, so it misses no message.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

use carom_shards::{Code, CodeHash, CoreCount, CoreId, Policy, RedirectStatus};
use heapless::spsc::{Consumer, Producer, Queue};

use super::ruled_links::RuledCodes;
use carom_model::link::Link;
use carom_model::redirect::{BorrowedLookup, Destination, Lookup};

/// Capacity of a ring in messages, enough for all connections of a busy core. A message without room waits for the next
/// turn.
const RING_LEN: usize = 1_024;

/// Questions whose cache misses overlap. The processor would not keep more of them in flight.
const QUESTION_BATCH_LEN: usize = 16;

/// Bytes of a destination that one answer carries. Most URLs fit one message, which is three cache lines.
const PART_LEN: usize = super::hot_copies::COPY_DESTINATION_LEN_MAX;

/// Messages that the longest destination takes.
const PARTS_MAX: usize = carom_limits::DESTINATION_LEN_MAX.div_ceil(PART_LEN);

/// A question to a peer about a code that the peer owns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// An identifier that comes back with the answer.
    pub(super) token: u64,
    pub(super) hash: CodeHash,
    pub(super) code: Code,
}

/// An answer, or a further part of one. The parts of an answer follow each other.
#[derive(Clone, Copy, Debug)]
struct AnswerPart {
    token: u64,
    cache_seconds: Option<u32>,
    valid_until_ms: Option<u64>,
    max_visits: Option<NonZeroU32>,
    status: RedirectStatus,
    /// The result without its link, whose fields are beside it.
    found: Lookup<()>,
    forward_query: bool,
    /// Bytes of the destination that are still to come, including this part.
    bytes_left: u16,
    bytes: [u8; PART_LEN],
}

/// A message of an owner as it lies in a ring. Answers and recalls share a ring, so a recall cannot overtake an older
/// answer. Its confirmation goes by mail (`ToCore::CopyDropped`), because nothing depends on its order.
#[derive(Clone, Debug)]
enum RingMessage {
    Part(AnswerPart),
    /// The answer about a link with redirect rules, whole: the asking core has the request.
    Ruled {
        token: u64,
        link: Arc<Link>,
    },
    /// A request to drop the copy of a link.
    Recall {
        number: u64,
        hash: CodeHash,
    },
}

impl RingMessage {
    /// True for an answer, or the last part of one, to the question with this token.
    fn is_answer_to(&self, token: u64) -> bool {
        match self {
            RingMessage::Part(part) => part.token == token,
            RingMessage::Ruled { token: of, .. } => *of == token,
            RingMessage::Recall { .. } => false,
        }
    }
}

/// A message of an owner as the other core receives it: an answer is whole.
#[derive(Debug)]
pub(super) enum ReceivedMessage<'a> {
    /// The whole answer to a question.
    Answer {
        /// The token of the question.
        token: u64,
        found: BorrowedLookup<'a>,
    },
    /// The answer about a link with redirect rules.
    Ruled {
        /// The token of the question.
        token: u64,
        link: Arc<Link>,
    },
    /// A request to drop any copy of a link and to confirm that to the owner.
    Recall { owner: CoreId, number: u64, hash: CodeHash },
}

/// One core's four ends of the rings that it shares with a peer.
struct MeshPeer {
    questions_out: Producer<'static, Question>,
    questions_in: Consumer<'static, Question>,
    answers_out: Producer<'static, RingMessage>,
    answers_in: Consumer<'static, RingMessage>,
    /// The destination in those parts of an answer that have arrived.
    partial_target: Vec<u8>,
    /// Messages that this turn has gathered for the peer, in order.
    pending_questions: VecDeque<Question>,
    pending_answers: VecDeque<RingMessage>,
    /// True if this turn has handed a message over, so that the peer must be woken if it sleeps.
    must_wake: bool,
}

/// State of all cores that every core may read.
#[derive(Debug)]
pub(super) struct Presence {
    /// For each core, true if it sleeps or is about to.
    sleeping: Vec<Padded<AtomicBool>>,
    /// The descriptor of each core's ring, or -1 before it has one.
    rings: Vec<AtomicI32>,
    /// Number of cores that still have connections.
    open: AtomicUsize,
    /// Codes of links with redirect rules.
    ruled: Arc<RuledCodes>,
}

/// A value on cache lines of its own, so that neighbours do not share one.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// One core's place in the mesh.
pub(super) struct Mesh {
    me: CoreId,
    peers: Vec<Option<MeshPeer>>,
    presence: Arc<Presence>,
}

/// Creates the mesh. Returns the place of each core, in order.
pub(super) fn create_meshes(cores: CoreCount) -> Vec<Mesh> {
    let presence = Arc::new(Presence {
        sleeping: cores.cores().map(|_| Padded::default()).collect(),
        rings: cores.cores().map(|_| AtomicI32::new(-1)).collect(),
        open: AtomicUsize::new(cores.get()),
        ruled: Arc::default(),
    });
    let mut meshes: Vec<Mesh> = cores
        .cores()
        .map(|me| {
            let peers = cores.cores().map(|_| None).collect();
            Mesh { me, peers, presence: Arc::clone(&presence) }
        })
        .collect();
    for one in 0..cores.get() {
        for other in one + 1..cores.get() {
            let (ask_other, asked_by_one) = ring();
            let (ask_one, asked_by_other) = ring();
            let (answer_other, answered_by_one) = ring();
            let (answer_one, answered_by_other) = ring();
            meshes[one].peers[other] = Some(MeshPeer::new(ask_other, asked_by_other, answer_other, answered_by_other));
            meshes[other].peers[one] = Some(MeshPeer::new(ask_one, asked_by_one, answer_one, answered_by_one));
        }
    }
    assert!(
        meshes.iter().all(|mesh| mesh.peers.iter().flatten().count() + 1 == cores.get()),
        "a core has no rings with another one"
    );
    meshes
}

/// Returns a ring that lives as long as the process, as its cores do.
fn ring<T>() -> (Producer<'static, T>, Consumer<'static, T>) {
    Box::leak(Box::new(Queue::<T, RING_LEN>::new())).split()
}

impl MeshPeer {
    /// Returns how many more questions this turn may answer. Each may need as many parts as the longest destination.
    fn room(&self) -> usize {
        (self.answers_out.capacity() - self.answers_out.len()).saturating_sub(self.pending_answers.len()) / PARTS_MAX
    }

    /// Puts the gathered messages into the rings, as far as there is room. Returns true if there were any.
    fn flush(&mut self) -> bool {
        self.must_wake = !(self.pending_questions.is_empty() && self.pending_answers.is_empty());
        while self.questions_out.ready()
            && let Some(question) = self.pending_questions.pop_front()
        {
            assert!(self.questions_out.enqueue(question).is_ok(), "nobody else fills the ring");
        }
        while self.answers_out.ready()
            && let Some(message) = self.pending_answers.pop_front()
        {
            assert!(self.answers_out.enqueue(message).is_ok(), "nobody else fills the ring");
        }
        self.must_wake
    }

    fn new(
        questions_out: Producer<'static, Question>,
        questions_in: Consumer<'static, Question>,
        answers_out: Producer<'static, RingMessage>,
        answers_in: Consumer<'static, RingMessage>,
    ) -> MeshPeer {
        let (pending_questions, pending_answers) = (VecDeque::new(), VecDeque::new());
        MeshPeer {
            questions_out,
            questions_in,
            answers_out,
            answers_in,
            partial_target: Vec::new(),
            pending_questions,
            pending_answers,
            must_wake: false,
        }
    }

    fn answer_with(&mut self, token: u64, lookup: &BorrowedLookup<'_>) {
        let (found, Destination { policy, target }) = encode(lookup);
        debug_assert!(target.len() <= PARTS_MAX * PART_LEN, "an answer takes more room than is kept for it");
        let mut left = target;
        loop {
            let (now, later) = left.split_at(left.len().min(PART_LEN));
            let mut part = AnswerPart {
                token,
                cache_seconds: policy.cache_seconds,
                valid_until_ms: policy.valid_until_ms,
                max_visits: policy.max_visits,
                status: policy.status,
                found,
                forward_query: policy.forward_query,
                bytes_left: left.len() as u16,
                bytes: [0; PART_LEN],
            };
            part.bytes[..now.len()].copy_from_slice(now);
            self.pending_answers.push_back(RingMessage::Part(part));
            left = later;
            if left.is_empty() {
                return;
            }
        }
    }
}

/// Returns the parts of a result as a message carries them.
fn encode<'a>(lookup: &BorrowedLookup<'a>) -> (Lookup<()>, Destination<&'a [u8]>) {
    debug_assert!(*lookup != Lookup::Ruled, "the asking core would not get the rules");
    debug_assert!(*lookup != Lookup::Unconfirmed, "the core of the client asks the fleet, never the owner");
    match *lookup {
        Lookup::Live(destination) => (Lookup::Live(()), destination),
        other => (other.map(drop), Destination { policy: Policy::default(), target: &[] }),
    }
}

/// Returns the result that the last part of an answer and its whole target carry.
fn decode<'a>(part: &AnswerPart, target: &'a [u8]) -> BorrowedLookup<'a> {
    let AnswerPart { status, cache_seconds, valid_until_ms, max_visits, forward_query, .. } = *part;
    let policy = Policy { status, cache_seconds, valid_until_ms, max_visits, forward_query, ..Policy::default() };
    part.found.map(|()| Destination { policy, target })
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mesh(core {} of {})", self.me, self.peers.len())
    }
}

impl Mesh {
    /// Queues a question for the owner of a code. It leaves with the next [`Mesh::flush_to_peers`].
    pub(super) fn ask(&mut self, owner: CoreId, question: Question) {
        let peer = self.peers[owner.index()].as_mut().expect("a core does not ask itself");
        peer.pending_questions.push_back(question);
    }

    /// Answers the questions of all peers, as far as there is room for the answers. `find` looks up the code of a
    /// question. It passes the result to the function that it gets, or returns the link if that has redirect rules.
    /// `prefetch` gets each group of questions before `find` does. Both get `links`. Returns the number of questions
    /// answered.
    pub(super) fn answer_questions<L>(
        &mut self,
        links: &mut L,
        mut prefetch: impl FnMut(&mut L, &[Question]),
        mut find: impl FnMut(&mut L, &Question, &mut dyn FnMut(&BorrowedLookup<'_>)) -> Option<Arc<Link>>,
    ) -> usize {
        let mut answered = 0;
        for peer in self.peers.iter_mut().flatten() {
            loop {
                let room = peer.room();
                let next = std::iter::from_fn(|| peer.questions_in.dequeue());
                let questions: heapless::Vec<Question, QUESTION_BATCH_LEN> =
                    next.take(room.min(QUESTION_BATCH_LEN)).collect();
                if questions.is_empty() {
                    break;
                }
                prefetch(links, &questions);
                for question in &questions {
                    let token = question.token;
                    if let Some(link) = find(links, question, &mut |found| peer.answer_with(token, found)) {
                        peer.pending_answers.push_back(RingMessage::Ruled { token, link });
                    }
                    debug_assert!(
                        peer.pending_answers.back().is_some_and(|last| last.is_answer_to(token)),
                        "the asking core would wait forever"
                    );
                }
                answered += questions.len();
            }
        }
        answered
    }

    /// Passes each complete answer and each recall that has arrived to `take`. Returns their number.
    pub(super) fn take_answers(&mut self, mut take: impl FnMut(ReceivedMessage<'_>)) -> usize {
        let mut taken = 0;
        for (owner, peer) in self.peers.iter_mut().enumerate() {
            let Some(MeshPeer { answers_in, partial_target: target, .. }) = peer else { continue };
            while let Some(message) = answers_in.dequeue() {
                let part = match message {
                    RingMessage::Part(part) => part,
                    RingMessage::Ruled { token, link } => {
                        debug_assert!(target.is_empty(), "a link came between the parts of an answer");
                        taken += 1;
                        take(ReceivedMessage::Ruled { token, link });
                        continue;
                    }
                    RingMessage::Recall { number, hash } => {
                        debug_assert!(target.is_empty(), "a recall came between the parts of an answer");
                        taken += 1;
                        take(ReceivedMessage::Recall { owner: CoreId(owner as u16), number, hash });
                        continue;
                    }
                };
                debug_assert!(
                    target.len() + usize::from(part.bytes_left) <= carom_limits::DESTINATION_LEN_MAX,
                    "the parts of two answers are mixed"
                );
                let here = usize::from(part.bytes_left).min(PART_LEN);
                let is_last = usize::from(part.bytes_left) <= PART_LEN;
                if !is_last || !target.is_empty() {
                    target.extend_from_slice(&part.bytes[..here]);
                }
                if !is_last {
                    continue;
                }
                let whole = if target.is_empty() { &part.bytes[..here] } else { &target[..] };
                take(ReceivedMessage::Answer { token: part.token, found: decode(&part, whole) });
                target.clear();
                taken += 1;
            }
        }
        taken
    }

    /// Returns the filter of links with redirect rules that all cores share.
    pub(super) fn ruled_codes(&self) -> &Arc<RuledCodes> {
        &self.presence.ruled
    }

    /// Returns the number of other cores.
    pub(super) fn peers(&self) -> usize {
        self.peers.len() - 1
    }

    /// Asks every other core to drop its copy of a link. Each of them confirms it to the owner with `number`.
    pub(super) fn recall(&mut self, number: u64, hash: CodeHash) {
        self.peers
            .iter_mut()
            .flatten()
            .for_each(|peer| peer.pending_answers.push_back(RingMessage::Recall { number, hash }));
    }

    /// True if a message waits: gathered in this turn, or left without room at the end of the last one.
    pub(super) fn has_more(&self) -> bool {
        self.peers.iter().flatten().any(|peer| !(peer.pending_questions.is_empty() && peer.pending_answers.is_empty()))
    }

    /// Ends a turn: hands over the messages for each peer, and passes the ring of each peer that sleeps to `ring`.
    pub(super) fn flush_to_peers(&mut self, mut ring: impl FnMut(RawFd)) {
        let mut any = false;
        for peer in self.peers.iter_mut().flatten() {
            any |= peer.flush();
        }
        if !any {
            return;
        }
        // Pairs with the fence in `fall_asleep`: either we see the peer's flag, or the peer sees our messages.
        fence(Ordering::SeqCst);
        for (index, peer) in self.peers.iter_mut().enumerate() {
            if peer.as_mut().is_some_and(|peer| std::mem::take(&mut peer.must_wake))
                && self.presence.sleeping[index].0.load(Ordering::Relaxed)
                && self.presence.sleeping[index].0.swap(false, Ordering::AcqRel)
            {
                ring(self.presence.rings[index].load(Ordering::Acquire));
            }
        }
    }

    /// Publishes the descriptor of this core's ring, by which peers wake it.
    pub(super) fn announce(&self, ring: RawFd) {
        assert!(ring >= 0, "peers could not wake this core");
        self.presence.rings[self.me.index()].store(ring, Ordering::Release);
    }

    /// Announces that this core is about to sleep. Returns true if it may: no message waits for it.
    pub(super) fn fall_asleep(&self) -> bool {
        self.presence.sleeping[self.me.index()].0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_messages()
    }

    /// Announces that this core is awake.
    pub(super) fn wake_up(&self) {
        self.presence.sleeping[self.me.index()].0.store(false, Ordering::Relaxed);
    }

    fn has_messages(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.questions_in.ready() || peer.answers_in.ready())
    }

    /// Records that a draining core has no connections left; it still answers other cores. Returns true if it was the
    /// last one.
    pub(super) fn finish(&self) -> bool {
        let open = self.presence.open.fetch_sub(1, Ordering::AcqRel);
        assert!(open > 0, "a core has finished twice, so another one would not be waited for");
        open == 1
    }

    /// True if every core has finished.
    pub(super) fn all_finished(&self) -> bool {
        self.presence.open.load(Ordering::Acquire) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_shards::CodeHasher;

    fn question(token: u64) -> Question {
        let code = Code::parse(format!("c{token}").as_bytes()).unwrap();
        Question { token, hash: CodeHasher::new(0).hash(&code), code }
    }

    fn found_by(answer: &mut dyn FnMut(&BorrowedLookup<'_>), found: &BorrowedLookup<'_>) -> Option<Arc<Link>> {
        answer(found);
        None
    }

    #[test]
    fn targets_of_every_length_cross_whole() {
        let mut meshes = create_meshes(CoreCount::new(2).unwrap());
        let (mut two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        for len in (1..=carom_limits::DESTINATION_LEN_MAX).step_by(7).chain([
            PART_LEN,
            PART_LEN + 1,
            carom_limits::DESTINATION_LEN_MAX,
        ]) {
            let target: Vec<u8> = (0..len).map(|at| b'a' + (at % 26) as u8).collect();
            one.ask(CoreId(1), question(len as u64));
            one.flush_to_peers(|_| ());
            let policy = Policy {
                status: RedirectStatus::SeeOther,
                cache_seconds: Some(9),
                valid_until_ms: Some(4_000),
                max_visits: NonZeroU32::new(5),
                ..Policy::default()
            };
            let found = Lookup::Live(Destination { policy, target: &target[..] });
            assert_eq!(two.answer_questions(&mut (), |_, _| (), |_, _, answer| found_by(answer, &found)), 1);
            two.flush_to_peers(|_| ());
            let mut seen = None;
            one.take_answers(|arrived| {
                let ReceivedMessage::Answer { token, found: Lookup::Live(Destination { policy, target }) } = arrived
                else {
                    panic!("{arrived:?}")
                };
                seen = Some((token, policy, target.to_vec()));
            });
            assert_eq!(seen, Some((len as u64, policy, target)));
        }
    }

    #[test]
    fn a_full_mesh_makes_askers_wait_and_loses_nothing() {
        let mut meshes = create_meshes(CoreCount::new(2).unwrap());
        let (mut two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        let target = vec![b'x'; carom_limits::DESTINATION_LEN_MAX];
        let (mut asked, mut answered) = (0u64, 0u64);
        while answered < 5_000 {
            let more = (asked + 700).min(5_000);
            (asked..more).for_each(|token| one.ask(CoreId(1), question(token)));
            asked = more;
            one.flush_to_peers(|_| ());
            let found = Lookup::Live(Destination { policy: Policy::default(), target: &target[..] });
            two.answer_questions(&mut (), |_, _| (), |_, _, answer| found_by(answer, &found));
            two.flush_to_peers(|_| ());
            assert!(!two.has_more(), "no question is taken whose answer may not fit");
            one.take_answers(|arrived| {
                let ReceivedMessage::Answer { token, found } = arrived else { panic!("{arrived:?}") };
                assert_eq!(token, answered);
                assert_eq!(found, Lookup::Live(Destination { policy: Policy::default(), target: &target[..] }));
                answered += 1;
            });
        }
        assert_eq!(asked, 5_000);
    }

    #[test]
    fn a_recall_comes_behind_the_answers_before_it_also_when_there_was_no_room() {
        let mut meshes = create_meshes(CoreCount::new(2).unwrap());
        let (mut two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        let link = Lookup::Live(Destination { policy: Policy::default(), target: &b"http://a/"[..] });
        let count = 2 * RING_LEN as u64;
        for number in 0..count {
            one.ask(CoreId(1), question(number));
            one.flush_to_peers(|_| ());
            two.answer_questions(&mut (), |_, _| (), |_, _, answer| found_by(answer, &link));
            two.recall(count + number, question(number).hash);
            two.flush_to_peers(|_| ());
        }
        assert!(two.has_more(), "there was no room for all of them");
        let mut seen = Vec::new();
        while seen.len() < 2 * count as usize {
            one.take_answers(|arrived| match arrived {
                ReceivedMessage::Answer { token, .. } => seen.push(token),
                ReceivedMessage::Ruled { .. } => panic!("no link has rules"),
                ReceivedMessage::Recall { owner, number, hash } => {
                    assert_eq!((owner, hash), (CoreId(1), question(number - count).hash));
                    seen.push(number);
                }
            });
            one.flush_to_peers(|_| ());
            two.answer_questions(&mut (), |_, _| (), |_, _, answer| found_by(answer, &link));
            two.flush_to_peers(|_| ());
        }
        let place = |number| seen.iter().position(|other| *other == number).unwrap();
        assert!(place(0) < place(count), "what was answered before");
        let recalls: Vec<u64> = seen.iter().copied().filter(|number| *number >= count).collect();
        assert!(recalls.is_sorted());
        assert!(recalls.len() == count as usize);
    }

    #[test]
    fn a_sleeper_is_rung_once_and_does_not_sleep_over_a_message() {
        let mut meshes = create_meshes(CoreCount::new(2).unwrap());
        let (two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        two.announce(42);
        assert!(two.fall_asleep());
        one.ask(CoreId(1), question(1));
        let mut rung = Vec::new();
        one.flush_to_peers(|ring| rung.push(ring));
        one.ask(CoreId(1), question(2));
        one.flush_to_peers(|ring| rung.push(ring));
        assert_eq!(rung, [42]);
        two.wake_up();
        assert!(!two.fall_asleep(), "there are questions");
    }
}
