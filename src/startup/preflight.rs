//! Checks of the machine before a node starts, so that a missing permission gives a message with a remedy rather than a
//! failure while serving.
//!
//! The functions that check numbers are pure; those that query the kernel are thin. Other checks are elsewhere: of the
//! settings in `carom-settings`, of the code secret in [`super::code_secret`], and of the data directory's lock in
//! [`super::data_dir`].

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use io_uring::{IoUring, Probe, opcode};
use rustix::fs::statvfs;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use carom_limits::store_files;
use carom_settings::exit::{Exit, Reason};
use carom_telemetry::readable;

/// Memory that a core registers with the kernel, in bytes: glommio's buffers.
const LOCKED_PER_CORE: u64 = 64 * 1024;

/// Memory in bytes that the kernel charges in addition, for the rings of a core and of the services.
const LOCKED_SLACK: u64 = 512 * 1024;

/// Descriptors that a core needs before its first connection: listeners, rings, eventfds.
const FILES_PER_CORE: u64 = 16;

/// Descriptors of the services, and the minimum of the store.
const FILES_OF_NODE: u64 = 96;

/// Maximum number of connections of the admin listener: dashboards, load balancers and operators.
const ADMIN_CONNECTIONS_MAX: u64 = 1_024;

/// Minimum number of connections of a core, whatever the limit on open files is.
const CONNECTIONS_MIN: u64 = 16;

/// Free space in bytes below which the store cannot even open its journal.
const FREE_MIN: u64 = 8 * 1024 * 1024;

/// The results of the checks, for the log line of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The limit on open files, after the soft limit was raised to the hard one.
    pub open_files: u64,
    /// Free space of the data directory, in bytes.
    pub free_bytes: u64,
}

/// Runs all checks of a serving node, in the order of their urgency.
///
/// # Errors
/// The first failed check, with its remedy.
pub fn check(cores: usize, data_dir: &Path) -> Result<Ready, Exit> {
    ring()?;
    cpus()?;
    locked_memory(cores)?;
    let open_files = open_files(cores)?;
    let free_bytes = self::data_dir(data_dir)?;
    Ok(Ready { open_files, free_bytes })
}

/// Checks that the kernel can create the kind of ring that every core uses.
///
/// # Errors
/// [`Reason::RingForbidden`], [`Reason::KernelTooOld`] or [`Reason::LockedMemory`].
pub fn ring() -> Result<(), Exit> {
    let made: io::Result<IoUring> =
        IoUring::builder().setup_single_issuer().setup_coop_taskrun().setup_defer_taskrun().build(8);
    let ring = made.map_err(|error| {
        let switch = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok();
        ring_refused(&error, switch.as_deref())
    })?;
    let mut probe = Probe::new();
    if let Err(error) = ring.submitter().register_probe(&mut probe) {
        return Err(Exit::new(
            Reason::KernelTooOld,
            format!("the kernel does not list its io_uring operations: {error}"),
        ));
    }
    // MSG_RING and the flags above came with 5.18 and 6.1, multishot receive with 6.0: a kernel with all of them has
    // the rest.
    let needed = [
        ("accept", opcode::AcceptMulti::CODE),
        ("receive", opcode::RecvMulti::CODE),
        ("send", opcode::Send::CODE),
        ("poll", opcode::PollAdd::CODE),
        ("cancel", opcode::AsyncCancel::CODE),
        ("close", opcode::Close::CODE),
        ("message between rings", opcode::MsgRingData::CODE),
    ];
    let missing: Vec<&str> =
        needed.iter().filter(|(_, code)| !probe.is_supported(*code)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Exit::new(Reason::KernelTooOld, format!("io_uring of this kernel lacks operations: {}", missing.join(", "))))
}

/// Describes the kernel's refusal of a ring. `switch` is the text of `kernel.io_uring_disabled`, if it exists.
fn ring_refused(error: &io::Error, switch: Option<&str>) -> Exit {
    let forbidden = |what: &str, remedy: &str| Exit::new(Reason::RingForbidden, what).with_remedy(remedy);
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => match switch.map(str::trim) {
            Some("1") => forbidden(
                "io_uring is restricted to privileged processes (kernel.io_uring_disabled is 1)",
                "run `sysctl kernel.io_uring_disabled=0`, or add the user to the group of kernel.io_uring_group",
            ),
            Some("2") => forbidden(
                "io_uring is disabled on this machine (kernel.io_uring_disabled is 2)",
                "run `sysctl kernel.io_uring_disabled=0`, and add it to /etc/sysctl.d to make it permanent",
            ),
            _ => forbidden(
                "this process may not use io_uring, probably because of the seccomp profile of a container",
                "allow io_uring_setup, io_uring_enter and io_uring_register in the profile (`docker run --security-opt \
                 seccomp=PROFILE.json`; `SystemCallFilter=` in a unit file)",
            ),
        },
        Some(Errno::NOSYS) => forbidden(
            "this kernel lacks io_uring, or a sandbox hides it",
            "boot Linux 6.1 or newer built with CONFIG_IO_URING, and run outside sandboxes such as gVisor",
        ),
        Some(Errno::INVAL) => Exit::new(
            Reason::KernelTooOld,
            "this kernel lacks the io_uring features SINGLE_ISSUER and DEFER_TASKRUN of Linux 6.1",
        ),
        Some(Errno::NOMEM) => Exit::new(Reason::LockedMemory, "the limit on locked memory is too low for an io_uring"),
        Some(Errno::MFILE | Errno::NFILE) => {
            Exit::new(Reason::OpenFiles, "the limit on open files is too low for an io_uring")
        }
        _ => Exit::new(Reason::RingForbidden, format!("io_uring cannot be used: {error}")),
    }
}

/// Checks that threads can be pinned: the library reads the list of CPUs there.
fn cpus() -> Result<(), Exit> {
    const CPUS: &str = "/sys/devices/system/cpu/online";
    let lost = |error| {
        Exit::new(Reason::ThreadEnded, format!("cores cannot be pinned to CPUs: {CPUS} cannot be read: {error}"))
    };
    std::fs::read_to_string(CPUS)
        .map_err(|error| {
            lost(error).with_remedy("mount sysfs at /sys (`mount -t sysfs sysfs /sys`), also inside a chroot")
        })
        .map(|_| ())
}

/// Checks that all cores may lock the memory that they register with the kernel.
///
/// # Errors
/// [`Reason::LockedMemory`] if the limit is too low.
pub fn locked_memory(cores: usize) -> Result<(), Exit> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    check_locked_memory(getrlimit(Resource::Memlock).current, cores, may_lock(&status))
}

fn check_locked_memory(limit: Option<u64>, cores: usize, unlimited: bool) -> Result<(), Exit> {
    let need = cores as u64 * LOCKED_PER_CORE + LOCKED_SLACK;
    match limit {
        Some(limit) if !unlimited && limit < need => {
            let (have, need) = (limit / 1024, need.div_ceil(1024));
            let what = format!("a node of {} locks up to {need} KiB of memory, but the limit is {have} KiB", of(cores));
            let remedy = format!("set `LimitMEMLOCK={need}K` in the unit file, or run `ulimit -l {need}` before carom");
            Err(Exit::new(Reason::LockedMemory, what).with_remedy(remedy))
        }
        _ => Ok(()),
    }
}

/// The number of cores, for people.
fn of(cores: usize) -> String {
    readable::count(cores as u64, "core")
}

/// True if the process with this `/proc/PID/status` is exempt from the limit on locked memory.
fn may_lock(status: &str) -> bool {
    // `CAP_IPC_LOCK` of linux/capability.h.
    const CAP_IPC_LOCK: u32 = 14;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_IPC_LOCK & 1 == 1)
}

/// Raises the limit on open files as far as possible, and returns it.
///
/// # Errors
/// [`Reason::OpenFiles`] if it is less than the node needs without a single connection.
pub fn open_files(cores: usize) -> Result<u64, Exit> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        // If the kernel refuses, the lower limit remains and is checked below.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    check_open_files(getrlimit(Resource::Nofile).current, cores)
}

/// Maximum number of open connections that leave enough descriptors for the store and everything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Connections of one core.
    pub of_core: usize,
    /// Connections of the admin listener.
    pub of_admin: usize,
}

/// Divides the descriptors that the node does not need itself among connections.
pub fn connections(open_files: u64, cores: usize) -> Room {
    let others = cores as u64 * FILES_PER_CORE + FILES_OF_NODE + store_files(open_files);
    let left = open_files.saturating_sub(others);
    let admin = (left / 8).clamp(CONNECTIONS_MIN, ADMIN_CONNECTIONS_MAX);
    let each = left.saturating_sub(admin) / cores.max(1) as u64;
    let shown = |count: u64| usize::try_from(count.max(CONNECTIONS_MIN)).unwrap_or(usize::MAX);
    Room { of_core: shown(each), of_admin: shown(admin) }
}

fn check_open_files(limit: Option<u64>, cores: usize) -> Result<u64, Exit> {
    let need = cores as u64 * FILES_PER_CORE + FILES_OF_NODE;
    let limit = limit.unwrap_or(u64::MAX);
    if limit >= need {
        return Ok(limit);
    }
    let what = format!(
        "a node of {} needs {need} open files before the first connection, but the limit is {limit}",
        of(cores)
    );
    let wanted = need + 65_536;
    let remedy = format!(
        "set `LimitNOFILE={wanted}` in the unit file, or run `ulimit -n {wanted}` as root before carom; each connection needs one more file"
    );
    Err(Exit::new(Reason::OpenFiles, what).with_remedy(remedy))
}

/// Creates the data directory if it does not exist (mode 0700), and returns its free space in bytes.
///
/// # Errors
/// [`Reason::DataNotWritable`] or [`Reason::DiskFull`].
pub fn data_dir(path: &Path) -> Result<u64, Exit> {
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(path) {
        return Err(data_refused(path, "created", &error));
    }
    let free = statvfs(path).map_err(|error| data_refused(path, "examined", &error.into()))?;
    let free = free.f_bavail.saturating_mul(free.f_frsize);
    check_free_space(path, free)?;
    // A writable directory can be on a read-only file system; only a write tells.
    let trial = path.join(format!(".trial-{}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&trial).and_then(write_a_little);
    let removed = std::fs::remove_file(&trial);
    written.and(removed).map_err(|error| data_refused(path, "written", &error))?;
    Ok(free)
}

fn write_a_little(mut file: File) -> io::Result<()> {
    io::Write::write_all(&mut file, b"carom\n")?;
    file.sync_all()
}

fn check_free_space(path: &Path, free: u64) -> Result<(), Exit> {
    if free >= FREE_MIN {
        return Ok(());
    }
    let what =
        format!("{} has {} KiB free; the store needs {} KiB or more", path.display(), free / 1024, FREE_MIN / 1024);
    Err(Exit::new(Reason::DiskFull, what))
}

fn data_refused(path: &Path, what: &str, error: &io::Error) -> Exit {
    let path = path.display();
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Exit::new(Reason::DiskFull, format!("the data directory {path} cannot be {what}: {error}"))
        }
        ErrorKind::AlreadyExists | ErrorKind::NotADirectory => Exit::new(
            Reason::DataNotWritable,
            format!("the data directory {path} cannot be {what}: a file has that name"),
        )
        .with_remedy("choose another `data_dir`, or move that file away"),
        ErrorKind::ReadOnlyFilesystem => {
            Exit::new(Reason::DataNotWritable, format!("the data directory {path} is on a read-only file system"))
                .with_remedy("make it writable (`ReadWritePaths=` in a unit file), or choose another `data_dir`")
        }
        _ => Exit::new(Reason::DataNotWritable, format!("the data directory {path} cannot be {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn refused(errno: Errno, switch: Option<&str>) -> Exit {
        ring_refused(&errno.into(), switch)
    }

    #[test]
    fn a_refused_ring_names_who_refuses() {
        let cases = [
            (Errno::PERM, Some("1\n"), Reason::RingForbidden, "kernel.io_uring_group"),
            (Errno::PERM, Some("2\n"), Reason::RingForbidden, "/etc/sysctl.d"),
            (Errno::PERM, Some("0\n"), Reason::RingForbidden, "seccomp"),
            (Errno::ACCESS, None, Reason::RingForbidden, "seccomp"),
            (Errno::NOSYS, None, Reason::RingForbidden, "CONFIG_IO_URING"),
            (Errno::INVAL, Some("0"), Reason::KernelTooOld, "6.1"),
            (Errno::NOMEM, Some("0"), Reason::LockedMemory, "LimitMEMLOCK="),
            (Errno::MFILE, None, Reason::OpenFiles, "LimitNOFILE="),
            (Errno::IO, None, Reason::RingForbidden, "seccomp"),
        ];
        for (errno, switch, reason, remedy) in cases {
            let exit = refused(errno, switch);
            assert_eq!(exit.reason, reason, "{errno:?} {switch:?}");
            assert!(exit.remedy().contains(remedy), "{errno:?} {switch:?}: {}", exit.remedy());
        }
    }

    #[test]
    fn locked_memory_is_checked_by_the_number_of_cores() {
        assert_eq!(check_locked_memory(Some(8 * 1024 * 1024), 64, false), Ok(()));
        assert_eq!(check_locked_memory(None, 1024, false), Ok(()));
        assert_eq!(check_locked_memory(Some(0), 1, true), Ok(()));
        let exit = check_locked_memory(Some(64 * 1024), 2, false).unwrap_err();
        assert_eq!(exit.reason, Reason::LockedMemory);
        assert!(exit.what.contains("640 KiB"), "{exit}");
        assert!(exit.what.contains("64 KiB"), "{exit}");
        assert!(exit.remedy().contains("LimitMEMLOCK=640K"), "{exit}");
        assert!(exit.remedy().contains("ulimit -l 640"), "{exit}");
    }

    #[test]
    fn the_right_to_lock_memory_is_one_bit() {
        assert!(may_lock("Name:\tx\nCapEff:\t000001ffffffffff\nCapBnd:\t0\n"));
        assert!(may_lock("CapEff:\t0000000000004000\n"));
        assert!(!may_lock("CapEff:\t000001ffffffbfff\nCapBnd:\t000001ffffffffff\n"));
        assert!(!may_lock(""));
        assert!(!may_lock("CapEff:\tnonsense\n"));
    }

    #[test]
    fn open_files_are_checked_by_the_number_of_cores() {
        assert_eq!(check_open_files(Some(1024), 2), Ok(1024));
        assert_eq!(check_open_files(Some(128), 2), Ok(128));
        assert_eq!(check_open_files(None, 2), Ok(u64::MAX));
        let exit = check_open_files(Some(127), 2).unwrap_err();
        assert_eq!(exit.reason, Reason::OpenFiles);
        assert!(exit.what.contains("needs 128"), "{exit}");
        assert!(exit.remedy().contains("LimitNOFILE="), "{exit}");
    }

    #[test]
    fn connections_leave_descriptors_for_the_rest() {
        // 256 descriptors less those of the core, the node, the store and the admin listener.
        assert_eq!(connections(256, 1), Room { of_core: 256 - 16 - 96 - 32 - 16, of_admin: 16 });
        assert_eq!(connections(1_024, 2), Room { of_core: (1_024 - 32 - 96 - 128 - 96) / 2, of_admin: 96 });
        assert_eq!(connections(112, 1), Room { of_core: 16, of_admin: 16 });
        assert!(connections(1 << 20, 8).of_core > 100_000);
    }

    #[test]
    fn the_data_directory_is_made_for_its_owner_alone_and_left_clean() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("a/b");
        assert!(data_dir(&data).unwrap() >= FREE_MIN);
        assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0);
        assert!(data_dir(&data).is_ok(), "it may exist already");
    }

    #[test]
    fn a_data_directory_that_cannot_be_had_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        for path in [file.clone(), file.join("below")] {
            let exit = data_dir(&path).unwrap_err();
            assert_eq!(exit.reason, Reason::DataNotWritable);
            assert!(exit.what.contains("a file has that name"), "{exit}");
        }
        // `/proc` accepts no directories, for root neither.
        assert_eq!(data_dir(Path::new("/proc/carom")).unwrap_err().reason, Reason::DataNotWritable);
    }

    #[test]
    fn a_full_disk_has_its_own_number() {
        let path = Path::new("/data");
        assert_eq!(check_free_space(path, FREE_MIN), Ok(()));
        assert_eq!(check_free_space(path, FREE_MIN - 1).unwrap_err().reason, Reason::DiskFull);
        for errno in [Errno::NOSPC, Errno::DQUOT] {
            assert_eq!(data_refused(path, "written", &errno.into()).reason, Reason::DiskFull);
        }
        assert_eq!(data_refused(path, "written", &Errno::ROFS.into()).reason, Reason::DataNotWritable);
    }

    #[test]
    fn the_whole_of_it_answers_on_this_machine() {
        let folder = tempfile::tempdir().unwrap();
        // If io_uring is forbidden, as on some build machines, the reason must be one of the numbered ones.
        match check(1, folder.path()) {
            Ok(ready) => assert!(ready.open_files >= 112),
            Err(exit) => assert!((10..=17).contains(&exit.reason.code()), "{exit}"),
        }
    }
}
