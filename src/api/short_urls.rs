//! The API of links: create, read, delete.

use carom_shards::Code;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header;
use hyper::{Request, StatusCode};
use serde_json::{Map, Value, json};

use super::create::Create;
use super::problem::Problem;
use super::{Answer, Context, empty, json as json_answer};
use crate::dates;
use crate::limits::BODY_LEN_MAX;
use crate::link::{Link, Origin};
use crate::mail::{StoreAnswer, StoreRequest};
use crate::stats::unix_ms;

/// Issued codes that are tried before a create gives up. Each that is taken belongs to a custom slug of that shape, or was
/// issued before a store was restored from an old copy.
const CODES_TRIED_MAX: usize = 64;

impl Context {
    /// `POST /rest/v3/short-urls`
    pub(super) async fn create(&self, request: Request<Incoming>) -> Answer {
        match self.try_create(request).await {
            Ok(link) => json_answer(StatusCode::OK, &self.describe(&link)),
            Err(problem) => problem.into_answer(),
        }
    }

    async fn try_create(&self, request: Request<Incoming>) -> Result<Link, Problem> {
        let fields = read_object(request).await?;
        let create = Create::read(&fields, &self.site.own).map_err(|invalid| Problem::invalid(&invalid))?;
        match create.slug {
            Some(slug) => {
                let link = link_of(create, slug, Origin::Custom);
                let taken = || Problem::slug_taken(&slug.to_string());
                self.insert(link).await?.ok_or_else(taken)
            }
            None => self.create_issued(create).await,
        }
    }

    async fn create_issued(&self, create: Create) -> Result<Link, Problem> {
        for _ in 0..CODES_TRIED_MAX {
            let code = self.desk.take_code().await.map_err(|_| {
                Problem::unavailable("No fresh code is to be had right now. The status of the node says more.")
            })?;
            if let Some(link) = self.insert(link_of(create.clone(), code, Origin::Issued)).await? {
                return Ok(link);
            }
        }
        Err(Problem::unavailable("Every fresh code that was tried is taken."))
    }

    /// Inserts a link; `None` if its code is taken.
    async fn insert(&self, link: Link) -> Result<Option<Link>, Problem> {
        let boxed = Box::new(link.clone());
        match self.desk.store(|ticket| StoreRequest::Create { link: boxed, ticket }).await {
            StoreAnswer::Created => Ok(Some(link)),
            StoreAnswer::Taken => Ok(None),
            StoreAnswer::Refused(reason) => Err(refused(reason)),
            _ => Err(refused("the store gave no answer")),
        }
    }

    /// `GET /rest/v3/short-urls/{shortCode}`
    pub(super) async fn read(&self, code: &str) -> Answer {
        let Ok(parsed) = Code::parse(code.as_bytes()) else { return Problem::no_link(code).into_answer() };
        match self.desk.store(|ticket| StoreRequest::Read { code: parsed, ticket }).await {
            StoreAnswer::Found(link) => json_answer(StatusCode::OK, &self.describe(&link)),
            StoreAnswer::NotFound => Problem::no_link(code).into_answer(),
            StoreAnswer::Damaged => Problem::damaged(code).into_answer(),
            StoreAnswer::Refused(reason) => refused(reason).into_answer(),
            _ => refused("the store gave no answer").into_answer(),
        }
    }

    /// `DELETE /rest/v3/short-urls/{shortCode}`
    pub(super) async fn delete(&self, code: &str) -> Answer {
        let Ok(parsed) = Code::parse(code.as_bytes()) else { return Problem::no_link(code).into_answer() };
        match self.desk.store(|ticket| StoreRequest::Delete { code: parsed, ticket }).await {
            StoreAnswer::Deleted => empty(StatusCode::NO_CONTENT),
            StoreAnswer::NotFound => Problem::no_link(code).into_answer(),
            StoreAnswer::Damaged => Problem::damaged(code).into_answer(),
            StoreAnswer::Refused(reason) => refused(reason).into_answer(),
            _ => refused("the store gave no answer").into_answer(),
        }
    }

    /// A link as the API shows it.
    fn describe(&self, link: &Link) -> Value {
        json!({
            "shortCode": link.code.to_string(),
            "shortUrl": format!("{}/{}", self.site.base_url, link.code),
            "longUrl": link.target,
            "dateCreated": dates::format(link.created_ms),
            "visitsSummary": {"total": 0, "nonBots": 0, "bots": 0},
            "tags": [],
            "meta": {
                "validSince": null,
                "validUntil": link.policy.valid_until_ms.map(dates::format),
                "maxVisits": null,
            },
            "domain": null,
            "title": null,
            "crawlable": false,
            "forwardQuery": false,
            "redirectStatus": link.policy.status.number(),
            "cacheSeconds": link.policy.cache_seconds,
        })
    }
}

fn link_of(create: Create, code: Code, origin: Origin) -> Link {
    Link { code, policy: create.policy, target: create.target.into(), created_ms: unix_ms() / 1_000 * 1_000, origin }
}

fn refused(reason: &str) -> Problem {
    Problem::unavailable(format!("Nothing was changed: {reason}."))
}

/// Reads the body as a JSON object.
async fn read_object(request: Request<Incoming>) -> Result<Map<String, Value>, Problem> {
    let kind = request.headers().get(header::CONTENT_TYPE).map(header::HeaderValue::as_bytes).unwrap_or_default();
    if !is_json(kind) {
        return Err(Problem::not_json());
    }
    let body = Limited::new(request.into_body(), BODY_LEN_MAX).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { Problem::body_too_large() } else { Problem::body_broken() }
    })?;
    match serde_json::from_slice(&body.to_bytes()) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(Problem::malformed("The body must be a JSON object.")),
        Err(error) => Err(Problem::malformed(format!("The body is no JSON: {error}."))),
    }
}

fn is_json(kind: &[u8]) -> bool {
    let media = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    media == b"application/json" || (media.starts_with(b"application/") && media.ends_with(b"+json"))
}
