//! The locations of addresses, from a MaxMind database (MMDB) in memory. The service that reads the file is
//! `services::geo`; cores and the visit log share one database.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use maxminddb::Reader;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};

use carom_model::clients::locations::{Coordinates, GeoLocation, GeoSource};

/// Parts of the names of database types that have countries or cities.
const TYPES: [&str; 3] = ["City", "Country", "Enterprise"];

/// A database of locations. A look-up allocates nothing.
pub struct GeoDatabase(Reader<Vec<u8>>);

impl fmt::Debug for GeoDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GeoDatabase({})", self.0.metadata().database_type)
    }
}

impl GeoDatabase {
    /// Reads a database, and checks all of it.
    ///
    /// # Errors
    /// A description of what is wrong with the file.
    pub fn parse(bytes: Vec<u8>) -> Result<GeoDatabase, String> {
        let reader = Reader::from_source(bytes).map_err(|error| format!("is not an MMDB file ({error})"))?;
        let kind = &reader.metadata().database_type;
        if !TYPES.iter().any(|part| kind.contains(part)) {
            return Err(format!("is a database of the type {kind:?}; expected one with countries or cities"));
        }
        reader.verify().map_err(|error| format!("is damaged ({error})"))?;
        Ok(GeoDatabase(reader))
    }

    /// Returns the type of the database, such as `GeoLite2-City`.
    pub fn kind(&self) -> &str {
        &self.0.metadata().database_type
    }

    /// Returns the time at which the database was built, in seconds since 1970 UTC.
    pub fn built_at(&self) -> u64 {
        self.0.metadata().build_epoch
    }
}

impl GeoSource for GeoDatabase {
    fn location_of(&self, address: IpAddr) -> Option<GeoLocation<'_>> {
        let found = self.0.lookup(address.to_canonical()).ok()?;
        let entry: GeoEntry<'_> = found.decode().ok()??;
        let location = entry.location();
        (!location.is_empty()).then_some(location)
    }
}

/// Returns the database as a source of locations.
pub fn source(geo: &Option<Arc<GeoDatabase>>) -> Option<&dyn GeoSource> {
    geo.as_deref().map(|geo| geo as &dyn GeoSource)
}

/// The database that the service has read last, for services.
#[derive(Clone, Debug, Default)]
pub struct GeoSlot(Arc<Mutex<Option<Arc<GeoDatabase>>>>);

impl GeoSlot {
    /// Returns the database; `None` without a file.
    pub fn get(&self) -> Option<Arc<GeoDatabase>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the database.
    pub fn set(&self, geo: Arc<GeoDatabase>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(geo);
    }
}

/// The used part of an entry, as GeoIP2, GeoLite2 and DB-IP have it.
#[derive(Deserialize, Default)]
#[serde(default)]
struct GeoEntry<'a> {
    #[serde(borrow)]
    country: CountryEntry<'a>,
    #[serde(borrow)]
    subdivisions: FirstOf<'a>,
    #[serde(borrow)]
    city: NamedEntry<'a>,
    #[serde(borrow)]
    location: SpotEntry<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CountryEntry<'a> {
    iso_code: Option<&'a str>,
    #[serde(borrow)]
    names: NamesEntry<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamedEntry<'a> {
    #[serde(borrow)]
    names: NamesEntry<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NamesEntry<'a> {
    en: Option<&'a str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct SpotEntry<'a> {
    latitude: Option<f64>,
    longitude: Option<f64>,
    time_zone: Option<&'a str>,
}

/// The first entry of a list, without an allocation for the others.
#[derive(Default)]
struct FirstOf<'a>(NamedEntry<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for FirstOf<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<FirstOf<'a>, D::Error> {
        struct EntriesVisitor;
        impl<'de> Visitor<'de> for EntriesVisitor {
            type Value = NamedEntry<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of regions")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<NamedEntry<'de>, A::Error> {
                let first = list.next_element()?.unwrap_or_default();
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first)
            }
        }
        deserializer.deserialize_seq(EntriesVisitor).map(FirstOf)
    }
}

impl<'a> GeoEntry<'a> {
    fn location(&self) -> GeoLocation<'a> {
        let GeoEntry { country, subdivisions, city, location } = self;
        let SpotEntry { latitude, longitude, time_zone } = *location;
        let degrees = latitude.zip(longitude);
        GeoLocation {
            country: country.iso_code.unwrap_or_default(),
            country_name: country.names.en.unwrap_or_default(),
            region: subdivisions.0.names.en.unwrap_or_default(),
            city: city.names.en.unwrap_or_default(),
            time_zone: time_zone.unwrap_or_default(),
            coordinates: degrees.map(|(latitude, longitude)| Coordinates {
                latitude: (latitude * 10_000.0).round() as i32,
                longitude: (longitude * 10_000.0).round() as i32,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carom_model::testing::mmdb::{MmdbNetwork, mmdb};
    use proptest::prelude::*;

    const NETWORKS: [MmdbNetwork<'static>; 3] = [
        MmdbNetwork { address: "192.0.2.0", bits: 25, country: ("DE", "Germany"), city: "Köln" },
        MmdbNetwork { address: "198.51.100.0", bits: 24, country: ("FR", "France"), city: "" },
        MmdbNetwork { address: "2001:db8::", bits: 32, country: ("CH", "Switzerland"), city: "Genf" },
    ];

    fn located<'g>(geo: &'g GeoDatabase, address: &str) -> Option<(&'g str, &'g str)> {
        geo.location_of(address.parse().unwrap()).map(|location| (location.country, location.city))
    }

    #[test]
    fn addresses_have_the_locations_of_their_networks() {
        let geo = GeoDatabase::parse(mmdb("GeoLite2-City", &NETWORKS)).unwrap();
        for (address, place) in [
            ("192.0.2.77", Some(("DE", "Köln"))),
            ("::ffff:192.0.2.77", Some(("DE", "Köln"))),
            ("192.0.2.200", None),
            ("198.51.100.1", Some(("FR", ""))),
            ("2001:db8:1::2", Some(("CH", "Genf"))),
            ("2001:db9::", None),
            ("::1", None),
        ] {
            assert_eq!(located(&geo, address), place, "{address}");
        }
        let whole = geo.location_of("192.0.2.1".parse().unwrap()).unwrap();
        let expected = GeoLocation {
            country: "DE",
            country_name: "Germany",
            region: "Region",
            city: "Köln",
            time_zone: "Europe/Berlin",
            coordinates: Some(Coordinates { latitude: 525_000, longitude: -132_500 }),
        };
        assert_eq!((whole, geo.kind(), geo.built_at()), (expected, "GeoLite2-City", 1_790_000_000));
    }

    #[test]
    fn other_files_are_refused() {
        let why = |bytes: &[u8]| GeoDatabase::parse(bytes.to_vec()).map(|_| ()).unwrap_err();
        assert!(why(b"").contains("is not an MMDB file"), "{}", why(b""));
        assert!(why(&[7; 200_000]).contains("is not an MMDB file"));
        let other = why(&mmdb("GeoLite2-ASN", &NETWORKS));
        assert!(other.contains("GeoLite2-ASN"), "{other}");
        assert!(other.contains("expected one with countries or cities"), "{other}");
        let whole = mmdb("GeoLite2-City", &NETWORKS);
        assert!(why(&whole[..whole.len() / 2]).contains("is not an MMDB file"));
        // A record of the tree that leads nowhere.
        let mut damaged = whole;
        damaged[..8].fill(0xee);
        assert!(why(&damaged).contains("is damaged"), "{}", why(&damaged));
    }

    proptest! {
        #[test]
        fn damaged_databases_never_panic(
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            addresses in proptest::collection::vec(any::<IpAddr>(), 4),
        ) {
            let mut bytes = mmdb("GeoLite2-City", &NETWORKS);
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(geo) = GeoDatabase::parse(bytes) {
                let known = NETWORKS.iter().map(|network| network.address.parse().unwrap());
                for address in known.chain(addresses) {
                    let _ = geo.location_of(address);
                }
            }
        }
    }
}
