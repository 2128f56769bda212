//! Addresses of Apollo, a configuration service (apolloconfig.com).

/// Paths of its HTTP interface before the name of an app.
const PATHS: [&str; 3] = ["configfiles/json/", "configfiles/", "configs/"];

/// Returns the app that an address of Apollo names; `None` if the address is not Apollo's.
pub fn app_of(url: &str) -> Option<&str> {
    names_of(url).map(|[app, ..]| app)
}

/// Returns the app, the cluster and the namespace that an address of Apollo names, with their escapes; `None` if the
/// address is not Apollo's. The paths of Apollo are `/configs/APP/CLUSTER/NAMESPACE` and
/// `/configfiles/json/APP/CLUSTER/NAMESPACE`.
pub fn names_of(url: &str) -> Option<[&str; 3]> {
    let path = url.split_once("://")?.1.split_once('/')?.1;
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let rest = PATHS.iter().find_map(|start| path.strip_prefix(start))?;
    let mut parts = rest.split('/');
    let names = [parts.next()?, parts.next()?, parts.next()?];
    (parts.next().is_none() && !names[0].is_empty()).then_some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_their_app() {
        for (path, app) in [
            ("configs/shop/default/hosts", Some("shop")),
            ("configs/shop/default/hosts.json?ip=1", Some("shop")),
            ("configfiles/json/shop/default/hosts", Some("shop")),
            ("configfiles/shop/default/hosts", Some("shop")),
            ("configs/shop/default", None),
            ("configs//default/hosts", None),
            ("hosts.json", None),
            ("", None),
        ] {
            assert_eq!(app_of(&format!("http://apollo.example:8080/{path}")), app, "{path}");
        }
        assert_eq!(app_of("http://apollo.example"), None);
        let names = names_of("https://apollo.example/configs/a%20b/default/hosts.json?ip=1#part");
        assert_eq!(names, Some(["a%20b", "default", "hosts.json"]));
    }
}
