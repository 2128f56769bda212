//! QR codes of short URLs: `GET /rest/v3/short-urls/{shortCode}/qr` and `GET /{shortCode}/qr-code`.

use bytes::Bytes;
use hyper::{Request, StatusCode, header};

use super::pictures::QrParams;
use crate::api::context::Context;
use crate::api::problem::{Invalid, Problem};
use crate::api::query::{Params, percent_decoded};
use crate::api::response::{ApiResponse, answer, with};
use crate::bridge::JobKind;
use crate::pages::qr::{self, Correction, Drawing};
use carom_model::link::Link;
use carom_model::redirect::Notice;

/// Smallest side of a QR code, in pixels, as in Shlink.
const SIZE_MIN: u64 = 50;
const SIZE_MAX: u64 = 1_000;

/// Side of a QR code by default, in pixels.
const SIZE: u32 = 300;

/// Largest margin around a QR code, in pixels.
const MARGIN_MAX: u64 = 500;

/// Cache lifetime of a QR code, which depends on the short URL only.
const KEPT: &str = "private, max-age=300";

/// Reason why rendering cannot fail: the longest base URL and slug fit into every kind of code.
const FITS: &str = "a short URL fits into a QR code";

fn read(query: Option<&str>) -> Result<QrParams, Vec<Invalid>> {
    let mut params = Params::of(query);
    let is_svg = params.read("format", |text| match text {
        "svg" => Ok(true),
        "png" => Ok(false),
        _ => Err("must be svg or png".to_owned()),
    });
    let size = params.number("size", SIZE_MIN, SIZE_MAX).map(|size| size as u32);
    let margin = params.number("margin", 0, MARGIN_MAX).map(|margin| margin as u32);
    let mut correction =
        |name| params.read(name, |text| Correction::of_letter(text).ok_or_else(|| "must be L, M, Q or H".to_owned()));
    // Shlink calls it `errorCorrection`, and carom `correction`.
    let correction = correction("correction").or(correction("errorCorrection"));
    params.finish()?;
    let correction = correction.unwrap_or(Correction::Medium);
    Ok(QrParams {
        is_svg: is_svg.unwrap_or(false),
        drawing: Drawing { size: size.unwrap_or(SIZE), margin, correction },
    })
}

impl Context {
    /// Returns the QR code of a link that the caller may see.
    pub(in crate::api) async fn qr(&self, code: &str, query: Option<&str>) -> ApiResponse {
        let wanted = match read(query) {
            Ok(wanted) => wanted,
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        match self.find_in(code, query).await {
            Ok((link, _)) => match self.draw(&link, wanted).await {
                Ok(picture) => picture,
                Err(reason) => {
                    Problem::unavailable(format!("The QR code could not be created: {reason}.")).into_answer()
                }
            },
            Err(problem) => problem.into_answer(),
        }
    }

    /// Returns the QR code of a link that anybody may follow.
    pub(in crate::api) async fn public_qr<B>(&self, code: &str, request: &Request<B>) -> ApiResponse {
        let wanted = match read(request.uri().query()) {
            Ok(wanted) => wanted,
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        match self.find_followable(&percent_decoded(code), request).await {
            Ok(link) => match self.draw(&link, wanted).await {
                Ok(picture) => picture,
                Err(_) => self.notice(request, Notice::Unavailable),
            },
            Err(answer) => answer,
        }
    }

    /// Returns the image from the cache, or has the rendering thread make it.
    async fn draw(&self, link: &Link, wanted: QrParams) -> Result<ApiResponse, &'static str> {
        let base_url = self.domains().base_url_of(link.labels.domain.as_ref());
        let url = format!("{base_url}/{}", link.code.as_slug());
        let key = (url, wanted);
        let kept = self.pictures.borrow_mut().get(&key);
        let bytes = match kept {
            Some(bytes) => bytes,
            None => {
                let (url, QrParams { is_svg, drawing }) = key.clone();
                let draw = move || {
                    if is_svg {
                        qr::svg(&url, drawing).expect(FITS).into()
                    } else {
                        qr::png(&url, drawing).expect(FITS).into()
                    }
                };
                let bytes: Bytes = self.services.hand_off(JobKind::Picture, draw).await?;
                self.pictures.borrow_mut().keep(key, bytes.clone());
                bytes
            }
        };
        let picture = answer(StatusCode::OK, if wanted.is_svg { "image/svg+xml" } else { "image/png" }, bytes);
        // An SVG that is opened on its own is a document, so it needs a policy.
        let picture = with(picture, header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
        Ok(with(picture, header::CACHE_CONTROL, KEPT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_as_in_shlink_but_readable() {
        let usual = read(None).unwrap();
        let drawing = Drawing { size: 300, margin: None, correction: Correction::Medium };
        assert_eq!(usual, QrParams { is_svg: false, drawing });
        assert_eq!(read(Some("format=&size=&margin=&correction=")).unwrap(), usual, "an empty value counts as none");
        let asked = read(Some("format=svg&size=500&margin=0&errorCorrection=h")).unwrap();
        let drawing = Drawing { size: 500, margin: Some(0), correction: Correction::High };
        assert_eq!(asked, QrParams { is_svg: true, drawing });
        let wrong = read(Some("format=gif&size=49&margin=-1&correction=X")).unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
