//! The command line, as clap reads it. `options` checks it.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::protocol::request::Headers;
use crate::workload::schedule::ArrivalProcess;

/// Measures a redirect server: sends requests at times planned before the run, checks every answer, and reports the
/// latency that clients would see.
///
/// Latency counts from the planned send time, so a stall of the server is charged to every request that it delayed (no
/// coordinated omission). `--closed` measures the highest throughput instead, and `--find-rate` finds the highest rate
/// that meets the objectives.
#[derive(Parser, Debug)]
#[command(name = "carom-loadgen", version, max_term_width = 100, after_help = EXAMPLES_AND_EXIT_CODES)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(crate) struct Arguments {
    /// Work other than a run.
    #[command(subcommand)]
    pub(crate) work: Option<OtherWork>,
    /// URL to request, such as http://127.0.0.1:8080/abc. Can be repeated; connections are spread over all servers.
    /// With --codes, --create or --mix, only its host and port count. `--target URL` is an older form.
    #[arg(value_name = "URL")]
    pub(crate) url: Vec<String>,
    /// Older form of URL.
    #[arg(long, value_name = "URL", hide = true)]
    pub(crate) target: Vec<String>,
    /// Links to request, as written by `carom export`: one JSON object with shortCode and longUrl per line.
    #[arg(long, value_name = "FILE")]
    pub(crate) codes: Option<PathBuf>,
    /// Create this many links through the API, then request them.
    #[arg(long, value_name = "N", conflicts_with = "codes")]
    pub(crate) create: Option<String>,
    /// Requests per second in total. With --find-rate, the first rate to try.
    #[arg(short, long, value_name = "N", default_value = "1000")]
    pub(crate) rate: String,
    /// Spacing of the planned send times: poisson is random, like many independent users; constant is even.
    #[arg(long, value_enum, default_value = "poisson")]
    pub(crate) arrival: ArrivalName,
    /// Send the next request of a connection as soon as the last one is answered, instead of at planned times.
    #[arg(long, conflicts_with_all = ["rate", "arrival", "find_rate"])]
    pub(crate) closed: bool,
    /// Find the highest rate that meets --slo, in runs of --duration each.
    #[arg(long, requires = "slo", conflicts_with = "requests")]
    pub(crate) find_rate: bool,
    /// Duration of the measurement [default: 20s, or as long as --requests takes]
    #[arg(short, long, value_name = "TIME")]
    pub(crate) duration: Option<String>,
    /// Stop after this many measured requests, or after --duration if that comes first.
    #[arg(short = 'n', long, value_name = "N")]
    pub(crate) requests: Option<String>,
    /// Duration of the warm-up before the measurement [default: 2s, or 0s with --requests]
    #[arg(long, value_name = "TIME")]
    pub(crate) warmup: Option<String>,
    /// Timeout of a request.
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(crate) timeout: String,
    /// Connections in total.
    #[arg(short, long, value_name = "N", default_value = "64")]
    pub(crate) connections: String,
    /// Client address of the connections [default: the kernel's choice]. Can be repeated; connections take turns.
    #[arg(long, value_name = "IP")]
    pub(crate) bind: Vec<IpAddr>,
    /// Requests in flight on each connection.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) pipeline: String,
    /// Speak HTTP/2: over TLS if the server agrees (ALPN), else with prior knowledge. --pipeline is the number of streams,
    /// at most 100.
    #[arg(long)]
    pub(crate) http2: bool,
    /// Replace a connection after this many requests; 1 opens a new connection for each request.
    #[arg(long, value_name = "N")]
    pub(crate) renew: Option<String>,
    /// Threads, each pinned to its own CPU.
    #[arg(short, long, value_name = "N", default_value = "1")]
    pub(crate) threads: String,
    /// CPUs of the threads, such as 1,3 [default: the last ones available]
    #[arg(long, value_name = "LIST")]
    pub(crate) cpus: Option<String>,
    /// Shares of the kinds of requests (redirect, head, miss, create), such as redirect=95,miss=5 [default: the URL as
    /// given, or redirect=1 with --codes or --create]
    #[arg(long, value_name = "SHARES")]
    pub(crate) mix: Option<String>,
    /// Request popular links more often: the k-th in proportion to 1/k^S [default: all links equally]
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub(crate) zipf: Option<String>,
    /// Header fields of each request: those that a browser sends, or only Host.
    #[arg(long, value_enum, default_value = "browser")]
    pub(crate) headers: HeadersName,
    /// Additional header field for each request; can be repeated.
    #[arg(short = 'H', long, value_name = "NAME: VALUE")]
    pub(crate) header: Vec<String>,
    /// Value of the Host header [default: the host and port of the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// API key for creates, sent as X-Api-Key. It is never printed.
    #[arg(long, value_name = "KEY", env = "CAROM_API_KEY", hide_env_values = true)]
    pub(crate) api_key: Option<String>,
    /// Use TLS, as with https://.
    #[arg(long)]
    pub(crate) tls: bool,
    /// CA certificates to trust, in PEM [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Do not verify the certificate of the server. `--tls-insecure` is an older form.
    #[arg(short = 'k', long, alias = "tls-insecure", conflicts_with = "tls_ca")]
    pub(crate) insecure: bool,
    /// Server name for TLS (SNI), which the certificate must contain [default: the host of the URL]
    #[arg(long, value_name = "NAME")]
    pub(crate) sni: Option<String>,
    /// Expected status [default: 2xx or 3xx for the URL as given; any of 301, 302, 303, 307 and 308 for redirects]
    #[arg(long, value_name = "STATUS")]
    pub(crate) expect_status: Option<u16>,
    /// Do not check the Location of redirects, for servers that redirect every request to the same destination.
    #[arg(long)]
    pub(crate) no_check_location: bool,
    /// Objectives, such as 'p80<5ms,p99<20ms,mean<10ms,errors=0,rate>40k'. Also: p50, p90, p99.9, p99.99 and max. The
    /// older form p99=20ms means at most 20 ms.
    #[arg(long, value_name = "OBJECTIVES")]
    pub(crate) slo: Option<String>,
    /// Seed of all random numbers: the same seed sends the same requests at the same times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Write results to this file, in the format of its suffix: .json, .html, .txt (the table), .hgrm or .hlog. Can be
    /// repeated.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Vec<PathBuf>,
    /// Write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the percentile distribution in milliseconds, in the text format that HdrHistogram plotters read.
    #[arg(long, value_name = "FILE")]
    pub(crate) hgrm: Option<PathBuf>,
    /// Write a histogram of each second, in the log format of HdrHistogram.
    #[arg(long, value_name = "FILE")]
    pub(crate) hlog: Option<PathBuf>,
    /// Write an HTML report with plots.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print a line for each second, also on a terminal, instead of the live view.
    #[arg(long)]
    pub(crate) no_live: bool,
    /// Print neither progress nor results.
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

/// Text that follows the options in the help.
const EXAMPLES_AND_EXIT_CODES: &str = "Examples:
  carom-loadgen http://127.0.0.1:8080/abc -c 64 -d 30s -r 40000
  carom-loadgen http://127.0.0.1:8080 --create 10000 --find-rate --slo 'p99<20ms' -d 5s
  carom-loadgen compare base.json new.json --fail-if 'p99>+10%'

Exit codes:
    0  every answer was correct, and every objective was met
    1  an objective was missed, or an answer was wrong
    2  invalid options or files
    3  the generator was the bottleneck, so the results say nothing about the server
    4  the target cannot be reached
  130  interrupted by a signal; the results cover the time until then";

/// Text that follows the options in the help of `compare`.
const COMPARE_EXIT_CODES: &str = "Exit codes:
    0  no condition of --fail-if was met
    1  a condition was met
    2  invalid options or files
    3  with --fail-if: the generator was the bottleneck in a run, so its results say nothing about the server";

/// Work other than a run.
#[derive(Subcommand, Debug)]
pub(crate) enum OtherWork {
    /// Compare the results of two runs, such as those of two builds.
    Compare(CompareArguments),
    /// Write the man pages.
    Man {
        /// Directory for the pages; created if it does not exist.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
}

/// Compare the results of two runs, such as those of two builds.
#[derive(Args, Debug)]
#[command(after_help = COMPARE_EXIT_CODES)]
pub(crate) struct CompareArguments {
    /// Results of the run to compare with, as JSON.
    #[arg(value_name = "BASE")]
    pub(crate) base: PathBuf,
    /// Results of the new run, as JSON.
    #[arg(value_name = "NEW")]
    pub(crate) new: PathBuf,
    /// Fail if a measure changes by more than this, such as 'p99>+10%', 'throughput<-5%' or 'errors>+0'. Can be
    /// repeated. Measures: throughput, mean, p50, p80, p90, p99, p99.9, p99.99, max and errors.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<String>,
}

/// Value of `--arrival`.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum ArrivalName {
    Poisson,
    Constant,
}

/// Value of `--headers`.
#[derive(ValueEnum, Clone, Copy, Debug)]
pub(crate) enum HeadersName {
    Browser,
    Minimal,
}

impl From<ArrivalName> for ArrivalProcess {
    fn from(name: ArrivalName) -> ArrivalProcess {
        match name {
            ArrivalName::Poisson => ArrivalProcess::Poisson,
            ArrivalName::Constant => ArrivalProcess::Constant,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn command_line_has_no_contradictions() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn short_flags_and_older_names_are_read() {
        let read = |line: &str| Arguments::try_parse_from(line.split_whitespace()).unwrap();
        let short =
            read("carom-loadgen http://h/abc -c 8 -d 30s -r 40000 -t 2 -n 10 -k -H A:b -H C:d -o a.json -o b.html");
        assert_eq!(short.url, ["http://h/abc"]);
        assert_eq!((&*short.connections, &*short.rate, &*short.threads), ("8", "40000", "2"));
        assert_eq!((short.duration.as_deref(), short.requests.as_deref()), (Some("30s"), Some("10")));
        assert_eq!((short.header.len(), short.output.len(), short.insecure), (2, 2, true));
        let older = read("carom-loadgen --target h:1 --target h:2 --tls-insecure --connections 8 --duration 1s");
        assert_eq!((older.target.len(), older.insecure), (2, true));
        assert!(short.work.is_none());
        assert!(older.work.is_none());
    }

    #[test]
    fn compare_takes_two_files_and_conditions() {
        let read = |line: &str| Arguments::try_parse_from(line.split_whitespace());
        let arguments = read("carom-loadgen compare a.json b.json --fail-if p99>+10% --fail-if errors>+0").unwrap();
        let Some(OtherWork::Compare(compare)) = arguments.work else { panic!("no comparison") };
        assert_eq!((compare.base, compare.new), (PathBuf::from("a.json"), PathBuf::from("b.json")));
        assert_eq!(compare.fail_if, ["p99>+10%", "errors>+0"]);
        for wrong in ["carom-loadgen compare a.json", "carom-loadgen -c 8 compare a.json b.json --fail-if x"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(read("carom-loadgen http://compare/").unwrap().url, ["http://compare/"]);
    }
}
