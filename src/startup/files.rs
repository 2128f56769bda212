//! The files that settings name beside the data directory: certificates, the logo and page templates.

use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};

use super::brand;
use crate::services::certificates::{Certificates, Files};

/// Reads the certificates of a node that speaks TLS; `None` without TLS.
///
/// # Errors
/// If they cannot be used.
pub(crate) fn certificates(settings: &Settings) -> Result<Option<Certificates>, Exit> {
    let carom_settings::Tls { pairs, http2, .. } = &settings.tls;
    if pairs.is_empty() {
        return Ok(None);
    }
    let files = Files { pairs: pairs.clone(), http2: *http2 };
    Certificates::read(files).map(Some).map_err(|wrong| Exit::new(Reason::Certificate, wrong))
}

/// Returns the errors in files that the settings name, each of which would keep a node from starting.
pub fn mistakes(settings: &Settings) -> Vec<Exit> {
    brand::mistakes(settings).into_iter().chain(certificates(settings).err()).collect()
}
