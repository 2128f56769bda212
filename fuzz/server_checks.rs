//! Properties of files that operators give the server, for any bytes: lines of an import, databases of locations, and
//! backups. The fuzz targets beside this file check them, and `tests/replay.rs` runs them over the committed seeds.
#![allow(dead_code, reason = "each fuzz target uses one of these")]

use std::net::IpAddr;

use carom::bridge::geo::GeoDatabase;
use carom::services::readers::ndjson;
use carom_model::clients::locations::GeoSource;
use carom_model::destination::long_url::LongUrl;
use carom_model::domains::{Domains, UnknownHost};
use carom_store::backup::Section;
use carom_store::backup::frames::{FrameError, FrameReader, FrameWriter};

/// Checks lines of an import: the parser never panics, and an accepted line has a valid destination and no more bots
/// than visits.
pub(crate) fn check_import(input: &[u8]) {
    let domains = Domains::new("https://s.example", &[], false, UnknownHost::NotFound);
    let Ok(line) = ndjson::read(input, &[], &domains) else { return };
    assert!(LongUrl::parse(line.target.as_str(), &[]).is_ok_and(|again| again.as_str() == line.target.as_str()));
    assert!(line.visits.bots <= line.visits.total);
    assert!(line.labels.rules.as_slice().iter().all(|rule| LongUrl::parse(&rule.long_url, &[]).is_ok()));
}

/// Checks databases of locations: neither the check of a file nor a look-up in an accepted one panics.
pub(crate) fn check_geo(input: &[u8]) {
    let Ok(geo) = GeoDatabase::parse(input.to_vec()) else { return };
    let last = input.last_chunk::<16>().copied().unwrap_or_default();
    let addresses = ["0.0.0.0", "203.0.113.7", "::", "2001:db8::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"];
    let addresses = addresses.iter().filter_map(|text| text.parse().ok()).chain([IpAddr::from(last)]);
    for address in addresses {
        assert!(geo.location_of(address).is_none_or(|location| !location.is_empty()));
    }
}

/// The records of a backup.
type Records = Vec<(Section, Vec<u8>, Vec<u8>)>;

/// Checks backups: any bytes are a stream or an error, a stream is read as it was written, and no changed byte stays
/// unnoticed.
///
/// The input is the place of a changed byte, the change, and the records.
pub(crate) fn check_backup(input: &[u8]) {
    let _ = records_of(input);
    let [at, flip, rest @ ..] = input else { return };
    let mut writer = FrameWriter::begin(Vec::new()).expect("a buffer of memory");
    let mut records = Records::new();
    for (number, record) in rest.chunks(7).enumerate() {
        let section = Section::ALL[(number / 2).min(Section::ALL.len() - 1)];
        let (key, value) = record.split_at(record.len() / 2);
        writer.add(section, key, value).expect("a buffer of memory");
        records.push((section, key.to_vec(), value.to_vec()));
    }
    let mut stream = writer.end().expect("a buffer of memory");
    assert_eq!(records_of(&stream).expect("what was written"), records);
    if *flip != 0 {
        let at = usize::from(*at) * stream.len() / 256;
        stream[at] ^= flip;
        assert!(records_of(&stream).is_err(), "byte {at} was changed");
    }
}

fn records_of(stream: &[u8]) -> Result<Records, FrameError> {
    let mut reader = FrameReader::begin(stream)?;
    let mut records = Records::new();
    while reader.next_frame(|section, key, value| {
        records.push((section, key.to_vec(), value.to_vec()));
        Ok::<_, FrameError>(())
    })? {}
    Ok(records)
}
