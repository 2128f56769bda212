//! The last good dynamic part of a list of hosts, kept for a restart while it cannot be read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value, json};

use super::source::Named;

/// What was last read from that source, if anything was.
///
/// # Errors
/// If there is something that cannot be read.
pub(super) fn read(data_dir: &Path, name: &str, source: &Named) -> io::Result<Option<Vec<u8>>> {
    let text = match fs::read(data_dir.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text?,
    };
    let mut kept: Map<String, Value> = serde_json::from_slice(&text)?;
    if kept.get("key").and_then(Value::as_str) != Some(&source.key) {
        return Ok(None);
    }
    match kept.remove("hosts") {
        Some(hosts @ Value::Object(_)) => Ok(Some(hosts.to_string().into_bytes())),
        _ => Err(io::Error::other("the object \"hosts\" is missing")),
    }
}

/// Keeps what was read. After a crash either this or what was kept before is there.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(data_dir: &Path, name: &str, source: &Named, text: &[u8]) -> io::Result<()> {
    let hosts: Value = serde_json::from_slice(text)?;
    // The file while it is being written.
    let new = data_dir.join(format!("{name}.new"));
    let mut file = File::create(&new)?;
    file.write_all(&serde_json::to_vec_pretty(&json!({"source": source.shown, "key": source.key, "hosts": hosts}))?)?;
    file.sync_all()?;
    fs::rename(&new, data_dir.join(name))?;
    File::open(data_dir)?.sync_all()
}
