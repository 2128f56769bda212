//! The alerts in `deploy/prometheus`: each leads to a section of the documentation, is tested both firing and silent,
//! and stands in the table of the monitoring page. Alarms have the severity there that they have in the code.

use std::path::Path;

use carom_telemetry::alarms::Alarm;

use super::markdown::anchors;
use super::{read, root};

/// The template of the place of the pages of `docs/src`: an external label, or else where the Debian package installs
/// them.
const BASE: &str = "{{ or $externalLabels.runbook_base `file:///usr/share/doc/carom/docs` }}/";

/// Alarms that alerts of their own cover, and these alerts.
const COVERED: [(Alarm, &str); 6] = [
    (Alarm::CertificateEnds, "CaromCertificateEnds"),
    (Alarm::DiskFull, "CaromTakesNoWrites"),
    (Alarm::StoreFailed, "CaromTakesNoWrites"),
    (Alarm::RedisAway, "CaromRedisAway"),
    (Alarm::SiteAway, "CaromSiteAway"),
    (Alarm::VisitsDropped, "CaromVisitsDropped"),
];

/// One rule of the file of alerts.
struct Rule<'t> {
    alert: &'t str,
    severity: &'t str,
    runbook: &'t str,
    expr: &'t str,
}

impl Rule<'_> {
    /// True if the rule is about this alarm.
    fn watches(&self, alarm: Alarm) -> bool {
        let names = |operator: &str| {
            let list = between(self.expr, &format!("carom_alarm_active{{alarm{operator}\""), "\"");
            list.map(|list| list.split('|').any(|name| name == alarm.name()))
        };
        names("=~").unwrap_or(false) || names("!~").is_some_and(|is_left_out| !is_left_out)
    }
}

fn between<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    text.split_once(before)?.1.split_once(after).map(|(found, _)| found)
}

fn rules(text: &str) -> Vec<Rule<'_>> {
    let parts = text.split("\n      - alert: ").skip(1);
    let rule = |part| {
        let (alert, _) = str::split_once(part, '\n')?;
        let severity = between(part, "labels: {severity: ", "}")?;
        let runbook = between(part, "runbook_url: \"", "\"")?;
        Some(Rule { alert, severity, runbook, expr: between(part, "expr: ", "labels:")? })
    };
    parts.map(|part| rule(part).unwrap_or_else(|| panic!("not a whole rule: {part}"))).collect()
}

/// Returns the problem with the target of a rule, or `None`. `read` reads a page of `docs/src`.
fn lost(rule: &Rule<'_>, read: &dyn Fn(&Path) -> Option<String>) -> Option<String> {
    let target = rule.runbook.strip_prefix(BASE).and_then(|target| target.split_once('#'));
    let Some((page, anchor)) = target else {
        return Some(format!("{}: {} is not a section of a page below {BASE}", rule.alert, rule.runbook));
    };
    // The section of each alarm is another test's subject.
    let is_known = |text: String| anchor == "{{ $labels.alarm }}" || anchors(&text).iter().any(|known| known == anchor);
    let is_found = read(Path::new(page)).is_some_and(is_known);
    (!is_found).then(|| format!("{}: {} does not exist", rule.alert, rule.runbook))
}

/// Returns the cases that the tests of the rules leave out: one in which this rule fires, or one in which it is silent.
fn untested(rule: &Rule<'_>, tests: &str) -> Vec<String> {
    let mut cases =
        tests.split("alertname: ").skip(1).filter(|case| case.split(['\n', '}']).next() == Some(rule.alert));
    let severity = format!("severity: {}", rule.severity);
    let mut missing = Vec::new();
    if !cases.clone().any(|case| case.contains("exp_alerts:") && case.contains(&severity)) {
        missing.push(format!("{}: no test sees it fire with {severity}", rule.alert));
    }
    if !cases.any(|case| !case.contains("exp_alerts:")) {
        missing.push(format!("{}: no test sees it silent", rule.alert));
    }
    missing
}

/// True if a table has a row of this alert with this severity.
fn has_row(page: &str, rule: &Rule<'_>) -> bool {
    let start = format!("| {} | ", rule.alert);
    page.lines().filter_map(|line| line.strip_prefix(&start)).any(|row| {
        let cell = row.split(" | ").next().unwrap_or_default();
        cell.split(|c: char| !c.is_alphabetic()).any(|word| word == rule.severity)
    })
}

#[test]
fn every_alert_has_section_test_and_row() {
    let text = read("deploy/prometheus/carom.rules.yml");
    let tests = ["carom.rules.test.yml", "carom.rules.days.test.yml"]
        .map(|file| read(&format!("deploy/prometheus/{file}")))
        .concat();
    let monitoring = read("docs/src/operate/monitoring.md");
    let rules = rules(&text);
    assert!(rules.len() > 15, "{}", rules.len());
    let page = |path: &Path| std::fs::read_to_string(root().join("docs/src").join(path)).ok();
    let mut problems = Vec::new();
    for rule in &rules {
        problems.extend(lost(rule, &page));
        problems.extend(untested(rule, &tests));
        if !has_row(&monitoring, rule) {
            problems
                .push(format!("{}: docs/src/operate/monitoring.md does not list it as {}", rule.alert, rule.severity));
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn every_alarm_has_one_alert() {
    let text = read("deploy/prometheus/carom.rules.yml");
    let rules = rules(&text);
    for alarm in Alarm::ALL {
        let found: Vec<&str> = rules.iter().filter(|rule| rule.watches(alarm)).map(|rule| rule.severity).collect();
        match COVERED.iter().find(|(covered, _)| *covered == alarm) {
            Some((_, alert)) => {
                assert!(found.is_empty(), "{}: {alert} covers it, and CaromAlarm alerts again", alarm.name());
                let severity = alarm.severity().name();
                let is_there = rules.iter().any(|rule| rule.alert == *alert && rule.severity == severity);
                assert!(is_there, "{}: there is no alert {alert} with the severity {severity}", alarm.name());
            }
            None => assert_eq!(found, [alarm.severity().name()], "severity of {} in CaromAlarm", alarm.name()),
        }
    }
}

#[test]
fn inhibition_names_existing_alerts_and_alarms() {
    let text = read("deploy/prometheus/carom.rules.yml");
    let rules = rules(&text);
    let inhibition = read("deploy/prometheus/alertmanager.yml");
    assert!(inhibition.matches("source_matchers:").count() > 5);
    let unknown = unknown_names(&inhibition, &rules);
    assert!(unknown.is_empty(), "alertmanager.yml names {unknown:?}, which does not exist");
    // The severities of the routes are those of the alerts.
    for severity in ["critical", "warning", "notice"] {
        assert!(inhibition.contains(severity), "{severity}");
        assert!(rules.iter().any(|rule| rule.severity == severity), "{severity}");
    }
}

/// Returns the alerts and alarms in the matchers of a file that are none.
fn unknown_names<'t>(text: &'t str, rules: &[Rule<'_>]) -> Vec<&'t str> {
    let values = move |label: &'static str| {
        let matchers = text.split(label).skip(1).filter_map(|rest| rest.split('"').next());
        matchers.flat_map(|names| names.split('|')).filter(|name| !name.contains('*'))
    };
    let is_alert = |name: &str| rules.iter().any(|rule| rule.alert == name);
    let is_alarm = |name: &str| Alarm::ALL.iter().any(|alarm| alarm.name() == name);
    let alerts = ["alertname=\"", "alertname=~\"", "alertname!=\""];
    let alarms = ["alarm=\"", "alarm=~\""];
    let mut unknown: Vec<&str> = Vec::new();
    unknown.extend(alerts.into_iter().flat_map(values).filter(|name| !is_alert(name)));
    unknown.extend(alarms.into_iter().flat_map(values).filter(|name| !is_alarm(name)));
    unknown
}

#[test]
fn planted_faults_are_found() {
    fn rule(runbook: &str) -> Rule<'_> {
        Rule { alert: "A", severity: "critical", runbook, expr: "up == 0" }
    }
    let page = |path: &Path| (path == Path::new("a.md")).then(|| "# A\n\n## Of two words\n".to_owned());
    assert!(lost(&rule(&format!("{BASE}a.md#of-two-words")), &page).is_none());
    for wrong in ["RUNBOOK.md#a", &format!("{BASE}a.md#b"), &format!("{BASE}b.md#a")] {
        assert!(lost(&rule(wrong), &page).is_some(), "{wrong}");
    }
    let matchers =
        "[alertname=\"A\"] [alertname=~\"A|B\", alertname!=\"C\"] [alertname=~\"A.*\", alarm=~\"disk_full|x\"]";
    assert_eq!(unknown_names(matchers, &[rule("")]), ["B", "C", "x"]);
    let fires = "  alertname: A\n  exp_alerts:\n    - exp_labels: {severity: critical}\n";
    assert_eq!(untested(&rule(""), &format!("{{alertname: A}}\n{fires}")), [""; 0]);
    assert_eq!(untested(&rule(""), fires).len(), 1);
    assert_eq!(untested(&rule(""), &format!("{{alertname: A}}\n{}", fires.replace("critical", "warning"))).len(), 1);
    assert_eq!(untested(&rule(""), "alertname: AB\n").len(), 2);
    assert!(has_row("| A | warning; critical after an hour | see |", &rule("")));
    assert!(!has_row("| A | warning | critical |\n| AB | critical | |", &rule("")));
}
