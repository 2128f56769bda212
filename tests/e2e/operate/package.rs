//! The Debian package: its contents, settings and seccomp list, and the scripts in it. `affinity` runs one of them.
//!
//! `make package-test` installs, upgrades and removes the package, and runs it as a container; it needs a whole Debian.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::node::CAROM;
use crate::support::scripts::{Ran, run, script};

const SETTINGS: &str = include_str!("../../../deploy/debian/carom.toml");
const SOCKET: &str = include_str!("../../../deploy/systemd/carom.socket");
const SECCOMP: &str = include_str!("../../../deploy/container/seccomp.json");
const SECCOMP_BYPASS: &str = include_str!("../../../deploy/container/seccomp-bypass.json");

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
    let readmes = ["../../carom/compose/README.md", "../../carom/container/README.md"];
    let single = ["README.md", "ARCHITECTURE.md", "NEWS.md"].into_iter().chain(readmes);
    let summary = fs::read_to_string(documents.join("docs/SUMMARY.md")).unwrap();
    let pages = targets_of(&summary).into_iter().map(|page| format!("docs/{page}"));
    for document in single.map(str::to_owned).chain(pages) {
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
fn compose_secrets_are_not_packaged() {
    let dir = tempfile::tempdir().unwrap();
    // A source tree without git, such as that of an archive.
    let (tree, root) = (dir.path().join("tree"), Path::new(env!("CARGO_MANIFEST_DIR")));
    for folder in ["docs", "src/api/rest"] {
        fs::create_dir_all(tree.join(folder)).unwrap();
    }
    for (source, target) in [
        ("Cargo.toml", "."),
        ("README.md", "."),
        ("ARCHITECTURE.md", "."),
        ("CHANGELOG.md", "."),
        ("deploy", "."),
        ("docs/src", "docs"),
        ("src/api/rest/openapi.json", "src/api/rest"),
    ] {
        let copied = run(Command::new("cp").arg("-r").arg(root.join(source)).arg(tree.join(target)));
        assert_eq!(copied.code, 0, "{}", copied.err);
    }
    let fleet = tree.join("deploy/compose/three-nodes");
    fs::create_dir_all(fleet.join("secrets")).unwrap();
    for secret in [".env", ".env.new", "secrets/prometheus.key"] {
        fs::write(fleet.join(secret), "geheim").unwrap();
    }
    // Without options for programs, the binary is that of cargo.
    fs::create_dir(dir.path().join("release")).unwrap();
    std::os::unix::fs::symlink(CAROM, dir.path().join("release/carom")).unwrap();
    let mut command = Command::new(tree.join("deploy/debian/package.sh"));
    command.args(["--fast", "--out"]).arg(dir.path().join("out")).env("CARGO_TARGET_DIR", dir.path());
    // The directory of temporary files may itself be in a repository.
    command.env("GIT_CEILING_DIRECTORIES", dir.path()).env("SOURCE_DATE_EPOCH", "1700000000");
    let made = run(&mut command);
    assert_eq!(made.code, 0, "{}", made.err);
    let listed = dpkg_deb("--contents", Path::new(made.out.trim_end()), &[]);
    assert!(listed.contains("./usr/share/carom/compose/three-nodes/compose.yaml\n"), "{listed}");
    assert!(!listed.contains(".env"), "{listed}");
    assert!(!listed.contains("secrets"), "{listed}");
}

#[test]
fn make_follows_the_target_directory() {
    let makefile = include_str!("../../../Makefile");
    let programs = ["release/carom", "debug/carom"];
    let lines: Vec<&str> = makefile.lines().filter(|line| programs.iter().any(|name| line.contains(name))).collect();
    assert!(lines.len() >= 2, "{lines:?}");
    for line in lines {
        assert!(line.contains("CARGO_TARGET_DIR"), "{line}");
    }
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

#[test]
fn scripts_pass_shellcheck() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy");
    let names = [
        "affinity.sh",
        "certbot/carom",
        "compose/three-nodes/prepare.sh",
        "debian/common.sh",
        "debian/package.sh",
        "debian/test.sh",
        "debian/postinst",
        "debian/prerm",
        "debian/postrm",
        "release/release.sh",
    ];
    let said = run(Command::new("shellcheck").args(names).current_dir(deploy));
    assert_eq!(said.code, 0, "{}", said.out);
}
