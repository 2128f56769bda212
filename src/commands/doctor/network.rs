//! Checks of the surroundings of a node: Redis, DNS, certificates, proxies and API keys.

use std::net::{IpAddr, ToSocketAddrs, UdpSocket};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use carom_redis::{Client, EvictionPolicy, RedisCommand, RedisError, RequestRoute, ServerAddress, Value, cmd, text};

use super::finding::CheckResult;
use crate::startup::data_dir::api_keys;
use crate::startup::files;
use crate::startup::redis::client_settings;
use carom_model::destination::hosts::host_of;
use carom_settings::Settings;
use carom_telemetry::clock::unix_ms;
use carom_telemetry::readable;

/// Time for an answer of Redis, and of the name server.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// Latency of Redis from which on it slows creates down.
const REDIS_SLOW: Duration = Duration::from_millis(5);

/// Difference between two clocks of a fleet that is too large.
const CLOCK_APART_MS: u64 = 1_000;

/// Time before the end of a certificate at which a node raises an alarm, in seconds.
const ENDS_SOON: i64 = 14 * 86_400;

/// Checks the surroundings of a node with these settings.
pub(super) fn findings(settings: &Settings) -> Vec<CheckResult> {
    let mut findings = Vec::new();
    findings.extend(redis(settings));
    findings.push(base_url(settings));
    findings.extend(certificates(settings));
    findings.extend(proxies(settings));
    findings.push(keys(settings));
    findings
}

fn redis(settings: &Settings) -> Vec<CheckResult> {
    let Some(url) = &settings.fleet.redis else { return Vec::new() };
    let client = client_settings(url, settings.fleet.password.as_ref(), settings.fleet.ca_file.clone());
    let place = client.to_string();
    let mut client = match Client::new(client, &[]) {
        Ok(client) => client,
        Err(why) => return vec![CheckResult::error(format!("fleet.ca_file: {why}"), "correct fleet.ca_file")],
    };
    let mut ask = |command: carom_redis::Cmd| {
        let begun = Instant::now();
        let answer = client.ask_all(vec![(RequestRoute::Slot(0), RedisCommand::Plain(command))], ANSWER_TIME).pop();
        let answer = answer.unwrap_or(Ok(Value::Nil)).map_err(|error| error.to_string());
        answer.map(|value| (value, begun.elapsed()))
    };
    // The first request also connects.
    if let Err(why) = ask(cmd("PING")) {
        let remedy =
            format!("start Redis, and check the address and password of `redis`: redis-cli -u URL ping ({place})");
        return vec![CheckResult::error(format!("Redis does not answer: {why}"), remedy)];
    }
    let mut findings = Vec::new();
    let latency = ask(cmd("PING")).map_or(ANSWER_TIME, |(_, time)| time);
    let shown = format!("Redis at {place} answers in {}", readable::latency(latency.as_secs_f64() * 1e6));
    findings.push(if latency < REDIS_SLOW {
        CheckResult::ok(shown)
    } else {
        CheckResult::warning(shown, "custom slugs and changes wait for Redis: put it closer to the nodes")
    });
    let mut script = cmd("EVAL");
    script.arg("return 1").arg(0);
    if let Err(why) = ask(script) {
        findings.push(CheckResult::error(
            format!("Redis refuses scripts: {why}"),
            "allow EVAL, EVALSHA and SCRIPT to the user",
        ));
    }
    let asked_ms = unix_ms();
    let theirs_ms = ask(cmd("TIME")).ok().and_then(|(value, _)| time_ms(&value));
    findings.extend(theirs_ms.map(|theirs_ms| check_clocks(outside_ms(theirs_ms, asked_ms, unix_ms()))));
    findings.extend(evictions(&mut client));
    findings
}

/// Checks that no master removes keys by itself. A server that does not name its policy is left out.
fn evictions(client: &mut Client) -> Vec<CheckResult> {
    let masters = client.masters().to_vec();
    let info = || RedisCommand::Plain(cmd("INFO").arg("memory").to_owned());
    let questions = masters.iter().map(|master| (RequestRoute::Server(master.clone()), info())).collect();
    let answers = client.ask_all(questions, ANSWER_TIME);
    let policy = |(master, answer): (&ServerAddress, Result<Value, RedisError>)| {
        Some(check_eviction(master, &EvictionPolicy::parse(&answer.ok()?)?))
    };
    masters.iter().zip(answers).filter_map(policy).collect()
}

fn check_eviction(server: &ServerAddress, policy: &EvictionPolicy) -> CheckResult {
    if !policy.may_evict() {
        return CheckResult::ok(format!("Redis at {server} removes no keys when its memory is full"));
    }
    CheckResult::warning(
        format!(
            "Redis at {server} may remove links: maxmemory-policy is {}, and maxmemory is {}",
            policy.name, policy.maxmemory
        ),
        format!(
            "redis-cli -h {} -p {} CONFIG SET maxmemory-policy noeviction; also set it in the configuration of Redis",
            server.host, server.port
        ),
    )
}

/// Reads the answer to `TIME`: seconds and microseconds since 1970.
fn time_ms(value: &Value) -> Option<u64> {
    let Value::Array(parts) = value else { return None };
    let number = |at: usize| text(parts.get(at)?).parse::<u64>().ok();
    Some(number(0)? * 1_000 + number(1)? / 1_000)
}

/// Returns how far an instant lies outside of the time between a question and its answer, which may take long.
fn outside_ms(instant_ms: u64, asked_ms: u64, answered_ms: u64) -> u64 {
    asked_ms.saturating_sub(instant_ms).max(instant_ms.saturating_sub(answered_ms))
}

fn check_clocks(apart_ms: u64) -> CheckResult {
    let shown = format!("the clocks of this machine and of Redis are {apart_ms} ms apart");
    if apart_ms < CLOCK_APART_MS {
        return CheckResult::ok(shown);
    }
    CheckResult::warning(shown, "timedatectl set-ntp true, on both machines")
}

fn base_url(settings: &Settings) -> CheckResult {
    let Some(url) = &settings.base_url else {
        return CheckResult::warning(
            format!("base_url is not set, so short URLs begin with http://{}", settings.listen[0]),
            "set base_url = \"https://go.example\" to the address that visitors use",
        );
    };
    let host = host_of(url.as_str().as_bytes()).trim_matches(['[', ']']).to_owned();
    match resolved(&host) {
        Ok(addresses) if addresses.iter().any(|address| is_local(*address)) => {
            CheckResult::ok(format!("{host} resolves to this machine"))
        }
        Ok(addresses) => {
            let shown: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
            CheckResult::warning(
                format!("{host} resolves to {}, which is not an address of this machine", shown.join(", ")),
                "correct the DNS record, unless that is a balancer or router in front of this machine",
            )
        }
        Err(why) => CheckResult::error(
            format!("{host} of base_url has no address: {why}"),
            format!("create a DNS record for {host} that points to this machine or to its balancer"),
        ),
    }
}

/// Returns the addresses of a host. A name server that does not answer is given up after a while.
fn resolved(host: &str) -> Result<Vec<IpAddr>, String> {
    let (sender, answer) = mpsc::channel();
    let name = host.to_owned();
    thread::spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs();
        let found = found.map(|found| found.map(|address| address.ip().to_canonical()).collect::<Vec<_>>());
        // After the time has passed, nobody waits for it.
        let _ = sender.send(found.map_err(|error| error.to_string()));
    });
    let mut found =
        answer.recv_timeout(ANSWER_TIME).unwrap_or_else(|_| Err("the name server does not answer".to_owned()))?;
    found.sort();
    found.dedup();
    if found.is_empty() { Err("the answer is empty".to_owned()) } else { Ok(found) }
}

/// True for an address of this machine: sockets can be bound to no other.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn certificates(settings: &Settings) -> Vec<CheckResult> {
    let read = match files::certificates(settings) {
        Ok(Some(read)) => read,
        Ok(None) => return Vec::new(),
        Err(exit) => return vec![CheckResult::error(exit.what.clone(), exit.remedy())],
    };
    let now = i64::try_from(unix_ms() / 1_000).unwrap_or(i64::MAX);
    let identity = read.identity();
    let mut findings: Vec<CheckResult> =
        identity.about().iter().map(|about| check_certificate(&about.names, about.since, about.until, now)).collect();
    if let Some(url) = settings.base_url.as_ref().filter(|url| url.as_str().starts_with("https://")) {
        let host = host_of(url.as_str().as_bytes()).to_ascii_lowercase();
        if !identity.about().iter().any(|about| about.names.iter().any(|name| is_for(name, &host))) {
            let text = format!("no certificate of tls.cert is for {host}, the host of base_url");
            findings.push(CheckResult::error(
                text,
                format!("add a certificate for {host} to tls.cert and its key to tls.key"),
            ));
        }
    }
    findings
}

fn check_certificate(names: &[String], since: i64, until: i64, now: i64) -> CheckResult {
    let shown = if names.is_empty() { "the certificate without names".to_owned() } else { names.join(", ") };
    let days = (until - now) / 86_400;
    let remedy = "renew it; carom reads the new files without a restart";
    if now < since {
        return CheckResult::error(format!("{shown}: the certificate is not valid yet"), "check the clock");
    }
    if until <= now {
        return CheckResult::error(format!("{shown}: the certificate has expired"), remedy);
    }
    let days = readable::count(days.unsigned_abs(), "day");
    if until - now < ENDS_SOON {
        return CheckResult::warning(format!("{shown}: the certificate expires in {days}"), remedy);
    }
    CheckResult::ok(format!("{shown}: the certificate is valid for {days}"))
}

/// True if a name of a certificate covers a host. A star stands for one label.
fn is_for(name: &str, host: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(parent)),
        None => name.eq_ignore_ascii_case(host),
    }
}

/// Checks that a node behind a proxy gets the addresses of its clients.
fn proxies(settings: &Settings) -> Option<CheckResult> {
    let is_https = settings.base_url.as_ref().is_some_and(|url| url.as_str().starts_with("https://"));
    let speaks_tls = !settings.tls.pairs.is_empty();
    let has_proxies = !settings.trust.proxies.0.is_empty();
    if has_proxies {
        let way = if settings.proxied.contains(&true) { "PROXY headers" } else { "forwarded headers" };
        return Some(CheckResult::ok(format!("client addresses come from {way} of trusted_proxies")));
    }
    (is_https && !speaks_tls).then(|| {
        CheckResult::warning(
            "base_url is https, but carom has no certificate: a proxy in front hides the addresses of clients",
            "set trusted_proxies to the addresses of the proxy, and let it send X-Forwarded-For; else limits count all visitors as one",
        )
    })
}

fn keys(settings: &Settings) -> CheckResult {
    if !settings.data_dir.exists() {
        return CheckResult::warning("no API key exists yet", "carom app add NAME --role admin");
    }
    match api_keys(&settings.data_dir) {
        Ok(keys) if keys.had_keys() => CheckResult::ok("API keys are required"),
        Ok(_) if settings.fleet.redis.is_some() => {
            CheckResult::ok("no API key is stored here; those of the fleet are in Redis")
        }
        Ok(_) => match settings.may_go_without_keys() {
            Ok(()) => CheckResult::warning(
                "no API key exists: anyone who reaches the listeners can change links",
                "carom app add NAME --role admin",
            ),
            Err(wrong) => CheckResult::of(Err(wrong.into())),
        },
        Err(exit) => CheckResult::of(Err(exit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::CheckSeverity;

    #[test]
    fn certificates_are_checked_by_their_end() {
        let names = ["go.example".to_owned()];
        let checked = |until: i64| check_certificate(&names, 0, until, 100 * 86_400);
        assert_eq!(checked(200 * 86_400).health, CheckSeverity::Ok);
        assert!(checked(106 * 86_400).text.contains("expires in 6 days"));
        assert_eq!(checked(100 * 86_400).health, CheckSeverity::Error);
        assert_eq!(check_certificate(&names, 10, 100, 5).health, CheckSeverity::Error);
        assert!(is_for("go.example", "go.example"));
        assert!(is_for("*.example", "go.example"));
        assert!(!is_for("*.example", "a.go.example"));
        assert!(!is_for("*.example", "example"));
    }

    #[test]
    fn addresses_of_this_machine_are_known() {
        assert_eq!(resolved("127.0.0.1"), Ok(vec![IpAddr::from([127, 0, 0, 1])]));
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_local(IpAddr::from([192, 0, 2, 1])));
    }

    #[test]
    fn clocks_are_compared() {
        let answer = |seconds: &str, micros: &str| {
            Value::Array([seconds, micros].map(|text| Value::BulkString(text.into())).to_vec())
        };
        assert_eq!(time_ms(&answer("1700000000", "250999")), Some(1_700_000_000_250));
        assert_eq!(time_ms(&Value::Nil), None);
        // An answer that took five seconds says nothing about the clocks.
        assert_eq!([9_000, 14_000].map(|instant_ms| outside_ms(instant_ms, 9_000, 14_000)), [0, 0]);
        assert_eq!([7_000, 15_500].map(|instant_ms| outside_ms(instant_ms, 9_000, 14_000)), [2_000, 1_500]);
        assert_eq!((check_clocks(999).health, check_clocks(1_000).health), (CheckSeverity::Ok, CheckSeverity::Warning));
    }

    #[test]
    fn evicting_servers_are_found() {
        let server = ServerAddress { host: "10.0.0.1".to_owned(), port: 7000 };
        let checked =
            |name: &str, maxmemory: u64| check_eviction(&server, &EvictionPolicy { name: name.to_owned(), maxmemory });
        assert_eq!(checked("noeviction", 1).health, CheckSeverity::Ok);
        assert_eq!(checked("allkeys-lru", 0).health, CheckSeverity::Ok);
        let CheckResult { health, text, remedy } = checked("allkeys-lru", 1);
        assert_eq!(health, CheckSeverity::Warning);
        assert!(text.contains("10.0.0.1:7000"), "{text}");
        assert!(remedy.starts_with("redis-cli -h 10.0.0.1 -p 7000 CONFIG SET"), "{remedy}");
    }
}
