//! The Lua scripts and the rules of `carom_model::replication`: both decide the same cases on a real server and must
//! agree.

use std::sync::Arc;
use std::time::Duration;

use carom::services::replication::redis::{CodeChange, Heartbeat, HeartbeatReply, Recent, Redis};
use carom_model::link::labels::LinkLabels;
use carom_model::link::{Link, Origin, UrlKey, Version};
use carom_model::replication::follow::StreamPosition;
use carom_model::replication::lease::{self, CodeCounter};
use carom_model::replication::rules::{self, Verdict};
use carom_model::replication::state::{ReceivedState, State, StateHead};
use carom_model::replication::{Echo, Partition};
use carom_shards::{Code, CodeLength, Policy};

use crate::support::fleet::{WITHIN, connect};
use crate::support::node::Dice;
use crate::support::redis::Server;
use crate::support::resp::Client;

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
            let (change, expected) = match dice.below(4) {
                0 => (CodeChange::Claim(new.clone()), rules::claim(stored.as_ref(), &new)),
                1 => {
                    let claim = stored.as_ref().map_or(0, |stored| stored.version().claim);
                    (CodeChange::Remove { claim, now_ms: 7 }, rules::remove(stored.as_ref(), claim, 7))
                }
                2 => {
                    // What is there, as it is or with another version, or something else.
                    let state = stored.clone().filter(|_| dice.below(4) > 0).unwrap_or(new);
                    let version = state.version();
                    let state = if dice.below(3) > 0 { state } else { state.with_version(version.edited()) };
                    let expected = rules::expire(stored.as_ref(), &state, 7);
                    (CodeChange::Expire { state, now_ms: 7 }, expected)
                }
                _ => (CodeChange::Offer(new.clone()), rules::offer(stored.as_ref(), &new)),
            };
            let changed = redis.change(&[(code, change.clone())], WITHIN).remove(0).unwrap();
            assert_eq!(changed.verdict, expected, "{change:?} over {stored:?}");
            if let Verdict::Accepted(next) = expected {
                let Echo { partition, id, check } = changed.echo.unwrap();
                let told = redis.read(&[(partition, StreamPosition { id, check })], 10, WITHIN).remove(0).unwrap();
                assert_eq!(told[0].displaced, rules::displaced(stored.as_ref(), &next), "{change:?} over {stored:?}");
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
        let key = format!("{{test:{:02x}}}:l:{code}", Partition::of(&code).0);
        client.ask(&[b"SET".as_slice(), key.as_bytes(), &text]).unwrap();
        let change = match dice.below(6) {
            0 => CodeChange::Claim(new.clone()),
            1 => CodeChange::Remove { claim: stored.version().claim, now_ms: 7 },
            2 => CodeChange::Expire { state: stored.clone(), now_ms: 7 },
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
        let (granted, _, replicas) = redis.lease(length, want, (seen, 1_000), "n", WITHIN).unwrap();
        assert_eq!(granted, expected);
        assert_eq!(replicas, 0);
        assert_eq!(server.command(&["GET", "{test}:counter:7"]).text(), counter.next.to_string());
    }
    // Another server, by its name: what is left out is the margin.
    server.command(&["HSET", "{test}:space", "server:7", "another"]);
    counter.server = "another".to_owned();
    let expected = lease::lease(&mut counter, 0, 5, 1_000, &name);
    assert!(expected.moved);
    assert_eq!(redis.lease(length, 5, (0, 1_000), "n", WITHIN).unwrap().0, expected);
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
        let beat = Heartbeat { node: "away", about: about.to_owned(), fingerprint: "f", seen: &[] };
        redis.beat(&beat, WITHIN).unwrap()
    };
    let watched = beat(&mut redis, r#"{"beat":1}"#);
    let (granted, ..) = redis.lease(length, 5, (0, 0), "away", WITHIN).unwrap();
    let returned = beat(&mut redis, r#"{"beat":2}"#);
    // The clock of Redis was set back, so that the second heartbeat has the time of the first.
    let (time, _) = watched.heartbeat_of("away").unwrap();
    server.command(&["ZADD", "{test}:beats", &time.to_string(), "away"]);
    let mut same = returned;
    same.beats = watched.beats.clone();
    assert_ne!(same.marks(), watched.marks(), "an observer would take both heartbeats for one");
    let reclaim = |redis: &mut Redis, seen: &HeartbeatReply| {
        redis.reclaim("here", "away", seen.heartbeat_of("away").unwrap(), WITHIN).unwrap()
    };
    assert_eq!(reclaim(&mut redis, &watched), []);
    assert_eq!(reclaim(&mut redis, &same), [(length, granted.start, 5)]);
}
