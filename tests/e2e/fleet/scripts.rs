//! The Lua scripts and the rules of `carom_model::replication`: both decide the same cases on a real server and must
//! agree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use carom::services::replication::redis::{
    CodeChange, Heartbeat, HeartbeatReply, KeptText, LeaseRequest, Recent, Redis, SiteNotes, SitePositions, StateExpiry,
};
use carom_model::link::labels::LinkLabels;
use carom_model::link::{Link, Origin, UrlKey, Version};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::lease::{self, CodeCounter};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::sites::{self, BLOCK, SiteShare};
use carom_model::replication::state::{COMPARED_LEN, ReceivedState, State, StateHead};
use carom_model::replication::{Echo, EntryId, Partition, retention};
use carom_shards::{Code, CodeLength, Policy};
use carom_telemetry::clock::unix_ms;

use crate::support::fleet::{WITHIN, connect};
use crate::support::node::Dice;
use crate::support::redis::Server;
use crate::support::resp::{Client, Reply};

/// One of a few states, so that they meet often.
fn state(code: Code, dice: &mut Dice) -> State {
    let origin = if dice.below(2) == 0 { Origin::Issued } else { Origin::Custom };
    let version = Version {
        rev: [0, 1, 2, 3, 9, u32::MAX][dice.below(6) as usize],
        claim: dice.below(3),
        edit: dice.below(3) as u32,
    };
    let target = format!("https://example.org/{}", version.claim);
    let (policy, labels) = (Policy::default(), LinkLabels::default());
    let link = Link { code, policy, target, created_ms: 1, origin, version, labels };
    let state = State::Link(Arc::new(link));
    // A delete raises the revision by one.
    if dice.below(2) == 0 { state } else { state.deleted(dice.below(2)).with_version(version) }
}

/// Returns a request for counter values.
fn wanted(length: CodeLength, want: u64, seen: u64, margin: u64) -> LeaseRequest {
    LeaseRequest { length, want, seen, margin }
}

/// The key of the state of a code.
fn key_of(code: &Code) -> String {
    format!("{{test:{:02x}}}:l:{code}", Partition::of(code).0)
}

#[test]
fn lua_and_rust_rules_agree() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut dice = Dice::new();
    let mut displaced = 0;
    for round in 0..450 {
        let code = Code::parse(format!("c{round}").as_bytes()).unwrap();
        let mut stored: Option<State> = None;
        for _ in 0..12 {
            let new = state(code, &mut dice);
            // The state may have expired in Redis, and the node may have one.
            if dice.below(8) == 0 {
                server.command(&["DEL", &key_of(&code)]);
                stored = None;
            }
            let mine = (dice.below(2) == 0).then(|| state(code, &mut dice));
            let present = |is_claim: bool| rules::present(stored.as_ref(), mine.as_ref(), is_claim).cloned();
            let (change, before, expected) = match dice.below(5) {
                0 => {
                    let (before, mine) = (present(true), mine.clone());
                    let expected = rules::claim(before.as_ref(), &new);
                    (CodeChange::Claim(new.clone(), mine), before, expected)
                }
                1 => {
                    let before = present(false);
                    let claim = before.as_ref().map_or(0, |before| before.version().claim);
                    let expected = rules::remove(before.as_ref(), claim, 7);
                    (CodeChange::Remove { claim, now_ms: 7, mine: mine.clone() }, before, expected)
                }
                2 => {
                    // What is there, as it is or with another version, or something else.
                    let state = stored.clone().filter(|_| dice.below(4) > 0).unwrap_or(new);
                    let version = state.version();
                    let state = if dice.below(3) > 0 { state } else { state.with_version(version.edited()) };
                    let or_none = dice.below(2) == 0;
                    let before = rules::present(stored.as_ref(), or_none.then_some(&state), false).cloned();
                    let expected = rules::expire(before.as_ref(), &state, 7);
                    (CodeChange::Expire { state, now_ms: 7, or_none }, before, expected)
                }
                3 => {
                    let over = stored.clone().filter(|_| dice.below(3) > 0).unwrap_or_else(|| state(code, &mut dice));
                    let expected = sites::replace(stored.as_ref(), &over, &new);
                    (CodeChange::Replace { over, state: new.clone() }, stored.clone(), expected)
                }
                _ => (CodeChange::Offer(new.clone()), stored.clone(), rules::offer(stored.as_ref(), &new)),
            };
            let changed = redis.change(&[(code, change.clone())], WITHIN).remove(0).unwrap();
            assert_eq!(changed.verdict, expected, "{change:?} over {stored:?}");
            if let Verdict::Accepted(next) = expected {
                let Echo { partition, id, check } = changed.echo.unwrap();
                let told = redis.read(&[(partition, StreamPosition { id, check })], 10, WITHIN).remove(0).unwrap();
                assert_eq!(told[0].displaced, rules::displaced(before.as_ref(), &next), "{change:?} over {before:?}");
                displaced += usize::from(told[0].displaced.is_some());
                stored = Some(next);
            }
            let kept = redis.states(&[code], WITHIN).remove(0).unwrap();
            assert_eq!(kept, stored.clone().map(ReceivedState::Known));
        }
    }
    assert!(displaced > 20, "{displaced} links were displaced");
}

#[test]
fn older_script_and_rule_agree() {
    let server = Server::start();
    let (mut redis, mut client) = (connect(&server), Client::open(server.address(), WITHIN).unwrap());
    let mut dice = Dice::new();
    let mut replaced = 0;
    for round in 0..400 {
        let code = Code::parse(format!("c{round}").as_bytes()).unwrap();
        let (stored, new) = (state(code, &mut dice), state(code, &mut dice));
        let mut text = stored.to_text(&code);
        text[0] = b'X';
        client.ask(&[b"SET".as_slice(), key_of(&code).as_bytes(), &text]).unwrap();
        let change = match dice.below(6) {
            0 => CodeChange::Claim(new.clone(), None),
            1 => CodeChange::Remove { claim: stored.version().claim, now_ms: 7, mine: None },
            2 => CodeChange::Expire { state: stored.clone(), now_ms: 7, or_none: false },
            _ => CodeChange::Offer(new.clone()),
        };
        let expected = match &change {
            CodeChange::Offer(state) if rules::replaces_unread(&StateHead::of(&text).unwrap(), state) => {
                replaced += 1;
                Verdict::Accepted(state.clone())
            }
            _ => Verdict::HeldUnread(text.into()),
        };
        let changed = redis.change(&[(code, change.clone())], WITHIN).remove(0).unwrap();
        assert_eq!(changed.verdict, expected, "{change:?} over {stored:?}");
    }
    assert!(replaced > 20, "{replaced} states were replaced");
}

#[test]
fn lost_state_is_restored_unless_it_changed() {
    let server = Server::start();
    let mut redis = connect(&server);
    let code = Code::parse(b"abc").unwrap();
    let of = |rev: u32, claim: u64| state(code, &mut Dice(3)).with_version(Version { rev, claim, edit: 0 });
    let mut text = of(3, 8).to_text(&code);
    text[0] = b'X';
    let restore = |redis: &mut Redis, over: &[u8]| {
        let kept = KeptText { code, text: text.clone(), over: over.to_vec() };
        redis.restore(&[kept], WITHIN).remove(0).unwrap()
    };
    let in_redis = |redis: &mut Redis| redis.states(&[code], WITHIN).remove(0).unwrap();
    let unread = || Some(ReceivedState::Unread(text.as_slice().into()));
    redis.change(&[(code, CodeChange::Offer(of(1, 7)))], WITHIN).remove(0).unwrap();
    assert!(!restore(&mut redis, b""), "Redis had none, and has one now");
    assert!(!restore(&mut redis, &of(2, 7).to_text(&code)[..COMPARED_LEN]), "Redis had another one");
    assert_eq!(in_redis(&mut redis), Some(ReceivedState::Known(of(1, 7))));
    let head = redis.heads(&[code], WITHIN).remove(0).unwrap();
    assert!(restore(&mut redis, &head));
    assert_eq!(in_redis(&mut redis), unread());
    server.command(&["DEL", &key_of(&code)]);
    assert!(restore(&mut redis, b""));
    assert_eq!(in_redis(&mut redis), unread());
    let from = StreamPosition { id: EntryId::default(), check: 0 };
    let stream = redis.read(&[(Partition::of(&code), from)], 10, WITHIN).remove(0).unwrap();
    assert_eq!(stream.iter().filter(|entry| entry.text == text).count(), 2, "all nodes get it");
}

#[test]
fn lease_script_and_rule_agree() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut dice = Dice::new();
    let name = server.info("run_id").unwrap();
    let length = CodeLength::DEFAULT;
    let mut counter = CodeCounter::default();
    for _ in 0..300 {
        if dice.below(4) == 0 {
            // Somebody sets it back, or forward, by hand.
            let value = counter.next.saturating_sub(dice.below(50)) + dice.below(20);
            server.command(&["SET", "{test}:counter:7", &value.to_string()]);
            counter.next = value;
        }
        let (seen, want) = (counter.next.saturating_sub(25) + dice.below(50), 1 + dice.below(20));
        let expected = lease::lease(&mut counter, seen, want, 1_000, &name);
        let (granted, _, replicas) = redis.lease(wanted(length, want, seen, 1_000), "n", WITHIN).unwrap();
        assert_eq!(granted, expected);
        assert_eq!(replicas, 0);
        assert_eq!(server.command(&["GET", "{test}:counter:7"]).text(), counter.next.to_string());
    }
    // Another server, by its name: what is left out is the margin.
    server.command(&["HSET", "{test}:space", "server:7", "another"]);
    counter.server = "another".to_owned();
    let expected = lease::lease(&mut counter, 0, 5, 1_000, &name);
    assert!(expected.moved);
    assert_eq!(redis.lease(wanted(length, 5, 0, 1_000), "n", WITHIN).unwrap().0, expected);
}

#[test]
fn leases_of_a_site_agree_with_the_rule() {
    let server = Server::start();
    let share = SiteShare::of("b", "a");
    let mut redis = connect(&server).with_share(Some(share));
    let mut dice = Dice::new();
    let name = server.info("run_id").unwrap();
    let length = CodeLength::DEFAULT;
    for seen in [0, 70] {
        let early = redis.lease(wanted(length, 5, seen, 1_000), "n", WITHIN);
        assert!(early.is_err(), "the other site may have leased any value, and more than a copy has seen");
    }
    redis.begin_counters(&[(length, BLOCK + 3)], &[], WITHIN).unwrap();
    let mut counter = CodeCounter::default();
    for _ in 0..200 {
        let want = 1 + dice.below(BLOCK / 2);
        let seen = counter.next.saturating_sub(25) + dice.below(50) * u64::from(counter.next > 0);
        let start = Some(BLOCK + 3);
        let expected = lease::lease_of_site(&mut counter, seen, start, want, 1_000, &name, share).unwrap();
        assert_eq!(redis.lease(wanted(length, want, seen, 1_000), "n", WITHIN).unwrap().0, expected);
        assert!(share.has(expected.start));
        assert!(share.has(expected.start + want - 1));
    }
    redis.begin_counters(&[(length, 9 * BLOCK)], &[], WITHIN).unwrap();
    assert_eq!(server.command(&["HGET", "{test}:site", "start:7"]).text(), (BLOCK + 3).to_string(), "they begin once");
    // A node with the settings of the other site, and one with none.
    for wrong in [Some(SiteShare::of("a", "b")), None] {
        let granted = connect(&server).with_share(wrong).lease(wanted(length, 5, 0, 1_000), "m", WITHIN);
        assert!(granted.is_err(), "{wrong:?} would lease values of the other site: {granted:?}");
    }
    assert!(redis.lease(wanted(length, 5, 0, 1_000), "n", WITHIN).is_ok(), "a refusal changes nothing");
}

#[test]
fn one_node_at_a_time_is_the_relay() {
    let server = Server::start();
    let (mut redis, lasts) = (connect(&server), Duration::from_secs(60));
    assert!(redis.hold_relay("n0", lasts, WITHIN).unwrap());
    assert!(!redis.hold_relay("n1", lasts, WITHIN).unwrap());
    assert!(redis.hold_relay("n0", lasts, WITHIN).unwrap(), "it keeps its lease");
    server.command(&["DEL", "{test}:site:relay"]);
    assert!(redis.hold_relay("n1", lasts, WITHIN).unwrap());
    assert_eq!(redis.name_site("berlin", WITHIN).unwrap(), "berlin");
    assert_eq!(redis.name_site("lisbon", WITHIN).unwrap(), "berlin", "a site keeps its name");
    let space = redis.other_space(WITHIN).unwrap();
    assert_eq!((space.site.as_deref(), space.fingerprint), (Some("berlin"), None));
    assert!(space.now_ms.abs_diff(unix_ms()) < 60_000, "{}", space.now_ms);
}

#[test]
fn notes_count_for_the_present_relay() {
    let server = Server::start();
    let mut redis = connect(&server);
    let floors = vec![(CodeLength::DEFAULT, 70)];
    let notes = SiteNotes { relay: 9, passes: 7, read_ms: 6, met_ms: 5, floors, ..SiteNotes::default() };
    let position = StreamPosition { id: EntryId { ms: 5, seq: 7 }, check: 9 };
    let places = [(Partition(0), position), (Partition(63), position)];
    assert!(!redis.put_site_notes(&notes, &places, WITHIN).unwrap(), "nobody is the relay");
    assert_eq!(redis.site_positions(WITHIN).unwrap(), SitePositions::default());
    redis.take_relay(9, WITHIN).unwrap();
    assert!(redis.put_site_notes(&notes, &places, WITHIN).unwrap());
    assert_eq!(redis.site_notes(WITHIN).unwrap(), notes);
    let mut positions = redis.site_positions(WITHIN).unwrap().known;
    positions.sort_by_key(|(of, _)| *of);
    assert_eq!(positions, places);
    redis.take_relay(8, WITHIN).unwrap();
    assert!(!redis.put_site_notes(&notes, &[], WITHIN).unwrap(), "another one has taken over");
    let lacking = SiteNotes { relay: 8, may_lack: true, ..notes };
    assert!(redis.put_site_notes(&lacking, &[], WITHIN).unwrap());
    assert!(redis.put_site_notes(&SiteNotes { may_lack: false, ..lacking.clone() }, &[], WITHIN).unwrap());
    assert_eq!(redis.site_notes(WITHIN).unwrap(), lacking, "only an operator takes that back");
    assert!(redis.complete_site(WITHIN).unwrap());
    assert_eq!(redis.site_notes(WITHIN).unwrap(), SiteNotes { may_lack: false, ..lacking });
    assert!(!redis.complete_site(WITHIN).unwrap(), "it is not marked any more");
}

#[test]
fn damaged_notes_lease_nothing() {
    let server = Server::start();
    let (length, share) = (CodeLength::DEFAULT, SiteShare::of("berlin", "lisbon"));
    let mut redis = connect(&server).with_share(Some(share));
    redis.begin_counters(&[(length, 3 * BLOCK)], &[], WITHIN).unwrap();
    for field in ["start:7", "floor:7", "lacks"] {
        server.command(&["HSET", "{test}:site", field, "?"]);
    }
    let early = redis.lease(wanted(length, 5, 0, 0), "n", WITHIN);
    assert!(early.is_err(), "the other site may have leased any value: {early:?}");
    let notes = redis.site_notes(WITHIN).unwrap();
    assert_eq!(notes.damaged.len(), 3, "{notes:?}");
    redis.begin_counters(&[(length, 5 * BLOCK)], &notes.damaged, WITHIN).unwrap();
    redis.remove_site_notes(&notes.damaged_floors(), WITHIN).unwrap();
    let (granted, ..) = redis.lease(wanted(length, 5, 0, 0), "n", WITHIN).unwrap();
    assert!(share.has(granted.start), "{granted:?}");
    assert!(granted.start >= 5 * BLOCK, "{granted:?}");
    assert!(redis.site_notes(WITHIN).unwrap().may_lack, "a damaged mark counts");
    assert!(redis.complete_site(WITHIN).unwrap());
    assert_eq!(redis.site_notes(WITHIN).unwrap(), SiteNotes::default());
    assert!(!redis.complete_site(WITHIN).unwrap());
    // A damaged position is named, and the others count.
    server.command(&["HSET", "{test}:site:places", "5", "nonsense"]);
    assert_eq!(redis.site_positions(WITHIN).unwrap().damaged, [Partition(5)]);
}

#[test]
fn given_up_site_frees_the_counter() {
    let server = Server::start();
    let (length, share) = (CodeLength::DEFAULT, SiteShare::of("berlin", "lisbon"));
    let mut redis = connect(&server);
    let mut of_site = connect(&server).with_share(Some(share));
    redis.begin_counters(&[(length, 0)], &[], WITHIN).unwrap();
    redis.name_site("berlin", WITHIN).unwrap();
    of_site.lease(wanted(length, 5, 0, 0), "n", WITHIN).unwrap();
    assert!(redis.lease(wanted(length, 5, 0, 0), "m", WITHIN).is_err(), "half of the values belong to the other site");
    let above = 3 * BLOCK + 7;
    assert!(redis.give_up_site("lisbon", &[(length, above)], WITHIN).unwrap());
    assert!(!redis.give_up_site("lisbon", &[(length, 9 * BLOCK)], WITHIN).unwrap(), "it was done before");
    let (granted, ..) = redis.lease(wanted(length, 5, 0, 0), "m", WITHIN).unwrap();
    assert_eq!((granted.start, granted.mended), (above, 0), "the first value that the other site cannot have leased");
    // A node that still has its site leases its own values, above those of the others.
    let (granted, ..) = of_site.lease(wanted(length, 5, 0, 0), "n", WITHIN).unwrap();
    assert!(share.has(granted.start), "{granted:?}");
    assert!(granted.start >= above + 5, "{granted:?}");
    assert_eq!(redis.other_space(WITHIN).unwrap().site, None, "a relay of the other site keeps away");
    let notes = redis.site_notes(WITHIN).unwrap();
    assert_eq!(notes.given_up.as_deref(), Some("lisbon"));
    // Another site takes its place, whose name has another order.
    assert!(!redis.begin_site("porto", WITHIN).unwrap(), "it was not given up");
    assert!(redis.begin_site("lisbon", WITHIN).unwrap());
    assert!(!redis.begin_site("lisbon", WITHIN).unwrap(), "it was done before");
    assert_eq!(redis.site_notes(WITHIN).unwrap(), SiteNotes::default());
    redis.begin_counters(&[(length, 0)], &[], WITHIN).unwrap();
    let share = SiteShare::of("berlin", "aachen");
    let (granted, ..) = connect(&server).with_share(Some(share)).lease(wanted(length, 5, 0, 0), "n", WITHIN).unwrap();
    assert!(share.has(granted.start), "{granted:?}");
    assert!(granted.start > above, "{granted:?}");
    assert!(redis.lease(wanted(length, 5, 0, 0), "m", WITHIN).is_err(), "there are two sites again");
}

#[test]
fn url_script_names_and_renews_one_code() {
    const WINDOW: Duration = Duration::from_secs(100);
    let server = Server::start();
    let mut redis = connect(&server);
    let ask = |redis: &mut Redis, code: &str, wrong: &str| {
        let (code, wrong) = (Code::parse(code.as_bytes()).unwrap(), wrong.as_bytes().to_vec());
        let answer = redis.recent(&[Recent { key: UrlKey(0x1f), code, wrong }], WINDOW, WITHIN).remove(0).unwrap();
        String::from_utf8(answer).unwrap()
    };
    let entry = "{test:1f}:u:000000000000001f";
    let left = || server.command(&["PTTL", entry]).to_number();
    assert_eq!(ask(&mut redis, "a", ""), "a", "nobody was there");
    assert!(left() > 90_000);
    for _ in 0..2 {
        server.command(&["PEXPIRE", entry, "5000"]);
        assert_eq!(ask(&mut redis, "b", ""), "a");
        assert!(left() > 90_000, "it was renewed");
    }
    assert_eq!(ask(&mut redis, "b", "c"), "a", "another one was found to be wrong");
    assert_eq!(ask(&mut redis, "b", "a"), "b");
    assert_eq!(ask(&mut redis, "c", "a"), "b", "somebody was faster");
    assert!(left() > 90_000);
    server.command(&["DEL", entry]);
    assert_eq!(ask(&mut redis, "d", "b"), "d");
    // All of a turn at once, and each by itself.
    let asked: Vec<Recent> = (0..200)
        .map(|number| Recent { key: UrlKey(number), code: Code::parse(b"e").unwrap(), wrong: Vec::new() })
        .collect();
    let answers = redis.recent(&asked, WINDOW, WITHIN);
    let others = answers.iter().filter(|answer| answer.as_deref() != Ok(b"e")).count();
    assert_eq!(answers.len(), 200);
    assert_eq!(others, 1);
}

#[test]
fn flushed_scripts_are_reloaded() {
    let server = Server::start();
    let mut redis = connect(&server);
    let code = Code::parse(b"abc").unwrap();
    let offer = CodeChange::Offer(state(code, &mut Dice(3)));
    redis.change(&[(code, offer.clone())], WITHIN).remove(0).unwrap();
    server.command(&["SCRIPT", "FLUSH"]);
    assert_eq!(redis.change(&[(code, offer)], WITHIN).remove(0).unwrap().verdict, Verdict::Same);
}

#[test]
fn returned_node_with_an_old_time_is_not_gone() {
    let server = Server::start();
    let mut redis = connect(&server);
    let length = CodeLength::DEFAULT;
    let beat = |redis: &mut Redis, about: &str| {
        let about = about.to_owned();
        let (expiring_ms, expiry) = (0, StateExpiry::Off);
        let beat = Heartbeat { node: "away", about, fingerprint: "f", seen: &[], expiring_ms, expiry, epoch: "1" };
        redis.beat(&beat, WITHIN).unwrap()
    };
    let watched = beat(&mut redis, r#"{"beat":1}"#);
    let (granted, ..) = redis.lease(wanted(length, 5, 0, 0), "away", WITHIN).unwrap();
    let returned = beat(&mut redis, r#"{"beat":2}"#);
    // The clock of Redis was set back, so that the second heartbeat has the time of the first.
    let (time, _) = watched.heartbeat_of("away").unwrap();
    server.command(&["ZADD", "{test}:beats", &time.to_string(), "away"]);
    let mut same = returned;
    same.beats = watched.beats.clone();
    assert_ne!(same.marks(), watched.marks(), "an observer would take both heartbeats for one");
    let (read, now_ms) = redis.heartbeats(WITHIN).unwrap();
    assert_eq!((&read.beats, &read.about), (&same.beats, &same.about));
    assert!(now_ms.abs_diff(unix_ms()) < 60_000, "{now_ms}");
    let reclaim = |redis: &mut Redis, seen: &HeartbeatReply| {
        redis.reclaim("here", "away", seen.heartbeat_of("away").unwrap(), WITHIN).unwrap()
    };
    assert_eq!(reclaim(&mut redis, &watched), []);
    assert_eq!(reclaim(&mut redis, &same), [(length, granted.start, 5)]);
}

#[test]
fn states_expire_and_are_renewed_by_changes() {
    const KEPT_MS: u64 = 600_000;
    let server = Server::start();
    let (mut forever, state_ms) = (connect(&server), Arc::new(AtomicU64::new(0)));
    let mut redis = connect(&server).with_retention(Arc::clone(&state_ms));
    let mut dice = Dice(5);
    let codes = ["a", "b", "c"].map(|text| Code::parse(text.as_bytes()).unwrap());
    let states = codes.map(|code| state(code, &mut dice));
    let offers: Vec<_> =
        codes.iter().zip(&states).map(|(code, state)| (*code, CodeChange::Offer(state.clone()))).collect();
    let left = |code: &Code| server.command(&["PTTL", &key_of(code)]);
    let renewed = |code: &Code| matches!(left(code), Reply::Int(ms) if (KEPT_MS as i64 - 100_000..).contains(&ms));
    for redis in [&mut forever, &mut redis] {
        redis.change(&offers, WITHIN).into_iter().for_each(|answer| _ = answer.unwrap());
        assert!(codes.iter().all(|code| left(code) == Reply::Int(-1)), "they stay");
    }
    state_ms.store(KEPT_MS, Ordering::Release);
    // A script that meets an earlier state lets it expire.
    assert_eq!(redis.change(&offers[..1], WITHIN).remove(0).unwrap().verdict, Verdict::Same);
    assert!(renewed(&codes[0]));
    assert_eq!(redis.expire_states(&codes, WITHIN).unwrap(), 2, "the pass over all states does the others");
    assert!(codes.iter().all(renewed));
    server.command(&["PEXPIRE", &key_of(&codes[1]), "5000"]);
    assert_eq!(redis.expire_states(&codes, WITHIN).unwrap(), 0);
    assert!(!renewed(&codes[1]), "only a change renews it");
    let claim = states[1].version().claim.wrapping_add(1);
    let later = states[1].with_version(Version { rev: u32::MAX, claim, edit: 0 });
    redis.change(&[(codes[1], CodeChange::Offer(later))], WITHIN).remove(0).unwrap();
    assert!(states[1].version().rev == u32::MAX || renewed(&codes[1]));
}

#[test]
fn trimmed_streams_keep_the_position_at_the_end() {
    let server = Server::start();
    let mut redis = connect(&server);
    let stream = "{test:05}:s";
    let now_ms = unix_ms();
    let add = |age_ms: u64| {
        let id = format!("{}-1", now_ms - age_ms);
        server.command(&["XADD", stream, &id, "c", "", "v", ""]);
        EntryId { ms: now_ms - age_ms, seq: 1 }
    };
    let ids = [900_000, 800_000, 500_000, 400_000].map(add);
    let mut first = || {
        let kept = Duration::from_secs(600);
        redis.trim(&[Partition(5), Partition(6)], kept, WITHIN).unwrap();
        let from = StreamPosition { id: EntryId::default(), check: 0 };
        let entries = redis.read(&[(Partition(5), from)], 10, WITHIN).remove(0).unwrap();
        (entries.first().map(|entry| entry.id), entries.len())
    };
    let expected = retention::first_kept(&ids, now_ms - 600_000);
    assert_eq!(expected, Some(ids[1]));
    assert_eq!(first(), (expected, 3));
    assert_eq!(first(), (expected, 3), "it is trimmed already");
    server.command(&["DEL", stream]);
    let last = [900_000, 800_000].map(add)[1];
    assert_eq!(first(), (Some(last), 1), "a quiet stream keeps its end");
}

#[test]
fn nodes_remember_since_when_states_expire() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut beat = |expiring_ms: u64, expiry: StateExpiry| {
        let about = "{}".to_owned();
        let beat = Heartbeat { node: "n", about, fingerprint: "f", seen: &[], expiring_ms, expiry, epoch: "1" };
        redis.beat(&beat, WITHIN).unwrap().expiring_ms
    };
    assert_eq!(beat(0, StateExpiry::Off), 0);
    let since_ms = beat(0, StateExpiry::On);
    assert!(unix_ms().abs_diff(since_ms) < 60_000, "{since_ms}");
    assert_eq!(beat(0, StateExpiry::Off), since_ms);
    assert_eq!(beat(since_ms + 5, StateExpiry::On), since_ms);
    assert_eq!(beat(since_ms - 5, StateExpiry::Off), since_ms - 5, "the earliest counts");
    server.command(&["FLUSHALL"]);
    assert_eq!(beat(since_ms, StateExpiry::On), since_ms, "a server that came back empty hears of it");
}

#[test]
fn home_of_links_lets_no_states_expire() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut beat = |expiry: StateExpiry| {
        let about = "{}".to_owned();
        let beat = Heartbeat { node: "n", about, fingerprint: "f", seen: &[], expiring_ms: 0, expiry, epoch: "1" };
        redis.beat(&beat, WITHIN).unwrap().expiring_ms
    };
    assert_eq!(beat(StateExpiry::Forbidden), 0);
    assert_eq!(beat(StateExpiry::On), 0, "a node with another setting does not count");
    server.command(&["FLUSHALL"]);
    let since_ms = beat(StateExpiry::On);
    assert!(since_ms > 0);
    assert_eq!(beat(StateExpiry::Forbidden), since_ms, "they have expired before");
}

#[test]
fn heartbeats_return_what_they_replace() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut beat = |node: &str, about: &str| {
        let (about, expiry) = (about.to_owned(), StateExpiry::Off);
        let beat = Heartbeat { node, about, fingerprint: "f", seen: &[], expiring_ms: 0, expiry, epoch: "e" };
        redis.beat(&beat, WITHIN).unwrap().replaced
    };
    assert_eq!([beat("n", "a"), beat("m", "b"), beat("n", "c"), beat("n", "d")], ["", "", "a", "c"]);
}

#[test]
fn epoch_lasts_as_long_as_the_data() {
    let server = Server::start();
    let mut redis = connect(&server);
    let mut beat = |epoch: &str| {
        let (about, expiry) = ("{}".to_owned(), StateExpiry::Off);
        let beat = Heartbeat { node: "n", about, fingerprint: "f", seen: &[], expiring_ms: 0, expiry, epoch };
        redis.beat(&beat, WITHIN).unwrap().epoch
    };
    assert_eq!([beat("1"), beat("2")], ["1", "1"]);
    server.command(&["FLUSHALL"]);
    assert_eq!([beat("3"), beat("4")], ["3", "3"]);
}
