//! The address under which a page tells how often a link is followed, for whoever has made the link by hand.
//!
//! It holds a mark that only the space key can make, so that who knows a code alone does not come upon it. All nodes that share
//! a code space share the key, and nothing must be kept: an address holds as long as its link.

use carom_shards::SpaceKey;
use carom_shards::code::CODE_KEY_LEN_MAX;
use subtle::ConstantTimeEq;

use crate::link::Link;

/// What the mark is for; nothing else that the key marks has this purpose.
const PURPOSE: &str = "receipt of a link";

/// Who makes addresses, and knows them again.
#[derive(Debug)]
pub struct Receipts(SpaceKey);

impl Receipts {
    /// Those of a code space.
    pub fn new(key: SpaceKey) -> Receipts {
        Receipts(key)
    }

    /// The path for a link, at its own domain. The mark stands in the query, which no access log has.
    pub fn path(&self, link: &Link) -> String {
        format!("/-/links/{}?mark={}", link.code.as_slug(), self.mark(link))
    }

    /// Whether a mark is that of a link. Another link that has its slug later has another one.
    pub fn holds(&self, link: &Link, mark: Option<&str>) -> bool {
        self.mark(link).as_bytes().ct_eq(mark.unwrap_or_default().as_bytes()).into()
    }

    fn mark(&self, link: &Link) -> String {
        let message = [&link.created_ms.to_le_bytes(), link.code.key(&mut [0; CODE_KEY_LEN_MAX])].concat();
        self.0.mark(PURPOSE, &message)
    }
}
