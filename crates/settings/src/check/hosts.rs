//! The checks of hosts: those that links may point to, and the domains that carom serves.

use std::collections::{HashMap, HashSet};

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem};
use crate::settings::{DomainSettings, HostListSettings, ListSource};
use crate::value::apollo::app_of;
use crate::value::domains::BaseUrl;
use crate::value::secret::Secret;
use crate::value::{self, domains, hosts};
use carom_model::destination::hosts::host_of;
use carom_model::domains::{DOMAINS_MAX, UnknownHost};

impl Checker<'_> {
    /// Returns a list of hosts, from its static setting and the source of its dynamic part.
    pub(super) fn hosts(&mut self, keys: (Key, Key, Key), has_redis: bool) -> HostListSettings {
        let (hosts, source_key, access_key) = keys;
        let source = self.one(source_key, hosts::list_source);
        if source == Some(ListSource::Redis) && !has_redis {
            let place = self.sources[source_key as usize].clone();
            let wrong =
                InvalidValue::new("is redis, but the setting redis is not set", "set redis, or write a file or a URL");
            self.problems.push(SettingsProblem::of(place, source_key, wrong));
        }
        let access = self.one(access_key, |written| {
            let wrong = |_| InvalidValue::new("is not text", "write the access key as text");
            value::text(written).map(|text| Secret(text.to_owned())).map_err(wrong)
        });
        let is_apollo = matches!(&source, Some(ListSource::Http(url)) if app_of(url).is_some());
        if access.is_some() && !is_apollo {
            let right = "name an address of Apollo as the source, such as http://apollo.example/configs/APP/CLUSTER/NAMESPACE, or remove the access key";
            let wrong = InvalidValue::new("signs requests to Apollo, but the source has another address", right);
            self.problems.push(SettingsProblem::of(self.sources[access_key as usize].clone(), access_key, wrong));
        }
        let hosts = self.list(hosts, "write at least one host, or remove the setting", hosts::host);
        let hosts = hosts.unwrap_or_default().into_iter().map(|(host, _)| host).collect();
        HostListSettings { hosts, source, access_key: access }
    }

    /// Returns the domains besides the default one. A redirect target must not be an address of the service: its
    /// visitors would be led in circles.
    pub(super) fn domains(&mut self, base_url: Option<&BaseUrl>) -> Option<DomainSettings> {
        let right = "write at least one domain, or remove the setting";
        let listed = self.list(Key::DomainsServe, right, domains::domain).unwrap_or_default();
        let fallback = self.one(Key::DomainsFallback, value::boolean);
        let unknown_host = self.one(Key::DomainsUnknownHost, domains::unknown_host);
        let urls = listed.iter().map(|(domain, _)| &*domain.base_url).chain(base_url.map(BaseUrl::as_str));
        let own: HashSet<String> = urls.map(|url| host_of(url.as_bytes()).to_owned()).collect();
        let mut wrong = |key: Key, wrong: InvalidValue| {
            self.problems.push(SettingsProblem::of(self.sources[key as usize].clone(), key, wrong));
        };
        if !listed.is_empty() && base_url.is_none() {
            let right = "set base_url to the start of short URLs of the default domain";
            wrong(Key::DomainsServe, InvalidValue::new("requires base_url, the default domain", right));
        }
        if listed.is_empty() && fallback == Some(true) {
            let right = "list the domains in domains.serve, or remove this setting";
            wrong(Key::DomainsFallback, InvalidValue::new("has no effect without other domains", right));
        }
        if listed.is_empty() && unknown_host == Some(UnknownHost::Misdirected) {
            let right = "list the domains in domains.serve, or remove this setting";
            wrong(Key::DomainsUnknownHost, InvalidValue::new("has no effect without other domains", right));
        }
        let mut by_id = HashMap::new();
        for (domain, source) in &listed {
            let other = by_id.insert(domain.name.id(), domain);
            for wrong in domains::wrong_with_domain(domain, other, base_url, &own) {
                self.problems.push(SettingsProblem::of(source.clone(), Key::DomainsServe, wrong));
            }
        }
        if listed.len() > DOMAINS_MAX {
            let wrong =
                InvalidValue::new(format!("has {} domains", listed.len()), format!("list at most {DOMAINS_MAX}"));
            self.problems.push(SettingsProblem::of(
                self.sources[Key::DomainsServe as usize].clone(),
                Key::DomainsServe,
                wrong,
            ));
        }
        let serve = listed.into_iter().map(|(domain, _)| domain).collect();
        Some(DomainSettings { serve, fallback: fallback?, unknown_host: unknown_host? })
    }
}
