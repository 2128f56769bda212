//! Files that are installed beside the binary: units and kernel settings, each read by the program that it is for.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::node::CAROM;

const SERVICE: &str = include_str!("../../../deploy/systemd/carom.service");
const BYPASS: &str = include_str!("../../../deploy/systemd/carom.service.d/bypass.conf");
const SOCKET: &str = include_str!("../../../deploy/systemd/carom.socket");
const BACKUP: &str = include_str!("../../../deploy/systemd/carom-backup.service");
const TIMER: &str = include_str!("../../../deploy/systemd/carom-backup.timer");
const SYSCTL: &str = include_str!("../../../deploy/sysctl.d/60-carom.conf");
const LOGROTATE: &str = include_str!("../../../deploy/logrotate/carom");

/// Runs `systemd-analyze`; what it said.
fn analyze(arguments: &[&str]) -> String {
    let made =
        Command::new("systemd-analyze").args(arguments).output().expect("systemd-analyze, which `make test` installs");
    let said = String::from_utf8([made.stdout, made.stderr].concat()).unwrap();
    assert!(made.status.success(), "{arguments:?}: {said}");
    said
}

/// The values of a key in a unit.
fn values<'t>(unit: &'t str, key: &str) -> Vec<&'t str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

#[test]
fn units_are_valid_and_sandboxed() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // It looks whether the program is there.
    let service = write("carom.service", &SERVICE.replace("/usr/bin/carom", CAROM));
    let socket = write("carom.socket", SOCKET);
    let backup = write("carom-backup.service", &BACKUP.replace("/usr/bin/carom ", &format!("{CAROM} ")));
    let timer = write("carom-backup.timer", TIMER);
    let said = analyze(&["verify", "--man=no", &service, &socket, &backup, &timer]);
    assert!(!said.contains("carom"), "{said}");
    // Of ten, the less the better; above two somebody has to look again.
    analyze(&["security", "--offline=true", "--threshold=20", &service]);
    analyze(&["security", "--offline=true", "--threshold=20", &backup]);
    // The ring is not filtered away.
    let allowed = analyze(&["syscall-filter", "@aio"]);
    let groups = analyze(&["syscall-filter", "@system-service"]);
    assert!(groups.contains("@aio"));
    assert!(SERVICE.contains("SystemCallFilter=@system-service\n"));
    for call in ["io_uring_setup", "io_uring_enter", "io_uring_register"] {
        assert!(allowed.contains(call), "{call}");
    }
}

#[test]
fn drop_in_of_bypass_adds_its_rights_only() {
    let dir = tempfile::tempdir().unwrap();
    let service = dir.path().join("carom.service");
    fs::write(&service, SERVICE.replace("/usr/bin/carom", CAROM)).unwrap();
    let drop_in = dir.path().join("carom.service.d/bypass.conf");
    fs::create_dir(drop_in.parent().unwrap()).unwrap();
    fs::write(&drop_in, BYPASS).unwrap();
    let service = service.display().to_string();
    let said = analyze(&["verify", "--man=no", &service]);
    assert!(!said.contains("carom"), "{said}");
    analyze(&["security", "--offline=true", "--threshold=30", &service]);
    // It is read: a line that systemd does not know is reported.
    fs::write(&drop_in, format!("{BYPASS}\nNoSuchKey=1\n")).unwrap();
    assert!(analyze(&["verify", "--man=no", &service]).contains("NoSuchKey"));
    let capabilities = "CAP_NET_ADMIN CAP_NET_RAW CAP_BPF";
    assert_eq!(values(BYPASS, "AmbientCapabilities"), [capabilities]);
    assert_eq!(values(BYPASS, "CapabilityBoundingSet"), [capabilities]);
    assert_eq!(values(BYPASS, "RestrictAddressFamilies"), ["AF_XDP AF_NETLINK"]);
    // The unit takes the call away.
    assert_eq!(values(BYPASS, "SystemCallFilter"), ["bpf"]);
    assert!(analyze(&["syscall-filter", "@privileged"]).lines().any(|line| line.trim() == "bpf"));
}

#[test]
fn logrotate_moves_access_logs() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    fs::create_dir(&logs).unwrap();
    fs::write(logs.join("access.log"), "a line\n").unwrap();
    // This machine need not have the user, and the files of a test belong to the user who runs it.
    let own: String =
        LOGROTATE.lines().filter(|line| !line.trim().starts_with("su ")).map(|line| format!("{line}\n")).collect();
    let settings = dir.path().join("carom");
    fs::write(&settings, own.replace("/var/log/carom", &logs.display().to_string())).unwrap();
    fs::set_permissions(&settings, fs::Permissions::from_mode(0o644)).unwrap();
    let made = Command::new("logrotate")
        .args(["--force", "--state"])
        .arg(dir.path().join("state"))
        .arg(&settings)
        .output()
        .expect("logrotate, which `make test` installs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(made.stderr.is_empty(), "{}", String::from_utf8_lossy(&made.stderr));
    let left: Vec<String> =
        fs::read_dir(&logs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].starts_with("access.log-2"), "{left:?}");
}

#[test]
fn every_line_has_a_comment() {
    let units = [("service", SERVICE), ("drop-in", BYPASS), ("socket", SOCKET), ("backup", BACKUP), ("timer", TIMER)];
    for (name, text) in units.into_iter().chain([("sysctl", SYSCTL)]) {
        let mut has_reason = false;
        for line in text.lines() {
            match line {
                "" => has_reason = false,
                line if line.starts_with('#') => has_reason = true,
                line if line.starts_with('[')
                    || ["Description", "WantedBy"].iter().any(|key| line.starts_with(key)) => {}
                // A comment may be about the lines that follow it, up to an empty one.
                line => assert!(has_reason || line.starts_with("Documentation"), "{name}: no reason for {line}"),
            }
        }
    }
}

#[test]
fn unit_restarts_after_curable_exits() {
    let prevented = values(SERVICE, "RestartPreventExitStatus");
    let codes: Vec<u8> = prevented[0].split(' ').map(|code| code.parse().unwrap()).collect();
    use carom_settings::exit::Reason;
    let hopeless = [Reason::Usage, Reason::CodeSecret, Reason::PublicWithoutOpen, Reason::Certificate];
    assert_eq!(codes, hopeless.map(Reason::code));
    assert!(values(SERVICE, "ExecStart")[0].starts_with("/usr/bin/carom serve "));
}

#[test]
fn unit_watches_a_node_that_hangs() {
    assert_eq!(values(SERVICE, "Type"), ["notify"]);
    assert_eq!(values(SERVICE, "NotifyAccess"), ["main"]);
    assert_eq!(values(SERVICE, "WatchdogSec"), ["30"]);
    // A timeout of the watchdog is a failure.
    assert_eq!(values(SERVICE, "Restart"), ["on-failure"]);
}

#[test]
fn backup_unit_matches_the_service() {
    for key in ["User", "Group", "StateDirectoryMode"] {
        assert_eq!(values(BACKUP, key), values(SERVICE, key), "{key}");
    }
    let command = values(BACKUP, "ExecStart")[0];
    let settings = values(SERVICE, "ExecStart")[0].split_once(" --config ").unwrap().1;
    assert_eq!(command, format!("/usr/bin/carom backup --keep 7 --config {settings} /var/lib/carom-backups"));
    assert_eq!(values(BACKUP, "StateDirectory"), ["carom carom-backups"]);
    // It is started by the timer alone.
    assert!(!BACKUP.contains("[Install]"));
    assert!(values(TIMER, "WantedBy") == ["timers.target"]);
}

#[test]
fn kernel_settings_exist() {
    let mut count = 0;
    for line in SYSCTL.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(" = ").unwrap();
        assert!(value.parse::<u64>().is_ok(), "{line}");
        assert!(Path::new("/proc/sys").join(key.replace('.', "/")).exists(), "this kernel has no {key}");
        count += 1;
    }
    assert!(count >= 4);
}
