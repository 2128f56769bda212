//! Operating a node with bypass: rights, checks, status, metrics and alarms.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

use rustix::process::Signal;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::support::alarms::{alarms, is_seen};
use crate::support::browser::Browser;
use crate::support::bypass::{Pair, SERVER, counter, open};
use crate::support::console;
use crate::support::http::Wire;
use crate::support::node::{CAROM, Node, Setup, wait_for, wait_until};

const TARGET: &str = "https://example.org/";

/// The user `nobody`.
const NOBODY: u32 = 65_534;

/// SYNs that are more than the rings of a core have room for.
const FLOOD: usize = 4_000;

/// Runs `carom`. Returns its exit code and both of its outputs.
fn carom(arguments: &[&str]) -> (i32, String) {
    let ran = Command::new(CAROM).args(arguments).output().unwrap();
    let said = [ran.stdout, ran.stderr].concat();
    (ran.status.code().unwrap(), String::from_utf8(said).unwrap())
}

fn visit(pair: &Pair) {
    pair.ask(|mut wire| {
        wire.shorten_as("abc", TARGET);
        assert_eq!(wire.get("/abc").location(), TARGET);
    });
}

#[test]
fn status_shows_bypass_by_core() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    visit(&pair);
    // A segment of an unknown connection gets a reset, as from a kernel.
    let status =
        wait_for("published counters", || Some(pair.status(&node)).filter(|status| counter(status, "framesOut") > 0));
    assert_eq!(status["bypass"], json!({"interface": "s0", "active": true, "obstacle": null}));
    let bypass = &status["cores"][0]["bypass"];
    assert_eq!((&bypass["mode"], &bypass["zeroCopy"], &bypass["queue"]), (&json!("native"), &json!(false), &json!(0)));
    // Segments that a client has sent again, because the node of a busy machine was late.
    let dropped = bypass["droppedBy"].as_object().unwrap().values();
    assert!(dropped.map(|count| count.as_u64().unwrap()).sum::<u64>() <= pair.client_repeats(), "{status}");
    pair.server.run(|| {
        let metrics = Wire::open(node.admin).get("/metrics").text().to_owned();
        for line in [
            "carom_bypass_active 1\n",
            "carom_bypass_native{core=\"0\"} 1\n",
            "carom_bypass_zero_copy{core=\"0\"} 0\n",
            "carom_bypass_resets_sent_total{core=\"0\",reason=\"abort\"} 0\n",
            "carom_bypass_dropped_total{core=\"0\",reason=\"tcp_checksum\"} 0\n",
        ] {
            assert!(metrics.contains(line), "{line}: {metrics}");
        }
        let (code, page) = carom(&["status", "--once", "--admin", &node.admin.to_string()]);
        assert_eq!(code, 0, "{page}");
        assert!(page.contains("native, copies"), "{page}");
        assert!(page.contains("bypass  in use on s0\n"), "{page}");
    });
    node.terminate();
}

#[test]
fn console_has_a_card_of_bypass() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")));
    visit(&pair);
    pair.server.run(|| {
        let browser = Browser::open();
        for size in [(1_280, 860), (390, 844)] {
            browser.resize(size);
            browser.go(&console::at(&node, ""));
            console::shows(&browser, ".server-details");
            browser.value("document.querySelector('.server-details').open = true");
            console::says(&browser, "main", "Kernel bypass");
            console::says(&browser, "main", "on s0; counts since start");
            console::says(&browser, "main", "Native, copies");
            browser.fits();
            browser.is_accessible();
        }
        browser.close();
    });
    node.terminate();
}

/// Gives a directory to [`NOBODY`], with a copy of the binary, which that user could not reach elsewhere.
fn give_to_nobody(dir: &std::path::Path) {
    fs::copy(CAROM, dir.join("carom")).unwrap();
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(dir.join("data")).unwrap();
    chown(dir.join("data"), Some(NOBODY), Some(NOBODY)).unwrap();
}

/// True if root may raise the limit of locked memory, as systemd does.
fn may_raise_limits() -> bool {
    Command::new("prlimit").args(["--memlock=unlimited", "true"]).output().unwrap().status.success()
}

/// Starts the node as [`NOBODY`] with these capabilities only, as the unit with its drop-in does.
fn unprivileged(setup: Setup, dir: &std::path::Path, capabilities: &str) -> Setup {
    let own = dir.join("carom");
    // The limit does not hold with this capability.
    let (raise, capabilities) = if may_raise_limits() {
        ("prlimit --memlock=unlimited", capabilities.to_owned())
    } else {
        ("", format!("{capabilities},+ipc_lock"))
    };
    setup.shell(format!(
        "shift; exec {raise} setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups --no-new-privs \
         --bounding-set -all{capabilities} --inh-caps -all{capabilities} --ambient-caps -all{capabilities} {} \"$@\"",
        own.display()
    ))
}

#[test]
fn three_capabilities_are_enough() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    give_to_nobody(dir.path());
    let setup = pair.setup(&dir.path().join("data"));
    let node = pair.start(&unprivileged(setup.clone(), dir.path(), ",+net_admin,+net_raw,+bpf"));
    let rights = fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let bits: u64 = 1 << 12 | 1 << 13 | 1 << 39 | u64::from(!may_raise_limits()) << 14;
    assert!(rights.contains(&format!("CapEff:\t{bits:016x}\n")), "{rights}");
    assert!(rights.contains("Uid:\t65534\t"), "{rights}");
    let before = pair.kernel_segments();
    visit(&pair);
    assert_eq!(pair.kernel_segments(), before);
    node.terminate();
    for (capabilities, missing) in [
        ("", "the process lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF;"),
        (",+net_admin,+net_raw", "the process lacks CAP_BPF;"),
    ] {
        let setup = unprivileged(setup.clone(), dir.path(), capabilities);
        let (code, said) = pair.server.run(|| setup.fail());
        assert_eq!(code, 23, "{said}");
        assert!(said.contains(missing), "{said}");
        assert!(said.contains("carom.service.d/bypass.conf"), "{said}");
    }
}

/// Runs `carom check-config` in the namespace of the server.
fn check_config(pair: &Pair, settings: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("carom.toml");
    fs::write(&file, format!("data_dir = \"{}\"\n{settings}", dir.path().display())).unwrap();
    pair.server.run(|| carom(&["check-config", file.to_str().unwrap()]))
}

#[test]
fn check_config_names_obstacles() {
    let Some(pair) = Pair::new() else { return };
    let checked = |settings: &str| check_config(&pair, &format!("cores = 1\n[bypass]\n{settings}"));
    let (code, said) = checked("interface = \"s0\"");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("note: kernel bypass: the driver of s0 (veth) has no zero copy"), "{said}");
    assert!(!said.contains("warning: "), "{said}");
    let (code, said) = checked("interface = \"none0\"");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("warning: kernel bypass is not possible: cannot read interface none0"), "{said}");
    let (code, said) = checked("interface = \"s0\"\nzero_copy = \"on\"\nrequired = true");
    assert_eq!(code, 23, "{said}");
    assert!(said.contains("set bypass.zero_copy to auto or off"), "{said}");
    // The offloads of a veth, and fewer queues than cores.
    pair.server.command("ethtool", "-K s0 tx on").unwrap();
    let (code, said) = check_config(&pair, "cores = 2\n[bypass]\ninterface = \"s0\"\nrequired = true");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("run `ethtool -K s0 tx off`, and the same at the other end"), "{said}");
    assert!(said.contains("s0 has 1 receive queue for 2 cores"), "{said}");
    // The program of the running node is no obstacle to the next one.
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).expect("offloads"));
    let (code, said) = checked("interface = \"s0\"\nrequired = true");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("already; find it with `bpftool net show dev s0`"), "{said}");
    node.terminate();
}

fn has_alarm(pair: &Pair, node: &Node, alarm: &str) -> bool {
    alarms(&pair.status(node)).contains(&alarm)
}

#[test]
fn interface_that_is_down_raises_its_alarm() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let setup = pair.setup(&dir.path().join("data")).expect("alarm=\"bypass_interface_down\"");
    let node = pair.start(&setup);
    visit(&pair);
    assert_eq!(pair.alarms(&node), Vec::<String>::new());
    pair.server.command("ip", "link set s0 down").unwrap();
    pair.server.run(|| is_seen(&node, "bypass_interface_down"));
    pair.server.command("ip", "link set s0 up").unwrap();
    wait_until("a cleared alarm", || !has_alarm(&pair, &node, "bypass_interface_down"));
    pair.client.run(|| assert_eq!(open().get("/abc").location(), TARGET));
    assert_eq!(pair.alarms(&node), Vec::<String>::new());
    node.terminate();
}

#[test]
fn removed_interface_raises_the_alarm() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).expect("alarm=\"bypass_off\""));
    visit(&pair);
    pair.server.command("ip", "link del s0").unwrap();
    pair.server.run(|| is_seen(&node, "bypass_off"));
    let status = pair.status(&node);
    assert_eq!(status["bypass"]["active"], false);
    assert_eq!(status["bypass"]["obstacle"], "interface s0 was removed");
    let (_, page) = pair.server.run(|| carom(&["status", "--once", "--admin", &node.admin.to_string()]));
    assert!(page.contains("bypass  NOT IN USE on s0"), "{page}");
    node.terminate();
}

#[test]
fn frames_for_a_stopped_core_raise_an_alarm() {
    let Some(pair) = Pair::new() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = pair.start(&pair.setup(&dir.path().join("data")).expect("alarm=\"bypass_drops\""));
    visit(&pair);
    node.signal(Signal::STOP);
    pair.client.run(|| {
        let address: std::net::SocketAddr = SERVER.parse().unwrap();
        for _ in 0..FLOOD {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            // The SYN leaves at once, and the socket is closed before an answer.
            assert!(socket.connect(&address.into()).is_err());
        }
    });
    node.signal(Signal::CONT);
    pair.server.run(|| is_seen(&node, "bypass_drops"));
    let status: Value = pair.status(&node);
    assert!(counter(&status, "receiveRingFull") + counter(&status, "fillRingEmpty") > 0, "{status}");
    pair.client.run(|| assert_eq!(open().get("/abc").location(), TARGET));
    node.terminate();
}
