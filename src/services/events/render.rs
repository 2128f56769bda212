//! Describes stored events as JSON.
//!
//! The forms of links and visits are those of the API, which passes them in ([`Describe`]). A visit is described with
//! its link as the store has it now.

use std::collections::HashMap;
use std::sync::Arc;

use carom_shards::Code;
use carom_shards::code::CODE_KEY_LEN_MAX;
use serde_json::{Map, Value, json};

use crate::services::visits::VisitReader;
use carom_model::domains::Domains;
use carom_model::events::{EventId, EventType, LinkEvent, StoredEvent};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::link::record::{self, RecordRef};
use carom_model::visits::record::{LoggedKind, VisitRecord};
use carom_model::visits::tally::VisitCounts;
use carom_store::links::events::EventLog;
use carom_store::links::{Links, StoreError};

/// Topics that Shlink publishes to.
const NEW_SHORT_URL: &str = "https://shlink.io/new-short-url";
const NEW_VISIT: &str = "https://shlink.io/new-visit";
const NEW_ORPHAN_VISIT: &str = "https://shlink.io/new-orphan-visit";

/// The descriptions of links and visits, as the API has them.
#[derive(Clone, Copy, Debug)]
pub struct Describe {
    /// Describes a link with these visits.
    pub link: fn(&Link, VisitCounts, &Domains) -> Value,
    /// Describes a visit.
    pub visit: fn(&VisitRecord<'_>, &Domains) -> Value,
}

/// The describer of events. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Renderer {
    /// The log of the events.
    pub log: EventLog,
    /// The links, for descriptions of visits.
    pub links: Links,
    /// The counts of visits.
    pub visits: VisitReader,
    /// The domains of the service.
    pub domains: Arc<Domains>,
    /// The descriptions of links and visits.
    pub describe: Describe,
}

/// An event as clients see it.
#[derive(Clone, PartialEq, Debug)]
pub struct RenderedEvent {
    /// The ID of the event.
    pub id: EventId,
    /// The type of the event.
    pub of: EventType,
    /// The instant of the event, in milliseconds since 1970 UTC.
    pub at_ms: u64,
    /// The content, whose form depends on the type. For types that Shlink has, it is Shlink's payload.
    pub data: Value,
    /// The topics of the event at a message broker, the most general first.
    pub topics: Vec<String>,
}

impl RenderedEvent {
    /// Returns the event in the form of the API.
    pub fn envelope(&self) -> Value {
        json!({
            "id": self.id.to_string(),
            "type": self.of.as_str(),
            "date": dates::format(self.at_ms),
            "data": self.data,
        })
    }
}

impl Renderer {
    /// Describes events. Those that cannot be decoded are left out, and logged.
    ///
    /// # Errors
    /// [`StoreError`] if the counts of visits cannot be read.
    pub fn render(&self, events: &[(u64, Vec<u8>)]) -> Result<Vec<RenderedEvent>, StoreError> {
        let mut decoded = Vec::with_capacity(events.len());
        for (seq, bytes) in events {
            match StoredEvent::decode(bytes) {
                Some(event) => decoded.push((*seq, event)),
                None => tracing::error!(event = %self.log.id(*seq), "an event could not be decoded, and is left out"),
            }
        }
        let mut links: HashMap<Code, Option<Arc<Link>>> = HashMap::new();
        for (_, event) in &decoded {
            if let StoredEvent::Visit(VisitRecord { code: Some(code), .. }) = event {
                links.entry(*code).or_insert_with(|| self.link(code));
            }
        }
        let of_events = decoded.iter().filter_map(|(_, event)| match event {
            StoredEvent::Link(event) => Some(event.code),
            StoredEvent::Visit(visit) => visit.code,
        });
        let codes: Vec<Code> = of_events.collect::<std::collections::HashSet<Code>>().into_iter().collect();
        let counts: HashMap<Code, VisitCounts> = codes.iter().copied().zip(self.visits.counts(&codes)?).collect();
        let counts = |code: &Code| counts.get(code).copied().unwrap_or_default();
        Ok(decoded
            .iter()
            .map(|(seq, event)| {
                let (data, topics) = match event {
                    StoredEvent::Link(event) => self.of_link(event, counts(&event.code)),
                    StoredEvent::Visit(visit) => {
                        let link = visit.code.as_ref().and_then(|code| links.get(code)?.as_ref());
                        self.of_visit(visit, link, visit.code.as_ref().map(counts).unwrap_or_default())
                    }
                };
                RenderedEvent { id: self.log.id(*seq), of: event.of(), at_ms: event.at_ms(), data, topics }
            })
            .collect())
    }

    fn of_link(&self, event: &LinkEvent, counts: VisitCounts) -> (Value, Vec<String>) {
        let mut data = Map::new();
        let short_url = match &event.link {
            Some(link) => (self.describe.link)(link, counts, &self.domains),
            // The record of the link was damaged.
            None => json!({ "shortCode": event.code.as_slug().to_string() }),
        };
        data.insert("shortUrl".to_owned(), short_url);
        let topic = match event.of {
            EventType::LinkCreated => NEW_SHORT_URL.to_owned(),
            of => format!("urn:carom:event:{}", of.as_str()),
        };
        match event.of {
            EventType::LinkChanged => {
                let changes = serde_json::from_slice(&event.changes).unwrap_or_else(|_| json!([]));
                data.insert("changes".to_owned(), changes);
            }
            EventType::LinkDeleted => _ = data.insert("cause".to_owned(), json!(event.cause.as_str())),
            EventType::LinkCreated | EventType::Visit => {}
        }
        (Value::Object(data), vec![topic])
    }

    fn of_visit(&self, visit: &VisitRecord<'_>, link: Option<&Arc<Link>>, counts: VisitCounts) -> (Value, Vec<String>) {
        let mut data = Map::new();
        data.insert("visit".to_owned(), (self.describe.visit)(visit, &self.domains));
        if visit.kind != LoggedKind::Link {
            return (Value::Object(data), vec![NEW_ORPHAN_VISIT.to_owned()]);
        }
        let mut topics = vec![NEW_VISIT.to_owned()];
        if let Some(code) = &visit.code {
            topics.push(format!("{NEW_VISIT}/{}", code.as_slug()));
        }
        let short_url = link.map(|link| (self.describe.link)(link, counts, &self.domains));
        data.insert("shortUrl".to_owned(), json!(short_url));
        (Value::Object(data), topics)
    }

    /// Returns the link of a code; `None` if it is gone or cannot be read.
    fn link(&self, code: &Code) -> Option<Arc<Link>> {
        let value = self.links.get(code).ok()??;
        match record::decode(code.key(&mut [0; CODE_KEY_LEN_MAX]), &value) {
            Ok(RecordRef::Link(link)) => Some(Arc::new(link.to_link(*code))),
            _ => None,
        }
    }
}
