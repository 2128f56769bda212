//! The cache of a host list: its last valid dynamic part, kept for a restart while the source cannot be read.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::source::SourceName;
use crate::services::whole_file::write_whole;

/// Returns the text that was last read from `source`; `None` if that source has never been read.
///
/// # Errors
/// If the cache file cannot be read or is malformed.
pub(super) fn read(data_dir: &Path, name: &str, source: &SourceName) -> io::Result<Option<Vec<u8>>> {
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

/// Writes a text to the cache. After a crash, the cache has the old or the new one.
///
/// # Errors
/// If the file cannot be written.
pub(super) fn write(data_dir: &Path, name: &str, source: &SourceName, text: &[u8]) -> io::Result<()> {
    let hosts: Value = serde_json::from_slice(text)?;
    let kept = json!({"source": source.shown, "key": source.key, "hosts": hosts});
    write_whole(&data_dir.join(name), &serde_json::to_vec_pretty(&kept)?)
}
