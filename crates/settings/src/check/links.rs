//! The checks of links: their codes, memory and lifetime.

use std::time::Duration;

use carom_shards::CodeLength;

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem};
use crate::settings::{ExpirySettings, FleetSettings, KeySource, LinkHome, LinkPaths, Residency};
use crate::value::cpus::Cores;
use crate::value::{self, one_of, quantities};
use carom_model::destination::extra_path::ExtraPath;
use carom_model::link::slugs::{SlugCase, SlugRules};
use carom_telemetry::readable;

/// Minimum memory for links that one core can work with, in bytes.
const MEMORY_LIMIT_MIN: u64 = 512 << 10;

/// Maximum memory for links that one core can address, in bytes.
const MEMORY_LIMIT_MAX: u64 = 32 << 30;

/// The settings of links.
pub(super) struct LinkSettings {
    pub(super) code_length: CodeLength,
    pub(super) home: LinkHome,
    pub(super) residency: Residency,
    pub(super) search_memory: u64,
    pub(super) dedupe: Option<Duration>,
    pub(super) default_ttl: Option<Duration>,
    pub(super) paths: LinkPaths,
    pub(super) slugs: SlugRules,
    pub(super) expiry: ExpirySettings,
}

impl Checker<'_> {
    /// Returns the settings of links; `None` if one of them is invalid.
    pub(super) fn links(&mut self, cores: Option<&Cores>, fleet: Option<&FleetSettings>) -> Option<LinkSettings> {
        let code_length = self.one(Key::LinksCodeLength, value::code_length);
        let home = self.home();
        let residency = self.residency(cores, home.is_some_and(LinkHome::is_shared));
        let search_memory = self.one(Key::LinksSearchMemory, quantities::search_memory);
        let dedupe = self.one(Key::LinksDedupe, quantities::time_or_off);
        let default_ttl = self.one(Key::LinksDefaultTtl, quantities::time_or_off);
        let trailing_slash = self.one(Key::LinksTrailingSlash, value::boolean);
        let extra_path = self.one(Key::LinksExtraPath, |written| {
            one_of(written, "off, append or ignore", &ExtraPath::ALL, ExtraPath::as_str)
        });
        let multi_segment = self.one(Key::LinksMultiSegmentSlugs, value::boolean);
        let case = self.one(Key::LinksSlugCase, |written| {
            one_of(written, "sensitive or insensitive", &SlugCase::ALL, SlugCase::as_str)
        });
        let has_sites = fleet.is_some_and(|fleet| fleet.site.is_some());
        let expiry = self.expiry(has_sites);
        if let (Some(home), Some(fleet)) = (home, fleet) {
            let recycles = expiry.as_ref().is_some_and(|expiry| expiry.recycle_after.is_some());
            self.home_together(home, fleet, dedupe.flatten(), recycles);
        }
        Some(LinkSettings {
            code_length: code_length?,
            home: home?,
            residency: residency?,
            search_memory: search_memory?,
            dedupe: dedupe?,
            default_ttl: default_ttl?,
            paths: LinkPaths { trailing_slash: trailing_slash?, extra_path: extra_path? },
            slugs: SlugRules { multi_segment: multi_segment?, case: case? },
            expiry: expiry?,
        })
    }

    /// Returns the source of the code secret.
    pub(super) fn space_key(&mut self) -> KeySource {
        let file = self.one(Key::SpaceKeyFile, value::path);
        let secret = self.one(Key::CodeSecret, value::space_key);
        match (file, secret) {
            (None, None) => KeySource::DataDir,
            (Some(path), None) => KeySource::File(path),
            (None, Some(secret)) => KeySource::Given(secret),
            (Some(_), Some(secret)) => {
                let other = &self.sources[Key::SpaceKeyFile as usize];
                let wrong =
                    InvalidValue::new(format!("is set together with space_key_file ({other})"), "keep one of the two");
                let source = self.sources[Key::CodeSecret as usize].clone();
                self.problems.push(SettingsProblem::of(source, Key::CodeSecret, wrong));
                KeySource::Given(secret)
            }
        }
    }

    /// Returns the residency. With a shared home, only links in use are in memory.
    fn residency(&mut self, cores: Option<&Cores>, is_shared: bool) -> Option<Residency> {
        let is_hot = self.one(Key::LinksResidency, value::is_hot)? || is_shared;
        let limit = self.one(Key::LinksMemoryLimit, |written| quantities::size(written, MEMORY_LIMIT_MIN));
        let source = |key: Key| self.sources[key as usize].clone();
        let (key, wrong) = match (is_hot, limit) {
            (false, None) => return Some(Residency::All),
            (true, Some(limit)) => {
                let count = cores.map_or(1, |cores| cores.cpus.len() as u64);
                let (least, most) = (count * MEMORY_LIMIT_MIN, count * MEMORY_LIMIT_MAX);
                if (least..=most).contains(&limit) {
                    return Some(Residency::Hot { memory_limit: limit });
                }
                let right = format!("set at least {}, or run fewer cores", quantities::show_size(least));
                let too_much = format!("set at most {}, or run more cores", quantities::show_size(most));
                let shown = quantities::show_size(limit);
                let cores = readable::count(count, "core");
                let wrong = if limit < least {
                    InvalidValue::new(format!("{shown} is too small for {cores}"), right)
                } else {
                    InvalidValue::new(format!("{shown} is too large for {cores}"), too_much)
                };
                (Key::LinksMemoryLimit, wrong)
            }
            (true, None) if !self.raw.of(Key::LinksMemoryLimit).is_empty() => return None,
            (true, None) => {
                let right = "set links.memory_limit to a size such as 8GiB";
                if is_shared {
                    (Key::LinksHome, InvalidValue::new("shared requires a memory limit", right))
                } else {
                    (Key::LinksResidency, InvalidValue::new("hot requires a memory limit", right))
                }
            }
            (false, Some(_)) => {
                let right = "set links.residency = \"hot\", or remove this setting";
                (Key::LinksMemoryLimit, InvalidValue::new("has no effect while all links are kept in memory", right))
            }
        };
        self.problems.push(SettingsProblem::of(source(key), key, wrong));
        None
    }

    fn expiry(&mut self, has_sites: bool) -> Option<ExpirySettings> {
        let keep = self.one(Key::LinksKeepExpired, quantities::time_or_forever);
        let per_second = self.one(Key::LinksExpirePerSecond, |written| value::integer(written, 1, 1_000_000));
        let recycle_after = self.one(Key::LinksRecycleAfter, quantities::time_or_off);
        let (keep, recycle_after) = (keep?, recycle_after?);
        if recycle_after.is_none() || (keep.is_some() && !has_sites) {
            return Some(ExpirySettings { keep, per_second: u32::try_from(per_second?).ok()?, recycle_after });
        }
        let (reason, right) = if has_sites {
            ("cannot be used with fleet.site, because both sites would reuse a code", "remove one of the settings")
        } else {
            let right = "set links.keep_expired to a time, or remove this setting";
            ("has no effect while links.keep_expired is forever", right)
        };
        let source = self.sources[Key::LinksRecycleAfter as usize].clone();
        self.problems.push(SettingsProblem::of(source, Key::LinksRecycleAfter, InvalidValue::new(reason, right)));
        None
    }
}
