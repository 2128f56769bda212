//! Locations of visitors, from an MMDB file: in visits, statistics and redirect rules, and after changes of the file.

use std::fs;
use std::path::Path;

use carom_model::testing::mmdb::{MmdbNetwork, mmdb};
use serde_json::json;

use crate::support::alarms::{alarms, is_seen};
use crate::support::api_client::JSON;
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{on_every_kind, wires};
use crate::support::node::{Setup, wait_until};

/// An address in each network, and one outside.
const GERMAN: &str = "192.0.2.77";
const FRENCH: &str = "198.51.100.7";
const SWISS: &str = "2001:db8:7::1";
const UNKNOWN: &str = "203.0.113.7";

/// A database in which an address has another city.
fn database(city: &str) -> Vec<u8> {
    let network = |address, bits, country, city| MmdbNetwork { address, bits, country, city };
    let german = network("192.0.2.0", 24, ("DE", "Germany"), city);
    let french = network("198.51.100.0", 24, ("FR", "France"), "");
    mmdb("GeoLite2-City", &[german, french, network("2001:db8::", 32, ("CH", "Switzerland"), "Genf")])
}

/// Replaces the file by a whole new one.
fn replace(file: &Path, content: &[u8]) {
    let new = file.with_extension("new");
    fs::write(&new, content).unwrap();
    fs::rename(new, file).unwrap();
}

/// A node that logs visits with locations, and believes clients their address.
fn locating(setup: Setup, file: &Path) -> Setup {
    let setup = setup.env("CAROM_VISITS_LOG", "on").env("CAROM_GEO_FILE", file.to_str().unwrap());
    setup.trust_client().env("CAROM_FORWARDED_FIELD", "x-forwarded-for")
}

/// A link with a rule for each of these conditions.
fn with_rules(wire: &mut Wire, rules: &[(&str, &str, &str)]) -> String {
    let code = wire.shorten("https://default.test/");
    let rule = |(url, kind, value): &(&str, &str, &str)| json!({"longUrl": url, "conditions": [{"type": kind, "matchKey": null, "matchValue": value}]});
    let body = json!({ "redirectRules": rules.iter().map(rule).collect::<Vec<_>>() }).to_string();
    let set = wire.ask("POST", &format!("{SHORT_URLS}/{code}/redirect-rules"), JSON, body.as_bytes());
    assert_eq!(set.status, 200, "{}", set.text());
    code
}

/// The destination of a client with this address.
fn destination(wire: &mut Wire, path: &str, address: &str) -> String {
    let reply = wire.ask("GET", path, &format!("X-Forwarded-For: {address}\r\n"), b"");
    assert_eq!(reply.status, 302, "{path} {address}");
    reply.location().to_owned()
}

#[test]
fn rules_find_countries_and_cities() {
    on_every_kind(|setup| {
        let files = tempfile::tempdir().unwrap();
        let file = files.path().join("city.mmdb");
        fs::write(&file, database("Köln")).unwrap();
        let node = locating(setup.clone(), &file).start();
        let mut wires = wires(&node);
        let rules = [
            ("https://koeln.test/", "geolocation-city-name", "KÖLN"),
            ("https://fr.test/", "geolocation-country-code", "FR"),
            ("https://ch.test/", "geolocation-country-code", "CH"),
        ];
        let code = with_rules(&mut wires[0], &rules);
        for (address, expected) in [
            (GERMAN, "https://koeln.test/"),
            (FRENCH, "https://fr.test/"),
            (SWISS, "https://ch.test/"),
            (UNKNOWN, "https://default.test/"),
        ] {
            for wire in &mut wires {
                assert_eq!(destination(wire, &format!("/{code}"), address), expected, "{address}");
            }
            let tried = format!("{SHORT_URLS}/{code}/redirect-rules/try?ipAddress={address}");
            assert_eq!(wires[0].get(&tried).json()["longUrl"], expected);
            let elsewhere = format!("{tried}&country=FR");
            assert_eq!(wires[0].get(&elsewhere).json()["longUrl"], "https://fr.test/");
        }
    });
}

#[test]
fn visits_have_locations_and_no_addresses() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("city.mmdb");
    fs::write(&file, database("Berlin")).unwrap();
    let node = locating(Setup::new(&data.path().join("data")), &file).start();
    let mut wires = wires(&node);
    let code = wires[0].shorten("https://example.org/");
    for address in [GERMAN, FRENCH, UNKNOWN] {
        for wire in &mut wires {
            destination(wire, &format!("/{code}"), address);
        }
    }
    let count = wires.len() as u64;
    let visits = wires[0].get(&format!("{SHORT_URLS}/{code}/visits")).json()["visits"]["data"].clone();
    let visits = visits.as_array().unwrap();
    let with =
        |country: &'static str| visits.iter().filter(move |visit| visit["visitLocation"]["countryCode"] == country);
    assert_eq!((visits.len() as u64, with("DE").count() as u64), (3 * count, count));
    let berlin = json!({
        "countryCode": "DE", "countryName": "Germany", "regionName": "Region", "cityName": "Berlin",
        "latitude": 52.5, "longitude": -13.25, "timezone": "Europe/Berlin", "isEmpty": false,
    });
    assert!(with("DE").all(|visit| visit["visitLocation"] == berlin), "{visits:?}");
    assert!(with("FR").all(|visit| visit["visitLocation"]["latitude"].is_null()));
    assert_eq!(visits.iter().filter(|visit| visit["visitLocation"].is_null()).count() as u64, count);
    assert!(visits.iter().all(|visit| visit.get("address").is_none()), "{visits:?}");
    let stats = wires[0].get("/rest/v3/visits/stats").json()["visitStats"].clone();
    let country = |value, label| json!({"value": value, "label": label, "visits": count});
    assert_eq!(stats["countries"], json!([country("", ""), country("DE", "Germany"), country("FR", "France")]));
    let city = |value: &str, country: &str, visits: u64| json!({"value": value, "country": country, "visits": visits});
    assert_eq!(stats["cities"], json!([city("", "", 2 * count), city("Berlin", "DE", count)]));
}

#[test]
fn changed_file_is_read_unless_damaged() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("city.mmdb");
    let setup = locating(Setup::new(&data.path().join("data")).cores(3), &file);
    // The node starts without the file.
    let node = setup.expect("geo_file_invalid").start();
    let mut wires = wires(&node);
    is_seen(&node, "geo_file_invalid");
    let rules = [
        ("https://bonn.test/", "geolocation-city-name", "Bonn"),
        ("https://trier.test/", "geolocation-city-name", "Trier"),
    ];
    let code = with_rules(&mut wires[0], &rules);
    let path = format!("/{code}");
    let mut everywhere = |expected: &str| wires.iter_mut().all(|wire| destination(wire, &path, GERMAN) == expected);
    assert!(everywhere("https://default.test/"));
    let is_invalid = || alarms(&node.status()).contains(&"geo_file_invalid");
    replace(&file, &database("Bonn"));
    wait_until("the file is read", || everywhere("https://bonn.test/"));
    wait_until("the alarm is over", || !is_invalid());
    let whole = database("Trier");
    replace(&file, &whole[..whole.len() - 40]);
    wait_until("the alarm is on", is_invalid);
    assert!(everywhere("https://bonn.test/"));
    replace(&file, &database("Bonn"));
    wait_until("the alarm is over", || !is_invalid());
    fs::remove_file(&file).unwrap();
    wait_until("the alarm is on", is_invalid);
    assert!(everywhere("https://bonn.test/"));
    replace(&file, &whole);
    wait_until("the new file is read", || everywhere("https://trier.test/"));
    wait_until("the alarm is over", || !is_invalid());
}
