//! Probes beside a load: how long a Redis server and a disk made anybody wait, and when. A request that was slow meanwhile
//! was not slow because of carom.

use std::fs::File;
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::support::resp::Client;
use crate::support::stop::StopOnDrop;

/// A probe that takes longer has met a stall.
const STALL: Duration = Duration::from_millis(15);

/// Timeout of a probe: of a server that is paused, too.
const PROBE_TIME: Duration = Duration::from_secs(20);

/// The interval of a stall.
type Stall = (Instant, Instant);

/// The stalls of some servers and disks, each in order.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    of_servers: Vec<Vec<Stall>>,
    of_disks: Vec<Vec<Stall>>,
}

impl Stalls {
    /// Runs `load` while the servers and the disks of these folders are probed.
    pub(crate) fn beside<R>(servers: &[SocketAddr], folders: &[PathBuf], load: impl FnOnce() -> R) -> (Stalls, R) {
        let is_over = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            let stop = StopOnDrop(is_over);
            let servers: Vec<_> =
                servers.iter().map(|server| scope.spawn(move || probe_server(*server, is_over))).collect();
            let disks: Vec<_> = folders.iter().map(|folder| scope.spawn(move || probe_disk(folder, is_over))).collect();
            let result = load();
            drop(stop);
            let all = |probes: Vec<ScopedJoinHandle<'_, Vec<Stall>>>| {
                probes.into_iter().map(|probe| probe.join().unwrap()).collect()
            };
            (Stalls { of_servers: all(servers), of_disks: all(disks) }, result)
        })
    }

    /// Returns for how much of an interval a server or a disk stood still, by their places in the lists.
    pub(crate) fn within(&self, (from, to): Stall, server: usize, disk: usize) -> Duration {
        let mut stalls: Vec<Stall> = self.of_servers[server].iter().chain(&self.of_disks[disk]).copied().collect();
        stalls.sort_unstable();
        let (mut sum, mut counted) = (Duration::ZERO, from);
        for (begin, end) in stalls {
            let (begin, end) = (begin.max(counted), end.min(to));
            if begin < end {
                sum += end - begin;
                counted = end;
            }
        }
        sum
    }
}

/// Probes at a steady rate until the load is over. A probe that is late counts from when it was due: then the machine had
/// no time for it.
fn probe(every: Duration, is_over: &AtomicBool, mut once: impl FnMut()) -> Vec<Stall> {
    let (mut stalls, mut due) = (Vec::new(), Instant::now());
    while !is_over.load(Ordering::Acquire) {
        once();
        let now = Instant::now();
        if now - due > STALL {
            stalls.push((due, now));
        }
        due = now + every;
        std::thread::sleep(every);
    }
    stalls
}

fn probe_server(server: SocketAddr, is_over: &AtomicBool) -> Vec<Stall> {
    let mut client = Client::open(server, PROBE_TIME).unwrap();
    probe(Duration::from_millis(2), is_over, || _ = client.ask(&["PING"]).unwrap())
}

fn probe_disk(folder: &Path, is_over: &AtomicBool) -> Vec<Stall> {
    let path = folder.join("probe");
    let mut file = File::create(&path).unwrap();
    let stalls = probe(Duration::from_millis(10), is_over, || {
        file.write_all(b"probe").unwrap();
        file.sync_data().unwrap();
    });
    std::fs::remove_file(path).unwrap();
    stalls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_summed_once() {
        let begin = Instant::now();
        let at = |millis: u64| begin + Duration::from_millis(millis);
        let stalls = Stalls {
            of_servers: vec![vec![(at(10), at(30)), (at(50), at(60))]],
            of_disks: vec![vec![(at(20), at(40))]],
        };
        let sum = |from: u64, to: u64| stalls.within((at(from), at(to)), 0, 0).as_millis();
        assert_eq!([sum(0, 100), sum(0, 25), sum(35, 55), sum(60, 70)], [40, 15, 10, 0]);
    }
}
