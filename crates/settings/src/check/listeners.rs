//! The checks of addresses, proxies and TLS: what listens, and who can reach it.

use std::net::SocketAddr;

use super::checker::Checker;
use crate::exit::Reason;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem, ValueSource, Warning};
use crate::settings::Tls;
use crate::value::addresses::Chosen;
use crate::value::{self, addresses, quantities};
use carom_model::clients::forwarded::{Field, Trust};
use carom_model::clients::networks::{Network, Networks};
use carom_telemetry::readable;

/// The listeners, as far as their settings are valid.
pub(super) struct Listeners {
    /// The public addresses, each with its source.
    pub(super) public: Option<Vec<(SocketAddr, ValueSource)>>,
    /// The address of the admin listener.
    pub(super) admin: Option<SocketAddr>,
    /// True for each public address that requires a PROXY header.
    pub(super) proxied: Vec<bool>,
    /// The trusted proxies.
    pub(super) trust: Trust,
}

impl Listeners {
    /// Returns the public addresses, none if they are invalid.
    pub(super) fn public(&self) -> &[(SocketAddr, ValueSource)] {
        self.public.as_deref().unwrap_or_default()
    }
}

impl Checker<'_> {
    /// Returns the listeners, each as far as it is valid.
    pub(super) fn listeners(&mut self) -> Listeners {
        let public = self.listen();
        let admin = self.one(Key::AdminListen, |written| addresses::address(value::text(written)?));
        let (proxied, trust) = self.proxies(public.as_deref().unwrap_or_default());
        Listeners { public, admin, proxied, trust }
    }

    /// Compares the listeners with each other. Returns the mistakes of a node without API keys.
    pub(super) fn listeners_together(&mut self, listeners: &Listeners) -> Vec<SettingsProblem> {
        let (Some(public), Some(admin)) = (&listeners.public, listeners.admin) else { return Vec::new() };
        self.listeners_apart(public, admin);
        self.admin_in_clear(admin);
        self.listeners_exposed(public, admin)
    }

    /// Returns the public addresses, each with its source.
    fn listen(&mut self) -> Option<Vec<(SocketAddr, ValueSource)>> {
        self.list(Key::Listen, "name at least one IP:PORT", addresses::address).or_else(|| {
            let default = Key::Listen.setting().default?;
            Some(vec![(addresses::address(default).ok()?, ValueSource::Default)])
        })
    }

    /// Returns the listeners that require a PROXY header, and the trusted proxies.
    fn proxies(&mut self, listen: &[(SocketAddr, ValueSource)]) -> (Vec<bool>, Trust) {
        let named = self.list(Key::ProxyProtocol, "write off, require, or addresses of listen", addresses::proxied);
        let trusted = self.list(Key::TrustedProxies, "write at least one, or remove the setting", addresses::network);
        let trusted: Vec<Network> = trusted.unwrap_or_default().into_iter().map(|(network, _)| network).collect();
        let named = named.unwrap_or_default();
        let alone =
            ("off and require cannot be combined with other values", "write \"off\", \"require\", or only addresses");
        let proxied = self.chosen(Key::ProxyProtocol, &named, listen, alone);
        let asks = named.iter().find(|(chosen, _)| *chosen != Chosen::Off);
        if let Some((_, source)) = asks.filter(|_| trusted.is_empty()) {
            let right = "list your load balancers in trusted_proxies, as in 10.0.0.0/8";
            let wrong = InvalidValue::new("requires trusted proxies", right);
            self.problems.push(SettingsProblem::of(source.clone(), Key::ProxyProtocol, wrong));
        }
        let field = self.one(Key::ForwardedField, addresses::forwarded_field).unwrap_or_default();
        if field != Field::Off && trusted.is_empty() {
            let wrong = InvalidValue::new("requires trusted proxies", "list your proxies in trusted_proxies");
            self.problems.push(SettingsProblem::of(
                self.sources[Key::ForwardedField as usize].clone(),
                Key::ForwardedField,
                wrong,
            ));
        }
        (proxied, Trust { proxies: Networks(trusted), field })
    }

    /// Returns the listeners that `named` selects, as a list of booleans. `alone` is the error for a word that means
    /// all or none and is not alone.
    fn chosen(
        &mut self,
        key: Key,
        named: &[(Chosen, ValueSource)],
        listen: &[(SocketAddr, ValueSource)],
        alone: (&str, &str),
    ) -> Vec<bool> {
        for (chosen, source) in named {
            let (reason, right) = match chosen {
                Chosen::At(address) if !listen.iter().any(|(listener, _)| listener == address) => {
                    (format!("{address} is not an address of listen"), "write an address of listen")
                }
                Chosen::Off | Chosen::All if named.len() > 1 => (alone.0.to_owned(), alone.1),
                _ => continue,
            };
            self.problems.push(SettingsProblem::of(source.clone(), key, InvalidValue::new(reason, right)));
        }
        let is_meant = |address| named.iter().any(|(chosen, _)| [Chosen::All, Chosen::At(address)].contains(chosen));
        listen.iter().map(|(address, _)| is_meant(*address)).collect()
    }

    /// Returns the TLS settings; `None` if one of them is invalid.
    pub(super) fn tls(&mut self, listen: &[(SocketAddr, ValueSource)]) -> Option<Tls> {
        let right = "write at least one file, or remove the setting";
        let certificates = self.list(Key::TlsCert, right, value::file).unwrap_or_default();
        let keys = self.list(Key::TlsKey, right, value::file).unwrap_or_default();
        let named = self.list(Key::TlsListen, "write all, or addresses of listen", addresses::secure);
        let http2 = self.one(Key::TlsHttp2, value::boolean);
        let hsts = self.one(Key::TlsHsts, quantities::time_or_off);
        let has_problems = !self.problems.is_empty();
        let mut wrong = |key: Key, reason: &str, right: &str| {
            let source = self.sources[key as usize].clone();
            self.problems.push(SettingsProblem::of(source, key, InvalidValue::new(reason, right)));
        };
        match (certificates.len(), keys.len()) {
            // The lists may only differ because an invalid item is missing.
            (certificates, keys) if certificates == keys || has_problems => {}
            (_, 0) => wrong(Key::TlsCert, "has no private key", "set tls.key"),
            (0, _) => wrong(Key::TlsKey, "has no certificate", "set tls.cert"),
            (certificates, keys) => {
                let [keys, certificates] = [(keys, "key"), (certificates, "certificate")]
                    .map(|(count, one)| readable::count(count as u64, one));
                let reason = format!("has {keys} for {certificates}");
                wrong(Key::TlsKey, &reason, "write one key per certificate, in the same order");
            }
        }
        let is_limited = named.as_ref().is_some_and(|named| named.iter().any(|(chosen, _)| *chosen != Chosen::All));
        for (key, is_set) in [(Key::TlsListen, is_limited), (Key::TlsHsts, hsts.flatten().is_some())] {
            if is_set && certificates.is_empty() && keys.is_empty() && !has_problems {
                let right = "set tls.cert and tls.key";
                wrong(key, "has no effect without a certificate", right);
            }
        }
        let named = named.unwrap_or_else(|| vec![(Chosen::All, ValueSource::Default)]);
        let alone = ("all cannot be combined with addresses", "write \"all\", or only addresses");
        let mut secure = self.chosen(Key::TlsListen, &named, listen, alone);
        let pairs: Vec<_> = certificates.into_iter().zip(keys).map(|((file, _), (key, _))| (file, key)).collect();
        secure.iter_mut().for_each(|is_secure| *is_secure &= !pairs.is_empty());
        Some(Tls { pairs, secure, http2: http2?, hsts: hsts? })
    }

    /// Reports two listeners whose addresses overlap: either could get a connection.
    fn listeners_apart(&mut self, listen: &[(SocketAddr, ValueSource)], admin: SocketAddr) {
        for (place, (address, source)) in listen.iter().enumerate() {
            if let Some((first, _)) = listen[..place].iter().find(|(first, _)| overlap(*first, *address)) {
                let reason = if first == address {
                    format!("{address} is listed twice")
                } else {
                    format!("{address} and {first} overlap")
                };
                self.problems.push(SettingsProblem::of(
                    source.clone(),
                    Key::Listen,
                    InvalidValue::new(reason, "keep one of the two"),
                ));
            }
        }
        if let Some((public, _)) = listen.iter().find(|(public, _)| overlap(*public, admin)) {
            let source = self.sources[Key::AdminListen as usize].clone();
            let wrong = InvalidValue::new(format!("{admin} conflicts with listen ({public})"), "choose another port");
            self.problems.push(SettingsProblem::of(source, Key::AdminListen, wrong));
        }
    }

    /// Warns of an admin listener that other machines reach: it does not support TLS.
    fn admin_in_clear(&mut self, admin: SocketAddr) {
        if !on_loopback(admin) {
            self.warnings.push(Warning(format!(
                "admin_listen {admin} is reachable from other machines without TLS: API keys and session cookies cross the network unencrypted; listen on 127.0.0.1 behind a TLS proxy, or use a private network"
            )));
        }
    }

    /// Returns the mistakes of a node without API keys: a listener that other machines reach lets them create, change
    /// and delete links, or read the status.
    fn listeners_exposed(&self, listen: &[(SocketAddr, ValueSource)], admin: SocketAddr) -> Vec<SettingsProblem> {
        let admin = (admin, self.sources[Key::AdminListen as usize].clone());
        let all = listen.iter().map(|listener| (Key::Listen, listener)).chain([(Key::AdminListen, &admin)]);
        let exposed = all.filter(|(_, (address, _))| !on_loopback(*address)).map(|(key, (address, source))| {
            let (who, instead) = match key {
                Key::AdminListen => ("read the status of this node", "127.0.0.1:8081"),
                _ => ("create, change and delete links", "127.0.0.1:8080"),
            };
            let wrong = InvalidValue::new(
                format!("{address} is reachable from other machines while no API key exists, so anyone could {who}"),
                format!(
                    "create an API key with `carom app add NAME`, listen on {instead}, or allow it with --open, CAROM_OPEN=true or open = true"
                ),
            );
            let problem = SettingsProblem::of(source.clone(), key, wrong);
            SettingsProblem { exit: Reason::PublicWithoutOpen, ..problem }
        });
        exposed.collect()
    }
}

/// True if only this machine can reach the address.
pub fn on_loopback(address: SocketAddr) -> bool {
    // `::ffff:127.0.0.1` is an IPv4-mapped loopback address.
    address.ip().to_canonical().is_loopback()
}

/// True if a connection could match both addresses. IPv6 sockets accept IPv6 only.
fn overlap(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip =
        a.ip() == b.ip() || a.is_ipv4() == b.is_ipv4() && (a.ip().is_unspecified() || b.ip().is_unspecified());
    // Each listener with port 0 gets a free port of its own.
    a.port() == b.port() && a.port() != 0 && same_ip
}
