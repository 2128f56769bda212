//! TLS: responses equal those without it, for every client and version; certificates are selected by name and replaced
//! while connections are open; sessions resume; and failed handshakes do no harm.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::KeyPair;
use rustix::process::Signal;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, HandshakeKind};
use serde_json::json;

use crate::support::http::{Reply, SHORT_URLS, Wire, create_request, replies, request};
use crate::support::node::{Node, Setup, free_address, sum, wait_until};
use crate::support::tls::{Ca, NAME, open, service};

const TARGET: &str = "https://example.org/";

fn shown(reply: &Reply) -> (u16, Vec<(String, String)>, Vec<u8>) {
    (reply.status, reply.lasting_fields(), reply.body.clone())
}

#[test]
fn responses_equal_those_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    for cores in [1, 3] {
        let free = free_address();
        let setup = ca.setup(&dir.path().join(format!("data-{cores}")), &["go"]).cores(cores);
        let setup = setup.argument("--listen").argument("127.0.0.1:0").argument("--listen").argument(free.to_string());
        let node = setup.env("CAROM_TLS_LISTEN", &free.to_string()).start();
        let mut plain = node.wire();
        let codes: Vec<String> = (0..20).map(|number| plain.shorten(&format!("{TARGET}{number}"))).collect();
        for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
            let terms = ca.terms(versions, &["http/1.1"]);
            let mut secure = open(free, &terms);
            for code in &codes {
                for path in [format!("/{code}"), format!("/{code}?q=1"), format!("/{code}+"), "/none".to_owned()] {
                    assert_eq!(shown(&secure.get(&path)), shown(&plain.get(&path)), "{path}");
                }
                assert_eq!(shown(&secure.ask("HEAD", &format!("/{code}"), "", b"")).0, 302);
            }
            // Many in one piece, and each byte by itself.
            let all: Vec<u8> = codes.iter().flat_map(|code| request("GET", &format!("/{code}"), "", b"")).collect();
            let mut many = open(free, &terms);
            many.send(&all);
            assert!((0..codes.len()).all(|number| many.reply().location() == format!("{TARGET}{number}")));
            for byte in &request("GET", &format!("/{}", codes[3]), "", b"") {
                many.send(&[*byte]);
            }
            assert_eq!(many.reply().location(), format!("{TARGET}3"));
            // What hyper answers: a body in both directions that fills many records, and the end that is announced.
            let lines: String =
                (0..3_000).map(|number| json!({"longUrl": format!("{TARGET}{number}")}).to_string() + "\n").collect();
            let kind = "Content-Type: application/x-ndjson\r\n";
            let reply = secure.ask("POST", &format!("{SHORT_URLS}/bulk"), kind, lines.as_bytes());
            assert_eq!((reply.status, reply.text().lines().count()), (200, 3_000));
            let ends = request("GET", "/rest/health", "Connection: close\r\n", b"");
            secure.send(&[create_request(&json!({"longUrl": TARGET})), ends].concat());
            let last = replies(&secure.read_to_end());
            assert_eq!(last.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 200]);
        }
        let status = node.status();
        assert!(sum(&status, "/handshakes") >= 4, "{status}");
        assert!(sum(&status, "/handshakeFailures") == 0, "{status}");
        assert_eq!(status["tls"]["certificates"][0]["names"], json!([NAME]));
        drop(plain);
        node.terminate();
    }
}

/// Asks with `curl` and returns the status and the version of HTTP.
fn curl(ca: &Ca, address: SocketAddr, path: &str, options: &[&str]) -> String {
    let made = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-o", "/dev/null", "-w", "%{http_code} %{http_version} %{redirect_url}"])
        .args(["--cacert", &ca.file("ca.pem"), "--resolve", &format!("{NAME}:{}:{}", address.port(), address.ip())])
        .args(options)
        .arg(format!("https://{NAME}:{}{path}", address.port()))
        .output()
        .expect("curl, which `make test` installs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8(made.stdout).unwrap()
}

#[test]
fn common_clients_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(2).start();
    let code = open(node.public, &ca.usual()).shorten(TARGET);
    let path = format!("/{code}");
    for (options, version) in [
        (&["--http1.1"][..], "1.1"),
        (&["--http2"], "2"),
        (&["--http2", "--tls-max", "1.2"], "2"),
        (&["--http1.1", "--tlsv1.2", "--tls-max", "1.2"], "1.1"),
        (&["--http1.1", "--tlsv1.3"], "1.1"),
    ] {
        assert_eq!(curl(&ca, node.public, &path, options), format!("302 {version} {TARGET}"), "{options:?}");
        let body = json!({"longUrl": TARGET}).to_string();
        let create = [options, &["-H", "Content-Type: application/json", "-d", &body]].concat();
        assert_eq!(curl(&ca, node.public, SHORT_URLS, &create), format!("200 {version} "), "{options:?}");
    }
    let shown = Command::new("openssl")
        .args(["s_client", "-connect", &node.public.to_string(), "-servername", NAME, "-CAfile", &ca.file("ca.pem")])
        .args(["-verify_return_error", "-verify_hostname", NAME, "-alpn", "h2,http/1.1", "-brief"])
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl, which `make test` installs");
    let text = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(shown.status.success(), "{text}");
    assert!(text.contains("TLSv1.3"), "{text}");
    assert!(text.contains("Verification: OK"), "{text}");
    node.terminate();
}

#[test]
fn server_name_selects_the_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    let first = ca.write("first", &[NAME]);
    let second = ca.write("second", &["a.example", "*.shop.example"]);
    let node = ca.setup(&dir.path().join("data"), &["first", "second"]).start();
    let terms = ca.usual();
    for (name, expected) in [(NAME, &first), ("a.example", &second), ("b.shop.example", &second)] {
        let mut wire = Wire::open(node.public).secured(&terms, name).unwrap();
        assert_eq!(wire.tls().peer_certificates().unwrap()[0], *expected, "{name}");
    }
    // Who asks for another gets the first, and does not take it.
    let error = Wire::open(node.public).secured(&terms, "b.c.shop.example").unwrap_err();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    node.terminate();
}

/// Makes a handshake with `openssl s_client` and returns its report of the handshake and the certificate.
fn s_client(node: &Node, options: &[&str]) -> String {
    let made = Command::new("openssl")
        .args(["s_client", "-connect", &node.public.to_string(), "-servername", NAME])
        .args(options)
        .stdin(std::process::Stdio::null())
        .output()
        .expect("openssl, which `make test` installs");
    assert!(made.status.success(), "{options:?}: {}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8_lossy(&made.stdout).into_owned()
}

#[test]
fn cheapest_supported_suite_is_chosen() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("ecdsa", &[NAME]);
    ca.write_with("rsa", &[NAME], &KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap(), |_| {});
    let node = ca.setup(&dir.path().join("data"), &["ecdsa", "rsa"]).start();
    let rsa = "RSA-PSS+SHA256:RSA+SHA256";
    for (options, digest, suite) in [
        (&["-tls1_3"][..], "Server Temp Key: X25519", "TLS_AES_128_GCM_SHA256"),
        (&["-tls1_3"], "Peer signature type: ECDSA", "TLS_AES_128_GCM_SHA256"),
        (&["-tls1_3", "-sigalgs", rsa], "Peer signature type: RSA-PSS", "TLS_AES_128_GCM_SHA256"),
        (&["-tls1_2", "-sigalgs", rsa], "Peer signature type: RSA", "ECDHE-RSA-AES128-GCM-SHA256"),
        (&["-tls1_2"], "Peer signature type: ECDSA", "ECDHE-ECDSA-AES128-GCM-SHA256"),
        // What a client would rather have does not count, and what it cannot do is not asked of it.
        (
            &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384:TLS_AES_128_GCM_SHA256"],
            "Peer signature type: ECDSA",
            "TLS_AES_128_GCM_SHA256",
        ),
        (&["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"], "", "TLS_AES_256_GCM_SHA384"),
        (&["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], "", "TLS_CHACHA20_POLY1305_SHA256"),
    ] {
        let told = s_client(&node, options);
        assert!(told.contains(digest), "{options:?}: {told}");
        assert!(told.contains(&format!("Cipher is {suite}")), "{options:?}: {told}");
    }
    node.terminate();
}

#[test]
fn expiring_certificate_raises_an_alarm() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    ca.write_for("go", 2000..2001);
    let node = setup.expect("certificate_ends").start();
    let text = || {
        let status = node.status();
        let alarms = status["alarms"].as_array().unwrap().clone();
        let on = alarms.iter().find(|alarm| alarm["name"] == "certificate_ends" && alarm["cleared"].is_null());
        on.map(|alarm| alarm["text"].as_str().unwrap().to_owned())
    };
    // The node serves the expired certificate, because it has no other, and raises an alarm.
    crate::support::alarms::is_seen(&node, "certificate_ends");
    let said = text().unwrap();
    assert!(said.contains("go.pem expired at 2001-01-01T00:00:00"), "{said}");
    assert!(said.contains("replace it"), "{said}");
    let soon = |days: i64| {
        let key = KeyPair::generate().unwrap();
        ca.write_with("go", &[NAME], &key, |params| {
            params.not_after = (std::time::SystemTime::now() + Duration::from_secs(days as u64 * 86_400)).into();
        })
    };
    soon(13);
    wait_until("a certificate that ends soon", || text().is_some_and(|said| said.contains("go.pem expires at 20")));
    soon(15);
    wait_until("a certificate that holds", || text().is_none());
    node.terminate();
}

#[test]
fn session_resumes_on_any_core() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(3).start();
    for versions in [&[&rustls::version::TLS13][..], &[&rustls::version::TLS12]] {
        let terms = ca.terms(versions, &["http/1.1"]);
        let mut kinds = Vec::new();
        for _ in 0..30 {
            let mut wire = open(node.public, &terms);
            // The tickets come behind the handshake.
            assert_eq!(wire.get("/none").status, 404);
            kinds.push(wire.tls().handshake_kind());
        }
        let resumed = kinds.iter().filter(|kind| **kind == Some(HandshakeKind::Resumed)).count();
        assert_eq!(resumed, 29, "{kinds:?}");
    }
    let status = node.status();
    assert_eq!(sum(&status, "/resumptions"), 58);
    // They were spread over the cores.
    assert!(status["cores"].as_array().unwrap().iter().all(|core| core["resumptions"].as_u64() > Some(0)), "{status}");
    node.terminate();
}

fn certificate_of(node: &Node, terms: &Arc<ClientConfig>) -> CertificateDer<'static> {
    open(node.public, terms).tls().peer_certificates().unwrap()[0].clone().into_owned()
}

/// True if an alarm is on.
fn is_on(node: &Node, alarm: &str) -> bool {
    let status = node.status();
    let alarms = status["alarms"].as_array().unwrap();
    alarms.iter().any(|it| it["name"] == alarm && it["cleared"].is_null())
}

#[test]
fn valid_certificates_replace_old_ones() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    let first = ca.write("go", &[NAME]);
    let setup = ca.setup(&dir.path().join("data"), &["go"]).cores(2);
    let node = setup.expect("certificate_refused").start();
    // Each with its own terms: a session that goes on shows no certificate.
    let terms = || ca.usual();
    let usual = terms();
    let mut kept = open(node.public, &usual);
    assert_eq!(kept.get("/none").status, 404);
    assert_eq!(certificate_of(&node, &terms()), first);

    // Found without a word.
    let second = ca.write("go", &[NAME, "b.example"]);
    wait_until("the second certificate", || certificate_of(&node, &terms()) == second);
    assert_eq!(node.status()["tls"]["certificates"][0]["names"], json!([NAME, "b.example"]));
    // Asked for.
    let third = ca.write("go", &[NAME, "c.example"]);
    node.signal(Signal::HUP);
    wait_until("the third certificate", || certificate_of(&node, &terms()) == third);
    assert!(!is_on(&node, "certificate_refused"));

    let good = ca.read("go");
    ca.write("other", &[NAME]);
    ca.write_for("over", 2000..2001);
    ca.write_for("early", 2090..2095);
    let [other, over, early] = ["other", "over", "early"].map(|file| ca.read(file));
    let wrong: [(&[u8], &[u8]); 6] = [
        (b"", &good.1),
        (&good.0, b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"),
        (&good.0[..good.0.len() / 2], &good.1),
        (&good.0, &other.1),
        (&over.0, &over.1),
        (&early.0, &early.1),
    ];
    for (certificate, key) in wrong {
        fs::write(ca.file("go.pem"), certificate).unwrap();
        fs::write(ca.file("go.key"), key).unwrap();
        node.signal(Signal::HUP);
        crate::support::alarms::is_seen(&node, "certificate_refused");
        assert_eq!(certificate_of(&node, &terms()), third);
        fs::write(ca.file("go.pem"), &good.0).unwrap();
        fs::write(ca.file("go.key"), &good.1).unwrap();
        wait_until("the end of the alarm", || !is_on(&node, "certificate_refused"));
    }
    fs::remove_file(ca.file("go.pem")).unwrap();
    wait_until("the alarm", || is_on(&node, "certificate_refused"));
    assert_eq!(certificate_of(&node, &terms()), third);
    // Nobody who was there has noticed, and sessions of before go on.
    assert_eq!(kept.get("/none").status, 404);
    assert_eq!(open(node.public, &usual).tls().handshake_kind(), Some(HandshakeKind::Resumed));
    node.terminate();
}

#[test]
fn unusable_files_refuse_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Ca::new(dir.path());
    ca.write("go", &[NAME]);
    ca.write("other", &[NAME]);
    let data = dir.path().join("data");
    let with = |certificate: &str, key: &str| {
        let setup = Setup::new(&data).env("CAROM_TLS_CERT", &ca.file(certificate));
        setup.env("CAROM_TLS_KEY", &ca.file(key)).fail()
    };
    for (certificate, key, said) in [
        ("none.pem", "go.key", "none.pem: No such file"),
        ("go.key", "go.key", "go.key: it contains no certificate"),
        ("go.pem", "go.pem", "go.pem: it contains no private key"),
        ("go.pem", "other.key", "other.key: the key does not match the certificate"),
    ] {
        let (code, text) = with(certificate, key);
        assert_eq!(code, 22, "{code} {text}");
        assert!(text.contains(said), "{code} {text}");
    }
    for (name, value, said) in [
        ("CAROM_TLS_CERT", "a.pem", "has no private key"),
        ("CAROM_TLS_KEY", "a.key", "has no certificate"),
        ("CAROM_TLS_HSTS", "365d", "has no effect without a certificate"),
        ("CAROM_TLS_LISTEN", "127.0.0.1:1", "is not an address of listen"),
    ] {
        let (code, text) = Setup::new(&data).env(name, value).fail();
        assert_eq!(code, 2, "{code} {text}");
        assert!(text.contains(said), "{code} {text}");
    }
}

#[test]
fn failed_handshakes_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.clone().env("CAROM_LIMITS_HANDSHAKES", "20").start();
    let terms = ca.usual();
    let mut kept = open(node.public, &terms);
    let code = kept.shorten(TARGET);
    // Somebody who speaks HTTP hears so in HTTP.
    let mut plain = Wire::open(node.public);
    plain.send(&request("GET", "/", "", b""));
    let reply = plain.reply();
    assert_eq!(reply.status, 400, "{reply:?}");
    assert!(reply.text().contains("https://"), "{reply:?}");
    assert_eq!(plain.read_until_closed(), b"");
    // Whatever else it is: an alert of TLS (21), and the end.
    for bytes in
        [&b"\x16\x03\x01\x00\x05hello"[..], b"\x16\x03\x01\xff\xff", b"\0\0\0\0\0\0\0\0", b"\x80\x2e\x01\x03\x01"]
    {
        let mut wire = Wire::open(node.public);
        wire.send(bytes);
        wire.end_sending();
        let said = wire.read_until_closed();
        assert_eq!(said.first(), Some(&21), "{bytes:?} got {said:?}");
    }
    // TLS 1.1 and older are not spoken.
    let old = Command::new("curl")
        .args(["-sS", "--max-time", "20", "-k", "--tls-max", "1.1", &format!("https://{}/", node.public)])
        .output()
        .expect("curl, which `make test` installs");
    assert!(!old.status.success());
    // With more handshakes than may be in progress, those that have waited for long are closed. Clients that continue
    // theirs, and established ones, stay.
    let begin = |_| {
        let mut wire = Wire::open(node.public);
        let _ = wire.try_send(b"\x16\x03\x01\x02\x00");
        wire
    };
    let begun: Vec<Wire> = (0..30).map(begin).collect();
    wait_until("ten who were shed", || sum(&node.status(), "/shed") >= 10);
    assert_eq!(kept.get(&format!("/{code}")).location(), TARGET);
    let again = || Wire::open(node.public).secured(&terms, NAME);
    wait_until("a handshake in place of one that has waited", || again().is_ok());
    drop((begun, kept));
    node.terminate();
    // And each has its time.
    let node = setup.env("CAROM_LIMITS_HEAD_SECONDS", "5").start();
    let mut slow = Wire::open(node.public);
    slow.send(b"\x16\x03\x01\x02\x00");
    assert_eq!(slow.read_until_closed(), b"");
    // So has a head of which a part of a record has come.
    let mut part = open(node.public, &ca.usual());
    part.send_raw(b"\x17");
    let since = Instant::now();
    assert!(part.some().is_empty());
    assert!(since.elapsed() < Duration::from_secs(20));
    node.terminate();
}

#[test]
fn request_with_close_notify_is_answered() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.start();
    let code = open(node.public, &ca.usual()).shorten(TARGET);
    for path in [format!("/{code}"), "/rest/health".to_owned()] {
        for fields in ["", "Connection: close\r\n"] {
            let name = ServerName::try_from(NAME).unwrap();
            let mut client = ClientConnection::new(ca.terms(&[&rustls::version::TLS13], &["http/1.1"]), name).unwrap();
            let mut stream = TcpStream::connect(node.public).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            client.write_tls(&mut stream).unwrap();
            client.writer().write_all(&request("GET", &path, fields, b"")).unwrap();
            let mut last = Vec::new();
            while last.is_empty() {
                client.read_tls(&mut stream).unwrap();
                client.process_new_packets().unwrap();
                // The end of the handshake, the request, and the goodbye: all in one piece, and nothing behind it.
                if !client.is_handshaking() {
                    client.send_close_notify();
                    while client.wants_write() {
                        client.write_tls(&mut last).unwrap();
                    }
                }
            }
            stream.write_all(&last).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut said = Vec::new();
            loop {
                let mut piece = [0; 4096];
                match client.reader().read(&mut piece) {
                    Ok(0) => break,
                    Ok(len) => said.extend_from_slice(&piece[..len]),
                    Err(_) => {
                        assert!(client.read_tls(&mut stream).unwrap() > 0, "no goodbye after {said:?}");
                        client.process_new_packets().unwrap();
                    }
                }
            }
            assert!(replies(&said)[0].status < 400, "{path} {fields}");
        }
    }
    node.terminate();
}

#[test]
fn hsts_is_sent_over_tls_only() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let free = free_address();
    let setup = setup.env("CAROM_TLS_HSTS", "365d");
    let setup = setup.argument("--listen").argument("127.0.0.1:0").argument("--listen").argument(free.to_string());
    let node = setup.env("CAROM_TLS_LISTEN", &free.to_string()).start();
    let mut wire = node.wire();
    let code = wire.shorten(TARGET);
    for path in [format!("/{code}"), "/none".to_owned(), "/".to_owned(), "/rest/health".to_owned()] {
        let field = "strict-transport-security";
        assert_eq!(open(free, &ca.usual()).get(&path).field(field), Some("max-age=31536000"), "{path}");
        // A plain connection is not believed about that (RFC 6797, section 7.2).
        assert_eq!(node.wire().get(&path).field(field), None);
    }
    drop(wire);
    node.terminate();
}

#[test]
fn proxy_protocol_precedes_the_handshake() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let setup = setup.env("CAROM_PROXY_PROTOCOL", "require");
    let setup = setup.trust_client().env("CAROM_LIMITS_MISSES_PER_SECOND", "1");
    let node = setup.env("CAROM_LIMITS_CONNECTIONS_PER_ADDRESS", "3").start();
    let from = |client: Ipv4Addr| {
        let mut wire = Wire::open(node.public);
        let hello = format!("PROXY TCP4 {client} 10.0.0.1 40000 443\r\n");
        hello.bytes().for_each(|byte| wire.send(&[byte]));
        wire.secured(&ca.usual(), NAME)
    };
    let (one, other) = (Ipv4Addr::new(203, 0, 113, 7), Ipv4Addr::new(203, 0, 113, 8));
    let mut first = from(one).unwrap();
    assert!((0..1_000).any(|number| first.get(&format!("/none-{number}")).status == 429));
    assert_eq!(from(other).unwrap().get("/none").status, 404);
    // Each client has its connections, and not more.
    let more = [from(one).unwrap(), from(one).unwrap()];
    assert!(from(one).is_err());
    assert_eq!(from(other).unwrap().get("/none").status, 404);
    drop(more);
    wait_until("room for another connection", || from(one).is_ok());
    drop(first);
    node.terminate();
}

#[test]
fn drain_answers_tls_clients() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, setup) = service(dir.path());
    let node = setup.cores(2).start();
    let mut wires: Vec<Wire> = (0..8).map(|_| open(node.public, &ca.usual())).collect();
    let code = wires[0].shorten(TARGET);
    node.signal(Signal::TERM);
    // The next answer of each is its last, and says so.
    for wire in &mut wires {
        // It may hear of the end a moment later.
        for _ in 0..100_000 {
            let Ok(reply) = wire.try_ask("GET", &format!("/{code}"), "", b"") else { break };
            assert_eq!(reply.status, 302);
            if reply.field("connection") == Some("close") {
                break;
            }
        }
    }
    assert!(wires.into_iter().all(|wire| wire.read_to_end().is_empty()));
    let _ = node.drained();
}
