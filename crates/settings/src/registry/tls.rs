//! The table `tls`: certificates, and the listeners that use them.

use super::key::Key;
use super::setting::Setting;
use super::shown::{Shown, tls_listen};

pub(super) const TLS: [Setting; 5] = [
    Setting {
        key: Key::TlsCert,
        name: "tls.cert",
        env: "CAROM_TLS_CERT",
        flag: None,
        kind: "one or more files",
        default: None,
        secret: false,
        doc: "PEM certificate chains. With several, the server name of the client (SNI) selects the certificate.",
        show: |settings| Shown::some_list(settings.tls.pairs.iter().map(|(certificate, _)| certificate.display())),
    },
    Setting {
        key: Key::TlsKey,
        name: "tls.key",
        env: "CAROM_TLS_KEY",
        flag: None,
        kind: "one or more files",
        default: None,
        secret: false,
        doc: "PEM private keys, unencrypted, in the order of tls.cert. Certificates and keys are reloaded when they change, and on SIGHUP.",
        show: |settings| Shown::some_list(settings.tls.pairs.iter().map(|(_, key)| key.display())),
    },
    Setting {
        key: Key::TlsListen,
        name: "tls.listen",
        env: "CAROM_TLS_LISTEN",
        flag: None,
        kind: "all, or addresses of listen",
        default: Some("all"),
        secret: false,
        doc: "Listeners that use TLS, if tls.cert is set.",
        show: tls_listen,
    },
    Setting {
        key: Key::TlsHttp2,
        name: "tls.http2",
        env: "CAROM_TLS_HTTP2",
        flag: None,
        kind: "true or false",
        default: Some("true"),
        secret: false,
        doc: "Offer HTTP/2 on TLS connections.",
        show: |settings| Shown::plain(settings.tls.http2),
    },
    Setting {
        key: Key::TlsHsts,
        name: "tls.hsts",
        env: "CAROM_TLS_HSTS",
        flag: None,
        kind: "off, or a time such as 365d",
        default: Some("off"),
        secret: false,
        doc: "How long browsers must use HTTPS after a visit (Strict-Transport-Security).",
        show: |settings| Shown::time_or("off", settings.tls.hsts),
    },
];
