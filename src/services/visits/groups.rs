//! Visits by app and by domain, as [`VisitGroup`]s.
//!
//! A visit has a code, and with it the domain. The app is only in the link's record. It is looked up once for each link
//! that was visited in an hour. That happens when the rows of the hour are written to the store, which reads their
//! neighbours anyway. For visits that are not stored yet, apps are looked up on demand, up to a bound.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use carom_model::link::record::{self, RecordRef};
use carom_model::visits::tally::{Tally, VisitCounts, VisitGroup};
use carom_store::links::Links;

/// Largest number of links that one answer looks up.
const LOOKED_UP_MAX: usize = 50_000;

/// Longest time for the look-ups of one answer.
const LOOK_UP_TIME_MAX: Duration = Duration::from_millis(200);

/// The apps that own some links. Links without an app are missing.
#[derive(Debug, Default)]
pub(super) struct Apps(HashMap<Code, Box<str>>);

impl Apps {
    /// Looks up links in a store; `None` if that takes longer than `until`. An unreadable link has no app here; a
    /// request for the link itself reports the damage.
    pub(super) fn look_up(
        links: &Links,
        codes: impl IntoIterator<Item = Code>,
        until: Option<Instant>,
    ) -> Option<Apps> {
        let mut apps = HashMap::new();
        for code in codes {
            if until.is_some_and(|until| Instant::now() > until) {
                return None;
            }
            let Ok(Some(stored)) = links.get(&code) else { continue };
            if let Ok(RecordRef::Link(link)) = record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored)
                && let Some(app) = link.app
            {
                apps.insert(code, app.into());
            }
        }
        Some(Apps(apps))
    }

    /// Returns the groups that a link belongs to.
    pub(super) fn groups_of(&self, code: &Code) -> impl Iterator<Item = VisitGroup> {
        let domain = code.domain().map(VisitGroup::Domain);
        self.0.get(code).cloned().map(VisitGroup::App).into_iter().chain(domain)
    }
}

/// Visits that are not in the store yet.
#[derive(Debug, Default)]
pub(super) struct Unstored {
    pub(super) of_groups: HashMap<VisitGroup, VisitCounts>,
    /// Visits by link, from which those by app follow; `None` if there are too many links.
    of_links: Option<HashMap<Code, VisitCounts>>,
}

impl Unstored {
    /// Returns the visits of some tallies.
    pub(super) fn of<'t>(tallies: impl Iterator<Item = &'t Tally>) -> Unstored {
        let (mut of_groups, mut of_links) = (HashMap::new(), Some(HashMap::new()));
        for tally in tallies {
            tally.each_link(|code, counts| {
                if let Some(domain) = code.domain() {
                    of_groups.entry(VisitGroup::Domain(domain)).or_insert_with(VisitCounts::default).add(counts);
                }
                if let Some(links) = &mut of_links {
                    links.entry(code).or_insert_with(VisitCounts::default).add(counts);
                }
                of_links.take_if(|links| links.len() > LOOKED_UP_MAX);
            });
        }
        Unstored { of_groups, of_links }
    }

    /// Adds the visits by app, if the apps can be looked up in time. Returns true if they could.
    pub(super) fn look_up_apps(&mut self, links: &Links) -> bool {
        let Some(of_links) = self.of_links.take() else { return false };
        let until = Instant::now() + LOOK_UP_TIME_MAX;
        let Some(Apps(apps)) = Apps::look_up(links, of_links.keys().copied(), Some(until)) else { return false };
        for (code, app) in apps {
            self.of_groups.entry(VisitGroup::App(app)).or_default().add(of_links[&code]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::{Arc, Mutex, mpsc};

    use carom_shards::Policy;

    use super::super::aggregator::VisitAggregator;
    use super::super::reader::VisitReader;
    use super::*;
    use crate::services::testing::KEY;
    use carom_model::access::AppName;
    use carom_model::domains::DomainName;
    use carom_model::link::labels::LinkLabels;
    use carom_model::link::{Link, Origin, Version};
    use carom_model::query::GroupCounts;
    use carom_model::visits::{RecordOutcome, Visit, VisitSender, ring};
    use carom_telemetry::clock::unix_ms;

    const HOUR_MS: u64 = 3_600_000;

    /// Opens the counts of a directory as a process does, without the threads.
    fn open(dir: &Path) -> (VisitReader, VisitSender) {
        let (links, _) = Links::open(&dir.join("links"), KEY).unwrap();
        let (sender, receiver) = ring();
        let aggregator =
            VisitAggregator::open(&dir.join("visits"), links, vec![receiver], mpsc::channel().1, Arc::default())
                .unwrap();
        (VisitReader { aggregator: Arc::new(Mutex::new(aggregator)) }, sender)
    }

    /// Stores a link and returns its code.
    fn put_link(links: &Links, slug: &str, app: Option<&str>, domain: Option<&DomainName>) -> Code {
        let code = Code::parse(slug.as_bytes()).unwrap().within(domain.map(DomainName::id));
        let labels = LinkLabels {
            app: app.map(|app| AppName::parse(app).unwrap()),
            domain: domain.cloned(),
            ..LinkLabels::default()
        };
        let link = Link {
            code,
            policy: Policy::default(),
            target: "https://example.org/".to_owned(),
            created_ms: 1,
            origin: Origin::Custom,
            version: Version::default(),
            labels,
        };
        let (mut record, mut batch) = (Vec::new(), links.batch());
        record::encode_link(code.key(&mut [0; CODE_KEY_LEN_MAX]), &link, &mut record);
        batch.put(&code, &record);
        links.commit(batch).unwrap();
        code
    }

    #[test]
    fn visits_are_counted_for_the_app_and_the_domain_of_their_link_whenever_the_process_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let domain = DomainName::parse("go.example").unwrap();
        let codes = {
            let links = open(dir.path()).0.aggregator().links();
            [
                (put_link(&links, "by-ops", Some("ops"), None), 1),
                (put_link(&links, "by-shop", Some("shop"), Some(&domain)), 2),
                (put_link(&links, "by-nobody", None, Some(&domain)), 4),
                (Code::parse(b"is-gone").unwrap(), 8),
            ]
        };
        let groups = [
            VisitGroup::App("ops".into()),
            VisitGroup::App("shop".into()),
            VisitGroup::Domain(domain.id()),
            VisitGroup::App("a".into()),
        ];
        let mut rounds = 0;
        // The process is killed after so many steps: before, during and after folds, and after rows were merged.
        for steps in [0, 1, 2, 3, 0, 1, 4, 2, 80, 1] {
            let (visits, mut sender) = open(dir.path());
            for step in 0..=steps {
                let visitor = sender.visitor(b"curl/8", b"");
                for (code, times) in codes {
                    (0..times).for_each(|_| {
                        assert_eq!(sender.record(&Visit { code: Some(code), visitor }), RecordOutcome::Whole);
                    });
                }
                rounds += 1;
                // An hour ends each time, so that a fold is due.
                visits.aggregator().collect((490_000 + rounds) * HOUR_MS);
                visits.aggregator().write_log();
                visits.run_step();
                for (hours, rounds) in [(0..u32::MAX, rounds), (490_000 + rounds as u32..u32::MAX, 1), (0..490_000, 0)]
                {
                    let GroupCounts { counts, is_whole } = visits.of_groups(&groups, Some(hours)).unwrap();
                    assert!(is_whole);
                    let counts: Vec<(u64, u64)> = counts.iter().map(|counts| (counts.total, counts.bots)).collect();
                    let times = |times: u64| (times * rounds, times * rounds);
                    assert_eq!(counts, [times(1), times(2), times(6), (0, 0)], "{steps} {step}");
                }
            }
        }
    }

    #[test]
    fn visits_from_before_an_import_count_without_an_hour() {
        let dir = tempfile::tempdir().unwrap();
        let (visits, _sender) = open(dir.path());
        let group = VisitGroup::App("ops".into());
        let links = visits.aggregator().links();
        let mut batch = links.batch();
        batch.put_earlier_visits(&group.name(), VisitCounts { total: 7, bots: 2 });
        links.commit(batch).unwrap();
        let of = |hours| visits.of_groups(std::slice::from_ref(&group), hours).unwrap().counts;
        assert_eq!(of(None), [VisitCounts { total: 7, bots: 2 }]);
        assert_eq!(of(Some(0..u32::MAX)), [VisitCounts::default()]);
    }

    #[test]
    fn too_many_links_are_looked_up_with_their_hour_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let (visits, mut sender) = open(dir.path());
        let links = visits.aggregator().links();
        let groups = [VisitGroup::App("ops".into())];
        put_link(&links, "n1", Some("ops"), None);
        let mut seen = Vec::new();
        for number in 0..=LOOKED_UP_MAX {
            let code = Code::parse(format!("n{number}").as_bytes()).unwrap();
            let visitor = sender.visitor(b"", b"");
            assert_eq!(sender.record(&Visit { code: Some(code), visitor }), RecordOutcome::Whole);
            if number % 10_000 == 9_999 {
                visits.aggregator().collect(unix_ms());
            }
            if number == 1 || number == LOOKED_UP_MAX {
                let GroupCounts { counts, is_whole } = visits.of_groups(&groups, None).unwrap();
                seen.push((counts[0].total, is_whole));
            }
        }
        visits.aggregator().write_log();
        visits.aggregator().collect(unix_ms() + HOUR_MS);
        (0..2 + LOOKED_UP_MAX / 2_000).for_each(|_| visits.run_step());
        let GroupCounts { counts, is_whole } = visits.of_groups(&groups, None).unwrap();
        seen.push((counts[0].total, is_whole));
        assert_eq!(seen, [(1, true), (0, false), (1, true)]);
    }
}
