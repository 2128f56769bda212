//! Redirects beside queries of a large visit log: their latency on a core whose CPU the thread of the queries uses, too.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use carom::services::visit_log::samples::SampleLog;
use carom_model::visits::record::{LoggedKind, RequestPart, VisitRecord};
use carom_shards::Code;
use carom_telemetry::clock::unix_ms;

use super::{Growth, copy_folder, keep_alive};
use crate::client::Scenario;
use crate::data;
use crate::results::{Budget, median};
use crate::servers::peers;
use crate::terminal::say;

/// Number of links.
const LINKS: u64 = 1_000_000;

/// Redirects per second.
const RATE: f64 = 40_000.0;

/// Span of the visits in milliseconds: 80 days, which is less than a node keeps by default.
const SPAN_MS: u64 = 80 * 24 * 3_600_000;

/// User agents of the visits, by turns.
const AGENTS: [&str; 3] = [
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1",
    "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Mobile Safari/537.36",
];

/// Referrers and languages of the visits, by turns.
const REFERRERS: [&str; 4] = ["", "https://www.google.com/", "https://news.example/today", "https://social.example/"];
const LANGUAGES: [&str; 3] = ["en", "de", "fr"];

impl Growth<'_> {
    /// Measures a node at rest, in turn with the same node while one client counts all visits again and again.
    pub(super) fn visit_query(&mut self) -> Result<()> {
        // Ten visits for each link of the largest node.
        let visits = self.order.many * 10;
        let data = self.logged(visits)?;
        let words = ["env", "CAROM_VISITS_LOG=on", "CAROM_VISITS_KEEP_BYTES=64GiB"].map(str::to_owned);
        let running = self.carom_after(&words, &data, &self.cpus.server.to_string())?;
        super::await_redirect(running.server.address, LINKS - 1)?;
        running.server.await_idle()?;
        let load = Scenario { rate: Some(RATE), ..keep_alive(64) };
        let (mut beside, mut quiet, mut queries) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.order.rounds {
            quiet.push(self.sample(&running, &load, LINKS)?);
            let (sample, answered) = beside_queries(running.server.address, || self.sample(&running, &load, LINKS))?;
            beside.push(sample);
            queries.extend(answered);
        }
        drop(running);
        let how = "open loop from the intended instant, one core, whose CPU the queries use, too; each reads for 3 s";
        for (what, samples) in [("no query", quiet), ("queries", beside)] {
            let p99 = median(samples.iter().map(|sample| sample.p99).collect()).unwrap_or(0.0);
            let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
            self.add(format!("p99 at 40,000/s beside {what}, {visits} logged visits"), p99, "µs", None, how)?;
            let name = format!("errors beside {what}, {visits} logged visits");
            self.add(name, errors as f64, "", Some(Budget::AtMost(0.0)), how)?;
        }
        let how = "visits that a query has counted when its time is over; the answer says that it is not complete";
        self.add(format!("visits in one answer, of {visits}"), median(queries).unwrap_or(0.0), "visits", None, how)
    }

    /// Returns a data directory with so many logged visits, which is created at the first call.
    fn logged(&self, visits: u64) -> Result<PathBuf> {
        let folder = self.place.data.join(format!("carom-{LINKS}-{visits}-visits"));
        let complete = folder.join("complete-with-visits");
        if complete.exists() {
            return Ok(folder);
        }
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        copy_folder(&peers::carom_data(self.place, LINKS)?, &folder)?;
        write_visits(&folder, visits)?;
        std::fs::write(complete, "")?;
        Ok(folder)
    }
}

/// Writes visits of random links, evenly spread over [`SPAN_MS`], oldest first.
fn write_visits(data_dir: &Path, visits: u64) -> Result<()> {
    let mut log = SampleLog::create(data_dir)?;
    let begin_ms = unix_ms() - SPAN_MS;
    for number in 0..visits {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let of = |values: &[&'static str], shift: u32| values[(mixed >> shift) as usize % values.len()].as_bytes();
        let link = mixed % LINKS;
        let request = RequestPart {
            host: b"go.example",
            referrer: of(&REFERRERS, 3),
            agent: of(&AGENTS, 5),
            language: of(&LANGUAGES, 7),
            ..RequestPart::default()
        };
        log.add(&VisitRecord {
            at_ms: begin_ms + (SPAN_MS as u128 * u128::from(number) / u128::from(visits)) as u64,
            kind: LoggedKind::Link,
            is_secure: true,
            forwards: false,
            is_bot: false,
            request,
            location: None,
            code: Some(Code::parse(data::code(link).as_bytes()).context("a code of the benchmark")?),
            target: data::target(link).as_bytes(),
        })?;
        if number % 10_000_000 == 0 {
            say(&format!("{number} of {visits} visits written"));
        }
    }
    Ok(log.finish()?)
}

/// Runs `work` while another thread sends one query after the other. Returns its result, and the visits in each answer.
fn beside_queries<T>(address: SocketAddr, work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<f64>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let queries = scope.spawn(|| -> Result<Vec<f64>> {
            let mut answers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                answers.push(count_visits(address)?);
            }
            Ok(answers)
        });
        let result = work();
        is_over.store(true, Ordering::Relaxed);
        let answers = queries.join().map_err(|_| anyhow::anyhow!("the client of the queries panicked"))?;
        Ok((result?, answers?))
    })
}

/// Counts all visits, and returns the number in the answer.
fn count_visits(address: SocketAddr) -> Result<f64> {
    let begin = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    let request = format!("GET /rest/v3/visits/stats HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let Some((_, body)) = answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200 ")) else {
        bail!("a query was answered after {:?} with: {answer}", begin.elapsed());
    };
    let json: serde_json::Value = serde_json::from_str(body)?;
    json["visitStats"]["total"].as_f64().context("the answer has no total")
}
