//! The grammar of `carom fleet`.

use clap::Subcommand;

use super::admin::NodeArgs;

/// The subcommands of `carom fleet`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum FleetCommand {
    /// Declare that a site has all links of the other one again, after its nodes were filled from there.
    SiteComplete(NodeArgs),
}
