//! Lists from Apollo, a configuration service (apolloconfig.com): the forms of its responses, and its signed requests.

use carom_settings::apollo::app_of;
use data_encoding::BASE64;
use serde_json::{Map, Value};

use carom_tls::hmac_sha1;

/// Signs requests for the namespaces of an app with its access key.
#[derive(Clone, Debug)]
pub struct Signer {
    app: String,
    key: AccessKey,
    /// Path and query of the address.
    path: String,
}

/// An access key, which no log shows.
#[derive(Clone)]
struct AccessKey(String);

impl std::fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessKey")
    }
}

impl Signer {
    /// Returns a signer of requests for an address of Apollo; `None` if it is not one.
    pub fn new(url: &str, key: &str) -> Option<Signer> {
        let app = app_of(url)?.to_owned();
        let behind_scheme = url.split_once("://")?.1;
        let path = behind_scheme.find('/').map(|at| &behind_scheme[at..])?;
        Some(Signer { app, key: AccessKey(key.to_owned()), path: path.to_owned() })
    }

    /// Returns the headers `Timestamp` and `Authorization` of a request for the address at that time, in milliseconds
    /// since 1970.
    pub(super) fn headers(&self, unix_ms: u64) -> [(&'static str, String); 2] {
        self.headers_for(&self.path, unix_ms)
    }

    /// Returns the headers of a request for another path of the server. `path` includes the query.
    pub(super) fn headers_for(&self, path: &str, unix_ms: u64) -> [(&'static str, String); 2] {
        let signed = format!("{unix_ms}\n{path}");
        let signature = BASE64.encode(&hmac_sha1(self.key.0.as_bytes(), signed.as_bytes()));
        [("Timestamp", unix_ms.to_string()), ("Authorization", format!("Apollo {}:{signature}", self.app))]
    }
}

/// Returns the list within a response of Apollo, and any other object as it is. `/configs` wraps the list into
/// `configurations`; a namespace in the format JSON has it as the text of `content`.
///
/// # Errors
/// A description of what is wrong with the text of `content`.
pub(super) fn unwrapped(object: Map<String, Value>) -> Result<Map<String, Value>, String> {
    let object = match object.get("configurations") {
        Some(Value::Object(inner)) if object.contains_key("releaseKey") => inner.clone(),
        _ => object,
    };
    let content = match object.get("content") {
        Some(Value::String(text)) if object.len() == 1 && text.trim_start().starts_with('{') => text,
        _ => return Ok(object),
    };
    match serde_json::from_str(content) {
        Ok(Value::Object(inner)) => Ok(inner),
        Ok(_) => Err("has a content that is not a JSON object".to_owned()),
        Err(error) => Err(format!("has a content that is not valid JSON ({error})")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(value: Value) -> Result<Value, String> {
        let Value::Object(object) = value else { unreachable!("a test gives objects") };
        unwrapped(object).map(Value::Object)
    }

    #[test]
    fn lists_are_found_in_every_form() {
        let hosts = json!({"1": "a.example"});
        let content = json!({"content": " {\"1\": \"a.example\"}"});
        assert_eq!(list(hosts.clone()).unwrap(), hosts);
        assert_eq!(list(content.clone()).unwrap(), hosts);
        let wrapped = |inner: &Value| json!({"appId": "app", "configurations": inner, "releaseKey": "r"});
        assert_eq!(list(wrapped(&hosts)).unwrap(), hosts);
        assert_eq!(list(wrapped(&content)).unwrap(), hosts);
        // An entry may have any name.
        for plain in [json!({"content": "content.example"}), json!({"content": "{", "1": "a"}), json!({})] {
            assert_eq!(list(plain.clone()).unwrap(), plain);
        }
        assert!(list(json!({"content": "{"})).unwrap_err().contains("not valid JSON"));
    }

    /// The example of Apollo's own client (`SignatureTest` and `HmacSha1UtilsTest` of apollo-java).
    #[test]
    fn requests_are_signed_as_by_apollo() {
        let url = "http://localhost:8080/configs/100004458/default/application?ip=10.0.0.1";
        let signer = Signer::new(url, "df23df3f59884980844ff3dada30fa97").unwrap();
        let [timestamp, signature] = signer.headers(1_576_478_257_344);
        assert_eq!(timestamp, ("Timestamp", "1576478257344".to_owned()));
        assert_eq!(signature, ("Authorization", "Apollo 100004458:EoKyziXvKqzHgwx+ijDJwgVTDgE=".to_owned()));
        assert!(!format!("{signer:?}").contains("df23df3f"));
        assert!(Signer::new("http://localhost/hosts.json", "key").is_none());
    }
}
