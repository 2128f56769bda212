//! The mark of a data directory whose links have a shared home. Of links, the directory has only changes that Redis may
//! lack.
//!
//! Without the mark, a node with another `links.home` would take the directory for a whole copy of the links, and answer
//! 404 for links that exist.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;

use carom_settings::exit::{Exit, Reason};
use carom_settings::{LinkHome, Settings};

/// Name of the file in a data directory whose links have a shared home.
const MARK: &str = "shared-home";

/// Checks that a data directory fits the setting `links.home`. Writes nothing. The caller holds its lock.
///
/// # Errors
/// If the directory has links that another home would hide or lack, or cannot be read.
pub fn check(settings: &Settings) -> Result<(), Exit> {
    let dir = &settings.data_dir;
    match (settings.home, is_shared(dir)?) {
        (LinkHome::Node, true) => Err(incomplete(dir).with_remedy(
            "set links.home = \"shared\"; or, once Redis has all changes of this node, start with an empty data directory and the code secret of the fleet",
        )),
        (LinkHome::Shared, false) if dir.join("links").exists() => {
            let what = format!("{} has links of its own, which links.home = \"shared\" would hide", dir.display());
            Err(Exit::new(Reason::Usage, what).with_remedy(
                "start with links.home = \"node\" until Redis has all changes (outbox in /status is 0), then with an empty data directory and the code secret of the fleet",
            ))
        }
        (LinkHome::Node, false) | (LinkHome::Shared, _) => Ok(()),
    }
}

/// Marks the data directory of a node whose links have a shared home. Call it after all checks that may refuse the start,
/// so that a refused node leaves no mark, and before the store is opened. The caller holds the lock of the directory.
///
/// # Errors
/// If the directory cannot be written.
pub fn mark(settings: &Settings) -> Result<(), Exit> {
    if !settings.home.is_shared() {
        return Ok(());
    }
    let dir = &settings.data_dir;
    write_mark(dir).map_err(|error| {
        Exit::new(Reason::DataNotWritable, format!("{} cannot be written: {error}", dir.join(MARK).display()))
    })
}

/// Refuses a command that reads or replaces all links of a data directory, if the directory does not have them.
///
/// # Errors
/// If the links have a shared home, or the directory cannot be read.
pub fn require_all_links(dir: &Path) -> Result<(), Exit> {
    if is_shared(dir)? {
        return Err(incomplete(dir).with_remedy(
            "use the tools of Redis, which stores the links, or a node of the fleet with links.home = \"node\"",
        ));
    }
    Ok(())
}

fn is_shared(dir: &Path) -> Result<bool, Exit> {
    dir.join(MARK).try_exists().map_err(|error| {
        Exit::new(Reason::DataNotWritable, format!("{} cannot be read: {error}", dir.join(MARK).display()))
    })
}

fn incomplete(dir: &Path) -> Exit {
    let what = format!(
        "{} has only links that Redis may lack, because it was used with links.home = \"shared\"",
        dir.display()
    );
    Exit::new(Reason::Usage, what)
}

fn write_mark(dir: &Path) -> std::io::Result<()> {
    let mut file = match OpenOptions::new().write(true).create_new(true).open(dir.join(MARK)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(()),
        file => file?,
    };
    writeln!(file, "The links of this node have a shared home: see the setting links.home.")?;
    file.sync_all()?;
    // The name must last as long as the links behind it.
    fs::File::open(dir)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_directory_lacks_links() {
        let dir = tempfile::tempdir().unwrap();
        assert!(require_all_links(dir.path()).is_ok());
        write_mark(dir.path()).unwrap();
        write_mark(dir.path()).unwrap();
        let refused = require_all_links(dir.path()).unwrap_err();
        assert!(refused.to_string().contains("links.home"), "{refused}");
    }
}
