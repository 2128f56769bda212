//! The texts that `--help` shows below the arguments of a command.

use carom_settings::help;

/// Pointer from the short help of a command to its long help.
pub(super) const HINT: &str = "Use --help for details and examples.";

/// Pointer from the short help of `carom` to its long help.
pub(super) const MORE: &str = "\
Use `carom --help` for examples, and `carom COMMAND --help` for the options of a command.";

/// Examples of commands.
pub(super) const EXAMPLES: &str = "\
Examples:
  carom demo                              look around: a node with sample links and visits
  carom serve                             try it: listens on 127.0.0.1:8080, data in ./carom-data
  carom serve --config /etc/carom.toml    serve with a settings file
  carom config init                       write a settings file, carom.toml, to start from
  carom config check /etc/carom.toml      report all mistakes in a settings file
  carom doctor --config /etc/carom.toml   check the machine and the settings
  carom status                            print the status of the node on this machine
  carom top                               watch this node live
  carom app add shop                      create an API key
  carom link create https://example.org/  create a link on the node of `carom login`
  carom backup /backups/today             back up a running node; see also `verify` and `restore`
  carom join --from http://10.0.0.1:8081  get all links for a new node of a fleet
  carom import --data-dir /var/lib/carom links.ndjson
  carom export --data-dir /var/lib/carom | gzip > links.ndjson.gz
  (umask 077; carom key new > space.key)  generate a code secret for the nodes of a fleet

`carom serve --help` lists all settings. The documentation lists the exit codes and their reasons.";

/// Help on the live view.
pub(super) const TOP: &str = "\
Keys:
  q, Esc, Ctrl-C  quit
  s, →, ←         sort the cores by the next or previous column
  r               reverse the order
  ↑, ↓            scroll the cores
  p               pause and resume
  h               explain keys and columns

If the node does not answer, the view says so and tries again every second. Without a terminal, use `carom status`.";

/// Help on API keys.
pub(super) const APPS: &str = "\
A running node applies each change within a second, and so do the other nodes of its fleet. Once a key exists, the API \
requires one:
  curl -H \"X-Api-Key: $KEY\" https://s.example/rest/v3/short-urls

Roles:
  read       read the app's own links
  read-all   read the links of all apps
  write-own  read; create links; change and delete the app's own links
  write-all  read-all; create links; change and delete the links of all apps
  admin      write-all; manage apps and keys on the admin listener; import links with their dates and visits";

/// Help on backups.
pub(super) const BACKUP: &str = "\
A backup is a consistent snapshot with every link acknowledged before it began. Writes continue meanwhile. It contains \
links, visits up to about a second before, API keys and the code secret. Protect it like the data directory.

Run the command as the user that runs the node. A running node sends its data through control.sock in the data directory:
  sudo -u carom carom backup /backups/$(date +%F) --data-dir /var/lib/carom

Once the new backup is complete, --keep removes old ones: only complete backups that it wrote itself, with the same
code secret. It names backups that are not whole, which do not count, and keeps them. If the store is damaged, it removes
nothing:
  sudo -u carom carom backup --keep 7 /backups --data-dir /var/lib/carom";

/// Help on restores.
pub(super) const RESTORE: &str = "\
carom checks every record first; a damaged backup is rejected, and nothing is written. The restored node skips short \
codes that the old node may have issued after the backup, so that no code is issued twice.

API keys that were revoked after the backup become valid again. --revoke-keys revokes all of them.";

/// Help on joins.
pub(super) const JOIN: &str = "\
The new node gets all links with their history and counts of visits from a snapshot of the other node, which keeps \
serving. Once the new node is started, it gets later changes through Redis. Its data directory needs the code secret of \
the fleet first:
  sudo install -o carom -g carom -m 0600 space.key /var/lib/carom/space.key
  sudo -u carom carom join --from http://10.0.0.1:8081 --key-file admin.key --config /etc/carom/carom.toml

An interrupted join continues when the command is run again. Every piece has a checksum: a damaged or incomplete \
transfer leaves a data directory without links. The links travel as the URL says, unencrypted with http.";

/// Help on fleets.
pub(super) const FLEET: &str = "\
If a site of two may lack links of the other one, it raises the alarm site_lacks, and unknown codes get 503 there. Fill \
all nodes of the site again with `carom join`, as the runbook describes. Then declare the site complete, on one of its \
nodes:
  carom fleet site-complete
  carom fleet site-complete --admin 10.0.0.1:8081 --key-file admin.key

The command changes nothing on a site that is not marked as one that may lack links.

If a site is closed or lost for good, stop its nodes. Then run the other command on a node of the site that stays: first \
without --confirm, which names what may be lost, then with the name of the site to give up:
  carom fleet site-give-up
  carom fleet site-give-up --confirm lisbon

The command refuses while nodes of that site are alive, and needs --accept-loss if changes may be lost. Afterwards, \
remove fleet.site, fleet.other_site and fleet.other_redis from the settings of the remaining nodes, and restart them.";

/// Help on links.
pub(super) const LINKS: &str = "\
Without a login, the commands use the node on this machine, http://127.0.0.1:8080. `carom login` sets another one.

Examples:
  carom link create https://example.com/sale --slug summer --tag sale --expires 30d --qr
  carom link list sale --order visits
  carom link edit summer --destination https://example.com/new --clear expires
  carom link edit summer --archived true       take it offline
  carom link restore summer                    bring it back, also within ten minutes of a delete
  carom link stats https://go.example/summer --since 7d
  url=$(carom link create https://example.com/)";

/// Help on purges.
pub(super) const PURGE: &str = "\
A purge removes destinations, titles, tags, visits and history of links from the files of all nodes and from Redis. Their \
short codes stay. The command waits until all nodes have done that. If it is interrupted, the nodes continue.

If Redis stores the links, the node reads all of them, first to count those that match: 50,000 a second at most.

Backups, access logs and the receivers of events keep what they have.

It uses the node of `carom login`, and needs a key with the role write-all:
  carom purge --tag campaign-2024 --dry-run
  carom purge --destination https://shop.example/customers/4711";

/// Help on logins.
pub(super) const LOGIN: &str = "\
The address and the key are stored in ~/.config/carom/profile.json (or below XDG_CONFIG_HOME), which only you can read. \
Without --key-file, carom asks for the key if the node requires one. A key is never an argument: other users of the \
machine can read those.

CAROM_URL and CAROM_KEY_FILE, or --url and --key-file, take precedence over the profile. The key of CAROM_KEY_FILE is sent to the node of CAROM_URL only (without it, to that of the login), and not to another one of --url:
  CAROM_URL=https://go.example CAROM_KEY_FILE=/run/secrets/carom carom login";

/// The format of imports and exports.
pub(super) const NDJSON: &str = "\
Format of each line:
  {\"shortCode\":\"abc1234\",\"longUrl\":\"https://example.org/\",\"dateCreated\":\"2026-01-31T12:00:00Z\"}

The summary goes to standard error. Exit code 1 means that some lines or records were rejected or damaged. \
If the code secret is not in the data directory, CAROM_SPACE_KEY or CAROM_SPACE_KEY_FILE provides it.";

/// Returns the help on imports.
pub(super) fn import() -> String {
    format!(
        "\
{NDJSON}

Links of other shorteners keep slugs, domains, dates, titles, tags, limits and visit counts:
  carom import --data-dir DIR --from shlink --url https://s.example --key-file s.key --dry-run
  carom import --data-dir DIR --from yourls yourls.sql --report rejected.ndjson
  carom import --data-dir DIR --from bitly --key-file bitly.token --map-domain bit.ly=DEFAULT
  carom import --data-dir DIR --from kutt --url https://kutt.example --key-file kutt.key
  carom import --data-dir DIR --from csv links.csv

--to sends the links to a running node, which may belong to a fleet, with an admin key of that node:
  carom import --to http://127.0.0.1:8081 --to-key-file admin.key --from yourls yourls.sql --dry-run
  carom import --to https://s.example --rate 500 links.ndjson

A repeated import takes no link twice, so an import that was interrupted can be run again."
    )
}

/// Returns the version with what identifies the build: the commit, its date, and the target.
pub(super) fn version() -> String {
    // Empty if the build script found no commit. It looks for none in a build for development.
    let known = |text: &'static str| match text {
        "" if cfg!(debug_assertions) => "not recorded by builds for development",
        "" => "unknown",
        text => text,
    };
    format!(
        "{}\ncommit: {}\ndate:   {}\ntarget: {}",
        env!("CARGO_PKG_VERSION"),
        known(env!("BUILD_COMMIT")),
        known(env!("BUILD_COMMIT_DATE")),
        env!("BUILD_TARGET"),
    )
}

/// Help on completions.
pub(super) const COMPLETIONS: &str = "\
The Debian package installs completions for all three shells. For one user:
  carom completions bash > ~/.local/share/bash-completion/completions/carom
  carom completions zsh > ~/.zfunc/_carom          with fpath+=~/.zfunc before compinit in ~/.zshrc
  carom completions fish > ~/.config/fish/completions/carom.fish";

/// Returns a pointer from the short help to all settings.
pub(super) fn settings_hint() -> String {
    format!("Use --help for all {} settings and their environment variables.", help::settings_count())
}

/// Lists all settings with their environment variables.
pub(super) fn settings() -> String {
    format!(
        "Settings by environment variable. A flag overrides its variable, which overrides the settings file:\n{}",
        help::environment_help()
    )
}
