//! The grammar of `carom fleet`.

use clap::{Args, Subcommand};

use super::admin::NodeArgs;

/// The subcommands of `carom fleet`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum FleetCommand {
    /// Declare that a site has all links of the other one again, after its nodes were filled from there.
    SiteComplete(NodeArgs),
    /// Give up the other site for good. Without --confirm, only say what that means.
    SiteGiveUp(GiveUpArgs),
}

/// The arguments of `carom fleet site-give-up`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct GiveUpArgs {
    /// A node of the site that stays.
    #[command(flatten)]
    pub node: NodeArgs,
    /// Name of the other site, to give it up; without it, the command changes nothing.
    #[arg(long, value_name = "SITE")]
    pub confirm: Option<String>,
    /// Accept the losses that the command names.
    #[arg(long, requires = "confirm")]
    pub accept_loss: bool,
}
