//! The saved destination rules, for the tasks and the loop of a core.

use std::sync::Arc;

use super::ServiceHandle;
use crate::bridge::{DestinationRulesAnswer, DestinationRulesOrder, WriteFailure};
use carom_model::destination::rules::{RuleHosts, SavedRules};

impl ServiceHandle {
    /// Returns the last save of destination rules.
    pub fn saved_rules(&self) -> Arc<SavedRules> {
        Arc::clone(&self.saved_rules.borrow())
    }

    /// Saves destination rules in place of those of `version`; without hosts, those of the settings apply again. `by` is the app
    /// whose key saves.
    ///
    /// # Errors
    /// The reason why they were not saved, or why that is not certain.
    pub async fn save_rules(
        &self,
        version: String,
        hosts: Option<RuleHosts>,
        by: String,
    ) -> Result<DestinationRulesAnswer, WriteFailure> {
        let order = |ticket| DestinationRulesOrder { version, hosts, by, ticket };
        self.order(&self.context.destination_rules, order).await
    }

    /// Replaces the last save of destination rules, for the loop.
    pub fn set_saved_rules(&self, saved: Arc<SavedRules>) {
        self.saved_rules.replace(saved);
    }
}
