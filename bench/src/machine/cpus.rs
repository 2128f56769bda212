//! The CPUs of a measurement.

use anyhow::{Context, Result};

use crate::terminal::say;

/// Assignment of CPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpus {
    /// CPU of the servers.
    pub(crate) server: usize,
    /// CPU of the client.
    pub(crate) client: usize,
}

impl Cpus {
    /// Chooses the first CPU for servers and the last for the client.
    pub(crate) fn choose() -> Result<Cpus> {
        let allowed = rustix::thread::sched_getaffinity(None)?;
        let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu));
        let server = cpus.next().context("a process runs on some CPU")?;
        let client = cpus.next_back().unwrap_or(server);
        if client == server {
            say("there is one CPU only: server and client disturb each other, and latencies say little");
        }
        Ok(Cpus { server, client })
    }
}
