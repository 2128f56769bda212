//! Properties of what nodes store, exchange through Redis, and get from clients, for any bytes. The fuzz targets beside
//! this file check them, and `tests/replay.rs` runs them over the committed seeds without a fuzzer.
#![allow(dead_code, reason = "each fuzz target uses one of these")]

use std::net::IpAddr;

use carom_model::clients::accept_language::{first_language, primary_language};
use carom_model::clients::forwarded::{Field, Trust};
use carom_model::clients::networks::{Network, Networks};
use carom_model::clients::query_parameters::{decoded, query_value};
use carom_model::clients::user_agent_browser::browser_of;
use carom_model::clients::user_agent_device::platform_of;
use carom_model::destination::long_url::LongUrl;
use carom_model::events::StoredEvent;
use carom_model::formats::dates;
use carom_model::link::rules::{ConditionType, RedirectCondition, RedirectRules, RuleVisitor};
use carom_model::query::{Cursor, LinkPosition, OrderField};
use carom_model::replication::State;
use carom_model::replication::state::{NoState, StateHead};
use carom_model::visits::campaign::Campaign;
use carom_model::visits::entries::batches_of;
use carom_model::visits::history::VisitHistory;
use carom_model::visits::record::VisitRecord;
use carom_model::visits::shared_log::{LogNote, ReadEntry};
use carom_model::visits::tally::TallyRow;
use carom_shards::Code;

/// Checks redirect rules: the decoder never panics and accepts its own form only, and each visitor gets the destination
/// of the link or of a rule.
///
/// The input is a length, a visitor of that many bytes (the lines are user agent, languages and query), and rules.
pub(crate) fn check_rules(input: &[u8]) {
    let Some((&len, rest)) = input.split_first() else { return };
    let (visitor, encoded) = rest.split_at(usize::from(len).min(rest.len()));
    let Some(rules) = RedirectRules::from_encoded(encoded) else { return };
    assert_eq!(rules.encoded(), encoded);
    assert_eq!(rules.to_json().as_array().map(Vec::len), Some(rules.as_slice().len()));
    let mut lines = visitor.splitn(3, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let visitor = RuleVisitor {
        user_agent: line(),
        accept_language: &[line()],
        query: line(),
        address: Some(IpAddr::from([203, 0, 113, len])),
        now_ms: 1_800_000_000_000,
        ..RuleVisitor::default()
    };
    let default = "https://default.example/";
    let destination = rules.destination(default, &visitor);
    let is_of_rule = rules.as_slice().iter().any(|rule| *rule.long_url == *destination);
    assert!(is_of_rule || destination == default, "{destination}");
}

/// Checks states of codes in the form of Redis: the decoder never panics, and it reads the encoding of each state that
/// it has decoded. Of a state of a later version it reads the head.
///
/// The input is the length of a key, the key of a code, and the text of a state.
pub(crate) fn check_state(input: &[u8]) {
    let Some((&len, rest)) = input.split_first() else { return };
    let (key, text) = rest.split_at(usize::from(len).min(rest.len()));
    let Ok(code) = Code::from_key(key) else { return };
    match State::from_text(code, text) {
        Ok(state) => assert_eq!(State::from_text(code, &state.to_text(&code)), Ok(state)),
        Err(NoState::Newer) => assert!(StateHead::of(text).is_some(), "a node could not tell which state is later"),
        Err(NoState::Damaged) => {}
    }
}

/// Checks stored and exchanged visits: no decoder panics, and those of counts and events settle, so that a value that is
/// decoded and encoded again stays the same.
pub(crate) fn check_visits(input: &[u8]) {
    if let Some(history) = VisitHistory::decode(input) {
        let mut once = Vec::new();
        history.encode(&mut once);
        let mut again = Vec::new();
        VisitHistory::decode(&once).expect("its own encoding").encode(&mut again);
        assert_eq!(again, once);
    }
    let mut rest = input;
    if let Some(row) = TallyRow::decode(&mut rest) {
        let mut once = Vec::new();
        row.encode(&mut once);
        let mut again = Vec::new();
        TallyRow::decode(&mut &once[..]).expect("its own encoding").encode(&mut again);
        assert_eq!(again, once);
    }
    if let Some(StoredEvent::Link(event)) = StoredEvent::decode(input) {
        let again = event.encode();
        assert_eq!(StoredEvent::decode(&again), Some(StoredEvent::Link(event)));
    }
    let mut rest = input;
    while let Some(record) = VisitRecord::take(&mut rest) {
        assert!(record.target.len() < input.len());
    }
    // The number of the first batch, if it is below 128.
    let last = input.first().map_or(0, |first| u64::from(*first));
    let batches = batches_of(input, last).unwrap_or_default();
    assert!(batches.iter().map(|batch| batch.content.len()).sum::<usize>() <= input.len());
    let _ = ReadEntry::read(input, 7);
    if let Some(note) = std::str::from_utf8(input).ok().and_then(LogNote::parse) {
        assert_eq!(LogNote::parse(&note.to_text()), Some(note));
    }
}

/// Checks what clients put into header fields, queries and destinations: only a trusted proxy can name another client
/// address, an accepted destination or date settles, and a cursor is read as it was written.
pub(crate) fn check_request(input: &[u8]) {
    assert!(decoded(input).count() <= input.len());
    assert!(query_value(input, "utm_source").is_none_or(|value| value.len() <= input.len()));
    assert!(primary_language(first_language(input)).len() <= input.len());
    let _ = (Campaign::of(input), browser_of(input), platform_of(input));
    let peer = IpAddr::from([10, 0, 0, 1]);
    let proxies = Networks(Network::around(peer, "8").into_iter().collect());
    for field in Field::ALL {
        assert_eq!(Trust { proxies: Networks::default(), field }.client(peer, input), peer);
        let client = Trust { proxies: proxies.clone(), field }.client(peer, input);
        assert!(field != Field::Off || client == peer);
    }
    if let Ok(text) = std::str::from_utf8(input) {
        check_texts(text);
    }
}

fn check_texts(text: &str) {
    if let Ok(url) = LongUrl::parse(text, &[]) {
        let settled = LongUrl::parse(url.as_str(), &[]).map(String::from);
        assert_eq!(settled.ok().as_deref(), Some(url.as_str()));
    }
    if let Ok(ms) = dates::parse(text) {
        assert_eq!(dates::parse(&dates::format(ms)).ok(), Some(ms));
    }
    for field in [OrderField::DateCreated, OrderField::ShortCode, OrderField::Title] {
        if let Some(cursor) = Cursor::from_text(text, 0, field) {
            assert_eq!(Cursor::from_text(&cursor.to_text(0), 0, field), Some(cursor));
        }
    }
    if let Some(position) = LinkPosition::from_bytes(text.as_bytes()) {
        assert_eq!(LinkPosition::from_bytes(&position.to_bytes()), Some(position));
    }
    for (kind, _) in ConditionType::ALL {
        let _ = RedirectCondition::new(kind, Some(text), Some(text));
    }
}
