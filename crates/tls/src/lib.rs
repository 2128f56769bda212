//! Certificates: those that carom presents to its clients, and those that it trusts when it connects to others. Beside
//! them, the signatures of requests that carom sends: HMAC and JSON web tokens.
//!
//! This crate is the only one that names `aws_lc_rs`. Besides it, the TLS session of the HTTP machine, the client of
//! Redis and that of message brokers name `rustls`. It takes files as text and returns immutable configurations. It
//! reads no clock and opens no socket.
//!
//! Read first: [`identity::TlsIdentity`], the certificates of a listener and the rule that picks one;
//! [`trust::client`], the configuration of an outgoing connection.

pub mod identity;
pub mod trust;

use std::sync::Arc;

use aws_lc_rs::hmac;
use data_encoding::BASE64URL_NOPAD;
use rustls::crypto::CryptoProvider;

/// Returns the HMAC-SHA1 of a message, which Apollo signs requests with (RFC 2104).
pub fn hmac_sha1(key: &[u8], message: &[u8]) -> [u8; 20] {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key);
    let tag = hmac::sign(&key, message);
    tag.as_ref().try_into().expect("SHA-1 has 20 bytes")
}

/// Returns the HMAC-SHA256 of a message, with which requests to webhooks and tokens for Mercure are signed (RFC 2104).
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Returns a JSON web token with these claims, signed with HMAC-SHA256 (RFC 7519).
pub fn json_web_token(key: &[u8], claims: &str) -> String {
    let head = BASE64URL_NOPAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", BASE64URL_NOPAD.encode(claims.as_bytes()));
    let signature = BASE64URL_NOPAD.encode(&hmac_sha256(key, signed.as_bytes()));
    format!("{signed}.{signature}")
}

/// The cryptography of every TLS session of carom: aws-lc-rs.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231, test case 2.
    #[test]
    fn longer_signatures_are_those_of_the_standard() {
        let tag = hmac_sha256(b"Jefe", b"what do ya want for nothing?");
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }

    #[test]
    fn tokens_are_those_of_other_programs() {
        let token =
            json_web_token(b"your-256-bit-secret", r#"{"sub":"1234567890","name":"John Doe","iat":1516239022}"#);
        let claims = "eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ";
        let signature = "SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
        assert_eq!(token, format!("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.{claims}.{signature}"));
    }

    /// RFC 2202, test case 2.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let tag = hmac_sha1(b"Jefe", b"what do ya want for nothing?");
        let hex: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
    }
}
