//! Creates the rings in which cores record visits and access-log entries, and hands out both ends of each.

use carom_model::visits::VisitReceiver;
use carom_model::visits::record::VisitAddresses;
use carom_settings::Settings;
use carom_settings::access_log::terms::Addresses;
use carom_settings::exit::Exit;
use carom_shards::CoreCount;

use super::seed::random_seed;
use crate::bridge::access_log::{self, AccessReceiver};
use crate::bridge::handle::Recorders;
use crate::bridge::visit_log::{self, VisitLogReceiver};

/// Both ends of the rings of all cores.
#[derive(Default)]
pub(super) struct Rings {
    /// The sending ends of each core, the admin listener's last.
    pub(super) senders: Vec<Recorders>,
    /// The receiving ends of visits, by core. The admin listener has none.
    pub(super) visits: Vec<VisitReceiver>,
    /// The receiving ends of the access log, by core, the admin listener's last. Empty without an access log.
    pub(super) access: Vec<AccessReceiver>,
    /// The receiving ends of the visit log, by core. Empty without such a log.
    pub(super) visit_log: Vec<VisitLogReceiver>,
}

impl Rings {
    /// Makes the rings that the settings ask for.
    ///
    /// # Errors
    /// If the operating system has no random bytes.
    pub(super) fn new(settings: &Settings, cores: CoreCount) -> Result<Rings, Exit> {
        let mut rings = Rings::default();
        for core in 0..=cores.get() {
            let mut senders = Recorders::default();
            if core < cores.get() {
                let (sender, receiver) = carom_model::visits::ring();
                senders.visits = Some(sender);
                rings.visits.push(receiver);
            }
            if core < cores.get() && settings.visits.is_on {
                let wants_addresses = settings.visits.addresses != VisitAddresses::None || settings.geo_file.is_some();
                let (sender, receiver) = visit_log::ring(wants_addresses);
                senders.visit_log = Some(sender);
                rings.visit_log.push(receiver);
            }
            let log = &settings.access_log;
            if log.place.is_some() {
                let wants_addresses = log.addresses != Addresses::Off;
                let (sender, receiver) = access_log::ring(log.one_in, wants_addresses, random_seed()?);
                senders.access = Some(sender);
                rings.access.push(receiver);
            }
            rings.senders.push(senders);
        }
        Ok(rings)
    }
}
