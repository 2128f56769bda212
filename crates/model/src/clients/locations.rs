//! Locations of clients: the country and city of an address, from a source outside this crate.

use std::fmt::Debug;
use std::net::IpAddr;

/// The location of an address. Texts are empty where the source has none; names are in English.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GeoLocation<'a> {
    /// The code of the country, as in ISO 3166-1.
    pub country: &'a str,
    /// The name of the country.
    pub country_name: &'a str,
    /// The name of the region: a state or province.
    pub region: &'a str,
    /// The name of the city.
    pub city: &'a str,
    /// The time zone, such as `Europe/Berlin`.
    pub time_zone: &'a str,
    /// The coordinates of the city or country, if the source has them.
    pub coordinates: Option<Coordinates>,
}

/// Coordinates on the Earth, in ten-thousandths of a degree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coordinates {
    /// The latitude; positive in the north.
    pub latitude: i32,
    /// The longitude; positive in the east.
    pub longitude: i32,
}

impl GeoLocation<'_> {
    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == GeoLocation::default()
    }
}

/// A source of locations.
pub trait GeoSource: Debug {
    /// Returns the location of an address; `None` if it is unknown.
    fn location_of(&self, address: IpAddr) -> Option<GeoLocation<'_>>;
}
