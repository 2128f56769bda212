//! The command line and the checked plan that it becomes. Every mistake is reported at once.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::check::Expectation;
use crate::plan::{ApiKey, Loop, Plan, Target};
use crate::request::Headers;
use crate::schedule::Arrival;
use crate::tls::{Tls, Trust};
use crate::traffic::{Mix, RequestKind};
use crate::units;
use crate::verdict::Objective;

/// Measures a redirect server: sends requests at times planned before the run, checks every answer, and reports the
/// latency that clients would see.
///
/// Latency counts from the planned send time, so a stall of the server is charged to every request that it delayed (no
/// coordinated omission). `--closed` measures the highest throughput instead, and `--find-rate` finds the highest rate
/// that meets the objectives.
#[derive(Parser, Debug)]
#[command(name = "carom-loadgen", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// Server: HOST:PORT, http://HOST:PORT or https://HOST:PORT. Can be repeated; connections are spread over all
    /// targets.
    #[arg(long, value_name = "ADDR", required = true)]
    target: Vec<String>,
    /// Links to request, as written by `carom export`: one JSON object with shortCode and longUrl per line.
    #[arg(long, value_name = "FILE")]
    codes: Option<PathBuf>,
    /// Create this many links through the API, then request them.
    #[arg(long, value_name = "N", conflicts_with = "codes")]
    create: Option<String>,
    /// Requests per second in total. With --find-rate, the first rate to try.
    #[arg(long, value_name = "N", default_value = "1000")]
    rate: String,
    /// Spacing of the planned send times: poisson is random, like many independent users; constant is even.
    #[arg(long, value_enum, default_value = "poisson")]
    arrival: ArrivalName,
    /// Send the next request of a connection as soon as the last one is answered, instead of at planned times.
    #[arg(long, conflicts_with_all = ["rate", "arrival", "find_rate"])]
    closed: bool,
    /// Find the highest rate that meets --slo, in runs of --duration each.
    #[arg(long, requires = "slo")]
    find_rate: bool,
    /// Duration of the measurement.
    #[arg(long, value_name = "TIME", default_value = "20s")]
    duration: String,
    /// Duration of the warm-up before it, which is not measured.
    #[arg(long, value_name = "TIME", default_value = "2s")]
    warmup: String,
    /// Timeout of a request.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    timeout: String,
    /// Connections in total.
    #[arg(long, value_name = "N", default_value = "64")]
    connections: String,
    /// Client address of the connections [default: the kernel's choice]. Can be repeated; connections take turns.
    #[arg(long, value_name = "IP")]
    bind: Vec<IpAddr>,
    /// Requests in flight on each connection.
    #[arg(long, value_name = "N", default_value = "1")]
    pipeline: String,
    /// Replace a connection after this many requests; 1 opens a new connection for each request.
    #[arg(long, value_name = "N")]
    renew: Option<String>,
    /// Threads, each pinned to its own CPU.
    #[arg(long, value_name = "N", default_value = "1")]
    threads: String,
    /// CPUs of the threads, such as 1,3 [default: the last ones available]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    /// Shares of the kinds of requests (redirect, head, miss, create), such as redirect=95,miss=5.
    #[arg(long, value_name = "SHARES", default_value = "redirect=1")]
    mix: String,
    /// Request popular links more often: the k-th in proportion to 1/k^S [default: all links equally]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    zipf: Option<String>,
    /// Header fields of each request: those that a browser sends, or only Host.
    #[arg(long, value_enum, default_value = "browser")]
    headers: HeadersName,
    /// Additional header field for each request; can be repeated.
    #[arg(short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Value of the Host header [default: the host and port of the target]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// API key for creates, sent as X-Api-Key. It is never printed.
    #[arg(long, value_name = "KEY", env = "CAROM_API_KEY", hide_env_values = true)]
    api_key: Option<String>,
    /// Use TLS, as with https://.
    #[arg(long)]
    tls: bool,
    /// CA certificates to trust, in PEM.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Do not verify the certificate of the server.
    #[arg(long, conflicts_with = "tls_ca")]
    tls_insecure: bool,
    /// Server name for TLS (SNI), which the certificate must contain [default: the host of the target]
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// Expected status of redirects [default: any of 301, 302, 303, 307 and 308]
    #[arg(long, value_name = "STATUS")]
    expect_status: Option<u16>,
    /// Do not check the Location of redirects, for servers that redirect every request to the same destination.
    #[arg(long)]
    no_check_location: bool,
    /// Objectives, such as p80=5ms,p99=20ms,mean=10ms,errors=0. Also: p50, p90, p99.9, p99.99, max and rate.
    #[arg(long, value_name = "OBJECTIVES")]
    slo: Option<String>,
    /// Seed of all random numbers: the same seed sends the same requests at the same times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the percentile distribution in milliseconds, in the text format that HdrHistogram plotters read.
    #[arg(long, value_name = "FILE")]
    hgrm: Option<PathBuf>,
    /// Write a histogram of each second, in the log format of HdrHistogram.
    #[arg(long, value_name = "FILE")]
    hlog: Option<PathBuf>,
    /// Write an HTML report with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print neither progress nor results.
    #[arg(long, short)]
    quiet: bool,
}

/// Text that follows the options in the help.
const EXIT_CODES: &str = "Exit codes:
    0  every answer was correct, and every objective was met
    1  an objective was missed, or an answer was wrong
    2  invalid options or files
    3  the generator was the bottleneck, so the results say nothing about the server
    4  the target cannot be reached
  130  interrupted by a signal; the results cover the time until then";

/// Maximum rate in requests per second: ten times the highest rate seen on one CPU.
pub(crate) const RATE_MAX: f64 = 20e6;

/// Maximum duration, a week: a longer one is a mistake.
const TIME_MAX: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Maximum number of connections: every port of sixteen client addresses.
const CONNECTIONS_MAX: u64 = 1_000_000;

/// Maximum number of requests in flight on one connection.
const PIPELINE_MAX: u64 = 10_000;

/// Open files besides connections: the rings, reports, and those of the system.
const OTHER_FILES: u64 = 64;

#[derive(ValueEnum, Clone, Copy, Debug)]
enum ArrivalName {
    Poisson,
    Constant,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum HeadersName {
    Browser,
    Minimal,
}

/// Source of the links.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum LinkSource {
    /// The links of an export.
    File(PathBuf),
    /// Links that the generator creates first, and their number.
    Create(u64),
    /// The run needs no links.
    None,
}

/// Files to write.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Files {
    /// Path for all figures as JSON.
    pub(crate) json: Option<PathBuf>,
    /// Path for the percentile distribution.
    pub(crate) hgrm: Option<PathBuf>,
    /// Path for a histogram for each second.
    pub(crate) hlog: Option<PathBuf>,
    /// Path for the HTML report.
    pub(crate) html: Option<PathBuf>,
}

/// The checked command line.
#[derive(Debug)]
pub(crate) struct RunOptions {
    /// Plan of the run.
    pub(crate) plan: Plan,
    /// Source of the links.
    pub(crate) source: LinkSource,
    /// Objectives that the run must meet.
    pub(crate) objectives: Vec<Objective>,
    /// True to find the highest rate that meets the objectives.
    pub(crate) find_rate: bool,
    /// Files to write.
    pub(crate) files: Files,
    /// True to print neither progress nor results.
    pub(crate) quiet: bool,
}

/// Collects the mistakes of a command line.
struct Mistakes(Vec<String>);

impl Mistakes {
    fn take<T>(&mut self, option: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.0.push(format!("--{option}: {reason}"))).ok()
    }
}

impl Arguments {
    /// Checks the command line.
    ///
    /// # Errors
    /// Every mistake, as one message each.
    pub(crate) fn check(self) -> Result<RunOptions, Vec<String>> {
        let mut wrong = Mistakes(Vec::new());
        let trust = if self.tls_insecure { Some(Trust::Anybody) } else { self.tls_ca.clone().map(Trust::File) };
        let targets: Vec<Option<Target>> =
            self.target.iter().map(|text| wrong.take("target", self.target(text, trust.as_ref()))).collect();
        let mix = wrong.take("mix", Mix::read(&self.mix));
        let rate = wrong.take("rate", units::number(&self.rate).and_then(possible_rate));
        let duration = wrong.take("duration", units::duration(&self.duration).and_then(some_time));
        let warmup = wrong.take("warmup", units::duration(&self.warmup).and_then(possible_time));
        let timeout = wrong.take("timeout", units::duration(&self.timeout).and_then(some_time));
        let connections = units::count(&self.connections).and_then(|count| at_most(count, CONNECTIONS_MAX));
        let connections = wrong.take("connections", connections.and_then(open_files));
        let pipeline = units::count(&self.pipeline).and_then(|count| at_most(count, PIPELINE_MAX));
        let pipeline = wrong.take("pipeline", pipeline);
        if let (Some(rate), Some(duration), false) = (rate, duration, self.closed)
            && rate * duration.as_secs_f64() < 1.0
        {
            wrong.0.push(
                "--rate and --duration: no request is sent at this rate in this time; raise one of them".to_owned(),
            );
        }
        let renew = self.renew.as_deref().map(|text| wrong.take("renew", units::count(text)));
        let zipf = self.zipf.as_deref().map(|text| wrong.take("zipf", exponent(text)));
        let threads = wrong.take("threads", units::count(&self.threads));
        let cpus = wrong.take("cpus", self.cpus(threads.unwrap_or(1) as usize));
        self.check_texts(&mut wrong);
        let objectives = self.objectives(&mut wrong);
        let create = self.create.as_deref().and_then(|text| wrong.take("create", units::count(text)));
        if connections < cpus.as_ref().map(|cpus| cpus.len() as u64) && wrong.0.is_empty() {
            wrong.0.push("--connections: each thread needs at least one connection".to_owned());
        }
        if connections < Some(self.target.len() as u64) && wrong.0.is_empty() {
            wrong.0.push("--connections: each target needs at least one connection".to_owned());
        }
        let source = self.source(create, mix, &mut wrong);
        for target in targets.iter().flatten() {
            wrong.take("bind", reachable_from(&self.bind, target));
        }
        let pace = if self.closed {
            Loop::Closed
        } else {
            Loop::Open { arrival: self.arrival.into(), rate: rate.unwrap_or(1.0) }
        };
        if !wrong.0.is_empty() {
            return Err(wrong.0);
        }
        let checked = "every mistake was collected above";
        let plan = Plan {
            targets: targets.into_iter().map(|target| target.expect(checked)).collect(),
            pace,
            warmup: warmup.expect(checked),
            duration: duration.expect(checked),
            timeout: timeout.expect(checked),
            connections: connections.expect(checked) as usize,
            cpus: cpus.expect(checked),
            clients: self.bind,
            pipeline: pipeline.expect(checked) as usize,
            renew: renew.map(|renew| renew.expect(checked)),
            mix: mix.expect(checked),
            zipf: zipf.map(|zipf| zipf.expect(checked)),
            headers: self.headers.into(),
            extra: self.header,
            api_key: self.api_key.map(ApiKey),
            expectation: Expectation { status: self.expect_status, location: !self.no_check_location },
            seed: self.seed,
            create_only: None,
        };
        let files = Files { json: self.json, hgrm: self.hgrm, hlog: self.hlog, html: self.html };
        Ok(RunOptions { plan, source, objectives, find_rate: self.find_rate, files, quiet: self.quiet })
    }

    /// Checks what the plan takes over as it is written: the expected status, header fields, the key, and the files.
    fn check_texts(&self, wrong: &mut Mistakes) {
        if let Some(status) = self.expect_status.filter(|status| !(300..400).contains(status)) {
            wrong.0.push(format!("--expect-status: {status} is not the status of a redirect; expected 300 to 399"));
        }
        for field in &self.header {
            wrong.take("H", header(field));
        }
        if let Some(key) = &self.api_key {
            wrong.take("api-key", visible(key));
        }
        let files = [("json", &self.json), ("hgrm", &self.hgrm), ("hlog", &self.hlog), ("html", &self.html)];
        for (option, file) in files.into_iter().filter_map(|(option, file)| Some((option, file.as_ref()?))) {
            wrong.take(option, is_writable(file));
        }
    }

    /// Returns the objectives; none if they cannot be read.
    fn objectives(&self, wrong: &mut Mistakes) -> Vec<Objective> {
        match self.slo.as_deref().map(Objective::read_all) {
            None => Vec::new(),
            Some(Ok(objectives)) => objectives,
            Some(Err(reasons)) => {
                wrong.0.extend(reasons.into_iter().map(|reason| format!("--slo: {reason}")));
                Vec::new()
            }
        }
    }

    /// Returns the source of the links, given the valid parts of the command line.
    fn source(&self, create: Option<u64>, mix: Option<Mix>, wrong: &mut Mistakes) -> LinkSource {
        let source = match (create, &self.codes) {
            (Some(count), _) => LinkSource::Create(count),
            (None, Some(path)) => LinkSource::File(path.clone()),
            (None, None) => LinkSource::None,
        };
        if source == LinkSource::None && mix.is_some_and(|mix| mix.needs_links()) && self.create.is_none() {
            wrong.0.push(
                "--codes: redirects need links; pass an export with --codes, or create links with --create N"
                    .to_owned(),
            );
        }
        source
    }

    fn target(&self, text: &str, trust: Option<&Trust>) -> Result<Target, String> {
        let (is_https, rest) = match text.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("`{scheme}` is not supported; expected http or https")),
            None => (false, text),
        };
        let place = rest.trim_end_matches('/');
        if place.contains('/') {
            return Err(format!("`{text}` has a path; pass only the host and port"));
        }
        let is_tls = is_https || self.tls;
        // An IPv6 address without a port ends with its bracket.
        let port = place.rsplit_once(':').filter(|_| !place.ends_with(']')).map(|(_, port)| port);
        let with_port = match port {
            Some(port) if port.parse::<u16>().is_ok_and(|port| port > 0) => place.to_owned(),
            Some(port) => return Err(format!("`{port}` in `{text}` is not a port from 1 to 65535")),
            None if is_tls => format!("{place}:443"),
            None => format!("{place}:80"),
        };
        let wrong =
            |reason: &dyn std::fmt::Display| format!("`{text}` is not an address such as 127.0.0.1:8080: {reason}");
        let address: Option<SocketAddr> = with_port.to_socket_addrs().map_err(|error| wrong(&error))?.next();
        let address = address.ok_or_else(|| wrong(&"the host name has no address"))?;
        let host = self.host.clone().unwrap_or_else(|| place.to_owned());
        visible(&host)?;
        let tls = if is_tls {
            let name = with_port.rsplit_once(':').map_or(place, |(name, _)| name).trim_matches(['[', ']']);
            let trust =
                trust.ok_or("TLS needs --tls-ca FILE, or --tls-insecure to skip the verification of certificates")?;
            Some(Tls::new(self.sni.as_deref().unwrap_or(name), trust)?)
        } else {
            None
        };
        Ok(Target { name: text.to_owned(), address, host, tls })
    }

    /// Returns the CPU of each thread.
    fn cpus(&self, threads: usize) -> Result<Vec<usize>, String> {
        let allowed = rustix::thread::sched_getaffinity(None).map_err(|error| error.to_string())?;
        let allowed: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        let Some(list) = &self.cpus else {
            if threads > allowed.len() {
                return Err(format!(
                    "{threads} threads need as many CPUs, but this process may use only {}",
                    allowed.len()
                ));
            }
            return Ok(allowed[allowed.len() - threads..].to_vec());
        };
        let mut cpus = Vec::new();
        for text in list.split(',') {
            let cpu = text.trim().parse().map_err(|_| format!("`{text}` is not a CPU number"))?;
            if !allowed.contains(&cpu) {
                return Err(format!("this process may not use CPU {cpu}; choose from {allowed:?}"));
            }
            if cpus.contains(&cpu) {
                return Err(format!("CPU {cpu} is listed twice; each thread needs its own"));
            }
            cpus.push(cpu);
        }
        if self.threads != "1" && cpus.len() != threads {
            return Err(format!("lists {} CPUs, but --threads is {threads}; list one per thread", cpus.len()));
        }
        Ok(cpus)
    }
}

fn some_time(time: Duration) -> Result<Duration, String> {
    if time.is_zero() {
        Err("the time is zero; expected one such as 500ms or 20s".to_owned())
    } else {
        possible_time(time)
    }
}

fn possible_time(time: Duration) -> Result<Duration, String> {
    if time <= TIME_MAX {
        Ok(time)
    } else {
        Err(format!("{} s is longer than a week; expected at most {} h", time.as_secs(), TIME_MAX.as_secs() / 3_600))
    }
}

fn possible_rate(rate: f64) -> Result<f64, String> {
    if rate <= RATE_MAX {
        Ok(rate)
    } else {
        Err(format!("{rate:.0}/s is too much; expected at most {}/s", units::show_count(RATE_MAX as u64)))
    }
}

fn at_most(count: u64, most: u64) -> Result<u64, String> {
    if count <= most {
        Ok(count)
    } else {
        Err(format!("{} is too much; expected at most {}", units::show_count(count), units::show_count(most)))
    }
}

/// Raises the limit on open files if `connections` need more. Returns `connections`.
///
/// # Errors
/// A message with the limit, if it cannot be raised so far.
fn open_files(connections: u64) -> Result<u64, String> {
    let wanted = connections + OTHER_FILES;
    let limits = getrlimit(Resource::Nofile);
    if limits.current.is_none_or(|current| current >= wanted) {
        return Ok(connections);
    }
    let raised = Rlimit { current: Some(wanted), maximum: limits.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => Ok(connections),
        Err(_) => {
            let most = limits.maximum.unwrap_or(0);
            Err(format!(
                "{connections} connections need {wanted} open files, but the limit is {most}; see `ulimit -Hn`"
            ))
        }
    }
}

fn exponent(text: &str) -> Result<f64, String> {
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=10.0).contains(value));
    value.ok_or_else(|| format!("`{text}` is not an exponent from 0 to 10; 1 is typical of web traffic"))
}

fn header(field: &str) -> Result<(), String> {
    let (name, _) =
        field.split_once(':').ok_or_else(|| format!("`{field}` is not a header field such as `Name: value`"))?;
    if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)) {
        return Err(format!("`{name}` is not a header name; expected letters, digits, - and _"));
    }
    visible(field)
}

/// Checks that client addresses are of the family of a target.
fn reachable_from(clients: &[IpAddr], target: &Target) -> Result<(), String> {
    match clients.iter().find(|client| client.is_ipv4() != target.address.is_ipv4()) {
        None => Ok(()),
        Some(client) => Err(format!("{client} is not of the address family of {}", target.address)),
    }
}

/// Checks that a text cannot end a line of a request. The text may be secret, so the error does not show it.
fn visible(text: &str) -> Result<(), String> {
    if text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        Ok(())
    } else {
        Err("contains a character that is not printable ASCII".to_owned())
    }
}

/// Checks that a report can be written to a path, before a run of hours.
fn is_writable(path: &Path) -> Result<(), String> {
    let opened = std::fs::OpenOptions::new().create(true).append(true).open(path);
    opened.map(|_| ()).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

impl From<ArrivalName> for Arrival {
    fn from(name: ArrivalName) -> Arrival {
        match name {
            ArrivalName::Poisson => Arrival::Poisson,
            ArrivalName::Constant => Arrival::Constant,
        }
    }
}

impl From<HeadersName> for Headers {
    fn from(name: HeadersName) -> Headers {
        match name {
            HeadersName::Browser => Headers::Browser,
            HeadersName::Minimal => Headers::Minimal,
        }
    }
}

/// Returns the mix of the links that are created first.
pub(crate) fn creating() -> Mix {
    Mix::only(RequestKind::Create)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arguments: &str) -> Result<RunOptions, Vec<String>> {
        let words = std::iter::once("carom-loadgen").chain(arguments.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| vec![error.to_string()])?.check()
    }

    #[test]
    fn the_defaults_are_a_plan() {
        let order = check("--target 127.0.0.1:8080 --create 10").unwrap();
        assert_eq!(order.plan.pace, Loop::Open { arrival: Arrival::Poisson, rate: 1_000.0 });
        assert_eq!((order.plan.connections, order.plan.cpus.len()), (64, 1));
        assert_eq!(order.source, LinkSource::Create(10));
    }

    #[test]
    fn every_mistake_is_named_at_once() {
        let wrong = check(
            "--target ftp://x --rate 0 --duration 5 --connections x --zipf -1 --mix get=1 --slo p98=1s --json /no/such/dir/x",
        )
        .unwrap_err()
        .join("\n");
        for word in ["--target", "--rate", "--duration", "--connections", "--mix", "--slo", "--json"] {
            assert!(wrong.contains(word), "{word} in {wrong}");
        }
        assert!(check("--target 127.0.0.1:1").unwrap_err()[0].contains("--codes"));
        assert!(check("--target https://127.0.0.1:1 --create 1").unwrap_err()[0].contains("--tls-ca"));
        for (arguments, words) in [
            ("--rate 1e30", "--rate"),
            ("--rate 0.01 --duration 500ms", "no request is sent"),
            ("--duration 18446744074s", "--duration"),
            ("--timeout 1000000h", "--timeout"),
            ("--connections 1e15", "--connections"),
            ("--closed --pipeline 1e12", "--pipeline"),
            ("--expect-status 9999", "--expect-status"),
            ("--cpus 0,0", "twice"),
            ("--json /", "--json"),
            ("--target 127.0.0.1:0", "port"),
            ("--target 127.0.0.1:99999", "port"),
            ("--target http://127.0.0.1:80/a", "path"),
            ("--connections 1 --target 127.0.0.1:2", "each target"),
            ("--bind ::1", "--bind"),
        ] {
            let wrong = check(&format!("--target 127.0.0.1:1 --create 1 {arguments}")).unwrap_err().join("\n");
            assert!(wrong.contains(words), "{arguments}: {wrong}");
        }
    }

    #[test]
    fn ports_are_those_of_the_scheme() {
        let address = |text: &str| {
            let order = check(&format!("--create 1 --tls-insecure {text}")).unwrap();
            order.plan.targets[0].address.to_string()
        };
        assert_eq!(address("--target 127.0.0.1"), "127.0.0.1:80");
        assert_eq!(address("--target https://127.0.0.1/"), "127.0.0.1:443");
        assert_eq!(address("--tls --target 127.0.0.1"), "127.0.0.1:443");
        assert_eq!(address("--target http://[::1]"), "[::1]:80");
        assert_eq!(address("--target [::1]:81"), "[::1]:81");
    }

    #[test]
    fn secrets_are_not_shown() {
        let order = check("--target 127.0.0.1:1 --create 1 --api-key geheim").unwrap();
        assert!(!format!("{order:?}").contains("geheim"));
    }
}
