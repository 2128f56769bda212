//! The sink that sends batches of events to an HTTP address, signed.

use data_encoding::HEXLOWER;
use serde_json::{Value, json};

use super::http_client::EventHttpClient;
use super::render::RenderedEvent;
use super::sink::{Sink, SinkFailure};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::{NodeStats, SinkStats};
use carom_tls::hmac_sha256;

/// The address of a webhook, and the secret that signs its requests. The `Debug` form hides the address and the secret.
pub struct WebhookTerms {
    /// The address.
    pub url: String,
    /// The key of the signatures.
    pub secret: String,
    /// True if the receiver may be in a private network or on this machine.
    pub private: bool,
}

impl std::fmt::Debug for WebhookTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookTerms")
    }
}

/// A sink that posts events to a URL.
pub(super) struct Webhook {
    client: EventHttpClient,
    secret: String,
}

impl Webhook {
    pub(super) fn new(terms: WebhookTerms) -> Webhook {
        let WebhookTerms { url, secret, private } = terms;
        Webhook { client: EventHttpClient::new(&url, private), secret }
    }
}

impl Sink for Webhook {
    const NAME: &'static str = "webhook";

    fn stats(stats: &NodeStats) -> &SinkStats {
        &stats.events.webhook
    }

    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>) {
        let events_json: Vec<Value> = events.iter().map(RenderedEvent::envelope).collect();
        let body = json!({ "events": events_json }).to_string();
        let signature = signature(&self.secret, unix_ms() / 1_000, &body);
        let result = self.client.post("application/json", &[("Carom-Signature", &signature)], body.as_bytes());
        (if result.is_ok() { events.len() } else { 0 }, result)
    }
}

/// Returns the signature of a body that is sent at an instant, in seconds since 1970 UTC.
fn signature(secret: &str, seconds: u64, body: &str) -> String {
    let signed = format!("{seconds}.{body}");
    format!("t={seconds},v1={}", HEXLOWER.encode(&hmac_sha256(secret.as_bytes(), signed.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_covers_time_and_body() {
        // As `printf '%s' '1700000000.{}' | openssl dgst -sha256 -hmac secret-key` says it.
        let signed = signature("secret-key", 1_700_000_000, "{}");
        assert!(signed.starts_with("t=1700000000,v1="), "{signed}");
        assert!(signed.len() == "t=1700000000,v1=".len() + 64, "{signed}");
        assert_ne!(signed, signature("secret-key", 1_700_000_001, "{}").replace("0001", "0000"));
        assert_ne!(signed, signature("secret-key", 1_700_000_000, "[]"));
        assert_ne!(signed, signature("other-key", 1_700_000_000, "{}"));
    }
}
