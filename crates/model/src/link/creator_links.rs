//! The addresses of result pages, which show the visits of a link to the person who created it by hand.
//!
//! An address contains a token that only the code secret can produce, so a code alone does not reveal the page. All
//! nodes that share a code space share the secret, and nothing needs to be stored: an address is valid as long as its
//! link.

use carom_shards::CodeSecret;
use carom_shards::code::CODE_KEY_LEN_MAX;
use subtle::ConstantTimeEq;

use crate::link::Link;

/// Purpose of the token, which separates it from all other uses of the code secret.
const PURPOSE: &str = "receipt of a link";

/// Creates and verifies the addresses of result pages.
#[derive(Debug)]
pub struct CreatorLinks(CodeSecret);

impl CreatorLinks {
    /// Creates addresses for a code space.
    pub fn new(key: CodeSecret) -> CreatorLinks {
        CreatorLinks(key)
    }

    /// Returns the path for a link, at its own domain. The token is in the query, which access logs leave out.
    pub fn path(&self, link: &Link) -> String {
        let slug = link.code.as_slug().to_string().replace('/', "%2F");
        format!("/-/links/{slug}?mark={}", self.token(link))
    }

    /// True if a token belongs to a link. A later link with the same slug has another token.
    pub fn holds(&self, link: &Link, token: Option<&str>) -> bool {
        self.token(link).as_bytes().ct_eq(token.unwrap_or_default().as_bytes()).into()
    }

    fn token(&self, link: &Link) -> String {
        let message = [&link.created_ms.to_le_bytes(), link.code.key(&mut [0; CODE_KEY_LEN_MAX])].concat();
        self.0.mark(PURPOSE, &message)
    }
}
