//! The grammar of `carom purge`.

use clap::{ArgGroup, Args};

use super::api::ApiPlace;

/// Options of `carom purge`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
#[command(group(ArgGroup::new("selector").required(true).args(["domain", "app", "tag", "destination"])))]
pub struct PurgeArgs {
    /// Links of this domain, or DEFAULT for the default domain
    #[arg(long, value_name = "HOST")]
    pub domain: Option<String>,
    /// Links of this app
    #[arg(long, value_name = "APP")]
    pub app: Option<String>,
    /// Links with this tag
    #[arg(long, value_name = "TAG")]
    pub tag: Option<String>,
    /// Links whose destination is this URL or begins with it
    #[arg(long, value_name = "URL")]
    pub destination: Option<String>,
    /// Count the links and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// Purge without asking
    #[arg(long, short)]
    pub yes: bool,
    /// End once the links are deleted, without waiting until all nodes have removed the rest
    #[arg(long, conflicts_with = "dry_run")]
    pub no_wait: bool,
    /// The node.
    #[command(flatten)]
    pub place: ApiPlace,
}
