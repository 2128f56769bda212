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

use rustls::crypto::CryptoProvider;

/// The cryptography of every TLS session of carom: aws-lc-rs.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
