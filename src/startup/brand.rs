//! The pages of the service, with the logo and the templates that the settings name.

use std::path::Path;

use crate::pages::{Brand, Logo, Pages};
use carom_settings::Settings;
use carom_settings::exit::{Exit, Reason};

/// Longest file of a logo in bytes. Each visitor loads it.
const LOGO_LEN_MAX: u64 = 256 * 1024;

/// Image types, by the extensions of their files.
const KINDS: [(&str, &str); 5] = [
    ("svg", "image/svg+xml"),
    ("png", "image/png"),
    ("webp", "image/webp"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
];

/// Returns the pages of a service.
///
/// # Errors
/// If a file that the settings name cannot be used.
pub(crate) fn pages(settings: &Settings) -> Result<Pages, Exit> {
    let logo = settings.pages.logo.as_deref().map(logo).transpose()?;
    pages_with(logo, settings)
}

fn pages_with(logo: Option<Logo>, settings: &Settings) -> Result<Pages, Exit> {
    let named = &settings.pages;
    let brand = Brand { title: named.title.clone(), accent: named.accent, logo };
    Pages::new(brand, named.templates.as_deref())
        .map_err(|error| Exit::new(Reason::Usage, format!("pages.templates: {error}")))
}

/// Returns the errors in the files that the settings name for pages.
pub(crate) fn mistakes(settings: &Settings) -> Vec<Exit> {
    let logo = settings.pages.logo.as_deref().map(logo).transpose().err();
    // Templates are checked whatever the logo is.
    logo.into_iter().chain(pages_with(None, settings).err()).collect()
}

fn logo(path: &Path) -> Result<Logo, Exit> {
    let wrong = |what: String| Exit::new(Reason::Usage, format!("pages.logo: {}: {what}", path.display()));
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_ascii_lowercase();
    let kind = KINDS.iter().find(|(known, _)| *known == extension).map(|(_, kind)| *kind);
    let kind = kind.ok_or_else(|| wrong("is not an image file; use .svg, .png, .webp or .jpg".to_owned()))?;
    let bytes = std::fs::read(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > LOGO_LEN_MAX {
        return Err(wrong(format!("has {} bytes; at most {LOGO_LEN_MAX} are allowed", bytes.len())));
    }
    Ok(Logo { kind, bytes })
}
