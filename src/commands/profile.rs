//! The login of a user: the address of a node and an API key, in a file that only the user can read. A command chooses
//! between that file, the environment and its arguments here.

use std::ffi::OsString;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IsTerminal, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::commands::cli::ApiPlace;
use crate::commands::terminal::say;
use carom_model::destination::hosts::host_of;
use carom_settings::exit::{Exit, Reason};
use carom_settings::keys::{KEY_FILE_ENV, URL_ENV};

/// The address of a node on this machine with the default settings.
pub(crate) const LOCAL_NODE: &str = "http://127.0.0.1:8080";

/// Longest profile, and longest file of a key, in bytes.
const FILE_LEN_MAX: u64 = 64 << 10;

/// The login of a user.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LoginProfile {
    /// Address of the node, without a trailing slash.
    pub(crate) url: String,
    /// API key; `None` for a node that requires none.
    pub(crate) key: Option<String>,
    /// The user agreed to send the key over plain http.
    pub(crate) plain_http: bool,
}

/// A node and the key for it, as a command uses them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeAccess {
    pub(crate) url: String,
    pub(crate) key: Option<String>,
}

/// Returns the file of the profile.
///
/// # Errors
/// [`Reason::Usage`] if the environment names no home directory.
pub(crate) fn path() -> Result<PathBuf, Exit> {
    let found = path_in(std::env::var_os("XDG_CONFIG_HOME"), std::env::var_os("HOME"));
    found.ok_or_else(|| {
        Exit::new(Reason::Usage, "HOME is not set, so there is no directory for the profile of `carom login`")
            .with_remedy("set HOME, or pass --url and --key-file")
    })
}

/// Returns the path below the directory for settings of the user, by the XDG base directory specification, which
/// ignores relative paths.
fn path_in(config: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let folder = config.and_then(absolute).or_else(|| home.and_then(absolute).map(|home| home.join(".config")))?;
    Some(folder.join("carom").join("profile.json"))
}

impl LoginProfile {
    /// Reads the profile of the user; `None` if the user is not logged in.
    ///
    /// # Errors
    /// [`Reason::Usage`] if the file cannot be read, is malformed, or can be read by other users.
    pub(crate) fn load() -> Result<Option<LoginProfile>, Exit> {
        // Without a home directory there is no profile, and commands can do without one.
        let Ok(path) = path() else { return Ok(None) };
        LoginProfile::read(&path)
    }

    fn read(path: &Path) -> Result<Option<LoginProfile>, Exit> {
        let wrong = |what: &str, remedy: &str| {
            Exit::new(Reason::Usage, format!("{}: {what}", path.display())).with_remedy(remedy)
        };
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(&error.to_string(), "make the file readable, or log in again")),
        };
        let mode = file.metadata().map_or(0, |meta| meta.permissions().mode());
        if mode & 0o077 != 0 {
            let what = "other users can read or change the file, which holds an API key";
            return Err(wrong(what, &format!("run `chmod 600 {}`", path.display())));
        }
        let malformed = || wrong("this is not a profile of `carom login`", "log in again with `carom login`");
        let mut text = String::new();
        file.take(FILE_LEN_MAX).read_to_string(&mut text).map_err(|_| malformed())?;
        let value: Value = serde_json::from_str(&text).map_err(|_| malformed())?;
        let url = value["url"].as_str().ok_or_else(malformed)?.to_owned();
        let key = value["key"].as_str().map(str::to_owned);
        Ok(Some(LoginProfile { url, key, plain_http: value["plainHttp"] == true }))
    }

    /// Writes the profile as the login of the user. Replaces the previous one as a whole.
    ///
    /// # Errors
    /// [`Reason::DataNotWritable`] if the file cannot be written.
    pub(crate) fn save(&self) -> Result<PathBuf, Exit> {
        let path = path()?;
        self.write(&path).map_err(|error| {
            Exit::new(Reason::DataNotWritable, format!("cannot write {}: {error}", path.display()))
                .with_remedy("make the directory writable, or set XDG_CONFIG_HOME to another one")
        })?;
        Ok(path)
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let folder = path.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let new = folder.join(format!(".profile-{}.new", std::process::id()));
        // A killed process with the same number may have left the file.
        let _ = std::fs::remove_file(&new);
        let text = json!({"url": self.url, "key": self.key, "plainHttp": self.plain_http});
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).and_then(|mut file| {
            file.write_all(format!("{text:#}\n").as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, path)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&new);
        }
        written?;
        File::open(folder)?.sync_all()
    }
}

/// Removes the profile of the user. Returns it if there was one.
///
/// # Errors
/// [`Reason::DataNotWritable`] if the file cannot be removed.
pub(crate) fn remove() -> Result<Option<LoginProfile>, Exit> {
    let path = path()?;
    // A malformed profile is removed as well.
    let profile = LoginProfile::read(&path).ok().flatten();
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Exit::new(Reason::DataNotWritable, format!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(profile),
    }
}

/// Returns the node of a command and the key for it: by the arguments, else by the environment, else by the profile.
///
/// # Errors
/// [`Reason::Usage`] for an invalid address, an unreadable key, or a key that would travel unencrypted.
pub(crate) fn access(place: &ApiPlace) -> Result<NodeAccess, Exit> {
    let (url, key_file) = (variable(URL_ENV), variable(KEY_FILE_ENV));
    // With both from one source, a profile that cannot be read does not matter.
    let is_whole = place.url.is_some() && place.key_file.is_some() || url.is_some() && key_file.is_some();
    let profile = if is_whole { LoginProfile::load().ok().flatten() } else { LoginProfile::load()? };
    let usual = || usual_node(url.as_deref(), profile.as_ref());
    let node = place.url.as_deref().map_or_else(usual, node_url)?;
    let key_file = key_file_for(&node, place.key_file.as_deref(), key_file.as_deref(), usual)?;
    let key = key_file.as_deref().map(read_key).transpose()?;
    chosen(node, key, place.plain_http, profile)
}

/// Returns the node of a command without an address among its arguments: that of `CAROM_URL`, else that of the profile,
/// else the local one.
///
/// # Errors
/// [`Reason::Usage`] for an invalid address.
pub(crate) fn usual_node(url: Option<&str>, profile: Option<&LoginProfile>) -> Result<String, Exit> {
    let default = || Ok(profile.map_or(LOCAL_NODE.to_owned(), |profile| profile.url.clone()));
    url.map_or_else(default, node_url)
}

/// Returns the file with the key for a node: that of the argument, else that of the environment. The latter is for the
/// usual node only, so that its key does not reach another node by accident.
///
/// # Errors
/// The error of `usual`.
pub(crate) fn key_file_for(
    node: &str,
    argument: Option<&Path>,
    environment: Option<&str>,
    usual: impl FnOnce() -> Result<String, Exit>,
) -> Result<Option<PathBuf>, Exit> {
    let (None, Some(file)) = (argument, environment) else { return Ok(argument.map(Path::to_owned)) };
    let usual = usual()?;
    if usual == node {
        return Ok(Some(PathBuf::from(file)));
    }
    say(&format!(
        "note: the key of {KEY_FILE_ENV} is for {usual} and is not sent to {node}; pass --key-file, or set {URL_ENV}={node}"
    ));
    Ok(None)
}

fn chosen(
    url: String,
    key: Option<String>,
    plain_http: bool,
    profile: Option<LoginProfile>,
) -> Result<NodeAccess, Exit> {
    // The key of the profile is for its node only.
    let profile = profile.filter(|profile| profile.url == url);
    let may = plain_http || profile.as_ref().is_some_and(|profile| profile.plain_http);
    let key = key.or_else(|| profile.and_then(|profile| profile.key));
    if key.is_some() {
        refuse_plain(&url, may)?;
    }
    Ok(NodeAccess { url, key })
}

/// Returns an environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the address of a node in one form: with a scheme, without a trailing slash. Without a scheme, another
/// machine is asked over https, and this one over http.
///
/// # Errors
/// [`Reason::Usage`] for anything else than an http or https address without user name, query and fragment.
pub(crate) fn node_url(text: &str) -> Result<String, Exit> {
    let wrong = |why: &str| {
        Exit::new(Reason::Usage, format!("{text} is not the address of a node: {why}"))
            .with_remedy("pass an address such as https://go.example or http://127.0.0.1:8080")
    };
    let url = match text.split_once("://") {
        Some(("http" | "https", _)) => text.to_owned(),
        Some(_) => return Err(wrong("expected http or https")),
        None if is_this_machine(&format!("http://{text}")) => format!("http://{text}"),
        None => format!("https://{text}"),
    };
    if url.contains(['?', '#', '@', '\\']) || url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(wrong("it has a user name, a query, a fragment or a space"));
    }
    if host_of(url.as_bytes()).is_empty() {
        return Err(wrong("it has no host"));
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// True if a URL leads to this machine by its host alone.
pub(crate) fn is_this_machine(url: &str) -> bool {
    let host = host_of(url.as_bytes()).trim_matches(['[', ']']);
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    name == "localhost" || name.ends_with(".localhost") || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

/// Refuses to send a key over plain http to another machine, unless the user agreed.
///
/// # Errors
/// [`Reason::Usage`] with the host.
pub(crate) fn refuse_plain(url: &str, may: bool) -> Result<(), Exit> {
    if may || !url.starts_with("http://") || is_this_machine(url) {
        return Ok(());
    }
    let what = format!("the API key would travel to {} unencrypted", host_of(url.as_bytes()));
    Err(Exit::new(Reason::Usage, what).with_remedy("use the https address of the node, or pass --plain-http"))
}

/// Reads an API key from a file, or from standard input for `-`.
///
/// # Errors
/// [`Reason::Usage`] if it cannot be read, or is not one key of printable characters.
pub(crate) fn read_key(file: &Path) -> Result<String, Exit> {
    let is_standard = file.as_os_str() == "-";
    let place = if is_standard { "standard input".to_owned() } else { file.display().to_string() };
    let wrong = |what: &str| {
        Exit::new(Reason::Usage, format!("{place}: {what}"))
            .with_remedy("pass a file with nothing but the key; `carom app add NAME` prints one")
    };
    if is_standard && can_ask() {
        return Err(wrong("this is a terminal, which would show the key"));
    }
    let mut text = String::new();
    let read = if is_standard {
        io::stdin().lock().take(FILE_LEN_MAX).read_to_string(&mut text)
    } else {
        File::open(file).and_then(|file| file.take(FILE_LEN_MAX).read_to_string(&mut text))
    };
    read.map_err(|error| wrong(&error.to_string()))?;
    checked_key(text.trim()).ok_or_else(|| wrong("this is not an API key"))
}

/// Returns a key that can be sent in a header.
pub(crate) fn checked_key(text: &str) -> Option<String> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).then(|| text.to_owned())
}

/// True if a person can be asked: standard input is a terminal.
pub(crate) fn can_ask() -> bool {
    io::stdin().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(url: &str, plain_http: bool) -> LoginProfile {
        LoginProfile { url: url.to_owned(), key: Some("of-profile".to_owned()), plain_http }
    }

    #[test]
    fn profile_is_private_and_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = path_in(Some(folder.path().join("config").into()), None).unwrap();
        assert_eq!(LoginProfile::read(&path), Ok(None));
        let mine = profile("https://go.example", false);
        mine.write(&path).unwrap();
        mine.write(&path).unwrap();
        assert_eq!(LoginProfile::read(&path), Ok(Some(mine)));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "a file is left over");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(LoginProfile::read(&path).unwrap_err().remedy().contains("chmod 600"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(&path, "[]").unwrap();
        assert!(LoginProfile::read(&path).unwrap_err().what.contains("not a profile"));
    }

    #[test]
    fn directory_comes_from_the_environment() {
        let path = |config: &str, home: &str| path_in(Some(config.into()), Some(home.into()));
        assert_eq!(path("/c", "/h"), Some(PathBuf::from("/c/carom/profile.json")));
        assert_eq!(path("relative", "/h"), Some(PathBuf::from("/h/.config/carom/profile.json")));
        assert_eq!(path_in(None, Some("".into())), None);
    }

    #[test]
    fn arguments_win_and_keys_stay_with_their_node() {
        let key = |key: &str| Some(key.to_owned());
        let mine = || Some(profile("https://go.example", false));
        let chosen = |url: &str, key| chosen(url.to_owned(), key, false, mine()).unwrap();
        assert_eq!(chosen("https://go.example", None).key, key("of-profile"));
        assert_eq!(chosen("https://other.example", None).key, None);
        assert_eq!(chosen("https://other.example", key("own")).key, key("own"));
        let usual = |url: Option<&str>, profile: Option<LoginProfile>| usual_node(url, profile.as_ref()).unwrap();
        assert_eq!(usual(Some("https://other.example/"), mine()), "https://other.example");
        assert_eq!(usual(None, mine()), "https://go.example");
        assert_eq!(usual(None, None), LOCAL_NODE);
    }

    #[test]
    fn key_of_the_environment_is_for_the_usual_node() {
        let usual = || Ok("https://go.example".to_owned());
        let file = |node: &str, argument: Option<&str>, environment| {
            key_file_for(node, argument.map(Path::new), environment, usual).unwrap()
        };
        let found = |file: &str| Some(PathBuf::from(file));
        assert_eq!(file("https://go.example", None, Some("env")), found("env"));
        assert_eq!(file("https://other.example", None, Some("env")), None);
        // An argument is on purpose.
        assert_eq!(file("https://other.example", Some("arg"), Some("env")), found("arg"));
        assert_eq!(file("https://go.example", Some("arg"), Some("env")), found("arg"));
        assert_eq!(file("https://go.example", None, None), None);
    }

    #[test]
    fn keys_are_not_sent_in_the_clear() {
        let with = |url: &str, may| chosen(url.to_owned(), Some("k".to_owned()), may, None).map(|access| access.url);
        assert!(with("http://go.example", false).unwrap_err().what.contains("go.example unencrypted"));
        assert_eq!(with("http://go.example", true), Ok("http://go.example".to_owned()));
        for local in ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost", "http://a.localhost:1"] {
            assert_eq!(with(local, false), Ok(local.to_owned()));
        }
        let plain = "http://go.example";
        let agreed = chosen(plain.to_owned(), None, false, Some(profile(plain, true))).unwrap();
        assert_eq!(agreed.key.as_deref(), Some("of-profile"));
        // Without a key there is nothing to hide.
        assert!(chosen(plain.to_owned(), None, false, None).is_ok());
    }

    #[test]
    fn addresses_have_one_form() {
        for (text, url) in [
            ("go.example", "https://go.example"),
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("localhost:1", "http://localhost:1"),
            ("https://go.example//", "https://go.example"),
        ] {
            assert_eq!(node_url(text).unwrap(), url);
        }
        for wrong in ["", "ftp://go.example", "https://", "https://u:p@go.example", "https://go.example/?a", "a b"] {
            assert!(node_url(wrong).is_err(), "{wrong}");
        }
    }
}
