//! `GET /rest/v3/short-urls/{shortCode}/qr` and `GET /{shortCode}/qr-code`: the short URL of a link as a QR code.

use hyper::{Request, StatusCode, header};

use super::problem::{Invalid, Problem};
use super::query::{Params, percent_decoded};
use super::{Answer, Context, answer, with};
use crate::link::Link;
use crate::qr::{self, Correction, Drawing};

/// Sides that a code may have, in pixels, as in Shlink.
const SIZE_MIN: u64 = 50;
const SIZE_MAX: u64 = 1_000;

/// The side where none is named.
const SIZE: u32 = 300;

/// How much white may be around it, in pixels.
const MARGIN_MAX: u64 = 500;

/// For how long a client may keep a picture: it says nothing but the short URL.
const KEPT: &str = "private, max-age=300";

/// The longest base URL and slug fit into every kind of code.
const FITS: &str = "a short URL fits into a QR code";

/// A picture that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wanted {
    is_svg: bool,
    drawing: Drawing,
}

fn read(query: Option<&str>) -> Result<Wanted, Vec<Invalid>> {
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
    // Shlink's name for it, and ours.
    let correction = correction("correction").or(correction("errorCorrection"));
    params.finish()?;
    let correction = correction.unwrap_or(Correction::Medium);
    Ok(Wanted { is_svg: is_svg.unwrap_or(false), drawing: Drawing { size: size.unwrap_or(SIZE), margin, correction } })
}

impl Context {
    /// The code of a link that the caller may see.
    pub(super) async fn qr(&self, code: &str, query: Option<&str>) -> Answer {
        let wanted = match read(query) {
            Ok(wanted) => wanted,
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        match self.find_in(code, query).await {
            Ok((link, _)) => self.draw(&link, wanted),
            Err(problem) => problem.into_answer(),
        }
    }

    /// The code of a link that anybody can follow.
    pub(super) async fn public_qr<B>(&self, code: &str, request: &Request<B>) -> Answer {
        let wanted = match read(request.uri().query()) {
            Ok(wanted) => wanted,
            Err(invalid) => return Problem::invalid(&invalid).into_answer(),
        };
        match self.find_followable(&percent_decoded(code), request).await {
            Ok(link) => self.draw(&link, wanted),
            Err(answer) => answer,
        }
    }

    fn draw(&self, link: &Link, Wanted { is_svg, drawing }: Wanted) -> Answer {
        let base_url = self.domains().base_url_of(link.labels.domain.as_ref());
        let url = format!("{base_url}/{}", link.code.as_slug());
        let picture = match is_svg {
            true => answer(StatusCode::OK, "image/svg+xml", qr::svg(&url, drawing).expect(FITS)),
            false => answer(StatusCode::OK, "image/png", qr::png(&url, drawing).expect(FITS)),
        };
        // An SVG that is opened by itself is a page.
        let picture = with(picture, header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'");
        with(picture, header::CACHE_CONTROL, KEPT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_as_in_shlink_but_readable() {
        let usual = read(None).unwrap();
        let drawing = Drawing { size: 300, margin: None, correction: Correction::Medium };
        assert_eq!(usual, Wanted { is_svg: false, drawing });
        let asked = read(Some("format=svg&size=500&margin=0&errorCorrection=h")).unwrap();
        let drawing = Drawing { size: 500, margin: Some(0), correction: Correction::High };
        assert_eq!(asked, Wanted { is_svg: true, drawing });
        let wrong = read(Some("format=gif&size=49&margin=-1&correction=X")).unwrap_err();
        assert_eq!(wrong.len(), 4, "{wrong:?}");
    }
}
