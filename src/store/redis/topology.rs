//! Which server has what: a single one, or the masters of a cluster by the slots of our few keys.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::Value;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use super::{Address, Place, Redis, RedisSettings, Reply, Trouble};
use crate::fleet::Partition;

/// Longest that one server may take to say what it is, when there are others to ask.
const SERVER_TIME: Duration = Duration::from_millis(50);

/// Who has what.
#[derive(Clone, Debug)]
pub(super) enum Topology {
    /// One server has everything.
    Single(Address),
    /// Masters of a cluster, by place. All of them, too, for what goes through everything.
    Cluster { of_place: HashMap<Place, Address>, masters: Vec<Address> },
}

impl Topology {
    pub(super) fn server_of(&self, place: &Place) -> Option<Address> {
        match (place, self) {
            (Place::Server(address), _) | (_, Topology::Single(address)) => Some(address.clone()),
            (place, Topology::Cluster { of_place, .. }) => of_place.get(place).cloned(),
        }
    }

    pub(super) fn masters(&self) -> Vec<Address> {
        match self {
            Topology::Single(address) => vec![address.clone()],
            Topology::Cluster { masters, .. } => masters.clone(),
        }
    }
}

/// The part of a key that decides its slot.
pub(super) fn tag(settings: &RedisSettings, place: &Place) -> String {
    match place {
        Place::Partition(Partition(number)) => format!("{{{}:{number:02x}}}", settings.prefix),
        Place::Space | Place::Server(_) => format!("{{{}}}", settings.prefix),
    }
}

impl Redis {
    /// Finds out who has what, unless that is known.
    pub(super) fn find_out(&mut self, deadline: Instant) -> Result<(), Trouble> {
        if self.topology.is_some() {
            return Ok(());
        }
        let known = self.servers.iter().filter(|(_, server)| server.connection.is_some()).map(|(address, _)| address);
        let mut candidates: Vec<Address> = known.cloned().collect();
        for seed in self.settings.seeds.iter().chain(self.servers.keys()) {
            if !candidates.contains(seed) {
                candidates.push(seed.clone());
            }
        }
        let share = if candidates.len() > 1 { SERVER_TIME } else { Duration::MAX };
        let mut worst = Trouble::Away { what: "there is no server to ask".to_owned(), asked: false };
        for address in candidates {
            let until = Instant::now().checked_add(share).unwrap_or(deadline).min(deadline);
            match self.ask_for_topology(&address, until) {
                Ok(Some(topology)) => {
                    self.topology = Some(topology);
                    return Ok(());
                }
                Ok(None) => {}
                Err(trouble) => worst = trouble,
            }
        }
        // Nothing of what was really asked has been sent.
        Err(match worst {
            Trouble::Away { what, .. } => Trouble::Away { what, asked: false },
            refused @ Trouble::Refused(_) => refused,
        })
    }

    /// Asks one server what it is; `None` where it has nothing to say, as a replica.
    fn ask_for_topology(&mut self, address: &Address, deadline: Instant) -> Result<Option<Topology>, Trouble> {
        let info = self.ask_server(address, redis::cmd("INFO").arg("cluster"), deadline)?;
        if !text(&info).contains("cluster_enabled:1") {
            let role = self.ask_server(address, &redis::cmd("ROLE"), deadline)?;
            let is_master =
                !matches!(&role, Value::Array(parts) if parts.first().is_some_and(|role| text(role) == "slave"));
            if !is_master {
                // Behind the same name there may be the new master by now.
                self.servers.remove(address);
            }
            return Ok(is_master.then(|| Topology::Single(address.clone())));
        }
        let slots = self.ask_server(address, redis::cmd("CLUSTER").arg("SLOTS"), deadline)?;
        let ranges = ranges(address, &slots);
        let mut of_place = HashMap::new();
        for place in Partition::all().map(Place::Partition).chain([Place::Space]) {
            let slot = slot(&tag(&self.settings, &place));
            if let Some((_, _, master)) = ranges.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)) {
                of_place.insert(place, master.clone());
            }
        }
        let mut masters: Vec<Address> = ranges.into_iter().map(|(_, _, master)| master).collect();
        masters.sort();
        masters.dedup();
        // One that has left the cluster, or was made a replica, is spoken to no more.
        self.servers.retain(|known, _| masters.contains(known) || known == address);
        Ok((!masters.is_empty()).then_some(Topology::Cluster { of_place, masters }))
    }

    fn ask_server(&mut self, address: &Address, command: &redis::Cmd, deadline: Instant) -> Result<Value, Trouble> {
        let server = self.servers.entry(address.clone()).or_default();
        let connection = server.connect(address, &self.login, deadline)?;
        match connection.ask(command, deadline) {
            Ok(Value::ServerError(error)) => {
                let details = error.details().unwrap_or_default();
                Err(Trouble::Away { what: format!("{address}: {} {details}", error.code()), asked: false })
            }
            Ok(value) => Ok(value),
            Err(error) => {
                server.fail();
                Err(Trouble::away(address, &error, false))
            }
        }
    }
}

/// First and last slot, and master, of each range in the answer to `CLUSTER SLOTS`.
fn ranges(asked: &Address, slots: &Value) -> Vec<(u16, u16, Address)> {
    let Value::Array(ranges) = slots else { return Vec::new() };
    let range = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = &parts[..] else { return None };
        let [host, Value::Int(port), ..] = &master[..] else { return None };
        let host =
            Some(text(host)).filter(|host| !host.is_empty() && host != "?").unwrap_or_else(|| asked.host.clone());
        Some((
            u16::try_from(*first).ok()?,
            u16::try_from(*last).ok()?,
            Address { host, port: u16::try_from(*port).ok()? },
        ))
    };
    ranges.iter().filter_map(range).collect()
}

/// The slot of a tag: CRC-16 (XMODEM) of what stands between the braces, as in the specification of Redis Cluster.
fn slot(tag: &str) -> u16 {
    let inner = tag.trim_start_matches('{').trim_end_matches('}');
    let crc = inner.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 })
    });
    crc % 16_384
}

/// What a reply to a question means.
pub(super) fn sort(address: &Address, value: Value) -> Reply {
    let Value::ServerError(error) = value else { return Reply::Is(value) };
    let details = error.details().unwrap_or_default().to_owned();
    match error.code() {
        "MOVED" => Reply::Elsewhere(None),
        "ASK" => {
            let to = details.rsplit(' ').next().and_then(|place| place.rsplit_once(':'));
            let to = to.and_then(|(host, port)| {
                let host = if host.is_empty() { address.host.clone() } else { host.to_owned() };
                Some(Address { host, port: port.parse().ok()? })
            });
            Reply::Elsewhere(to)
        }
        "NOSCRIPT" => Reply::Unloaded,
        "READONLY" | "TRYAGAIN" | "CLUSTERDOWN" | "MASTERDOWN" | "LOADING" => Reply::Elsewhere(None),
        code => Reply::Failed(Trouble::Refused(format!("{address}: {code} {details}"))),
    }
}

/// The text of a reply; empty where it is none.
pub(super) fn text(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::VerbatimString { text, .. } => text.clone(),
        Value::Int(number) => number.to_string(),
        _ => String::new(),
    }
}

/// TLS that trusts the certificates in a file, or what the system trusts.
pub(super) fn tls(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                roots.add(certificate.map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
            }
            if roots.is_empty() {
                return Err(wrong(&"there is no certificate in it"));
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_specification() {
        // From the specification's example, and `CLUSTER KEYSLOT`.
        assert_eq!(slot("{123456789}"), 0x31c3);
        assert_eq!(slot("{carom}"), slot("carom"));
    }

    #[test]
    fn errors_of_a_cluster_lead_on() {
        let address = Address { host: "a".to_owned(), port: 1 };
        let reply = |text: &str| sort(&address, redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).unwrap());
        assert!(matches!(reply("MOVED 3999 127.0.0.1:6381"), Reply::Elsewhere(None)));
        let Reply::Elsewhere(Some(to)) = reply("ASK 3999 127.0.0.1:6381") else { panic!("an address") };
        assert_eq!(to, Address { host: "127.0.0.1".to_owned(), port: 6381 });
        assert!(matches!(reply("READONLY You can't write against a read only replica."), Reply::Elsewhere(None)));
        assert!(matches!(reply("OOM command not allowed"), Reply::Failed(Trouble::Refused(_))));
    }
}
