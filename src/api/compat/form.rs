//! The fields of a form, in the three encodings that a form may use: the query,
//! `application/x-www-form-urlencoded`, and `multipart/form-data` (RFC 7578), which PHP's curl uses for an array.
//! The parts are split by hand: such a form is in memory already, and libraries for it are built for streams of files.

use std::collections::HashMap;

use hyper::body::Incoming;
use hyper::{Request, header};

use crate::api::problem::Problem;
use crate::api::query::pairs;
use crate::api::request::{body_len_max, read_body};
use carom_limits::{FORM_FIELDS_MAX, FORM_LEN_MAX};
use carom_model::access::miss_limiter::RequestOrigin;

/// The fields of a form. Of several fields with one name the last counts; files are ignored.
#[derive(Default, Debug)]
pub(in crate::api) struct Form(HashMap<String, String>);

impl Form {
    /// Adds the fields of a query, or of a body in that encoding.
    pub(in crate::api) fn add_encoded(&mut self, text: &str) {
        self.0.extend(pairs(text).take(FORM_FIELDS_MAX));
    }

    /// Adds the fields of a multipart body. Malformed parts are skipped.
    pub(super) fn add_parts(&mut self, body: &[u8], boundary: &str) {
        let mark = [b"--", boundary.as_bytes()].concat();
        let mut starts: Vec<usize> = memchr::memmem::find_iter(body, &mark).collect();
        starts.push(body.len());
        for two in starts.windows(2).take(FORM_FIELDS_MAX) {
            let part = &body[(two[0] + mark.len()).min(two[1])..two[1]];
            let Some(at) = memchr::memmem::find(part, b"\r\n\r\n") else { continue };
            let (head, value) = (String::from_utf8_lossy(&part[..at]), &part[at + 4..]);
            let value = value.strip_suffix(b"\r\n").unwrap_or(value);
            if let Some(name) = field_name(&head) {
                self.0.insert(name, String::from_utf8_lossy(value).into_owned());
            }
        }
    }

    /// Returns the value of a field; empty if the field is missing.
    pub(in crate::api) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Reads the form of a request, and returns it with the source of the request.
///
/// # Errors
/// 413 if the body is too long, 400 if it breaks off.
pub(in crate::api) async fn read_form(request: Request<Incoming>) -> Result<(Form, Option<RequestOrigin>), Problem> {
    let source = request.extensions().get::<RequestOrigin>().copied();
    let mut form = Form::default();
    form.add_encoded(request.uri().query().unwrap_or_default());
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let (boundary, is_encoded) =
        (boundary(kind), kind.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded"));
    let len_max = body_len_max(&request).min(FORM_LEN_MAX);
    let body = read_body(request, len_max).await?;
    match boundary {
        Some(boundary) => form.add_parts(&body, &boundary),
        None if is_encoded => form.add_encoded(&String::from_utf8_lossy(&body)),
        None => {}
    }
    Ok((form, source))
}

/// Returns the field name in the head of a part, unless the part is a file.
fn field_name(head: &str) -> Option<String> {
    let is_disposition = |line: &&str| line.to_ascii_lowercase().starts_with("content-disposition:");
    let line = head.split("\r\n").find(is_disposition)?;
    let value = |wanted: &str| {
        line.split(';').skip(1).find_map(|part| {
            let (name, value) = part.trim().split_once('=')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim_matches('"').to_owned())
        })
    };
    if value("filename").is_some() { None } else { value("name") }
}

/// Returns the boundary that a content type names.
fn boundary(kind: &str) -> Option<String> {
    let rest = kind.to_ascii_lowercase().strip_prefix("multipart/form-data").is_some().then_some(kind)?;
    rest.split(';').skip(1).find_map(|part| {
        let (name, value) = part.trim().split_once('=')?;
        let value = value.trim_matches('"');
        (name.eq_ignore_ascii_case("boundary") && (1..=70).contains(&value.len())).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn all_three_forms_say_the_same() {
        let mut form = Form::default();
        form.add_encoded("a=1&url=http%3A%2F%2Fa%2F%3Fb+c&a=2");
        assert_eq!((form.get("a"), form.get("url"), form.get("none")), ("2", "http://a/?b c", ""));
        let body = b"--xyz\r\nContent-Disposition: form-data; name=\"url\"\r\n\r\nhttp://a/?b c\r\n--xyz\r\n\
            content-disposition: form-data; name=title\r\nContent-Type: text/plain\r\n\r\ntwo\r\nlines\r\n--xyz\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nno\r\n--xyz--\r\n";
        let mut form = Form::default();
        form.add_parts(body, &boundary("Multipart/Form-Data; charset=utf-8; boundary=\"xyz\"").unwrap());
        assert_eq!((form.get("url"), form.get("title"), form.get("file")), ("http://a/?b c", "two\r\nlines", ""));
        assert!(boundary("multipart/form-data").is_none());
        assert!(boundary("application/json; boundary=x").is_none());
    }

    proptest! {
        #[test]
        fn reading_is_total(body in any::<Vec<u8>>(), near in "(--x|\r\n|name=|Content-Disposition: form-data;|[a\"=;-]){0,30}", kind in any::<String>()) {
            let mut form = Form::default();
            form.add_parts(&body, "x");
            form.add_parts(near.as_bytes(), "x");
            let _ = boundary(&kind);
        }
    }
}
