//! Tests of the settings as a whole: precedence, collected mistakes, and arbitrary texts.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use carom_model::access::origins::CorsOrigins;
use carom_model::destination::extra_path::ExtraPath;
use carom_model::domains::redirects::TargetKind;
use carom_model::link::slugs::SlugRules;
use carom_model::replication::round_trips::RedisTimeout;
use proptest::prelude::*;

use super::*;
use crate::exit::Reason;
use crate::keys::{Key, SETTINGS};

const CPUS: [usize; 2] = [0, 1];

/// A settings file in a temporary folder.
struct Written {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

fn written(text: &str) -> Written {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("c.toml");
    std::fs::write(&path, text).unwrap();
    Written { _folder: folder, path }
}

fn load_all(file: Option<&str>, env: &[(&str, &str)], flags: Flags) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
    let file = file.map(written);
    let env = env.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    load(file.as_ref().map(|file| file.path.as_path()), env, flags, &CPUS)
}

fn from_file(text: &str) -> Result<(Settings, Vec<Warning>), ConfigErrors> {
    load_all(Some(text), &[], Flags::default())
}

/// Returns the mistakes, without the folder of the file.
fn problems(result: Result<(Settings, Vec<Warning>), ConfigErrors>) -> Vec<String> {
    let errors = result.expect_err("mistakes must be found");
    let shown = |problem: &SettingsProblem| match problem.to_string().split_once("/c.toml:") {
        Some((folder, rest)) if folder.starts_with('/') => format!("c.toml:{rest}"),
        _ => problem.to_string(),
    };
    errors.problems.iter().map(shown).collect()
}

#[test]
fn without_any_source_the_defaults_hold() {
    let (settings, warnings) = load_all(None, &[], Flags::default()).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(settings.data_dir, PathBuf::from("./carom-data"));
    assert_eq!(settings.listen, [SocketAddr::from(([127, 0, 0, 1], 8080))]);
    assert_eq!(settings.admin_listen, SocketAddr::from(([127, 0, 0, 1], 8081)));
    assert_eq!(settings.cores, Cores { choice: CpuChoice::All, cpus: vec![0, 1] });
    assert_eq!((settings.base_url.as_ref(), settings.open, settings.code_length.get()), (None, false, 7));
    assert_eq!((&settings.space_key, settings.dedupe), (&KeySource::DataDir, None));
    assert!(SETTINGS.iter().all(|setting| *settings.source(setting.key) == ValueSource::Default));
    assert_eq!(settings.limits.connections, carom_limits::ConnectionLimits::default());
}

#[test]
fn flags_win_over_environment_over_file_over_default() {
    let file = "data_dir = 'file'\ncores = 1\nbase_url = 'http://file'\n[log]\nlevel = 'warn'\n";
    let env = [("CAROM_DATA_DIR", "env"), ("CAROM_CORES", "2"), ("HOME", "/root")];
    let flags = Flags { data_dir: Some("flag".into()), ..Flags::default() };
    let (settings, warnings) = load_all(Some(file), &env, flags).unwrap();
    assert_eq!(warnings, []);
    assert_eq!(settings.data_dir, PathBuf::from("flag"));
    assert_eq!(settings.cores.choice, CpuChoice::Count(2));
    assert_eq!(settings.base_url.as_ref().unwrap().as_str(), "http://file");
    assert_eq!(settings.log_level, LogLevel::Warn);
    assert_eq!(*settings.source(Key::DataDir), ValueSource::Flag("--data-dir"));
    assert_eq!(*settings.source(Key::Cores), ValueSource::Env("CAROM_CORES".into()));
    assert!(matches!(settings.source(Key::LogLevel), ValueSource::File { line: 5, .. }));
    assert_eq!(*settings.source(Key::Open), ValueSource::Default);
}

#[test]
fn all_mistakes_of_all_sources_come_at_once() {
    let file = "cores = '9'\nlisten = ['127.0.0.1:80', 'x', 7]\nlisen = 1\n[links]\ncode_length = 11\n[limits]\nidle_seconds = 1.5\n";
    let env = [("CAROM_OPEN", "maybe"), ("CAROM_CORES", "2-1")];
    let flags = Flags { cores: Some("0-8".into()), base_url: Some("example.org".into()), ..Flags::default() };
    let found = problems(load_all(Some(file), &env, flags));
    let cpu = "write a number of cores from 1 to 1024, or CPUs such as 0,2,4-7; for one CPU, 3-3";
    assert_eq!(
        found,
        [
            "flag --cores: cores: this process may not use CPUs 2, 3, 4, 5, 6, 7, 8 (choose from CPUs 0, 1)".to_owned(),
            "flag --base-url: base_url: `example.org` does not start with http:// or https:// (write a URL such as https://example.org)".to_owned(),
            format!("environment CAROM_CORES: cores: `2-1` ends before it starts ({cpu})"),
            "environment CAROM_OPEN: open: `maybe` is neither true nor false (write true or false)".to_owned(),
            "c.toml:2: listen: `x` is not an address (write IP:PORT, such as 127.0.0.1:8080 or [::1]:8080)".to_owned(),
            "c.toml:2: listen: is a number (write text in quotes)".to_owned(),
            "c.toml:3: lisen: is not a known setting (did you mean listen?)".to_owned(),
            "c.toml:5: links.code_length: 11 is too large (write a whole number from 6 to 10)".to_owned(),
            "c.toml:7: limits.idle_seconds: is a fractional number (write a whole number from 1 to 86400)".to_owned(),
        ]
    );
}

#[test]
fn listeners_come_from_lists_commas_and_repeated_flags() {
    let ports = |result: Result<(Settings, Vec<Warning>), ConfigErrors>| -> Vec<u16> {
        result.unwrap().0.listen.iter().map(SocketAddr::port).collect()
    };
    assert_eq!(ports(from_file("listen = '127.0.0.1:1'")), [1]);
    assert_eq!(ports(from_file("listen = ['127.0.0.1:1', '[::1]:2']")), [1, 2]);
    let env = [("CAROM_LISTEN", "127.0.0.1:1, [::1]:1")];
    assert_eq!(ports(load_all(None, &env, Flags::default())), [1, 1]);
    let flags = Flags { listen: vec!["127.0.0.1:0".into(), "127.0.0.1:0".into()], ..Flags::default() };
    assert_eq!(ports(load_all(None, &env, flags)), [0, 0]);
    assert_eq!(problems(from_file("listen = []")), ["c.toml:1: listen: is an empty list (name at least one IP:PORT)"]);
}

#[test]
fn listeners_that_overlap_are_refused() {
    assert_eq!(
        problems(from_file("listen = [\n'127.0.0.1:1',\n'127.0.0.1:1']")),
        ["c.toml:3: listen: 127.0.0.1:1 is listed twice (keep one of the two)"]
    );
    assert_eq!(
        problems(from_file("open = true\nlisten = ['0.0.0.0:1', '[::]:1',\n'127.0.0.1:1']")),
        ["c.toml:3: listen: 127.0.0.1:1 and 0.0.0.0:1 overlap (keep one of the two)"]
    );
    assert_eq!(
        problems(from_file("listen = '127.0.0.1:8081'")),
        ["default: admin_listen: 127.0.0.1:8081 conflicts with listen (127.0.0.1:8081) (choose another port)"]
    );
}

#[test]
fn a_listener_for_other_machines_needs_to_be_asked_for() {
    let file = "listen = '0.0.0.0:80'\nadmin_listen = '192.0.2.1:81'\n";
    let refused = |file: &str| from_file(file).unwrap().0.may_go_without_keys();
    let errors = refused(file).unwrap_err();
    assert_eq!(errors.reason(), Reason::PublicWithoutOpen);
    assert_eq!(errors.problems.len(), 2);
    assert!(errors.to_string().contains("--open"), "{errors}");
    assert!(errors.to_string().contains("carom app add"), "{errors}");
    assert_eq!(from_file(&format!("{file}cores = 0\n")).unwrap_err().reason(), Reason::Usage);
    assert!(refused(&format!("{file}open = true\n")).is_ok());
    let flags = Flags { open: true, ..Flags::default() };
    assert!(load_all(Some(file), &[], flags).unwrap().0.may_go_without_keys().is_ok());
    for loopback in ["127.8.9.1:80", "[::1]:80", "[::ffff:127.0.0.1]:80"] {
        assert!(refused(&format!("listen = '{loopback}'")).is_ok(), "{loopback}");
    }
}

#[test]
fn the_secret_key_comes_from_one_place_and_is_never_shown() {
    let digits = "0123456789abcdef".repeat(4);
    let env = [("CAROM_SPACE_KEY", digits.as_str())];
    let (settings, _) = load_all(None, &env, Flags::default()).unwrap();
    let KeySource::Given(secret) = &settings.space_key else { panic!("{settings:?}") };
    assert_eq!(secret.to_hex(), digits);
    assert!(!format!("{settings:?}").contains(&digits));
    assert!(!settings.describe().contains(&digits));
    assert!(settings.describe().contains("# space_key is set (hidden)  # environment CAROM_SPACE_KEY"));

    let both = problems(load_all(Some("space_key_file = 'k'"), &env, Flags::default()));
    assert!(both.len() == 1, "{both:?}");
    assert!(both[0].contains("is set together with space_key_file"), "{both:?}");
    assert!(!both[0].contains(&digits), "{both:?}");
    let bad = problems(load_all(None, &[("CAROM_SPACE_KEY", "geheim")], Flags::default()));
    assert!(bad.len() == 1, "{bad:?}");
    assert!(!bad[0].contains("geheim"), "{bad:?}");
}

#[test]
fn unknown_and_empty_variables_are_warnings() {
    let env = [
        ("CAROM_LISEN", "x"),
        ("CAROM_BASE_URL", ""),
        ("CAROM_IMPORT_KEY", "x"),
        ("CAROM_IMPORT_TO_KEY", "x"),
        ("CAROM_URL", "x"),
        ("CAROM_KEY_FILE", "x"),
        ("CAROM_KANGAROO_COURT", "x"),
        ("CAROMX", "x"),
    ];
    let (settings, warnings) = load_all(None, &env, Flags::default()).unwrap();
    assert_eq!(settings.base_url, None);
    let warnings: Vec<String> = warnings.iter().map(Warning::to_string).collect();
    assert_eq!(
        warnings,
        [
            "environment variable CAROM_LISEN is not a setting (did you mean CAROM_LISTEN?)",
            "environment variable CAROM_BASE_URL is empty and is ignored",
            "environment variable CAROM_KANGAROO_COURT is not a setting (`carom serve --help` lists all variables)",
        ]
    );
}

#[test]
fn the_environment_can_name_the_file_and_a_flag_wins() {
    let (one, two) = (written("cores = 1"), written("cores = 2"));
    let env = || [("CAROM_CONFIG".to_owned(), one.path.to_string_lossy().into_owned())].into_iter();
    let count = |file: Option<&Path>| load(file, env(), Flags::default(), &CPUS).unwrap().0.cores.choice;
    assert_eq!(count(None), CpuChoice::Count(1));
    assert_eq!(count(Some(&two.path)), CpuChoice::Count(2));
}

#[test]
fn what_is_described_reads_back_as_the_same() {
    let file = "data_dir = 'a \"b\" \\ c'\nlisten = ['127.0.0.1:1', '[::1]:0']\ncores = '1-1'\nopen = true\n\
                redis = 'redis://h:1,[::2]:2/3'\nbase_url = 'https://example.org'\nspace_key_file = 'k'\nproxy_protocol = '[::1]:0'\ntrusted_proxies = ['10.0.0.0/8', '::1']\nforwarded_field = 'Forwarded'\n[links]\ndedupe = '36h'\ndefault_ttl = 'off'\n[fleet]\nnode = 'n.1'\nprefix = 'p'\nanswer_ms = 50\naccept_without_redis = false\n[limits]\nconnections = 5\n\
                [domains]\nserve = ['https://go.example  home=https://www.example', 'http://bücher.example:81 not_found=https://www.example/a?b=c&d=e#f expired=https://www.example', 'https://own.example regular_404=https://www.example/a invalid_short_url=https://www.example/b', 'https://one.example invalid_short_url=https://www.example/b']\n\
                fallback = true\nunknown_host = 'misdirected'\n[log]\nlevel = 'debug'\n";
    for text in ["", file] {
        let (first, _) = from_file(text).unwrap();
        let (mut again, _) = from_file(&first.describe()).unwrap();
        again.sources = first.sources.clone();
        assert_eq!(again, first);
    }
}

#[test]
fn a_limit_of_memory_and_the_residency_that_needs_it_come_together() {
    let (settings, _) = from_file("cores = \"0-0\"\n[links]\nresidency = \"hot\"\nmemory_limit = \"64MiB\"\n").unwrap();
    assert_eq!(settings.residency, Residency::Hot { memory_limit: 64 << 20 });
    for (text, wrong) in [
        ("residency = \"hot\"", "set links.memory_limit"),
        ("memory_limit = \"1GiB\"", "set links.residency = \"hot\""),
        ("residency = \"some\"\nmemory_limit = 99999999", "write \"all\" or \"hot\""),
        ("residency = \"hot\"\nmemory_limit = \"4 KiB\"", "at least 512KiB"),
        ("residency = \"hot\"\nmemory_limit = \"many\"", "such as 512MiB"),
        ("residency = \"hot\"\nmemory_limit = \"99999999TiB\"", "too large"),
        ("residency = \"hot\"\nmemory_limit = \"100TiB\"", "set at most"),
    ] {
        let errors = from_file(&format!("[links]\n{text}\n")).unwrap_err();
        assert!(errors.to_string().contains(wrong), "{text}: {errors}");
    }
}

#[test]
fn a_shared_home_needs_redis_that_keeps_links_forever() {
    let shared = "cores = \"0-0\"\nredis = \"redis://h\"\n[links]\nhome = \"shared\"\nmemory_limit = \"64MiB\"\n";
    let (settings, _) = from_file(&format!("{shared}[fleet]\nretention = \"forever\"\n")).unwrap();
    assert_eq!((settings.home, settings.residency), (LinkHome::Shared, Residency::Hot { memory_limit: 64 << 20 }));
    assert_eq!(from_file("").unwrap().0.home, LinkHome::Node);
    let forever = "[fleet]\nretention = \"forever\"\n";
    for (text, wrong) in [
        (shared.to_owned(), "set fleet.retention = \"forever\""),
        (format!("{shared}dedupe = \"1h\"\n{forever}"), "links.dedupe"),
        (format!("{shared}keep_expired = \"1h\"\nrecycle_after = \"1h\"\n{forever}"), "links.recycle_after"),
        (format!("{shared}{forever}[visits]\nlog = \"on\"\n"), "visits.log"),
        (format!("{shared}{forever}join_from = \"http://10.0.0.1:8081\"\n"), "fleet.join_from"),
        (format!("[links]\nhome = \"shared\"\nmemory_limit = \"1GiB\"\n{forever}"), "shared requires redis"),
        (format!("redis = \"redis://h\"\n[links]\nhome = \"shared\"\n{forever}"), "shared requires a memory limit"),
        ("[links]\nhome = \"cloud\"\n".to_owned(), "write node or shared"),
    ] {
        let errors = from_file(&text).unwrap_err();
        assert!(errors.to_string().contains(wrong), "{text}: {errors}");
    }
}

#[test]
fn searches_may_have_memory_or_none() {
    let of = |text: &str| from_file(&format!("[links]\nsearch_memory = {text}\n"));
    let memory = |text: &str| of(text).unwrap().0.search_memory;
    assert_eq!(from_file("").unwrap().0.search_memory, 256 << 20);
    assert_eq!((memory("'off'"), memory("'2GiB'"), memory("1048576")), (0, 2 << 30, 1 << 20));
    for text in ["'1KiB'", "'some'", "0"] {
        let errors = of(text).unwrap_err().to_string();
        assert!(errors.contains("links.search_memory"), "{text}: {errors}");
        assert!(errors.contains("such as 512MiB or 8GiB"), "{text}: {errors}");
    }
    assert!(of("'none'").unwrap_err().to_string().contains("or \"off\""));
}

#[test]
fn rabbitmq_has_one_password_which_stays_hidden() {
    let of = |file: &str, env: &[(&str, &str)]| {
        load_all(Some(&format!("[events]\nlog = 'on'\n{file}\n")), env, Flags::default())
    };
    let given = ("CAROM_EVENTS_RABBITMQ_PASSWORD", "geheim");
    let (settings, warnings) = of("rabbitmq_url = 'amqps://me@mq.example/a'", &[given]).unwrap();
    let rabbit = settings.events.sinks.rabbitmq.clone().unwrap();
    assert_eq!((rabbit.url.tls, rabbit.exchange.as_str(), rabbit.mandatory), (true, "carom.events", false));
    assert_eq!((rabbit.password, warnings), (Some(events::SecretSource::Given(Secret("geheim".to_owned()))), vec![]));
    let shown = settings.describe();
    assert!(shown.contains("rabbitmq_url = \"amqps://me@mq.example:5671/a\""), "{shown}");
    assert!(!shown.contains("geheim"), "{shown}");
    let (settings, _) = of("rabbitmq_url = 'amqp://me:geheim@h'\nrabbitmq_mandatory = true", &[]).unwrap();
    assert!(!settings.describe().contains("geheim"));
    assert!(!format!("{settings:?}").contains("geheim"));
    // Only this user has a password that everybody knows.
    assert!(of("rabbitmq_url = 'amqp://h'", &[]).is_ok());
    assert!(of("rabbitmq_url = 'amqp://guest@h'", &[]).is_ok());
    let (_, warnings) = of("rabbitmq_url = 'amqp://h'\nrabbitmq_ca_file = 'ca.pem'", &[]).unwrap();
    assert!(warnings.len() == 1, "{warnings:?}");
    assert!(warnings[0].to_string().contains("does not start with amqps://"), "{warnings:?}");
    let (_, warnings) = of("rabbitmq_exchange = 'x'", &[]).unwrap();
    assert!(warnings.len() == 1, "{warnings:?}");
    assert!(warnings[0].to_string().contains("events.rabbitmq_url is not set"), "{warnings:?}");
    for (file, env, wrong) in [
        ("rabbitmq_url = 'amqp://me@h'", None, "set CAROM_EVENTS_RABBITMQ_PASSWORD, or events.rabbitmq_password_file"),
        ("rabbitmq_url = 'amqp://me:geheim@h'", Some(given), "also contains a password"),
        ("rabbitmq_url = 'amqp://me:geheim@h'\nrabbitmq_password_file = 'p'", None, "also contains a password"),
        ("rabbitmq_url = 'amqp://me@h'\nrabbitmq_password_file = 'p'", Some(given), "is set, too"),
        ("rabbitmq_url = 'amqp://me:geheim@h?x'", None, "query or fragment"),
        ("rabbitmq_url = 'amqp://h'\nrabbitmq_exchange = 'a b'", None, "not the name of an exchange"),
    ] {
        let found = problems(of(file, env.as_slice()));
        assert!(found.len() == 1, "{file}: {found:?}");
        assert!(found[0].contains(wrong), "{file}: {found:?}");
        assert!(!found[0].contains("geheim"), "{file}: {found:?}");
    }
}

#[test]
fn proxies_are_trusted_by_name() {
    let of = |text: &str| from_file(&format!("listen = ['127.0.0.1:1', '127.0.0.2:1']\n{text}\n"));
    let proxied = |text: &str| of(text).unwrap().0.proxied;
    assert_eq!(proxied(""), [false, false]);
    assert_eq!(proxied("proxy_protocol = 'off'\ntrusted_proxies = '10.0.0.1'"), [false, false]);
    assert_eq!(proxied("proxy_protocol = 'require'\ntrusted_proxies = '10.0.0.0/8, ::1'"), [true, true]);
    assert_eq!(proxied("proxy_protocol = ['127.0.0.2:1']\ntrusted_proxies = ['10.0.0.0/8']"), [false, true]);
    for (text, wrong) in [
        ("proxy_protocol = 'require'", "list your load balancers in trusted_proxies"),
        ("proxy_protocol = '127.0.0.2:1'", "list your load balancers in trusted_proxies"),
        ("proxy_protocol = 'maybe'", "neither off, require, nor an address"),
        ("proxy_protocol = '127.0.0.3:1'\ntrusted_proxies = '::1'", "is not an address of listen"),
        (
            "proxy_protocol = ['require', '127.0.0.1:1']\ntrusted_proxies = '::1'",
            "cannot be combined with other values",
        ),
        ("trusted_proxies = '10.0.0.1/8'", "address bits beyond its prefix length"),
        ("trusted_proxies = 'balancer'", "is neither an IP address nor a network"),
        ("trusted_proxies = []", "is an empty list"),
        ("forwarded_field = 'forwarded'", "list your proxies in trusted_proxies"),
        ("forwarded_field = 'via'\ntrusted_proxies = '::1'", "write the header that your proxies set"),
    ] {
        let errors = of(text).unwrap_err();
        assert!(errors.to_string().contains(wrong), "{text}: {errors}");
    }
}

#[test]
fn domains_are_told_apart_and_lead_elsewhere() {
    let (settings, _) = from_file(
        "base_url = 'https://s.example'\n[domains]\nserve = 'https://Go.example. not_found=https://www.example, https://s.example home=http://www.example'\n",
    )
    .unwrap();
    let names: Vec<&str> = settings.domains.serve.iter().map(|domain| domain.name.as_str()).collect();
    assert_eq!(names, ["go.example", "s.example"]);
    let targets = &settings.domains.serve[0].targets;
    for kind in [TargetKind::Regular404, TargetKind::InvalidShortUrl] {
        assert_eq!(targets.of(kind), Some("https://www.example/"));
    }
    for (serve, wrong) in [
        ("''", "is empty"),
        ("[]", "write at least one domain"),
        ("'go.example'", "write a URL such as https://example.org"),
        ("'https://go.example/x'", "has a path"),
        (
            "'https://go.example elsewhere=https://www.example'",
            "is not home=, not_found=, regular_404=, invalid_short_url= or expired=",
        ),
        (
            "'https://go.example https://www.example'",
            "is not home=, not_found=, regular_404=, invalid_short_url= or expired=",
        ),
        ("'https://go.example home=www.example'", "has a URL that"),
        ("'https://go.example home=javascript:1'", "has a URL that"),
        ("'https://go.example home=https://a.example home=https://b.example'", "for the second time: home="),
        (
            "'https://go.example not_found=https://a.example/{ORIGINAL_PATH}'",
            "has {ORIGINAL_PATH}, which carom does not fill in",
        ),
        (
            "'https://go.example regular_404=https://a.example not_found=https://b.example'",
            "for the second time: not_found=",
        ),
        ("['https://go.example', 'http://GO.example:81']", "go.example is listed twice"),
        ("'http://s.example'", "write the same scheme and port in both"),
        ("'https://go.example expired=https://s.example/ended'", "is on a host of this service"),
        ("'https://go.example not_found=https://go.example'", "is on a host of this service"),
        ("['https://go.example', 'https://x.example home=https://go.example']", "is on a host of this service"),
        ("'https://go.example home=http://go.example:81/x'", "is on a host of this service"),
        ("7", "is a number"),
    ] {
        let errors = from_file(&format!("base_url = 'https://s.example'\n[domains]\nserve = {serve}\n")).unwrap_err();
        assert!(errors.to_string().contains(wrong), "{serve}: {errors}");
    }
    let errors = from_file("[domains]\nserve = 'https://go.example'\n").unwrap_err().to_string();
    assert!(errors.contains("set base_url"), "{errors}");
    let errors = from_file("[domains]\nfallback = true\nunknown_host = 'misdirected'\n").unwrap_err().to_string();
    assert!(errors.matches("has no effect").count() == 2, "{errors}");
    let errors = from_file("[domains]\nunknown_host = '404'\nfallback = 1\n").unwrap_err().to_string();
    assert!(errors.contains("neither not_found nor misdirected"), "{errors}");
    assert!(errors.contains("domains.fallback"), "{errors}");
}

#[test]
fn visits_are_logged_as_long_and_as_much_as_asked() {
    let visits = |text: &str| from_file(&format!("[visits]\n{text}")).map(|(settings, _)| settings.visits);
    let default = visits("").unwrap();
    let day = Duration::from_secs(86_400);
    assert_eq!((default.is_on, default.keep, default.keep_bytes), (false, Some(90 * day), 1 << 30));
    assert_eq!((default.addresses.as_str(), default.is_shared), ("none", true));
    let other = visits(
        "log = \"on\"\nshare_log = \"off\"\nkeep = \"forever\"\nkeep_bytes = \"64MiB\"\naddresses = \"network\"",
    )
    .unwrap();
    assert_eq!((other.keep, other.keep_bytes, other.addresses.as_str()), (None, 64 << 20, "network"));
    assert!(!other.is_shared);
    let (off, warnings) = from_file("[visits]\nlog = \"off\"\nkeep = \"1d\"").unwrap();
    assert!(!off.visits.is_on, "{warnings:?}");
    assert!(warnings[0].to_string().contains("visits.keep has no effect"), "{warnings:?}");
    let wrong =
        problems(from_file("[visits]\nlog = \"maybe\"\nkeep = \"0d\"\nkeep_bytes = \"1MiB\"\naddresses = \"some\""));
    assert_eq!(wrong.len(), 4, "{wrong:?}");
}

#[test]
fn peers_to_join_from_are_urls_without_credentials() {
    let fleet = |text: &str| from_file(&format!("[fleet]\n{text}")).map(|(settings, _)| settings.fleet);
    let default = fleet("").unwrap();
    assert_eq!((default.join_from, default.join_key_file, default.join_rate), (None, None, 64 << 20));
    let other = fleet("join_from = \"http://10.0.0.1:8081\"\njoin_key_file = \"k\"\njoin_rate = \"2MiB\"").unwrap();
    assert_eq!(other.join_from.as_deref(), Some("http://10.0.0.1:8081/"));
    assert_eq!((other.join_key_file, other.join_rate), (Some("k".into()), 2 << 20));
    let wrong = problems(from_file("[fleet]\njoin_from = \"10.0.0.1:8081\"\njoin_rate = \"1KiB\""));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    let secret = problems(from_file("[fleet]\njoin_from = \"http://me:geheim@10.0.0.1\""));
    assert!(secret.len() == 1, "{secret:?}");
    assert!(!secret[0].contains("geheim"), "{secret:?}");
}

#[test]
fn timeouts_of_redis_follow_from_round_trips_unless_set() {
    let fleet = |text: &str| from_file(&format!("[fleet]\n{text}")).map(|(settings, _)| settings.fleet);
    let millis = Duration::from_millis;
    let default = fleet("").unwrap();
    assert_eq!(default.answer_time, RedisTimeout::Derived(millis(100)));
    assert_eq!(default.look_up_time, RedisTimeout::Derived(millis(20)));
    let set = fleet("answer_ms = 400\nlook_up_ms = \"auto\"").unwrap();
    assert_eq!((set.answer_time, set.look_up_time), (RedisTimeout::Fixed(millis(400)), default.look_up_time));
    let wrong = problems(from_file("[fleet]\nanswer_ms = 5\nlook_up_ms = 1001"));
    assert_eq!(wrong.len(), 2, "{wrong:?}");
}

#[test]
fn sites_come_in_pairs() {
    let fleet = |text: &str| from_file(&format!("redis = \"redis://h:1\"\n[fleet]\n{text}"));
    assert_eq!(fleet("").unwrap().0.fleet.site, None);
    let site = "site = \"a\"\nother_site = \"b\"\nother_redis = \"redis://:geheim@h:2\"";
    let settings = fleet(site).unwrap().0;
    let described = settings.describe();
    let site_of = settings.fleet.site.unwrap();
    assert_eq!((site_of.name.as_str(), site_of.other.as_str()), ("a", "b"));
    assert_eq!(site_of.other_redis.servers, [("h".to_owned(), 2)]);
    assert!(described.contains("other_site = \"b\""), "{described}");
    assert!(!described.contains("geheim"), "{described}");
    for (text, wrong) in [
        ("site = \"a\"", "set fleet.site, fleet.other_site and fleet.other_redis"),
        ("other_redis = \"redis://h:2\"", "or none of them"),
        ("site = \"a\"\nother_site = \"a\"\nother_redis = \"redis://h:2\"", "two names"),
    ] {
        let wrongs = problems(fleet(text));
        assert!(wrongs.len() == 1, "{text}: {wrongs:?}");
        assert!(wrongs[0].contains(wrong), "{text}: {wrongs:?}");
    }
    let recycling = format!("redis = \"redis://h:1\"\n[links]\nrecycle_after = \"90d\"\n[fleet]\n{site}");
    let wrongs = problems(from_file(&recycling));
    assert!(wrongs.len() == 1, "{wrongs:?}");
    assert!(wrongs[0].contains("both sites would reuse a code"), "{wrongs:?}");
    let wrongs = problems(from_file(&format!("[fleet]\n{site}")));
    assert!(wrongs.len() == 1, "{wrongs:?}");
    assert!(wrongs[0].contains("Redis of this site"), "{wrongs:?}");
}

#[test]
fn origins_of_pages_are_all_none_or_listed() {
    let origins =
        |value: &str| from_file(&format!("[api]\ncors_origins = {value}")).map(|(settings, _)| settings.api.cors);
    assert_eq!(from_file("").unwrap().0.api.cors, CorsOrigins::Any);
    assert_eq!(origins("\"*\"").unwrap(), CorsOrigins::Any);
    assert_eq!(origins("\"off\"").unwrap(), CorsOrigins::Own);
    let listed = CorsOrigins::Listed(vec!["https://a.example".to_owned(), "http://b.example:81".to_owned()]);
    assert_eq!(origins("[\"https://A.example:443\", \"http://b.example:81\"]").unwrap(), listed);
    for wrong in ["\"https://a.example/\"", "[\"*\", \"https://a.example\"]", "[\"off\", \"*\"]", "[]", "1"] {
        assert!(origins(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn codes_are_recycled_where_links_are_removed() {
    let (settings, _) = from_file("[links]\nkeep_expired = \"2h\"\nrecycle_after = \"90d\"\n").unwrap();
    let time = |hours: u64| Some(Duration::from_secs(hours * 3_600));
    let expiry = ExpirySettings { keep: time(2), per_second: 10_000, recycle_after: time(90 * 24) };
    assert_eq!(settings.expiry, expiry);
    let (settings, _) = from_file("redis = \"redis://a:1\"\n[links]\nrecycle_after = \"90d\"\n").unwrap();
    assert_eq!(settings.expiry.recycle_after, time(90 * 24), "with Redis, too");
    let (settings, _) = from_file("[links]\nkeep_expired = \"forever\"\nexpire_per_second = 5\n").unwrap();
    assert_eq!(settings.expiry, ExpirySettings { keep: None, per_second: 5, recycle_after: None });
    for (text, wrong) in [
        ("[links]\nkeep_expired = \"forever\"\nrecycle_after = \"90d\"", "no effect"),
        ("[links]\nkeep_expired = \"off\"", "write \"forever\""),
        ("[links]\nkeep_expired = \"0s\"", "is zero"),
        ("[links]\nexpire_per_second = 0", "from 1 to 1000000"),
    ] {
        let errors = from_file(text).unwrap_err();
        assert!(errors.to_string().contains(wrong), "{text}: {errors}");
    }
}

proptest! {
    #[test]
    fn no_text_of_a_file_panics(text in "\\PC*|(\n|[a-z_]{1,9}|[=\\[\\]{}\"'.,0-9 -])*") {
        let _ = from_file(&text);
    }

    #[test]
    fn no_value_of_a_known_key_panics(at in 0..SETTINGS.len(), value in "\"[^\"\\\\\n]*\"|[0-9.e+-]{1,40}|\\[.*\\]|true") {
        let name = SETTINGS[at].name;
        let _ = from_file(&format!("{name} = {value}\n")).map(|(settings, _)| settings.describe());
    }

    #[test]
    fn no_word_of_the_environment_panics(at in 0..SETTINGS.len(), word in "\\PC{0,40}|[0-9,-]{1,12}|[0-9.:\\[\\]]{1,20}") {
        let env = [(SETTINGS[at].env, word.as_str())];
        let _ = load_all(None, &env, Flags::default()).map(|(settings, _)| settings.describe());
    }
}

#[test]
fn strict_shlink_has_no_default_end() {
    let of = |text: &str| from_file(text).unwrap().0;
    assert!(of("").default_ttl.is_some());
    assert!(!of("").api.shlink_strict);
    let strict = of("[api]\nshlink_strict = true\n");
    assert_eq!((strict.api.shlink_strict, strict.default_ttl), (true, None));
    let day = Duration::from_secs(86_400);
    assert_eq!(of("[api]\nshlink_strict = true\n[links]\ndefault_ttl = '1d'\n").default_ttl, Some(day));
}

#[test]
fn paths_and_parameters_beside_codes_are_off_by_default() {
    let of = |text: &str| from_file(text).map(|(settings, _)| settings);
    let plain = of("").unwrap();
    assert_eq!((plain.paths, plain.nostat.as_str()), (LinkPaths::default(), ""));
    let set =
        of("[links]\ntrailing_slash = true\nextra_path = 'Append'\n[visits]\nnostat_parameter = 'no-stat'\n").unwrap();
    assert_eq!(set.paths, LinkPaths { trailing_slash: true, extra_path: ExtraPath::Append });
    assert_eq!(set.nostat, "no-stat");
    assert_eq!(plain.slugs, SlugRules::default());
    let set = of("[links]\nmulti_segment_slugs = true\nslug_case = 'insensitive'\n").unwrap();
    assert!(set.slugs.multi_segment);
    assert!(set.slugs.ignores_case());
    for (text, wrong) in [
        ("[links]\nextra_path = 'on'\n", "write off, append or ignore"),
        ("[links]\ntrailing_slash = 1\n", "trailing_slash"),
        ("[links]\nslug_case = 'loose'\n", "write sensitive or insensitive"),
        ("[links]\nmulti_segment_slugs = 'some'\n", "multi_segment_slugs"),
        ("[visits]\nnostat_parameter = ''\n", "is empty"),
        ("[visits]\nnostat_parameter = 'a=b'\n", "is not the name of a parameter"),
    ] {
        let errors = of(text).unwrap_err().to_string();
        assert!(errors.contains(wrong), "{text}: {errors}");
    }
}
