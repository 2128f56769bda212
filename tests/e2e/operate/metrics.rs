//! Metrics: they equal the status, Prometheus accepts them, and they hold every series of the alerts and the dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use carom::api::admin::metrics::sample_page;
use serde_json::Value;

use crate::support::api_client;
use crate::support::fleet::{self, settle};
use crate::support::http::{SHORT_URLS, Wire};
use crate::support::node::{Node, Setup, sum, wait_for, wait_until};
use crate::support::redis::Server;
use crate::support::tls::{Ca, NAME, open};

const TARGET: &str = "https://example.org/";

/// Returns the metrics of a node in the format of Prometheus.
fn scrape(node: &Node) -> String {
    let reply = Wire::open(node.admin).get("/metrics");
    assert_eq!(reply.field("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    reply.text().to_owned()
}

/// The samples, each by its name with its labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let all: Vec<(&str, f64)> = lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name, value.parse().unwrap_or_else(|_| panic!("{name} {value}"))))
        .collect();
    let (count, samples) = (all.len(), all.into_iter().collect::<BTreeMap<_, _>>());
    assert_eq!(samples.len(), count, "a sample stands there twice");
    samples
}

/// The sum of a metric over all its labels.
fn total(text: &str, name: &str) -> f64 {
    let is_of = |sample: &str| sample.split('{').next() == Some(name);
    samples(text).into_iter().filter(|(sample, _)| is_of(sample)).map(|(_, value)| value).sum()
}

/// Runs `promtool` on a file, or on what it is given.
fn promtool(arguments: &[&str], input: &str) -> String {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool, which `make test` installs");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let made = child.wait_with_output().unwrap();
    let said = String::from_utf8([made.stdout, made.stderr].concat()).unwrap();
    assert!(made.status.success(), "promtool {arguments:?}: {said}");
    said
}

fn deployed(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(file)
}

/// A node that has everything that there is something to tell of, with the folder that it is in.
fn full_node(dir: &Path, redis: &Server) -> Node {
    let ca = Ca::new(dir);
    ca.write("go", &[NAME]);
    let setup = fleet::setup(&dir.join("data"), 1, &redis.url());
    let files = [("CAROM_TLS_CERT", "go.pem"), ("CAROM_TLS_KEY", "go.key")];
    let setup = files.into_iter().fold(setup, |setup, (name, file)| setup.env(name, &ca.file(file)));
    let node = setup.env("CAROM_ALLOW_HOSTS", "example.org").start();
    settle(&node);
    let key = api_client::new_key(&setup_of(dir), "shop", "write-own");
    let list = |fields: &str| open(node.public, &ca.usual()).ask("GET", SHORT_URLS, fields, b"").status;
    wait_until("a key that is asked for", || list("") == 401);
    assert_eq!(list(&format!("X-Api-Key: {key}\r\n")), 200);
    node
}

fn setup_of(dir: &Path) -> Setup {
    Setup::new(&dir.join("data"))
}

#[test]
fn metrics_equal_the_status() {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let node = Setup::new(dir.path()).cores(cores).start();
        let mut wire = node.wire();
        let codes: Vec<String> = (0..20).map(|number| wire.shorten(&format!("{TARGET}{number}"))).collect();
        for code in &codes {
            assert_eq!(node.wire().get(&format!("/{code}")).status, 302);
            assert_eq!(node.wire().get("/none").status, 404);
        }
        let (text, status) = (scrape(&node), node.status());
        for (name, pointer) in
            [("carom_redirects_total", "/redirects"), ("carom_misses_total", "/misses"), ("carom_links", "/links")]
        {
            assert_eq!(total(&text, name), 20.0, "{name}");
            assert_eq!(sum(&status, pointer), 20, "{name}");
        }
        assert_eq!(total(&text, "carom_store_updates_total"), 20.0);
        assert!(total(&text, "carom_store_sync_duration_seconds_count") >= 1.0);
        let commits = total(&text, "carom_store_commit_duration_seconds_sum");
        assert!(commits >= total(&text, "carom_store_sync_duration_seconds_sum"));
        assert!(commits < 60.0);
        // Each answer from memory is in the histogram of its core, and nothing takes less than no time.
        assert!(total(&text, "carom_request_duration_seconds_count") >= 40.0);
        let samples = samples(&text);
        for core in 0..cores {
            let of =
                |le: &str| samples[&*format!("carom_request_duration_seconds_bucket{{core=\"{core}\",le=\"{le}\"}}")];
            assert!(of("0.000025") <= of("0.001"));
            assert!(of("0.001") <= of("+Inf"));
            assert_eq!(of("+Inf"), samples[&*format!("carom_request_duration_seconds_count{{core=\"{core}\"}}")]);
        }
        assert_eq!(samples["carom_ready"], 1.0);
        assert_eq!(samples["carom_store_writable"], 1.0);
        assert_eq!(total(&text, "carom_alarm_active"), 0.0);
        assert!(samples["process_resident_memory_bytes"] > 1e6);
        assert!(samples["process_open_fds"] > 10.0);
        assert!((total(&text, "process_cpu_seconds_total") - node.cpu_seconds()).abs() < 1.0);
        drop(wire);
        node.terminate();
    }
}

#[test]
fn promtool_accepts_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let redis = Server::start();
    let node = full_node(dir.path(), &redis);
    // A late heartbeat disconnects the node for a moment.
    let text = wait_for("the metrics of a connected node", || {
        Some(scrape(&node)).filter(|text| samples(text).get("carom_redis_connected") == Some(&1.0))
    });
    assert_eq!(promtool(&["check", "metrics"], &text), "");
    for name in [
        "carom_redis_connected",
        "carom_app_requests_total{app=\"shop\"}",
        "carom_host_list_entries{list=\"allow\",part=\"static\"}",
    ] {
        assert!(samples(&text).get(name).is_some_and(|value| *value >= 1.0), "{name}");
    }
    assert!(total(&text, "carom_tls_certificate_expiry_timestamp_seconds") > 1.7e9);
    // Neither hosts, nor codes, nor keys: who reads metrics learns numbers.
    assert!(!text.contains("example.org"));
    assert!(!text.contains(fleet::KEY));

    // The alerts and the dashboard ask for nothing that is not there.
    let sample = sample_page();
    let mut known: BTreeSet<&str> = text.lines().filter_map(family_of).collect();
    // The metrics of sites are those of a fleet of two sites, which this one is not.
    let is_of_sites = |name: &&str| name.starts_with("carom_site_");
    assert!(!known.iter().any(is_of_sites), "{known:?}");
    known.extend(sample.lines().filter_map(family_of).filter(is_of_sites));
    let rules = fs::read_to_string(deployed("prometheus/carom.rules.yml")).unwrap();
    let dashboard = fs::read_to_string(deployed("grafana/carom.json")).unwrap();
    for (file, text) in [("rules", &rules), ("dashboard", &dashboard)] {
        for name in metrics_in(text) {
            let family =
                ["_bucket", "_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix)).unwrap_or(name);
            assert!(known.contains(family) || known.contains(name), "{file}: nobody tells of {name}");
        }
    }
    node.terminate();
}

/// The name of a metric, in the line that declares its type.
fn family_of(line: &str) -> Option<&str> {
    line.strip_prefix("# TYPE ")?.split(' ').next()
}

/// The names of metrics in a text.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("carom_") || word.starts_with("process_")).collect()
}

/// An expression of the dashboard with values for the variables of Grafana.
fn filled_in(question: &str) -> String {
    let question = question.replace("$__rate_interval", "1m").replace("$instance", ".*");
    assert!(!question.contains('$'), "{question}");
    question
}

#[test]
fn dashboard_has_thresholds_and_states() {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(deployed("grafana/carom.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let numbers: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(numbers.len(), panels.len(), "two panels have one number");
    let of_kind = |kind: &'static str| panels.iter().filter(move |panel| panel["type"] == kind);
    for panel in of_kind("stat") {
        let steps = &panel["fieldConfig"]["defaults"]["thresholds"]["steps"];
        assert!(steps.as_array().is_some_and(|steps| !steps.is_empty()), "{}: no thresholds", panel["title"]);
    }
    let heat = of_kind("heatmap").next().expect("a heat map of latencies");
    let target = &heat["targets"][0];
    assert_eq!(target["format"], "heatmap");
    assert!(target["expr"].as_str().unwrap().contains("by (le) (increase(carom_request_duration_seconds_bucket"));
    let timelines: Vec<&str> =
        of_kind("state-timeline").map(|panel| panel["targets"][0]["expr"].as_str().unwrap()).collect();
    assert!(timelines.iter().any(|question| question.contains("carom_alarm_active")), "{timelines:?}");
    let restarts = &dashboard["annotations"]["list"][0];
    assert!(restarts["expr"].as_str().unwrap().starts_with("process_start_time_seconds"), "{restarts}");
    assert_eq!(restarts["useValueForTime"], true);
}

#[test]
fn alerts_and_dashboard_are_valid() {
    let rules = deployed("prometheus/carom.rules.yml");
    promtool(&["check", "rules", rules.to_str().unwrap()], "");
    let tests = ["prometheus/carom.rules.test.yml", "prometheus/carom.rules.days.test.yml"].map(deployed);
    promtool(&["test", "rules", tests[0].to_str().unwrap(), tests[1].to_str().unwrap()], "");
    promtool(&["check", "config", deployed("prometheus/prometheus.yml").to_str().unwrap()], "");
    // Every question of the dashboard, as a rule: so Prometheus reads it.
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(deployed("grafana/carom.json")).unwrap()).unwrap();
    let mut questions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let question = target["expr"].as_str().unwrap();
            questions.push(filled_in(question));
            // It counts changes and deletes too, so nobody may take it for new links.
            if question.contains("carom_store_updates_total") {
                let title = panel["title"].as_str().unwrap();
                assert!(title.to_lowercase().contains("writes"), "{title} shows creates, changes and deletes");
            }
        }
    }
    assert!(questions.len() > 30);
    let annotations = dashboard["annotations"]["list"].as_array().unwrap();
    questions.extend(annotations.iter().map(|annotation| filled_in(annotation["expr"].as_str().unwrap())));
    let rules: Vec<Value> = questions
        .iter()
        .enumerate()
        .map(|(number, question)| serde_json::json!({"record": format!("question_{number}"), "expr": question}))
        .collect();
    let file = tempfile::NamedTempFile::new().unwrap();
    // JSON is YAML.
    fs::write(file.path(), serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]}).to_string()).unwrap();
    promtool(&["check", "rules", file.path().to_str().unwrap()], "");
}

#[test]
fn inhibition_is_valid() {
    let made = Command::new("amtool")
        .arg("check-config")
        .arg(deployed("prometheus/alertmanager.yml"))
        .output()
        .expect("amtool, which `make test` installs");
    let said = String::from_utf8([made.stdout, made.stderr].concat()).unwrap();
    assert!(made.status.success(), "{said}");
    assert!(said.contains("inhibit rules"), "{said}");
}
