//! Sentinels: processes that watch a master with its replicas, replace it when it fails, and name the current one.
//!
//! The client asks the sentinels in turn, then asks the named server for its role, since a sentinel may be behind. The
//! search runs again whenever a request fails or a server says that it is a replica, and also twice a second. No
//! connection subscribes to `+switch-master`: a message that was sent while the subscriber was away is lost, so a
//! subscriber has to ask as well. Asking alone is enough, and finds an old master that is cut off from the sentinels
//! but still answers this client.

use redis::{Cmd, Value};

use crate::address::ServerAddress;
use crate::error::RedisError;
use crate::reply::text;
use crate::topology::role::ServerRole;

/// Builds the question for the master of a service.
pub(crate) fn question(service: &str) -> Cmd {
    redis::cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(service).to_owned()
}

/// Returns the master that a sentinel names, from its answer to [`question`].
pub(crate) fn role_of_sentinel(
    address: &ServerAddress,
    service: &str,
    answer: &Value,
) -> Result<ServerRole, RedisError> {
    match answer {
        Value::Array(parts) => {
            let master = match &parts[..] {
                [host, port] => text(port).parse().ok().map(|port| ServerAddress { host: text(host), port }),
                _ => None,
            };
            let is_address = |master: &ServerAddress| !master.host.is_empty() && master.port != 0;
            master.filter(is_address).map(ServerRole::Named).ok_or_else(|| RedisError::Unavailable {
                what: format!("{address} names no usable master of {service}"),
                was_sent: false,
            })
        }
        Value::Nil => Err(RedisError::Refused(format!("the sentinel {address} does not know the service {service}"))),
        // Only the code: the text may repeat arguments.
        Value::ServerError(error) => match error.code() {
            "NOAUTH" | "NOPERM" | "WRONGPASS" => {
                Err(RedisError::Refused(format!("the sentinel {address} rejects the login: {}", error.code())))
            }
            "ERR" => Err(RedisError::Refused(format!("{address} is not a sentinel"))),
            code => Err(RedisError::Unavailable { what: format!("the sentinel {address}: {code}"), was_sent: false }),
        },
        _ => Err(RedisError::Refused(format!("{address} does not speak the protocol of sentinels"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role_of(reply: &str) -> Result<ServerRole, RedisError> {
        let address = ServerAddress { host: "s".to_owned(), port: 26_379 };
        role_of_sentinel(&address, "main", &redis::parse_redis_value(reply.as_bytes()).unwrap())
    }

    #[test]
    fn sentinel_names_a_master() {
        let Ok(ServerRole::Named(master)) = role_of("*2\r\n$9\r\n127.0.0.1\r\n$4\r\n6380\r\n") else {
            panic!("an address")
        };
        assert_eq!(master, ServerAddress { host: "127.0.0.1".to_owned(), port: 6380 });
        let Ok(ServerRole::Named(master)) = role_of("*2\r\n$3\r\n::1\r\n$4\r\n6380\r\n") else { panic!("an address") };
        assert_eq!(master.to_string(), "[::1]:6380");
    }

    #[test]
    fn sentinel_that_cannot_help_is_reported() {
        for (reply, refused) in [
            ("*-1\r\n", "the sentinel s:26379 does not know the service main"),
            ("-NOAUTH Authentication required.\r\n", "the sentinel s:26379 rejects the login: NOAUTH"),
            ("-NOPERM geheim\r\n", "the sentinel s:26379 rejects the login: NOPERM"),
            ("-ERR unknown command 'SENTINEL', with args beginning with: 'geheim'\r\n", "s:26379 is not a sentinel"),
            ("+OK\r\n", "s:26379 does not speak the protocol of sentinels"),
        ] {
            assert_eq!(role_of(reply).err(), Some(RedisError::Refused(refused.to_owned())), "{reply}");
        }
        for reply in [
            "*2\r\n$1\r\na\r\n$1\r\n0\r\n",
            "*2\r\n$0\r\n\r\n$1\r\n1\r\n",
            "*2\r\n$1\r\na\r\n$5\r\n99999\r\n",
            "*1\r\n$1\r\na\r\n",
            "-LOADING geheim\r\n",
        ] {
            let error = role_of(reply).err().expect("no master is named");
            assert!(
                matches!(&error, RedisError::Unavailable { was_sent: false, what } if !what.contains("geheim")),
                "{error:?}"
            );
        }
    }
}
