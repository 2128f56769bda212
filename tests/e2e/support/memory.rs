//! Nodes with a memory limit, and imports large enough to exceed it.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::node::{CAROM, Setup, sum};

pub(crate) fn code(number: u64) -> String {
    format!("link-{number}")
}

pub(crate) fn target(number: u64) -> String {
    format!("https://example.org/somewhere/behind/a/path/of/usual/length/{number:08}?page={}", number % 100)
}

/// Imports links into a new data directory, for a node that keeps all links in memory.
pub(crate) fn import(data: &Path, links: u64) {
    import_for(&[], data, links);
}

/// Imports links into a new data directory, for a node with settings from these environment variables.
pub(crate) fn import_for(settings: &[(&str, &str)], data: &Path, links: u64) {
    let file = data.with_extension("ndjson");
    let line = |number| format!("{}\n", json!({"shortCode": code(number), "longUrl": target(number)}));
    std::fs::write(&file, (0..links).map(line).collect::<String>()).unwrap();
    let mut command = Command::new(CAROM);
    command.envs(settings.iter().copied()).arg("import").arg("--data-dir").arg(data).arg(&file);
    assert!(command.status().unwrap().success());
}

/// Limits the memory for links, in bytes, and keeps only the links in use there.
pub(crate) fn keeping(setup: Setup, limit: u64) -> Setup {
    setup.env("CAROM_LINKS_RESIDENCY", "hot").env("CAROM_LINKS_MEMORY_LIMIT", &limit.to_string())
}

/// Bytes of memory that links take.
pub(crate) fn map_bytes(status: &Value) -> u64 {
    sum(status, "/mapBytes")
}
