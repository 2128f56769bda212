//! The identity of the data in Redis. A connection may be lost while the servers and their data stay.

use std::collections::BTreeSet;
use std::time::Duration;

use carom_redis::{RedisCommand, Replies, RequestRoute, Value, cmd, text};

use super::client::{KeyGroup, Redis};

/// The processes of all masters and the histories of their data. The value changes once a master restarts, a replica takes
/// its place, or it copies the data of another server. It stays if a master loses keys by a command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataIdentity(BTreeSet<String>);

impl DataIdentity {
    /// Returns the identity by the replies to `INFO server` and `INFO replication` of each master. Returns `None`
    /// without a master, or if a reply lacks a part, as that of another engine may.
    fn of(replies: &[Vec<Value>]) -> Option<DataIdentity> {
        let of_master = |infos: &Vec<Value>| {
            let [server, replication] = &infos[..] else { return None };
            Some(format!("{} {}", field(server, "run_id")?, field(replication, "master_replid")?))
        };
        let masters: BTreeSet<String> = replies.iter().map(of_master).collect::<Option<_>>()?;
        (!masters.is_empty()).then_some(DataIdentity(masters))
    }

    /// Returns the identity of a single master with this name.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> DataIdentity {
        DataIdentity(BTreeSet::from([name.to_owned()]))
    }
}

/// Returns the value of a field of a reply to `INFO`; `None` if it is missing or empty.
fn field(info: &Value, name: &str) -> Option<String> {
    let info = text(info);
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

impl Redis {
    /// Asks all masters for the identity of their data, and waits at most `within` for each of two answers. Returns `None`
    /// unless every master tells it.
    pub fn data_identity(&mut self, within: Duration) -> Option<DataIdentity> {
        // Before the first request, no master is known.
        self.ask(KeyGroup::Space, RedisCommand::Plain(cmd("PING")), within).ok()?;
        let masters = self.client.masters().to_vec();
        let info = |section: &str| RedisCommand::Plain(cmd("INFO").arg(section).to_owned());
        let questions = |master| (RequestRoute::Server(master), vec![info("server"), info("replication")]);
        let replies = self.client.ask_groups(masters.into_iter().map(questions).collect(), within);
        DataIdentity::of(&replies.into_iter().map(Replies::ok).collect::<Option<Vec<_>>>()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies(run: &str, history: &str) -> Vec<Value> {
        let server = format!("# Server\r\nredis_version:7.0.15\r\nrun_id:{run}\r\ntcp_port:7000\r\n");
        let replication = format!("# Replication\r\nrole:master\r\nmaster_replid:{history}\r\nmaster_replid2:0\r\n");
        [server, replication].map(|info| Value::BulkString(info.into_bytes())).to_vec()
    }

    #[test]
    fn restarts_and_copies_change_the_identity() {
        let of = |masters: &[(&str, &str)]| {
            let replies: Vec<_> = masters.iter().map(|(run, history)| replies(run, history)).collect();
            DataIdentity::of(&replies)
        };
        let before = of(&[("a", "x"), ("b", "y")]);
        assert!(before.is_some());
        assert_eq!(of(&[("b", "y"), ("a", "x")]), before, "masters may come in another order");
        assert_ne!(of(&[("c", "x"), ("b", "y")]), before, "a master has started again");
        assert_ne!(of(&[("a", "z"), ("b", "y")]), before, "a master was a replica meanwhile");
        assert_ne!(of(&[("a", "x")]), before);
    }

    #[test]
    fn incomplete_replies_have_no_identity() {
        assert_eq!(DataIdentity::of(&[]), None, "no master is known");
        assert_eq!(DataIdentity::of(&[replies("a", "x"), replies("", "y")]), None);
        let other_engine = vec![Value::BulkString(b"run_id:a\r\n".to_vec()), Value::Nil];
        assert_eq!(DataIdentity::of(&[other_engine]), None);
    }
}
