//! Tests of a shared log without threads and without Redis: the entries of a stream are in memory.

use super::super::follow::{ReadyBlocks, position_of};
use super::super::outgoing::{OwnBlock, open_blocks};
use super::super::segment::take_block;
use super::super::sharing;
use super::*;
use carom_model::visits::origins::OriginId;
use carom_model::visits::shared_log::{LogEntry, LogNote, LogSpan, OriginPosition};

/// The entries of a stream, each with its identifier.
type Entries = Vec<(u64, Vec<u8>)>;

/// A shared log.
struct Log {
    shared: Arc<VisitLogState>,
    writer: VisitLogWriter,
    sender: VisitLogSender,
}

impl Log {
    fn open(node: &TestNode, dir: &Path) -> Log {
        Log::open_with(node, dir, forever())
    }

    fn open_with(node: &TestNode, dir: &Path, terms: VisitLogTerms) -> Log {
        fs::create_dir_all(dir).unwrap();
        let (shared, writer, sender) = log_in(node, dir, terms, LogSharing::Shared);
        Log { shared, writer, sender }
    }

    fn id(&self) -> OriginId {
        locked(&self.shared.state).shared_log.as_ref().unwrap().own()
    }

    /// Logs visits, each in a block of its own.
    fn visit(&mut self, number: u64, times: &[u64]) {
        for at_ms in times {
            send(&mut self.sender, Some(code(number)), *at_ms);
            self.write();
        }
    }

    fn write(&mut self) {
        self.shared.drain();
        self.writer.write();
    }

    fn seal(&mut self) {
        self.shared.wants_seal.store(true, Ordering::Release);
        self.write();
    }

    /// The own blocks, each as an entry.
    fn entries(&self) -> Entries {
        let (mut published, mut found) = (0, Vec::new());
        loop {
            let blocks = locked(&self.shared.state).outgoing.next(published);
            let Some(last) = blocks.last() else { return found };
            published = last.number;
            found.extend(blocks.iter().map(|block| (block.number, self.entry(block).encode())));
        }
    }

    fn entry(&self, block: &OwnBlock) -> LogEntry {
        let bytes = block.read(&open_blocks(&self.shared.dir, block.seq).unwrap()).unwrap();
        LogEntry { first: block.number, span: block.span, published: 0, blocks: vec![bytes] }
    }

    /// Takes what the log lacks of a stream.
    fn receive(&mut self, from: OriginId, entries: &[(u64, Vec<u8>)]) {
        let note = LogNote { number: 0, last_ms: 0, lacking: None, node: String::new() };
        self.shared.change_shared_log(|shared_log| shared_log.meet(from, &note)).unwrap();
        loop {
            let before = position_of(&self.shared, from);
            let rest = entries.iter().filter(|(last, _)| *last > before.number).cloned().collect();
            let blocks = ReadyBlocks::new(&self.shared, from, before).take(rest).unwrap();
            self.shared.sharing.inbox().blocks.extend(blocks);
            self.writer.write_received();
            if position_of(&self.shared, from) == before {
                return;
            }
        }
    }

    /// The instants of the visits of a link, newest first.
    fn times(&self, number: u64) -> Vec<u64> {
        asked(&self.shared, VisitSelection::Link { code: code(number), since_ms: 0 }, (0, usize::MAX)).0
    }

    fn is_whole(&self, from_ms: u64, to_ms: u64) -> bool {
        self.shared.sharing.set_current(unix_ms());
        self.shared.is_whole(LogSpan { from_ms, to_ms })
    }
}

/// Two logs in folders of their own, and what they need.
struct Pair {
    dir: tempfile::TempDir,
    node: TestNode,
    a: Log,
    b: Log,
}

fn pair() -> Pair {
    let dir = tempfile::tempdir().unwrap();
    let node = TestNode::new(&dir.path().join("node"), 1);
    let (a, b) = (Log::open(&node, &dir.path().join("a")), Log::open(&node, &dir.path().join("b")));
    Pair { dir, node, a, b }
}

const HOUR_MS: u64 = 3_600_000;

#[test]
fn blocks_are_taken_once_over_crashes() {
    let Pair { dir, node, mut a, mut b } = pair();
    let begun_ms = unix_ms();
    let times: Vec<u64> = (0..6).rev().map(|at| begun_ms + at).collect();
    a.visit(1, &times.iter().rev().copied().collect::<Vec<_>>());
    let entries = a.entries();
    assert_eq!(entries.len(), 6);
    b.receive(a.id(), &entries);
    b.visit(2, &[begun_ms]);
    assert_eq!((b.times(1), b.times(2)), (times.clone(), vec![begun_ms]));
    let active = fs::read(active_path(&b.shared.dir, 1)).unwrap();
    let state = fs::read(b.shared.dir.join(sharing::FILE)).unwrap();
    for len in (0..=active.len()).step_by(3) {
        let crashed = dir.path().join(format!("crash-{len}"));
        fs::create_dir_all(&crashed).unwrap();
        fs::write(active_path(&crashed, 1), &active[..len]).unwrap();
        fs::write(crashed.join(sharing::FILE), &state).unwrap();
        let mut again = Log::open(&node, &crashed);
        again.receive(a.id(), &entries);
        assert_eq!(again.times(1), times, "the first {len} bytes were on disk");
        assert_eq!(again.id(), b.id());
    }
}

#[test]
fn a_crash_while_a_segment_is_sealed_repeats_nothing() {
    let Pair { dir: _dir, node, mut a, mut b } = pair();
    let begun_ms = unix_ms();
    a.visit(1, &[begun_ms, begun_ms + 1]);
    let entries = a.entries();
    b.receive(a.id(), &entries);
    b.visit(2, &[begun_ms]);
    let folder = b.shared.dir.clone();
    let (active, state) = (fs::read(active_path(&folder, 1)).unwrap(), fs::read(folder.join(sharing::FILE)).unwrap());
    b.seal();
    assert!(!active_path(&folder, 1).exists());
    assert!(outgoing_path(&folder, 1).exists());
    // The segment is there, its positions are not, and the file that it was made of still has its name.
    fs::rename(outgoing_path(&folder, 1), active_path(&folder, 1)).unwrap();
    fs::write(folder.join(sharing::FILE), state).unwrap();
    assert_eq!(fs::read(active_path(&folder, 1)).unwrap(), active);
    let mut again = Log::open(&node, &folder);
    again.receive(a.id(), &entries);
    assert_eq!((again.times(1).len(), again.times(2).len()), (2, 1));
    assert_eq!(again.entries(), b.entries(), "its own blocks can still be published");
    // The next start knows the positions without that file.
    locked(&again.shared.state).outgoing.remove(&folder, 1).unwrap();
    let mut last = Log::open(&node, &folder);
    last.receive(a.id(), &entries);
    assert_eq!((last.times(1).len(), last.times(2).len()), (2, 1));
}

#[test]
fn nodes_list_visits_in_the_same_order() {
    let Pair { dir: _dir, node: _node, mut a, mut b } = pair();
    let begun_ms = unix_ms();
    for at in [0, 0, 3, 1] {
        a.visit(1, &[begun_ms + at, begun_ms + 7]);
        b.visit(1, &[begun_ms + at, begun_ms + 2]);
    }
    a.seal();
    let (of_a, of_b) = (a.entries(), b.entries());
    a.receive(b.id(), &of_b);
    b.receive(a.id(), &of_a);
    let listed =
        |log: &Log| page(&log.shared, VisitSelection::Link { code: code(1), since_ms: 0 }, (0, usize::MAX)).records;
    assert_eq!((listed(&a).len(), listed(&a)), (16, listed(&b)));
    b.seal();
    assert_eq!(listed(&a), listed(&b));
    assert!(a.times(1).is_sorted_by(|one, next| one >= next));
    assert!(a.is_whole(0, u64::MAX));
    assert!(b.is_whole(0, u64::MAX));
}

#[test]
fn late_visits_are_listed_between_earlier_segments() {
    let Pair { dir: _dir, node: _node, mut a, mut b } = pair();
    let now_ms = unix_ms();
    let ago = |hours: u64| now_ms - hours * HOUR_MS;
    a.visit(1, &[ago(9), ago(5), ago(1)]);
    for hours in [8, 6, 4, 2] {
        b.visit(1, &[ago(hours)]);
        b.seal();
    }
    b.receive(a.id(), &a.entries());
    b.seal();
    assert_eq!(b.times(1), [1, 2, 4, 5, 6, 8, 9].map(ago));
    let (second, total) = asked(&b.shared, VisitSelection::Link { code: code(1), since_ms: 0 }, (2, 3));
    assert_eq!((second, total), ([4, 5, 6].map(ago).to_vec(), 7));
}

#[test]
fn missing_blocks_make_their_span_incomplete() {
    let Pair { dir, node, mut a, mut b } = pair();
    let now_ms = unix_ms();
    let ago = |hours: u64| now_ms - hours * HOUR_MS;
    a.visit(1, &[ago(9), ago(7), ago(5), ago(3)]);
    let mut entries = a.entries();
    entries.drain(1..3);
    b.receive(a.id(), &entries);
    assert_eq!(b.times(1), [ago(3), ago(9)]);
    let spans = |log: &Log| {
        [(0, u64::MAX), (ago(6), ago(6)), (0, ago(10)), (ago(2), u64::MAX)].map(|of| log.is_whole(of.0, of.1))
    };
    assert_eq!(spans(&b), [false, false, true, true]);
    // A node that joins later has the stream from where it begins.
    let mut late = Log::open(&node, &dir.path().join("late"));
    late.receive(a.id(), &a.entries()[2..]);
    assert_eq!((late.times(1).len(), spans(&late)), (2, [false, false, false, true]));
    // Both know after a restart.
    assert_eq!(spans(&Log::open(&node, &b.shared.dir)), [false, false, true, true]);
}

#[test]
fn deletions_apply_to_visits_that_arrive_later() {
    let Pair { dir: _dir, node, mut a, mut b } = pair();
    let now_ms = unix_ms();
    a.visit(1, &[now_ms - 50, now_ms - 40, now_ms + 60_000]);
    a.visit(2, &[now_ms - 50]);
    let upkeep = Upkeep::new(Arc::clone(&b.shared), node.mailboxes.clone());
    let deleted = [("c1".to_owned(), now_ms)];
    assert!(locked(&b.shared.state).deletions.merge(&deleted).unwrap());
    // Its pass is over before the visits arrive.
    locked(&b.shared.state).deletions.begin_pass();
    locked(&b.shared.state).deletions.end_pass(b.shared.deletions_since_ms()).unwrap();
    b.receive(a.id(), &a.entries());
    assert_eq!((b.times(1), b.times(2)), (vec![now_ms + 60_000], vec![now_ms - 50]));
    // A purge that was over before relies on that.
    let active = fs::read(active_path(&b.shared.dir, 1)).unwrap();
    let (mut rest, mut blocks, mut written) = (&active[..], 0, Vec::new());
    while let Some(raw) = take_block(&mut rest) {
        segment::each_record(&raw, |_, visit| written.push(visit.at_ms));
        blocks += 1;
    }
    written.sort_unstable();
    assert_eq!((blocks, written), (4, vec![now_ms - 50, now_ms + 60_000]), "deleted visits never reach the disk");
    // A restart finds the positions, also of blocks without visits.
    let mut again = Log::open(&node, &b.shared.dir);
    again.receive(a.id(), &a.entries());
    assert_eq!((again.times(1).len(), again.times(2).len()), (1, 1));
    b.seal();
    upkeep.remove_old();
    assert_eq!((b.times(1).len(), b.times(2).len()), (1, 1));
    let sealed = locked(&b.shared.state).sealed[0].clone();
    let mut count = 0;
    sealed
        .each_block(None, |raw| {
            segment::each_record(&raw, |_, _| count += 1);
            true
        })
        .unwrap();
    assert_eq!(count, 2, "the deleted visits have left the disk");
}

#[test]
fn blocks_that_cannot_be_read_are_skipped_and_reported() {
    let Pair { dir: _dir, node, mut a, mut b } = pair();
    let now_ms = unix_ms();
    a.visit(1, &[now_ms - 3 * HOUR_MS, now_ms - 2 * HOUR_MS, now_ms - HOUR_MS]);
    let good = a.entries();
    let blocks = locked(&a.shared.state).outgoing.next(0);
    let with_block = |block: Vec<u8>| {
        let entry = LogEntry { blocks: vec![block], ..a.entry(&blocks[1]) };
        vec![good[0].clone(), (2, entry.encode()), good[2].clone()]
    };
    let own = a.entry(&blocks[1]).blocks.remove(0);
    let mut damaged = own.clone();
    *damaged.last_mut().unwrap() ^= 1;
    // A block of another number, one with records of a later version, and one without a mark.
    let other = a.entry(&blocks[0]).blocks.remove(0);
    let raw = take_block(&mut &own[..]).unwrap();
    let (mut later, mut bare) = (Vec::new(), Vec::new());
    push_block(&[&[9, 0, 255][..], &raw[..]].concat(), &mut later);
    push_block(&raw[..raw.len() - 19], &mut bare);
    for (at, block) in [damaged, other, later, bare].into_iter().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = Log::open(&node, dir.path());
        log.receive(a.id(), &with_block(block));
        assert_eq!(log.times(1), [now_ms - HOUR_MS, now_ms - 3 * HOUR_MS], "{at}");
        assert!(!log.is_whole(now_ms - 2 * HOUR_MS, u64::MAX), "{at}");
        assert!(log.is_whole(now_ms, u64::MAX), "{at}");
        assert_eq!(position_of(&log.shared, a.id()).number, 3);
    }
    assert_eq!(node.stats.visit_log.unread.get(), 4);
    // An entry whose checksum is wrong may have visits up to now.
    let mut entries = good;
    entries[1].1[3] ^= 1;
    b.receive(a.id(), &entries);
    assert_eq!((b.times(1).len(), b.is_whole(now_ms - HOUR_MS, u64::MAX)), (2, false));
}

#[test]
fn visits_of_other_nodes_are_kept_no_longer_than_own() {
    let Pair { dir, node, mut a, b: _b } = pair();
    let now_ms = unix_ms();
    a.visit(1, &[now_ms - 9 * DAY_MS, now_ms - 8 * DAY_MS, now_ms - DAY_MS]);
    let keep = Some(Duration::from_millis(5 * DAY_MS));
    let mut log = Log::open_with(&node, &dir.path().join("c"), VisitLogTerms { keep, ..forever() });
    for entry in a.entries() {
        log.receive(a.id(), &[entry]);
        log.seal();
    }
    let upkeep = Upkeep::new(Arc::clone(&log.shared), node.mailboxes.clone());
    upkeep.remove_old();
    assert_eq!(log.times(1), [now_ms - DAY_MS]);
    assert!(log.is_whole(0, u64::MAX), "all nodes remove visits of that age");
    let folder = log.shared.dir.clone();
    drop(log);
    let log = Log::open_with(&node, &folder, VisitLogTerms { keep_bytes: 1, ..forever() });
    Upkeep::new(Arc::clone(&log.shared), node.mailboxes).remove_old();
    assert_eq!(log.times(1), [] as [u64; 0]);
    assert!(!log.is_whole(0, u64::MAX), "another node may still list them");
    assert!(log.is_whole(now_ms, u64::MAX));
}

#[test]
fn older_copy_of_a_log_continues_under_another_identity() {
    let Pair { dir, node, mut a, mut b } = pair();
    let begun_ms = unix_ms();
    a.visit(1, &[begun_ms, begun_ms + 1]);
    let copy = dir.path().join("copy");
    fs::create_dir_all(&copy).unwrap();
    for name in [active_path(Path::new(""), 1), sharing::FILE.into()] {
        fs::copy(a.shared.dir.join(&name), copy.join(&name)).unwrap();
    }
    a.visit(1, &[begun_ms + 2]);
    let (former, entries) = (a.id(), a.entries());
    let mut older = Log::open(&node, &copy);
    assert_eq!(older.id(), former);
    older.shared.renew_log(OriginId(77), OriginPosition { number: 2, last_ms: begun_ms + 1 }).unwrap();
    older.receive(former, &entries);
    older.visit(1, &[begun_ms + 3]);
    assert_eq!(older.times(1), [3, 2, 1, 0].map(|at| begun_ms + at));
    b.receive(former, &entries);
    b.receive(older.id(), &older.entries());
    assert_eq!((older.id(), b.times(1)), (OriginId(77), older.times(1)));
}

#[test]
fn visits_of_an_older_version_give_another_identity() {
    let Pair { dir: _dir, node, mut a, b: _b } = pair();
    let now_ms = unix_ms();
    a.visit(1, &[now_ms]);
    let (former, folder, entries) = (a.id(), a.shared.dir.clone(), a.entries());
    // An older version appends blocks without marks.
    let own = locked(&a.shared.state).outgoing.next(0);
    let raw = take_block(&mut &a.entry(&own[0]).blocks[0][..]).unwrap();
    let mut block = Vec::new();
    push_block(&raw[..raw.len() - 19], &mut block);
    let mut active = OpenOptions::new().append(true).open(active_path(&folder, 1)).unwrap();
    active.write_all(&block).unwrap();
    let mut again = Log::open(&node, &folder);
    let lacking = locked(&again.shared.state).shared_log.as_ref().unwrap().lacking().unwrap();
    assert!(again.id() != former);
    assert!(lacking.touches(LogSpan { from_ms: now_ms, to_ms: now_ms }));
    assert!(again.entries().is_empty(), "other nodes note a gap instead");
    again.receive(former, &entries);
    assert_eq!(again.times(1), [now_ms, now_ms]);
    assert_eq!(Log::open(&node, &folder).id(), again.id());
}
