//! The file `robots.txt`, which names the links that crawlers may follow.

use hyper::{Request, StatusCode};

use crate::api::context::Context;
use crate::api::problem::Problem;
use crate::api::response::{ApiResponse, answer};
use crate::api::rest::list::unreadable;
use crate::bridge::ListRequest;
use carom_model::query::UnreadableIndex;
use carom_model::redirect::Notice;

impl Context {
    /// Handles `GET /robots.txt`: allows crawlers the crawlable links of the request's domain.
    pub(in crate::api) async fn robots<B>(&self, request: &Request<B>) -> ApiResponse {
        let Some(place) = self.domain_of(request) else { return self.no_link_page(request, None, Notice::NotFound) };
        if !self.services.stores_all_links() {
            // No link of this node is crawlable.
            let text = "User-agent: *\nDisallow: /\n".to_owned();
            return answer(StatusCode::OK, "text/plain; charset=utf-8", text);
        }
        let domain = self.domains().id_at(place);
        match self.services.list(|ticket| ListRequest::Crawlable(domain, ticket)).await {
            Ok(Ok(allowed)) => {
                let text = format!("User-agent: *\n{allowed}Disallow: /\n");
                answer(StatusCode::OK, "text/plain; charset=utf-8", text)
            }
            Ok(Err(UnreadableIndex)) => unreadable().into_answer(),
            Err(reason) => Problem::no_list(reason).into_answer(),
        }
    }
}
