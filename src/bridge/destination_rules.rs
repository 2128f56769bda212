//! Orders to the thread that manages saved destination rules, its answers, and its messages to the cores.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use super::last_core::AnswerOfLastCore;
use super::ticket::Ticket;
use carom_model::destination::hosts::HostSet;
use carom_model::destination::rules::{RuleHosts, SavedRules};

/// An order to save destination rules.
#[derive(Debug)]
pub struct DestinationRulesOrder {
    /// The version of the rules that the save replaces.
    pub version: String,
    /// The new hosts; `None` to return to those of the settings.
    pub hosts: Option<RuleHosts>,
    /// The app whose key saves; empty without a key.
    pub by: String,
    /// The task that waits for the answer.
    pub ticket: Ticket<DestinationRulesAnswer>,
}

/// The result of a [`DestinationRulesOrder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DestinationRulesAnswer {
    /// The rules are stored, and all cores apply them.
    Saved(Arc<SavedRules>),
    /// Nothing was changed, because these rules have replaced those of the version.
    Outdated(Arc<SavedRules>),
    /// Nothing was changed, for this reason.
    Refused(String),
    /// The rules may not have been stored, or not everywhere, for this reason.
    Failed(String),
}

/// The queue to the thread that manages saved destination rules, shared by all cores.
pub type DestinationRulesQueue = SyncSender<DestinationRulesOrder>;

/// Saved rules on their way to all cores, with both lists of hosts that follow from them. A core takes them together, so no
/// request meets the allow list of one save and the block list of another.
#[derive(Debug)]
pub struct PublishedRules {
    /// The hosts that new links may lead to; `None` if any host is allowed.
    pub allow: Option<Arc<HostSet>>,
    /// The block list of hosts; `None` if no host is blocked.
    pub block: Option<Arc<HostSet>>,
    /// The last save.
    pub saved: Arc<SavedRules>,
    /// The answer to the task that has saved, which the last core sends.
    pub answer: AnswerOfLastCore<DestinationRulesAnswer>,
}
