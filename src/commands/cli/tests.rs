//! Tests of the command line.

use clap::error::ErrorKind;

use super::*;
use carom_settings::keys::SETTINGS;

fn parse(line: &str) -> Result<Command, ErrorKind> {
    Cli::try_parse_from(line.split(' ')).map(|cli| cli.command).map_err(|error| error.kind())
}

/// A help without its line breaks, which depend on the width.
fn unwrapped(help: &clap::builder::StyledStr) -> String {
    help.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn serve_takes_every_flag() {
    let line = "carom serve --config c.toml --data-dir d --listen 127.0.0.1:1 --listen [::1]:2 --admin-listen a \
                --cores 3-3 --redis redis://h:1 --base-url https://example.org --open";
    let Ok(Command::Serve(args)) = parse(line) else { panic!("refused") };
    let (config, flags) = args.split();
    assert_eq!(config, Some(PathBuf::from("c.toml")));
    let expected = Flags {
        data_dir: Some("d".into()),
        listen: vec!["127.0.0.1:1".into(), "[::1]:2".into()],
        admin_listen: Some("a".into()),
        cores: Some("3-3".into()),
        redis: Some("redis://h:1".into()),
        base_url: Some("https://example.org".into()),
        open: true,
    };
    assert_eq!(flags, expected);
    let Ok(Command::Serve(args)) = parse("carom serve") else { panic!("refused") };
    assert_eq!(args.split(), (None, Flags::default()));
}

#[test]
fn flags_and_help_agree_with_the_registry() {
    let mut command = Cli::command();
    let serve = command.find_subcommand_mut("serve").unwrap();
    let mut flags: Vec<String> =
        serve.get_arguments().filter_map(|arg| arg.get_long().map(|long| format!("--{long}"))).collect();
    flags.retain(|flag| flag != "--config");
    let known: Vec<&str> = SETTINGS.iter().filter_map(|setting| setting.flag).collect();
    assert_eq!(flags, known);
    let help = unwrapped(&serve.render_long_help());
    for setting in &SETTINGS {
        assert!(help.contains(setting.env), "{}", setting.env);
    }
    for setting in SETTINGS.iter().filter(|setting| setting.flag.is_some()) {
        let default = setting.default.unwrap_or_default();
        assert!(default == "false" || help.contains(&format!("[default: {default}")), "{}", setting.name);
    }
}

#[test]
fn the_short_help_fits_a_screen_and_points_to_the_long_one() {
    let mut root = Cli::command();
    // Now each command has the options of all commands, too.
    root.build();
    let mut waiting = vec![root];
    while let Some(mut command) = waiting.pop() {
        waiting.extend(command.get_subcommands().cloned());
        let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
        let name = command.get_name();
        assert!(short.lines().count() <= 40, "{name} -h has too many lines:\n{short}");
        let has_more = command.get_after_long_help().is_some();
        assert!(!has_more || short.trim_end().lines().last().is_some_and(|line| line.contains("--help")), "{short}");
        assert!(!short.contains("CAROM_LINKS_"), "{name}");
        assert!(!has_more || long.len() > short.len(), "{name}");
    }
}

#[test]
fn help_of_dates_names_a_day() {
    let mut root = Cli::command();
    let link = root.find_subcommand_mut("link").unwrap();
    for (name, option) in [
        ("create", "starts"),
        ("create", "expires"),
        ("edit", "starts"),
        ("edit", "expires"),
        ("stats", "since"),
        ("stats", "until"),
    ] {
        let command = link.find_subcommand(name).unwrap();
        let found = command.get_arguments().find(|one| one.get_long() == Some(option));
        let help = found.and_then(clap::Arg::get_help).map(unwrapped).unwrap_or_default();
        assert!(help.contains("a day such as "), "{name} --{option}: {help}");
    }
}

#[test]
fn the_admin_listener_is_described_with_all_that_it_serves() {
    let setting = SETTINGS.iter().find(|setting| setting.name == "admin_listen").unwrap();
    let mut command = Cli::command();
    let help = unwrapped(&command.find_subcommand_mut("serve").unwrap().render_help());
    for part in ["console", "metrics", "status", "key", "ever expose it publicly"] {
        assert!(setting.doc.contains(part), "{part}");
        assert!(help.contains(part), "{part}");
    }
}

#[test]
fn sites_are_completed_over_the_admin_listener() {
    let node = |admin: Option<&str>| {
        let place = AdminPlace { admin: admin.map(str::to_owned), config: None };
        Ok(Command::Fleet(FleetCommand::SiteComplete(NodeArgs { place, key_file: None })))
    };
    assert_eq!(parse("carom fleet site-complete"), node(None));
    assert_eq!(parse("carom fleet site-complete --admin 10.0.0.1:8081"), node(Some("10.0.0.1:8081")));
    assert_eq!(parse("carom fleet site-complete berlin"), Err(ErrorKind::UnknownArgument));
}

#[test]
fn losses_are_accepted_with_a_confirmed_site_only() {
    let given_up = |confirm: Option<&str>, accept_loss| {
        let place = AdminPlace { admin: None, config: None };
        let (node, confirm) = (NodeArgs { place, key_file: None }, confirm.map(str::to_owned));
        Ok(Command::Fleet(FleetCommand::SiteGiveUp(GiveUpArgs { node, confirm, accept_loss })))
    };
    assert_eq!(parse("carom fleet site-give-up"), given_up(None, false));
    assert_eq!(parse("carom fleet site-give-up --confirm lisbon --accept-loss"), given_up(Some("lisbon"), true));
    assert_eq!(parse("carom fleet site-give-up --accept-loss"), Err(ErrorKind::MissingRequiredArgument));
}

#[test]
fn files_and_standard_streams_are_told_apart() {
    let (place, links) = (|| AppPlace { data_dir: Some("d".to_owned()), config: None }, FileOrStdio::File("l".into()));
    let import = |place, file| {
        Ok(Command::Import(ImportArgs {
            place,
            to: None,
            to_key_file: None,
            rate: None,
            from: None,
            url: None,
            key_file: None,
            map_domains: Vec::new(),
            dry_run: false,
            report: None,
            file: Some(file),
        }))
    };
    let export = |place, file| Ok(Command::Export { place, file });
    assert_eq!(parse("carom import --data-dir d l"), import(place(), links.clone()));
    assert_eq!(parse("carom import --data-dir d -"), import(place(), FileOrStdio::Standard));
    assert_eq!(parse("carom export --data-dir d"), export(place(), FileOrStdio::Standard));
    assert_eq!(parse("carom export --data-dir d l"), export(place(), links.clone()));
    // Without the option, the settings name the directory, as for every other command.
    let default = AppPlace { data_dir: None, config: Some("c.toml".into()) };
    assert_eq!(parse("carom export --config c.toml l"), export(default, links));
    assert_eq!(parse("carom import --data-dir d"), Err(ErrorKind::MissingRequiredArgument));
}

#[test]
fn an_import_has_one_source() {
    let line = "carom import --data-dir d --from shlink";
    let Ok(Command::Import(of_file)) = parse(&format!("{line} links.json --map-domain bit.ly=DEFAULT --dry-run"))
    else {
        panic!("refused")
    };
    assert_eq!((of_file.from, of_file.dry_run), (Some(Shortener::Shlink), true));
    assert_eq!(of_file.map_domains, [("bit.ly".to_owned(), "DEFAULT".to_owned())]);
    assert!(parse(&format!("{line} --url https://s.example --key-file k")).is_ok());
    assert_eq!(parse(&format!("{line} --url https://s.example links.json")), Err(ErrorKind::ArgumentConflict));
    assert_eq!(parse(&format!("{line} --map-domain bit.ly l")), Err(ErrorKind::ValueValidation));
    assert_eq!(parse("carom import --data-dir d --from dub l"), Err(ErrorKind::ValueValidation));
    assert_eq!(parse("carom import --data-dir d --url https://s.example"), Err(ErrorKind::MissingRequiredArgument));
    assert!(parse("carom import --to http://127.0.0.1:8081 --to-key-file k --rate 9 l").is_ok());
    assert_eq!(parse("carom import --to u --data-dir d l"), Err(ErrorKind::ArgumentConflict));
    assert_eq!(parse("carom import --data-dir d --rate 9 l"), Err(ErrorKind::ArgumentConflict));
    assert_eq!(parse("carom import --rate 9 l"), Err(ErrorKind::MissingRequiredArgument));
}

#[test]
fn a_fingerprint_is_of_one_key() {
    let place = |line: &str| match parse(&format!("carom key show-fingerprint{line}")) {
        Ok(Command::Key(KeyCommand::ShowFingerprint(place))) => Ok(place),
        Ok(other) => panic!("{other:?}"),
        Err(kind) => Err(kind),
    };
    let of = |file: Option<&str>, data_dir: Option<&str>, config: Option<&str>| KeyPlace {
        space_key_file: file.map(PathBuf::from),
        place: AppPlace { data_dir: data_dir.map(str::to_owned), config: config.map(PathBuf::from) },
    };
    assert_eq!(place(" --data-dir d"), Ok(of(None, Some("d"), None)));
    assert_eq!(place(" --space-key-file f"), Ok(of(Some("f"), None, None)));
    assert_eq!(place(" --config c"), Ok(of(None, None, Some("c"))));
    assert_eq!(place(""), Ok(of(None, None, None)));
    assert_eq!(place(" --space-key-file f --data-dir d"), Err(ErrorKind::ArgumentConflict));
    assert_eq!(parse("carom key new"), Ok(Command::Key(KeyCommand::New)));
}

#[test]
fn verbosity_is_known_everywhere() {
    let verbosity = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.verbosity());
    for (line, expected) in [
        ("carom link list", Verbosity::Normal),
        ("carom -q link list", Verbosity::Quiet),
        ("carom link list --quiet", Verbosity::Quiet),
        ("carom serve -v", Verbosity::Verbose),
        ("carom --verbose backup d", Verbosity::Verbose),
    ] {
        assert_eq!(verbosity(line).unwrap(), expected, "{line}");
    }
    assert_eq!(verbosity("carom -q -v link list").unwrap_err().kind(), ErrorKind::ArgumentConflict);
}

#[test]
fn wrong_usage_ends_with_the_promised_number() {
    let error = Cli::try_parse_from(["carom", "serve", "--lisen", "x"]).unwrap_err();
    assert_eq!(error.exit_code(), i32::from(carom_settings::exit::Reason::Usage.code()));
    assert_eq!(Cli::try_parse_from(["carom", "--version"]).unwrap_err().exit_code(), 0);
}

#[test]
fn colours_are_known_before_the_arguments() {
    let asked = |line: &str| asked_colour(line.split(' ').map(OsString::from));
    assert_eq!(asked("carom --color never link list"), ColorChoice::Never);
    assert_eq!(asked("carom link list --color=always"), ColorChoice::Always);
    assert_eq!(asked("carom link list --colour never"), ColorChoice::Auto);
}

#[test]
fn versions_are_short_and_long() {
    let printed = |flag: &str| Cli::try_parse_from(["carom", flag]).unwrap_err().to_string();
    let short = concat!("carom ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(printed("-V"), short);
    let long = printed("--version");
    let names: Vec<&str> = long.lines().skip(1).filter_map(|line| line.split(':').next()).collect();
    assert!(long.starts_with(short), "{long}");
    assert!(names == ["commit", "date", "target"], "{long}");
    // A build for development says why it has no commit.
    let says_unknown = long.lines().any(|line| line.ends_with(" unknown"));
    assert!(!cfg!(debug_assertions) || !says_unknown, "{long}");
}
