//! Properties of clients, in lists of single visits and in the statistics of links, tags, domains and all
//! links.

use serde_json::{Value, json};

use crate::support::api_client::{ApiClient, new_key};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{on_every_kind, wires};
use crate::support::node::Setup;

const BROWSER: &str = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/142.0.0.0 Safari/537.36";
const PHONE: &str = "Mozilla/5.0 (iPhone; CPU iPhone OS 16_4 like Mac OS X) Version/16.4 Mobile/15E148 Safari/604.1";
const BOT: &str = "Googlebot/2.1 (+http://www.google.com/bot.html)";

/// Names of the lists of statistics.
const LISTS: [&str; 13] = [
    "countries",
    "cities",
    "browsers",
    "operatingSystems",
    "devices",
    "languages",
    "referrers",
    "destinations",
    "utmSources",
    "utmMediums",
    "utmCampaigns",
    "utmTerms",
    "utmContents",
];

/// Follows a path with these fields of the head.
fn follow(wire: &mut Wire, path: &str, agent: &str, more: &str) {
    let reply = wire.ask("GET", path, &format!("User-Agent: {agent}\r\n{more}"), b"");
    assert_eq!(reply.status, 302, "{path}");
}

fn stats(wire: &mut Wire, query: &str) -> Value {
    let reply = wire.get(&format!("/rest/v3/visits/stats{query}"));
    assert_eq!(reply.status, 200, "{query}: {}", reply.text());
    reply.json()["visitStats"].clone()
}

/// The values of a list, each with its visits.
fn counts(list: &Value) -> Vec<(&str, u64)> {
    let entries = list.as_array().unwrap().iter();
    entries.map(|entry| (entry["value"].as_str().unwrap(), entry["visits"].as_u64().unwrap())).collect()
}

/// The links of statistics, each with its visits and those of bots.
fn links(list: &Value) -> Vec<(&str, u64, u64)> {
    let count = |of: &Value| of.as_u64().unwrap();
    let links = list.as_array().unwrap().iter();
    links.map(|link| (link["shortCode"].as_str().unwrap(), count(&link["visits"]), count(&link["bots"]))).collect()
}

#[test]
fn each_visit_tells_of_its_client() {
    on_every_kind(|setup| {
        let node = setup.clone().env("CAROM_VISITS_LOG", "on").start();
        let mut wires = wires(&node);
        let code = wires[0].shorten("https://example.org/");
        let path = format!("/{code}?utm_source=news+letter&utm_term=%C3%A9&utm_medium=");
        for wire in &mut wires {
            follow(wire, &path, PHONE, "accept-language: de-CH, de;q=0.9\r\n");
        }
        let visits = wires[0].get(&format!("{SHORT_URLS}/{code}/visits")).json()["visits"]["data"].clone();
        let visits = visits.as_array().unwrap();
        assert_eq!(visits.len(), wires.len());
        for visit in visits {
            assert_eq!((&visit["device"], &visit["operatingSystem"]), (&json!("mobile"), &json!("iOS")));
            assert_eq!((&visit["browser"], &visit["language"]), (&json!("Safari"), &json!("de-CH")));
            let utm = json!({"source": "news letter", "medium": null, "campaign": null, "term": "é", "content": null});
            assert_eq!(visit["utm"], utm);
        }
        // Fields as long as they can be, and none at all.
        let long = format!("Android Mobile Firefox/1 {}", "x".repeat(7_000));
        follow(&mut wires[0], &format!("/{code}"), &long, "Accept-Language: *\r\n");
        follow(&mut wires[7], &format!("/{code}"), "", "");
        let visits =
            wires[0].get(&format!("{SHORT_URLS}/{code}/visits?itemsPerPage=2")).json()["visits"]["data"].clone();
        let told = |visit: &Value| ["device", "operatingSystem", "browser", "language"].map(|name| visit[name].clone());
        // Both may have come within a millisecond.
        let both = [told(&visits[0]), told(&visits[1])];
        assert!(both.contains(&[json!("mobile"), json!("Android"), json!("Firefox"), json!(null)]), "{both:?}");
        assert!(both.contains(&[json!("other"), json!(null), json!(null), json!(null)]), "{both:?}");
    });
}

/// Creates two links, and follows them: five times a tagged one, once the other.
fn followed(wires: &mut [Wire]) {
    let tagged = json!({"longUrl": "https://example.org/a", "customSlug": "tagged", "tags": ["news"]});
    assert_eq!(wires[6].create(&tagged).status, 200);
    wires[0].shorten_as("other", "https://example.org/b");
    let german = "Accept-Language: de-DE\r\nReferer: https://News.example/x\r\n";
    for wire in [0, 6] {
        follow(&mut wires[wire], "/tagged?utm_source=mail&utm_campaign=may", BROWSER, german);
        follow(&mut wires[wire], "/tagged", PHONE, "Accept-Language: fr\r\n");
    }
    follow(&mut wires[1], "/tagged", BOT, "");
    follow(&mut wires[2], "/other", PHONE, "");
    assert_eq!(wires[3].get("/never-made").status, 404);
}

#[test]
fn statistics_count_what_visits_tell() {
    on_every_kind(|setup| {
        let setup = setup.clone().env("CAROM_VISITS_LOG", "on");
        let mut node = setup.start();
        followed(&mut wires(&node));
        for _ in 0..2 {
            let mut wire = node.wire();
            let of_link = stats(&mut wire, "?shortCode=tagged");
            assert_eq!((&of_link["total"], &of_link["bots"]), (&json!(5), &json!(1)));
            assert_eq!((&of_link["complete"], &of_link["enabled"]), (&json!(true), &json!(true)));
            assert!(of_link["since"].as_str().unwrap().starts_with("20"), "{of_link}");
            for (list, expected) in [
                ("devices", vec![("desktop", 2), ("mobile", 2), ("bot", 1)]),
                ("browsers", vec![("Chrome", 2), ("Safari", 2), ("", 1)]),
                ("operatingSystems", vec![("Linux", 2), ("iOS", 2), ("", 1)]),
                ("languages", vec![("de", 2), ("fr", 2), ("", 1)]),
                ("referrers", vec![("", 3), ("news.example", 2)]),
                ("destinations", vec![("https://example.org/a", 5)]),
                ("utmSources", vec![("", 3), ("mail", 2)]),
                ("utmCampaigns", vec![("", 3), ("may", 2)]),
                ("utmMediums", vec![("", 5)]),
                ("countries", vec![("", 5)]),
            ] {
                assert_eq!(counts(&of_link[list]), expected, "{list}");
            }
            assert_eq!((&of_link["countries"][0]["label"], &of_link["cities"][0]["country"]), (&json!(""), &json!("")));
            assert_eq!(stats(&mut wire, "?tag=news"), of_link);
            let all = stats(&mut wire, "");
            assert_eq!((&all["total"], counts(&all["destinations"]).len()), (&json!(6), 2));
            assert_eq!(links(&all["links"]), [("tagged", 5, 1), ("other", 1, 0)]);
            assert_eq!(all["links"][0]["longUrl"], "https://example.org/a");
            let days = all["perDay"].as_array().unwrap();
            assert_eq!(days.iter().map(|day| day["total"].as_u64().unwrap()).sum::<u64>(), 6, "{days:?}");
            let german = stats(&mut wire, "?language=de");
            assert_eq!(links(&german["links"]), [("tagged", 2, 0)]);
            assert_eq!(links(&stats(&mut wire, "?limit=1")["links"]).len(), 1);
            for query in ["?domain=DEFAULT", "?shortCode=&tag=&limit=", "?limit=500&excludeBots=false"] {
                assert_eq!(stats(&mut wire, query), all, "{query}");
            }
            let people = stats(&mut wire, "?excludeBots=true&limit=1");
            assert_eq!((&people["total"], &people["bots"]), (&json!(5), &json!(0)));
            assert!(LISTS.iter().all(|list| people[list].as_array().unwrap().len() == 1), "{people}");
            assert_eq!(stats(&mut wire, "?endDate=2020-01-01")["total"], 0);
            assert_eq!(stats(&mut wire, "?tag=none")["total"], 0);
            drop(wire);
            // A restart counts the same.
            node = node.terminate().start();
        }
    });
}

#[test]
fn statistics_of_many_values_are_whole() {
    on_every_kind(|setup| {
        let node = setup.clone().env("CAROM_VISITS_LOG", "on").start();
        let mut wire = node.wire();
        wire.shorten_as("many", "https://example.org/a");
        // More values than a core sorts and describes itself.
        for number in 0..300 {
            assert_eq!(wire.get(&format!("/many?utm_source=s{number}")).status, 302);
        }
        let shown = node.by_document_thread(|| stats(&mut wire, "?limit=500"));
        assert_eq!((&shown["total"], counts(&shown["utmSources"]).len()), (&json!(300), 300));
        assert_eq!(counts(&stats(&mut wire, "?limit=7")["utmSources"]).len(), 7);
    });
}

#[test]
fn visits_are_selected_by_their_properties() {
    on_every_kind(|setup| {
        let node = setup.clone().env("CAROM_VISITS_LOG", "on").start();
        followed(&mut wires(&node));
        let mut wire = node.wire();
        for (query, total) in [
            ("?utmCampaign=may", 2),
            ("?utmCampaign=may&device=mobile", 0),
            ("?device=mobile", 3),
            ("?referrer=news.example&language=de", 2),
            ("?browser=Safari&tag=news", 2),
            ("?shortCode=tagged&operatingSystem=Linux&excludeBots=true", 2),
            ("?destination=https://example.org/b", 1),
            ("?country=", 6),
            ("?city=Berlin", 0),
            ("?app=nobody", 0),
        ] {
            assert_eq!(stats(&mut wire, query)["total"], total, "{query}");
        }
        for (path, total) in [
            ("/rest/v3/visits/non-orphan?utmSource=mail", 2),
            ("/rest/v3/visits/non-orphan?app=nobody", 0),
            ("/rest/v3/tags/news/visits?device=mobile", 2),
            ("/rest/v3/short-urls/tagged/visits?referrer=news.example", 2),
        ] {
            assert_eq!(wire.get(path).json()["visits"]["pagination"]["totalItems"], total, "{path}");
        }
    });
}

#[test]
fn statistics_refuse_what_they_cannot_count() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).env("CAROM_VISITS_LOG", "on").start();
    let mut wire = node.wire();
    for (query, status, kind) in [
        ("?shortCode=never-made", 404, "/short-url-not-found"),
        ("?domain=none.example", 404, "/domain-not-found"),
        ("?limit=501", 400, "/invalid-data"),
        ("?limit=0", 400, "/invalid-data"),
        ("?startDate=yesterday", 400, "/invalid-data"),
        ("?shortCode=a&tag=b", 400, "/invalid-data"),
        ("?shortCode=a&app=b", 400, "/invalid-data"),
        ("?page=1", 400, "/invalid-data"),
        ("?app=No%20App", 400, "/invalid-data"),
    ] {
        wire.get(&format!("/rest/v3/visits/stats{query}")).problem(status, kind);
    }
}

#[test]
fn statistics_are_those_of_the_key() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path()).env("CAROM_VISITS_LOG", "on");
    let keys = ["one", "two"].map(|app| new_key(&setup, app, "write-own"));
    let node = setup.start();
    let [mut one, mut two] = [&keys[0], &keys[1]].map(|key| ApiClient::new(&node, key));
    let code = one.shorten("https://example.org/");
    follow(&mut node.wire(), &format!("/{code}?utm_source=mail"), BROWSER, "");
    let total = |client: &mut ApiClient, query: &str| {
        client.get(&format!("/rest/v3/visits/stats{query}")).json()["visitStats"]["total"].clone()
    };
    assert_eq!((total(&mut one, "?domain=DEFAULT"), total(&mut two, "?domain=DEFAULT")), (json!(1), json!(0)));
    assert_eq!(total(&mut one, &format!("?shortCode={code}")), 1);
    assert_eq!(two.get(&format!("/rest/v3/visits/stats?shortCode={code}")).status, 404);
    assert_eq!((total(&mut one, ""), total(&mut two, "")), (json!(1), json!(0)));
    // The name of another app selects none of its links.
    let of_one = "?app=one&utmSource=mail";
    assert_eq!((total(&mut one, of_one), total(&mut two, of_one)), (json!(1), json!(0)));
    let listed = |client: &mut ApiClient, query: &str| {
        let reply = client.get(&format!("/rest/v3/visits/non-orphan{query}"));
        reply.json()["visits"]["pagination"]["totalItems"].clone()
    };
    assert_eq!((listed(&mut one, of_one), listed(&mut two, of_one)), (json!(1), json!(0)));
    assert_eq!((listed(&mut one, "?app=two"), listed(&mut two, "?app=two")), (json!(0), json!(0)));
}

#[test]
fn statistics_without_a_log_are_empty() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    follow(&mut wire, &format!("/{code}"), BROWSER, "");
    let empty = stats(&mut wire, &format!("?shortCode={code}"));
    assert_eq!((&empty["enabled"], &empty["total"], &empty["since"]), (&json!(false), &json!(0), &json!(null)));
    assert!(LISTS.iter().all(|list| empty[list] == json!([])), "{empty}");
}
