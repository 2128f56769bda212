//! The table `geo`: the locations of addresses.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;

pub(super) const GEO: [Setting; 1] = [Setting {
    key: Key::GeoFile,
    name: "geo.file",
    env: "CAROM_GEO_FILE",
    flag: None,
    kind: "an MMDB file",
    default: None,
    secret: false,
    doc: "Database with the countries or cities of addresses, such as GeoLite2 City, for redirect rules and the visit log. carom reads it again when it changes.",
    show: |settings| Shown::optional(settings.geo_file.as_ref().map(|path| path.display())),
}];
