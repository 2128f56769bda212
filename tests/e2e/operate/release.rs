//! The files of a release: `release.sh` packs the binary under test, and `check.py` finds damage in them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::support::node::CAROM;
use crate::support::scripts::{Ran, run, script};

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Packs the binary under test, also in the place of the load generator.
fn pack(out: &Path) {
    let mut command = script("release/release.sh");
    command.args(["--fast", "--binary", CAROM, "--loadgen", CAROM, "--out"]).arg(out);
    let made = run(command.env("SOURCE_DATE_EPOCH", "1700000000"));
    assert_eq!(made.code, 0, "{}", made.err);
}

/// The target triple of this machine, and its name in Debian.
fn machine() -> (String, &'static str) {
    let arch = std::env::consts::ARCH;
    (format!("{arch}-unknown-linux-gnu"), if arch == "aarch64" { "arm64" } else { "amd64" })
}

/// The name of the tarball and of the bill of materials, without their endings.
fn base_name() -> String {
    format!("carom-{VERSION}-{}", machine().0)
}

fn image_of(folder: &Path) -> PathBuf {
    folder.join(format!("carom-{VERSION}-{}-image.tar", machine().1))
}

/// The files of a folder by name.
fn files_of(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

fn check(folder: &Path) -> Ran {
    run(script("release/check.py").arg(folder))
}

/// Runs `tar` on the tarball of a release.
fn tar(folder: &Path, arguments: &[&str]) -> String {
    let tarball = folder.join(base_name() + ".tar.gz");
    let said = run(Command::new("tar").arg("--file").arg(tarball).args(arguments).env("TZ", "UTC"));
    assert_eq!(said.code, 0, "{}", said.err);
    said.out
}

#[test]
fn files_are_complete_and_reproducible() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("a"), dir.path().join("b"));
    pack(&first);
    pack(&second);
    let files = files_of(&first);
    let (target, arch) = machine();
    let bill = format!("carom-{VERSION}-{target}.cdx.json");
    let mut expected: [&str; 5] = [
        "SHA256SUMS",
        &format!("carom-{VERSION}-{arch}-image.tar"),
        &bill,
        &format!("carom-{VERSION}-{target}.tar.gz"),
        &format!("carom_{}_{arch}.deb", VERSION.replacen('-', "~", 1)),
    ];
    expected.sort_unstable();
    assert_eq!(files.keys().collect::<Vec<_>>(), expected);
    for (name, content) in files_of(&second) {
        assert!(files[&name] == content, "two releases of one binary differ in {name}");
    }
    let checked = check(&first);
    assert_eq!(checked.code, 0, "{}", checked.err);
    tarball_is_complete(&first);
    bill_names_what_is_linked(&serde_json::from_slice(&files[&bill]).unwrap());
}

fn tarball_is_complete(folder: &Path) {
    let listed = tar(folder, &["--list", "--verbose", "--gzip"]);
    let mut modes = BTreeMap::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((fields[1], fields[3]), ("0/0", "2023-11-14"), "{line}");
        let path = fields[5].strip_prefix(&base_name()).unwrap_or_else(|| panic!("outside of its folder: {line}"));
        modes.insert(path.to_owned(), fields[0].to_owned());
    }
    for (path, mode) in [
        ("/bin/carom", "-rwxr-xr-x"),
        ("/bin/carom-loadgen", "-rwxr-xr-x"),
        ("/sbin/carom-affinity", "-rwxr-xr-x"),
        ("/etc/carom/carom.toml", "-rw-r--r--"),
        ("/lib/systemd/system/carom.service", "-rw-r--r--"),
        ("/share/man/man1/carom.1.gz", "-rw-r--r--"),
        ("/share/bash-completion/completions/carom", "-rw-r--r--"),
        ("/share/zsh/vendor-completions/_carom", "-rw-r--r--"),
        ("/share/fish/vendor_completions.d/carom.fish", "-rw-r--r--"),
        ("/share/carom/compose/one-node/compose.yaml", "-rw-r--r--"),
        ("/share/carom/compose/three-nodes/prepare.sh", "-rwxr-xr-x"),
        ("/share/doc/carom/docs/getting-started/install.md", "-rw-r--r--"),
        ("/share/doc/carom/third-party-licenses.txt", "-rw-r--r--"),
        ("/LICENSE-APACHE", "-rw-r--r--"),
        ("/LICENSE-MIT", "-rw-r--r--"),
        ("/README.md", "-rw-r--r--"),
    ] {
        assert_eq!(modes.get(path).map(String::as_str), Some(mode), "{path}");
    }
    let licences = format!("{}/share/doc/carom/third-party-licenses.txt", base_name());
    let licences = tar(folder, &["--extract", "--gzip", "--to-stdout", &licences]);
    for text in ["\nglommio-ng ", "\nfjall ", "\naws-lc-sys ", "Permission is hereby granted, free of charge"] {
        assert!(licences.contains(text), "{text:?}");
    }
}

fn bill_names_what_is_linked(bill: &Value) {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).unwrap();
    let mut scopes = BTreeMap::new();
    for component in bill["components"].as_array().unwrap() {
        let name = component["name"].as_str().unwrap();
        scopes.insert(name, component["scope"].as_str().unwrap());
        let hash = component.pointer("/hashes/0/content").and_then(Value::as_str);
        assert_eq!(hash.is_none(), name.starts_with("carom"), "{component}");
        assert!(hash.is_none_or(|hash| lock.contains(&format!("checksum = \"{hash}\""))), "{component}");
    }
    for name in ["carom", "carom-loadgen", "carom-ring", "serde", "rustls", "fjall"] {
        assert_eq!(scopes.get(name), Some(&"required"), "{name}");
    }
    // A macro is not a part of the program, and neither is a library of tests.
    assert_eq!(scopes.get("serde_derive"), Some(&"excluded"));
    for name in ["proptest", "smoltcp", "criterion"] {
        assert_eq!(scopes.get(name), None, "{name}");
    }
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
}

/// Writes SHA256SUMS again, as somebody would who changes a file on purpose.
fn sum_up(folder: &Path) {
    let sums = "rm SHA256SUMS; sha256sum -- * >sums; mv sums SHA256SUMS";
    let said = run(Command::new("sh").args(["-ec", sums]).current_dir(folder));
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn damage_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("dist");
    pack(&folder);
    let tells = |text: &str| {
        let said = check(&folder);
        assert_eq!(said.code, 1, "not found: {text}");
        assert!(said.err.contains(text), "{text:?} is not in {}", said.err);
    };
    let image = fs::read(image_of(&folder)).unwrap();
    let mut changed = image.clone();
    // A layer, which is most of it.
    changed[image.len() / 2] ^= 1;
    fs::write(image_of(&folder), &changed).unwrap();
    tells("SHA256SUMS says");
    sum_up(&folder);
    tells("has the digest");
    // The name in manifest.json alone.
    let name = format!("\"carom:{VERSION}\"");
    let at = image.windows(name.len()).position(|bytes| bytes == name.as_bytes()).unwrap();
    let mut changed = image.clone();
    changed[at + 5] = b'n';
    fs::write(image_of(&folder), &changed).unwrap();
    sum_up(&folder);
    tells("manifest.json and the layout differ");
    fs::write(image_of(&folder), &image).unwrap();
    let path = folder.join(base_name() + ".cdx.json");
    let mut bill: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    bill["components"].as_array_mut().unwrap().pop();
    fs::write(&path, bill.to_string()).unwrap();
    sum_up(&folder);
    tells("the dependencies are not those of the components");
    fs::remove_file(&path).unwrap();
    tells("but the folder has");
}

#[test]
fn unusable_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("kept");
    fs::write(&kept, "not a release").unwrap();
    let out = dir.path().to_str().unwrap();
    let programs = ["--binary", CAROM, "--loadgen", CAROM];
    let refused = |arguments: &[&str]| {
        let said = run(script("release/release.sh").args(arguments));
        assert_eq!(said.code, 2, "{arguments:?}: {}", said.err);
    };
    refused(&["--binary", CAROM]);
    refused(&["--binary", "/nowhere", "--loadgen", CAROM]);
    refused(&["--out"]);
    refused(&["--nonsense"]);
    // The files of the directory would be removed.
    for out in [out, "/"] {
        refused(&[&programs[..], &["--out", out]].concat());
    }
    assert_eq!(fs::read_to_string(&kept).unwrap(), "not a release");
}
