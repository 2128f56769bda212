//! Clients of Bitly and YOURLS: their documented calls, sent with `curl`, work unchanged. Also the preview of a link.

use serde_json::{Value, json};

use crate::support::api_client::new_key;
use crate::support::http::{Reply, Wire, curl};
use crate::support::node::{Node, Setup};
use crate::support::openapi::is_described;

const TARGET: &str = "https://example.org/a/long/way?x=<b>&y='\"";

/// The stored form of [`TARGET`].
const STORED: &str = "https://example.org/a/long/way?x=%3Cb%3E&y=%27%22";

fn with_one_and_three_cores(check: impl Fn(Setup)) {
    for cores in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        check(Setup::new(&dir.path().join("data")).cores(cores).all_interfaces());
    }
}

/// A call of Bitly's, as its reference writes it.
fn bitly(node: &Node, key: &str, path: &str, body: &Value) -> Reply {
    let (authorization, data) = (format!("Authorization: Bearer {key}"), body.to_string());
    let url = node.url(path);
    let reply = curl(&["-H", &authorization, "-H", "Content-Type: application/json", "-X", "POST", "-d", &data, &url]);
    is_described(node, "post", path, &reply);
    reply
}

#[test]
fn bitly_calls_work_unchanged() {
    with_one_and_three_cores(|setup| {
        let (shop, other) = (new_key(&setup, "shop", "write-own"), new_key(&setup, "other", "write-own"));
        let reader = new_key(&setup, "shop", "read");
        let node = setup.start();
        let asked = json!({"long_url": TARGET, "domain": "bit.ly", "group_guid": "Ba1bc23dE4F"});
        let made = bitly(&node, &shop, "/v4/shorten", &asked);
        assert_eq!(made.status, 201, "{made:?}");
        let link = made.json();
        assert_eq!(link["long_url"], STORED);
        let short_url = link["link"].as_str().unwrap().to_owned();
        assert_eq!(format!("http://{}", link["id"].as_str().unwrap()), short_url);
        assert!(link["created_at"].as_str().unwrap().ends_with("+0000"), "{link}");
        assert_eq!(curl(&[&short_url]).location(), STORED);
        let again = bitly(&node, &shop, "/v4/shorten", &asked);
        assert_eq!((again.status, &again.json()["link"]), (200, &link["link"]));
        assert_ne!(bitly(&node, &other, "/v4/shorten", &asked).json()["link"], link["link"]);
        for name in [link["id"].as_str().unwrap(), &short_url, short_url.rsplit('/').next().unwrap()] {
            let expanded = bitly(&node, &shop, "/v4/expand", &json!({"bitlink_id": name}));
            assert_eq!((expanded.status, &expanded.json()["long_url"]), (200, &json!(STORED)), "{name}");
        }
        // What is not to be had, in Bitly's words.
        let fails = |reply: Reply, status: u16, message: &str| {
            assert_eq!((reply.status, &reply.json()["message"]), (status, &json!(message)), "{reply:?}");
            reply
        };
        fails(bitly(&node, &other, "/v4/expand", &json!({"bitlink_id": link["id"]})), 404, "NOT_FOUND");
        fails(bitly(&node, &shop, "/v4/expand", &json!({"bitlink_id": "bit.ly/none"})), 404, "NOT_FOUND");
        fails(bitly(&node, &shop, "/v4/expand", &json!({"bitlink_id": 5})), 404, "NOT_FOUND");
        fails(bitly(&node, "none", "/v4/shorten", &asked), 403, "FORBIDDEN");
        fails(bitly(&node, &reader, "/v4/shorten", &asked), 403, "FORBIDDEN");
        for wrong in [
            json!({}),
            json!({"long_url": "nonsense"}),
            json!({"long_url": 5}),
            json!({"long_url": "x".repeat(1 << 16)}),
        ] {
            let reply = fails(bitly(&node, &shop, "/v4/shorten", &wrong), 400, "INVALID_ARG_LONG_URL");
            assert_eq!(reply.json()["errors"][0]["field"], "long_url");
        }
        fails(bitly(&node, &shop, "/v4/shorten", &json!([])), 400, "INVALID_ARG");
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&shop[9..]), "a key in the log");
    });
}

/// A call of YOURLS's, with a form.
fn yourls(node: &Node, fields: &[(&str, &str)]) -> Reply {
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut arguments = Vec::new();
    fields.iter().for_each(|field| arguments.extend(["--data-urlencode", field]));
    let url = node.url("/yourls-api.php");
    arguments.push(&url);
    let reply = curl(&arguments);
    is_described(node, "post", "/yourls-api.php", &reply);
    reply
}

/// A node, and two apps that call it as YOURLS is called.
struct Yourls {
    node: Node,
    /// The key of the app `shop`.
    shop: String,
    /// The key of the app `other`.
    other: String,
}

impl Yourls {
    fn new(setup: &Setup) -> Yourls {
        let (shop, other) = (new_key(setup, "shop", "write-own"), new_key(setup, "other", "write-own"));
        Yourls { node: setup.start(), shop, other }
    }

    /// Calls as `shop`, and asks for JSON.
    fn call(&self, fields: &[(&str, &str)]) -> Reply {
        yourls(&self.node, &[&[("signature", self.shop.as_str()), ("format", "json")], fields].concat())
    }

    /// Makes a link to [`TARGET`]. Returns its keyword and its short URL.
    fn make(&self) -> (String, String) {
        let made = self.call(&[("action", "shorturl"), ("url", TARGET), ("title", "A <title>")]).json();
        assert_eq!(made["status"], "success", "{made}");
        assert_eq!(made["statusCode"], 200, "{made}");
        assert_eq!(made["url"]["url"], STORED, "{made}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["url"]["keyword"]), text(&made["shorturl"]))
    }
}

#[test]
fn yourls_creates_links() {
    with_one_and_three_cores(|setup| {
        let api = Yourls::new(&setup);
        let (_, short_url) = api.make();
        assert_eq!(curl(&[&short_url]).location(), STORED);
        // A destination that has a link already is a failure that names the link.
        let again = api.call(&[("action", "shorturl"), ("url", TARGET), ("title", "A <title>")]).json();
        assert_eq!(again["code"], "error:url");
        assert_eq!(again["shorturl"], json!(short_url));
        let chosen =
            api.call(&[("action", "shorturl"), ("url", "example.org/without-a-scheme"), ("keyword", "ozh")]).json();
        assert_eq!(chosen["url"]["keyword"], "ozh");
        assert_eq!(chosen["url"]["url"], "http://example.org/without-a-scheme");
        let taken = api.call(&[("action", "shorturl"), ("url", TARGET), ("keyword", "ozh")]);
        assert_eq!((taken.status, &taken.json()["code"]), (200, &json!("error:keyword")));
        let none = api.call(&[("action", "shorturl")]);
        assert_eq!((none.status, &none.json()["code"]), (400, &json!("error:nourl")));
        let Yourls { node, shop, .. } = api;
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&shop[9..]), "a key in the log");
    });
}

#[test]
fn yourls_expands_and_counts_links() {
    with_one_and_three_cores(|setup| {
        let api = Yourls::new(&setup);
        let (keyword, short_url) = api.make();
        let call = |fields: &[(&str, &str)]| api.call(fields);
        call(&[("action", "shorturl"), ("url", "https://example.org/second")]);
        for name in [keyword.as_str(), &short_url] {
            assert_eq!(call(&[("action", "expand"), ("shorturl", name)]).json()["longurl"], STORED);
            let stats = call(&[("action", "url-stats"), ("shorturl", name)]).json();
            assert_eq!(&stats["link"]["url"], &json!(STORED));
            assert_eq!(&stats["link"]["title"], &json!("A <title>"));
        }
        let missing = call(&[("action", "expand"), ("shorturl", "none")]);
        assert_eq!((missing.status, &missing.json()["message"]), (404, &json!("Error: short URL not found")));
        let top = call(&[("action", "stats"), ("filter", "top"), ("limit", "5")]).json();
        assert_eq!(&top["stats"]["total_links"], &json!("2"), "{top}");
        assert_eq!(top["links"].as_object().unwrap().len(), 2, "{top}");
        let last = call(&[("action", "stats"), ("filter", "last"), ("limit", "1"), ("start", "1")]).json();
        assert_eq!(last["links"].as_object().unwrap().len(), 1, "{last}");
        assert!(last["links"]["link_1"]["shorturl"].as_str().unwrap().starts_with("http://"));
        assert_eq!(call(&[("action", "stats"), ("filter", "rand"), ("limit", "1")]).status, 200);
        let far = call(&[("action", "stats"), ("limit", "1"), ("start", &u64::MAX.to_string())]).json();
        assert_eq!(far["links"], json!({}), "{far}");
        assert_eq!(call(&[("action", "db-stats")]).json()["db-stats"]["total_links"], "2");
        assert!(call(&[("action", "version")]).json()["version"].is_string());
        assert_eq!(call(&[("action", "nonsense")]).status, 400);
        // Links of another app are invisible.
        let other =
            [("signature", api.other.as_str()), ("action", "expand"), ("shorturl", &keyword), ("format", "json")];
        assert_eq!(yourls(&api.node, &other).status, 404);
        api.node.terminate();
    });
}

#[test]
fn a_thread_writes_long_lists_for_yourls() {
    with_one_and_three_cores(|setup| {
        let api = Yourls::new(&setup);
        for number in 0..40 {
            let url = format!("https://example.org/{number}");
            let made = api.call(&[("action", "shorturl"), ("url", &url)]).json();
            assert_eq!(made["status"], "success", "{made}");
        }
        let stats = [("action", "stats"), ("limit", "40")];
        let shown = api.node.by_document_thread(|| api.call(&stats).json());
        assert_eq!(shown["links"].as_object().unwrap().len(), 40, "{shown}");
        api.node.terminate();
    });
}

#[test]
fn yourls_answers_in_every_format() {
    with_one_and_three_cores(|setup| {
        let api = Yourls::new(&setup);
        let (keyword, _) = api.make();
        // XML is the default.
        let signed = |format: &str, more: &[(&str, &str)]| {
            let fields = [
                ("signature", api.shop.as_str()),
                ("action", "expand"),
                ("shorturl", keyword.as_str()),
                ("format", format),
            ];
            yourls(&api.node, &[&fields[..], more].concat())
        };
        assert_eq!(signed("simple", &[]).text(), STORED);
        let xml = signed("", &[]);
        assert_eq!(xml.field("content-type"), Some("application/xml; charset=utf-8"));
        assert!(xml.text().contains("<title>A &lt;title&gt;</title>"), "{}", xml.text());
        assert!(xml.text().contains("y=%27%22</longurl>"), "{}", xml.text());
        let jsonp = signed("jsonp", &[("callback", "cb")]);
        assert!(jsonp.text().starts_with("cb({"), "{}", jsonp.text());
        assert!(jsonp.text().ends_with("})"), "{}", jsonp.text());
        assert!(!signed("jsonp", &[("callback", "alert(1)//")]).text().contains("alert"));
        api.node.terminate();
    });
}

#[test]
fn yourls_reads_queries_and_multipart() {
    with_one_and_three_cores(|setup| {
        let api = Yourls::new(&setup);
        let (keyword, _) = api.make();
        check_queries(&api, &keyword);
        let Yourls { node, shop, .. } = api;
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&shop[9..]), "a key in the log");
    });
}

/// Expands a link with the parameters in the query, and in the parts of a body, as PHP's curl sends an array.
fn check_queries(api: &Yourls, keyword: &str) {
    let (node, shop) = (&api.node, api.shop.as_str());
    let query = format!("/yourls-api.php?signature={shop}&action=expand&format=simple&shorturl={keyword}");
    assert_eq!(curl(&[&node.url(&query)]).text(), STORED);
    let parts = [("signature", shop), ("action", "expand"), ("format", "simple"), ("shorturl", keyword)];
    let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let mut arguments: Vec<&str> = parts.iter().flat_map(|part| ["-F", part]).collect();
    let url = node.url("/yourls-api.php");
    arguments.push(&url);
    assert_eq!(curl(&arguments).text(), STORED);
}

#[test]
fn yourls_accepts_a_name_and_a_password() {
    with_one_and_three_cores(|setup| {
        let Yourls { node, shop, .. } = Yourls::new(&setup);
        let login = |username: &str, password: &str| {
            let fields = [("username", username), ("password", password), ("action", "version"), ("format", "json")];
            yourls(&node, &fields)
        };
        assert_eq!(login("shop", &shop).status, 200);
        for (username, password) in [("other", shop.as_str()), ("shop", "wrong"), ("shop", "")] {
            let refused = login(username, password);
            assert_eq!((refused.status, &refused.json()["message"]), (403, &json!("Please log in")), "{username}");
        }
        let log = node.terminate_and_tell().1;
        assert!(!log.contains(&shop[9..]), "a key in the log");
    });
}

/// Asks every interface something that needs no key where there is none. Returns the statuses.
fn interfaces(node: &Node) -> [u16; 4] {
    let mut wire = node.wire();
    let json = "Content-Type: application/json\r\n";
    let shorten = json!({"long_url": TARGET}).to_string();
    [
        wire.get("/rest/v3/short-urls").status,
        wire.ask("POST", "/v4/shorten", json, shorten.as_bytes()).status,
        wire.get("/yourls-api.php?action=version&format=json").status,
        wire.get("/yourls-api.php?action=version&format=jsonp&callback=cb").status,
    ]
}

#[test]
fn only_enabled_interfaces_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let setup = Setup::new(dir.path());
    let node = setup.start();
    assert_eq!(interfaces(&node), [200, 404, 404, 404]);
    for (method, path, name) in [
        ("POST", "/v4/shorten", "bitly"),
        ("POST", "/v4/expand", "bitly"),
        ("GET", "/yourls-api.php?signature=x", "yourls"),
    ] {
        let problem = node.wire().ask(method, path, "", b"").problem(404, ":interface-off");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains(&format!("adds \"{name}\" to the setting api.compat")), "{detail}");
        let document = node.wire().get("/rest/v3/openapi.json").json();
        let path = path.split('?').next().unwrap();
        assert!(document["paths"][path][method.to_lowercase()]["responses"]["404"].is_object(), "{path}");
    }
    node.terminate();
    for (compat, expected) in
        [("yourls", [404, 404, 200, 403]), ("bitly, shlink", [200, 201, 404, 404]), ("off", [404, 404, 404, 404])]
    {
        let node = setup.clone().env("CAROM_API_COMPAT", compat).start();
        assert_eq!(interfaces(&node), expected, "{compat}");
        assert_eq!(node.wire().get("/rest/health").status, 200);
        assert_eq!(node.wire().get("/").status, 200);
        assert_eq!(
            Wire::open(node.admin).get("/rest/v3/short-urls").status,
            200,
            "the admin listener has the REST API"
        );
        node.terminate();
    }
    // Nothing is done for who asks for a script that would not be answered.
    let node = setup.clone().env("CAROM_API_COMPAT", "yourls").start();
    let made = node.wire().get("/yourls-api.php?action=shorturl&url=a.example&keyword=x&format=jsonp&callback=cb");
    assert_eq!((made.status, made.field("content-type")), (403, Some("application/json")));
    assert!(made.json()["message"].as_str().unwrap().contains("api.yourls_jsonp = true"), "{made:?}");
    assert_eq!(node.wire().get("/x").status, 404);
    node.terminate();
    let (code, said) = setup.env("CAROM_API_COMPAT", "shlink,polr,off").fail();
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("`polr` is not a known API"), "{said}");
    assert!(said.contains("combines \"off\" with other values"), "{said}");
}

#[test]
fn preview_shows_target_without_a_visit() {
    with_one_and_three_cores(|setup| {
        let node = setup.start();
        let mut wire = node.wire();
        let once = wire.create(&json!({"longUrl": TARGET, "maxVisits": 1})).code();
        for _ in 0..3 {
            assert_eq!(wire.get(&format!("/{once}+")).text(), format!("{STORED}\n"));
        }
        let page = wire.ask("GET", &format!("/{once}+"), "Accept: text/html\r\n", b"");
        assert_eq!((page.status, page.field("location")), (200, None));
        assert!(page.field("content-security-policy").unwrap().starts_with("default-src 'none'"));
        assert!(page.text().contains("<bdi>example.org</bdi>"), "{}", page.text());
        assert!(page.text().contains("&amp;y=%27"), "{}", page.text());
        assert!(!page.text().contains("<b>"));
        assert!(!page.text().contains("<script>"));
        assert_eq!(wire.ask("HEAD", &format!("/{once}+"), "", b"").status, 200);
        assert_eq!(wire.get(&format!("/{once}%2B")).text(), format!("{STORED}\n"));
        assert_eq!(node.wire().get(&format!("/{once}")).status, 302, "its one visit is left");
        let status = |wire: &mut Wire, path: &str| wire.get(path).status;
        crate::support::node::wait_until("a link that is used up", || status(&mut wire, &format!("/{once}+")) == 410);
        let over = wire.create(&json!({"longUrl": TARGET, "archived": true})).code();
        let early = wire.create(&json!({"longUrl": TARGET, "validSince": "9000-01-01T00:00:00Z"})).code();
        assert_eq!(status(&mut wire, &format!("/{over}+")), 410);
        assert_eq!(status(&mut wire, &format!("/{early}+")), 404);
        assert_eq!(status(&mut wire, "/none+"), 404);
        assert_eq!(status(&mut wire, "/+"), 404);
        assert_eq!(status(&mut wire, "/a++"), 404);
        node.terminate();
    });
}
