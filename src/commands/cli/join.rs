//! The grammar of `carom join`.

use std::path::PathBuf;

use clap::Args;

use super::keys::AppPlace;

/// Options of `carom join`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct JoinArgs {
    /// Admin listener of a running node of the fleet, such as http://10.0.0.1:8081 [default: fleet.join_from]
    #[arg(long, value_name = "URL")]
    pub from: Option<String>,
    /// File with an admin key of that node, or - for standard input [default: fleet.join_key_file, or a prompt]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// The data directory of the new node: empty but for the code secret, or created if it does not exist.
    #[command(flatten)]
    pub place: AppPlace,
}
