//! The checked-in object belongs to its source, and the compiler that built it builds it again, byte for byte.

use std::path::Path;
use std::process::Command;

use carom_xdp::program::OBJECT;
use sha2::{Digest, Sha256};

/// The compiler of the checked-in object. Another one makes other instructions.
const COMPILER: &str = "clang version 14.0.6";

const SOURCE: &str = include_str!("../bpf/bypass.c");

#[test]
fn object_names_its_source() {
    let hash: String = Sha256::digest(SOURCE).iter().map(|byte| format!("{byte:02x}")).collect();
    let is_there = OBJECT.windows(hash.len()).any(|window| window == hash.as_bytes());
    assert!(is_there, "bpf/bypass.o is older than bpf/bypass.c: run `make xdp-object` with {COMPILER}");
}

#[test]
fn object_is_what_clang_builds() {
    let Ok(version) = Command::new("clang").arg("--version").output() else {
        println!("skipped: there is no clang");
        return;
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bypass.o");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("bpf/build.sh");
    let made = Command::new(script).arg(&built).output().expect("a shell runs the script");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    if !version.contains(COMPILER) {
        println!("skipped the comparison: {version} is not {COMPILER}");
        return;
    }
    assert!(std::fs::read(built).expect("it was built") == OBJECT, "run `make xdp-object`");
}
