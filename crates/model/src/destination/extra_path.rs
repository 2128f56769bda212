//! The part of a path behind a short code, as in `/abc/more`: whether a link redirects nevertheless, and where.

/// The treatment of a path behind a short code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ExtraPath {
    /// No link: 404.
    #[default]
    Off,
    /// The link redirects to its destination with that path behind its own.
    Append,
    /// The link redirects to its destination.
    Ignore,
}

impl ExtraPath {
    /// Every treatment.
    pub const ALL: [ExtraPath; 3] = [ExtraPath::Off, ExtraPath::Append, ExtraPath::Ignore];

    /// Returns the name in the settings.
    pub fn as_str(self) -> &'static str {
        match self {
            ExtraPath::Off => "off",
            ExtraPath::Append => "append",
            ExtraPath::Ignore => "ignore",
        }
    }
}

/// Returns a destination with `extra` behind its path, before its query and its fragment. `extra` has no slash at its
/// beginning, and is as it stands in a request.
pub fn with_extra_path(target: &[u8], extra: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    let (path, rest) = target.split_at(end);
    let path = path.strip_suffix(b"/").unwrap_or(path);
    [path, b"/", extra, rest].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_goes_before_query_and_fragment() {
        for (target, expected) in [
            ("https://a.test/", "https://a.test/b/c"),
            ("https://a.test/x", "https://a.test/x/b/c"),
            ("https://a.test/x/", "https://a.test/x/b/c"),
            ("https://a.test/?q=/", "https://a.test/b/c?q=/"),
            ("https://a.test/x?q=1#f", "https://a.test/x/b/c?q=1#f"),
            ("https://a.test/x#f?g", "https://a.test/x/b/c#f?g"),
        ] {
            assert_eq!(with_extra_path(target.as_bytes(), b"b/c"), expected.as_bytes(), "{target}");
        }
        assert_eq!(with_extra_path(b"https://a.test/x", b""), b"https://a.test/x/");
    }
}
