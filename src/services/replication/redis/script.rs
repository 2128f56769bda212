//! The Lua scripts that run in Redis. A script is named by the SHA-1 of its text, which the server returns when it
//! loads one. Each connection loads all of them before its first use, since a restarted server has none.

use std::sync::OnceLock;

use redis::{Cmd, Value};

use super::{Address, Trouble};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Script {
    Change,
    Lease,
    Beat,
    Reclaim,
    Recent,
    Allow,
}

/// Number of scripts.
pub(super) const COUNT: usize = Script::ALL.len();

/// Names of the scripts, as the first server returned them. They are the same on every server.
static NAMES: [OnceLock<Vec<u8>>; COUNT] = [const { OnceLock::new() }; COUNT];

impl Script {
    const ALL: [Script; 6] =
        [Script::Change, Script::Lease, Script::Beat, Script::Reclaim, Script::Recent, Script::Allow];

    const fn text(self) -> &'static str {
        match self {
            Script::Change => include_str!("change.lua"),
            Script::Lease => include_str!("lease.lua"),
            Script::Beat => include_str!("beat.lua"),
            Script::Reclaim => include_str!("reclaim.lua"),
            Script::Recent => include_str!("recent.lua"),
            Script::Allow => include_str!("allow.lua"),
        }
    }

    /// Builds the command that runs the script. Only for a connection that has loaded all scripts.
    pub(super) fn call(self, keys: &[String], arguments: &[Vec<u8>]) -> Cmd {
        let name = NAMES[self as usize].get().expect("every connection loads the scripts first");
        let mut command = redis::cmd("EVALSHA");
        command.arg(name.as_slice()).arg(keys.len()).arg(keys).arg(arguments);
        command
    }
}

/// Returns the commands that load all scripts.
pub(super) fn loads() -> impl Iterator<Item = Cmd> {
    Script::ALL.into_iter().map(|script| redis::cmd("SCRIPT").arg("LOAD").arg(script.text()).to_owned())
}

/// Takes the names of the scripts from the replies to [`loads`].
pub(super) fn take_names(address: &Address, replies: impl Iterator<Item = Value>) -> Result<(), Trouble> {
    for (script, reply) in Script::ALL.into_iter().zip(replies) {
        match reply {
            Value::BulkString(name) => _ = NAMES[script as usize].get_or_init(|| name),
            Value::ServerError(error) => {
                let details = error.details().unwrap_or_default();
                let what = format!("{address} rejects a script: {} {details}", error.code());
                // A server that is still loading its data reports it here.
                let passes = matches!(error.code(), "LOADING" | "MASTERDOWN" | "CLUSTERDOWN");
                return Err(if passes { Trouble::Away { what, asked: false } } else { Trouble::Refused(what) });
            }
            _ => return Err(Trouble::Refused(format!("{address} does not speak the Redis protocol"))),
        }
    }
    Ok(())
}
