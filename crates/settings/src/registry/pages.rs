//! The table `pages`: the look of public pages.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;

pub(super) const PAGES: [Setting; 5] = [
    Setting {
        key: Key::PagesTitle,
        name: "pages.title",
        env: "CAROM_PAGES_TITLE",
        flag: None,
        kind: "1 to 60 characters",
        default: Some("carom"),
        secret: false,
        doc: "Name of the service on public pages and in the console.",
        show: |settings| Shown::text(&settings.pages.title),
    },
    Setting {
        key: Key::PagesAccent,
        name: "pages.accent",
        env: "CAROM_PAGES_ACCENT",
        flag: None,
        kind: "a colour such as #0a7d5a",
        default: Some("#0b57d0"),
        secret: false,
        doc: "Colour of buttons and numbers on public pages.",
        show: |settings| Shown::text(settings.pages.accent),
    },
    Setting {
        key: Key::PagesLogo,
        name: "pages.logo",
        env: "CAROM_PAGES_LOGO",
        flag: None,
        kind: "a file that ends in .svg, .png, .webp or .jpg",
        default: None,
        secret: false,
        doc: "Logo on public pages, at most 256 KiB.",
        show: |settings| Shown::optional(settings.pages.logo.as_ref().map(|path| path.display())),
    },
    Setting {
        key: Key::PagesTemplates,
        name: "pages.templates",
        env: "CAROM_PAGES_TEMPLATES",
        flag: None,
        kind: "a directory",
        default: None,
        secret: false,
        doc: "Directory of templates that replace built-in pages: base.html, home.html, 404.html and so on.",
        show: |settings| Shown::optional(settings.pages.templates.as_ref().map(|path| path.display())),
    },
    Setting {
        key: Key::PagesHome,
        name: "pages.home",
        env: "CAROM_PAGES_HOME",
        flag: None,
        kind: "form or off",
        default: Some("form"),
        secret: false,
        doc: "Page at /: a form to shorten links, or 404 if off.",
        show: |settings| Shown::text(if settings.pages.has_form { "form" } else { "off" }),
    },
];
