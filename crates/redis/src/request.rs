//! Requests: the commands that one server gets in one batch, and the server that they are for.

use std::time::Instant;

use redis::{Cmd, Value};

use super::address::ServerAddress;
use super::error::RedisError;
use super::scripts::Scripts;

/// The server that a request is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum RequestRoute {
    /// The master of a slot of a cluster; a single server has all slots. See [`slot`](crate::slot).
    Slot(u16),
    /// The server with this address, whatever keys it has.
    Server(ServerAddress),
}

/// A command.
pub enum RedisCommand {
    /// A command as it is sent.
    Plain(Cmd),
    /// A call of a script: its place among the scripts of the client, the keys, and the arguments.
    Script(usize, Vec<String>, Vec<Vec<u8>>),
}

impl RedisCommand {
    /// Builds the command. Only for a connection that has loaded all scripts.
    pub(super) fn to_command(&self, scripts: &Scripts) -> Cmd {
        match self {
            RedisCommand::Plain(command) => command.clone(),
            RedisCommand::Script(script, keys, arguments) => scripts.call(*script, keys, arguments),
        }
    }
}

/// Identifies a request until its response arrives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub(super) u64);

/// The replies to the commands of one request, in their order.
pub type Replies = Result<Vec<Value>, RedisError>;

/// Commands that belong together: one server gets them in one batch on one connection. If that was the wrong server,
/// all of them are sent again.
pub(super) struct PendingRequest {
    pub(super) id: RequestId,
    pub(super) route: RequestRoute,
    pub(super) questions: Vec<RedisCommand>,
    pub(super) deadline: Instant,
    /// Number of unsuccessful attempts.
    pub(super) attempts: usize,
    /// The earliest instant of the next attempt.
    pub(super) not_before: Option<Instant>,
    /// The server to ask in place of the one in the map of slots, because the slot is being migrated.
    pub(super) redirected_to: Option<ServerAddress>,
}
