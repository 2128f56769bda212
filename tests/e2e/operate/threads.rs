//! The priorities of the threads of a node beside its cores.

use std::fs;
use std::path::Path;

use rustix::thread::sched_getaffinity;

use crate::support::fleet::{Fleet, settle};
use crate::support::node::{Node, Setup, wait_until};
use crate::support::redis::Server;

/// The threads that the server starts: their niceness if every CPU has a core, and whether they keep to the CPUs without
/// a core. A name that ends in a hyphen is that of a pool.
const THREADS: &[(&str, i32, bool)] = &[
    ("access-log", 0, false),
    ("allow-list", 10, true),
    ("allow-list-poll", 10, true),
    ("allowances", 0, false),
    ("apps", 0, true),
    ("block-list", 10, true),
    ("block-list-poll", 10, true),
    ("certificates", 10, true),
    ("code-filter", 10, true),
    ("compression-", 10, true),
    ("control", 10, true),
    ("core-events", 0, false),
    ("count", 19, true),
    ("count-log", 5, true),
    ("data-dir", 10, true),
    ("documents-", 10, true),
    ("domains", 0, true),
    ("events", 5, true),
    ("events-mercure", 5, true),
    ("events-name", 10, true),
    ("events-rabbitmq", 5, true),
    ("events-redis", 5, true),
    ("events-webhook", 5, true),
    ("expire", 5, true),
    ("geo", 10, true),
    ("image", 10, true),
    ("list-", 0, false),
    ("order-", 10, true),
    ("pictures-", 10, true),
    ("pulse", 10, true),
    ("purge", 19, true),
    ("purge-select", 10, true),
    ("purge-sites", 10, true),
    ("purge-store", 5, true),
    ("purges", 0, true),
    ("redis-ask", 0, true),
    ("redis-beat", 0, true),
    ("redis-bulk", 0, true),
    ("redis-follow", 0, true),
    ("redis-look", 0, true),
    ("redis-relay", 10, true),
    ("redis-reuse", 0, true),
    ("redis-site-sync", 10, true),
    ("redis-visit-log", 5, true),
    ("redis-visits", 5, true),
    ("replenish", 0, true),
    ("rules", 0, true),
    ("search-", 10, true),
    ("sign", 19, true),
    ("signals", 0, false),
    ("snapshots", 19, true),
    ("sort", 10, true),
    ("store-fetch-", 0, false),
    ("store-pages-", 10, true),
    ("store-read-", 0, false),
    ("store-write", 0, false),
    ("visit-log", 0, false),
    ("visit-query", 10, true),
    ("visits", 0, false),
    ("watchdog", 0, false),
];

/// The beginnings of the names of other threads: the main thread, cores, those of libraries and of the kernel, and short
/// ones that have the priority of the thread that dials.
const OTHERS: &[&str] =
    &["carom", "core-", "admin", "fjall:worker", "sled-io", "log flusher", "iou-", "redis-dial", "redis-name"];

/// A running thread: its name, how many CPUs it may use, and its niceness.
#[derive(Debug)]
struct Running {
    name: String,
    cpus: usize,
    niceness: i32,
}

impl Running {
    /// `None` if the thread has ended meanwhile.
    fn of(task: &Path) -> Option<Running> {
        let read = |file: &str| fs::read_to_string(task.join(file)).ok();
        let (name, status, stat) = (read("comm")?, read("status")?, read("stat")?);
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("it has CPUs");
        let (_, fields) = stat.rsplit_once(')').expect("a name in parentheses");
        let niceness = fields.split_whitespace().nth(16).and_then(|field| field.parse().ok()).expect("a number");
        Some(Running { name: name.trim().to_owned(), cpus: cpu_count(cpus.trim()), niceness })
    }

    /// Returns the row of the table for this thread; `None` if it is no thread of the server.
    fn row(&self) -> Option<&'static (&'static str, i32, bool)> {
        let is_named = |name: &str| match self.name.strip_prefix(name) {
            Some(number) if name.ends_with('-') => number.parse::<usize>().is_ok(),
            rest => rest == Some(""),
        };
        THREADS.iter().find(|(name, ..)| is_named(name))
    }

    /// True if the thread has this priority, with so many CPUs, of which so many have no core.
    fn has(&self, (_, beside_cores, is_apart): &(&str, i32, bool), allowed: usize, free: usize) -> bool {
        let is_apart = *is_apart && free > 0;
        let niceness = if is_apart { *beside_cores.min(&10) } else { *beside_cores };
        self.niceness == niceness && self.cpus == if is_apart { free } else { allowed }
    }
}

/// The threads of a node that run now.
fn running(node: &Node) -> Vec<Running> {
    let tasks = fs::read_dir(format!("/proc/{}/task", node.pid())).expect("the node runs");
    tasks.filter_map(|task| Running::of(&task.expect("the node runs").path())).collect()
}

/// Waits until threads with these names run with the priorities in the table. Fails if the node has a thread without a row.
fn check(node: &Node, names: &[&str], allowed: usize, free: usize) {
    let is_of = |thread: &Running, name: &str| thread.row().is_some_and(|(of_row, ..)| *of_row == name);
    for name in names {
        wait_until(name, || running(node).iter().any(|thread| is_of(thread, name)));
    }
    for row in THREADS {
        // A new thread has the priority of its parent for a moment.
        wait_until(&format!("the priority of {}", row.0), || {
            running(node).iter().filter(|thread| is_of(thread, row.0)).all(|thread| thread.has(row, allowed, free))
        });
    }
    let is_other = |thread: &Running| OTHERS.iter().any(|other| thread.name.starts_with(other));
    let unknown: Vec<Running> =
        running(node).into_iter().filter(|thread| thread.row().is_none() && !is_other(thread)).collect();
    assert!(unknown.is_empty(), "give these threads a row: {unknown:?}");
}

/// Calls `check` for a node on one CPU, and for one that has a core on every CPU: with the number of cores, and the numbers
/// of all CPUs and of those without a core.
fn on_few_and_all_cpus(check: impl Fn(usize, usize, usize)) {
    let allowed = sched_getaffinity(None).expect("this thread has CPUs").count() as usize;
    for cores in [1, allowed] {
        check(cores, allowed, allowed - cores);
    }
}

#[test]
fn threads_have_their_priorities() {
    on_few_and_all_cpus(|cores, allowed, free| {
        let dir = tempfile::tempdir().unwrap();
        let setup = Setup::new(&dir.path().join("data")).cores(cores).env("CAROM_VISITS_LOG", "on");
        let log = dir.path().join("access.log");
        let node = setup.env("CAROM_ACCESS_LOG_FILE", log.to_str().unwrap()).env("CAROM_EVENTS_LOG", "on").start();
        let names =
            ["sign", "sort", "count", "count-log", "pulse", "data-dir", "expire", "image", "events", "store-write"];
        check(&node, &names, allowed, free);
        check(&node, &["access-log", "visit-log", "visit-query", "purge", "replenish", "search-"], allowed, free);
    });
}

#[test]
fn fleet_threads_have_their_priorities() {
    on_few_and_all_cpus(|cores, allowed, free| {
        let server = Server::start();
        let fleet = Fleet::new(1, &server.url());
        let setup = fleet.setup(0).cores(cores).expect("redis_away");
        let setup = setup.env("CAROM_VISITS_LOG", "on").env("CAROM_EVENTS_LOG", "on");
        let node = setup.env("CAROM_EVENTS_REDIS_URL", &server.url()).start();
        settle(&node);
        let names = ["redis-ask", "redis-beat", "redis-follow", "redis-look", "redis-reuse", "redis-visits"];
        check(&node, &names, allowed, free);
        check(&node, &["redis-visit-log", "events-redis", "snapshots"], allowed, free);
    });
}

/// Counts the CPUs of a list such as `0-2,5`.
fn cpu_count(list: &str) -> usize {
    let run = |run: &str| {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let number = |text: &str| text.parse::<usize>().expect("a CPU");
        number(last) - number(first) + 1
    };
    list.split(',').map(run).sum()
}
