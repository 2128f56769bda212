//! The script `carom-affinity`, which places the interrupts of network cards, on machines that are made of files.

use std::fs;
use std::os::unix::fs::symlink;

use tempfile::TempDir;

use crate::support::scripts::{Ran, run, script};

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
fn dry_run_writes_nothing() {
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
fn can_be_undone() {
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
fn can_set_cpus_apart() {
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
fn masks_have_groups() {
    let machine = machine("0-127", 1, &[(31, "eth0-0")]);
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "1,33,64-65", "--dry-run"]);
    let expected = ["/proc/irq/31/smp_affinity_list 1", "/sys/class/net/eth0/queues/rx-0/rps_cpus 3,00000002,00000002"];
    assert_eq!(told(&machine, &ran), expected);
}

#[test]
fn finds_virtio_interrupts() {
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
fn continues_on_a_second_card() {
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
fn accepts_a_single_interrupt() {
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
fn needs_an_interrupt() {
    let machine = machine("0-3", 1, &[(40, "nvme0q1")]);
    let ran = affinity(&machine, &["--interface", "eth0", "--cpus", "2", "--mode", "apart"]);
    assert_eq!(ran.code, 1, "{}", ran.out);
    assert!(!machine.path().join("run").exists());
    assert!(ran.err.contains("no interrupt to place"), "{}", ran.err);
}

#[test]
fn matches_special_names() {
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
fn refuses_a_bond() {
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
fn names_obstacles() {
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
fn reports_unmovable_interrupts() {
    let machine = usual_machine();
    // Not even root can write to a directory.
    let stubborn = machine.path().join("proc/irq/32/smp_affinity_list");
    fs::remove_file(&stubborn).unwrap();
    fs::create_dir(&stubborn).unwrap();
    let ran = affinity(&machine, &["--interface", "eth0"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("proc/irq/32/smp_affinity_list does not accept 1"), "{}", ran.err);
    // The script still places the other interrupts.
    assert_eq!(text_of(&machine, "proc/irq/31/smp_affinity_list"), "0");
    assert_eq!(text_of(&machine, "sys/class/net/eth0/queues/rx-1/rps_cpus"), "a");
    // The script still prints the setting for carom.
    let ran = affinity(&machine, &["--interface", "eth0", "--mode", "apart", "--cpus", "2-3"]);
    assert_eq!(ran.code, 1);
    assert!(ran.out.ends_with("cores = \"0-1\"\n"), "{}", ran.out);
    // A failed undo can be repeated.
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
