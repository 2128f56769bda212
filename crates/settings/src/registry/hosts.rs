//! The tables `allow` and `block`, of hosts that links may point to, and `domains`, of hosts that carom serves.

use super::key::Key;
use super::setting::Setting;
use super::shown::{Shown, source};
use crate::value::domains::domain_text;
use carom_model::domains::UnknownHost;

pub(super) const ALLOW: [Setting; 3] = [
    Setting {
        key: Key::AllowHosts,
        name: "allow.hosts",
        env: "CAROM_ALLOW_HOSTS",
        flag: None,
        kind: "one or more hosts such as shop.example, or *.shop.example for all its subdomains",
        default: None,
        secret: false,
        doc: "Hosts that new links may point to, until an admin saves others in the console. If neither this nor allow.source is set, all hosts are allowed.",
        show: |settings| Shown::some_list(&settings.allow.hosts),
    },
    Setting {
        key: Key::AllowSource,
        name: "allow.source",
        env: "CAROM_ALLOW_SOURCE",
        flag: None,
        kind: "a file, an http:// or https:// URL, or redis",
        default: None,
        secret: false,
        doc: "Source of further allowed hosts, read every two seconds, or when Apollo reports a change: a JSON object {\"id\": \"host\", ...}; in Redis, the key {PREFIX}:allow.",
        show: |settings| source(&settings.allow),
    },
    Setting {
        key: Key::AllowAccessKey,
        name: "allow.access_key",
        env: "CAROM_ALLOW_ACCESS_KEY",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Access key of Apollo, a configuration service, which signs requests to allow.source.",
        show: |settings| if settings.allow.access_key.is_some() { Shown::Hidden } else { Shown::Unset },
    },
];

pub(super) const BLOCK: [Setting; 3] = [
    Setting {
        key: Key::BlockHosts,
        name: "block.hosts",
        env: "CAROM_BLOCK_HOSTS",
        flag: None,
        kind: "one or more hosts such as bad.example, or *.bad.example for all its subdomains",
        default: None,
        secret: false,
        doc: "Hosts that no link may point to, until an admin saves others in the console. New links are refused; existing ones return 410.",
        show: |settings| Shown::some_list(&settings.block.hosts),
    },
    Setting {
        key: Key::BlockSource,
        name: "block.source",
        env: "CAROM_BLOCK_SOURCE",
        flag: None,
        kind: "a file, an http:// or https:// URL, or redis",
        default: None,
        secret: false,
        doc: "Source of further blocked hosts, read every two seconds, or when Apollo reports a change: a JSON object {\"id\": \"host\", ...}; in Redis, the key {PREFIX}:block.",
        show: |settings| source(&settings.block),
    },
    Setting {
        key: Key::BlockAccessKey,
        name: "block.access_key",
        env: "CAROM_BLOCK_ACCESS_KEY",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Access key of Apollo, a configuration service, which signs requests to block.source.",
        show: |settings| if settings.block.access_key.is_some() { Shown::Hidden } else { Shown::Unset },
    },
];

pub(super) const DOMAINS: [Setting; 3] = [
    Setting {
        key: Key::DomainsServe,
        name: "domains.serve",
        env: "CAROM_DOMAINS_SERVE",
        flag: None,
        kind: "one or more base URLs such as https://go.example, each optionally followed by home=URL, not_found=URL (or regular_404=URL and invalid_short_url=URL) and expired=URL",
        default: None,
        secret: false,
        doc: "Further domains of short URLs, besides base_url. Each may redirect requests for its home page, unknown links and expired links; the REST API can change these redirects later. List base_url itself to give it redirects, too.",
        show: |settings| Shown::some_list(settings.domains.serve.iter().map(domain_text)),
    },
    Setting {
        key: Key::DomainsFallback,
        name: "domains.fallback",
        env: "CAROM_DOMAINS_FALLBACK",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Links of the default domain also redirect on the other domains.",
        show: |settings| Shown::plain(settings.domains.fallback),
    },
    Setting {
        key: Key::DomainsUnknownHost,
        name: "domains.unknown_host",
        env: "CAROM_DOMAINS_UNKNOWN_HOST",
        flag: None,
        kind: "not_found or misdirected",
        default: Some("not_found"),
        secret: false,
        doc: "Response to requests for an unknown host, if several domains are served: 404, as for an unknown link, or 421 with an explanation.",
        show: |settings| {
            Shown::text(match settings.domains.unknown_host {
                UnknownHost::NotFound => "not_found",
                UnknownHost::Misdirected => "misdirected",
            })
        },
    },
];
