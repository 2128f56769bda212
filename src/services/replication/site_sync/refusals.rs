//! The origins whose entries one of the two sites refuses. The synchronisation leaves them out, and copies the others.

use std::collections::BTreeSet;

use crate::services::replication::redis::RedisError;
use carom_model::visits::origins::OriginId;

/// The origins of one kind of streams that were refused when they were last copied.
#[derive(Debug)]
pub(super) struct Refusals {
    /// The content of the streams, for the log.
    content: &'static str,
    origins: BTreeSet<OriginId>,
}

impl Refusals {
    pub(super) fn new(content: &'static str) -> Refusals {
        Refusals { content, origins: BTreeSet::new() }
    }

    /// Takes the result of a step of copying from an origin. Returns its value; `None` if a site has refused, which is logged
    /// once.
    ///
    /// # Errors
    /// [`RedisError::Unavailable`]: the other origins would have to wait for an answer, too.
    pub(super) fn note<T>(&mut self, origin: OriginId, copied: Result<T, RedisError>) -> Result<Option<T>, RedisError> {
        match copied {
            Ok(value) => Ok(Some(value)),
            Err(RedisError::Refused(what)) => {
                if self.origins.insert(origin) {
                    let content = self.content;
                    tracing::warn!(%origin, error = %what, "the {content} of one origin cannot be copied from the other site");
                }
                Ok(None)
            }
            Err(away) => Err(away),
        }
    }

    /// Notes that an origin was copied, so that its next refusal is logged again.
    pub(super) fn copied(&mut self, origin: OriginId) {
        self.origins.remove(&origin);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: OriginId = OriginId(1);

    fn refused() -> Result<u64, RedisError> {
        Err(RedisError::Refused("WRONGTYPE".to_owned()))
    }

    #[test]
    fn refused_origin_stops_no_other_one() {
        let mut refusals = Refusals::new("visits");
        assert_eq!(refusals.note(ONE, refused()).unwrap(), None);
        assert_eq!(refusals.note(OriginId(2), Ok(7)).unwrap(), Some(7));
        assert_eq!(refusals.origins, BTreeSet::from([ONE]), "it is logged once");
        assert_eq!(refusals.note(ONE, refused()).unwrap(), None);
        assert_eq!(refusals.note(ONE, Ok(8)).unwrap(), Some(8));
        assert_eq!(refusals.origins, BTreeSet::from([ONE]), "a later step may be refused");
        refusals.copied(ONE);
        assert!(refusals.origins.is_empty(), "another refusal is logged again");
    }

    #[test]
    fn unreachable_server_ends_the_copies() {
        let mut refusals = Refusals::new("visits");
        let away = RedisError::Unavailable { what: "no answer".to_owned(), was_sent: true };
        assert!(refusals.note::<u64>(ONE, Err(away)).is_err());
        assert!(refusals.origins.is_empty());
    }
}
