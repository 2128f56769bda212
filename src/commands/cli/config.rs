//! The grammar of `carom config`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::files::FileOrStdio;

/// The subcommands of `carom config`.
#[derive(Clone, PartialEq, Eq, Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings, and the files that they name. Reports all mistakes at once.
    Check(ConfigPlace),
    /// Print the effective settings, each with its source.
    Show(ConfigPlace),
    /// Write a settings file in which every common setting is explained.
    Init {
        /// File to create, or - for standard output
        #[arg(value_name = "FILE", default_value = "carom.toml")]
        file: FileOrStdio,
        /// Data directory in the new file
        #[arg(long, value_name = "DIR", default_value = "./carom-data")]
        data_dir: String,
    },
}

/// A settings file.
#[derive(Clone, PartialEq, Eq, Debug, Args)]
pub struct ConfigPlace {
    /// Settings file; without it, only environment variables are checked [default: CAROM_CONFIG]
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Settings file, in place of FILE
    #[arg(long = "config", value_name = "FILE", conflicts_with = "file")]
    pub config: Option<PathBuf>,
    /// Data directory of the node [default: that of the settings]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<String>,
}

impl ConfigPlace {
    /// Returns the file, whichever way it was passed.
    pub fn path(&self) -> Option<&Path> {
        self.file.as_deref().or(self.config.as_deref())
    }
}
