//! The request context and the facts about the service that handlers use.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::caller::Caller;
use super::console::session::Sessions;
use super::problem::Problem;
use super::public_pages::pictures::Pictures;
use crate::bridge::handle::ServiceHandle;
use carom_model::access::origins::CorsOrigins;
use carom_model::destination::extra_path::ExtraPath;
use carom_model::destination::long_url::Authority;
use carom_model::link::creator_links::CreatorLinks;
use carom_model::link::slugs::SlugRules;
use carom_settings::check::RulesInForce;

/// Facts about the service that handlers need. All cores share them.
#[derive(Debug)]
pub struct Site {
    /// Hosts and ports of this service, which no link may have as its destination.
    pub own: Vec<Authority>,
    /// Lifetime of a link that is created without an expiry date.
    pub default_ttl: Option<Duration>,
    /// Links that an app may create each second if its API key sets no other limit; 0: unlimited.
    pub app_creates: u32,
    /// Creates and verifies the addresses of the pages that show created links.
    pub creator_links: CreatorLinks,
    /// True if links redirect with a slash behind their code.
    pub trailing_slash: bool,
    /// The treatment of requests with a path behind a code.
    pub extra_path: ExtraPath,
    /// The rules for slugs that clients choose.
    pub slugs: SlugRules,
    /// True if links of other domains than the default one existed at start.
    pub has_other_domains: bool,
    /// True if `GET /` serves the form that creates links.
    pub has_form: bool,
    /// The APIs that the public listeners serve.
    pub interfaces: Interfaces,
    /// Origins of web pages that may call the REST API of the public listeners.
    pub cors: CorsOrigins,
    /// The Mercure hub that clients may subscribe to, if there is one.
    pub mercure: Option<MercureHub>,
    /// True if the admin listener grants every right without an API key.
    pub trusts_admin: bool,
    /// Host names of the admin listener, in lower case.
    pub admin_hosts: Vec<String>,
    /// The browsers that are signed in, at the console or at the form.
    pub sessions: Sessions,
    /// The effective settings, in the form in which the console and the API may show them.
    pub settings: serde_json::Value,
    /// The rules for destinations in the settings, from which drafts start.
    pub rules: RulesInForce,
}

/// A Mercure hub, and the key of the tokens for it. The `Debug` form hides the key.
#[derive(Clone)]
pub struct MercureHub {
    /// The address for browsers.
    pub public_url: String,
    /// The key of the tokens (HS256).
    pub secret: String,
}

impl std::fmt::Debug for MercureHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MercureHub({})", self.public_url)
    }
}

/// Switches for the APIs that the public listeners serve.
#[derive(Clone, Copy, Debug)]
pub struct Interfaces {
    /// True if the REST API, which is that of Shlink, is on.
    pub shlink: bool,
    /// True if Bitly's API is on.
    pub bitly: bool,
    /// True if YOURLS's API is on.
    pub yourls: bool,
    /// True if YOURLS's API may answer with JSONP.
    pub yourls_jsonp: bool,
}

/// Everything that a handler works with, for one request.
#[derive(Clone, Debug)]
pub(super) struct Context {
    pub(super) services: Rc<ServiceHandle>,
    pub(super) site: Arc<Site>,
    /// The caller of this request.
    pub(super) caller: Rc<Caller>,
    /// QR codes that this core has rendered.
    pub(super) pictures: Rc<RefCell<Pictures>>,
}

impl Context {
    /// Returns the context of a core, before a caller is known.
    pub(super) fn of(services: Rc<ServiceHandle>, site: Arc<Site>) -> Context {
        Context { services, site, caller: Rc::new(Caller::unrestricted()), pictures: Rc::default() }
    }

    /// Checks that this node stores all links, which `what` needs: a noun in the plural, at the beginning of a sentence.
    ///
    /// # Errors
    /// 501 if Redis is the shared home of the links.
    pub(super) fn require_all_links(&self, what: &str) -> Result<(), Problem> {
        if self.services.stores_all_links() { Ok(()) } else { Err(Problem::shared_home(what)) }
    }
}
