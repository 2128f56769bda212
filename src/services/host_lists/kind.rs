//! The kinds of host lists: their names, alarms, files and messages.

use std::sync::Arc;

use crate::bridge::ToCore;
use carom_model::destination::hosts::HostSet;
use carom_telemetry::alarms::Alarm;
use carom_telemetry::stats::{HostListStats, NodeStats};

/// The kind of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListKind {
    /// Hosts that new links may lead to.
    Allow,
    /// Hosts that no link leads to: redirects there are blocked, too.
    Block,
}

impl ListKind {
    /// Returns the name of the list in messages.
    pub(super) fn name(self) -> &'static str {
        if self == ListKind::Allow { "allow list" } else { "block list" }
    }

    /// Returns the alarms of the list.
    pub(super) fn alarms(self) -> &'static ListAlarms {
        if self == ListKind::Allow { &ALLOW_ALARMS } else { &BLOCK_ALARMS }
    }

    /// Returns the name of the cache file in the data directory.
    pub(super) fn file_name(self) -> &'static str {
        if self == ListKind::Allow { "allowlist-cache.json" } else { "blocklist-cache.json" }
    }

    /// Returns the statistics of the list.
    pub(super) fn stats(self, node: &NodeStats) -> &HostListStats {
        if self == ListKind::Allow { &node.allow_list } else { &node.block_list }
    }

    /// Returns the message that brings the list to a core; `None` if there is no list any more.
    pub(super) fn message(self, hosts: Option<Arc<HostSet>>) -> ToCore {
        if self == ListKind::Allow { ToCore::Hosts(hosts) } else { ToCore::Blocked(hosts) }
    }
}

/// The alarms of a list.
pub(super) struct ListAlarms {
    pub(super) unreadable: Alarm,
    pub(super) malformed: Alarm,
    pub(super) entries: Alarm,
    pub(super) unkept: Alarm,
}

const ALLOW_ALARMS: ListAlarms = ListAlarms {
    unreadable: Alarm::AllowListUnreadable,
    malformed: Alarm::AllowListMalformed,
    entries: Alarm::AllowListEntries,
    unkept: Alarm::AllowListUnkept,
};

const BLOCK_ALARMS: ListAlarms = ListAlarms {
    unreadable: Alarm::BlockListUnreadable,
    malformed: Alarm::BlockListMalformed,
    entries: Alarm::BlockListEntries,
    unkept: Alarm::BlockListUnkept,
};
