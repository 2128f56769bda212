//! Granted visits that a node leaves to the others when it stops, as bytes: what it knows of the grants of each limited link.
//!
//! A node that has stored them need not wait for the stopped one after Redis has lost grants ([`super::grants`]).

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;

use super::allowance::StoredAllowance;
use super::tally::{push_number, take_bytes, take_number};
use crate::link::LinkIdentity;

/// The granted visits of a link, as far as a stopped node knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LeftGrant {
    /// The code of the link.
    pub code: Code,
    /// The link.
    pub of: LinkIdentity,
    /// Visits that were granted to all nodes.
    pub taken: u64,
}

/// The allowance of a node after it has taken over a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenOver {
    /// The stored allowance has all visits of the grant.
    Unchanged,
    /// The allowance to store.
    Changed(StoredAllowance),
    /// The stored allowance is about another link with the code. One entry cannot have both.
    OtherLink,
}

impl LeftGrant {
    /// Returns the allowance of a node that takes the grant over. `stored` is its own one.
    pub fn merged(&self, stored: Option<StoredAllowance>) -> TakenOver {
        match stored {
            Some(stored) if stored.of != self.of => TakenOver::OtherLink,
            Some(stored) if stored.taken >= self.taken => TakenOver::Unchanged,
            stored => {
                let parked = stored.map_or(0, |stored| stored.parked);
                TakenOver::Changed(StoredAllowance { of: self.of, taken: self.taken, parked })
            }
        }
    }
}

/// Encodes grants.
pub fn encode(grants: &[LeftGrant]) -> Vec<u8> {
    let mut out = Vec::new();
    for LeftGrant { code, of, taken } in grants {
        let mut buffer = [0; CODE_KEY_LEN_MAX];
        let key = code.key(&mut buffer);
        push_number(key.len() as u64, &mut out);
        out.extend_from_slice(key);
        [of.created_ms, of.claim, *taken].into_iter().for_each(|number| push_number(number, &mut out));
    }
    out
}

/// Decodes grants from [`encode`]; `None` if they are malformed.
pub fn decode(mut bytes: &[u8]) -> Option<Vec<LeftGrant>> {
    let mut grants = Vec::new();
    while !bytes.is_empty() {
        let code = Code::from_key(take_bytes(&mut bytes)?).ok()?;
        let of = LinkIdentity { created_ms: take_number(&mut bytes)?, claim: take_number(&mut bytes)? };
        grants.push(LeftGrant { code, of, taken: take_number(&mut bytes)? });
    }
    Some(grants)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(code: &str, claim: u64, taken: u64) -> LeftGrant {
        let of = LinkIdentity { created_ms: 1_700_000_000_000, claim };
        LeftGrant { code: Code::parse(code.as_bytes()).unwrap(), of, taken }
    }

    #[test]
    fn grants_are_read_as_they_were_written() {
        let grants = [left("abc", u64::MAX, 40), left("defgh", 0, 0)];
        let bytes = encode(&grants);
        assert_eq!(decode(&bytes), Some(grants.to_vec()));
        assert_eq!(decode(b""), Some(Vec::new()));
        assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode(&[&bytes[..], &[9]].concat()), None);
    }

    #[test]
    fn higher_total_of_one_link_counts() {
        let grant = left("abc", 7, 40);
        let stored = |claim: u64, taken: u64| {
            let of = LinkIdentity { claim, ..grant.of };
            StoredAllowance { of, taken, parked: 3 }
        };
        assert_eq!(grant.merged(None), TakenOver::Changed(StoredAllowance { parked: 0, ..stored(7, 40) }));
        assert_eq!(grant.merged(Some(stored(7, 39))), TakenOver::Changed(stored(7, 40)));
        assert_eq!(grant.merged(Some(stored(7, 41))), TakenOver::Unchanged);
        assert_eq!(grant.merged(Some(stored(8, 1))), TakenOver::OtherLink);
    }
}
