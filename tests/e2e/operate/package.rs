//! The Debian package: its contents, settings and seccomp list, and the script that places interrupts.
//!
//! `make package-test` installs, upgrades and removes the package, and runs it as a container; it needs a whole Debian.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

use crate::support::node::CAROM;

const SETTINGS: &str = include_str!("../../../deploy/debian/carom.toml");
const SOCKET: &str = include_str!("../../../deploy/systemd/carom.socket");
const SECCOMP: &str = include_str!("../../../deploy/container/seccomp.json");
const SECCOMP_BYPASS: &str = include_str!("../../../deploy/container/seccomp-bypass.json");

/// The output of a program and its exit code.
struct Ran {
    code: i32,
    out: String,
    err: String,
}

/// Runs a program to its end, without settings of carom from the environment.
fn run(command: &mut Command) -> Ran {
    let ours = std::env::vars().map(|(name, _)| name).filter(|name| name.starts_with("CAROM_"));
    ours.for_each(|name| _ = command.env_remove(name));
    let made = command.output().expect("it can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: made.status.code().expect("no signal ends it"), out: text(made.stdout), err: text(made.stderr) }
}

/// A script below `deploy/`.
fn script(name: &str) -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name))
}

// The package.

/// Packs the binary under test, and tells where the package is.
fn pack(out: &Path) -> PathBuf {
    let mut command = script("debian/package.sh");
    command.args(["--fast", "--binary", CAROM, "--out"]).arg(out).env("SOURCE_DATE_EPOCH", "1700000000");
    let made = run(&mut command);
    assert_eq!(made.code, 0, "{}", made.err);
    PathBuf::from(made.out.trim_end())
}

/// Asks `dpkg-deb` about a package.
fn dpkg_deb(question: &str, package: &Path, more: &[&str]) -> String {
    let said = run(Command::new("dpkg-deb").arg(question).arg(package).args(more).env("TZ", "UTC"));
    assert_eq!(said.code, 0, "{}", said.err);
    said.out
}

#[test]
fn contents_are_complete_and_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let (package, again) = (pack(&dir.path().join("a")), pack(&dir.path().join("b")));
    assert!(fs::read(&package).unwrap() == fs::read(&again).unwrap(), "two packages of one binary differ");
    let listed = dpkg_deb("--contents", &package, &[]);
    let mut modes = BTreeMap::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(fields[1], "root/root", "{line}");
        assert_eq!(fields[3], "2023-11-14", "the time of the commit and no other: {line}");
        modes.insert(fields[5].to_owned(), fields[0].to_owned());
    }
    let expected = [
        ("./usr/bin/carom", "-rwxr-xr-x"),
        ("./usr/sbin/carom-affinity", "-rwxr-xr-x"),
        ("./usr/lib/systemd/system/carom.service", "-rw-r--r--"),
        ("./usr/lib/systemd/system/carom.socket", "-rw-r--r--"),
        ("./usr/lib/systemd/system/carom-backup.service", "-rw-r--r--"),
        ("./usr/lib/systemd/system/carom-backup.timer", "-rw-r--r--"),
        ("./usr/lib/sysctl.d/60-carom.conf", "-rw-r--r--"),
        ("./etc/carom/", "drwxr-x---"),
        ("./etc/carom/carom.toml", "-rw-r-----"),
        ("./etc/logrotate.d/carom", "-rw-r--r--"),
        ("./usr/share/doc/carom/README.md", "-rw-r--r--"),
        ("./usr/share/doc/carom/ARCHITECTURE.md", "-rw-r--r--"),
        ("./usr/share/doc/carom/openapi.json", "-rw-r--r--"),
        ("./usr/share/doc/carom/docs/SUMMARY.md", "-rw-r--r--"),
        ("./usr/share/doc/carom/docs/operate/runbook.md", "-rw-r--r--"),
        ("./usr/share/doc/carom/docs/reference/settings.md", "-rw-r--r--"),
        ("./usr/share/doc/carom/copyright", "-rw-r--r--"),
        ("./usr/share/doc/carom/changelog.gz", "-rw-r--r--"),
        ("./usr/share/bash-completion/completions/carom", "-rw-r--r--"),
        ("./usr/share/man/man1/carom-link-create.1.gz", "-rw-r--r--"),
        ("./usr/share/carom/container/seccomp.json", "-rw-r--r--"),
        ("./usr/share/carom/haproxy/carom.cfg", "-rw-r--r--"),
        ("./usr/share/carom/systemd/bypass.conf", "-rw-r--r--"),
        ("./usr/share/carom/prometheus/carom.rules.yml", "-rw-r--r--"),
    ];
    for (path, mode) in expected {
        assert_eq!(modes.get(path).map(String::as_str), Some(mode), "{path}");
    }
    // The links are nothing that dpkg knows of, or it would remove them.
    assert!(!modes.keys().any(|path| path.starts_with("./var")), "{listed}");
    assert!(!modes.contains_key("./usr/bin/carom-loadgen"), "nobody has asked for it");
    assert_eq!(dpkg_deb("--info", &package, &["conffiles"]), "/etc/carom/carom.toml\n/etc/logrotate.d/carom\n");
    assert_eq!(dpkg_deb("--field", &package, &["Version"]).trim(), env!("CARGO_PKG_VERSION").replacen('-', "~", 1));
    let depends = dpkg_deb("--field", &package, &["Depends"]);
    assert!(depends.contains("adduser"), "{depends}");
    assert!(depends.contains("procps"), "{depends}");
    assert!(depends.contains("libc6 (>= "), "{depends}");
}

/// The targets of links in a Markdown text, except for those on other machines and within the text.
fn targets_of(text: &str) -> Vec<&str> {
    // What stands between fences and backticks is no text.
    let prose = text.split("```").step_by(2).flat_map(|prose| prose.split('`').step_by(2));
    let targets =
        prose.flat_map(|prose| prose.split("](").skip(1)).filter_map(|rest| rest.split([')', ' ', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).collect()
}

#[test]
fn documents_link_to_installed_files() {
    let dir = tempfile::tempdir().unwrap();
    let package = pack(&dir.path().join("out"));
    let root = dir.path().join("root");
    dpkg_deb("--extract", &package, &[root.to_str().unwrap()]);
    let documents = root.join("usr/share/doc/carom");
    let mut count = 0;
    let single = ["README.md", "ARCHITECTURE.md", "NEWS.md", "../../carom/container/README.md"];
    let summary = fs::read_to_string(documents.join("docs/SUMMARY.md")).unwrap();
    let pages = targets_of(&summary).into_iter().map(|page| format!("docs/{page}"));
    for document in single.map(str::to_owned).into_iter().chain(pages) {
        let path = documents.join(&document);
        let text = fs::read_to_string(&path).unwrap();
        for target in targets_of(&text) {
            assert!(
                path.parent().unwrap().join(target).exists(),
                "{document} leads to {target}, which is not installed"
            );
            count += 1;
        }
    }
    assert!(count >= 100, "{count}");
}

#[test]
fn unusable_input_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |arguments: &[&str]| run(script("debian/package.sh").arg("--out").arg(dir.path()).args(arguments));
    let other = refused(&["--binary", "/bin/true"]);
    assert_eq!(other.code, 1, "{}", other.err);
    assert!(other.err.contains("/bin/true is"), "{}", other.err);
    for arguments in [&["--binary", "/nowhere"][..], &["--binary"], &["--nonsense"]] {
        assert_eq!(refused(arguments).code, 2, "{arguments:?}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "half a package");
}

// The settings in it.

/// Runs `carom check-config` over settings.
fn checked(settings: &str) -> Ran {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("carom.toml");
    fs::write(&file, settings).unwrap();
    run(Command::new(CAROM).arg("check-config").arg(&file))
}

/// The settings that hold, by their full names.
fn held(settings: &str) -> BTreeMap<String, String> {
    let said = checked(settings);
    assert_eq!(said.code, 0, "{}", said.err);
    let mut table = String::new();
    let mut held = BTreeMap::new();
    for line in said.out.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned() + ".";
        } else if let Some((name, rest)) = line.split_once(" = ") {
            let value = rest.split("  # ").next().unwrap_or_default();
            held.insert(format!("{table}{name}"), value.to_owned());
        }
    }
    held
}

/// The setting in a line that is commented out. Prose has a blank behind its `#`.
fn commented_out(line: &str) -> Option<&str> {
    let setting = line.strip_prefix('#')?;
    let (name, _) = setting.split_once(" = ")?;
    let is_name =
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || b"_0123456789".contains(&byte));
    is_name.then_some(setting)
}

#[test]
fn settings_equal_the_defaults() {
    let mut ours = held(SETTINGS);
    let mut defaults = held("");
    assert_eq!(ours.remove("data_dir").as_deref(), Some("\"/var/lib/carom\""));
    defaults.remove("data_dir");
    assert_eq!(ours, defaults);
}

#[test]
fn commented_settings_exist() {
    // How an access log looks is told where there is one.
    let defaults = held("[access_log]\nfile = \"-\"\n");
    let text: Vec<&str> = SETTINGS.lines().map(|line| commented_out(line).unwrap_or(line)).collect();
    // The files that the examples name.
    let dir = tempfile::tempdir().unwrap();
    let own = rcgen::generate_simple_self_signed(["go.example".to_owned()]).unwrap();
    fs::write(dir.path().join("go.example.crt"), own.cert.pem()).unwrap();
    fs::write(dir.path().join("go.example.key"), own.signing_key.serialize_pem()).unwrap();
    fs::write(dir.path().join("logo.svg"), "<svg/>").unwrap();
    fs::create_dir(dir.path().join("pages")).unwrap();
    let folder = dir.path().to_str().unwrap().to_owned() + "/";
    let all = held(&text.join("\n").replace("/etc/carom/", &folder));
    let (mut table, mut is_example, mut after_setting) = (String::new(), false, false);
    let mut count = 0;
    for line in SETTINGS.lines() {
        if let Some(setting) = commented_out(line) {
            let name = setting.split(" = ").next().unwrap_or_default();
            let value = all.get(&format!("{table}{name}"));
            assert!(value.is_some(), "{line} is not among the settings that hold");
            // What is no example is the default, so that nothing changes for who takes the # away.
            assert!(is_example || value == defaults.get(&format!("{table}{name}")), "{line} is not the default");
            after_setting = true;
            count += 1;
        } else if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned() + ".";
            is_example = false;
        } else {
            // The comment before a setting says whether it is an example; another comment begins anew.
            is_example = line.contains("xample") || is_example && line.starts_with('#') && !after_setting;
            after_setting = false;
        }
    }
    assert!(count >= 25, "{count}");
}

#[test]
fn sockets_match_the_example_settings() {
    let listen = SETTINGS.lines().find_map(|line| line.strip_prefix("#listen = ")).unwrap();
    let listen: Vec<String> = serde_json::from_str(listen).unwrap();
    let sockets: Vec<&str> = SOCKET.lines().filter_map(|line| line.strip_prefix("ListenStream=")).collect();
    assert_eq!(sockets, listen);
}

// System calls of a container.

#[test]
fn seccomp_allows_the_ring_only() {
    let profile: Value = serde_json::from_str(SECCOMP).unwrap();
    assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
    // ENOSYS: libraries take an older call in place of one that they cannot have, as they must with clone3.
    assert_eq!(profile["defaultErrnoRet"], 38);
    let mut allowed = BTreeSet::new();
    for rule in profile["syscalls"].as_array().unwrap() {
        assert_eq!(rule["action"], "SCMP_ACT_ALLOW");
        for name in rule["names"].as_array().unwrap() {
            let name = name.as_str().unwrap();
            let is_first = allowed.insert(name);
            assert!(is_first || name == "socket", "{name} stands there twice");
            // New namespaces and other kinds of sockets are kept out by the arguments.
            assert_eq!(rule.get("args").is_some(), ["clone", "socket"].contains(&name), "{name}");
            if name == "clone" {
                // Of the flags for namespaces and CLONE_THREAD only the last one, which is a thread and no process.
                let args = serde_json::json!(
                    [{"index": 0, "value": 0x7e02_0000 | 0x1_0000, "valueTwo": 0x1_0000, "op": "SCMP_CMP_MASKED_EQ"}]
                );
                assert_eq!(rule["args"], args);
            }
        }
    }
    // linkat: a damaged journal is kept under a second name.
    for name in ["io_uring_setup", "io_uring_enter", "io_uring_register", "execve", "futex", "fdatasync", "linkat"] {
        assert!(allowed.contains(name), "{name}");
    }
    let left_out = "acct add_key adjtimex bpf chroot clock_settime clone3 delete_module execveat finit_module fork fsopen \
        init_module io_setup ioperm iopl kcmp kexec_load keyctl kill landlock_create_ruleset memfd_create mknod \
        mknodat mount move_mount move_pages name_to_handle_at open_by_handle_at open_tree perf_event_open personality \
        pivot_root process_vm_readv process_vm_writev ptrace quotactl reboot request_key seccomp setdomainname sethostname \
        setns settimeofday shmget swapon symlinkat syslog umount2 unshare userfaultfd vfork vmsplice";
    for name in left_out.split_whitespace() {
        assert!(!allowed.contains(name), "{name}");
    }
}

#[test]
fn seccomp_of_bypass_adds_three_rules() {
    let plain: Value = serde_json::from_str(SECCOMP).unwrap();
    let mut of_bypass: Value = serde_json::from_str(SECCOMP_BYPASS).unwrap();
    let rules = of_bypass["syscalls"].as_array_mut().unwrap();
    let added = rules.split_off(plain["syscalls"].as_array().unwrap().len());
    assert_eq!(of_bypass, plain);
    let socket = |family: i32| {
        let args = serde_json::json!([{"index": 0, "value": family, "op": "SCMP_CMP_EQ"}]);
        serde_json::json!({"names": ["socket"], "action": "SCMP_ACT_ALLOW", "args": args})
    };
    // AF_NETLINK and AF_XDP.
    assert_eq!(added, [socket(16), socket(44), serde_json::json!({"names": ["bpf"], "action": "SCMP_ACT_ALLOW"})]);
}

// Interrupts.

/// A machine with one card, `eth0`, and those interrupts: the number, and the name at the end of its line.
fn machine(online: &str, queues: usize, interrupts: &[(u32, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write("sys/devices/system/cpu/online", &format!("{online}\n"));
    fs::create_dir_all(dir.path().join("sys/class/net/eth0")).unwrap();
    for queue in 0..queues {
        write(&format!("sys/class/net/eth0/queues/rx-{queue}/rps_cpus"), "0\n");
        write(&format!("sys/class/net/eth0/queues/tx-{queue}/xps_cpus"), "0\n");
    }
    let mut table = String::from("            CPU0\n NMI:          0  Non-maskable interrupts\n");
    for (irq, name) in interrupts {
        table.push_str(&format!(" {irq}:         12  PCI-MSIX-0000:00:03.0   0-edge      {name}\n"));
        write(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
    }
    write("proc/interrupts", &table);
    dir
}

/// The usual card, whose interrupts are listed at its device: two queues, something else, and another device.
fn usual_machine() -> TempDir {
    let interrupts = [(30, "eth0"), (31, "eth0-TxRx-0"), (32, "eth0-TxRx-1"), (33, "ixgbe-misc"), (40, "nvme0q1")];
    let dir = machine("0-3", 2, &interrupts);
    list(&dir, &[30, 31, 32, 33]);
    dir
}

/// Runs the script on a machine.
fn affinity(machine: &TempDir, arguments: &[&str]) -> Ran {
    run(script("affinity.sh").arg("--root").arg(machine.path()).args(arguments))
}

/// The lines that the script printed, with paths as on the machine itself.
fn told(machine: &TempDir, ran: &Ran) -> Vec<String> {
    assert_eq!(ran.code, 0, "{}", ran.err);
    let root = machine.path().display().to_string();
    ran.out.lines().map(|line| line.replace(&root, "")).collect()
}

/// The text of a file of the machine.
fn text_of(machine: &TempDir, path: &str) -> String {
    fs::read_to_string(machine.path().join(path)).unwrap().trim_end().to_owned()
}

#[test]
fn affinity_dry_run_writes_nothing() {
    let machine = usual_machine();
    let ran = affinity(&machine, &["--interface", "eth0", "--dry-run"]);
    let expected = [
        "/proc/irq/31/smp_affinity_list 0",
        "/proc/irq/32/smp_affinity_list 1",
        "/sys/class/net/eth0/queues/tx-0/xps_cpus 5",
        "/sys/class/net/eth0/queues/tx-1/xps_cpus a",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus 5",
        "/sys/class/net/eth0/queues/rx-1/rps_cpus a",
    ];
    assert_eq!(told(&machine, &ran), expected);
    assert!(ran.err.contains("ethtool -L eth0 combined 4"), "{}", ran.err);
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "0-3");
    assert!(!machine.path().join("run").exists());
}

#[test]
fn affinity_can_be_undone() {
    let machine = usual_machine();
    for cpus in ["0-1", "2-3"] {
        assert_eq!(affinity(&machine, &["--interface", "eth0", "--cpus", cpus]).code, 0);
    }
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "2");
    assert_eq!(text_of(&machine, "proc/irq/32/smp_affinity_list"), "3");
    for other in [30, 33, 40] {
        assert_eq!(
            text_of(&machine, &format!("proc/irq/{other}/smp_affinity_list")),
            "0-3",
            "it is no queue of the card"
        );
    }
    // As many queues as CPUs, so nothing is passed on.
    assert_eq!(text_of(&machine, "sys/class/net/eth0/queues/rx-0/rps_cpus"), "0");
    // CPUs without interrupts send, too.
    assert_eq!(text_of(&machine, "sys/class/net/eth0/queues/tx-0/xps_cpus"), "5");
    assert_eq!(affinity(&machine, &["--undo"]).code, 0);
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "0-3");
    assert_eq!(text_of(&machine, "sys/class/net/eth0/queues/tx-0/xps_cpus"), "0");
    let again = affinity(&machine, &["--undo"]);
    assert_eq!(again.code, 1);
    assert!(again.err.contains("nothing was changed"), "{}", again.err);
}

#[test]
fn affinity_can_set_cpus_apart() {
    let machine = usual_machine();
    let ran = affinity(&machine, &["--interface", "eth0", "--mode", "apart", "--cpus", "3", "--dry-run"]);
    let expected = [
        "/proc/irq/31/smp_affinity_list 3",
        "/proc/irq/32/smp_affinity_list 3",
        "/sys/class/net/eth0/queues/tx-0/xps_cpus d",
        "/sys/class/net/eth0/queues/tx-1/xps_cpus a",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus 0",
        "/sys/class/net/eth0/queues/rx-1/rps_cpus 0",
        "in /etc/carom/carom.toml: cores = \"0-2\"",
    ];
    assert_eq!(told(&machine, &ran), expected);
}

#[test]
fn affinity_masks_have_groups() {
    let machine = machine("0-127", 1, &[(31, "eth0-0")]);
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "1,33,64-65", "--dry-run"]);
    let expected = ["/proc/irq/31/smp_affinity_list 1", "/sys/class/net/eth0/queues/rx-0/rps_cpus 3,00000002,00000002"];
    assert_eq!(told(&machine, &ran), expected);
}

#[test]
fn affinity_finds_virtio_interrupts() {
    let names = [(37, "virtio2-config"), (38, "virtio2-input.0"), (39, "virtio2-output.0"), (41, "virtio3-input.0")];
    let machine = machine("0-1", 1, &names);
    fs::create_dir_all(machine.path().join("sys/devices/pci/0000:00:03.0/virtio2")).unwrap();
    symlink("../../../devices/pci/0000:00:03.0/virtio2", machine.path().join("sys/class/net/eth0/device")).unwrap();
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "1", "--dry-run"]);
    let expected = [
        "/proc/irq/38/smp_affinity_list 1",
        "/proc/irq/39/smp_affinity_list 1",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus 0",
    ];
    assert_eq!(told(&machine, &ran), expected);
}

#[test]
fn affinity_continues_on_a_second_card() {
    let machine = machine("0-3", 2, &[(31, "eth0-0"), (32, "eth0-1"), (41, "eth1-0"), (42, "eth1-1")]);
    for file in ["rx-0/rps_cpus", "rx-1/rps_cpus", "tx-0/xps_cpus", "tx-1/xps_cpus"] {
        let path = machine.path().join("sys/class/net/eth1/queues").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "0\n").unwrap();
    }
    let both = ["--interface", "eth0", "--interface", "eth1", "--dry-run"];
    let expected = [
        "/proc/irq/31/smp_affinity_list 0",
        "/proc/irq/32/smp_affinity_list 1",
        "/sys/class/net/eth0/queues/tx-0/xps_cpus 5",
        "/sys/class/net/eth0/queues/tx-1/xps_cpus a",
        "/sys/class/net/eth0/queues/rx-0/rps_cpus 5",
        "/sys/class/net/eth0/queues/rx-1/rps_cpus a",
        "/proc/irq/41/smp_affinity_list 2",
        "/proc/irq/42/smp_affinity_list 3",
        "/sys/class/net/eth1/queues/tx-0/xps_cpus 5",
        "/sys/class/net/eth1/queues/tx-1/xps_cpus a",
        "/sys/class/net/eth1/queues/rx-0/rps_cpus 5",
        "/sys/class/net/eth1/queues/rx-1/rps_cpus a",
    ];
    assert_eq!(told(&machine, &affinity(&machine, &both)), expected);
    // With three CPUs the second card begins at the third one, and its masks are those of the CPUs that are
    // interrupted.
    let ran = affinity(&machine, &[&both[..], &["--cpus", "0-2"]].concat());
    let all = told(&machine, &ran);
    let expected = [
        "/proc/irq/41/smp_affinity_list 2",
        "/proc/irq/42/smp_affinity_list 0",
        "/sys/class/net/eth1/queues/tx-0/xps_cpus e",
        "/sys/class/net/eth1/queues/tx-1/xps_cpus 1",
        "/sys/class/net/eth1/queues/rx-0/rps_cpus 6",
        "/sys/class/net/eth1/queues/rx-1/rps_cpus 1",
    ];
    assert_eq!(all[6..], expected);
}

/// Gives `eth0` of a machine a device that lists those interrupts.
fn list(machine: &TempDir, interrupts: &[u32]) {
    let device = machine.path().join("sys/devices/pci/0000:00:03.0");
    fs::create_dir_all(device.join("msi_irqs")).unwrap();
    interrupts.iter().for_each(|irq| fs::write(device.join(format!("msi_irqs/{irq}")), "msi\n").unwrap());
    symlink("../../../devices/pci/0000:00:03.0", machine.path().join("sys/class/net/eth0/device")).unwrap();
}

#[test]
fn affinity_accepts_a_single_interrupt() {
    let machine = machine("0-3", 1, &[(31, "eth0"), (40, "nvme0q1")]);
    list(&machine, &[31]);
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "2", "--dry-run"]);
    let expected = ["/proc/irq/31/smp_affinity_list 2", "/sys/class/net/eth0/queues/rx-0/rps_cpus 0"];
    assert_eq!(told(&machine, &ran), expected);
    // One that has no list but a file with its number: what a bridge above it lists is not the card's.
    let device = machine.path().join("sys/devices/pci/0000:00:03.0");
    fs::rename(device.join("msi_irqs"), device.join("../msi_irqs")).unwrap();
    fs::rename(device.join("../msi_irqs/31"), device.join("../msi_irqs/40")).unwrap();
    fs::write(device.join("irq"), "31\n").unwrap();
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "2", "--dry-run"]);
    assert_eq!(told(&machine, &ran), expected);
}

#[test]
fn affinity_needs_an_interrupt() {
    let machine = machine("0-3", 1, &[(40, "nvme0q1")]);
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "2", "--mode", "apart"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(!machine.path().join("run").exists());
    assert!(ran.err.contains("no interrupt to place"), "{}", ran.err);
}

#[test]
fn affinity_matches_special_names() {
    let chelsio = machine("0-3", 2, &[(30, "eth0 (async)"), (31, "eth0 (queue 0)"), (32, "eth0 (queue 1)")]);
    list(&chelsio, &[30, 31, 32]);
    let ran = affinity(&chelsio, &["--interface", "eth0", "--dry-run"]);
    let placed = ["/proc/irq/31/smp_affinity_list 0", "/proc/irq/32/smp_affinity_list 1"];
    assert_eq!(told(&chelsio, &ran)[..2], placed);
    let managed = machine("0-3", 0, &[(31, "mgmt0-TxRx-0"), (32, "mgmt0-TxRx-1"), (33, "mgmt0-misc-2")]);
    fs::create_dir_all(managed.path().join("sys/class/net/mgmt0/queues/rx-0")).unwrap();
    let ran = affinity(&managed, &["--interface", "mgmt0", "--dry-run"]);
    let told = told(&managed, &ran);
    assert_eq!(told[..2], placed);
    assert!(!ran.out.contains("/proc/irq/33/"), "{}", ran.out);
}

#[test]
fn affinity_refuses_a_bond() {
    let machine = machine("0-3", 1, &[(31, "eth0-0")]);
    let bond = machine.path().join("sys/class/net/bond0");
    fs::create_dir_all(bond.join("queues/rx-0")).unwrap();
    symlink("../eth0", bond.join("lower_eth0")).unwrap();
    symlink("../eth1", bond.join("lower_eth1")).unwrap();
    let ran = affinity(&machine, &["--interface", "bond0", "--dry-run"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("name the interfaces below it: --interface eth0 --interface eth1"), "{}", ran.err);
}

#[test]
fn affinity_names_obstacles() {
    let usual = usual_machine();
    let without_queues = machine("0-3", 0, &[]);
    let cases: [(&TempDir, &[&str], i32, &str); 10] = [
        (&usual, &["--interface", "eth9"], 1, "no interface eth9; the interfaces are eth0"),
        (&without_queues, &["--interface", "eth0"], 1, "no receiving queues"),
        (&usual, &["--interface", "eth0", "--cpus", "2-4"], 1, "no CPU 4"),
        (&usual, &["--interface", "eth0", "--cpus", "1;2"], 2, "not a list of CPUs"),
        (&usual, &["--interface", "eth0", "--cpus", "3-1"], 2, "reversed range"),
        (&usual, &["--interface", "eth0", "--cpus", "3-1,0"], 2, "reversed range"),
        (&usual, &["--interface", "eth0", "--mode", "apart"], 2, "needs --cpus"),
        (&usual, &["--interface", "eth0", "--mode", "apart", "--cpus", "0-3"], 1, "no CPU is left for carom"),
        (&usual, &["--interface", "../eth0"], 2, "not the name of an interface"),
        (&usual, &[], 2, "--interface"),
    ];
    for (machine, arguments, code, words) in cases {
        let ran = affinity(machine, arguments);
        assert_eq!(ran.code, code, "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
        assert!(!machine.path().join("run").exists(), "{arguments:?} wrote something");
    }
}

#[test]
fn affinity_reports_unmovable_interrupts() {
    let machine = usual_machine();
    // Nothing can be written to it, whoever we are.
    let stubborn = machine.path().join("proc/irq/32/smp_affinity_list");
    fs::remove_file(&stubborn).unwrap();
    fs::create_dir(&stubborn).unwrap();
    let ran = affinity(&machine, &["--interface", "eth0"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("proc/irq/32/smp_affinity_list does not accept 1"), "{}", ran.err);
    // The others are where they should be all the same.
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "0");
    assert_eq!(text_of(&machine, "sys/class/net/eth0/queues/rx-1/rps_cpus"), "a");
    // What the settings need is told all the same.
    let ran = affinity(&machine, &["--interface", "eth0", "--mode", "apart", "--cpus", "2-3"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.ends_with("cores = \"0-1\"\n"), "{}", ran.out);
    // What cannot be written back now can be later.
    let other = machine.path().join("proc/irq/31/smp_affinity_list");
    fs::remove_file(&other).unwrap();
    fs::create_dir(&other).unwrap();
    assert_eq!(affinity(&machine, &["--undo"]).code, 1);
    fs::remove_dir(&other).unwrap();
    fs::write(&other, "2\n").unwrap();
    assert_eq!(affinity(&machine, &["--undo"]).code, 0);
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "0-3");
    fs::create_dir(machine.path().join("proc/77")).unwrap();
    fs::write(machine.path().join("proc/77/comm"), "irqbalance\n").unwrap();
    let ran = affinity(&machine, &["--interface", "eth0", "--dry-run"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("systemctl disable --now irqbalance"), "{}", ran.err);
}

#[test]
fn scripts_pass_shellcheck() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let names =
        ["affinity.sh", "debian/package.sh", "debian/test.sh", "debian/postinst", "debian/prerm", "debian/postrm"];
    let said = run(Command::new("shellcheck").args(names).current_dir(deploy));
    assert_eq!(said.code, 0, "{}", said.out);
}
