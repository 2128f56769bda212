//! Servers under test: started on one CPU, watched through `/proc`, and ended in every case.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::terminal::say;

/// Time within which a server must answer for the first time.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// Time within which a server that cannot listen ends.
const SETTLE_TIME: Duration = Duration::from_millis(50);

/// Time within which a server must end before it is killed.
const END_TIME_MAX: Duration = Duration::from_secs(15);

/// Time within which a server must become idle.
const IDLE_TIME_MAX: Duration = Duration::from_secs(600);

/// Span and highest share of a CPU of an idle server.
const IDLE_SPAN: Duration = Duration::from_secs(1);
const IDLE_SHARE_MAX: f64 = 0.1;

/// Interval between two lines that say what a measurement waits for.
pub(crate) const SAY_EVERY: Duration = Duration::from_secs(10);

/// Interval between two checks.
const CHECK_PROCESS_EVERY: Duration = Duration::from_millis(2);

/// Ticks of `/proc/PID/stat` per second: `USER_HZ`, which is 100 on Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running server with its children. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Address on which the server listens.
    pub(crate) address: SocketAddr,
}

/// CPU time of a server, in seconds.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct ServerCpu {
    /// CPU time in user mode.
    pub(crate) user: f64,
    /// CPU time in the kernel.
    pub(crate) system: f64,
}

/// Returns a port on which no process listens.
pub(crate) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts a program on the given CPUs, and waits until it listens. Its output goes to `log`.
    pub(crate) fn start(command: &[String], cpus: &str, address: SocketAddr, log: &Path) -> Result<Server> {
        Server::start_within(START_TIME_MAX, command, cpus, address, log)
    }

    /// Starts a program that listens within a time, as [`Server::start`].
    pub(crate) fn start_within(
        time_max: Duration,
        command: &[String],
        cpus: &str,
        address: SocketAddr,
        log: &Path,
    ) -> Result<Server> {
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
        server.await_listening(time_max, log).with_context(|| {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            format!("`{}` does not listen on {address}; it said:\n{said}", command.join(" "))
        })?;
        Ok(server)
    }

    fn await_listening(&mut self, time_max: Duration, log: &Path) -> Result<()> {
        let (begin, mut said) = (Instant::now(), Instant::now());
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended: {status}");
            }
            if begin.elapsed() > time_max {
                bail!("waited {time_max:?} in vain");
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                let seconds = begin.elapsed().as_secs();
                say(&format!("{seconds} s: {} does not listen yet; its log: {}", self.address, last_line(log)));
            }
            std::thread::sleep(CHECK_PROCESS_EVERY);
        }
        // Another process may listen there, for which reason this one may have failed.
        std::thread::sleep(SETTLE_TIME);
        match self.child.try_wait()? {
            Some(status) => bail!("it ended: {status}"),
            None => Ok(()),
        }
    }

    /// Returns the server's processes: itself and all its descendants.
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

    /// Returns the CPU time of all processes and threads of the server so far.
    pub(crate) fn cpu(&self) -> ServerCpu {
        let mut cpu = ServerCpu::default();
        for pid in self.processes() {
            cpu = cpu.and(ServerCpu::of_process(pid));
        }
        cpu
    }

    /// Returns the CPU time so far of the server's threads whose names begin with `prefix`.
    pub(crate) fn cpu_of_threads(&self, prefix: &str) -> ServerCpu {
        let tasks = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let is_named = |comm: std::io::Result<String>| comm.is_ok_and(|comm| comm.starts_with(prefix));
        let tasks = self.processes().into_iter().flat_map(tasks).map(|task| task.path());
        let named = tasks.filter(|task| is_named(std::fs::read_to_string(task.join("comm"))));
        let used = named
            .map(|task| std::fs::read_to_string(task.join("stat")).map_or(ServerCpu::default(), |stat| cpu_of(&stat)));
        used.fold(ServerCpu::default(), ServerCpu::and)
    }

    /// Waits until the server has finished the work of its start, such as writing an image of its data.
    ///
    /// # Errors
    /// If it still works after a long time.
    pub(crate) fn await_idle(&self) -> Result<()> {
        let (begin, mut said) = (Instant::now(), Instant::now());
        while begin.elapsed() < IDLE_TIME_MAX {
            let before = self.cpu();
            std::thread::sleep(IDLE_SPAN);
            let used = self.cpu().since(before).total();
            if used < IDLE_SHARE_MAX * IDLE_SPAN.as_secs_f64() {
                return Ok(());
            }
            if said.elapsed() >= SAY_EVERY {
                said = Instant::now();
                let share = 100.0 * used / IDLE_SPAN.as_secs_f64();
                say(&format!("{} s: {} still uses {share:.0} % of a CPU", begin.elapsed().as_secs(), self.address));
            }
        }
        bail!("it still works without load, after {IDLE_TIME_MAX:?}")
    }

    /// Returns the memory of all processes of the server in bytes, with shared pages counted once.
    pub(crate) fn memory(&self) -> u64 {
        self.memory_of("Pss:")
    }

    /// Returns the memory of all processes of the server that no file backs, in bytes.
    pub(crate) fn anonymous_memory(&self) -> u64 {
        self.memory_of("Anonymous:")
    }

    /// Returns the sum of a line of `smaps_rollup` over all processes of the server, in bytes.
    fn memory_of(&self, line: &str) -> u64 {
        let of = |pid| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            kibibytes(&text, line) * 1024
        };
        self.processes().into_iter().map(of).sum()
    }

    /// Kills the server with SIGKILL, so that it ends without any cleanup, as with a loss of power.
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
        // The process may have ended at this moment.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begin = Instant::now();
        while begin.elapsed() < END_TIME_MAX {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(CHECK_PROCESS_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the last line of a log; nothing if it has none.
fn last_line(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text).trim_end().rsplit('\n').next().unwrap_or_default().to_owned()
}

/// Returns the kernel thread that handles packets on a CPU when they are too many for interrupts; `None` if this
/// process cannot see it.
pub(crate) fn softirq_thread(cpu: usize) -> Option<u32> {
    let name = format!("ksoftirqd/{cpu}\n");
    let pids = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm == name))
}

impl ServerCpu {
    /// Returns the CPU time of a process so far; none if it has ended.
    pub(crate) fn of_process(pid: u32) -> ServerCpu {
        std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(ServerCpu::default(), |text| cpu_of(&text))
    }

    /// Returns the CPU time of all children of this process that have ended.
    pub(crate) fn of_ended_children() -> ServerCpu {
        std::fs::read_to_string("/proc/self/stat")
            .map_or(ServerCpu::default(), |text| times_from(&text, ENDED_CHILDREN))
    }

    /// Returns the sum of two CPU times.
    pub(crate) fn and(self, other: ServerCpu) -> ServerCpu {
        ServerCpu { user: self.user + other.user, system: self.system + other.system }
    }

    /// Returns the time in user mode and in the kernel together, in seconds.
    pub(crate) fn total(self) -> f64 {
        self.user + self.system
    }

    /// Returns the CPU time used since `before`.
    pub(crate) fn since(self, before: ServerCpu) -> ServerCpu {
        ServerCpu { user: self.user - before.user, system: self.system - before.system }
    }
}

/// Index of a process's own times behind the name in a `stat` file: proc(5).
const OWN: usize = 11;
const ENDED_CHILDREN: usize = 13;

fn cpu_of(stat: &str) -> ServerCpu {
    times_from(stat, OWN)
}

/// Returns the times at an index in a `stat` file. The name in parentheses may contain anything.
fn times_from(stat: &str, place: usize) -> ServerCpu {
    let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
    let mut times =
        behind.split_whitespace().skip(place).map(|text| text.parse::<f64>().unwrap_or(0.0) / TICKS_PER_SECOND);
    ServerCpu { user: times.next().unwrap_or(0.0), system: times.next().unwrap_or(0.0) }
}

fn kibibytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_whitespace().nth(1)).and_then(|number| number.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_of_a_log_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert_eq!(last_line(&log), "");
        std::fs::write(&log, "starting\njoining links=5\n").unwrap();
        assert_eq!(last_line(&log), "joining links=5");
    }

    #[test]
    fn figures_of_proc_are_read() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 900 0 0 0 1250 340 0 0 20 0 3 0 100 0 0";
        assert_eq!(cpu_of(stat), ServerCpu { user: 12.5, system: 3.4 });
        let parent = stat.replace(" 1250 340 0 0 ", " 1250 340 70 20 ");
        assert_eq!(times_from(&parent, ENDED_CHILDREN), ServerCpu { user: 0.7, system: 0.2 });
        assert_eq!(kibibytes("Rss:  100 kB\nPss:   42 kB\n", "Pss:"), 42);
        assert_eq!((cpu_of(""), kibibytes("", "Pss:")), (ServerCpu::default(), 0));
    }
}
