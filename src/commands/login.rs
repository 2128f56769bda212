//! `carom login` and `carom logout`: the node that the commands on links use, and the API key for it.

use std::io::ErrorKind;

use serde_json::Value;

use super::cli::{ApiPlace, LoginArgs};
use super::node_api::NodeApi;
use super::output::print;
use super::profile::{
    self, LoginProfile, NodeAccess, access, can_ask, checked_key, key_file_for, node_url, read_key, refuse_plain,
    usual_node, variable,
};
use super::terminal::{ask_secret, note, plain};
use carom_settings::exit::{Exit, Reason};
use carom_settings::keys::{KEY_FILE_ENV, URL_ENV};

/// The path of the API that describes the key of a request.
const API_KEY: &str = "/rest/v3/api-key";

/// Checks an API key with a node, and stores both as the login of the user. With `--status`, only says what is stored.
///
/// # Errors
/// [`Reason::Usage`] for an invalid address or key, [`Reason::Incomplete`] if the node does not answer, and
/// [`Reason::DataNotWritable`] if the login cannot be stored.
pub fn login(arguments: &LoginArgs) -> Result<(), Exit> {
    if arguments.status {
        return status();
    }
    // A malformed profile is replaced.
    let (environment, last) = (variable(URL_ENV), LoginProfile::load().ok().flatten());
    let usual = || usual_node(environment.as_deref(), last.as_ref());
    let url = arguments.url.as_deref().map_or_else(usual, node_url)?;
    let file = key_file_for(&url, arguments.key_file.as_deref(), variable(KEY_FILE_ENV).as_deref(), usual)?;
    let key = match file {
        Some(file) => Some(read_key(&file)?),
        None if needs_key(&url)? => {
            // Before anything is typed.
            refuse_plain(&url, arguments.plain_http)?;
            Some(asked_key(&url)?)
        }
        None => None,
    };
    if key.is_some() {
        refuse_plain(&url, arguments.plain_http)?;
    }
    let what = checked_rights(&NodeApi::new(NodeAccess { url: url.clone(), key: key.clone() }))?;
    let path = LoginProfile { url: url.clone(), key, plain_http: arguments.plain_http }.save()?;
    print(&format!("Logged in to {url} {what}.\n"));
    note(&format!("stored in {}; `carom link create URL` creates a link", path.display()));
    Ok(())
}

/// Says which node the commands on links use, where its address comes from, and what the key may do.
fn status() -> Result<(), Exit> {
    let api = NodeApi::new(access(&ApiPlace::default())?);
    let what = checked_rights(&api)?;
    let source = match variable(URL_ENV) {
        Some(_) => URL_ENV,
        None if LoginProfile::load()?.is_some() => "the login",
        None => "the default",
    };
    print(&format!("Commands use {} ({source}) {what}.\n", api.url()));
    Ok(())
}

/// Removes the login of the user.
///
/// # Errors
/// [`Reason::DataNotWritable`] if the file cannot be removed.
pub fn logout() -> Result<(), Exit> {
    match profile::remove()? {
        Some(LoginProfile { url, key: Some(_), .. }) => {
            print(&format!("Logged out of {url}.\n"));
            note("the key stays valid; `carom app revoke NAME` on the node revokes it");
        }
        Some(LoginProfile { url, .. }) => print(&format!("Logged out of {url}.\n")),
        None => print("There is no login.\n"),
    }
    Ok(())
}

/// True if the node at an address requires a key.
fn needs_key(url: &str) -> Result<bool, Exit> {
    match NodeApi::new(NodeAccess { url: url.to_owned(), key: None }).get(API_KEY) {
        Ok(rights) => Ok(rights["apiKey"]["required"] == true),
        // The node refused the request without a key.
        Err(exit) if exit.reason == Reason::Usage => Ok(true),
        Err(exit) => Err(exit),
    }
}

fn asked_key(url: &str) -> Result<String, Exit> {
    let missing = |what: String| {
        Exit::new(Reason::Usage, what).with_remedy("pass --key-file with a file that contains nothing but the key")
    };
    if !can_ask() {
        return Err(missing(format!("{url} requires an API key, and standard input is not a terminal")));
    }
    let typed = ask_secret(&format!("API key for {url} (not shown): ")).map_err(|error| match error.kind() {
        ErrorKind::Interrupted => missing("interrupted".to_owned()),
        _ => missing(format!("the key cannot be read: {error}")),
    })?;
    checked_key(typed.trim()).ok_or_else(|| missing("the typed text is not an API key".to_owned()))
}

/// Asks a node for the rights of the key, and describes them.
fn checked_rights(api: &NodeApi) -> Result<String, Exit> {
    let rights = api.get(API_KEY)?;
    described(&rights["apiKey"]).ok_or_else(|| api.foreign("it does not describe the key"))
}

/// Describes the rights of a key; `None` if the node sent something else.
fn described(rights: &Value) -> Option<String> {
    let role = plain(rights["role"].as_str()?);
    if rights["required"] == false {
        return Some("without a key: it requires none yet".to_owned());
    }
    let app = plain(rights["app"].as_str()?);
    let names = rights["domains"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<String> = names.iter().filter_map(Value::as_str).map(plain).collect();
    let limit = if names.is_empty() { String::new() } else { format!(", for {}", names.join(", ")) };
    Some(format!("as {app} with the role {role}{limit}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rights_are_described() {
        let rights = json!({"required": true, "app": "shop", "role": "write-own", "domains": null});
        assert_eq!(described(&rights).unwrap(), "as shop with the role write-own");
        let limited = json!({"required": true, "app": "shop", "role": "read", "domains": ["DEFAULT", "go.example"]});
        assert_eq!(described(&limited).unwrap(), "as shop with the role read, for DEFAULT, go.example");
        let open = json!({"required": false, "app": null, "role": "admin", "domains": null});
        assert_eq!(described(&open).unwrap(), "without a key: it requires none yet");
        assert_eq!(described(&Value::Null), None);
    }
}
