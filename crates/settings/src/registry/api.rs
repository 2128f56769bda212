//! The table `api`: the APIs of the public listeners.

use super::key::Key;
use super::setting::Setting;
use super::shown::Shown;

pub(super) const API: [Setting; 4] = [
    Setting {
        key: Key::ApiCompat,
        name: "api.compat",
        env: "CAROM_API_COMPAT",
        flag: None,
        kind: "off, or one or more of shlink, bitly and yourls",
        default: Some("shlink"),
        secret: false,
        doc: "APIs on the public listeners: shlink (REST API, /rest/v3), bitly (/v4), yourls (/yourls-api.php). The admin listener always serves the REST API.",
        show: |settings| Shown::list(settings.api.names()),
    },
    Setting {
        key: Key::ApiYourlsJsonp,
        name: "api.yourls_jsonp",
        env: "CAROM_API_YOURLS_JSONP",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Allow format=jsonp in the YOURLS API, which lets scripts of other sites read the responses.",
        show: |settings| Shown::plain(settings.api.yourls_jsonp),
    },
    Setting {
        key: Key::ApiCorsOrigins,
        name: "api.cors_origins",
        env: "CAROM_API_CORS_ORIGINS",
        flag: None,
        kind: "*, off, or one or more origins such as https://app.example",
        default: Some("*"),
        secret: false,
        doc: "Web pages whose scripts may call the REST API of the public listeners (CORS). *: all, for calls that carry an API key. Cookies are never accepted.",
        show: |settings| Shown::list(settings.api.origins()),
    },
    Setting {
        key: Key::ApiShlinkStrict,
        name: "api.shlink_strict",
        env: "CAROM_API_SHLINK_STRICT",
        flag: None,
        kind: "true or false",
        default: Some("false"),
        secret: false,
        doc: "Behave like Shlink where carom differs: expired links return 404 like unknown ones, links without an expiry date never expire unless links.default_ttl is set, and domains without a redirect for missing links use that of the default domain.",
        show: |settings| Shown::plain(settings.api.shlink_strict),
    },
];
