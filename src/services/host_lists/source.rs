//! The source from which the dynamic part of a host list is read.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::services::host_lists::apollo::Signer;
use crate::services::host_lists::http_text::HttpText;
use crate::services::host_lists::notifications::NotificationPoll;
use crate::services::replication::redis::{Redis, RedisError};

/// Largest size of a list in bytes: some hundred thousand hosts.
const LEN_MAX: u64 = 16 * 1024 * 1024;

/// Timeout of a read.
const READ_TIME_MAX: Duration = Duration::from_secs(2);

/// The name of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceName {
    /// The name in messages.
    pub shown: String,
    /// A hash that tells this source from all others. It reveals no secret in an address.
    pub(super) key: String,
}

impl SourceName {
    /// Returns a name from the text for messages, and from the whole address with all that tells it from others.
    pub fn new(shown: String, whole: &str) -> SourceName {
        SourceName { shown, key: format!("{:016x}", xxh3_64(whole.as_bytes())) }
    }
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

/// A source of a list.
pub enum HostListSource {
    /// A file on this machine, by its path.
    File(PathBuf),
    /// A key in the fleet's Redis.
    Redis(Box<Redis>, &'static str),
    /// The response of an HTTP address, and the poll for notifications if it is an address of Apollo.
    Http(Box<HttpText>, Option<Box<NotificationPoll>>),
}

impl HostListSource {
    /// Returns the source for an HTTP address. Requests are signed if there is an access key of Apollo.
    pub fn http(url: &str, access_key: Option<&str>) -> HostListSource {
        let signer = access_key.and_then(|key| Signer::new(url, key));
        let poll = NotificationPoll::new(url, signer.clone()).map(Box::new);
        HostListSource::Http(Box::new(HttpText::new(url, READ_TIME_MAX, LEN_MAX).with_signer(signer)), poll)
    }

    /// Takes the poll for notifications; `None` if the source has none.
    pub(super) fn take_poll(&mut self) -> Option<Box<NotificationPoll>> {
        if let HostListSource::Http(_, poll) = self { poll.take() } else { None }
    }

    /// Reads the list. Blocks for up to two seconds.
    ///
    /// # Errors
    /// A description of why it cannot be read.
    pub fn read(&mut self) -> Result<Vec<u8>, String> {
        match self {
            HostListSource::File(path) => read_file(path).map_err(|error| error.to_string()),
            HostListSource::Redis(redis, key) => match redis.text(key, READ_TIME_MAX) {
                Ok(Some(text)) => Ok(text),
                Ok(None) => Err("the key does not exist".to_owned()),
                Err(RedisError::Unavailable { what, .. } | RedisError::Refused(what)) => Err(what),
            },
            HostListSource::Http(http, _) => http.read(),
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(LEN_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > LEN_MAX {
        return Err(io::Error::other(format!("it is longer than {LEN_MAX} bytes")));
    }
    Ok(text)
}
