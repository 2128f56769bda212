//! Pages that visitors meet: the form that creates a link, the page of a created link, previews, QR codes, the tracking
//! pixel, and `robots.txt` for crawlers.

pub(in crate::api) mod form;
pub(in crate::api) mod pictures;
pub(in crate::api) mod pixel;
pub(in crate::api) mod preview;
pub(in crate::api) mod qr;
mod robots;
