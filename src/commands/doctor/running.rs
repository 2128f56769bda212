//! The node that runs at the admin listener of the settings: another shell may have started it on another directory.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::finding::CheckResult;
use crate::commands::cli::{AdminPlace, AppPlace, NodeArgs};
use crate::commands::status::AdminEndpoint;

/// A running node.
pub(super) struct RunningNode {
    /// Address of the admin listener.
    url: String,
    data_dir: PathBuf,
}

impl RunningNode {
    /// Asks the admin listener of the settings; `None` if nothing answers there without a key. Blocks for some seconds
    /// at most.
    pub(super) fn find(place: &AppPlace) -> Option<RunningNode> {
        let place = AdminPlace { admin: None, config: place.config.clone() };
        let mut node = AdminEndpoint::new(&NodeArgs { place, key_file: None }, "").ok()?;
        let status = node.ask().ok()?.status;
        let data_dir = PathBuf::from(status["dataDir"]["path"].as_str()?);
        Some(RunningNode { url: node.url().trim_end_matches("/status").to_owned(), data_dir })
    }

    /// Returns the data directory of the node in place of one that does not exist; `None` if this user cannot write to
    /// that of the node, or it is in a container.
    pub(super) fn in_place_of(&self, data_dir: &Path) -> Option<&Path> {
        let is_missing = !data_dir.exists();
        (is_missing && access(&*self.data_dir, Access::WRITE_OK).is_ok()).then_some(&*self.data_dir)
    }

    /// Compares the data directory of the node with that of the settings. `is_checked` is true if the other checks are
    /// those of the former.
    pub(super) fn compare(&self, data_dir: &Path, is_checked: bool) -> CheckResult {
        let (url, own) = (&self.url, self.data_dir.display());
        if data_dir.canonicalize().is_ok_and(|path| path == self.data_dir) {
            return CheckResult::ok(format!("the node at {url} runs on this data directory"));
        }
        let text = format!("the node at {url} has the data directory {own}, not {}", data_dir.display());
        if is_checked {
            let remedy = "its directory is checked here; pass its settings file, too, with --config";
            return CheckResult::warning(text, remedy);
        }
        let remedy = format!("pass --data-dir {own} to check that node, and --config for its settings file");
        CheckResult::warning(text, remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::CheckSeverity;

    #[test]
    fn directories_of_nodes_are_compared_with_the_settings() {
        let folder = tempfile::tempdir().unwrap();
        let data_dir = folder.path().canonicalize().unwrap();
        let node = RunningNode { url: "http://127.0.0.1:1".to_owned(), data_dir: data_dir.clone() };
        let missing = data_dir.join("missing");
        let same = data_dir.join("..").join(data_dir.file_name().unwrap());
        assert_eq!(node.compare(&same, false).health, CheckSeverity::Ok);
        let differs = node.compare(&missing, false);
        assert_eq!(differs.health, CheckSeverity::Warning);
        assert!(differs.remedy.contains(&format!("--data-dir {}", data_dir.display())), "{differs:?}");
        assert!(node.compare(&missing, true).remedy.contains("is checked here"));
        assert_eq!(node.in_place_of(&missing), Some(&*data_dir));
        assert_eq!(node.in_place_of(&data_dir), None);
        let unseen = RunningNode { url: String::new(), data_dir: missing.clone() };
        assert_eq!(unseen.in_place_of(&missing), None);
    }
}
