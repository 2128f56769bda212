//! The mesh: look-ups between cores of one node.
//!
//! For each ordered pair of cores there are two bounded single-producer single-consumer rings of small `Copy` messages:
//! questions, and answers to them. They are filled during one turn of a core's loop and drained in the peer's next.
//! A peer that sleeps is rung once; it says that it sleeps before it looks for the last time, so no message is missed.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, fence};

use carom_shards::{Code, CodeHash, CoreCount, CoreId, Policy, RedirectStatus};
use heapless::spsc::{Consumer, Producer, Queue};

use crate::wire::answer::{Found, cache_seconds};

/// Messages between two cores in one direction. A full ring makes the asker wait, so it is sized for all connections of
/// a busy turn.
const RING_LEN: usize = 1_024;

/// Questions whose cache misses overlap. More would not all be in flight at once.
const QUESTIONS_TOGETHER: usize = 16;

/// Bytes of a target that one answer carries: most URLs fit one message of three cache lines.
const PART_LEN: usize = 168;

/// Messages that the longest target takes.
const PARTS_MAX: usize = crate::limits::TARGET_LEN_MAX.div_ceil(PART_LEN);

/// A question for a code that the peer owns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    /// Comes back with the answer.
    pub(super) token: u64,
    pub(super) hash: CodeHash,
    pub(super) code: Code,
}

/// What was found, without its target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Link,
    Missing,
    Gone,
    Damaged,
}

/// An answer, or a further part of one: the parts of an answer follow each other.
#[derive(Clone, Copy, Debug)]
struct Part {
    token: u64,
    /// Already shortened to what is left of the link's life.
    cache_seconds: Option<u32>,
    status: RedirectStatus,
    kind: Kind,
    /// Bytes of the target that are still to come, this part included.
    left: u16,
    bytes: [u8; PART_LEN],
}

/// One core's four ends of the rings that it shares with a peer.
struct Peer {
    ask: Producer<'static, Question>,
    asked: Consumer<'static, Question>,
    answer: Producer<'static, Part>,
    answered: Consumer<'static, Part>,
    /// The parts of an answer that have arrived.
    target: Vec<u8>,
    /// Whether something was left for the peer in this turn.
    is_due: bool,
}

/// What all cores see of each other.
#[derive(Debug)]
pub(super) struct Presence {
    /// Whether a core sleeps, or is about to.
    sleeping: Vec<Padded<AtomicBool>>,
    /// Each core's ring, or -1 before it has one.
    rings: Vec<AtomicI32>,
    /// Cores whose connections are not finished yet.
    open: AtomicUsize,
}

/// Keeps neighbours out of one cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// One core's place in the mesh.
pub(super) struct Mesh {
    me: CoreId,
    peers: Vec<Option<Peer>>,
    presence: Arc<Presence>,
}

/// The places of all cores, in order.
pub(super) fn weave(cores: CoreCount) -> Vec<Mesh> {
    let presence = Arc::new(Presence {
        sleeping: cores.cores().map(|_| Padded::default()).collect(),
        rings: cores.cores().map(|_| AtomicI32::new(-1)).collect(),
        open: AtomicUsize::new(cores.get()),
    });
    let mut meshes: Vec<Mesh> = cores
        .cores()
        .map(|me| Mesh { me, peers: cores.cores().map(|_| None).collect(), presence: Arc::clone(&presence) })
        .collect();
    for one in 0..cores.get() {
        for other in one + 1..cores.get() {
            let (ask_other, asked_by_one) = ring();
            let (ask_one, asked_by_other) = ring();
            let (answer_other, answered_by_one) = ring();
            let (answer_one, answered_by_other) = ring();
            meshes[one].peers[other] = Some(Peer::new(ask_other, asked_by_other, answer_other, answered_by_other));
            meshes[other].peers[one] = Some(Peer::new(ask_one, asked_by_one, answer_one, answered_by_one));
        }
    }
    meshes
}

/// A ring that lives as long as the process, as its cores do.
fn ring<T>() -> (Producer<'static, T>, Consumer<'static, T>) {
    Box::leak(Box::new(Queue::<T, RING_LEN>::new())).split()
}

impl Peer {
    fn new(
        ask: Producer<'static, Question>,
        asked: Consumer<'static, Question>,
        answer: Producer<'static, Part>,
        answered: Consumer<'static, Part>,
    ) -> Peer {
        Peer { ask, asked, answer, answered, target: Vec::new(), is_due: false }
    }

    fn answer_with(&mut self, token: u64, found: &Found<'_>, now_ms: u64) {
        let (kind, policy, target) = match *found {
            Found::Link { policy, target } => (Kind::Link, policy, target),
            Found::Missing => (Kind::Missing, Policy::default(), &[][..]),
            Found::Gone => (Kind::Gone, Policy::default(), &[][..]),
            Found::Damaged => (Kind::Damaged, Policy::default(), &[][..]),
        };
        let cache_seconds = policy.cache_seconds.map(|_| cache_seconds(&policy, now_ms));
        let mut left = target;
        loop {
            let (now, later) = left.split_at(left.len().min(PART_LEN));
            let mut part = Part {
                token,
                cache_seconds,
                status: policy.status,
                kind,
                left: left.len() as u16,
                bytes: [0; PART_LEN],
            };
            part.bytes[..now.len()].copy_from_slice(now);
            assert!(self.answer.enqueue(part).is_ok(), "room was checked before the question was taken");
            left = later;
            if left.is_empty() {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Mesh {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mesh(core {} of {})", self.me, self.peers.len())
    }
}

impl Mesh {
    /// Asks the owner of a code.
    ///
    /// # Errors
    /// The question, when the owner has too many: ask again in the next turn.
    pub(super) fn ask(&mut self, owner: CoreId, question: Question) -> Result<(), Question> {
        let peer = self.peers[owner.index()].as_mut().expect("a core does not ask itself");
        peer.ask.enqueue(question)?;
        peer.is_due = true;
        Ok(())
    }

    /// Answers the questions of all peers through `find`, as far as there is room for the answers; `foresee` sees some
    /// before they are answered one by one. Returns how many.
    pub(super) fn answer_questions(
        &mut self,
        now_ms: u64,
        mut foresee: impl FnMut(&[Question]),
        mut find: impl FnMut(&Question, &mut dyn FnMut(&Found<'_>)),
    ) -> usize {
        let mut answered = 0;
        for peer in self.peers.iter_mut().flatten() {
            loop {
                let room = (peer.answer.capacity() - peer.answer.len()) / PARTS_MAX;
                let next = std::iter::from_fn(|| peer.asked.dequeue());
                let questions: heapless::Vec<Question, QUESTIONS_TOGETHER> =
                    next.take(room.min(QUESTIONS_TOGETHER)).collect();
                if questions.is_empty() {
                    break;
                }
                foresee(&questions);
                for question in &questions {
                    find(question, &mut |found| peer.answer_with(question.token, found, now_ms));
                }
                peer.is_due = true;
                answered += questions.len();
            }
        }
        answered
    }

    /// Gives each whole answer that has arrived to `take`, with its token. Returns how many.
    pub(super) fn take_answers(&mut self, mut take: impl FnMut(u64, Found<'_>)) -> usize {
        let mut taken = 0;
        for peer in self.peers.iter_mut().flatten() {
            while let Some(part) = peer.answered.dequeue() {
                let here = usize::from(part.left).min(PART_LEN);
                let is_last = usize::from(part.left) <= PART_LEN;
                if !is_last || !peer.target.is_empty() {
                    peer.target.extend_from_slice(&part.bytes[..here]);
                }
                if !is_last {
                    continue;
                }
                let target = if peer.target.is_empty() { &part.bytes[..here] } else { &peer.target[..] };
                let policy = Policy { status: part.status, cache_seconds: part.cache_seconds, valid_until_ms: None };
                take(
                    part.token,
                    match part.kind {
                        Kind::Link => Found::Link { policy, target },
                        Kind::Missing => Found::Missing,
                        Kind::Gone => Found::Gone,
                        Kind::Damaged => Found::Damaged,
                    },
                );
                peer.target.clear();
                taken += 1;
            }
        }
        taken
    }

    /// Gives the ring of each peer that sleeps, and for which something was left in this turn, to `ring`.
    pub(super) fn ring_sleepers(&mut self, mut ring: impl FnMut(RawFd)) {
        let due = self.peers.iter_mut().enumerate().filter_map(|(index, peer)| {
            peer.as_mut().is_some_and(|peer| std::mem::take(&mut peer.is_due)).then_some(index)
        });
        let mut fenced = false;
        for index in due {
            if !fenced {
                // Pairs with the fence in `fall_asleep`: either we see its flag, or it sees our messages.
                fence(Ordering::SeqCst);
                fenced = true;
            }
            if self.presence.sleeping[index].0.load(Ordering::Relaxed)
                && self.presence.sleeping[index].0.swap(false, Ordering::AcqRel)
            {
                ring(self.presence.rings[index].load(Ordering::Acquire));
            }
        }
    }

    /// Tells the peers which ring to ring.
    pub(super) fn announce(&self, ring: RawFd) {
        self.presence.rings[self.me.index()].store(ring, Ordering::Release);
    }

    /// Says that this core is about to sleep. Returns whether it may: nothing has been left for it.
    pub(super) fn fall_asleep(&self) -> bool {
        self.presence.sleeping[self.me.index()].0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        !self.has_mail()
    }

    /// Says that this core is awake again.
    pub(super) fn wake_up(&self) {
        self.presence.sleeping[self.me.index()].0.store(false, Ordering::Relaxed);
    }

    fn has_mail(&self) -> bool {
        self.peers.iter().flatten().any(|peer| peer.asked.ready() || peer.answered.ready())
    }

    /// Says that this core has no connections left in a drain; its links are still there for the others. Returns whether
    /// it was the last.
    pub(super) fn finish(&self) -> bool {
        self.presence.open.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether every core has finished.
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

    #[test]
    fn targets_of_every_length_cross_whole() {
        let mut meshes = weave(CoreCount::new(2).unwrap());
        let (mut two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        for len in (1..=crate::limits::TARGET_LEN_MAX).step_by(7).chain([
            PART_LEN,
            PART_LEN + 1,
            crate::limits::TARGET_LEN_MAX,
        ]) {
            let target: Vec<u8> = (0..len).map(|at| b'a' + (at % 26) as u8).collect();
            one.ask(CoreId(1), question(len as u64)).unwrap();
            let policy =
                Policy { status: RedirectStatus::SeeOther, cache_seconds: Some(9), valid_until_ms: Some(4_000) };
            let found = Found::Link { policy, target: &target };
            assert_eq!(two.answer_questions(1_000, |_| (), |_, answer| answer(&found)), 1);
            let mut seen = None;
            one.take_answers(|token, found| {
                let Found::Link { policy, target } = found else { panic!("{found:?}") };
                seen = Some((token, policy.status, policy.cache_seconds, target.to_vec()));
            });
            assert_eq!(seen, Some((len as u64, RedirectStatus::SeeOther, Some(3), target)));
        }
    }

    #[test]
    fn a_full_mesh_makes_askers_wait_and_loses_nothing() {
        let mut meshes = weave(CoreCount::new(2).unwrap());
        let (mut two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        let target = vec![b'x'; crate::limits::TARGET_LEN_MAX];
        let (mut asked, mut answered) = (0u64, 0u64);
        while answered < 5_000 {
            while asked < 5_000 && one.ask(CoreId(1), question(asked)).is_ok() {
                asked += 1;
            }
            two.answer_questions(
                0,
                |_| (),
                |_, answer| answer(&Found::Link { policy: Policy::default(), target: &target }),
            );
            one.take_answers(|token, found| {
                assert_eq!(token, answered);
                assert_eq!(found, Found::Link { policy: Policy::default(), target: &target });
                answered += 1;
            });
        }
        assert_eq!(asked, 5_000);
    }

    #[test]
    fn a_sleeper_is_rung_once_and_does_not_sleep_over_a_message() {
        let mut meshes = weave(CoreCount::new(2).unwrap());
        let (two, mut one) = (meshes.pop().unwrap(), meshes.pop().unwrap());
        two.announce(42);
        assert!(two.fall_asleep());
        one.ask(CoreId(1), question(1)).unwrap();
        let mut rung = Vec::new();
        one.ring_sleepers(|ring| rung.push(ring));
        one.ask(CoreId(1), question(2)).unwrap();
        one.ring_sleepers(|ring| rung.push(ring));
        assert_eq!(rung, [42]);
        two.wake_up();
        assert!(!two.fall_asleep(), "there are questions");
    }
}
