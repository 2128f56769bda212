//! Certificates: those that carom presents to its clients, and those that it trusts when it connects to others.
//!
//! This crate and the TLS session of the HTTP machine are the places that name `rustls`. It takes files as text and
//! returns immutable configurations. It reads no clock and opens no socket.
//!
//! Read first: [`identity::TlsIdentity`], the certificates of a listener and the rule that picks one;
//! [`trust::client`], the configuration of an outgoing connection.

pub mod identity;
pub mod trust;

use std::sync::Arc;

use aws_lc_rs::hmac;
use rustls::crypto::CryptoProvider;

/// Returns the HMAC-SHA1 of a message, which Apollo signs requests with (RFC 2104).
pub fn hmac_sha1(key: &[u8], message: &[u8]) -> [u8; 20] {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let tag = hmac::sign(&key, message);
    tag.as_ref().try_into().expect("SHA-1 has 20 bytes")
}

/// The cryptography of every TLS session of carom: aws-lc-rs.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 2202, test case 2.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let tag = hmac_sha1(b"Jefe", b"what do ya want for nothing?");
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    }
}
