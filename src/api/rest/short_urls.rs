//! The API of links: create, read, change, delete.

use std::rc::Rc;
use std::sync::Arc;

use carom_shards::{Code, DomainId};
use hyper::body::Incoming;
use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Request, StatusCode};
use serde_json::{Map, Value};

use super::create::{Create, RequestLimits, RequestedSlug};
use super::patch;
use super::single_step::wants_text;
use crate::api::context::Context;
use crate::api::fields;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::Params;
use crate::api::rate_limit::with_quota;
use crate::api::request::{body_len_max, read_body};
use crate::api::response::{ApiResponse, empty, json as json_answer, with};
use crate::bridge::handle::ServiceHandle;
use crate::bridge::{ChangeAnswer, CreateAnswer, DeleteAnswer, JobKind, LinkAnswer, StoreRequest, WriteFailure};
use carom_limits::{REUSES_TRIED_MAX, SHORT_BODY_LEN};
use carom_model::access::Scope;
use carom_model::access::idempotency::{Idempotency, IdempotencyKey, PendingCreate};
use carom_model::access::usage::Quota;
use carom_model::domains::{DomainName, Domains};
use carom_model::formats::dates::{INSTANT_MS_MAX, whole_second};
use carom_model::link::private_code::{self, RandomSlug};
use carom_model::link::{Link, Origin, Reuse, Version};
use carom_model::replication::formats;
use carom_model::visits::tally::VisitCounts;

/// Generated codes that a create tries before it gives up. A taken one is a custom slug of the same shape, or was
/// issued before the store was restored from an old backup.
const CODES_TRIED_MAX: usize = 64;

/// Request header with the client's key for repeating a create safely.
const KEY_FIELD: HeaderName = HeaderName::from_static("idempotency-key");

/// Field of a create with the same key.
const KEY_NAME: &str = "idempotencyKey";

/// Response header that marks the link as created by an earlier request with the same idempotency key.
const REPLAYED_FIELD: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Reason that clients get while Redis is unavailable.
const NEEDS_REDIS: &str = "this request needs Redis, which does not answer";

/// A link to show, with its visits where they are known.
pub(in crate::api) type ShownLink = (Arc<Link>, Option<VisitCounts>);

/// A link that was created or found.
pub(in crate::api) struct CreatedLink {
    pub(in crate::api) link: Arc<Link>,
    /// Visits of the link, where they are known: those of a new link are.
    pub(in crate::api) counts: Option<VisitCounts>,
    /// Remainder of the app's rate limit.
    pub(in crate::api) quota: Option<Quota>,
}

/// A link to create, unless an existing link is reused.
pub(in crate::api) struct NewLink {
    pub(in crate::api) link: Arc<Link>,
    pub(in crate::api) reuse: Reuse,
    /// The form of another slug, if the code is taken; `None` if the client chose the slug, or the code was issued.
    pub(in crate::api) random: Option<RandomSlug>,
    /// Marks the idempotency key as in use until dropped; `None` without a key.
    pub(in crate::api) pending: Option<Rc<PendingCreate>>,
}

impl Context {
    /// Handles `POST /rest/v3/short-urls`: creates a link, or returns an existing one.
    pub(in crate::api) async fn create(&self, request: Request<Incoming>) -> ApiResponse {
        let as_text = match wants_text(&request) {
            Ok(as_text) => as_text,
            Err(problem) => return problem.into_answer(),
        };
        match self.try_create(request).await {
            Ok((CreatedLink { link, counts, quota }, is_repeated)) => {
                let answer = with_quota(self.show_new(&link, counts, as_text).await, quota);
                if is_repeated { with(answer, REPLAYED_FIELD, "true") } else { answer }
            }
            Err(problem) => problem.into_answer(),
        }
    }

    /// Runs `read` with the limits for this caller's destinations and domains.
    pub(in crate::api) fn bounded<T>(&self, read: impl FnOnce(&RequestLimits<'_>) -> T) -> T {
        let (allowed, blocked) = (self.services.allowed(), self.services.blocked());
        read(&RequestLimits {
            own: &self.site.own,
            allowed: allowed.as_deref(),
            blocked: blocked.as_deref(),
            domains: Some(self.domains()),
            limited: self.caller.domains(),
            implied_domain: self.caller.implied_domain(),
            slugs: self.site.slugs,
            home_is_shared: !self.services.stores_all_links(),
        })
    }

    /// Creates the link. The flag is true if an earlier request with the same idempotency key has created it.
    async fn try_create(&self, request: Request<Incoming>) -> Result<(CreatedLink, bool), Problem> {
        let key = idempotency_key(request.headers())?;
        let mut fields = read_object(&self.services, request).await?;
        let create = self.keyed_create(&mut fields, || key)?;
        let idempotency = create.labels.idempotency;
        let pending = self.begin_keyed(&create)?;
        let created = self.create_with_quota(create, pending).await?;
        // A link that this request has created comes with known visits: zero.
        let is_repeated =
            created.counts.is_none() && idempotency.is_some() && created.link.labels.idempotency == idempotency;
        Ok((created, is_repeated))
    }

    /// Reads the fields of a create. An idempotency key among them comes before that of the request.
    ///
    /// # Errors
    /// 400 with every field that is invalid.
    pub(super) fn keyed_create(
        &self,
        fields: &mut Map<String, Value>,
        of_request: impl FnOnce() -> Option<IdempotencyKey>,
    ) -> Result<Create, Problem> {
        let of_fields = match fields.remove(KEY_NAME) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => IdempotencyKey::parse(text.as_bytes()).map(Some),
            Some(_) => Err("must be a string".to_owned()),
        };
        let mut invalid = Vec::new();
        let of_fields = of_fields.map_err(|reason| invalid.push(Invalid::new(KEY_NAME, reason))).unwrap_or_default();
        let create = self.bounded(|bounds| Create::read(fields, bounds)).map_err(|wrong| invalid.extend(wrong)).ok();
        let create = create.filter(|_| invalid.is_empty());
        let mut create = create.ok_or_else(|| Problem::invalid(&invalid))?;
        if let Some(key) = of_fields.or_else(of_request) {
            self.require_all_links("Idempotency keys")?;
            let fields = Value::Object(std::mem::take(fields)).to_string();
            create.labels.idempotency = Some(Idempotency::of(self.caller.name(), &key, &fields));
        }
        Ok(create)
    }

    /// Reads a create from a line of a bulk request. `key` is the idempotency key of the whole request.
    ///
    /// # Errors
    /// The problem with the line.
    pub(super) async fn create_of(
        &self,
        number: u64,
        line: &[u8],
        key: Option<&IdempotencyKey>,
    ) -> Result<Create, Problem> {
        let mut fields = parse_line(&self.services, line).await?;
        self.keyed_create(&mut fields, || key.map(|key| key.of_line(number)))
    }

    /// Marks the idempotency key of a create as in use.
    ///
    /// # Errors
    /// 409 if a create with the same key is in progress.
    pub(super) fn begin_keyed(&self, create: &Create) -> Result<Option<Rc<PendingCreate>>, Problem> {
        let Some(idempotency) = &create.labels.idempotency else { return Ok(None) };
        let pending = self.services.context().pending_creates.begin(idempotency.key);
        pending.map(|pending| Some(Rc::new(pending))).ok_or_else(Problem::create_under_way)
    }

    /// Creates a link, or finds one that may be reused.
    pub(in crate::api) async fn create_link(&self, create: Create) -> Result<CreatedLink, Problem> {
        self.create_with_quota(create, None).await
    }

    /// Creates a link from fields of the REST API, or finds one like it.
    pub(in crate::api) async fn create_from_fields(&self, fields: &Map<String, Value>) -> Result<CreatedLink, Problem> {
        let create = self.bounded(|bounds| Create::read(fields, bounds));
        self.create_link(create.map_err(|invalid| Problem::invalid(&invalid))?).await
    }

    async fn create_with_quota(
        &self,
        create: Create,
        pending: Option<Rc<PendingCreate>>,
    ) -> Result<CreatedLink, Problem> {
        let quota = self.caller.take_create()?;
        let created = self.create_one(create, pending).await;
        created.map(|(link, counts)| CreatedLink { link, counts, quota }).map_err(|problem| problem.with_quota(quota))
    }

    async fn create_one(&self, create: Create, pending: Option<Rc<PendingCreate>>) -> Result<ShownLink, Problem> {
        let code = match &create.slug {
            Some(slug) => self.code_of(slug)?,
            None => self.fresh_code(create.private).await?,
        };
        let new = NewLink { pending, ..self.new_link(create, code) };
        let answer = self.insert(&new).await;
        self.finish(new, answer).await
    }

    /// Turns the store's reply into a link. Tries further codes if the code is taken.
    pub(in crate::api) async fn finish(&self, new: NewLink, answer: CreateAnswer) -> Result<ShownLink, Problem> {
        let (mut new, mut answer) = (new, answer);
        for tried in 1.. {
            match answer {
                CreateAnswer::Created => {
                    self.caller.count_created();
                    return Ok((new.link, Some(VisitCounts::default())));
                }
                CreateAnswer::Existing { link: existing, spare } => {
                    if spare {
                        self.services.give_code_back(new.link.code.within(None));
                    }
                    return Ok((existing, None));
                }
                CreateAnswer::Repeated { link } => return Ok((link, None)),
                CreateAnswer::OtherRequest => return Err(Problem::key_of_other_request()),
                CreateAnswer::RepeatedGone => return Err(Problem::created_link_gone()),
                CreateAnswer::RepeatedDamaged => return Err(Problem::damaged(&new.link.code.as_slug().to_string())),
                CreateAnswer::Unserved => return Err(unserved()),
                CreateAnswer::Failed(failure) => return Err(write_failed(&failure)),
                CreateAnswer::Taken if tried == CODES_TRIED_MAX => break,
                CreateAnswer::Taken => {}
            }
            let code = match (new.link.origin, &new.random) {
                (Origin::Custom, Some(random)) => Context::random_code(random)?,
                // The link that was found may have been deleted meanwhile.
                (Origin::Custom, None) if matches!(new.reuse, Reuse::OfSlug(_)) => new.link.code,
                (Origin::Custom, None) => return Err(taken(&new.link)),
                (Origin::Issued, _) => self.fresh_code(new.link.is_private()).await?,
            };
            if code == new.link.code || tried >= REUSES_TRIED_MAX {
                new.reuse = Reuse::Never;
            }
            let code = code.within(new.link.code.domain());
            new.link = Arc::new(Link { code, ..Link::clone(&new.link) });
            answer = self.insert(&new).await;
        }
        Err(Problem::unavailable("All short codes that were tried are taken. Try again."))
    }

    pub(in crate::api) async fn fresh_code(&self, private: bool) -> Result<Code, Problem> {
        if private { Context::private_code() } else { self.services.take_code().await.map_err(|_| Problem::no_code()) }
    }

    pub(in crate::api) fn private_code() -> Result<Code, Problem> {
        private_code::generate().map_err(|_| no_random_bytes())
    }

    /// Returns the code of a slug that a client determined.
    ///
    /// # Errors
    /// 503 if the slug needs random characters, and the operating system provides none; or if it has slashes, and a node
    /// of the fleet cannot read it.
    pub(in crate::api) fn code_of(&self, slug: &RequestedSlug) -> Result<Code, Problem> {
        let code = match slug {
            RequestedSlug::Chosen(code) => *code,
            RequestedSlug::Random(random) => Context::random_code(random)?,
        };
        if code.has_slashes() && !self.fleet_reads(formats::SLASHES) {
            let detail =
                "A node of the fleet runs a version that cannot read slugs with slashes. Upgrade all nodes first.";
            return Err(Problem::unavailable(detail));
        }
        Ok(code)
    }

    /// True if all live nodes of the fleet can read that format, or there is no fleet.
    pub(super) fn fleet_reads(&self, format: u32) -> bool {
        let context = self.services.context();
        context.fleet_view.is_none() || context.node.fleet.format.get() >= u64::from(format)
    }

    fn random_code(random: &RandomSlug) -> Result<Code, Problem> {
        random.generate().map_err(|_| no_random_bytes())
    }

    async fn insert(&self, NewLink { link, reuse, pending, .. }: &NewLink) -> CreateAnswer {
        let answer = self.services.create(pending.as_ref(), link, *reuse).await;
        self.services.give_back_unused(link, &answer);
        answer
    }

    /// Handles `GET /rest/v3/short-urls/{shortCode}`: returns a link.
    pub(in crate::api) async fn read(&self, code: &str, query: Option<&str>) -> ApiResponse {
        match self.find_in(code, query).await {
            Ok((link, counts)) => self.show(&link, Some(counts)).await,
            Err(problem) => problem.into_answer(),
        }
    }

    /// Parses a code and puts it into the domain that the query names, or else into the caller's domain. If the case of
    /// letters does not matter and no link has the code, returns its form in lower case.
    ///
    /// # Errors
    /// 404 if the text is not a code, or the domain is unknown.
    pub(in crate::api) async fn code_in(&self, code: &str, query: Option<&str>) -> Result<Code, Problem> {
        let params = Params::of(query);
        let no_link = || Problem::no_link(code).on_domain(params.text("domain"));
        let parsed = Code::from_slug(code.as_bytes()).map_err(|_| no_link())?;
        let domain = match params.text("domain") {
            Some(name) => self.domain_named(name).ok_or_else(no_link)?,
            None => self.caller.implied_domain().map(DomainName::id),
        };
        Ok(self.exact_or_lower(parsed.within(domain)).await)
    }

    /// Returns a code, or its form in lower case if the case of letters does not matter and no link has the code itself.
    pub(in crate::api) async fn exact_or_lower(&self, code: Code) -> Code {
        let Some(lower) = code.in_lower_case().filter(|_| self.domains().ignores_case()) else { return code };
        match self.services.read_link(code).await {
            LinkAnswer::NotFound => lower,
            LinkAnswer::Found(..) | LinkAnswer::Damaged | LinkAnswer::Refused(_) => code,
        }
    }

    /// Narrows a scope to the domain with that name; to nothing if the domain is unknown.
    pub(in crate::api) fn narrowed(&self, scope: Scope, name: &str) -> Scope {
        let has_others = self.domains().is_strict() || self.site.has_other_domains || self.domains().has_linked();
        match self.domain_named(name) {
            // All links belong to this domain, and the unnarrowed list is faster.
            Some(None) if !has_others => scope,
            domain => scope.within(domain),
        }
    }

    /// Returns the id of the domain with that name, which may be one that is no longer served. The inner `None` is
    /// the default domain.
    pub(in crate::api) fn domain_named(&self, name: &str) -> Option<Option<DomainId>> {
        match self.domains().named(name) {
            Some(place) => Some(self.domains().id_at(place)),
            None => DomainName::parse(name).ok().map(|name| Some(name.id())),
        }
    }

    /// Finds a link that the caller may see, in the domain that the query names, with its visits.
    pub(in crate::api) async fn find_in(
        &self,
        code: &str,
        query: Option<&str>,
    ) -> Result<(Arc<Link>, VisitCounts), Problem> {
        let found = self.find(self.code_in(code, query).await?).await;
        found.map_err(|problem| problem.on_domain(Params::of(query).text("domain")))
    }

    /// Finds the link with that code, with its visits, if the caller may see it.
    pub(in crate::api) async fn find(&self, parsed: Code) -> Result<(Arc<Link>, VisitCounts), Problem> {
        let code = &parsed.as_slug().to_string();
        let scope = self.caller.scope();
        match self.services.read_link(parsed).await {
            LinkAnswer::Found(link, counts) if scope.has(&link) => Ok((link, counts)),
            // Links of other apps are invisible, and so are damaged ones, which may belong to another app.
            LinkAnswer::Found(..) | LinkAnswer::NotFound => Err(Problem::no_link(code)),
            LinkAnswer::Damaged if !scope.is_all() => Err(Problem::no_link(code)),
            LinkAnswer::Damaged => Err(Problem::damaged(code)),
            LinkAnswer::Refused(reason) => Err(refused(reason)),
        }
    }

    /// Returns the short URL of a link.
    pub(in crate::api) fn short_url(&self, link: &Link) -> String {
        short_url_of(self.domains(), link)
    }

    /// Handles `PATCH /rest/v3/short-urls/{shortCode}`: changes a link.
    pub(in crate::api) async fn change(&self, code: &str, request: Request<Incoming>) -> ApiResponse {
        match self.try_change(code, request).await {
            Ok(link) => self.show(&link, None).await,
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_change(&self, code: &str, request: Request<Incoming>) -> Result<Arc<Link>, Problem> {
        let parsed = self.code_in(code, request.uri().query()).await?;
        let domain = Params::of(request.uri().query()).text("domain").map(str::to_owned);
        let fields = read_object(&self.services, request).await?;
        let patch =
            self.bounded(|bounds| patch::read(&fields, bounds)).map_err(|invalid| Problem::invalid(&invalid))?;
        let patch = Box::new(patch);
        let (by, author) = (self.caller.scope(), self.author());
        let answer =
            self.services.store(|ticket| StoreRequest::Change { code: parsed, patch, by, author, ticket }).await;
        changed(answer, code).map_err(|problem| problem.on_domain(domain.as_deref()))
    }

    /// Handles `DELETE /rest/v3/short-urls/{shortCode}`: deletes a link, with `after` later, and with `purge` purges it.
    pub(in crate::api) async fn delete(&self, code: &str, query: Option<&str>) -> ApiResponse {
        let mut params = Params::of(query);
        let purges = params.flag("purge");
        // An empty value is an error of `delete_later`, and no delete at once.
        let is_later = params.list_len("after") > 0;
        if purges && is_later {
            params.refuse("after", "must be absent with purge, which begins at once");
        }
        if let Err(invalid) = params.finish() {
            return Problem::invalid(&invalid).into_answer();
        }
        if purges {
            return self.purge_link(code, query).await;
        }
        if is_later {
            return self.delete_later(code, query).await;
        }
        let parsed = match self.code_in(code, query).await {
            Ok(parsed) => parsed,
            Err(problem) => return problem.into_answer(),
        };
        let (by, author) = (self.caller.scope(), self.author());
        match self.services.store(|ticket| StoreRequest::Delete { code: parsed, by, author, ticket }).await {
            DeleteAnswer::Deleted => empty(StatusCode::NO_CONTENT),
            DeleteAnswer::NotFound => Problem::no_link(code).on_domain(Params::of(query).text("domain")).into_answer(),
            DeleteAnswer::Failed(failure) => write_failed(&failure).into_answer(),
        }
    }

    /// Returns the link that a request asks for, under that code, with the rule for reuse.
    pub(in crate::api) fn new_link(&self, create: Create, code: Code) -> NewLink {
        let is_chosen = create.slug.is_some();
        let random = match &create.slug {
            Some(RequestedSlug::Random(random)) => Some(random.clone()),
            Some(RequestedSlug::Chosen(_)) | None => None,
        };
        let reuse = match (&create.slug, create.find) {
            // A private link is never shared with another caller.
            _ if create.private => Reuse::Never,
            (Some(RequestedSlug::Chosen(_)), Some(criteria)) => Reuse::OfSlug(criteria),
            (_, Some(criteria)) => Reuse::Any(criteria),
            (Some(_), None) => Reuse::Never,
            (None, None) => Reuse::Recent,
        };
        let origin = if is_chosen { Origin::Custom } else { Origin::Issued };
        NewLink { link: Arc::new(self.link_of(create, code, origin)), reuse, random, pending: None }
    }

    /// Builds the record of a requested link with that code.
    fn link_of(&self, create: Create, code: Code, origin: Origin) -> Link {
        let Create { target, mut policy, mut labels, .. } = create;
        labels.app = self.caller.name().cloned();
        labels.app_version = labels.app_version.or_else(|| self.caller.version.clone());
        // To the millisecond, since visits before it belong to an earlier link with this code.
        let created_ms = self.services.unix_ms();
        if let (None, Some(ttl)) = (policy.valid_until_ms, self.site.default_ttl) {
            let begin_ms = policy.valid_since_ms.map_or(created_ms, |since_ms| since_ms.max(created_ms));
            policy.valid_until_ms = Some(whole_second(begin_ms + ttl.as_millis() as u64).min(INSTANT_MS_MAX));
            labels.default_expiry = true;
        }
        let (version, code) = (Version::default(), code.within(labels.domain_id()));
        Link { code, policy, target: target.into(), created_ms, origin, version, labels }
    }

    /// Returns the response that shows a link. Reads its visits from the store if `counts` is `None`.
    pub(super) async fn show(&self, link: &Link, counts: Option<VisitCounts>) -> ApiResponse {
        let counts = match counts {
            Some(counts) => counts,
            None => {
                match self.services.read_link(link.code).await {
                    LinkAnswer::Found(_, counts) => counts,
                    // The link is created or changed, and the client must learn that even if its visits are
                    // unavailable.
                    LinkAnswer::NotFound | LinkAnswer::Damaged | LinkAnswer::Refused(_) => VisitCounts::default(),
                }
            }
        };
        json_answer(StatusCode::OK, &self.described(link, counts))
    }
}

/// Returns the error for a link whose slug belongs to another one.
pub(super) fn taken(link: &Link) -> Problem {
    Problem::slug_taken(&link.code.as_slug().to_string(), link.labels.domain.as_ref())
}

/// Returns the changed link of a code.
///
/// # Errors
/// The error for a change that the store has not carried out.
pub(in crate::api) fn changed(answer: ChangeAnswer, code: &str) -> Result<Arc<Link>, Problem> {
    Err(match answer {
        ChangeAnswer::Changed(link) => return Ok(link),
        ChangeAnswer::Unserved => unserved(),
        ChangeAnswer::StartsTooLate => starts_too_late(),
        ChangeAnswer::NotFound => Problem::no_link(code),
        ChangeAnswer::Damaged => Problem::damaged(code),
        ChangeAnswer::Displaced => Problem::unconfirmed("the short code now belongs to another link"),
        ChangeAnswer::Failed(failure) => write_failed(&failure),
    })
}

/// Returns the error for a change after which the link would expire before it starts.
pub(super) fn starts_too_late() -> Problem {
    Problem::invalid(&[Invalid::new("validSince", "must be before validUntil")])
}

/// Returns the error for a request that the store has not carried out, or not for certain.
pub(in crate::api) fn write_failed(failure: &WriteFailure) -> Problem {
    match failure {
        WriteFailure::Refused(reason) => refused(reason),
        WriteFailure::Unconfirmed(reason) => Problem::unconfirmed(reason),
        WriteFailure::NeedsRedis { was_sent: false } => refused(NEEDS_REDIS),
        WriteFailure::NeedsRedis { was_sent: true } => Problem::unconfirmed(NEEDS_REDIS),
    }
}

/// Returns the error for a link that is stored, but does not fit into memory. Clients must not repeat the request: a
/// second create would create a second link.
pub(super) fn unserved() -> Problem {
    Problem::in_doubt(
        "The link is stored, but this node has no memory left to serve it. Restart the node with more cores.",
    )
}

fn no_random_bytes() -> Problem {
    Problem::unavailable("The operating system cannot provide random bytes for a short code. Try again.")
}

/// Returns the short URL of a link.
pub(in crate::api) fn short_url_of(domains: &Domains, link: &Link) -> String {
    format!("{}/{}", domains.base_url_of(link.labels.domain.as_ref()), link.code.as_slug())
}

/// Returns the 503 for a request that changed nothing, with the reason.
pub(in crate::api) fn refused(reason: &str) -> Problem {
    Problem::unavailable(format!("Nothing was changed: {reason}."))
}

/// Returns the idempotency key of a create, if the request has one.
///
/// # Errors
/// 400 if the key is malformed, or the request has two.
pub(super) fn idempotency_key(headers: &HeaderMap) -> Result<Option<IdempotencyKey>, Problem> {
    let mut values = headers.get_all(KEY_FIELD).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let key = match values.next() {
        Some(_) => Err("occurs twice; send one".to_owned()),
        None => IdempotencyKey::parse(value.as_bytes()),
    };
    key.map(Some).map_err(|reason| Problem::invalid(&[Invalid::new("Idempotency-Key", reason)]))
}

/// Reads the body as a JSON object. A long body is parsed on another thread.
pub(in crate::api) async fn read_object(
    services: &ServiceHandle,
    request: Request<Incoming>,
) -> Result<Map<String, Value>, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes).unwrap_or_default();
    if !is_json(kind) {
        return Err(Problem::not_json());
    }
    let len_max = body_len_max(&request);
    let body = read_body(request, len_max).await?;
    if body.len() as u64 <= SHORT_BODY_LEN {
        return fields::parse(&body);
    }
    parse_long(services, body).await
}

/// Reads a line of a body as a JSON object. A long line is parsed on another thread.
pub(super) async fn parse_line(services: &ServiceHandle, line: &[u8]) -> Result<Map<String, Value>, Problem> {
    if line.len() as u64 <= SHORT_BODY_LEN { fields::parse(line) } else { parse_long(services, line.to_vec()).await }
}

async fn parse_long(
    services: &ServiceHandle,
    text: impl AsRef<[u8]> + Send + 'static,
) -> Result<Map<String, Value>, Problem> {
    let read = services.hand_off(JobKind::Document, move || fields::parse(text.as_ref())).await;
    read.unwrap_or_else(|reason| Err(Problem::unavailable(format!("The body could not be read: {reason}."))))
}

fn is_json(kind: &[u8]) -> bool {
    let media = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    media == b"application/json" || (media.starts_with(b"application/") && media.ends_with(b"+json"))
}
