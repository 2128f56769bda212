//! The tracking pixel: `GET /{shortCode}/track`, an image that counts a visit of a link, for mails.

use carom_shards::Code;
use hyper::{Request, StatusCode};

use crate::api::context::Context;
use crate::api::query::percent_decoded;
use crate::api::response::{ApiResponse, answer};
use carom_model::domains::redirects::TargetKind;
use carom_model::redirect::MissLimit;

/// A transparent GIF of one pixel: header, colour table of two colours, the first of them transparent, and the image.
const PIXEL: &[u8] = b"GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff\
    \x21\xf9\x04\x01\x00\x00\x00\x00\
    \x2c\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02\x44\x01\x00\x3b";

impl Context {
    /// Counts a visit of the link as a redirect does, and returns the pixel. As in Shlink, there is a pixel for every
    /// link, existing or not, so that no mail shows a broken image.
    pub(in crate::api) async fn pixel<B>(&self, code: &str, request: &Request<B>) -> ApiResponse {
        if self.client_of(request).is_limited() {
            return self.too_many(request);
        }
        if let Ok(code) = Code::from_slug(percent_decoded(code).as_bytes()) {
            let domain = self.domain_of(request);
            let (code, lookup) = self.look_up_at(code, domain, request).await;
            self.answer_lookup(request, domain, code, &lookup, TargetKind::InvalidShortUrl);
        }
        answer(StatusCode::OK, "image/gif", PIXEL)
    }
}
