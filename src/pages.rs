//! The HTML pages that visitors see, with the service's own branding and nothing from other hosts.
//!
//! Each page is a Jinja template, rendered by minijinja, which escapes all values. An operator may replace single
//! templates with files of a directory. Notices contain nothing of a request, so they are rendered once.
//! [`CONTENT_SECURITY_POLICY`] limits what a page may load; pages contain neither inline scripts nor inline styles.

pub mod gzip;
pub mod qr;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;

use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior, context};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use carom_settings::colour::Colour;

use carom_model::redirect::Notice;

/// Content security policy of the pages: styles, fonts, scripts, images and form targets of this service only.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; font-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Script of the pages, which copies short URLs.
pub const SCRIPT: &str = include_str!("pages/page.js");

/// Cache lifetime of fonts, which differ between versions of carom at most.
pub const FONT_KEPT: &str = "public, max-age=86400";

/// Fonts that come with carom, by the names in [`FONT_FACES`].
pub static FONTS: [(&str, &[u8]); 3] = [
    ("inter.woff2", include_bytes!("api/console/web/inter.woff2")),
    ("jetbrains-mono-400.woff2", include_bytes!("api/console/web/jetbrains-mono-400.woff2")),
    ("jetbrains-mono-600.woff2", include_bytes!("api/console/web/jetbrains-mono-600.woff2")),
];

/// Style sheet of the console that names the fonts, relative to its own address.
const FONT_FACES: &str = include_str!("api/console/web/fonts.css");

/// Design tokens, which the console has as well.
const TOKENS: &str = include_str!("api/console/web/tokens.css");

/// Style sheet of the pages, without the tokens.
const STYLE: &str = include_str!("pages/style.css");

/// Favicon of services without a logo, an SVG in the accent colour: a ball that bounces off a cushion.
const ICON: &str = include_str!("pages/icon.svg");

/// Path of the logo.
const LOGO_PATH: &str = "/-/logo";

/// Templates that an operator may replace, besides those of the notices.
const TEMPLATES: [(&str, &str); 5] = [
    ("base.html", include_str!("pages/templates/base.html")),
    ("notice.html", include_str!("pages/templates/notice.html")),
    ("home.html", include_str!("pages/templates/home.html")),
    ("preview.html", include_str!("pages/templates/preview.html")),
    ("result.html", include_str!("pages/templates/result.html")),
];

/// The templates of the admin listener, which an operator cannot replace.
const ADMIN_TEMPLATES: [(&str, &str); 3] = [
    ("runbook.html", include_str!("pages/templates/runbook.html")),
    ("sign-in.html", include_str!("pages/templates/sign-in.html")),
    ("status.html", include_str!("pages/templates/status.html")),
];

/// A logo image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logo {
    /// Media type of the image.
    pub kind: &'static str,
    /// Content of the image file.
    pub bytes: Vec<u8>,
}

/// Branding of the service: name, colour and logo.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Brand {
    /// Name of the service.
    pub title: String,
    /// Colour of buttons and numbers.
    pub accent: Colour,
    /// Logo, if the service has one.
    pub logo: Option<Logo>,
}

/// An error that keeps the pages from being rendered. The operator must correct a template.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagesError(String);

impl fmt::Display for PagesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PagesError {}

/// A rendered notice.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenderedNotice {
    /// HTML page for browsers.
    pub html: String,
    /// One line of text for all other clients.
    pub text: String,
}

/// Fields of the form, each with true if it is an option: options are folded away while empty.
pub const FORM_FIELDS: [(&str, bool); 5] =
    [("longUrl", false), ("customSlug", true), ("validUntil", true), ("maxVisits", true), ("tags", true)];

/// Values of the form at the root.
#[derive(Debug, Serialize)]
pub struct Home {
    /// The entered text of each field, by name.
    pub values: BTreeMap<String, String>,
    /// The error of each invalid field, by name.
    pub errors: BTreeMap<String, String>,
    /// An error that concerns no single field.
    pub problem: Option<String>,
    /// True if the form asks for an API key.
    pub needs_key: bool,
    /// True if a link may have a visit limit on this node.
    pub limits_visits: bool,
    /// True if the options are unfolded.
    pub is_open: bool,
    /// The signed-in user, who needs no API key here; `None` for everyone else.
    pub user: Option<FormUser>,
}

/// A browser that is signed in at the console, as the form shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FormUser {
    /// The name of its API key, or else of the app.
    pub name: String,
    /// The token that the form carries, so that no other page can send it.
    pub csrf: String,
}

impl Default for Home {
    /// Returns an empty form.
    fn default() -> Home {
        let values = FORM_FIELDS.iter().map(|(name, _)| ((*name).to_owned(), String::new())).collect();
        Home {
            values,
            errors: BTreeMap::new(),
            problem: None,
            needs_key: false,
            limits_visits: true,
            is_open: false,
            user: None,
        }
    }
}

/// Values of the page of a new link.
#[derive(Debug, Default, Serialize)]
pub struct CreatedPage {
    /// Short URL of the new link.
    pub short_url: String,
    /// Path of the short URL, with its leading slash.
    pub path: String,
    /// Short code of the link.
    pub code: String,
    /// Destination of the link.
    pub target: String,
    /// Expiry date as text for people; `None` if the link does not expire.
    pub ends: Option<String>,
    /// Expiry date in ISO 8601.
    pub ends_at: Option<String>,
    /// Number of visits so far.
    pub visits: u64,
    /// Maximum number of visits, if it is limited.
    pub most_visits: Option<u32>,
}

/// Values of the preview page of a link.
#[derive(Debug, Default, Serialize)]
pub struct Preview {
    /// Short URL of the link.
    pub short_url: String,
    /// Destination of the link.
    pub target: String,
    /// Host of the destination, in Unicode.
    pub host: String,
    /// Host in Punycode, if that differs.
    pub punycode: Option<String>,
    /// Title of the link.
    pub title: Option<String>,
    /// Creation date as text for people.
    pub created: String,
    /// Creation date in ISO 8601.
    pub created_at: String,
    /// Expiry date as text for people; `None` if the link does not expire.
    pub ends: Option<String>,
    /// Expiry date in ISO 8601.
    pub ends_at: Option<String>,
}

/// The contents of the form that asks for a key.
#[derive(Debug, Default, Serialize)]
pub struct SignIn<'a> {
    /// The path to open after signing in.
    pub next: &'a str,
    /// Said above the form.
    pub notice: Option<&'a str>,
    /// The error of the key, if there is one.
    pub error: Option<&'a str>,
}

/// All pages of a service.
pub struct Pages {
    engine: Environment<'static>,
    /// Engine with built-in templates only, used if a custom template cannot be rendered.
    fallback: Environment<'static>,
    brand: Brand,
    style: String,
    /// The style sheet, packed with gzip.
    packed_style: Vec<u8>,
    /// Hash of the style sheet and the script.
    revision: String,
    icon: String,
    notices: Vec<RenderedNotice>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pages")
    }
}

/// Returns a font that comes with carom.
pub fn font(name: &str) -> Option<&'static [u8]> {
    FONTS.iter().find(|(known, _)| *known == name).map(|(_, bytes)| *bytes)
}

impl Pages {
    /// Loads the pages of a service, with custom templates from a directory if one is given.
    ///
    /// # Errors
    /// [`PagesError`] if a template cannot be read or rendered.
    pub fn new(brand: Brand, templates: Option<&Path>) -> Result<Pages, PagesError> {
        let (accent, on_it) = (brand.accent.to_string(), if brand.accent.is_dark() { "#fff" } else { "#000" });
        let faces = FONT_FACES.replace("url(\"", "url(\"fonts/");
        let style = format!("{faces}{TOKENS}:root {{ --accent: {accent}; --on-accent: {on_it}; }}\n{STYLE}");
        let revision = format!("{:016x}", xxh3_64(format!("{style}{SCRIPT}").as_bytes()));
        let mut engine = engine(&brand, &revision);
        let mut fallback = engine.clone();
        for (name, source) in ADMIN_TEMPLATES {
            fallback.add_template(name, source).expect("templates that come with carom are sound");
        }
        if let Some(dir) = templates {
            add_templates(&mut engine, dir)?;
        }
        let icon = ICON.replace("ACCENT", &accent).replace("ON-IT", on_it);
        let packed_style = gzip::pack(&style);
        let mut pages = Pages { engine, fallback, brand, style, packed_style, revision, icon, notices: Vec::new() };
        pages.notices = Notice::ALL.iter().map(|notice| pages.render_notice(*notice)).collect::<Result<_, _>>()?;
        // A broken template fails at the start rather than for the first visitor.
        pages.try_draw("home.html", &Home::default())?;
        pages.try_draw("result.html", &CreatedPage::default())?;
        pages.try_draw("preview.html", &Preview::default())?;
        Ok(pages)
    }

    /// Returns the built-in pages, for tests.
    #[cfg(test)]
    pub fn plain() -> Pages {
        let brand = Brand { title: "carom".to_owned(), accent: Colour([0, 0, 255]), logo: None };
        Pages::new(brand, None).expect("templates that come with carom can be drawn")
    }

    /// Returns the notice for a link that does not redirect.
    pub fn notice(&self, notice: Notice) -> &RenderedNotice {
        &self.notices[notice as usize]
    }

    /// Returns the style sheet of all pages.
    pub fn style(&self) -> &str {
        &self.style
    }

    /// Returns the style sheet of all pages, packed with gzip.
    pub fn packed_style(&self) -> &[u8] {
        &self.packed_style
    }

    /// Returns the revision of the style sheet and the script. Pages name it in their addresses, so that browsers may keep
    /// both until one of them changes.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the favicon of a service without a logo, an SVG.
    pub fn icon(&self) -> &str {
        &self.icon
    }

    /// Returns the logo of the service; `None` if it has none.
    pub fn logo(&self) -> Option<&Logo> {
        self.brand.logo.as_ref()
    }

    /// Returns the name of the service.
    pub fn title(&self) -> &str {
        &self.brand.title
    }

    /// Renders the form at the root.
    pub fn home(&self, home: &Home) -> String {
        self.draw("home.html", home)
    }

    /// Renders the page of a new link.
    pub fn created(&self, made: &CreatedPage) -> String {
        self.draw("result.html", made)
    }

    /// Renders the preview page of a link.
    pub fn preview(&self, preview: &Preview) -> String {
        self.draw("preview.html", preview)
    }

    /// The status, for people; `status` holds what its template names.
    pub fn status(&self, status: &impl Serialize) -> String {
        self.draw_own("status.html", status)
    }

    /// A section of the runbook; `section` holds what its template names.
    pub fn runbook(&self, section: &impl Serialize) -> String {
        self.draw_own("runbook.html", section)
    }

    /// The form of the console that asks for a key.
    pub fn sign_in(&self, sign_in: &SignIn<'_>) -> String {
        self.draw_own("sign-in.html", sign_in)
    }

    /// Renders a page. If a custom template fails, renders the built-in one.
    fn draw(&self, name: &str, values: &impl Serialize) -> String {
        self.try_draw(name, values).unwrap_or_else(|error| {
            tracing::warn!("{error}; the built-in page is shown instead");
            self.draw_own(name, values)
        })
    }

    /// Draws a page as it comes with carom.
    fn draw_own(&self, name: &str, values: &impl Serialize) -> String {
        let template = self.fallback.get_template(name).expect("it comes with carom");
        template.render(Serde(values)).expect("templates that come with carom can be drawn")
    }

    fn try_draw(&self, name: &str, values: &impl Serialize) -> Result<String, PagesError> {
        let template = self.engine.get_template(name).map_err(|error| wrong(&error))?;
        template.render(Serde(values)).map_err(|error| wrong(&error))
    }

    fn render_notice(&self, notice: Notice) -> Result<RenderedNotice, PagesError> {
        let (heading, text) = (notice.heading(), notice.text());
        let has_own = self.engine.get_template(notice.template()).is_ok();
        let name = if has_own { notice.template() } else { "notice.html" };
        let html = self.try_draw(name, &context! { number => notice.number(), heading, text })?;
        Ok(RenderedNotice { html, text: format!("{heading}. {text}\n") })
    }
}

/// Creates a template engine with the built-in templates.
fn engine(brand: &Brand, revision: &str) -> Environment<'static> {
    let mut engine = Environment::new();
    engine.set_auto_escape_callback(|_| AutoEscape::Html);
    engine.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    let logo = brand.logo.as_ref().map(|_| LOGO_PATH);
    let (title, accent) = (brand.title.clone(), brand.accent.to_string());
    engine.add_global("service", context! { title, accent, logo, revision });
    for (name, source) in TEMPLATES {
        engine.add_template(name, source).expect("templates that come with carom are sound");
    }
    engine
}

/// Replaces built-in templates with those of a directory.
fn add_templates(engine: &mut Environment<'static>, dir: &Path) -> Result<(), PagesError> {
    let of_notices = Notice::ALL.iter().map(|notice| notice.template());
    let known: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).chain(of_notices).collect();
    let failed = |error: std::io::Error| PagesError(format!("{} cannot be read: {error}", dir.display()));
    for entry in fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.ends_with(".html")) else {
            continue;
        };
        if !known.contains(&name) {
            let known = known.join(", ");
            return Err(PagesError(format!("{} is not a known template; expected one of {known}", path.display())));
        }
        let source = fs::read_to_string(&path)
            .map_err(|error| PagesError(format!("{} cannot be read: {error}", path.display())))?;
        engine.add_template_owned(name.to_owned(), source).map_err(|error| wrong(&error))?;
    }
    Ok(())
}

/// Describes the error of a template, with its name and line.
fn wrong(error: &minijinja::Error) -> PagesError {
    let place = match (error.name(), error.line()) {
        (Some(name), Some(line)) => format!("{name}:{line}: "),
        (Some(name), None) => format!("{name}: "),
        _ => String::new(),
    };
    let what = error.detail().map_or_else(|| error.kind().to_string(), |detail| format!("{}: {detail}", error.kind()));
    PagesError(format!("template {place}{what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brand() -> Brand {
        Brand { title: "Go & <co>".to_owned(), accent: Colour([0x2f, 0x6f, 0xed]), logo: None }
    }

    #[test]
    fn nothing_that_stands_in_a_page_is_markup() {
        let pages = Pages::new(brand(), None).unwrap();
        let evil = "\"><script>alert(1)</script>{{ 7 * 7 }}";
        let values = FORM_FIELDS.iter().map(|(name, _)| ((*name).to_owned(), evil.to_owned())).collect();
        let home = Home {
            errors: [("longUrl".to_owned(), evil.to_owned())].into(),
            values,
            problem: Some(evil.into()),
            ..Home::default()
        };
        let made = CreatedPage {
            target: evil.into(),
            short_url: evil.into(),
            code: evil.into(),
            path: evil.into(),
            ..CreatedPage::default()
        };
        let preview = Preview {
            target: evil.into(),
            host: evil.into(),
            title: Some(evil.into()),
            punycode: Some(evil.into()),
            ..Preview::default()
        };
        let sign_in = SignIn { next: evil, notice: Some(evil), error: Some(evil) };
        for page in [pages.home(&home), pages.created(&made), pages.preview(&preview), pages.sign_in(&sign_in)] {
            assert!(!page.contains("<script>"), "{page}");
            assert!(page.contains("{{ 7 * 7 }}"), "{page}");
            assert!(!page.contains("<co>"), "{page}");
        }
    }

    #[test]
    fn form_has_no_visit_limit_where_links_have_none() {
        let pages = Pages::new(brand(), None).unwrap();
        let has_field = |limits_visits| pages.home(&Home { limits_visits, ..Home::default() }).contains("maxVisits");
        assert!(has_field(true));
        assert!(!has_field(false));
    }

    #[test]
    fn neither_script_nor_style_stands_in_a_page() {
        let pages = Pages::new(brand(), None).unwrap();
        let drawn = Notice::ALL.map(|notice| pages.notice(notice).html.clone());
        let others =
            [pages.home(&Home::default()), pages.created(&CreatedPage::default()), pages.preview(&Preview::default())];
        for page in drawn.iter().chain(&others) {
            let has_handler = page.split_whitespace().any(|word| word.starts_with("on") && word.contains("=\""));
            assert!(!page.contains("<style"), "{page}");
            assert!(!page.contains(" style="), "{page}");
            assert!(!has_handler, "{page}");
            assert!(page.matches("<script").count() == page.matches("<script src=\"/-/").count());
            assert!(page.starts_with("<!DOCTYPE html>"), "{page}");
            assert!(page.trim_end().ends_with("</html>"), "{page}");
        }
        assert_eq!(
            pages.notice(Notice::Gone).text,
            "This link is no longer active. Ask the person who shared it for a new one.\n"
        );
    }

    #[test]
    fn templates_of_the_operator_take_the_place_of_ours() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("404.html", "{{ service.title }}: {{ number }} {{ heading }}");
        write("readme.txt", "not looked at");
        let pages = Pages::new(brand(), Some(dir.path())).unwrap();
        assert_eq!(pages.notice(Notice::NotFound).html, "Go &amp; &lt;co&gt;: 404 This link does not exist");
        assert!(pages.notice(Notice::Gone).html.contains("<h1>This link is no longer active</h1>"));
        for (name, text, said) in [
            ("503.html", "{{ number", "503.html:1"),
            ("503.html", "{{ nothing.more }}", "503.html:1"),
            ("home.html", "{% extends \"none.html\" %}", "none.html"),
            ("other.html", "x", "is not a known template; expected one of base.html"),
        ] {
            write(name, text);
            let error = Pages::new(brand(), Some(dir.path())).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
            fs::remove_file(dir.path().join(name)).unwrap();
        }
        assert!(Pages::new(brand(), Some(Path::new("/nowhere"))).is_err());
    }

    #[test]
    fn a_template_that_fails_for_a_visitor_is_replaced_by_ours() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("preview.html"), "{% if title %}{{ title.no.such }}{% endif %}").unwrap();
        let pages = Pages::new(brand(), Some(dir.path())).unwrap();
        let preview = Preview { title: Some("a title".to_owned()), host: "a.example".to_owned(), ..Preview::default() };
        assert!(pages.preview(&preview).contains("<bdi>a.example</bdi>"));
    }

    #[test]
    fn colours_are_read_and_can_be_written_upon() {
        assert_eq!(Colour::parse("#2F6fed"), Some(Colour([0x2f, 0x6f, 0xed])));
        for wrong in ["2f6fed", "#2f6fe", "#2f6fedd", "#+f6fed", "#gggggg", "red", "#é6fed"] {
            assert_eq!(Colour::parse(wrong), None, "{wrong}");
        }
        assert!(Colour([0, 0, 0]).is_dark());
        assert!(!Colour([255, 255, 0]).is_dark());
        let style = |accent| Pages::new(Brand { accent, ..brand() }, None).unwrap().style().to_owned();
        assert!(style(Colour([255, 255, 0])).contains(":root { --accent: #ffff00; --on-accent: #000; }"));
    }
}
