//! Starts the host-list threads of a node, from its settings and the saved rules.

use std::sync::Arc;

use super::fleet;
use super::supervisor::thread_exit;
use crate::bridge::Mailboxes;
use crate::services::host_lists::source::{HostListSource, SourceName};
use crate::services::host_lists::{self, HostList, HostListSetup, ListKind};
use carom_model::destination::hosts::HostPattern;
use carom_settings::exit::Exit;
use carom_settings::{HostListSettings, ListSource, Settings};
use carom_telemetry::stats::NodeStats;

/// Starts the thread that keeps a host list. `hosts` are those of the settings, or saved ones in their place.
///
/// # Errors
/// If its source cannot be used, or the operating system cannot start a thread.
pub(super) fn start(
    kind: ListKind,
    settings: &Settings,
    hosts: Vec<HostPattern>,
    mailboxes: &Mailboxes,
    stats: &Arc<NodeStats>,
) -> Result<HostList, Exit> {
    let list = if kind == ListKind::Allow { &settings.allow } else { &settings.block };
    let setup = HostListSetup {
        kind,
        hosts,
        source: list.source.as_ref().map(|source| open(kind, settings, list, source)).transpose()?,
        data_dir: settings.data_dir.clone(),
        mailboxes: mailboxes.clone(),
        stats: Arc::clone(stats),
    };
    host_lists::start(setup).map_err(|error| thread_exit("a list of hosts", &error))
}

/// Opens the source of the dynamic part of a list.
fn open(
    kind: ListKind,
    settings: &Settings,
    list: &HostListSettings,
    source: &ListSource,
) -> Result<(HostListSource, SourceName), Exit> {
    let shown = source.to_string();
    Ok(match source {
        ListSource::File(path) => (HostListSource::File(path.clone()), SourceName::new(shown.clone(), &shown)),
        ListSource::Http(url) => {
            // The query string may have a secret.
            let place = url.split_once('?').map_or(&**url, |(place, _)| place);
            let access_key = list.access_key.as_ref().map(|key| &*key.0);
            (HostListSource::http(url, access_key), SourceName::new(place.to_owned(), url))
        }
        ListSource::Redis => {
            let (redis, whole) = fleet::redis(settings)?.expect("the settings were checked");
            let key = if kind == ListKind::Allow { "allow" } else { "block" };
            (HostListSource::Redis(Box::new(redis), key), SourceName::new(shown, &whole))
        }
    })
}
