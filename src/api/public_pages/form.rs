//! The form at the root that creates links by hand, and the page of a link that it created.

use std::collections::BTreeMap;
use std::rc::Rc;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap};
use hyper::{Request, StatusCode};
use serde_json::{Map, Value};

use crate::api::compat::form::{Form, read_form};
use crate::api::console::cookies::tokens;
use crate::api::console::session::Session;
use crate::api::context::Context;
use crate::api::page::as_html;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::request::accepts_html;
use crate::api::response::{ApiResponse, answer, uncached_redirect, with};
use crate::api::rest::create::Create;
use crate::api::rest::short_urls::CreatedLink;
use crate::bridge::LinkAnswer;
use crate::pages::{self, CONTENT_SECURITY_POLICY, FORM_FIELDS, FormUser, Home};
use carom_model::access::Role;
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::domains::redirects::TargetKind;
use carom_model::domains::{DEFAULT_DOMAIN, DomainIndex, DomainName};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::link::fields::FaultKind;
use carom_model::redirect::MissLimit;
use carom_model::redirect::Notice;
use carom_model::visits::record::LoggedKind;
use carom_model::visits::tally::VisitCounts;

/// Date format of these pages.
const DAY_AND_TIME: &str = "%-d %b %Y, %H:%M UTC";

/// The field for the visit limit.
const MAX_VISITS: &str = "maxVisits";

/// Error for a form that another site sent.
const FOREIGN: &str = "This form was sent from another site. Fill it in on this page instead.";

/// Error for a form whose session has changed since the page was loaded.
const STALE: &str = "This page is out of date. Reload it, then try again.";

/// A browser that is signed in at the console, and may create links.
struct FormVisitor {
    /// Context of the API key that it signed in with.
    context: Context,
    session: Session,
    /// The user, as the form shows it.
    user: FormUser,
}

/// Reason to show the form again.
enum FormRefusal {
    /// Some fields are invalid.
    Fields(Vec<Invalid>),
    /// The request failed for another reason.
    Problem(Problem),
}

impl From<Problem> for FormRefusal {
    fn from(problem: Problem) -> FormRefusal {
        FormRefusal::Problem(problem)
    }
}

/// Formats an instant for people, in UTC.
pub(in crate::api) fn shown(ms: u64) -> String {
    dates::format_as(ms / 1_000, DAY_AND_TIME)
}

impl Context {
    /// Handles `GET /`: redirects to the domain's home page, or shows the form.
    pub(in crate::api) fn home<B>(&self, request: &Request<B>) -> ApiResponse {
        let Some(place) = self.domain_of(request) else { return self.no_link_page(request, None, Notice::NotFound) };
        let redirects = self.services.domain_redirects();
        let target = redirects.at(place).of(TargetKind::Home);
        if target.is_none() && !self.site.has_form {
            return self.orphan_page(request, Some(place), LoggedKind::BaseUrl);
        }
        self.record_orphan(request, Some(place), LoggedKind::BaseUrl, target);
        if let Some(target) = target {
            return uncached_redirect(target);
        }
        if accepts_html(request) {
            let user = self.form_visitor(request.headers()).map(|visitor| visitor.user);
            return self.show_form(StatusCode::OK, Home { user, ..Home::default() });
        }
        let text =
            format!("{}: a URL shortener. Open a short URL, or create a link through the API.\n", self.pages().title());
        answer(StatusCode::OK, "text/plain; charset=utf-8", text)
    }

    /// Returns the browser of a request, if it is signed in at the console of this node under the host name of this
    /// request, and its key may create links.
    fn form_visitor(&self, headers: &HeaderMap) -> Option<FormVisitor> {
        let now_ms = self.services.unix_ms();
        let mut sessions = tokens(headers).filter_map(|(_, token)| self.site.sessions.find(token, now_ms));
        sessions.find_map(|session| {
            let context = self.of_key(session.key).filter(|it| it.caller.role.includes(Role::WriteOwn))?;
            let caller = Rc::new(context.caller.within(session.life.clone()));
            let name = self.services.keys().find_hash(session.key, now_ms).and_then(|(entry, _)| entry.name.clone());
            let name = name.map_or_else(|| session.app.clone(), |name| name.to_string());
            Some(FormVisitor {
                context: Context { caller, ..context },
                user: FormUser { name, csrf: session.csrf.clone() },
                session,
            })
        })
    }

    /// True if the form has this field. A node whose links have a shared home refuses visit limits.
    fn has_field(&self, field: &str) -> bool {
        let is_known = FORM_FIELDS.iter().any(|(name, _)| *name == field);
        is_known && (field != MAX_VISITS || self.services.stores_all_links())
    }

    fn show_form(&self, status: StatusCode, home: Home) -> ApiResponse {
        let is_signed_in = home.user.is_some();
        let needs_key = self.services.keys().had_keys() || self.services.keys().is_unsure();
        let limits_visits = self.has_field(MAX_VISITS);
        let page = as_html(status, self.pages().home(&Home { needs_key, limits_visits, ..home }));
        // With `no-referrer` a browser would send `Origin: null` with this form. Without TLS it sends no other
        // header that reveals a foreign form (`is_foreign`).
        let page = with(page, header::REFERRER_POLICY, "same-origin");
        // The token in the form is for one browser.
        if is_signed_in { with(page, header::CACHE_CONTROL, "no-store") } else { page }
    }

    /// Handles `POST /`: creates a link from the form.
    pub(in crate::api) async fn create_from_form(&self, request: Request<Incoming>) -> ApiResponse {
        let domain = self.domain_of(&request);
        let Some(place) = domain.filter(|_| self.site.has_form) else {
            return self.no_link_page(&request, domain, Notice::NotFound);
        };
        let refusal = self.refuse_foreign_page(&request).err().map(|problem| problem.detail());
        let foreign = self.is_cross_site(&request).then(|| FOREIGN.to_owned());
        if let Some(problem) = foreign.or(refusal) {
            return self.show_form(StatusCode::FORBIDDEN, Home { problem: Some(problem), ..Home::default() });
        }
        let is_browser = accepts_html(&request);
        let visitor = self.form_visitor(request.headers());
        let user = visitor.as_ref().map(|visitor| visitor.user.clone());
        let (form, source) = match read_form(request).await {
            Ok(read) => read,
            Err(problem) if is_browser => return self.show_again(&Form::default(), problem.into(), user),
            Err(problem) => return problem.into_answer(),
        };
        let caller = self.caller.with_implied_domain(self.domains().label_at(place));
        let context = Context { caller: Rc::new(caller), ..self.clone() };
        match context.try_from_form(&form, source, visitor).await {
            Ok(CreatedLink { link, .. }) => self.redirect_to_created(&link, place),
            Err(refusal) => self.show_again(&form, refusal, user),
        }
    }

    /// Redirects to the page of a created link, so that a reload creates no second one.
    fn redirect_to_created(&self, link: &Link, place: DomainIndex) -> ApiResponse {
        let domain = link.labels.domain.as_ref();
        // A key may create links in another domain than that of the request. The page stays here: forms must not
        // redirect elsewhere.
        let elsewhere = if domain == self.domains().label_at(place).as_ref() {
            String::new()
        } else {
            format!("&domain={}", domain.map_or(DEFAULT_DOMAIN, DomainName::as_str))
        };
        let text = format!("{}/{}\n", self.domains().base_url_of(domain), link.code.as_slug());
        let answer = answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", text);
        with(answer, header::LOCATION, &(self.site.creator_links.path(link) + &elsewhere))
    }

    /// Handles `GET /-/links/{code}?mark=`: shows a created link to its creator.
    pub(in crate::api) async fn show_created<B>(&self, code: &str, request: &Request<B>) -> ApiResponse {
        let Some(place) = self.domain_of(request) else { return self.no_link_page(request, None, Notice::NotFound) };
        let mut client = self.client_of(request);
        if client.is_limited() {
            return self.too_many(request);
        }
        let caller = self.caller.with_implied_domain(self.domains().label_at(place));
        let here = Context { caller: Rc::new(caller), ..self.clone() };
        let query = request.uri().query();
        let Ok(code) = here.code_in(code, query).await else {
            return self.no_link_page(request, Some(place), Notice::NotFound);
        };
        match self.services.read_link(code).await {
            LinkAnswer::Found(link, counts) if self.site.creator_links.holds(&link, Params::of(query).text("mark")) => {
                self.draw_created(&link, counts, place)
            }
            LinkAnswer::Found(..) | LinkAnswer::NotFound if client.misses_too_often() => self.too_many(request),
            LinkAnswer::Found(..) | LinkAnswer::NotFound => self.no_link_page(request, Some(place), Notice::NotFound),
            LinkAnswer::Damaged => self.no_link_page(request, Some(place), Notice::Damaged),
            LinkAnswer::Refused(_) => self.no_link_page(request, Some(place), Notice::Unavailable),
        }
    }

    fn draw_created(&self, link: &Link, counts: VisitCounts, place: DomainIndex) -> ApiResponse {
        let domain = link.labels.domain.as_ref();
        let base_url = self.domains().base_url_of(domain);
        let code = link.code.as_slug().to_string();
        let elsewhere = if domain == self.domains().label_at(place).as_ref() { "" } else { &*base_url };
        let page = self.pages().created(&pages::CreatedPage {
            short_url: format!("{base_url}/{code}"),
            path: format!("{elsewhere}/{code}"),
            code,
            target: link.target.to_string(),
            ends: link.policy.valid_until_ms.map(shown),
            ends_at: link.policy.valid_until_ms.map(dates::format),
            visits: counts.total,
            most_visits: link.policy.max_visits.map(std::num::NonZeroU32::get),
        });
        let sources = ["img-src 'self'", elsewhere].join(" ");
        let policy = CONTENT_SECURITY_POLICY.replace("img-src 'self'", sources.trim_end());
        let answer = with(as_html(StatusCode::OK, page), header::CONTENT_SECURITY_POLICY, &policy);
        // The page shows the current number of visits.
        with(answer, header::CACHE_CONTROL, "no-store")
    }

    /// Identifies the sender of a form: by the API key in it, or else by the session of the browser.
    ///
    /// # Errors
    /// The errors of [`Context::identify`], and 403 for a form that another session loaded.
    fn sender_of(
        &self,
        form: &Form,
        source: Option<RequestOrigin>,
        visitor: Option<FormVisitor>,
    ) -> Result<Context, Problem> {
        let key = Some(form.get("key").trim()).filter(|key| !key.is_empty());
        match visitor {
            Some(FormVisitor { context, session, .. }) if key.is_none() => {
                if session.has_csrf_token(form.get("csrf").as_bytes()) {
                    Ok(context)
                } else {
                    Err(Problem::forbidden(STALE))
                }
            }
            _ => self.identify(key.map(str::as_bytes), source, None),
        }
    }

    async fn try_from_form(
        &self,
        form: &Form,
        source: Option<RequestOrigin>,
        visitor: Option<FormVisitor>,
    ) -> Result<CreatedLink, FormRefusal> {
        let domain = self.caller.implied_domain().cloned();
        let context = self.sender_of(form, source, visitor)?;
        let context = Context { caller: Rc::new(context.caller.with_implied_domain(domain)), ..context };
        context.caller.require(Role::WriteOwn)?;
        let (fields, mut invalid) = fields_of(form);
        let read = context.bounded(|bounds| Create::read(&fields, bounds));
        match read {
            Ok(create) if invalid.is_empty() => {
                // Programs import links that have expired already; a person has mistyped the date.
                if create.policy.valid_until_ms.is_some_and(|ms| ms <= self.services.unix_ms()) {
                    Err(FormRefusal::Fields(vec![Invalid::new("validUntil", "must be in the future")]))
                } else {
                    Ok(context.create_link(create).await?)
                }
            }
            read => {
                invalid.extend(read.err().into_iter().flatten());
                Err(FormRefusal::Fields(invalid))
            }
        }
    }

    /// Shows the form again with the values that were sent, each error beside its field.
    fn show_again(&self, form: &Form, refusal: FormRefusal, user: Option<FormUser>) -> ApiResponse {
        let values = FORM_FIELDS.iter().map(|(name, _)| ((*name).to_owned(), form.get(name).to_owned())).collect();
        let (mut errors, mut problem) = (BTreeMap::new(), None);
        let is_open = FORM_FIELDS.iter().any(|(name, is_option)| *is_option && !form.get(name).is_empty());
        match refusal {
            FormRefusal::Fields(invalid) => {
                for Invalid { field, reason, kind } in invalid {
                    if self.has_field(&field) {
                        _ = errors.insert(field, field_error(&reason, kind));
                    } else {
                        problem = Some(sentence(&format!("{field} {reason}")));
                    }
                }
                let home = Home { values, errors, problem, is_open, user, ..Home::default() };
                self.show_form(StatusCode::BAD_REQUEST, home)
            }
            FormRefusal::Problem(of) => {
                let about = match of.status() {
                    StatusCode::UNAUTHORIZED => Some(("key", "Invalid, expired or revoked key.".to_owned())),
                    _ if of.is_slug_taken() => Some(("customSlug", "This slug is already in use.".to_owned())),
                    _ => None,
                };
                match about {
                    Some((field, text)) => _ = errors.insert(field.to_owned(), text),
                    None => problem = Some(of.detail()),
                }
                let home = Home { values, errors, problem, is_open, user, ..Home::default() };
                let form = self.show_form(of.status(), home);
                of.add_headers(form)
            }
        }
    }
}

/// Converts the form to fields of the REST API. Empty fields are left out. Values that cannot be converted are left
/// out too, and returned as errors.
fn fields_of(form: &Form) -> (Map<String, Value>, Vec<Invalid>) {
    let mut fields = Map::new();
    let mut invalid = Vec::new();
    for (name, _) in FORM_FIELDS {
        let text = form.get(name).trim();
        if text.is_empty() {
            continue;
        }
        let value = match name {
            // Browsers send neither seconds nor an offset; the form says that it is UTC.
            "validUntil" if text.len() == "2026-01-02T03:04".len() => format!("{text}:00+00:00").into(),
            "validUntil" if text.len() == "2026-01-02T03:04:05".len() => format!("{text}+00:00").into(),
            MAX_VISITS => match text.parse::<u32>() {
                Ok(number) => number.into(),
                Err(_) => {
                    invalid.push(Invalid::new(name, "must be a whole number from 1 to 4294967295"));
                    continue;
                }
            },
            "longUrl" => with_scheme(text).into(),
            "tags" => text.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect(),
            _ => Value::from(text),
        };
        fields.insert(name.to_owned(), value);
    }
    (fields, invalid)
}

/// Adds `https` to a URL without a scheme.
fn with_scheme(text: &str) -> String {
    let authority = text.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = authority.split_once(':').unwrap_or((authority, ""));
    let is_host = host.contains('.') && !host.contains(char::is_whitespace) && !host.contains('@');
    if is_host && port.bytes().all(|byte| byte.is_ascii_digit()) { format!("https://{text}") } else { text.to_owned() }
}

/// Formats what is wrong with a field as a sentence for people, as the console does: "This must be …".
fn field_error(reason: &str, kind: Option<FaultKind>) -> String {
    if kind == Some(FaultKind::RelativeUrl) {
        return "Enter a complete URL that begins with https:// or http://.".to_owned();
    }
    let subject = if reason.starts_with("are ") { "These" } else { "This" };
    let has_verb_first = reason.starts_with(|first: char| first.is_ascii_lowercase());
    if has_verb_first { sentence(&format!("{subject} {reason}")) } else { sentence(reason) }
}

/// Formats the reason of an error as a sentence for people.
fn sentence(reason: &str) -> String {
    let mut chars = reason.chars();
    let first = chars.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let end = if reason.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_those_of_the_api() {
        let mut form = Form::default();
        form.add_encoded("longUrl=+https%3A%2F%2Fa.example%2F+&validUntil=2030-01-02T03%3A04&maxVisits=5&tags=a%2C+b%2C%2C&customSlug=&evil=1");
        let expected = json!({
            "longUrl": "https://a.example/", "validUntil": "2030-01-02T03:04:00+00:00", "maxVisits": 5, "tags": ["a", "b"],
        });
        assert_eq!(Value::Object(fields_of(&form).0), expected);
        form.add_encoded("maxVisits=many");
        assert_eq!(fields_of(&form).1[0].field, "maxVisits");
    }

    #[test]
    fn who_names_no_scheme_means_https() {
        for text in ["a.example", "a.example/x?y=1:2", "a.example:8080/x", "bücher.example#c", "192.0.2.1/x"] {
            assert_eq!(with_scheme(text), format!("https://{text}"));
        }
        for text in
            ["http://a.example", "mailto:a@b.example", "javascript:alert(1)", "just words", "a. b", "word", "/x.y", ""]
        {
            assert_eq!(with_scheme(text), text);
        }
    }
}
