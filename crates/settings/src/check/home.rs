//! The check of the place where links are stored, against the settings that depend on it.

use std::time::Duration;

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem};
use crate::settings::{FleetSettings, LinkHome};
use crate::value::one_of;

impl Checker<'_> {
    /// Returns the place where links are stored.
    pub(super) fn home(&mut self) -> Option<LinkHome> {
        self.one(Key::LinksHome, |written| one_of(written, "node or shared", &LinkHome::ALL, LinkHome::as_str))
    }

    /// Reports the settings that a shared home of links excludes or lacks.
    pub(super) fn home_together(
        &mut self,
        home: LinkHome,
        fleet: &FleetSettings,
        dedupe: Option<Duration>,
        recycles: bool,
    ) {
        if !home.is_shared() {
            return;
        }
        if fleet.redis.is_none() {
            let wrong = InvalidValue::new("shared requires redis", "set redis, or links.home = \"node\"");
            self.refuse(Key::LinksHome, wrong);
        }
        if fleet.retention.is_some() {
            let reason = "would let links expire, which links.home = \"shared\" stores in Redis alone";
            self.refuse(
                Key::FleetRetention,
                InvalidValue::new(reason, "set fleet.retention = \"forever\" on all nodes"),
            );
        }
        if fleet.join_from.is_some() {
            let reason = "has no effect with links.home = \"shared\", which needs no copy of the links";
            self.refuse(Key::FleetJoinFrom, InvalidValue::new(reason, "remove one of the settings"));
        }
        if fleet.site.is_some() {
            let reason = "cannot be used with links.home = \"shared\"";
            self.refuse(Key::FleetSite, InvalidValue::new(reason, "remove one of the settings"));
        }
        if dedupe.is_some() {
            let reason = "needs all links on each node, which links.home = \"shared\" does not keep";
            self.refuse(Key::LinksDedupe, InvalidValue::new(reason, "remove one of the settings"));
        }
        if recycles {
            let reason = "has no effect with links.home = \"shared\", where expired links stay in Redis";
            self.refuse(Key::LinksRecycleAfter, InvalidValue::new(reason, "remove one of the settings"));
        }
    }

    /// Reports the visit log if the home of the links is shared: its queries ask the store of this node for the links.
    pub(super) fn visits_at_home(&mut self, home: Option<LinkHome>, is_on: bool) {
        if is_on && home.is_some_and(LinkHome::is_shared) {
            let reason = "needs all links on each node, which links.home = \"shared\" does not keep";
            self.refuse(Key::VisitsLog, InvalidValue::new(reason, "remove one of the settings"));
        }
    }

    /// Reports that the value of a setting, or its default, does not go with others.
    fn refuse(&mut self, key: Key, wrong: InvalidValue) {
        let source = self.source_of(key);
        self.problems.push(SettingsProblem::of(source, key, wrong));
    }
}
