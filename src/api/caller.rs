//! The caller of a request, with its rights.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::console::session::SessionLife;
use super::problem::Problem;
use super::uptime::uptime;
use carom_model::access::key::ApiKeyHash;
use carom_model::access::usage::{App, Quota};
use carom_model::access::{AppName, KeyDomains, Role, Scope};
use carom_model::domains::DomainName;

/// The caller of a request, with its rights.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    /// App of the API key; `None` while no key is required.
    pub(super) app: Option<Arc<App>>,
    pub(super) role: Role,
    /// Links that the app may create each second; 0: unlimited.
    pub(super) creates: u32,
    /// Domains whose links the caller may see; `None`: all.
    pub(super) domains: Option<KeyDomains>,
    /// Domain of a request that names none; `None`: the default domain.
    pub(super) implied_domain: Option<DomainName>,
    /// Hash of the API key of the request.
    pub(super) key: Option<ApiKeyHash>,
    /// Session at the console, if the caller has one.
    pub(super) session: Option<SessionLife>,
    /// Version that the app reports of itself.
    pub(super) version: Option<String>,
}

impl Caller {
    /// Returns the caller with every right, for a service without API keys.
    pub(super) fn unrestricted() -> Caller {
        Caller {
            app: None,
            role: Role::Admin,
            creates: 0,
            domains: None,
            implied_domain: None,
            key: None,
            session: None,
            version: None,
        }
    }

    /// Returns the links that the caller may see.
    pub(super) fn scope(&self) -> Scope {
        let scope = match &self.app {
            Some(app) if !self.role.includes(Role::ReadAll) => Scope::of_app(app.name.clone()),
            _ => Scope::ALL,
        };
        match &self.domains {
            Some(domains) => scope.within_key(domains),
            None => scope,
        }
    }

    /// Returns the domains whose links the caller may see; `None`: all.
    pub(super) fn domains(&self) -> Option<&KeyDomains> {
        self.domains.as_ref()
    }

    /// Returns the domain of a request that names none; `None`: the default domain.
    pub(super) fn implied_domain(&self) -> Option<&DomainName> {
        self.implied_domain.as_ref()
    }

    /// Returns the hash of the API key of the request.
    pub(super) fn key(&self) -> Option<ApiKeyHash> {
        self.key
    }

    /// Returns the name of the app; `None` while no key is required.
    pub(super) fn name(&self) -> Option<&AppName> {
        self.app.as_ref().map(|app| &app.name)
    }

    /// Binds the caller to a session at the console, with which its rights end.
    pub(super) fn within(&self, session: SessionLife) -> Caller {
        Caller { session: Some(session), ..self.clone() }
    }

    /// Sets the domain of requests that name none, if the caller may use that domain.
    pub(super) fn with_implied_domain(&self, domain: Option<DomainName>) -> Caller {
        let may = self.domains.as_ref().is_none_or(|domains| domains.has(domain.as_ref()));
        let implied_domain = if may { domain } else { self.implied_domain.clone() };
        Caller { implied_domain, ..self.clone() }
    }

    /// Requires a role, and rights on the links of all domains.
    ///
    /// # Errors
    /// 403 if the caller's role does not include it, or the API key is limited to some domains.
    pub(super) fn require_on_all_domains(&self, role: Role) -> Result<(), Problem> {
        self.require(role)?;
        match &self.domains {
            None => Ok(()),
            Some(_) => {
                Err(self
                    .forbid("This API key is limited to some domains. This request requires a key for all domains."))
            }
        }
    }

    /// True if the caller manages the service: an admin whose key is not limited to some domains.
    pub(super) fn manages(&self) -> bool {
        self.role.includes(Role::Admin) && self.domains.is_none()
    }

    /// Returns the 403 for a missing right, and counts it for the app.
    fn forbid(&self, why: impl Into<String>) -> Problem {
        if let Some(app) = &self.app {
            app.forbidden.fetch_add(1, Ordering::Relaxed);
        }
        Problem::forbidden(why)
    }

    /// Requires a role.
    ///
    /// # Errors
    /// 403 if the caller's role does not include it.
    pub(super) fn require(&self, role: Role) -> Result<(), Problem> {
        if self.role.includes(role) {
            return Ok(());
        }
        Err(self.forbid(format!("This API key has the role {}. This request requires {role}.", self.role)))
    }

    /// Takes one create from the app's rate limit. Returns the remainder; `None` without a limit.
    ///
    /// # Errors
    /// 429 if the limit is used up.
    pub(super) fn take_create(&self) -> Result<Option<Quota>, Problem> {
        let Some(app) = self.app.as_ref().filter(|_| self.creates > 0) else { return Ok(None) };
        app.take_create(self.creates, uptime()).map(Some).map_err(Problem::too_many_creates)
    }

    /// Counts a link that the app has created.
    pub(super) fn count_created(&self) {
        if let Some(app) = &self.app {
            app.creates.fetch_add(1, Ordering::Relaxed);
        }
    }
}
