//! The cost of the visit log on a core: the CPU time of the core's thread for a redirect, with the log and without.

use anyhow::Result;

use super::{CORE_THREADS, Growth, copy_folder, keep_alive};
use crate::results::{Budget, median};
use crate::servers::peers::{self, Running};

/// Number of links.
const LINKS: u64 = 1_000_000;

impl Growth<'_> {
    /// Measures a node that logs visits, in turn with one that does not. The threads that store the visits are left out:
    /// they share the CPU here, and have another one where CPUs are left.
    pub(super) fn visit_log(&mut self) -> Result<()> {
        let data = peers::carom_data(self.place, LINKS)?;
        // A data directory belongs to one node at a time.
        let copy = self.fresh("visit-log")?;
        copy_folder(&data, &copy)?;
        let cpu = self.cpus.server.to_string();
        let without = self.carom(&data, &cpu)?;
        let with = self.carom_after(&["env".to_owned(), "CAROM_VISITS_LOG=on".to_owned()], &copy, &cpu)?;
        let mut micros = [Vec::new(), Vec::new()];
        for _ in 0..self.order.rounds {
            for (running, micros) in [&without, &with].into_iter().zip(&mut micros) {
                micros.push(self.core_micros(running)?);
            }
        }
        drop((without, with));
        std::fs::remove_dir_all(copy)?;
        let [without, with] = micros.map(|micros| median(micros).unwrap_or(0.0));
        let how = "the thread of the core; 64 connections, 1 M links, uniform keys, at saturation";
        self.add("CPU of the core per redirect, visit log off".to_owned(), without, "µs", None, how)?;
        self.add("CPU of the core per redirect, visit log on".to_owned(), with, "µs", None, how)?;
        let budget = Some(Budget::AtMost(0.15));
        self.add("the visit log on the core, per redirect".to_owned(), with - without, "µs", budget, "on less off")
    }

    /// Runs a load, and returns the CPU time of the threads of cores for a redirect, in microseconds.
    fn core_micros(&self, running: &Running) -> Result<f64> {
        let used = || (running.server.cpu(), running.server.cpu_of_threads(CORE_THREADS));
        let (all_before, cores_before) = used();
        let sample = self.sample(running, &keep_alive(64), LINKS)?;
        let (all, cores) = used();
        let (all, cores) = (all.since(all_before).total(), cores.since(cores_before).total());
        Ok(sample.cpu_micros() * cores / all)
    }
}
