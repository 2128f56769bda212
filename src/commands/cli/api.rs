//! The grammar of the commands that use the API of a node: the node, and the login.

use std::path::PathBuf;

use clap::Args;

/// The node whose API a command uses, and the API key for it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Args)]
pub struct ApiPlace {
    /// Address of the node [default: CAROM_URL, the login, or http://127.0.0.1:8080]
    #[arg(long, value_name = "URL")]
    pub url: Option<String>,
    /// File with the API key, or - for standard input [default: CAROM_KEY_FILE, or the login]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Send the key over plain http to another machine; anyone on the network can read it
    #[arg(long)]
    pub plain_http: bool,
}

/// Options of `carom login`.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct LoginArgs {
    /// Say which node and key commands use, and check the key, instead of a login
    #[arg(long, conflicts_with_all = ["url", "key_file", "plain_http"])]
    pub status: bool,
    /// Address of the node [default: CAROM_URL, the last login, or http://127.0.0.1:8080]
    #[arg(value_name = "URL")]
    pub url: Option<String>,
    /// File with the API key, or - for standard input [default: CAROM_KEY_FILE, or a prompt]
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Send the key over plain http to another machine; anyone on the network can read it
    #[arg(long)]
    pub plain_http: bool,
}
