//! Servers under test: started on one CPU, watched through `/proc`, and ended whatever happens.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to answer for the first time.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// How long a server that cannot listen may take to end.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// How long it may take to end before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(15);

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Ticks of `/proc/PID/stat` a second: `USER_HZ`, which is 100 on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running server with its children.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

/// CPU time of a server, in seconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Cpu {
    /// In user mode.
    pub(crate) user: f64,
    /// In the kernel.
    pub(crate) system: f64,
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts a program on the given CPUs, and waits until it listens. What it says goes into `log`.
    pub(crate) fn start(command: &[String], cpus: &str, address: SocketAddr, log: &Path) -> Result<Server> {
        let out = File::create(log).with_context(|| format!("{} cannot be made", log.display()))?;
        let child = Command::new("taskset")
            .args(["-c", cpus])
            .args(command)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("{} cannot be started", command[0]))?;
        let mut server = Server { child, address };
        server.await_listening().with_context(|| {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            format!("`{}` does not listen on {address}; it said:\n{said}", command.join(" "))
        })?;
        Ok(server)
    }

    fn await_listening(&mut self) -> Result<()> {
        let begin = Instant::now();
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended: {status}");
            }
            if begin.elapsed() > START_TIME_MAX {
                bail!("waited {START_TIME_MAX:?} in vain");
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // Somebody else may listen there, and this one have failed for that.
        std::thread::sleep(SETTLE_TIME);
        match self.child.try_wait()? {
            Some(status) => bail!("it ended: {status}"),
            None => Ok(()),
        }
    }

    /// Its processes: itself and its children, theirs included.
    fn processes(&self) -> Vec<u32> {
        let mut all = vec![self.child.id()];
        let mut at = 0;
        while at < all.len() {
            let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", all[at])).unwrap_or_default();
            all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    /// CPU time of all its processes and threads so far.
    pub(crate) fn cpu(&self) -> Cpu {
        let mut cpu = Cpu::default();
        for pid in self.processes() {
            let one = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(Cpu::default(), |text| cpu_of(&text));
            cpu = cpu.and(one);
        }
        cpu
    }

    /// Memory of all its processes in bytes, with shared pages counted once.
    pub(crate) fn memory(&self) -> u64 {
        let of = |pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            kibibytes(&text, "Pss:") * 1024
        };
        self.processes().into_iter().map(of).sum()
    }

    /// Ends it as a loss of power would.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // It may have ended in this moment.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < END_TIME_MAX {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Cpu {
    /// CPU time of all children of this process that have ended.
    pub(crate) fn of_ended_children() -> Cpu {
        std::fs::read_to_string("/proc/self/stat").map_or(Cpu::default(), |text| times_from(&text, ENDED_CHILDREN))
    }

    /// The sum of both.
    pub(crate) fn and(self, other: Cpu) -> Cpu {
        Cpu { user: self.user + other.user, system: self.system + other.system }
    }

    /// What was used since.
    pub(crate) fn since(self, before: Cpu) -> Cpu {
        Cpu { user: self.user - before.user, system: self.system - before.system }
    }
}

/// Where the times of a process, and those of its ended children, stand behind the name in a `stat` file: proc(5).
const OWN: usize = 11;
const ENDED_CHILDREN: usize = 13;

fn cpu_of(stat: &str) -> Cpu {
    times_from(stat, OWN)
}

/// The times at a place in a `stat` file. The name in parentheses may hold anything.
fn times_from(stat: &str, place: usize) -> Cpu {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let mut times =
        behind.split_whitespace().skip(place).map(|text| text.parse::<f64>().unwrap_or(0.0) / TICKS_PER_SECOND);
    Cpu { user: times.next().unwrap_or(0.0), system: times.next().unwrap_or(0.0) }
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_proc_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 900 0 0 0 1250 340 0 0 20 0 3 0 100 0 0";
        assert_eq!(cpu_of(stat), Cpu { user: 12.5, system: 3.4 });
        let parent = stat.replace(" 1250 340 0 0 ", " 1250 340 70 20 ");
        assert_eq!(times_from(&parent, ENDED_CHILDREN), Cpu { user: 0.7, system: 0.2 });
        assert_eq!(kibibytes("Rss:  100 kB\nPss:   42 kB\n", "Pss:"), 42);
        assert_eq!((cpu_of(""), kibibytes("", "Pss:")), (Cpu::default(), 0));
    }
}
