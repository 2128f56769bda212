//! Small MaxMind databases (MMDB), written by hand: the search tree of IPv6 with IPv4 networks below `::/96`, and one
//! record for each network. The format is that of the specification of version 2.0.

use std::net::IpAddr;

/// A network with its location.
#[derive(Clone, Copy, Debug)]
pub struct MmdbNetwork<'a> {
    /// The first address.
    pub address: &'a str,
    /// The length of the prefix.
    pub bits: u8,
    /// The code and the name of the country.
    pub country: (&'a str, &'a str),
    /// The name of the city; empty for a network of a country.
    pub city: &'a str,
}

/// A child in the search tree.
#[derive(Clone, Copy)]
enum Child {
    Empty,
    Node(usize),
    /// An offset into the data section.
    Data(usize),
}

/// Returns a database of this type with these networks, which must not overlap.
///
/// # Panics
///
/// If a network is no network.
pub fn mmdb(kind: &str, networks: &[MmdbNetwork<'_>]) -> Vec<u8> {
    let (mut tree, mut data) = (vec![[Child::Empty; 2]], Vec::new());
    for network in networks {
        let (address, offset) = match network.address.parse().expect("an address") {
            IpAddr::V4(address) => (u128::from(u32::from(address)), 96),
            IpAddr::V6(address) => (u128::from(address), 0),
        };
        let record = Child::Data(data.len());
        push_record(network, &mut data);
        let (len, mut node) = (offset + u32::from(network.bits), 0);
        for depth in 0..len {
            let bit = (address >> (127 - depth) & 1) as usize;
            if depth + 1 == len {
                tree[node][bit] = record;
                break;
            }
            node = match tree[node][bit] {
                Child::Node(next) => next,
                Child::Empty | Child::Data(_) => {
                    tree.push([Child::Empty; 2]);
                    let next = tree.len() - 1;
                    tree[node][bit] = Child::Node(next);
                    next
                }
            };
        }
    }
    let mut out = Vec::new();
    for child in tree.iter().flatten() {
        let record = match child {
            Child::Empty => tree.len(),
            Child::Node(node) => *node,
            Child::Data(at) => tree.len() + 16 + at,
        };
        out.extend_from_slice(&(record as u32).to_be_bytes());
    }
    out.extend_from_slice(&[0; 16]);
    out.extend_from_slice(&data);
    push_metadata(kind, tree.len(), &mut out);
    out
}

fn push_record(network: &MmdbNetwork<'_>, out: &mut Vec<u8>) {
    let has_city = !network.city.is_empty();
    let names = |name: &str, out: &mut Vec<u8>| {
        push_text("names", out);
        push_map(2, out);
        push_text("de", out);
        push_text("(de)", out);
        push_text("en", out);
        push_text(name, out);
    };
    push_map(if has_city { 4 } else { 1 }, out);
    push_text("country", out);
    push_map(3, out);
    push_text("geoname_id", out);
    push_head(6, 4, out);
    out.extend_from_slice(&2_921_044_u32.to_be_bytes());
    push_text("iso_code", out);
    push_text(network.country.0, out);
    names(network.country.1, out);
    if !has_city {
        return;
    }
    push_text("city", out);
    push_map(1, out);
    names(network.city, out);
    push_text("subdivisions", out);
    push_head(11, 2, out);
    for region in ["Region", "District"] {
        push_map(1, out);
        names(region, out);
    }
    push_text("location", out);
    push_map(3, out);
    for (name, degrees) in [("latitude", 52.5_f64), ("longitude", -13.25)] {
        push_text(name, out);
        push_head(3, 8, out);
        out.extend_from_slice(&degrees.to_be_bytes());
    }
    push_text("time_zone", out);
    push_text("Europe/Berlin", out);
}

fn push_metadata(kind: &str, nodes: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"\xab\xcd\xefMaxMind.com");
    push_map(9, out);
    let numbers = [
        ("binary_format_major_version", 5, 2, 2),
        ("binary_format_minor_version", 5, 2, 0),
        ("build_epoch", 9, 8, 1_790_000_000),
        ("ip_version", 5, 2, 6),
        ("node_count", 6, 4, nodes as u64),
        ("record_size", 5, 2, 32),
    ];
    for (name, type_number, len, value) in numbers {
        push_text(name, out);
        push_head(type_number, len, out);
        out.extend_from_slice(&value.to_be_bytes()[8 - len..]);
    }
    push_text("database_type", out);
    push_text(kind, out);
    push_text("description", out);
    push_map(1, out);
    push_text("en", out);
    push_text("Locations for tests", out);
    push_text("languages", out);
    push_head(11, 1, out);
    push_text("en", out);
}

fn push_map(entries: usize, out: &mut Vec<u8>) {
    push_head(7, entries, out);
}

fn push_text(text: &str, out: &mut Vec<u8>) {
    push_head(2, text.len(), out);
    out.extend_from_slice(text.as_bytes());
}

/// Writes the type and the size of a value. Types above 7 are in a byte of their own.
fn push_head(type_number: u8, size: usize, out: &mut Vec<u8>) {
    assert!(size < 29, "longer values need more bytes for their size");
    let size = size as u8;
    match type_number {
        ..=7 => out.push(type_number << 5 | size),
        _ => out.extend_from_slice(&[size, type_number - 7]),
    }
}
