//! Replies of servers.

use redis::Value;

use super::address::ServerAddress;
use super::error::RedisError;

/// The outcome of a request to a server.
pub(super) enum ReplyOutcome {
    Values(Vec<Value>),
    /// The slot is being migrated, and this server may have the key already (ASK).
    AskAt(ServerAddress),
    /// Another server has the slot (MOVED). The request was not carried out.
    Moved,
    /// The server is a replica, or cannot serve now. The request was not carried out.
    CannotServe,
    /// No server has all keys of the request at the moment. It was not carried out.
    TryAgain,
    /// The server does not have the scripts.
    NoScript,
    Failed(RedisError),
}

/// Interprets the replies to a request, one for each of its commands.
pub(super) fn interpret(address: &ServerAddress, values: Vec<Value>) -> ReplyOutcome {
    let wrong = values.iter().find_map(|value| if let Value::ServerError(error) = value { Some(error) } else { None });
    let Some(error) = wrong else { return ReplyOutcome::Values(values) };
    let details = error.details().unwrap_or_default();
    match error.code() {
        "ASK" => {
            let to = details.rsplit(' ').next().and_then(|place| place.rsplit_once(':'));
            let to = to.and_then(|(host, port)| {
                let host = if host.is_empty() { address.host.clone() } else { host.to_owned() };
                Some(ServerAddress { host, port: port.parse().ok()? })
            });
            to.map_or(ReplyOutcome::TryAgain, ReplyOutcome::AskAt)
        }
        "NOSCRIPT" => ReplyOutcome::NoScript,
        "TRYAGAIN" => ReplyOutcome::TryAgain,
        "MOVED" => ReplyOutcome::Moved,
        "READONLY" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" => ReplyOutcome::CannotServe,
        code => ReplyOutcome::Failed(RedisError::Refused(format!("{address}: {code} {details}"))),
    }
}

/// Returns the text of a reply; empty for other types.
pub fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_a_cluster_lead_on() {
        let address = ServerAddress { host: "a".to_owned(), port: 1 };
        let value = |text: &str| redis::parse_redis_value(format!("{text}\r\n").as_bytes()).unwrap();
        let reply = |text: &str| interpret(&address, vec![value(":1"), value(&format!("-{text}")), value(":2")]);
        assert!(matches!(reply("MOVED 3999 127.0.0.1:6381"), ReplyOutcome::Moved));
        let ReplyOutcome::AskAt(to) = reply("ASK 3999 127.0.0.1:6381") else { panic!("an address") };
        assert_eq!(to, ServerAddress { host: "127.0.0.1".to_owned(), port: 6381 });
        assert!(matches!(reply("ASK 3999"), ReplyOutcome::TryAgain));
        assert!(matches!(reply("TRYAGAIN Multiple keys request during rehashing of slot"), ReplyOutcome::TryAgain));
        assert!(matches!(reply("NOSCRIPT No matching script."), ReplyOutcome::NoScript));
        assert!(matches!(reply("READONLY You can't write against a read only replica."), ReplyOutcome::CannotServe));
        assert!(matches!(reply("OOM command not allowed"), ReplyOutcome::Failed(RedisError::Refused(_))));
        assert!(matches!(
            interpret(&address, vec![value(":1"), value("$-1")]),
            ReplyOutcome::Values(values) if values.len() == 2
        ));
    }
}
