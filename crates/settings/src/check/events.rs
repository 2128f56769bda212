//! The checks of events and of the sinks that deliver them.

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, SettingsProblem, Warning};
use crate::registry::EVENTS;
use crate::settings::events::{
    EventSettings, MercureSettings, RabbitSettings, RedisSinkSettings, SecretSource, SinkSettings, WebhookSettings,
};
use crate::value::redis_url;
use crate::value::secret::Secret;
use crate::value::urls::AmqpUrl;
use crate::value::{self, Written, one_of, quantities, urls};

/// Smallest size of the event log, in bytes: old events leave the disk by a few megabytes at a time.
const KEEP_BYTES_MIN: u64 = 32 << 20;

impl Checker<'_> {
    /// Returns the settings of events; `None` if one of them is invalid.
    pub(super) fn events(&mut self) -> Option<EventSettings> {
        let on_or_off =
            |written: &Written| one_of(written, "on or off", &[true, false], |is_on| if is_on { "on" } else { "off" });
        let is_on = self.one(Key::EventsLog, on_or_off);
        let visits = self.one(Key::EventsVisits, on_or_off);
        let keep = self.one(Key::EventsKeep, quantities::time_or_forever);
        let keep_bytes = self.one(Key::EventsKeepBytes, |written| quantities::size(written, KEEP_BYTES_MIN));
        let sinks = SinkSettings {
            webhook: self.webhook(),
            redis: self.redis_sink(),
            rabbitmq: self.rabbitmq(),
            mercure: self.mercure(),
        };
        self.warn_of_events(is_on);
        Some(EventSettings { is_on: is_on?, visits: visits?, keep: keep?, keep_bytes: keep_bytes?, sinks })
    }

    /// Warns of settings that have no effect: without the log, and of sinks without an address.
    fn warn_of_events(&mut self, is_on: Option<bool>) {
        for row in EVENTS {
            let sink = SINKS.iter().find(|(prefix, _)| row.name.starts_with(prefix));
            let missing = match sink {
                _ if row.key == Key::EventsLog || !self.is_set(row.key) => continue,
                _ if is_on == Some(false) => "events.log is off".to_owned(),
                Some((_, url)) if !self.is_set(*url) => format!("{} is not set", url.setting().name),
                _ => continue,
            };
            self.warnings.push(Warning(format!("{} has no effect, because {missing}", row.name)));
        }
    }

    /// Checks that visits are logged if they are events.
    pub(super) fn events_of_visits(&mut self, events: Option<&EventSettings>, logs_visits: Option<bool>) {
        if events.is_some_and(|events| events.is_on && events.visits) && logs_visits == Some(false) {
            let right = "set visits.log to on, or remove this setting";
            self.wrong(Key::EventsVisits, InvalidValue::new("needs visits.log, which is off", right));
        }
    }

    fn webhook(&mut self) -> Option<WebhookSettings> {
        let url = self.one(Key::EventsWebhookUrl, urls::http_url);
        let private = self.one(Key::EventsWebhookPrivate, value::boolean);
        let keys = (Key::EventsWebhookUrl, Key::EventsWebhookSecret, Key::EventsWebhookSecretFile);
        let secret = self.sink_secret(keys);
        Some(WebhookSettings { url: url?, secret: secret?, private: private? })
    }

    fn redis_sink(&mut self) -> Option<RedisSinkSettings> {
        let url = self.one(Key::EventsRedisUrl, redis_url::url);
        let password = self.secret(Key::EventsRedisPassword);
        if url.as_ref().is_some_and(|url| url.password.is_some()) && password.is_some() {
            let wrong = InvalidValue::new("is set, but the Redis URL also contains a password", "keep one of the two");
            self.wrong(Key::EventsRedisPassword, wrong);
        }
        let stream = self.one(Key::EventsRedisStream, |written| name(written, "a stream"));
        let entries = self.one(Key::EventsRedisEntries, |written| value::integer(written, 100, 1_000_000_000));
        Some(RedisSinkSettings { url: url?, password, stream: stream?, entries: entries? })
    }

    fn rabbitmq(&mut self) -> Option<RabbitSettings> {
        let url = self.one(Key::EventsRabbitmqUrl, urls::amqp_url);
        let password = self.rabbitmq_password(url.as_ref());
        let ca_file = self.one(Key::EventsRabbitmqCaFile, value::path);
        let exchange = self.one(Key::EventsRabbitmqExchange, |written| name(written, "an exchange"));
        let mandatory = self.one(Key::EventsRabbitmqMandatory, value::boolean);
        if ca_file.is_some() && url.as_ref().is_some_and(|url| !url.tls) {
            let why = "events.rabbitmq_url does not start with amqps://";
            self.warnings.push(Warning(format!("events.rabbitmq_ca_file has no effect, because {why}")));
        }
        Some(RabbitSettings { url: url?, password, ca_file, exchange: exchange?, mandatory: mandatory? })
    }

    /// Returns the password of RabbitMQ if it is not in the URL. It may have one source, and any user but `guest` needs
    /// one.
    fn rabbitmq_password(&mut self, url: Option<&AmqpUrl>) -> Option<SecretSource> {
        let given = self.one(Key::EventsRabbitmqPassword, rabbitmq_password);
        let path = self.one(Key::EventsRabbitmqPasswordFile, value::path);
        let is_in_url = url.is_some_and(|url| url.password.is_some());
        for key in [Key::EventsRabbitmqPassword, Key::EventsRabbitmqPasswordFile] {
            if is_in_url && self.is_set(key) {
                let wrong = "is set, but events.rabbitmq_url also contains a password";
                self.wrong(key, InvalidValue::new(wrong, "keep one of the two"));
            }
        }
        if given.is_some() && path.is_some() {
            let what = format!("is set, but {} is set, too", Key::EventsRabbitmqPassword.setting().env);
            self.wrong(Key::EventsRabbitmqPasswordFile, InvalidValue::new(what, "keep one of the two"));
        }
        let is_missing = !is_in_url
            && !self.is_set(Key::EventsRabbitmqPassword)
            && !self.is_set(Key::EventsRabbitmqPasswordFile)
            && url.is_some_and(|url| url.user != AmqpUrl::GUEST);
        if is_missing {
            let (given, file) =
                (Key::EventsRabbitmqPassword.setting().env, Key::EventsRabbitmqPasswordFile.setting().name);
            let right = format!("set {given}, or {file} to a file with the password");
            self.wrong(Key::EventsRabbitmqUrl, InvalidValue::new("names a user without a password", right));
        }
        given.map(SecretSource::Given).or(path.map(SecretSource::File))
    }

    fn mercure(&mut self) -> Option<MercureSettings> {
        let url = self.one(Key::EventsMercureUrl, urls::http_url);
        let public_url = self.one(Key::EventsMercurePublicUrl, urls::http_url);
        let keys = (Key::EventsMercureUrl, Key::EventsMercureSecret, Key::EventsMercureSecretFile);
        let secret = self.sink_secret(keys);
        let url = url?;
        Some(MercureSettings { public_url: public_url.unwrap_or_else(|| url.clone()), url, secret: secret? })
    }

    /// Returns the secret of a sink, which must have exactly one source if the sink has an address.
    fn sink_secret(&mut self, (url, given, file): (Key, Key, Key)) -> Option<SecretSource> {
        let secret = self.secret(given);
        let path = self.one(file, value::path);
        let (given, file) = (given.setting(), file.setting());
        match (secret, path) {
            (Some(_), Some(_)) => {
                let what = format!("is set, but {} is set, too", given.env);
                self.wrong(file.key, InvalidValue::new(what, "keep one of the two"));
                None
            }
            (Some(secret), None) => Some(SecretSource::Given(secret)),
            (None, Some(path)) => Some(SecretSource::File(path)),
            (None, None) => {
                if self.is_set(url) && !self.is_set(given.key) {
                    let right = format!("set {}, or {} to a file with the secret", given.env, file.name);
                    self.wrong(url, InvalidValue::new("needs a secret", right));
                }
                None
            }
        }
    }

    fn secret(&mut self, key: Key) -> Option<Secret> {
        self.one(key, |written| match value::text(written) {
            Ok(text) if text.trim().len() >= SECRET_LEN_MIN => Ok(Secret(text.trim().to_owned())),
            _ => Err(InvalidValue::new("is too short", format!("write at least {SECRET_LEN_MIN} characters"))),
        })
    }

    fn wrong(&mut self, key: Key, wrong: InvalidValue) {
        self.problems.push(SettingsProblem::of(self.source_of(key), key, wrong));
    }
}

/// The beginning of the names of each sink's settings, and the setting of its address.
const SINKS: [(&str, Key); 4] = [
    ("events.webhook_", Key::EventsWebhookUrl),
    ("events.redis_", Key::EventsRedisUrl),
    ("events.rabbitmq_", Key::EventsRabbitmqUrl),
    ("events.mercure_", Key::EventsMercureUrl),
];

/// Shortest secret, in bytes.
const SECRET_LEN_MIN: usize = 8;

/// Reads the password of a user of RabbitMQ, which may be short. Messages never quote it.
fn rabbitmq_password(written: &Written) -> Result<Secret, InvalidValue> {
    let wrong = |why: &str| InvalidValue::new(why, "write the password, as text without zero bytes");
    match value::text(written).map(str::trim) {
        Ok("") | Err(_) => Err(wrong("is empty, or is not text")),
        Ok(text) if text.contains('\0') => Err(wrong("contains a zero byte")),
        Ok(text) => Ok(Secret(text.to_owned())),
    }
}

/// Reads the key of a Redis stream, or the name of an exchange; `of` says which.
fn name(written: &Written, of: &str) -> Result<String, InvalidValue> {
    let name = value::text(written)?.trim();
    let is_fit = |byte: u8| byte.is_ascii_graphic();
    if (1..=200).contains(&name.len()) && name.bytes().all(is_fit) {
        return Ok(name.to_owned());
    }
    Err(InvalidValue::new(format!("is not the name of {of}"), "write 1 to 200 printable characters without spaces"))
}
