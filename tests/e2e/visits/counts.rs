//! Visit counts by link, kind, time and referring host: each redirect counts once, on every core and over both HTTP
//! paths, and a crash loses less than a second of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::http::{SHORT_URLS, Wire};
use crate::support::links::{on_every_kind, wires};
use crate::support::node::{PATIENCE, Setup, wait_until};
use crate::support::visits::{BOT, BROWSER};

fn visits(wire: &mut Wire, code: &str) -> Value {
    wire.get(&format!("{SHORT_URLS}/{code}/visits")).json()["visits"].clone()
}

fn summary(total: u64, bots: u64) -> Value {
    json!({"total": total, "nonBots": total - bots, "bots": bots})
}

/// Follows a link once over each connection.
fn follow(wires: &mut [Wire], code: &str, fields: &str) {
    for wire in wires {
        assert_eq!(wire.ask("GET", &format!("/{code}"), fields, b"").status, 302);
    }
}

#[test]
fn each_redirect_is_counted_once() {
    on_every_kind(|setup| {
        // Each start has another port, and `visitedUrl` would have it.
        let setup = setup.clone().env("CAROM_BASE_URL", "https://s.example");
        let node = setup.start();
        let mut wires = wires(&node);
        let count = wires.len() as u64;
        let code = wires[6].shorten("https://example.org/counted");
        assert_eq!(wires[6].get(&format!("{SHORT_URLS}/{code}")).json()["visitsSummary"], summary(0, 0));
        follow(&mut wires, &code, BROWSER);
        follow(&mut wires, &code, &format!("{BOT}Referer: https://News.example/a?b\r\n"));
        follow(&mut wires[..3], &code, "Referer: http://other.example:8080/\r\n");
        for wire in &mut wires {
            wire.send(format!("HEAD /{code} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
            assert_eq!(wire.try_reply(true).unwrap().status, 302);
            assert_eq!(wire.ask("GET", "/never-made", BROWSER, b"").status, 404);
        }
        let seen = visits(&mut wires[0], &code);
        assert_eq!(seen["summary"], summary(2 * count + 3, count));
        let referrers = json!([{"host": "news.example", "total": count}, {"host": "other.example", "total": 3}]);
        assert_eq!(seen["referrers"], referrers);
        for times in ["perDay", "perHour"] {
            let sum: u64 = seen[times].as_array().unwrap().iter().map(|time| time["total"].as_u64().unwrap()).sum();
            assert_eq!(sum, 2 * count + 3, "{times}");
        }
        let read = wires[6].get(&format!("{SHORT_URLS}/{code}")).json();
        assert_eq!(read["visitsSummary"], seen["summary"]);
        let all = wires[6].get("/rest/v3/visits").json()["visits"].clone();
        assert_eq!(&all["nonOrphanVisits"], &seen["summary"]);
        assert_eq!(&all["orphanVisits"], &summary(count, 0));
        assert_eq!(&all["visitsCount"], &json!(2 * count + 3));
        assert_eq!(&all["orphanVisitsCount"], &json!(count));
        drop(wires);
        node.terminate();
        // And they are there after a restart.
        let node = setup.start();
        assert_eq!(visits(&mut node.wire(), &code), seen);
    });
}

#[test]
fn time_range_filters_and_is_validated() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    follow(std::slice::from_mut(&mut wire), &code, BROWSER);
    let mut asked = |query: &str| wire.get(&format!("{SHORT_URLS}/{code}/visits?{query}"));
    assert_eq!(asked("startDate=2020-01-01T00:00:00Z").json()["visits"]["summary"], summary(1, 0));
    let past = asked("endDate=2020-01-01T00%3A00%3A00%2B00%3A00").json();
    assert_eq!(&past["visits"]["summary"], &summary(0, 0));
    assert_eq!(&past["visits"]["perHour"], &json!([]));
    // Referrers have no days, so those of all time would be wrong for a period.
    assert_eq!(&past["visits"]["referrers"], &Value::Null);
    assert_eq!(asked("").json()["visits"]["referrers"], json!([]));
    let problem = asked("startDate=soon&endDate=1").problem(400, "/invalid-data");
    assert_eq!(problem["invalidElements"], json!(["startDate", "endDate"]));
    for path in [format!("{SHORT_URLS}/never-made/visits"), format!("{SHORT_URLS}/%20/visits")] {
        wire.get(&path).problem(404, "/short-url-not-found");
    }
    assert_eq!(wire.ask("POST", &format!("{SHORT_URLS}/{code}/visits"), "", b"").status, 405);
}

#[test]
fn new_link_of_a_slug_has_no_visits() {
    on_every_kind(|setup| {
        let node = setup.start();
        let mut wires = wires(&node);
        for _ in 0..3 {
            wires[6].shorten_as("again", "https://example.org/");
            assert_eq!(visits(&mut wires[0], "again")["summary"], summary(0, 0));
            follow(&mut wires, "again", BROWSER);
            assert_eq!(visits(&mut wires[0], "again")["summary"]["total"], wires.len() as u64);
            assert_eq!(wires[6].delete("again").status, 204);
        }
    });
}

#[test]
fn kill_after_delete_leaves_no_visits() {
    let data = tempfile::tempdir().unwrap();
    let setup = Setup::new(data.path());
    let node = setup.start();
    let mut wire = node.wire();
    wire.shorten_as("again", "https://example.org/");
    follow(std::slice::from_mut(&mut wire), "again", BROWSER);
    drop(wire);
    // The log has the visit.
    node.terminate();
    let node = setup.start();
    let mut wire = node.wire();
    assert_eq!(visits(&mut wire, "again")["summary"], summary(1, 0));
    assert_eq!(wire.delete("again").status, 204);
    node.kill();
    let node = setup.start();
    let mut wire = node.wire();
    wire.shorten_as("again", "https://example.org/");
    assert_eq!(visits(&mut wire, "again")["summary"], summary(0, 0));
}

/// Follows links one after the other, for longer than a second, and kills the node. Returns how many redirects were
/// answered more than a second before that, and how many visits the next process knows of.
fn counted_over_a_kill(setup: &Setup) -> (u64, u64) {
    let node = setup.start();
    let mut wire = node.wire();
    let code = wire.shorten("https://example.org/");
    let (begin, mut answered) = (Instant::now(), Vec::new());
    let safe = |answered: &[Instant], now: Instant| {
        answered.iter().filter(|at| now.duration_since(**at) > Duration::from_secs(1)).count() as u64
    };
    while begin.elapsed() < Duration::from_millis(2_500) || safe(&answered, Instant::now()) <= 100 {
        assert!(begin.elapsed() < PATIENCE, "{} redirects", answered.len());
        follow(std::slice::from_mut(&mut wire), &code, BROWSER);
        answered.push(Instant::now());
        std::thread::sleep(Duration::from_millis(1));
    }
    let killed = Instant::now();
    node.kill();
    let safe = safe(&answered, killed);
    let node = setup.start();
    let total = visits(&mut node.wire(), &code)["summary"]["total"].as_u64().unwrap();
    assert!(total <= answered.len() as u64, "{total} of {}", answered.len());
    (safe, total)
}

#[test]
fn crash_loses_under_a_second() {
    for cores in [1, 3] {
        // Each second is the node's own: one that the machine kept it from is not, and such a one is not in every kill.
        let mut kills = Vec::new();
        let are_kept = (0..3).any(|_| {
            let data = tempfile::tempdir().unwrap();
            let (safe, total) = counted_over_a_kill(&Setup::new(data.path()).cores(cores));
            kills.push(format!("{total} are known, {safe} had to be"));
            total >= safe
        });
        assert!(are_kept, "{kills:?}");
    }
}

#[test]
fn concurrent_visits_are_counted() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).cores(3).start();
    let mut wires: Vec<Wire> = (0..24).map(|_| node.wire()).collect();
    let codes: Vec<String> = (0..50).map(|_| wires[0].shorten("https://example.org/")).collect();
    std::thread::scope(|scope| {
        for wire in &mut wires {
            scope.spawn(|| {
                codes.iter().cycle().take(500).for_each(|code| follow(std::slice::from_mut(wire), code, BROWSER));
            });
        }
    });
    let mut wire = node.wire();
    for code in &codes {
        assert_eq!(visits(&mut wire, code)["summary"], summary(24 * 10, 0));
    }
    wait_until("an answer for all", || wire.get("/rest/v3/visits").json()["visits"]["visitsCount"] == 24 * 500);
    assert_eq!(node.status()["visits"]["dropped"], 0);
}

/// Returns the links of an answer with the visits of their days, in order.
fn days(reply: &Value) -> Vec<(String, Vec<u64>)> {
    let of_link = |link: &Value| {
        let totals = link["perDay"].as_array().unwrap().iter().map(|day| day["total"].as_u64().unwrap());
        (link["shortCode"].as_str().unwrap().to_owned(), totals.collect())
    };
    reply["visits"]["data"].as_array().unwrap().iter().map(of_link).collect()
}

#[test]
fn several_links_are_counted_by_day_at_once() {
    let data = tempfile::tempdir().unwrap();
    let node = Setup::new(data.path()).start();
    let mut wire = node.wire();
    let codes: Vec<String> = (0..3).map(|at| wire.shorten(&format!("https://example.org/{at}"))).collect();
    follow(std::slice::from_mut(&mut wire), &codes[0], BROWSER);
    follow(std::slice::from_mut(&mut wire), &codes[0], BOT);
    follow(std::slice::from_mut(&mut wire), &codes[2], BROWSER);
    let path = "/rest/v3/visits/per-day";
    let query: String = codes.iter().map(|code| format!("shortCodes[]={code}&")).collect();
    let counted = vec![(codes[0].clone(), 2), (codes[1].clone(), 0), (codes[2].clone(), 1)];
    // The visits may lie on two sides of midnight.
    let sums = |reply: &Value| -> Vec<(String, u64)> {
        days(reply).into_iter().map(|(code, totals)| (code, totals.iter().sum())).collect()
    };
    wait_until("the visits by day", || sums(&wire.get(&format!("{path}?{query}")).json()) == counted);
    let reply = wire.get(&format!("{path}?{query}")).json();
    let alone = visits(&mut wire, &codes[0]);
    assert_eq!(reply["visits"]["data"][0]["perDay"], alone["perDay"]);
    assert_eq!(reply["visits"]["data"][0]["domain"], Value::Null);
    // Links that do not exist, and texts that are no codes, are omitted.
    let some = wire.get(&format!("{path}?shortCodes[]=never-made&shortCodes[]=%20&shortCodes[]={}", codes[1])).json();
    assert_eq!(days(&some), [(codes[1].clone(), Vec::new())]);
    assert_eq!(wire.get(path).json(), json!({"visits": {"data": []}}));
    assert_eq!(wire.get(&format!("{path}?{query}&domain=other.example")).json(), json!({"visits": {"data": []}}));
    let past = wire.get(&format!("{path}?{query}&startDate=2020-01-01&endDate=2020-01-31")).json();
    assert!(days(&past).iter().all(|(_, totals)| totals.is_empty()), "{past}");
    let many = "shortCodes[]=a&".repeat(101);
    assert_eq!(
        wire.get(&format!("{path}?{many}")).problem(400, "/invalid-data")["invalidElements"],
        json!(["shortCodes"])
    );
    node.terminate();
}
