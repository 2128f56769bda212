//! The checked command line: what to run, and where to write the results. Every mistake is reported at once.

use std::path::PathBuf;
use std::time::Duration;

use crate::command_line::cli::Arguments;
use crate::command_line::output::{OutputFile, OutputFormat};
use crate::command_line::target::TargetOptions;
use crate::command_line::values::{
    TIME_MAX, at_most, cpus, exponent, header, is_writable, open_files, possible_rate, possible_time, reachable_from,
    some_time, visible,
};
use crate::plan::{Loop, Plan, RedactedKey, Target};
use crate::protocol::http2::STREAMS_MAX;
use crate::protocol::tls::TrustedRoots;
use crate::results::check::Expectation;
use crate::results::verdict::Objective;
use crate::units;
use crate::workload::traffic::{Mix, RequestKind};

/// Maximum number of connections: every port of sixteen client addresses.
const CONNECTIONS_MAX: u64 = 1_000_000;

/// Maximum number of requests in flight on one connection.
const PIPELINE_MAX: u64 = 10_000;

/// Duration of a run without `--duration` and `--requests`.
const DURATION: Duration = Duration::from_secs(20);

/// Duration of the warm-up without `--warmup` and `--requests`.
const WARMUP: Duration = Duration::from_secs(2);

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
    pub(crate) files: Vec<OutputFile>,
    /// True for the live view if there is a terminal.
    pub(crate) live: bool,
    /// True to print neither progress nor results.
    pub(crate) quiet: bool,
}

/// Collects the mistakes of a command line.
struct Mistakes(Vec<String>);

impl Mistakes {
    /// Returns the value of an option, or notes its mistake.
    fn take<T>(&mut self, option: &str, result: Result<T, String>) -> Option<T> {
        self.take_as(&format!("--{option}"), result)
    }

    /// Returns a value, or notes its mistake under a name.
    fn take_as<T>(&mut self, name: &str, result: Result<T, String>) -> Option<T> {
        result.map_err(|reason| self.0.push(format!("{name}: {reason}"))).ok()
    }
}

impl Arguments {
    /// Checks the command line.
    ///
    /// # Errors
    /// Every mistake, as one message each.
    pub(crate) fn check(self) -> Result<RunOptions, Vec<String>> {
        let mut wrong = Mistakes(Vec::new());
        let targets = self.targets(&mut wrong);
        let mix = wrong.take("mix", self.mix());
        let rate = wrong.take("rate", units::number(&self.rate).and_then(possible_rate));
        let duration = wrong.take("duration", self.duration());
        let warmup = wrong.take("warmup", self.warmup());
        let timeout = wrong.take("timeout", units::duration(&self.timeout).and_then(some_time));
        let connections = units::count(&self.connections).and_then(|count| at_most(count, CONNECTIONS_MAX));
        let connections = wrong.take("connections", connections.and_then(open_files));
        let pipeline = units::count(&self.pipeline).and_then(|count| at_most(count, self.pipeline_max()));
        let pipeline = wrong.take("pipeline", pipeline);
        if let (Some(rate), Some(duration), false) = (rate, duration, self.closed)
            && rate * duration.as_secs_f64() < 1.0
        {
            wrong.0.push(
                "--rate and --duration: no request is sent at this rate in this time; raise one of them".to_owned(),
            );
        }
        let requests = self.requests.as_deref().map(|text| wrong.take("requests", units::count(text)));
        let renew = self.renew.as_deref().map(|text| wrong.take("renew", units::count(text)));
        let zipf = self.zipf.as_deref().map(|text| wrong.take("zipf", exponent(text)));
        let threads = wrong.take("threads", units::count(&self.threads)).unwrap_or(1) as usize;
        let cpus = wrong.take("cpus", cpus(self.cpus.as_deref(), threads, self.threads != "1"));
        self.check_texts(&mut wrong);
        let files = self.files(&mut wrong);
        let objectives = self.objectives(&mut wrong);
        let source = self.source(mix, &mut wrong);
        self.check_connections(connections, cpus.as_deref(), &targets, &mut wrong);
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
            targets,
            pace,
            warmup: warmup.expect(checked),
            duration: duration.expect(checked),
            timeout: timeout.expect(checked),
            connections: connections.expect(checked) as usize,
            cpus: cpus.expect(checked),
            clients: self.bind,
            http2: self.http2,
            pipeline: pipeline.expect(checked) as usize,
            renew: renew.map(|renew| renew.expect(checked)),
            mix: mix.expect(checked),
            zipf: zipf.map(|zipf| zipf.expect(checked)),
            headers: self.headers.into(),
            extra: self.header,
            api_key: self.api_key.map(RedactedKey),
            expectation: Expectation { status: self.expect_status, location: !self.no_check_location },
            seed: self.seed,
            requests: requests.map(|requests| requests.expect(checked)),
            collects_created: false,
        };
        Ok(RunOptions {
            plan,
            source,
            objectives,
            find_rate: self.find_rate,
            files,
            live: !self.no_live,
            quiet: self.quiet,
        })
    }

    /// True if the URLs are requested as given, rather than links.
    fn takes_urls(&self) -> bool {
        self.codes.is_none() && self.create.is_none() && self.mix.is_none()
    }

    /// Returns the maximum number of requests in flight on one connection.
    fn pipeline_max(&self) -> u64 {
        if self.http2 { STREAMS_MAX } else { PIPELINE_MAX }
    }

    /// Returns the targets that can be parsed and resolved.
    fn targets(&self, wrong: &mut Mistakes) -> Vec<Target> {
        if self.url.is_empty() && self.target.is_empty() {
            wrong.0.push("no URL; pass one such as http://127.0.0.1:8080/abc".to_owned());
        }
        let trust = match &self.tls_ca {
            _ if self.insecure => TrustedRoots::Anybody,
            Some(path) => TrustedRoots::File(path.clone()),
            None => TrustedRoots::System,
        };
        let options = TargetOptions {
            trust: &trust,
            is_tls: self.tls,
            sni: self.sni.as_deref(),
            host: self.host.as_deref(),
            takes_path: self.takes_urls(),
            http2: self.http2,
        };
        let urls = self.url.iter().map(|text| ("URL", text));
        let all = urls.chain(self.target.iter().map(|text| ("--target", text)));
        all.filter_map(|(name, text)| wrong.take_as(name, options.target(text))).collect()
    }

    fn mix(&self) -> Result<Mix, String> {
        match &self.mix {
            Some(shares) => Mix::read(shares),
            None if self.takes_urls() => Ok(Mix::only(RequestKind::Url)),
            None => Ok(Mix::only(RequestKind::Redirect)),
        }
    }

    fn duration(&self) -> Result<Duration, String> {
        match &self.duration {
            Some(text) => units::duration(text).and_then(some_time),
            None if self.requests.is_some() => Ok(TIME_MAX),
            None => Ok(DURATION),
        }
    }

    fn warmup(&self) -> Result<Duration, String> {
        match &self.warmup {
            Some(text) => units::duration(text).and_then(possible_time),
            // A number of requests means all that are sent.
            None if self.requests.is_some() => Ok(Duration::ZERO),
            None => Ok(WARMUP),
        }
    }

    /// Checks what the plan takes over as it is written: the expected status, header fields, and the key.
    fn check_texts(&self, wrong: &mut Mistakes) {
        match self.expect_status {
            Some(status) if self.takes_urls() && !(200..600).contains(&status) => {
                wrong.0.push(format!("--expect-status: {status} is not the status of a response; expected 200 to 599"));
            }
            Some(status) if !self.takes_urls() && !(300..400).contains(&status) => {
                wrong.0.push(format!("--expect-status: {status} is not the status of a redirect; expected 300 to 399"));
            }
            _ => {}
        }
        for field in &self.header {
            wrong.take("header", header(field));
        }
        if let Some(key) = &self.api_key {
            wrong.take("api-key", visible(key));
        }
    }

    /// Returns the files to write. Each is opened once, so that a long run does not end without its results.
    fn files(&self, wrong: &mut Mistakes) -> Vec<OutputFile> {
        let by_option = [
            ("json", OutputFormat::Json, &self.json),
            ("hgrm", OutputFormat::Hgrm, &self.hgrm),
            ("hlog", OutputFormat::Hlog, &self.hlog),
            ("html", OutputFormat::Html, &self.html),
        ];
        let by_option = by_option
            .into_iter()
            .filter_map(|(option, format, path)| Some((option, Ok::<_, String>(format), path.as_ref()?)));
        let by_suffix = self.output.iter().map(|path| ("output", OutputFormat::of(path), path));
        let mut files = Vec::new();
        for (option, format, path) in by_option.chain(by_suffix) {
            let format = format.and_then(|format| is_writable(path).map(|()| format));
            files.extend(wrong.take(option, format).map(|format| OutputFile { format, path: path.clone() }));
        }
        files
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

    /// Returns the source of the links, given the mix if it is valid.
    fn source(&self, mix: Option<Mix>, wrong: &mut Mistakes) -> LinkSource {
        let create = self.create.as_deref().and_then(|text| wrong.take("create", units::count(text)));
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

    /// Checks that each thread and each target has a connection, and that client addresses fit the targets.
    fn check_connections(
        &self,
        connections: Option<u64>,
        cpus: Option<&[usize]>,
        targets: &[Target],
        wrong: &mut Mistakes,
    ) {
        if connections < cpus.map(|cpus| cpus.len() as u64) && wrong.0.is_empty() {
            wrong.0.push("--connections: each thread needs at least one connection".to_owned());
        }
        if connections < Some(targets.len() as u64) && wrong.0.is_empty() {
            wrong.0.push("--connections: each target needs at least one connection".to_owned());
        }
        for target in targets {
            wrong.take("bind", reachable_from(&self.bind, target));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::schedule::ArrivalProcess;
    use clap::Parser as _;

    fn check(arguments: &str) -> Result<RunOptions, Vec<String>> {
        let words = std::iter::once("carom-loadgen").chain(arguments.split_whitespace());
        Arguments::try_parse_from(words).map_err(|error| vec![error.to_string()])?.check()
    }

    #[test]
    fn the_defaults_are_a_plan() {
        let order = check("--target 127.0.0.1:8080 --create 10").unwrap();
        assert_eq!(order.plan.pace, Loop::Open { arrival: ArrivalProcess::Poisson, rate: 1_000.0 });
        assert_eq!((order.plan.connections, order.plan.cpus.len()), (64, 1));
        assert_eq!((order.plan.duration, order.plan.warmup), (DURATION, WARMUP));
        assert_eq!((order.source, order.plan.mix.to_string()), (LinkSource::Create(10), "redirect=1".to_owned()));
    }

    #[test]
    fn a_url_alone_is_requested_as_given() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        let order = check(&format!("http://127.0.0.1:8080/abc?d -c 8 -d 30s -r 40000 -o {}", path.display())).unwrap();
        assert_eq!((&*order.plan.targets[0].path, order.plan.connections), ("/abc?d", 8));
        assert_eq!((order.plan.rate(), order.plan.duration), (Some(40_000.0), Duration::from_secs(30)));
        assert_eq!((order.source, order.plan.mix), (LinkSource::None, Mix::only(RequestKind::Url)));
        assert_eq!(order.files, [OutputFile { format: OutputFormat::Html, path }]);
        assert_eq!(check("127.0.0.1 --expect-status 404").unwrap().plan.expectation.status, Some(404));
    }

    #[test]
    fn a_number_of_requests_takes_as_long_as_it_takes() {
        let order = check("http://127.0.0.1/ -n 500").unwrap();
        assert_eq!(
            (order.plan.requests, order.plan.duration, order.plan.warmup),
            (Some(500), TIME_MAX, Duration::ZERO)
        );
        let order = check("http://127.0.0.1/ -n 500 -d 1s --warmup 1s").unwrap();
        assert_eq!((order.plan.duration, order.plan.warmup), (Duration::from_secs(1), Duration::from_secs(1)));
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
        assert!(check("127.0.0.1:1 --mix redirect=1").unwrap_err()[0].contains("--codes"));
        for (arguments, words) in
            [("", "no URL"), ("ftp://x", "URL: "), ("h -n 1 --find-rate --slo p99=1s", "--requests")]
        {
            let wrong = check(arguments).unwrap_err().join("\n");
            assert!(wrong.contains(words), "{arguments}: {wrong}");
        }
        for (arguments, words) in [
            ("--rate 1e30", "--rate"),
            ("--rate 0.01 --duration 500ms", "no request is sent"),
            ("--duration 18446744074s", "--duration"),
            ("--timeout 1000000h", "--timeout"),
            ("--connections 1e15", "--connections"),
            ("--requests 0", "--requests"),
            ("--closed --pipeline 1e12", "--pipeline"),
            ("--http2 --pipeline 101", "--pipeline"),
            ("--expect-status 9999", "--expect-status"),
            ("--expect-status 200", "--expect-status"),
            ("--cpus 0,0", "twice"),
            ("--json /", "--json"),
            ("--output /tmp/report.csv", "--output"),
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
