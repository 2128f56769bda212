//! The domains that have links, served or not.

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use carom_model::domains::DomainName;
use carom_model::link::record::{self, RecordRef};
use carom_model::query::{domain_index_key, domain_index_range};
use carom_store::links::StoreError;
use carom_store::links::catalog::{IndexKind, View, place_of};

/// Largest number of domains that are returned.
const DOMAINS_MAX: usize = 1_000;

/// Entries of a domain that are tried until one has a link from which to read the name.
const ENTRIES_MAX: usize = 16;

/// Returns the domains that have links, except the default one. Skips through the index with one seek for each domain,
/// instead of scanning it.
///
/// # Errors
/// If the index cannot be read.
pub(super) fn with_links(view: &View) -> Result<Vec<DomainName>, StoreError> {
    let (mut from, to) = domain_index_range();
    let mut found = Vec::new();
    while found.len() < DOMAINS_MAX {
        let mut domain = None;
        for key in view.keys(IndexKind::Tags, from.as_bytes(), to.as_bytes()).take(ENTRIES_MAX) {
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
        // The next seek begins after all entries of this domain: the mark of a tag is the highest byte that follows its
        // name.
        from = domain_index_key(domain) + "\u{ff}";
    }
    Ok(found)
}

/// Returns the code in a key of the index.
fn code_of(key: &[u8]) -> Option<Code> {
    let end_of_tag = memchr::memchr(0, key)?;
    place_of(key, end_of_tag + 1).map(|place| place.code)
}

/// Returns the domain name that the record of a link has; `None` if there is no such record, or if it is damaged.
///
/// # Errors
/// If the record cannot be read.
fn name_of(view: &View, code: &Code) -> Result<Option<DomainName>, StoreError> {
    let stored = match view.get(code) {
        Ok(Some(stored)) => stored,
        Ok(None) | Err(StoreError::Damaged(_)) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &stored) {
        Ok(RecordRef::Link(link)) => link.domain.and_then(DomainName::from_normal),
        Ok(RecordRef::Tombstone(_)) | Err(_) => None,
    })
}
