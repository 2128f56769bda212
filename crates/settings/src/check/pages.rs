//! The checks of the settings for pages.

use super::checker::Checker;
use crate::keys::Key;
use crate::problem::{InvalidValue, quoted};
use crate::settings::pages::PageSettings;
use crate::value::colour::Colour;
use crate::value::{self, Written};

/// Longest name of a service, in characters.
const TITLE_CHARS_MAX: usize = 60;

impl Checker<'_> {
    /// Returns the settings of the pages; `None` if one of them is invalid.
    pub(super) fn pages(&mut self) -> Option<PageSettings> {
        let title = self.one(Key::PagesTitle, title);
        let accent = self.one(Key::PagesAccent, accent);
        let logo = self.one(Key::PagesLogo, value::path);
        let templates = self.one(Key::PagesTemplates, value::path);
        let has_form = self.one(Key::PagesHome, home);
        Some(PageSettings { title: title?, accent: accent?, logo, templates, has_form: has_form? })
    }
}

fn title(written: &Written) -> Result<String, InvalidValue> {
    let text = value::text(written)?.trim();
    let is_fit = !text.is_empty() && text.chars().count() <= TITLE_CHARS_MAX && !text.chars().any(char::is_control);
    if is_fit {
        return Ok(text.to_owned());
    }
    Err(InvalidValue::new(
        format!("{} is not a valid title", quoted(text)),
        format!("write 1 to {TITLE_CHARS_MAX} characters without control characters"),
    ))
}

fn accent(written: &Written) -> Result<Colour, InvalidValue> {
    let text = value::text(written)?.trim();
    let wrong = || {
        InvalidValue::new(
            format!("{} is not a colour", quoted(text)),
            "write # and six hexadecimal digits, such as #2f6fed",
        )
    };
    Colour::parse(text).ok_or_else(wrong)
}

fn home(written: &Written) -> Result<bool, InvalidValue> {
    match value::text(written)?.trim().to_ascii_lowercase().as_str() {
        "form" => Ok(true),
        "off" => Ok(false),
        other => {
            let right = "write \"form\" or \"off\"; to redirect / of a domain, use home=URL in domains.serve";
            Err(InvalidValue::new(format!("{} is neither form nor off", quoted(other)), right))
        }
    }
}
