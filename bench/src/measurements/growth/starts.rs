//! Starts of nodes: the time until they are ready, the work that follows, and redirects beside that work.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{CORE_THREADS, Growth, await_redirect, bytes_below, hot_settings, keep_alive};
use crate::client::Scenario;
use crate::results::{Budget, median};
use crate::servers::peers::{self, Running};
use crate::servers::process::SAY_EVERY;
use crate::terminal::say;

/// Time within which a node must have written the file of its filters of codes.
const HOT_SETTLE_TIME_MAX: Duration = Duration::from_secs(1_800);

/// Most links of a node that keeps all links in memory.
const RESIDENT_LINKS_MAX: u64 = 10_000_000;

/// Most starts of one kind.
const STARTS_MAX: usize = 3;

/// Methods of the figures of starts.
const SECONDS_HOW: &str =
    "from the start of the process to the first right redirect; the page cache has the files that fit";
const MEMORY_HOW: &str = "proportional set size after the first right redirect, after kill -9; two cores";
const DISK_HOW: &str = "all files after an import and a start, once the node was idle";

/// Files in a data directory: the image of the links, the filters of codes, and the sections of the search index.
const IMAGE: &str = "links.image";
const FILTERS: &str = "links.filter";
const SECTIONS: &str = "search.sections";

/// The files of the search index in a data directory. The builder replaces both.
const SEARCH_FILES: [&str; 2] = [SECTIONS, "search.texts"];

/// Links of the node whose memory is measured after it has settled.
const SETTLED_LINKS: u64 = 1_000_000;

/// Redirects per second beside the rebuilding of the search index.
const REBUILD_RATE: f64 = 40_000.0;

/// A start of a node.
struct TimedStart {
    /// Time from the start of the process to the first right redirect, in seconds.
    seconds: f64,
    /// Memory of the process then, in bytes.
    memory: f64,
}

impl TimedStart {
    /// Waits until a node redirects to the last of its links. Its process was started at `begin`.
    fn of(running: &Running, begin: Instant, links: u64) -> Result<TimedStart> {
        await_redirect(running.server.address, links - 1)?;
        let seconds = begin.elapsed().as_secs_f64();
        Ok(TimedStart { seconds, memory: running.server.memory() as f64 })
    }
}

/// Returns the median of a figure of some starts.
fn median_start(starts: &[TimedStart], pick: fn(&TimedStart) -> f64) -> f64 {
    median(starts.iter().map(pick).collect()).unwrap_or(0.0)
}

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
            let starts = self.starts_after_kill(&data, &cpus, many)?;
            self.add_ready(many, cores, &starts)?;
        }
        Ok(())
    }

    /// Starts a node with all links in memory some times, each time after a kill.
    fn starts_after_kill(&self, data: &Path, cpus: &str, links: u64) -> Result<Vec<TimedStart>> {
        let start = |_| -> Result<TimedStart> {
            self.carom(data, cpus)?.server.kill()?;
            let begin = Instant::now();
            TimedStart::of(&self.carom(data, cpus)?, begin, links)
        };
        (0..self.order.rounds.min(STARTS_MAX)).map(start).collect()
    }

    fn add_ready(&mut self, links: u64, cores: usize, starts: &[TimedStart]) -> Result<()> {
        let name = format!("ready after kill -9, {links} links, {cores} CPU");
        let budget = (cores == 2).then_some(Budget::AtMost(2.0));
        self.add(name, median_start(starts, |start| start.seconds), "s", budget, SECONDS_HOW)
    }
}

impl Growth<'_> {
    /// Measures what a node does after its start: the CPU time of the threads that are no cores until the node is idle,
    /// and its memory then.
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
        self.settled_memory(&cpus)
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
    pub(super) fn beside_rebuild(&mut self) -> Result<()> {
        let many = self.order.many;
        let data = peers::carom_data(self.place, many)?;
        let cpu = self.cpus.server.to_string();
        let load = Scenario { rate: Some(REBUILD_RATE), ..keep_alive(64) };
        // The first start writes what an import has not written.
        drop(self.settled(&data, &self.all_cpus(), many)?);
        // A whole index, for the starts of idle nodes. No link changes, so it stays valid.
        let kept = data.join("kept");
        copy_files(&SEARCH_FILES, &data, &kept)?;
        let (mut beside, mut quiet) = (Vec::new(), Vec::new());
        for _ in 0..self.order.rounds {
            let running = self.settled(&data, &cpu, many)?;
            quiet.push(self.sample(&running, &load, many)?);
            drop(running);
            std::fs::remove_file(data.join(SECTIONS))?;
            let running = self.carom(&data, &cpu)?;
            await_redirect(running.server.address, many - 1)?;
            beside.push(self.sample(&running, &load, many)?);
            running.server.kill()?;
            copy_files(&SEARCH_FILES, &kept, &data)?;
        }
        std::fs::remove_dir_all(kept)?;
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
    /// Measures starts, memory and disk with some numbers of links: of nodes that keep all links in memory, if they fit,
    /// and of nodes that keep only those in use.
    pub(super) fn hot(&mut self) -> Result<()> {
        let order = self.order;
        for &links in &order.hot {
            if links <= RESIDENT_LINKS_MAX {
                let data = peers::carom_data(self.place, links)?;
                self.resident(&data, links)?;
                self.only_in_use(&data, links, order.rounds.min(STARTS_MAX))?;
                continue;
            }
            // An import for such a node writes no image of all links, which would take gigabytes.
            let data = peers::carom_data_for(self.place, links, &hot_settings(links))?;
            // Without the file of its filters, such a node reads all links beside its first redirects.
            self.only_in_use(&data, links, 1)?;
            if !order.keeps_large {
                std::fs::remove_dir_all(&data)?;
            }
        }
        Ok(())
    }

    /// Measures a node that keeps all links in memory.
    fn resident(&mut self, data: &Path, links: u64) -> Result<()> {
        let cpus = self.all_cpus();
        let cores = if cpus.contains(',') { 2 } else { 1 };
        // Only nodes that keep the links in use in memory have this file.
        remove_if_there(&data.join(FILTERS))?;
        // The first start writes what an import has not written.
        drop(self.settled(data, &cpus, links)?);
        let disk = bytes_below(data)?;
        let starts = self.starts_after_kill(data, &cpus, links)?;
        self.add_ready(links, cores, &starts)?;
        let memory = median_start(&starts, |start| start.memory);
        self.add(format!("memory once ready, {links} links"), memory, "bytes", None, MEMORY_HOW)?;
        self.add(format!("disk after an import, {links} links"), disk as f64, "bytes", None, DISK_HOW)
    }

    /// Measures a node that keeps only the links in use in memory: `first_starts` without the file of the filters of codes,
    /// as after a restore, and starts with it, after a kill.
    fn only_in_use(&mut self, data: &Path, links: u64, first_starts: usize) -> Result<()> {
        let cpus = self.all_cpus();
        let (image, file) = (data.join(IMAGE), data.join(FILTERS));
        let kept = image.with_extension("kept");
        // Such a node removes the image, which other measurements with this directory need.
        if image.exists() {
            std::fs::rename(&image, &kept)?;
        }
        let (mut first, mut later) = (Vec::new(), Vec::new());
        for round in 0..self.order.rounds.min(STARTS_MAX) {
            if round < first_starts {
                remove_if_there(&file)?;
                first.push(self.start_hot(data, &cpus, links, || file.exists())?);
            }
            later.push(self.start_hot(data, &cpus, links, || true)?);
        }
        let running = self.carom_hot(data, &cpus, links)?;
        await_redirect(running.server.address, links - 1)?;
        running.server.await_idle()?;
        drop(running);
        let mut disk = bytes_below(data)?;
        if kept.exists() {
            disk -= kept.metadata()?.len();
            std::fs::rename(&kept, &image)?;
        }
        for (what, starts) in [("first start", &first), ("start after kill -9", &later)] {
            let name = format!("{what}, {links} links, hot residency");
            let seconds = median_start(starts, |start| start.seconds);
            self.add(name, seconds, "s", Some(Budget::AtMost(5.0)), SECONDS_HOW)?;
        }
        let memory = median_start(&later, |start| start.memory);
        self.add(format!("memory once ready, {links} links, hot residency"), memory, "bytes", None, MEMORY_HOW)?;
        let name = format!("disk after an import, {links} links, hot residency");
        self.add(name, disk as f64, "bytes", None, DISK_HOW)
    }

    /// Measures one start, and kills the node once it has settled.
    fn start_hot(&self, data: &Path, cpus: &str, links: u64, has_settled: impl Fn() -> bool) -> Result<TimedStart> {
        let begin = Instant::now();
        let running = self.carom_hot(data, cpus, links)?;
        let start = TimedStart::of(&running, begin, links)?;
        let mut said = Instant::now();
        while !has_settled() {
            if self.stop.load(Ordering::Relaxed) {
                bail!("interrupted");
            }
            if begin.elapsed() > HOT_SETTLE_TIME_MAX {
                bail!("the node has written no filters of codes within {HOT_SETTLE_TIME_MAX:?}");
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                say(&format!("{} s: the node writes its filters of codes", begin.elapsed().as_secs()));
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        running.server.kill()?;
        Ok(start)
    }
}

/// Copies files from one folder to another, which is created.
fn copy_files(names: &[&str], from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for name in names {
        std::fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
}

/// Removes a file, unless it does not exist.
fn remove_if_there(file: &Path) -> Result<()> {
    if file.exists() {
        std::fs::remove_file(file)?;
    }
    Ok(())
}
