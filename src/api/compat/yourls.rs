//! YOURLS's API, `/yourls-api.php` (yourls.org/docs/guide/advanced/api): the actions `shorturl`, `expand`,
//! `url-stats`, `stats`, `db-stats` and `version`, with responses in JSON, JSONP, XML, or one line of text.
//!
//! The field `signature` carries an API key; alternatively `password` carries one of the app that `username` names.
//! Signatures with a time limit are unsupported: each is a hash with a secret that carom does not store.

use std::borrow::Cow;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::{Request, StatusCode, header};
use serde_json::{Map, Value, json};

use super::form::{Form, read_form};
use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::rate_limit::with_quota;
use crate::api::response::{ApiResponse, answer, with};
use crate::api::rest::short_urls::{CreatedLink, short_url_of};
use carom_limits::{LINKS_WRITTEN_AT_ONCE, LIST_PER_PAGE_MAX};
use carom_model::access::miss_limiter::RequestOrigin;
use carom_model::access::usage::Quota;
use carom_model::access::{Role, Scope};
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates;
use carom_model::link::Link;
use carom_model::query::{Filter, ListPage, ListQuery, OrderField, SortOrder};
use carom_model::visits::tally::VisitCounts;

/// Version of YOURLS that this API reports.
const VERSION: &str = "1.9.2";

/// A response before it is formatted: members, the line of the format `simple`, and the status.
struct YourlsReply {
    members: Map<String, Value>,
    simple: String,
    status: StatusCode,
    quota: Option<Quota>,
    /// Seconds after which a retry may succeed.
    retry_after: Option<u64>,
    /// The number of links that the members describe.
    links: usize,
}

impl YourlsReply {
    /// Builds a response from a status, the members of an object, and the line of the format `simple`.
    fn of(status: StatusCode, members: Value, simple: impl Into<String>) -> YourlsReply {
        let Value::Object(members) = members else { unreachable!("it is written as one") };
        YourlsReply { members, simple: simple.into(), status, quota: None, retry_after: None, links: 0 }
    }
}

impl Context {
    /// Handles `GET` and `POST /yourls-api.php`: runs the requested action.
    pub(in crate::api) async fn yourls(&self, request: Request<Incoming>) -> ApiResponse {
        // Responses can be scripts, and writes can be image loads, so any page of any site can cause these
        // requests.
        let refusal = self.refuse_browser(&request);
        let domain = self.domain_of(&request).and_then(|place| self.domains().label_at(place));
        let form = match read_form(request).await {
            Ok((form, source)) => (form, source),
            Err(problem) => return problem.into_answer(),
        };
        let (form, source) = form;
        let reply = match refusal {
            Ok(()) if form.get("format") == "jsonp" && !self.site.interfaces.yourls_jsonp => Err(Problem::forbidden(
                "JSONP is disabled on this service. To enable it, its operator sets api.yourls_jsonp = true.",
            )),
            Ok(()) => self.try_yourls(&form, source, domain).await,
            Err(problem) => Err(problem),
        };
        let reply = reply.unwrap_or_else(|problem| refused(&problem));
        self.write_yourls(&form, reply).await
    }

    async fn write_yourls(&self, form: &Form, reply: YourlsReply) -> ApiResponse {
        let YourlsReply { members, simple, status, quota, retry_after, links } = reply;
        let (format, callback) = (form.get("format").to_owned(), form.get("callback").to_owned());
        let jsonp = self.site.interfaces.yourls_jsonp;
        let write = move || written((&*format, &*callback), members, simple, jsonp);
        match self.services.write_document(links, LINKS_WRITTEN_AT_ONCE, write).await {
            Ok(text) => respond(text, status, quota, retry_after),
            Err(reason) => unwritten((form.get("format"), form.get("callback")), reason, jsonp),
        }
    }

    async fn try_yourls(
        &self,
        form: &Form,
        source: Option<RequestOrigin>,
        domain: Option<DomainName>,
    ) -> Result<YourlsReply, Problem> {
        let context = self.authenticate_form(form, source)?;
        // A YOURLS installation has a single domain: the host of the request selects it.
        let context = Context { caller: Rc::new(context.caller.with_implied_domain(domain)), ..context };
        match form.get("action") {
            "shorturl" => {
                context.caller.require(Role::WriteOwn)?;
                context.yourls_shorten(form).await
            }
            "expand" => context.yourls_expand(form).await,
            "url-stats" => context.yourls_stats_of(form).await,
            "stats" | "db-stats" if !self.services.stores_all_links() => {
                Err(Problem::shared_home("The actions stats and db-stats"))
            }
            "stats" => context.yourls_stats(form).await,
            "db-stats" => context.yourls_totals().await,
            "version" => Ok(YourlsReply::of(StatusCode::OK, json!({"version": VERSION}), VERSION)),
            _ => {
                let text = "Unknown or missing \"action\" parameter";
                Ok(YourlsReply::of(StatusCode::BAD_REQUEST, json!({"errorCode": 400, "message": text}), text))
            }
        }
    }

    fn authenticate_form(&self, form: &Form, source: Option<RequestOrigin>) -> Result<Context, Problem> {
        let shown = [form.get("signature"), form.get("password")].into_iter().find(|text| !text.is_empty());
        let context = self.identify(shown.map(str::as_bytes), source, None)?;
        let username = form.get("username");
        let is_of_app = context.caller.name().is_none_or(|app| username.is_empty() || app.as_str() == username);
        if is_of_app { Ok(context) } else { Err(Problem::wrong_key()) }
    }

    async fn yourls_shorten(&self, form: &Form) -> Result<YourlsReply, Problem> {
        let (url, keyword, title) = (form.get("url"), form.get("keyword"), form.get("title"));
        let mut fields = Map::new();
        // As in YOURLS, a URL without a scheme gets one.
        let has_scheme = url.contains("://") || url.is_empty();
        let url = if has_scheme { Cow::Borrowed(url) } else { Cow::Owned(format!("http://{url}")) };
        fields.insert("longUrl".to_owned(), json!(url));
        self.name_domain(&mut fields);
        if keyword.is_empty() {
            fields.insert("findIfExists".to_owned(), json!(self.services.stores_all_links()));
        } else {
            fields.insert("customSlug".to_owned(), json!(keyword));
        }
        if !title.is_empty() {
            fields.insert("title".to_owned(), json!(title));
        }
        let CreatedLink { link, counts, quota } = match self.create_from_fields(&fields).await {
            Err(problem) if problem.names("customSlug") || problem.is_slug_taken() => {
                return Ok(keyword_taken(keyword));
            }
            Err(problem) if problem.names("longUrl") => return Ok(no_url(&problem)),
            made => made?,
        };
        let short_url = self.short_url(&link);
        let mut url = json!({
            "keyword": link.code.as_slug().to_string(),
            "url": link.target,
            "title": title_of(&link),
            "date": date(link.created_ms),
            "ip": "",
        });
        let mut members = json!({"title": title_of(&link), "shorturl": short_url, "statusCode": 200});
        if counts.is_some() {
            members["status"] = json!("success");
            members["message"] = json!(format!("{} added to database", link.target));
        } else {
            url["clicks"] = json!(self.find(link.code).await.map_or(0, |(_, counts)| counts.total));
            members["status"] = json!("fail");
            members["code"] = json!("error:url");
            members["message"] = json!(format!("{} already exists in database", link.target));
        }
        members["url"] = url;
        Ok(YourlsReply { quota, ..YourlsReply::of(StatusCode::OK, members, short_url) })
    }

    async fn yourls_expand(&self, form: &Form) -> Result<YourlsReply, Problem> {
        let name = form.get("shorturl");
        Ok(match self.find_named(name).await {
            Ok((link, _)) => {
                let members = json!({
                    "keyword": link.code.as_slug().to_string(), "shorturl": self.short_url(&link), "longurl": link.target,
                    "title": title_of(&link), "message": "success", "statusCode": 200,
                });
                YourlsReply::of(StatusCode::OK, members, link.target.clone())
            }
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
                let message = "Error: short URL not found";
                let members = json!({"keyword": super::code_in(name), "message": message, "errorCode": 404});
                YourlsReply::of(StatusCode::NOT_FOUND, members, "not found")
            }
            Err(problem) => return Err(problem),
        })
    }

    async fn yourls_stats_of(&self, form: &Form) -> Result<YourlsReply, Problem> {
        Ok(match self.find_named(form.get("shorturl")).await {
            Ok((link, counts)) => {
                let members =
                    json!({"statusCode": 200, "message": "success", "link": described(self.domains(), &link, counts)});
                YourlsReply::of(StatusCode::OK, members, NEEDS_MORE)
            }
            Err(problem) if problem.status() == StatusCode::NOT_FOUND => {
                let members = json!({"statusCode": 404, "message": "Error: short URL not found"});
                YourlsReply::of(StatusCode::NOT_FOUND, members, NEEDS_MORE)
            }
            Err(problem) => return Err(problem),
        })
    }

    async fn yourls_stats(&self, form: &Form) -> Result<YourlsReply, Problem> {
        let number = |name: &str, default: u64| match form.get(name) {
            "" => Ok(default),
            text => text.parse::<u64>().map_err(|_| Problem::malformed(format!("{name} must be a whole number."))),
        };
        let (limit, start) = (number("limit", 10)?.clamp(1, LIST_PER_PAGE_MAX as u64), number("start", 0)?);
        let (field, descending) = match form.get("filter") {
            "bottom" => (OrderField::Visits, false),
            "top" | "" => (OrderField::Visits, true),
            _ => (OrderField::DateCreated, true),
        };
        let order = SortOrder { field, descending };
        let total = self.page_of(order, 1, 1).await?.total;
        // The filters `rand` and `random` start at a random page.
        let start = match form.get("filter") {
            "rand" | "random" if total > limit => {
                (getrandom::u64().unwrap_or_default() % (total - limit + 1)) / limit * limit
            }
            _ => start,
        };
        // A start behind the last link yields an empty list.
        let start = start.min(total);
        // Pages have one length, so the links may lie on two of them.
        let first = start / limit + 1;
        let skipped = (start % limit) as usize;
        let mut shown = Vec::new();
        for page in first..first + 1 + u64::from(skipped > 0) {
            let ListPage { links, visits, .. } = self.page_of(order, page, limit as usize).await?;
            shown.extend(links.into_iter().zip(visits));
        }
        let (domains, count) = (Arc::clone(&self.services.context().domains), shown.len().min(limit as usize));
        let describe = move || -> Map<String, Value> {
            let shown = shown.iter().skip(skipped).take(limit as usize).enumerate();
            shown.map(|(at, (link, counts))| (format!("link_{}", at + 1), described(&domains, link, *counts))).collect()
        };
        let links =
            self.services.write_document(count, LINKS_WRITTEN_AT_ONCE, describe).await.map_err(Problem::no_list)?;
        let stats = self.totals(total).await?;
        let members = Map::from_iter([
            ("links".to_owned(), Value::Object(links)),
            ("stats".to_owned(), stats),
            ("statusCode".to_owned(), json!(200)),
            ("message".to_owned(), json!("success")),
        ]);
        Ok(YourlsReply { links: count, ..YourlsReply::of(StatusCode::OK, Value::Object(members), NEEDS_MORE) })
    }

    async fn yourls_totals(&self) -> Result<YourlsReply, Problem> {
        let total = self.page_of(SortOrder { field: OrderField::DateCreated, descending: true }, 1, 1).await?.total;
        let members = json!({"db-stats": self.totals(total).await?, "statusCode": 200, "message": "success"});
        Ok(YourlsReply::of(StatusCode::OK, members, NEEDS_MORE))
    }

    /// Returns the number of links and of visits. Visits are counted for all apps and domains together only.
    async fn totals(&self, links: u64) -> Result<Value, Problem> {
        let clicks = if self.yourls_scope().is_all() { Some(self.visits_of_all().await?.total) } else { None };
        Ok(json!({"total_links": links.to_string(), "total_clicks": clicks.map(|clicks| clicks.to_string())}))
    }

    /// Returns the links to use: if the service has several domains, those of the request's domain.
    fn yourls_scope(&self) -> Scope {
        let scope = self.caller.scope();
        if self.domains().is_strict() {
            scope.within([self.caller.implied_domain().map(DomainName::id)])
        } else {
            scope
        }
    }

    async fn page_of(&self, order: SortOrder, page: u64, per_page: usize) -> Result<ListPage, Problem> {
        let filter = Filter { scope: self.yourls_scope(), ..Filter::default() };
        self.page_of_links(ListQuery { filter, order, page, per_page, cursor: None, asker: None }).await
    }
}

fn described(domains: &Domains, link: &Link, counts: VisitCounts) -> Value {
    json!({
        "shorturl": short_url_of(domains, link),
        "url": link.target,
        "title": title_of(link),
        "timestamp": date(link.created_ms),
        "ip": "",
        "clicks": counts.total.to_string(),
    })
}

/// Returns the 503 for a list that is unavailable now.
const NEEDS_MORE: &str = "Need either XML or JSON format for stats";

fn title_of(link: &Link) -> &str {
    link.labels.title.as_deref().unwrap_or(&link.target)
}

/// Formats an instant as `2026-01-31 12:00:00`, in UTC.
fn date(ms: u64) -> String {
    dates::format(ms)[..19].replace('T', " ")
}

fn keyword_taken(keyword: &str) -> YourlsReply {
    let message = format!("Short URL {keyword} already exists in database or is reserved");
    let members = json!({"status": "fail", "code": "error:keyword", "message": message, "statusCode": 200});
    YourlsReply::of(StatusCode::OK, members, "")
}

fn no_url(problem: &Problem) -> YourlsReply {
    let message = format!("Missing or malformed URL: {}", problem.detail());
    let members = json!({"status": "fail", "code": "error:nourl", "message": message, "errorCode": "400"});
    YourlsReply::of(StatusCode::BAD_REQUEST, members, "")
}

/// Formats a problem as YOURLS does: an invalid key yields "please log in".
fn refused(problem: &Problem) -> YourlsReply {
    let status = match problem.status() {
        StatusCode::UNAUTHORIZED => StatusCode::FORBIDDEN,
        status => status,
    };
    let message = match problem.status() {
        StatusCode::UNAUTHORIZED => "Please log in".to_owned(),
        _ => problem.detail(),
    };
    let members = json!({"status": "fail", "errorCode": status.as_str(), "message": message});
    let (quota, retry_after) = (problem.quota(), problem.retry_after());
    YourlsReply { quota, retry_after, ..YourlsReply::of(status, members, message) }
}

/// Returns a response with a content type and a text.
fn respond(
    (kind, text): (&'static str, String),
    status: StatusCode,
    quota: Option<Quota>,
    retry_after: Option<u64>,
) -> ApiResponse {
    let answer = with_quota(answer(status, kind, text), quota);
    match retry_after {
        Some(seconds) => with(answer, header::RETRY_AFTER, &seconds.to_string()),
        None => answer,
    }
}

/// Returns the error for a list that no thread was free to write, in the format of the request.
fn unwritten(form: (&str, &str), reason: &str, jsonp: bool) -> ApiResponse {
    let YourlsReply { members, simple, status, quota, retry_after, .. } = refused(&Problem::no_list(reason));
    respond(written(form, members, simple, jsonp), status, quota, retry_after)
}

/// Formats a response. Returns its content type and its text.
fn written(
    (format, callback): (&str, &str),
    members: Map<String, Value>,
    simple: String,
    jsonp: bool,
) -> (&'static str, String) {
    match format {
        // Without the permission for JSONP the response is plain JSON.
        "jsonp" if !jsonp => ("application/json", Value::Object(members).to_string()),
        "json" => ("application/json", Value::Object(members).to_string()),
        "jsonp" if is_name(callback) => {
            ("application/javascript; charset=utf-8", format!("{callback}({})", Value::Object(members)))
        }
        "simple" => ("text/plain; charset=utf-8", simple),
        _ => {
            let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
            push_xml(&mut text, "result", &Value::Object(members));
            ("application/xml; charset=utf-8", text)
        }
    }
}

/// True if a callback is the name of a function rather than a script.
fn is_name(callback: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'.');
    (1..=128).contains(&callback.len()) && callback.bytes().all(is_part)
}

fn push_xml(out: &mut String, name: &str, value: &Value) {
    let _ = write!(out, "<{name}>");
    match value {
        Value::Object(members) => members.iter().for_each(|(name, value)| push_xml(out, name, value)),
        Value::String(text) => push_text(out, text),
        Value::Null => {}
        other => push_text(out, &other.to_string()),
    }
    let _ = write!(out, "</{name}>");
}

/// Appends a text with the special characters of XML escaped, and without those that XML forbids.
fn push_text(out: &mut String, text: &str) {
    let may_stand =
        |c: &char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || matches!(c, '\t' | '\n' | '\r');
    for c in text.chars().filter(may_stand) {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_is_escaped() {
        let mut text = String::new();
        push_xml(&mut text, "r", &json!({"a": "<&>\u{1}\"", "b": {"c": 5, "d": null}}));
        assert_eq!(text, "<r><a>&lt;&amp;&gt;&quot;</a><b><c>5</c><d></d></b></r>");
        let mut text = String::new();
        push_text(&mut text, "http://a/?\"><script>'&amp;");
        assert_eq!(text, "http://a/?&quot;&gt;&lt;script&gt;&#39;&amp;amp;");
    }

    #[test]
    fn unwritten_lists_are_refused_in_the_format_of_the_request() {
        for (format, kind) in [("json", "application/json"), ("xml", "application/xml; charset=utf-8")] {
            let refusal = unwritten((format, ""), "no thread became free in time", false);
            assert_eq!(refusal.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(refusal.headers()[header::CONTENT_TYPE], kind);
        }
    }

    #[test]
    fn a_callback_is_no_script() {
        assert!(is_name("jQuery1.cb_$"));
        assert!(!is_name(""));
        assert!(!is_name("alert(1)//"));
        assert!(!is_name("<b>"));
    }

    #[test]
    fn dates_are_as_there() {
        assert_eq!(date(1_767_323_045_000), "2026-01-02 03:04:05");
    }
}
