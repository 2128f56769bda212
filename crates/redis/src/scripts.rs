//! Scripts that run in Redis. A script is named by the SHA-1 of its text, which the server returns when it is loaded.
//! Each connection loads all of them before its first use, since a restarted server has none.

use std::sync::OnceLock;

use redis::{Cmd, Value};

use super::address::ServerAddress;
use super::error::RedisError;

/// The scripts of one client, and their names once a server has returned them. Names are the same on every server.
#[derive(Debug)]
pub(super) struct Scripts {
    texts: &'static [&'static str],
    names: Vec<OnceLock<Vec<u8>>>,
}

impl Scripts {
    pub(super) fn new(texts: &'static [&'static str]) -> Scripts {
        Scripts { texts, names: texts.iter().map(|_| OnceLock::new()).collect() }
    }

    /// Returns the number of scripts.
    pub(super) fn count(&self) -> usize {
        self.texts.len()
    }

    /// Builds the command that runs a script. Only for a connection that has loaded all scripts.
    pub(super) fn call(&self, script: usize, keys: &[String], arguments: &[Vec<u8>]) -> Cmd {
        let name = self.names[script].get().expect("every connection loads the scripts first");
        let mut command = redis::cmd("EVALSHA");
        command.arg(name.as_slice()).arg(keys.len()).arg(keys).arg(arguments);
        command
    }

    /// Returns the commands that load all scripts.
    pub(super) fn load_commands(&self) -> impl Iterator<Item = Cmd> + '_ {
        self.texts.iter().map(|text| redis::cmd("SCRIPT").arg("LOAD").arg(*text).to_owned())
    }

    /// Takes the names of the scripts from the replies to [`Scripts::load_commands`].
    pub(super) fn store_names(
        &self,
        address: &ServerAddress,
        replies: impl Iterator<Item = Value>,
    ) -> Result<(), RedisError> {
        for (known, reply) in self.names.iter().zip(replies) {
            match reply {
                Value::BulkString(name) => _ = known.get_or_init(|| name),
                Value::ServerError(error) => {
                    let details = error.details().unwrap_or_default();
                    let what = format!("{address} rejects a script: {} {details}", error.code());
                    // A server that is still loading its data reports it here.
                    let passes = matches!(error.code(), "LOADING" | "MASTERDOWN" | "CLUSTERDOWN");
                    return Err(if passes {
                        RedisError::Unavailable { what, was_sent: false }
                    } else {
                        RedisError::Refused(what)
                    });
                }
                _ => return Err(RedisError::Refused(format!("{address} does not speak the Redis protocol"))),
            }
        }
        Ok(())
    }
}
