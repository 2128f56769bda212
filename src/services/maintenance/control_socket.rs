//! The control socket of a data directory, through which commands on the same machine reach the running node. Only the
//! owner of the directory can connect.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Name of the socket in the data directory.
pub const SOCKET_FILE: &str = "control.sock";

/// Name of the socket until its permissions are set.
const SOCKET_FILE_NEW: &str = "control.sock.new";

/// Returns a short name for a file in a directory of any path length: the address of a socket has at most 108 bytes.
/// The name is valid as long as the returned directory is open.
fn short_name(data_dir: &Path, name: &str) -> io::Result<(File, PathBuf)> {
    let dir = File::open(data_dir)?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd())).join(name);
    Ok((dir, path))
}

/// Listens, and replaces the socket of an earlier process. The caller must hold the lock of the directory.
///
/// # Errors
/// The error of the operating system.
pub fn listen(data_dir: &Path) -> io::Result<UnixListener> {
    match fs::remove_file(data_dir.join(SOCKET_FILE_NEW)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_dir, path) = short_name(data_dir, SOCKET_FILE_NEW)?;
    let listener = UnixListener::bind(path)?;
    // Clients connect by the final name, which the socket gets only after its permissions are restricted.
    fs::set_permissions(data_dir.join(SOCKET_FILE_NEW), Permissions::from_mode(0o600))?;
    fs::rename(data_dir.join(SOCKET_FILE_NEW), data_dir.join(SOCKET_FILE))?;
    Ok(listener)
}

/// Connects to the node that runs on a data directory.
///
/// # Errors
/// The error of the operating system, if no node listens or this user has no permission.
pub fn connect(data_dir: &Path) -> io::Result<UnixStream> {
    let (_dir, path) = short_name(data_dir, SOCKET_FILE)?;
    UnixStream::connect(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn a_long_name_is_no_obstacle_and_a_later_one_takes_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let long = dir.path().join("x".repeat(200));
        fs::create_dir(&long).unwrap();
        assert!(connect(&long).is_err());
        let first = listen(&long).unwrap();
        drop(first);
        assert!(connect(&long).is_err());
        let second = listen(&long).unwrap();
        assert_eq!(fs::metadata(long.join(SOCKET_FILE)).unwrap().permissions().mode() & 0o777, 0o600);
        let mut client = connect(&long).unwrap();
        let (mut server, _) = second.accept().unwrap();
        client.write_all(b"hello").unwrap();
        drop(client);
        let mut heard = String::new();
        server.read_to_string(&mut heard).unwrap();
        assert_eq!(heard, "hello");
    }
}
