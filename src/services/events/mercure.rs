//! The sink that publishes events to a Mercure hub, with Shlink's topics and payloads.

use form_urlencoded::Serializer;
use serde_json::json;

use super::http_client::EventHttpClient;
use super::render::RenderedEvent;
use super::sink::{Sink, SinkFailure};
use carom_telemetry::clock::unix_ms;
use carom_telemetry::stats::{NodeStats, SinkStats};
use carom_tls::json_web_token;

/// Lifetime of a token, in seconds, as in Shlink. Each batch gets a new one.
const TOKEN_SECONDS: u64 = 600;

/// A Mercure hub. The `Debug` form hides the secret.
pub struct MercureTerms {
    /// The address to publish to.
    pub url: String,
    /// The key of the tokens.
    pub secret: String,
}

impl std::fmt::Debug for MercureTerms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MercureTerms")
    }
}

/// A Mercure hub.
pub(super) struct Mercure {
    client: EventHttpClient,
    secret: String,
}

impl Mercure {
    pub(super) fn new(terms: MercureTerms) -> Mercure {
        Mercure { client: EventHttpClient::new(&terms.url, true), secret: terms.secret }
    }

    /// Returns the token of a publisher.
    fn token(&self) -> String {
        let seconds = unix_ms() / 1_000;
        let claims = json!({
            "iss": "carom",
            "iat": seconds,
            "exp": seconds + TOKEN_SECONDS,
            "mercure": { "publish": ["*"] },
        });
        json_web_token(self.secret.as_bytes(), &claims.to_string())
    }
}

/// Returns an update: its first topic is the canonical one. It has no type, as in Shlink: browsers pass an update with a
/// type to listeners for that type alone, and Shlink's web client listens for plain messages.
fn update(event: &RenderedEvent) -> String {
    let mut form = Serializer::new(String::new());
    for topic in &event.topics {
        form.append_pair("topic", topic);
    }
    form.append_pair("data", &event.data.to_string());
    form.append_pair("id", &format!("urn:carom:event:{}", event.id));
    form.finish()
}

impl Sink for Mercure {
    const NAME: &'static str = "mercure";

    fn stats(stats: &NodeStats) -> &SinkStats {
        &stats.events.mercure
    }

    fn deliver(&mut self, events: &[RenderedEvent]) -> (usize, Result<(), SinkFailure>) {
        let bearer = format!("Bearer {}", self.token());
        for (delivered, event) in events.iter().enumerate() {
            let kind = "application/x-www-form-urlencoded";
            if let Err(failure) = self.client.post(kind, &[("Authorization", &bearer)], update(event).as_bytes()) {
                return (delivered, Err(failure));
            }
        }
        (events.len(), Ok(()))
    }
}
