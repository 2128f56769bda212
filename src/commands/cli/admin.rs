//! The grammar of the place of a node for commands that use its admin listener.

use std::path::PathBuf;

use clap::Args;

/// A node to ask over its admin listener, and the key for it.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct NodeArgs {
    /// The node to query.
    #[command(flatten)]
    pub place: AdminPlace,
    /// File with an admin key, if the listener requires one.
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// The admin listener of a node.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct AdminPlace {
    /// Admin listener of the node, as ADDRESS:PORT or a URL [default: admin_listen of the settings]
    #[arg(long, value_name = "ADDR")]
    pub admin: Option<String>,
    /// Settings file of the node [default: CAROM_CONFIG]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}
