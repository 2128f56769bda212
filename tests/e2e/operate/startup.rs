//! Reasons not to start: each has its exit code, a cause and a remedy.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::node::Setup;

/// Checks that a node ends with that code, and that what it says has all of these words.
fn refuses(setup: &Setup, code: i32, words: &[&str]) {
    let (found, said) = setup.fail();
    assert_eq!(found, code, "{said}");
    for word in words.iter().chain(&["error: ", "\nhint: "]) {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
    assert_eq!(said.contains(&format!("\nexit code: {code}\n")), code >= 10, "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

/// A data directory in which a node has made a link.
fn with_a_link(folder: &Path) -> Setup {
    let node = Setup::new(&folder.join("data")).start();
    node.wire().shorten_as("kept", "https://example.org/kept");
    node.terminate()
}

/// The link is still there when whatever was wrong is right again.
fn serves_again(setup: &Setup) {
    let node = setup.start();
    assert_eq!(node.wire().get("/kept").location(), "https://example.org/kept");
    node.terminate();
}

#[test]
fn every_invalid_setting_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("carom.toml");
    std::fs::write(&file, "cores = 'many'\ncolour = 'red'\n[limits]\nhead_seconds = 0\n").unwrap();
    let setup = Setup::new(folder.path()).argument("--config").argument(file.display().to_string());
    refuses(&setup, 2, &["carom.toml:2: colour", "carom.toml:4: limits.head_seconds"]);
    std::fs::write(&file, "[limits\n").unwrap();
    refuses(&setup, 2, &["carom.toml:1"]);
    std::fs::remove_file(&file).unwrap();
    refuses(&setup, 2, &["carom.toml"]);
    let setup = Setup::new(folder.path()).env("CAROM_LIMITS_IDLE_SECONDS", "soon").argument("--base-url").argument("x");
    refuses(&setup, 2, &["CAROM_LIMITS_IDLE_SECONDS", "--base-url"]);
}

#[test]
fn public_address_needs_consent() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).argument("--listen").argument("0.0.0.0:0");
    refuses(&setup, 20, &["0.0.0.0:0", "--open"]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was written");
    let node = setup.argument("--open").start();
    assert_eq!(node.public.ip().to_string(), "0.0.0.0");
    node.terminate();
}

#[test]
fn port_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    refuses(&Setup::new(folder.path()).argument("--listen").argument(&address), 14, &[&address]);
    // Neither is a port shared with another node, although the cores of one node share it.
    let node = Setup::new(&folder.path().join("one")).start();
    let address = node.public.to_string();
    let other = Setup::new(&folder.path().join("other")).argument("--listen").argument(&address);
    refuses(&other, 14, &[&address]);
    let foreign = Setup::new(&folder.path().join("other")).argument("--listen").argument("127.0.0.1:0");
    let foreign = foreign.argument("--listen").argument("[2001:db8::1]:0").argument("--open");
    refuses(&foreign, 14, &["2001:db8::1"]);
    node.terminate();
}

#[test]
fn data_directory_in_use_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_a_link(folder.path());
    let node = setup.start();
    refuses(&setup, 15, &["in use", "data"]);
    assert_eq!(node.wire().get("/kept").status, 302);
    // A kill leaves nothing behind that would have to be cleared away.
    serves_again(&node.kill());
}

#[test]
fn read_only_data_directory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    refuses(&Setup::new(&folder.path().join("file/data")), 16, &["file/data"]);
    refuses(&Setup::new(&folder.path().join("file")), 16, &["file"]);
    // The node has a namespace of mounts of its own, which ends with it, whichever user runs the test.
    let setup = with_a_link(folder.path());
    let data = setup.data_dir().display().to_string();
    let read_only = format!("mount --bind {data} {data}; mount -o remount,bind,ro {data}; exec \"$@\"");
    refuses(&setup.clone().unshared(&read_only), 16, &["data"]);
    serves_again(&setup);
}

#[test]
fn full_disk_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().display().to_string();
    let small = format!("mount -t tmpfs -o size=4m tmpfs {data}; exec \"$@\"");
    refuses(&Setup::new(folder.path()).unshared(&small), 17, &["KiB free"]);
}

#[test]
fn too_few_open_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = Setup::new(folder.path()).shell("ulimit -n 100; exec \"$@\"");
    refuses(&setup, 13, &["open files", "100", "ulimit -n"]);
}

#[test]
fn too_little_locked_memory_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    // Root may lock all it wants, unless it gives that right away.
    let is_root = rustix::process::geteuid().is_root();
    let without = if is_root { "setpriv --bounding-set=-ipc_lock " } else { "" };
    let setup = Setup::new(folder.path()).shell(format!("ulimit -l 64; exec {without}\"$@\""));
    refuses(&setup, 12, &["memory", "ulimit -l"]);
}

#[test]
fn readable_code_secret_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_a_link(folder.path());
    let key = setup.data_dir().join("space.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    refuses(&setup, 19, &["space.key", "0644", "chmod 600"]);
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    serves_again(&setup);
}

#[test]
fn changed_code_secret_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_a_link(folder.path());
    let (key, away) = (setup.data_dir().join("space.key"), folder.path().join("away"));
    std::fs::rename(&key, &away).unwrap();
    refuses(&setup, 19, &["missing", "space.key"]);
    assert!(!key.exists(), "a node with links made itself another key");
    let other = "0123456789abcdef".repeat(4);
    std::fs::write(&key, &other).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (_, said) = setup.fail();
    assert!(!said.contains(&other), "the key is shown");
    refuses(&setup, 19, &["code secret"]);
    std::fs::write(&key, "no key").unwrap();
    refuses(&setup, 19, &["contains no code secret"]);
    std::fs::rename(&away, &key).unwrap();
    serves_again(&setup);
    // From the environment it is as good as from the file.
    let text = std::fs::read_to_string(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    refuses(&setup.clone().env("CAROM_SPACE_KEY", &other), 19, &["code secret"]);
    serves_again(&setup.env("CAROM_SPACE_KEY", text.trim()));
}

#[test]
fn unknown_store_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let setup = with_a_link(folder.path());
    let version = setup.data_dir().join("links/version");
    let kept = std::fs::read(&version).expect("the store keeps its version there");
    std::fs::write(&version, b"FJL\x63").unwrap();
    refuses(&setup, 18, &["store"]);
    std::fs::write(&version, kept).unwrap();
    serves_again(&setup);
}
