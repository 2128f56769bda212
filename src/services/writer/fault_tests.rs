//! Tests of the writer with faults of the disk.

use super::*;
use crate::bridge::CreateAnswer;
use crate::services::faults::{Faults, power_loss};
use crate::services::testing::{KEY, TestNode, create};
use carom_model::link::Origin;
use carom_model::testing::link;
use carom_shards::Code;
use std::fs;
use std::path::Path;

/// Copies a directory as it is at this moment.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// Creates links one after another, cuts the power right after the last acknowledgement, and counts what is
/// missing.
fn lost_of_acknowledged(ack_before_sync: bool) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let (data, after) = (dir.path().join("data"), dir.path().join("after"));
    fs::create_dir(&data).unwrap();
    let node = TestNode::new(&data, 1);
    let setup = WriterSetup { faults: Faults { ack_before_sync, ..Faults::default() }, ..node.writer_setup(&data) };
    let (queue, _thread) = start(setup).unwrap();
    let codes: Vec<String> = (0..300).map(|number| format!("code{number}")).collect();
    for (token, code) in codes.iter().enumerate() {
        queue.send(create(link(code, Origin::Issued), token as u64)).unwrap();
        assert_eq!(node.answers(1).into_values().next(), Some(CreateAnswer::Created.into()));
    }
    copy(&data, &after);
    power_loss(&after).unwrap();
    let (links, _) = Links::open(&after.join("links"), KEY).unwrap();
    codes.iter().filter(|code| links.get(&Code::parse(code.as_bytes()).unwrap()).unwrap().is_none()).count()
}

#[test]
fn a_loss_of_power_takes_nothing_acknowledged() {
    assert_eq!(lost_of_acknowledged(false), 0);
}

/// A control experiment: the test catches a writer that breaks the promise.
#[test]
fn a_writer_that_acknowledges_too_early_is_caught() {
    assert!(lost_of_acknowledged(true) > 0);
}
