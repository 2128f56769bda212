//! The settings of the pages.

use std::path::PathBuf;

use crate::value::colour::Colour;

/// The settings of the pages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageSettings {
    /// The name of the service.
    pub title: String,
    /// The colour of buttons and numbers.
    pub accent: Colour,
    /// The file of the logo.
    pub logo: Option<PathBuf>,
    /// The directory of custom templates, which replace built-in ones.
    pub templates: Option<PathBuf>,
    /// True to serve a form at the root.
    pub has_form: bool,
}
