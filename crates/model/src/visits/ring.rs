//! The ring in which one core reports visits: words of eight bytes, of which nearly every visit takes one.
//!
//! A visit without a referrer, to a generated code of up to nine characters, is the number of the code with one bit for
//! bots. Any other visit begins with a *head*, which no such number equals, followed by code and host. So the ring of a
//! core stays in its CPU cache.

use std::sync::atomic::{Ordering, fence};

use carom_shards::code::CODE_LEN_MAX;
use carom_shards::{Code, DomainId, GeneratedCode};
use heapless::spsc::{Consumer, Producer, Queue};

use super::visit::{HOST_LEN_MAX, RecordOutcome, Visit, Visitor};

/// Words of a ring. The counting thread drains it ten to fifty times a second; the words exceed what a core can answer
/// in between several times.
const RING_LEN: usize = 32_768;

/// Words that visits with referrers may fill. The rest of the ring is for visits without: a client that invents long
/// referrers cannot cause drops of other visits.
const REFERRER_WORDS: usize = RING_LEN / 2;

/// Longest code, in characters, whose number leaves room for the bot bit.
const SHORT_LEN_MAX: usize = 9;

/// The bot bit in the word of a short code. Nine characters take the 54 bits below, and the length the upper four.
const BOT: u64 = 1 << 59;

/// The upper four bits of a head. No short code has such a length.
const HEAD: u64 = 15 << 60;

/// Bytes of a word.
const WORD: usize = 8;

/// Words of the longest record.
const WORDS_MAX: usize = 2 + (CODE_LEN_MAX * 6 / 8).div_ceil(WORD) + HOST_LEN_MAX.div_ceil(WORD);

/// Flag in a head that is followed by a word with the domain of the code.
const IN_DOMAIN: u64 = 1 << 1;

/// The core's end of a ring.
pub(super) struct RingSender(Producer<'static, u64>);

/// The counting thread's end of a ring.
pub struct VisitReceiver(Consumer<'static, u64>);

impl std::fmt::Debug for VisitReceiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VisitReceiver")
    }
}

/// Creates a ring that lives as long as the process, as its cores do.
pub(super) fn ring() -> (RingSender, VisitReceiver) {
    let (sender, receiver) = Box::leak(Box::new(Queue::<u64, RING_LEN>::new())).split();
    (RingSender(sender), VisitReceiver(receiver))
}

/// Encodes a visit as a single word, if possible.
#[inline]
fn short(visit: &Visit) -> Option<u64> {
    let code = visit.code.as_ref().filter(|code| code.sextets() <= SHORT_LEN_MAX && visit.visitor.host_len == 0)?;
    let bits = GeneratedCode::from_code(code)?.to_bits();
    Some(if visit.visitor.is_bot { bits | BOT } else { bits })
}

/// Returns the lengths in a head, of the code in units and the host in bytes, and true for a bot.
fn read_head(head: u64) -> (usize, usize, bool) {
    ((head >> 8 & 0xff) as usize, (head >> 16 & 0xff) as usize, head & 1 == 1)
}

/// Returns the number of words that follow a head.
fn words_behind(head: u64) -> usize {
    let (code_len, host_len, _) = read_head(head);
    let domain = usize::from(head & IN_DOMAIN != 0);
    domain + (code_len * 6).div_ceil(8).div_ceil(WORD) + host_len.div_ceil(WORD)
}

impl RingSender {
    /// Reports a visit, without its referrer if the part for referrers is full.
    #[inline]
    pub(super) fn record(&mut self, visit: &Visit) -> RecordOutcome {
        match short(visit) {
            Some(word) if self.0.enqueue(word).is_ok() => RecordOutcome::Whole,
            Some(_) => RecordOutcome::Nothing,
            None if visit.visitor.host_len > 0 && self.0.len() > REFERRER_WORDS => {
                let visitor = Visitor { host_len: 0, ..visit.visitor };
                match self.record(&Visit { visitor, ..*visit }) {
                    RecordOutcome::Whole => RecordOutcome::WithoutReferrer,
                    told => told,
                }
            }
            None if self.record_long(visit) => RecordOutcome::Whole,
            None => RecordOutcome::Nothing,
        }
    }

    fn record_long(&mut self, visit: &Visit) -> bool {
        let Visitor { is_bot, host_len, .. } = visit.visitor;
        let code_len = visit.code.map_or(0, |code| code.sextets());
        let domain = visit.code.and_then(|code| code.domain()).map(DomainId::to_bytes);
        let in_domain = if domain.is_some() { IN_DOMAIN } else { 0 };
        let head = HEAD | u64::from(host_len) << 16 | (code_len as u64) << 8 | in_domain | u64::from(is_bot);
        if self.0.capacity() - self.0.len() < 1 + words_behind(head) {
            return false;
        }
        debug_assert!(words_behind(head) < WORDS_MAX, "the counting thread has no room for the record");
        let mut put = |word| self.0.enqueue(word).expect("room was found");
        put(head);
        let packed = visit.code.as_ref().map_or(&[][..], Code::packed);
        let domain = domain.as_ref().map_or(&[][..], |id| id);
        for bytes in domain.chunks(WORD).chain(packed.chunks(WORD)).chain(visit.visitor.host().chunks(WORD)) {
            let mut word = [0; WORD];
            word[..bytes.len()].copy_from_slice(bytes);
            put(u64::from_le_bytes(word));
        }
        true
    }
}

impl VisitReceiver {
    /// Passes the visits of the ring to `take`, and returns their number. Visits that arrive meanwhile wait for the
    /// next call.
    pub fn drain(&mut self, mut take: impl FnMut(&Visit)) -> usize {
        let (mut words, mut found) = (self.0.len(), 0);
        // The length alone does not order the words before it; neither does `peek`.
        fence(Ordering::Acquire);
        while words > 0
            && let Some(&head) = self.0.peek()
        {
            let len = 1 + if head & HEAD == HEAD { words_behind(head) } else { 0 };
            // The rest of the last record may still be on its way.
            if words < len {
                break;
            }
            let mut record = [0; WORDS_MAX];
            record[..len].iter_mut().for_each(|word| *word = self.0.dequeue().unwrap_or_default());
            read(&record[..len]).iter().for_each(&mut take);
            (words, found) = (words - len, found + 1);
        }
        found
    }
}

/// Decodes a record.
fn read(record: &[u64]) -> Option<Visit> {
    let (&head, rest) = record.split_first()?;
    let mut visitor = Visitor { is_bot: head & BOT != 0, host_len: 0, host: [0; HOST_LEN_MAX] };
    if head & HEAD != HEAD {
        return Some(Visit { code: Some(GeneratedCode::from_bits(head & !BOT)?.to_code()), visitor });
    }
    let (code_len, host_len, is_bot) = read_head(head);
    let (domain, rest) = match head & IN_DOMAIN {
        0 => (None, rest),
        _ => rest.split_first().map(|(word, rest)| (word.to_le_bytes().first_chunk().copied(), rest))?,
    };
    let mut bytes = [0; WORDS_MAX * WORD];
    bytes.chunks_exact_mut(WORD).zip(rest).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    let packed_len = (code_len * 6).div_ceil(8);
    let code = if code_len == 0 { None } else { Some(Code::from_packed(code_len, bytes.get(..packed_len)?)?) };
    let code = code.map(|code| code.within(domain.and_then(DomainId::from_bytes)));
    let host = bytes.get(packed_len.next_multiple_of(WORD)..)?.get(..host_len)?;
    visitor.host.get_mut(..host_len)?.copy_from_slice(host);
    (visitor.is_bot, visitor.host_len) = (is_bot, host_len as u8);
    Some(Visit { code, visitor })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Codes that begin with a capital letter belong to another domain.
    fn visit(code: &str, is_bot: bool, host: &str) -> Visit {
        let mut visitor = Visitor { is_bot, host_len: host.len() as u8, host: [0; HOST_LEN_MAX] };
        visitor.host[..host.len()].copy_from_slice(host.as_bytes());
        let domain =
            code.bytes().next().filter(u8::is_ascii_uppercase).and_then(|first| DomainId::from_bytes([first; 6]));
        Visit { code: Code::parse(code.as_bytes()).ok().map(|code| code.within(domain)), visitor }
    }

    proptest! {
        #[test]
        fn what_is_told_is_heard_in_order(
            told in proptest::collection::vec(("[0-9A-Za-z_-]{0,11}|[0-9A-Za-z_-]{12,64}", any::<bool>(), "|[a-z.]{1,60}"), 0..40),
        ) {
            let visits: Vec<Visit> = told.iter().map(|(code, is_bot, host)| visit(code, *is_bot, host)).collect();
            let (mut sender, mut receiver) = ring();
            prop_assert!(visits.iter().all(|visit| sender.record(visit) == RecordOutcome::Whole));
            let mut heard = Vec::new();
            prop_assert_eq!(receiver.drain(|visit| heard.push(*visit)), visits.len());
            prop_assert_eq!(heard, visits);
            prop_assert_eq!(receiver.drain(|_| ()), 0);
        }
    }

    #[test]
    fn most_visits_take_one_word() {
        assert!(short(&visit("aZ09bcd", true, "")).is_some());
        assert!(short(&visit("123456789", false, "")).is_some());
        for longer in
            [visit("1234567890", false, ""), visit("a_b", false, ""), visit("", true, ""), visit("abc", false, "a")]
        {
            assert_eq!(short(&longer), None);
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_by_halves() {
        let long = visit("a-slug-of-more-than-ten-letters", true, "");
        let (mut sender, mut receiver) = ring();
        let mut told = 0;
        while sender.record(&long) == RecordOutcome::Whole {
            told += 1;
        }
        assert_eq!(told, (RING_LEN - 1) / 4);
        while sender.record(&visit("abc", false, "")) == RecordOutcome::Whole {
            told += 1;
        }
        let mut heard = 0;
        assert_eq!(receiver.drain(|visit| heard += usize::from(*visit == long)), told);
        assert_eq!(heard, (RING_LEN - 1) / 4);
        assert_eq!(sender.record(&long), RecordOutcome::Whole);
    }

    #[test]
    fn long_referrers_leave_half_of_a_ring_to_others() {
        let long = visit("abc", false, &"x".repeat(HOST_LEN_MAX));
        let (mut sender, mut receiver) = ring();
        let told: Vec<RecordOutcome> = (0..12_000).map(|_| sender.record(&long)).collect();
        let whole = told.iter().filter(|told| **told == RecordOutcome::Whole).count();
        assert!(whole > 1_500, "{whole}");
        assert!(whole * 10 <= REFERRER_WORDS + 10, "{whole}");
        assert!(!told.contains(&RecordOutcome::Nothing), "visits are counted without their referrers");
        assert_eq!(sender.record(&visit("other", false, "")), RecordOutcome::Whole);
        let mut with_referrer = 0;
        let found = receiver.drain(|visit| with_referrer += usize::from(!visit.visitor.host().is_empty()));
        assert_eq!((found, with_referrer), (12_001, whole));
    }

    #[test]
    fn a_record_whose_end_is_not_there_waits() {
        let (mut sender, mut receiver) = ring();
        let long = visit("abc", false, "news.example.org");
        assert_eq!([sender.record(&visit("abc", true, "")), sender.record(&long)], [RecordOutcome::Whole; 2]);
        let mut words: Vec<u64> = std::iter::from_fn(|| receiver.0.dequeue()).collect();
        let last = words.pop().unwrap();
        words.iter().for_each(|word| sender.0.enqueue(*word).unwrap());
        assert_eq!(receiver.drain(|_| ()), 1);
        assert_eq!(receiver.drain(|_| ()), 0);
        sender.0.enqueue(last).unwrap();
        assert_eq!(receiver.drain(|visit| assert_eq!(*visit, long)), 1);
    }
}
