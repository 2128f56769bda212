//! Under which domains links stand, whether these are served or not.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use carom_model::domains::DomainName;
use carom_model::link::record::{self, RecordRef};
use carom_model::query::{domain_shelf, domain_shelves};
use carom_store::links::StoreError;
use carom_store::links::catalog::{Shelf, View, place_of};

/// Domains that are told: more are not to be expected.
const DOMAINS_MAX: usize = 1_000;

/// Entries of a domain that are looked at for one whose link is still there.
const ENTRIES_MAX: usize = 16;

/// The domains that have links, besides the default one. The index is not gone through, but entered once for each.
///
/// # Errors
/// Where it cannot be read.
pub(super) fn with_links(view: &View) -> Result<Vec<DomainName>, StoreError> {
    let (mut from, to) = domain_shelves();
    let mut found = Vec::new();
    while found.len() < DOMAINS_MAX {
        let mut domain = None;
        for key in view.keys(Shelf::Tags, from.as_bytes(), to.as_bytes()).take(ENTRIES_MAX) {
            let Some(code) = code_of(&key?) else { continue };
            let of_code = code.domain();
            if domain.is_some() && domain != of_code {
                break;
            }
            domain = of_code;
            if let Some(name) = name_of(view, &code)? {
                found.push(name);
                break;
            }
        }
        let Some(domain) = domain else { break };
        // Behind all that stands under it: the mark of a tag is the highest byte that follows.
        from = domain_shelf(domain) + "\u{ff}";
    }
    Ok(found)
}

/// The code in a key of the index.
fn code_of(key: &[u8]) -> Option<Code> {
    let end_of_tag = memchr::memchr(0, key)?;
    place_of(key, end_of_tag + 1).map(|place| place.code)
}

/// What the domain of a link is called.
fn name_of(view: &View, code: &Code) -> Result<Option<DomainName>, StoreError> {
    let Some(stored) = view.get(code)? else { return Ok(None) };
    Ok(match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored) {
        Ok(RecordRef::Link(link)) => link.domain.and_then(|name| DomainName::parse(name).ok()),
        Ok(RecordRef::Tombstone(_)) | Err(_) => None,
    })
}
