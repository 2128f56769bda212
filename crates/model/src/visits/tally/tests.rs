//! Tests of tallies.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn any_subject() -> impl Strategy<Value = Subject> {
    let code = "[0-9A-Za-z_-]{1,3}|[0-9A-Za-z_-]{9,12}|[0-9A-Za-z_-]{64}";
    let domain = proptest::option::weighted(0.2, 1u8..3).prop_map(|id| DomainId::from_bytes([id?; 6]));
    let link =
        (code, domain).prop_map(|(code, domain)| Subject::Link(Code::parse(code.as_bytes()).unwrap().within(domain)));
    prop_oneof![8 => link, 1 => Just(Subject::All), 1 => Just(Subject::Orphans)]
}

fn any_visit() -> impl Strategy<Value = (Subject, bool, String)> {
    (any_subject(), any::<bool>(), "|a|b|example.org")
}

/// Counts the same visits in the simplest way.
fn model(visits: &[(Subject, bool, String)]) -> BTreeMap<Subject, TallyRow> {
    let mut rows: BTreeMap<Subject, TallyRow> = BTreeMap::new();
    for (subject, is_bot, host) in visits {
        rows.entry(*subject).or_default().add(&TallyRow::of_visit(*is_bot, host.as_bytes()));
    }
    rows.values_mut().for_each(TallyRow::sort_hosts);
    rows
}

fn rows(tally: &Tally) -> BTreeMap<Subject, TallyRow> {
    let row = |subject: Subject| {
        let mut row = tally.row(&subject);
        row.sort_hosts();
        (subject, row)
    };
    let subjects: Vec<Subject> = tally.subjects().collect();
    let mut given = 0;
    tally.each(|subject, row| {
        given += 1;
        assert_eq!(*row, tally.row(&subject));
    });
    assert_eq!(given, subjects.len());
    let rows: BTreeMap<Subject, TallyRow> = subjects.iter().copied().map(row).collect();
    assert_eq!(rows.len(), subjects.len(), "each stands there once");
    rows
}

proptest! {
    #[test]
    fn all_visits_are_counted_once(
        visits in proptest::collection::vec(any_visit(), 0..100),
        at in any::<proptest::sample::Index>(),
    ) {
        let (first, second) = visits.split_at(if visits.is_empty() { 0 } else { at.index(visits.len()) });
        let count = |visits: &[(Subject, bool, String)]| {
            let mut tally = Tally::default();
            visits.iter().for_each(|(subject, is_bot, host)| tally.add_visit(*subject, *is_bot, host.as_bytes()));
            tally
        };
        let mut both = count(first);
        both.add(&count(second));
        prop_assert_eq!(rows(&both), model(&visits));
        prop_assert_eq!(rows(&count(&visits)), model(&visits));
        for (subject, row) in model(&visits) {
            prop_assert_eq!(Subject::of_name(&subject.name()), Some(subject));
            let mut bytes = Vec::new();
            row.encode(&mut bytes);
            prop_assert_eq!(TallyRow::decode(&mut &bytes[..]), Some(row));
            both.remove(&subject);
            prop_assert_eq!(both.row(&subject), TallyRow::default());
            prop_assert_eq!(both.weight(), counted_weight(&both));
        }
        prop_assert!(both.is_empty());
        prop_assert!(both.weight() == 0);
    }

    #[test]
    fn decoding_is_total(bytes in any::<Vec<u8>>()) {
        let _ = TallyRow::decode(&mut &bytes[..]);
    }
}

#[test]
fn the_rarest_hosts_are_forgotten() {
    let mut row = TallyRow::default();
    for number in 0..10_000 {
        row.add(&TallyRow::of_visit(false, b"often.example"));
        row.add(&TallyRow::of_visit(false, format!("{number}.example").as_bytes()));
        assert!(row.hosts.len() <= ALL_HOSTS_HELD);
    }
    let mut bytes = Vec::new();
    row.encode(&mut bytes);
    let row = TallyRow::decode(&mut &bytes[..]).unwrap();
    assert_eq!((row.counts.total, row.hosts.len()), (20_000, REFERRERS_STORED_MAX));
    assert_eq!(row.hosts[0], (b"often.example"[..].into(), 10_000));
}

/// Recomputes the memory of a tally.
fn counted_weight(tally: &Tally) -> usize {
    let hosts = tally.all_held().flat_map(|(_, held)| held.hosts.keys());
    SHORT_BYTES * tally.short.len() + HELD_BYTES * tally.held.len() + hosts.map(|host| bytes_of(host)).sum::<usize>()
}

#[test]
fn referrers_weigh_what_they_take() {
    let mut tally = Tally::default();
    let codes: Vec<Code> = (0..100).map(|at| Code::parse(format!("a{at:06}").as_bytes()).unwrap()).collect();
    let host = |at: usize| format!("{at:-^48}.example");
    for at in 0..400 {
        for code in &codes {
            tally.add_visit(Subject::Link(*code), false, host(at).as_bytes());
        }
    }
    let kept: usize = codes.iter().map(|code| tally.row(&Subject::Link(*code)).hosts.len()).sum();
    assert!(kept >= 9_600, "{kept} hosts of 100 links");
    assert!(tally.weight() >= kept * host(0).len(), "{} for {kept} hosts", tally.weight());
    // A link has less room than all links together.
    assert!(kept <= 100 * LINK_HOSTS_HELD);
    let mut all = Tally::default();
    (0..400).for_each(|at| all.add_visit(Subject::All, false, host(at).as_bytes()));
    assert_eq!(all.row(&Subject::All).hosts.len(), ALL_HOSTS_HELD);
    assert_eq!(tally.weight(), counted_weight(&tally));
    codes.iter().for_each(|code| tally.remove(&Subject::Link(*code)));
    assert_eq!(tally.weight(), 0);
}

#[test]
fn the_rarest_hosts_of_a_link_are_forgotten() {
    let mut tally = Tally::default();
    let subject = Subject::Link(Code::parse(b"abc").unwrap());
    for at in 0..1_000 {
        tally.add_visit(subject, false, b"often.example");
        tally.add_visit(subject, false, b"also.example");
        tally.add_visit(subject, false, format!("{at}.example").as_bytes());
    }
    let mut row = tally.row(&subject);
    row.sort_hosts();
    assert_eq!(row.counts.total, 3_000);
    assert!(row.hosts.len() <= LINK_HOSTS_HELD);
    assert_eq!(row.hosts[..2], [(b"also.example"[..].into(), 1_000), (b"often.example"[..].into(), 1_000)]);
}
