//! The messages of a window that a publisher has sent to RabbitMQ, until the fate of each is known.

use super::render::RenderedEvent;

/// The fate of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    /// A message that the broker has neither confirmed nor refused yet.
    Open,
    /// The server has it.
    Taken,
    /// The server could not take it.
    Refused,
}

/// The messages that wait for their confirmation.
#[derive(Debug)]
pub(super) struct Window {
    /// The number of the first message on the channel.
    first_tag: u64,
    /// The fate of each message, and the reason if the server has returned it.
    messages: Vec<(Fate, Option<String>)>,
}

impl Window {
    pub(super) fn new(first_tag: u64, count: usize) -> Window {
        Window { first_tag, messages: vec![(Fate::Open, None); count] }
    }

    /// Notes the fate of a message, or of all up to it.
    pub(super) fn settle(&mut self, tag: u64, multiple: bool, fate: Fate) -> Result<(), &'static str> {
        const WRONG: &str = "the server confirms a message that was not sent";
        // Zero stands for the last message.
        let last = match tag {
            0 if multiple => self.messages.len() as u64,
            tag => tag.wrapping_sub(self.first_tag).wrapping_add(1),
        };
        let last = usize::try_from(last).ok().filter(|last| (1..=self.messages.len()).contains(last)).ok_or(WRONG)?;
        let first = if multiple { 0 } else { last - 1 };
        for (known, _) in self.messages[first..last].iter_mut().filter(|(known, _)| *known == Fate::Open) {
            *known = fate;
        }
        Ok(())
    }

    /// Notes that the server has returned the message at this place.
    pub(super) fn give_back(&mut self, place: Option<usize>, why: Option<String>) -> Result<(), &'static str> {
        match (place.and_then(|place| self.messages.get_mut(place)), why) {
            (Some((_, returned)), Some(why)) => {
                *returned = Some(why);
                Ok(())
            }
            _ => Err("the server returns a message that was not sent"),
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.messages.iter().all(|(fate, _)| *fate != Fate::Open)
    }

    /// Returns the number of messages that the server has, before the first one that it may not have.
    pub(super) fn taken(&self) -> usize {
        self.messages.iter().take_while(|(fate, returned)| *fate == Fate::Taken && returned.is_none()).count()
    }

    /// Returns why the server has not taken the first message that it has not taken; `None` if it has all.
    pub(super) fn held(&self, sent: &[RenderedEvent], exchange: &str) -> Option<String> {
        let place = self.taken();
        let (event, (_, returned)) = (sent.get(place)?, self.messages.get(place)?);
        let (id, of) = (event.id, event.of.as_str());
        Some(match returned {
            Some(why) => format!(
                "no queue is bound for event {id} ({why}): bind one to the exchange {exchange} with the key {of}, or set \
                 events.rabbitmq_mandatory to false"
            ),
            None => format!("the server could not take event {id} (nack); check whether a queue is full"),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn messages_before_the_first_missing_one_are_taken() {
        let mut window = Window::new(5, 4);
        window.settle(7, false, Fate::Taken).unwrap();
        assert!(window.taken() == 0);
        assert!(!window.is_settled());
        window.settle(6, true, Fate::Taken).unwrap();
        assert_eq!(window.taken(), 3);
        window.give_back(Some(1), Some("312 NO_ROUTE".to_owned())).unwrap();
        assert_eq!(window.taken(), 1);
        // A later confirmation changes nothing that is known.
        window.settle(8, true, Fate::Refused).unwrap();
        assert!(window.taken() == 1);
        assert!(window.is_settled());
        assert!(window.settle(4, false, Fate::Taken).is_err());
        assert!(window.settle(9, true, Fate::Taken).is_err());
        assert!(window.give_back(None, Some(String::new())).is_err());
        assert!(window.give_back(Some(0), None).is_err());
    }

    proptest! {
        #[test]
        fn any_confirms_are_counted_or_refused(
            first in prop_oneof![Just(1_u64), any::<u64>()],
            count in 1_usize..9,
            tags in proptest::collection::vec((0_u64..12, any::<bool>(), any::<bool>()), 0..20),
        ) {
            let mut window = Window::new(first, count);
            for (at, multiple, is_taken) in tags {
                let tag = first.wrapping_add(at).wrapping_sub(2);
                let known = window.settle(tag, multiple, if is_taken { Fate::Taken } else { Fate::Refused }).is_ok();
                prop_assert_eq!(known, (2..2 + count as u64).contains(&at) || (tag == 0 && multiple));
            }
            prop_assert!(window.taken() <= count);
        }
    }
}
