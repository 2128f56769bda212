//! Orders of an operator about the sites of a fleet: what the API asks of a thread for jobs.

use std::fmt;

/// The orders that this site carries out in its Redis. Only threads for jobs call the methods that wait for Redis.
pub trait SiteOrders: fmt::Debug + Send + Sync {
    /// Returns the name of this site.
    fn site(&self) -> &str;

    /// Removes the mark that this site may lack links, once an operator has filled the nodes of this site from the
    /// other one. Returns false if this site is not marked.
    ///
    /// # Errors
    /// The reason, in words for the operator. Redis may have removed the mark nevertheless.
    fn complete(&self) -> Result<bool, String>;

    /// Gives up the other site, or only says what that means. An order that is repeated changes nothing more.
    ///
    /// # Errors
    /// The reason, in words for the operator. The site may have been given up nevertheless.
    fn give_up(&self, order: &GiveUpOrder) -> Result<GiveUpReport, String>;
}

/// An order to give up the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GiveUpOrder {
    /// The name of the other site, by which the operator confirms the order; `None` for a dry run.
    pub confirmed: Option<String>,
    /// True if the operator accepts that changes of the other site are lost.
    pub accepts_loss: bool,
}

/// The consequences of giving up the other site, and the outcome of the order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GiveUpReport {
    /// The name of the other site.
    pub other: String,
    /// The nodes of the other site that are alive.
    pub alive: Vec<String>,
    /// Losses that are possible, each in words for the operator.
    pub losses: Vec<String>,
    /// The outcome of the order.
    pub outcome: GiveUpOutcome,
}

/// The outcome of an order to give up the other site.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GiveUpOutcome {
    /// Nothing was changed: the order was a dry run.
    DryRun,
    /// The other site is given up, by this order or by an earlier one.
    Done,
    /// Refused: the order names a site that is not the other one.
    OtherName,
    /// Refused: nodes of the other site are alive.
    Alive,
    /// Refused: losses are possible, and the order does not accept them.
    Loss,
}
