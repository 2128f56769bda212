//! Starts the event log and its sinks.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use carom_model::domains::Domains;
use carom_settings::events::{RabbitSettings, RedisSinkSettings, SecretSource};
use carom_settings::exit::{Exit, Reason};
use carom_settings::{AmqpUrl, Settings};
use carom_tls::trust;

use super::base::Base;
use super::supervisor::{StopPhase, Supervisor, thread_exit};
use crate::api::{MercureHub, describe_link, describe_visit};
use crate::bridge::ListQueues;
use crate::services::events::render::{Describe, Renderer};
use crate::services::events::{
    self, BrokerAddress, EventSetup, MercureTerms, RabbitTerms, RedisStreamTerms, StartedEvents, WebhookTerms,
};
use crate::services::visits::VisitReader;
use crate::startup::redis::client_settings;

/// Shortest key of signatures in a file, in bytes.
const SECRET_LEN_MIN: usize = 8;

/// Shortest password in a file, in bytes. Somebody else may have chosen it.
const PASSWORD_LEN_MIN: usize = 1;

/// Starts the event log and its sinks, unless events are off, and passes the queue of requests to the lists.
/// Returns the Mercure hub that clients may subscribe to.
///
/// # Errors
/// If a secret or the log cannot be read, or the operating system refuses a thread.
pub(super) fn start(
    settings: &Settings,
    base: &Base,
    domains: &Arc<Domains>,
    (lists, visits): (&mut ListQueues, &VisitReader),
    supervisor: &mut Supervisor,
) -> Result<Option<MercureHub>, Exit> {
    let Some(log) = base.links.events() else { return Ok(None) };
    let sinks = &settings.events.sinks;
    let webhook = match &sinks.webhook {
        Some(webhook) => {
            let secret = secret(&webhook.secret, "events.webhook_secret_file", SECRET_LEN_MIN)?;
            Some(WebhookTerms { url: webhook.url.clone(), secret, private: webhook.private })
        }
        None => None,
    };
    let (mercure, hub) = match &sinks.mercure {
        Some(mercure) => {
            let secret = secret(&mercure.secret, "events.mercure_secret_file", SECRET_LEN_MIN)?;
            let hub = MercureHub { public_url: mercure.public_url.clone(), secret: secret.clone() };
            (Some(MercureTerms { url: mercure.url.clone(), secret }), Some(hub))
        }
        None => (None, None),
    };
    let rabbitmq = sinks.rabbitmq.as_ref().map(rabbit_terms).transpose()?;
    let renderer = Renderer {
        log: log.clone(),
        links: base.links.clone(),
        visits: visits.clone(),
        domains: Arc::clone(domains),
        describe: Describe { link: describe_link, visit: describe_visit },
    };
    base.stats.events.is_on.store(true, Ordering::Release);
    let started = events::start(EventSetup {
        log: log.clone(),
        links: base.links.clone(),
        renderer,
        keep: settings.events.keep,
        keep_bytes: settings.events.keep_bytes,
        mailboxes: base.mailboxes.clone(),
        stats: Arc::clone(&base.stats),
        webhook,
        redis: sinks.redis.as_ref().map(redis_terms),
        rabbitmq,
        mercure,
    })
    .map_err(|error| thread_exit("the event log", &error))?;
    let StartedEvents { queue, reader, sinks } = started;
    supervisor.register_threads(StopPhase::Queues, "event reader", vec![reader]);
    supervisor.register(StopPhase::Upkeep, "event sinks", move || sinks.stop());
    lists.events = Some(queue);
    Ok(hub)
}

fn redis_terms(settings: &RedisSinkSettings) -> RedisStreamTerms {
    RedisStreamTerms {
        client: client_settings(&settings.url, settings.password.as_ref(), None),
        stream: settings.stream.clone(),
        entries: settings.entries,
    }
}

/// Returns the address and the login of RabbitMQ.
///
/// # Errors
/// If the file with the password or the one with the certificates cannot be read.
fn rabbit_terms(settings: &RabbitSettings) -> Result<RabbitTerms, Exit> {
    let RabbitSettings { url, password, ca_file, exchange, mandatory } = settings;
    let password = match (&url.password, password) {
        (Some(password), _) => password.0.clone(),
        (None, Some(source)) => secret(source, "events.rabbitmq_password_file", PASSWORD_LEN_MIN)?,
        (None, None) => AmqpUrl::GUEST.to_owned(),
    };
    let tls = if url.tls {
        let unusable = |error: String| {
            Exit::new(Reason::Usage, format!("events.rabbitmq_ca_file: {error}"))
                .with_remedy("name a file with the CA certificates of RabbitMQ in PEM")
        };
        Some(trust::client(ca_file.as_deref()).map_err(unusable)?)
    } else {
        None
    };
    Ok(RabbitTerms {
        address: BrokerAddress { host: url.host.clone(), port: url.port, tls },
        user: url.user.clone(),
        password,
        vhost: url.vhost.clone(),
        exchange: exchange.clone(),
        mandatory: *mandatory,
    })
}

/// Returns a secret from its source.
///
/// # Errors
/// If its file cannot be read, or has fewer than `least` bytes. `name` is the setting of the file.
fn secret(source: &SecretSource, name: &str, least: usize) -> Result<String, Exit> {
    let path = match source {
        SecretSource::Given(secret) => return Ok(secret.0.clone()),
        SecretSource::File(path) => path,
    };
    let wrong = |why: &str| {
        let what = format!("{name}: {}: {why}", path.display());
        let length = if least > 1 { format!(", of at least {least} characters,") } else { String::new() };
        Exit::new(Reason::Usage, what).with_remedy(format!("write the secret{length} into this file"))
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
    match text.trim() {
        text if text.len() >= least => Ok(text.to_owned()),
        "" => Err(wrong("the file is empty")),
        _ => Err(wrong("the secret is too short")),
    }
}
