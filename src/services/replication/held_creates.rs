//! Creates that Redis has accepted, and whose clients hear of it a moment later.
//!
//! A chosen slug may look like a generated code that was never leased. Other nodes answer 404 for such a code without
//! asking Redis, if they have read the streams a moment ago. So the create waits until they must have seen it there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::bridge::fleet_view::FleetView;
use crate::bridge::{FleetDecision, StoreRequest, WriterOrder};
use carom_limits::SLUG_HELD;
use carom_model::link::Origin;
use carom_model::replication::absence::CodeForm;

/// The creates that wait, in the order in which their time comes.
#[derive(Default)]
pub(super) struct HeldCreates(VecDeque<(Instant, StoreRequest, FleetDecision)>);

impl HeldCreates {
    /// True if a decision on a request must wait.
    pub(super) fn must_hold(view: &FleetView, request: &StoreRequest, decision: &FleetDecision) -> bool {
        let StoreRequest::Create { link, .. } = request else { return false };
        let is_created =
            matches!(decision, FleetDecision::Accepted { .. } | FleetDecision::NoReply { was_sent: true, .. });
        is_created && link.origin == Origin::Custom && matches!(view.form(&link.code), CodeForm::Counted(..))
    }

    /// Adds a create that Redis has just accepted.
    pub(super) fn push(&mut self, request: StoreRequest, decision: FleetDecision) {
        self.0.push_back((Instant::now() + SLUG_HELD, request, decision));
    }

    /// Returns the next create whose time has come, as an order to the writer.
    pub(super) fn pop_due(&mut self) -> Option<WriterOrder> {
        if self.0.front().is_none_or(|(due, ..)| *due > Instant::now()) {
            return None;
        }
        let (_, request, decision) = self.0.pop_front()?;
        Some(WriterOrder::Client(request, decision))
    }

    /// Returns the time until the next create is due, or `None` while no create waits.
    pub(super) fn next_in(&self) -> Option<Duration> {
        self.0.front().map(|(due, ..)| due.saturating_duration_since(Instant::now()))
    }

    /// Returns the number of creates that wait.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::Ticket;
    use carom_model::link::Reuse;
    use carom_model::replication::State;
    use carom_model::testing::link;
    use carom_shards::{CodeSecret, CodeSpace, CoreId};
    use std::sync::Arc;

    #[test]
    fn a_slug_in_the_form_of_a_generated_code_waits() {
        let view = FleetView::new(CodeSpace::new(&CodeSecret::from_bytes([7; 32])));
        let request = |slug: &str, origin: Origin| StoreRequest::Create {
            link: Arc::new(link(slug, origin)),
            reuse: Reuse::Never,
            ticket: Ticket::new(CoreId(0), 1),
        };
        let accepted = || FleetDecision::NoReply { was_sent: true, may_decide_alone: false };
        let must_hold = |slug: &str, origin: Origin| HeldCreates::must_hold(&view, &request(slug, origin), &accepted());
        assert!(must_hold("summer7", Origin::Custom));
        assert!(!must_hold("summer7", Origin::Issued), "a node that is asked for it asks Redis");
        assert!(!must_hold("my-slug", Origin::Custom));
        assert!(!must_hold("short", Origin::Custom));
        let taken = FleetDecision::Held(State::Link(Arc::new(link("summer7", Origin::Custom))));
        assert!(!HeldCreates::must_hold(&view, &request("summer7", Origin::Custom), &taken));

        // A busy machine may take longer to look than the create is held.
        let mut held = loop {
            let (mut held, begun) = (HeldCreates::default(), Instant::now());
            held.push(request("summer7", Origin::Custom), accepted());
            if held.pop_due().is_none() {
                break held;
            }
            assert!(begun.elapsed() >= SLUG_HELD, "the create was not held");
        };
        assert!(held.len() == 1);
        assert!(held.next_in().is_some_and(|wait| wait <= SLUG_HELD));
        std::thread::sleep(SLUG_HELD);
        assert!(held.pop_due().is_some());
        assert!(held.next_in().is_none());
    }
}
