//! Starts of nodes: the time until they are ready, the work that follows, and redirects beside that work.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{CORE_THREADS, Growth, await_redirect, keep_alive};
use crate::client::Scenario;
use crate::results::{Budget, median};
use crate::servers::peers::{self, Running};

/// Time within which a node must have written the file of its filters of codes.
const HOT_SETTLE_TIME_MAX: Duration = Duration::from_secs(1_800);

/// Files in a data directory: the image of the links, the filters of codes, and the sections of the search index.
const IMAGE: &str = "links.image";
const FILTERS: &str = "links.filter";
const SECTIONS: &str = "search.sections";

/// Links of the node whose memory is measured after it has settled.
const SETTLED_LINKS: u64 = 1_000_000;

/// Redirects per second beside the rebuilding of the search index.
const REBUILD_RATE: f64 = 40_000.0;

impl Growth<'_> {
    pub(super) fn ready(&mut self) -> Result<()> {
        let many = self.order.many;
        let data = peers::carom_data(self.place, many)?;
        for cores in [1, 2] {
            let cpus = match cores {
                1 => self.cpus.server.to_string(),
                _ if self.cpus.client == self.cpus.server => continue,
                _ => format!("{},{}", self.cpus.server, self.cpus.client),
            };
            let mut seconds = Vec::new();
            for _ in 0..self.order.rounds.min(3) {
                self.carom(&data, &cpus)?.server.kill()?;
                let begin = Instant::now();
                let running = self.carom(&data, &cpus)?;
                await_redirect(running.server.address, many - 1)?;
                seconds.push(begin.elapsed().as_secs_f64());
            }
            let budget = (cores == 2).then_some(Budget::AtMost(5.0));
            self.add(
                format!("ready after kill -9, {many} links, {cores} CPU"),
                median(seconds).unwrap_or(0.0),
                "s",
                budget,
                "from the start of the process to the first right redirect; the files are in the page cache",
            )?;
        }
        Ok(())
    }
}

impl Growth<'_> {
    /// Measures what a node does after its start: the CPU time of the threads that are no cores until the node is idle,
    /// its memory then, and the latency of redirects while it rebuilds its search index.
    pub(super) fn settling(&mut self) -> Result<()> {
        let many = self.order.many;
        let data = peers::carom_data(self.place, many)?;
        let cpus = self.all_cpus();
        // The first start writes what an import has not written.
        self.settled(&data, &cpus, many)?;
        let (mut clean, mut killed) = (Vec::new(), Vec::new());
        for _ in 0..self.order.rounds.min(3) {
            // Dropping a node stops it cleanly.
            let (seconds, running) = self.background(&data, &cpus, many)?;
            killed.push(seconds);
            drop(running);
            let (seconds, running) = self.background(&data, &cpus, many)?;
            clean.push(seconds);
            running.server.kill()?;
        }
        let how = "all threads that are no cores, from the first right redirect until the node is idle; no load";
        for (what, seconds) in [("kill -9", killed), ("a clean stop", clean)] {
            let name = format!("CPU of the background after {what}, {many} links");
            self.add(name, median(seconds).unwrap_or(0.0), "s", Some(Budget::AtMost(3.0)), how)?;
        }
        self.settled_memory(&cpus)?;
        self.beside_rebuild()
    }

    fn all_cpus(&self) -> String {
        match (self.cpus.server, self.cpus.client) {
            (server, client) if server == client => server.to_string(),
            (server, client) => format!("{server},{client}"),
        }
    }

    /// Starts a node, and returns it once it has nothing more to do.
    fn settled(&self, data: &Path, cpus: &str, links: u64) -> Result<Running> {
        let running = self.carom(data, cpus)?;
        await_redirect(running.server.address, links - 1)?;
        running.server.await_idle()?;
        Ok(running)
    }

    /// Starts a node, waits until it is idle, and returns the CPU time of its other threads since it was ready, in
    /// seconds.
    fn background(&self, data: &Path, cpus: &str, links: u64) -> Result<(f64, Running)> {
        let running = self.carom(data, cpus)?;
        await_redirect(running.server.address, links - 1)?;
        let others = || running.server.cpu().since(running.server.cpu_of_threads(CORE_THREADS)).total();
        let before = others();
        running.server.await_idle()?;
        Ok((others() - before, running))
    }

    fn settled_memory(&mut self, cpus: &str) -> Result<()> {
        let data = peers::carom_data(self.place, SETTLED_LINKS)?;
        // The first start writes what an import has not written.
        drop(self.settled(&data, cpus, SETTLED_LINKS)?);
        let running = self.settled(&data, cpus, SETTLED_LINKS)?;
        let memory = running.server.anonymous_memory() as f64 / 1e6;
        drop(running);
        let name = format!("anonymous memory of a settled node, {SETTLED_LINKS} links");
        self.add(name, memory, "MB", Some(Budget::AtMost(200.0)), "two cores, after a second start, when it is idle")
    }

    /// Measures redirects on one core, whose CPU the builder of the search index uses, too, in turn with an idle node.
    fn beside_rebuild(&mut self) -> Result<()> {
        let many = self.order.many;
        let data = peers::carom_data(self.place, many)?;
        let cpu = self.cpus.server.to_string();
        let load = Scenario { rate: Some(REBUILD_RATE), ..keep_alive(64) };
        let (mut beside, mut quiet) = (Vec::new(), Vec::new());
        for _ in 0..self.order.rounds {
            let running = self.settled(&data, &cpu, many)?;
            quiet.push(self.sample(&running, &load, many)?);
            drop(running);
            std::fs::remove_file(data.join(SECTIONS))?;
            let running = self.carom(&data, &cpu)?;
            await_redirect(running.server.address, many - 1)?;
            beside.push(self.sample(&running, &load, many)?);
        }
        // The sections are whole again for the next measurement.
        drop(self.settled(&data, &self.all_cpus(), many)?);
        let how = "open loop at 40,000/s from the intended instant, one core, whose CPU the builder uses, too";
        for (what, samples) in [("beside an idle node", quiet), ("beside a rebuild of the search index", beside)] {
            let p99 = median(samples.iter().map(|sample| sample.p99).collect()).unwrap_or(0.0);
            let errors: u64 = samples.iter().map(|sample| sample.errors).sum();
            self.add(format!("p99 {what}, {many} links"), p99, "µs", None, how)?;
            self.add(format!("errors {what}, {many} links"), errors as f64, "", Some(Budget::AtMost(0.0)), how)?;
        }
        Ok(())
    }
}

impl Growth<'_> {
    /// Measures the starts of nodes that keep only the links in use in memory: without the file of the filters of codes,
    /// as after a restore, and with it, after a kill.
    pub(super) fn ready_hot(&mut self) -> Result<()> {
        let cpus = self.all_cpus();
        let order = self.order;
        for &links in &order.hot {
            let data = peers::carom_data(self.place, links)?;
            let (image, file) = (data.join(IMAGE), data.join(FILTERS));
            let kept = image.with_extension("kept");
            // Such a node removes the image, which other measurements with this directory need.
            if image.exists() {
                std::fs::rename(&image, &kept)?;
            }
            let (mut first, mut later) = (Vec::new(), Vec::new());
            for _ in 0..order.rounds.min(3) {
                if file.exists() {
                    std::fs::remove_file(&file)?;
                }
                first.push(self.start_hot(&data, &cpus, links, || file.exists())?);
                later.push(self.start_hot(&data, &cpus, links, || true)?);
            }
            if kept.exists() {
                std::fs::rename(&kept, &image)?;
            }
            let how = "from the start of the process to the first right redirect; the files are in the page cache";
            for (what, seconds) in [("first start", first), ("start after kill -9", later)] {
                let name = format!("{what}, {links} links, hot residency");
                self.add(name, median(seconds).unwrap_or(0.0), "s", Some(Budget::AtMost(5.0)), how)?;
            }
        }
        Ok(())
    }

    /// Returns the seconds of one start, and kills the node once it has settled.
    fn start_hot(&self, data: &Path, cpus: &str, links: u64, has_settled: impl Fn() -> bool) -> Result<f64> {
        let begin = Instant::now();
        let running = self.carom_hot(data, cpus, links)?;
        await_redirect(running.server.address, links - 1)?;
        let seconds = begin.elapsed().as_secs_f64();
        while !has_settled() {
            if begin.elapsed() > HOT_SETTLE_TIME_MAX {
                bail!("the node has written no filters of codes within {HOT_SETTLE_TIME_MAX:?}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        running.server.kill()?;
        Ok(seconds)
    }
}
