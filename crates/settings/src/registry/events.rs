//! The table `events`: the event log, and the sinks that deliver it.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;
use crate::settings::Settings;
use crate::settings::events::{MercureSettings, RabbitSettings, RedisSinkSettings, SecretSource, WebhookSettings};
use crate::value::redis_url::RedisUrl;
use crate::value::urls::AmqpUrl;

pub(crate) const EVENTS: [Setting; 22] = [
    Setting {
        key: Key::EventsLog,
        name: "events.log",
        env: "CAROM_EVENTS_LOG",
        flag: None,
        kind: "on or off",
        default: Some("off"),
        secret: false,
        doc: "Keep an event log: links created, changed and deleted, and visits. `GET /rest/v3/events` reads it, and sinks deliver it.",
        show: |settings| Shown::text(on_or_off(settings.events.is_on)),
    },
    Setting {
        key: Key::EventsVisits,
        name: "events.visits",
        env: "CAROM_EVENTS_VISITS",
        flag: None,
        kind: "on or off",
        default: Some("off"),
        secret: false,
        doc: "Visits are events, too. Needs visits.log.",
        show: |settings| Shown::text(on_or_off(settings.events.visits)),
    },
    Setting {
        key: Key::EventsKeep,
        name: "events.keep",
        env: "CAROM_EVENTS_KEEP",
        flag: None,
        kind: "a time such as 30d, or forever",
        default: Some("7d"),
        secret: false,
        doc: "How long an event is kept, also if a sink has not delivered it.",
        show: |settings| Shown::time_or("forever", settings.events.keep),
    },
    Setting {
        key: Key::EventsKeepBytes,
        name: "events.keep_bytes",
        env: "CAROM_EVENTS_KEEP_BYTES",
        flag: None,
        kind: "a size such as 1GiB",
        default: Some("256MiB"),
        secret: false,
        doc: "Size of the event log on disk above which the oldest events are removed, at least 32 MiB.",
        show: |settings| Shown::size(settings.events.keep_bytes),
    },
    Setting {
        key: Key::EventsWebhookUrl,
        name: "events.webhook_url",
        env: "CAROM_EVENTS_WEBHOOK_URL",
        flag: None,
        kind: "an http:// or https:// URL",
        default: None,
        secret: false,
        doc: "Address that gets events as batches of JSON.",
        show: |settings| Shown::url(webhook(settings).map(|webhook| webhook.url.as_str())),
    },
    Setting {
        key: Key::EventsWebhookSecret,
        name: "events.webhook_secret",
        env: "CAROM_EVENTS_WEBHOOK_SECRET",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Secret with which requests to the webhook are signed, at least 8 characters.",
        show: |settings| Shown::secret(webhook(settings).map(|webhook| &webhook.secret)),
    },
    Setting {
        key: Key::EventsWebhookSecretFile,
        name: "events.webhook_secret_file",
        env: "CAROM_EVENTS_WEBHOOK_SECRET_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "File with the secret of the webhook, instead of the environment variable.",
        show: |settings| Shown::secret_file(webhook(settings).map(|webhook| &webhook.secret)),
    },
    Setting {
        key: Key::EventsWebhookPrivate,
        name: "events.webhook_private",
        env: "CAROM_EVENTS_WEBHOOK_PRIVATE",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Allow a webhook on this machine or in a private network. Otherwise, such addresses are refused, also if a public name leads there.",
        show: |settings| Shown::plain(webhook(settings).is_some_and(|webhook| webhook.private)),
    },
    Setting {
        key: Key::EventsRedisUrl,
        name: "events.redis_url",
        env: "CAROM_EVENTS_REDIS_URL",
        flag: None,
        kind: "a URL such as redis://127.0.0.1:6379",
        default: None,
        secret: false,
        doc: "Redis servers with a stream that gets events; the same forms as redis.",
        show: |settings| Shown::redis(redis(settings).map(|redis| &redis.url)),
    },
    Setting {
        key: Key::EventsRedisPassword,
        name: "events.redis_password",
        env: "CAROM_EVENTS_REDIS_PASSWORD",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Password for these servers, unless the URL contains one.",
        show: |settings| {
            if redis(settings).is_some_and(|redis| redis.password.is_some()) { Shown::Hidden } else { Shown::Unset }
        },
    },
    Setting {
        key: Key::EventsRedisStream,
        name: "events.redis_stream",
        env: "CAROM_EVENTS_REDIS_STREAM",
        flag: None,
        kind: "the key of a stream",
        default: Some("carom:events"),
        secret: false,
        doc: "Key of the stream.",
        show: |settings| Shown::text(redis(settings).map_or("carom:events", |redis| redis.stream.as_str())),
    },
    Setting {
        key: Key::EventsRedisEntries,
        name: "events.redis_entries",
        env: "CAROM_EVENTS_REDIS_ENTRIES",
        flag: None,
        kind: "100 to 1000000000",
        default: Some("100000"),
        secret: false,
        doc: "Approximate number of entries that the stream keeps.",
        show: |settings| Shown::plain(redis(settings).map_or(100_000, |redis| redis.entries)),
    },
    Setting {
        key: Key::EventsRabbitmqUrl,
        name: "events.rabbitmq_url",
        env: "CAROM_EVENTS_RABBITMQ_URL",
        flag: None,
        kind: "a URL such as amqp://carom@127.0.0.1:5672/VHOST",
        default: None,
        secret: false,
        doc: "RabbitMQ server that gets events through a topic exchange. amqps:// uses TLS. Defaults: the user guest, and the virtual host /.",
        show: |settings| Shown::rabbitmq(rabbitmq(settings).map(|rabbit| &rabbit.url)),
    },
    Setting {
        key: Key::EventsRabbitmqPassword,
        name: "events.rabbitmq_password",
        env: "CAROM_EVENTS_RABBITMQ_PASSWORD",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Password for RabbitMQ, unless the URL contains one.",
        show: |settings| Shown::secret(rabbitmq(settings).and_then(|rabbit| rabbit.password.as_ref())),
    },
    Setting {
        key: Key::EventsRabbitmqPasswordFile,
        name: "events.rabbitmq_password_file",
        env: "CAROM_EVENTS_RABBITMQ_PASSWORD_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "File with the password for RabbitMQ, instead of the environment variable.",
        show: |settings| Shown::secret_file(rabbitmq(settings).and_then(|rabbit| rabbit.password.as_ref())),
    },
    Setting {
        key: Key::EventsRabbitmqCaFile,
        name: "events.rabbitmq_ca_file",
        env: "CAROM_EVENTS_RABBITMQ_CA_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "CA certificates to trust for amqps://, in PEM. If not set, the CA certificates of the system.",
        show: |settings| {
            Shown::optional(rabbitmq(settings).and_then(|rabbit| Some(rabbit.ca_file.as_ref()?.display())))
        },
    },
    Setting {
        key: Key::EventsRabbitmqExchange,
        name: "events.rabbitmq_exchange",
        env: "CAROM_EVENTS_RABBITMQ_EXCHANGE",
        flag: None,
        kind: "the name of an exchange",
        default: Some("carom.events"),
        secret: false,
        doc: "Durable topic exchange that gets events. carom creates it if necessary.",
        show: |settings| Shown::text(rabbitmq(settings).map_or("carom.events", |rabbit| rabbit.exchange.as_str())),
    },
    Setting {
        key: Key::EventsRabbitmqMandatory,
        name: "events.rabbitmq_mandatory",
        env: "CAROM_EVENTS_RABBITMQ_MANDATORY",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Keep an event, and all later ones, until a queue is bound for it. If false, RabbitMQ drops an event without a bound queue.",
        show: |settings| Shown::plain(rabbitmq(settings).is_some_and(|rabbit| rabbit.mandatory)),
    },
    Setting {
        key: Key::EventsMercureUrl,
        name: "events.mercure_url",
        env: "CAROM_EVENTS_MERCURE_URL",
        flag: None,
        kind: "an http:// or https:// URL",
        default: None,
        secret: false,
        doc: "Mercure hub that gets events, such as http://127.0.0.1:3000/.well-known/mercure.",
        show: |settings| Shown::url(mercure(settings).map(|mercure| mercure.url.as_str())),
    },
    Setting {
        key: Key::EventsMercurePublicUrl,
        name: "events.mercure_public_url",
        env: "CAROM_EVENTS_MERCURE_PUBLIC_URL",
        flag: None,
        kind: "an http:// or https:// URL",
        default: None,
        secret: false,
        doc: "Address of the hub for browsers, if it differs.",
        show: |settings| {
            Shown::optional(
                mercure(settings)
                    .filter(|mercure| mercure.public_url != mercure.url)
                    .map(|mercure| &mercure.public_url),
            )
        },
    },
    Setting {
        key: Key::EventsMercureSecret,
        name: "events.mercure_secret",
        env: "CAROM_EVENTS_MERCURE_SECRET",
        flag: None,
        kind: "text",
        default: None,
        secret: true,
        doc: "Secret with which tokens for the hub are signed (HS256), at least 8 characters.",
        show: |settings| Shown::secret(mercure(settings).map(|mercure| &mercure.secret)),
    },
    Setting {
        key: Key::EventsMercureSecretFile,
        name: "events.mercure_secret_file",
        env: "CAROM_EVENTS_MERCURE_SECRET_FILE",
        flag: None,
        kind: "a file",
        default: None,
        secret: false,
        doc: "File with the secret of the hub, instead of the environment variable.",
        show: |settings| Shown::secret_file(mercure(settings).map(|mercure| &mercure.secret)),
    },
];

fn on_or_off(is_on: bool) -> &'static str {
    if is_on { "on" } else { "off" }
}

fn webhook(settings: &Settings) -> Option<&WebhookSettings> {
    settings.events.sinks.webhook.as_ref()
}

fn redis(settings: &Settings) -> Option<&RedisSinkSettings> {
    settings.events.sinks.redis.as_ref()
}

fn rabbitmq(settings: &Settings) -> Option<&RabbitSettings> {
    settings.events.sinks.rabbitmq.as_ref()
}

fn mercure(settings: &Settings) -> Option<&MercureSettings> {
    settings.events.sinks.mercure.as_ref()
}

impl Shown {
    fn redis(url: Option<&RedisUrl>) -> Shown {
        match url {
            Some(url) if url.has_password() => Shown::Note(format!("\"{url}\""), "password hidden".to_owned()),
            Some(url) => Shown::text(url),
            None => Shown::Unset,
        }
    }

    fn rabbitmq(url: Option<&AmqpUrl>) -> Shown {
        match url {
            Some(url) if url.password.is_some() => Shown::Note(format!("\"{url}\""), "password hidden".to_owned()),
            url => Shown::optional(url),
        }
    }

    /// Shows a URL. Its query may contain a secret.
    fn url(url: Option<&str>) -> Shown {
        if url.is_some_and(|url| url.contains('?')) { Shown::Hidden } else { Shown::optional(url) }
    }

    fn secret(source: Option<&SecretSource>) -> Shown {
        if matches!(source, Some(SecretSource::Given(_))) { Shown::Hidden } else { Shown::Unset }
    }

    fn secret_file(source: Option<&SecretSource>) -> Shown {
        match source {
            Some(SecretSource::File(path)) => Shown::text(path.display()),
            _ => Shown::Unset,
        }
    }
}
