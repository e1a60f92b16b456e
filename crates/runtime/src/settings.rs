//! Settings from flags, environment variables and a file, read by the same parsers; and their reference.
//!
//! Precedence: flag, environment variable, file, default. The values of the file become the defaults of the command
//! before anything is parsed.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
};

use clap::{
    Arg, Command, CommandFactory, FromArgMatches,
    error::{ContextKind, ErrorKind},
};
use serde_json::Value;
use snafu::{ResultExt, Snafu};

use crate::args::config_variable;

/// The flag with the path of the file.
const CONFIG_FLAG: &str = "--config";

/// Why the settings cannot be used.
#[derive(Debug, Snafu)]
pub enum SettingsError {
    /// The file cannot be read.
    #[snafu(display("failed to read settings from {}: {source}", path.display()))]
    ReadFile {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The file is not a YAML map.
    #[snafu(display(
        "failed to parse settings in {}: {message}; write one \"key: value\" per line", path.display()
    ))]
    ParseFile {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        message: String,
    },
    /// The file has an unknown key.
    #[snafu(display("failed to use settings in {}: unknown setting {key:?}; {fix}", path.display()))]
    FindSetting {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// The most similar setting.
        fix: String,
    },
    /// The file has a list or a map instead of a single value.
    #[snafu(display("failed to use settings in {}: {key:?} must have a single value", path.display()))]
    UseValue {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A value of the file is invalid.
    #[snafu(display("failed to use settings in {}: {}", path.display(), unprefixed(source)))]
    ParseValue {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        source: clap::Error,
    },
    /// The command line is invalid, or help was requested: print it and use its exit code.
    #[snafu(display("{source}"), context(false))]
    ParseArguments {
        /// The error of the parser.
        source: clap::Error,
    },
}

impl SettingsError {
    /// Prints the error or the requested help, and ends the process with the matching exit code.
    pub fn exit(&self) -> ! {
        match self {
            Self::ParseArguments { source } => source.exit(),
            other => clap::Error::raw(ErrorKind::Io, format!("{other}\n")).exit(),
        }
    }
}

/// Parses a command line. Values from the settings file of `--config` or of the environment are the defaults.
pub fn parse<C: CommandFactory + FromArgMatches>(
    arguments: impl IntoIterator<Item = impl Into<OsString>>,
) -> Result<C, SettingsError> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    parse_from(C::command(), &arguments)
}

/// Parses a command line with this command. Values from the settings file are the defaults, as in [`parse`].
pub fn parse_from<C: FromArgMatches>(command: Command, arguments: &[OsString]) -> Result<C, SettingsError> {
    parse_with_file(command, arguments, config_path(arguments, config_variable()))
}

fn parse_with_file<C: FromArgMatches>(
    mut command: Command,
    arguments: &[OsString],
    path: Option<PathBuf>,
) -> Result<C, SettingsError> {
    let mut values = BTreeMap::new();
    if let Some(path) = &path {
        values = read_file(path)?;
        let known = known_keys(&command);
        for key in values.keys() {
            if !known.contains(key) {
                return FindSettingSnafu { path, key, fix: suggest(key, &known) }.fail();
            }
        }
        command = with_defaults(command, &values);
    }
    let matches = command.try_get_matches_from_mut(arguments);
    let parsed = matches.and_then(|mut matches| C::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| match path {
        Some(path) if comes_from_file(&error, &values) => SettingsError::ParseValue { path, source: error },
        _ => error.into(),
    })
}

/// Returns the path of the settings file from the flag, otherwise from the environment. The flag is searched by hand,
/// because the file is needed before parsing.
fn config_path(arguments: &[OsString], variable: Option<OsString>) -> Option<PathBuf> {
    let mut rest = arguments.iter().skip(1).take_while(|argument| *argument != "--");
    while let Some(argument) = rest.next() {
        if argument == CONFIG_FLAG {
            return rest.next().map(PathBuf::from);
        }
        if let Some(path) =
            argument.to_str().and_then(|text| text.strip_prefix(CONFIG_FLAG)?.strip_prefix('='))
        {
            return Some(PathBuf::from(path));
        }
    }
    variable.filter(|path| !path.is_empty()).map(PathBuf::from)
}

fn read_file(path: &Path) -> Result<BTreeMap<String, String>, SettingsError> {
    let text = std::fs::read_to_string(path).context(ReadFileSnafu { path })?;
    let value: Value = serde_saphyr::from_str(&text)
        .map_err(|error| SettingsError::ParseFile { path: path.to_owned(), message: error.to_string() })?;
    let fields = match value {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(fields) => fields,
        _ => return ParseFileSnafu { path, message: "it is not a map" }.fail(),
    };
    fields
        .into_iter()
        .map(|(key, value)| match value {
            Value::String(text) => Ok((key, text)),
            Value::Bool(_) | Value::Number(_) => Ok((key, value.to_string())),
            Value::Null | Value::Array(_) | Value::Object(_) => UseValueSnafu { path, key }.fail(),
        })
        .collect()
}

/// Sets the values as defaults, in the command and in all of its subcommands.
fn with_defaults(command: Command, values: &BTreeMap<String, String>) -> Command {
    let command = command.mut_args(|argument| match key(&argument).and_then(|key| values.get(&key)) {
        Some(value) => argument.default_value(value.clone()).required(false),
        None => argument,
    });
    command.mut_subcommands(|subcommand| with_defaults(subcommand, values))
}

fn comes_from_file(error: &clap::Error, values: &BTreeMap<String, String>) -> bool {
    let text = |kind| error.get(kind).map(ToString::to_string).unwrap_or_default();
    let (argument, value) = (text(ContextKind::InvalidArg), text(ContextKind::InvalidValue));
    let flag = argument.split_whitespace().next().unwrap_or_default().trim_start_matches('-');
    values.get(&camel_case(flag)) == Some(&value)
}

/// Returns the text of the error without the prefix "error: ".
fn unprefixed(error: &clap::Error) -> String {
    let text = error.to_string();
    text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()
}

fn known_keys(command: &Command) -> Vec<String> {
    let below = command.get_subcommands().flat_map(known_keys);
    command.get_arguments().filter_map(key).chain(below).collect()
}

fn suggest(key: &str, known: &[String]) -> String {
    let nearest = known
        .iter()
        .max_by(|left, right| strsim::jaro_winkler(key, left).total_cmp(&strsim::jaro_winkler(key, right)));
    match nearest {
        Some(nearest) => format!("did you mean {nearest:?}?"),
        None => "remove it".to_owned(),
    }
}

/// Returns the key of an argument in a settings file; `None` for `--config` itself and for arguments without a long flag.
fn key(argument: &Arg) -> Option<String> {
    let long = argument.get_long()?;
    (!["config", "help", "version"].contains(&long)).then(|| camel_case(long))
}

fn camel_case(flag: &str) -> String {
    let mut words = flag.split('-');
    let mut key = words.next().unwrap_or_default().to_owned();
    for word in words {
        let mut letters = word.chars();
        key.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
        key.push_str(letters.as_str());
    }
    key
}

/// One setting in the generated reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The flag, with its dashes.
    pub flag: String,
    /// The environment variable.
    pub variable: Option<String>,
    /// The key in a settings file.
    pub key: Option<String>,
    /// The default value.
    pub default: Option<String>,
    /// The help text.
    pub help: String,
}

/// Returns all settings of a command, without those of its subcommands.
#[must_use]
pub fn settings_reference(command: &Command) -> Vec<Setting> {
    let text = |text: &OsStr| text.to_string_lossy().into_owned();
    command
        .get_arguments()
        .filter_map(|argument| {
            Some(Setting {
                flag: format!("--{}", argument.get_long()?),
                variable: argument.get_env().map(text),
                key: key(argument),
                default: argument
                    .get_default_values()
                    .first()
                    .map(|value| text(value))
                    .filter(|value| !value.is_empty()),
                help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use clap::Parser;

    use super::*;
    use crate::args::OperatorArgs;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(subcommand)]
        role: Role,
    }

    #[derive(Debug, clap::Subcommand)]
    enum Role {
        Run {
            #[command(flatten)]
            operator: Box<OperatorArgs>,
        },
    }

    fn file(content: &str) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file
    }

    fn run(content: &str, flags: &[&str]) -> Result<OperatorArgs, SettingsError> {
        let file = file(content);
        let path = file.path().to_str().unwrap();
        let arguments = ["vitistack", "run", "--config", path].into_iter().chain(flags.iter().copied());
        parse::<Cli>(arguments).map(|cli| {
            let Role::Run { operator } = cli.role;
            *operator
        })
    }

    #[track_caller]
    fn refused(content: &str, parts: &[&str]) {
        let error = run(content, &[]).unwrap_err().to_string();
        for part in parts {
            assert!(error.contains(part), "{part:?} is missing in {error}");
        }
    }

    #[test]
    fn a_file_overrides_defaults_and_a_flag_overrides_the_file() {
        let content = "reconcileInterval: 7s\nmaxConcurrentReconciles: 9\nleaderElection: false\n";
        let settings = run(content, &["--max-concurrent-reconciles", "3"]).unwrap();
        assert_eq!(settings.reconcile_interval.get().as_secs(), 7);
        assert_eq!(settings.max_concurrent_reconciles.get(), 3);
        assert!(!settings.leader_election);
    }

    #[test]
    fn an_empty_file_changes_nothing() {
        assert_eq!(run("", &[]).unwrap().reconcile_interval.get().as_secs(), 30);
        assert_eq!(run("# nothing\n", &[]).unwrap().reconcile_interval.get().as_secs(), 30);
    }

    #[test]
    fn an_unknown_key_names_the_file_and_the_most_similar_key() {
        refused("reconcileIntervals: 7s", &["\"reconcileIntervals\"", "\"reconcileInterval\"", "/tmp"]);
    }

    #[test]
    fn a_bad_value_names_the_file_the_setting_and_the_fix() {
        refused("reconcileInterval: soon", &["/tmp", "'soon'", "--reconcile-interval", "1m30s"]);
    }

    #[test]
    fn lists_maps_and_other_documents_are_refused() {
        refused("namespace: [a]", &["\"namespace\" must have a single value"]);
        refused("namespace: {a: b}", &["\"namespace\" must have a single value"]);
        refused("namespace:", &["\"namespace\" must have a single value"]);
        refused("- a", &["it is not a map"]);
        refused("a: [", &["failed to parse settings"]);
    }

    #[test]
    fn a_bad_flag_is_not_blamed_on_the_file() {
        let error = run("reconcileInterval: 7s", &["--reconcile-interval", "soon"]).unwrap_err();
        assert!(matches!(error, SettingsError::ParseArguments { .. }), "{error}");
    }

    #[test]
    fn the_file_is_found_by_flag_then_by_variable() {
        let path = |arguments: &[&str], variable: Option<&str>| {
            let arguments: Vec<OsString> = arguments.iter().map(OsString::from).collect();
            config_path(&arguments, variable.map(OsString::from))
        };
        assert_eq!(path(&["x", "run", "--config", "a"], Some("b")), Some("a".into()));
        assert_eq!(path(&["x", "--config=a"], None), Some("a".into()));
        assert_eq!(path(&["x"], Some("b")), Some("b".into()));
        assert_eq!(path(&["x", "--", "--config", "a"], None), None);
        assert_eq!(path(&["x"], Some("")), None);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = parse::<Cli>(["vitistack", "run", "--config", "/nonexistent"]).unwrap_err().to_string();
        assert!(error.contains("/nonexistent"), "{error}");
    }

    #[test]
    fn the_reference_lists_every_way_to_set_a_setting() {
        let command = <OperatorArgs as clap::Args>::augment_args(Command::new("operator"));
        let reference = settings_reference(&command);
        let interval = reference.iter().find(|setting| setting.flag == "--reconcile-interval").unwrap();
        assert_eq!(
            interval,
            &Setting {
                flag: "--reconcile-interval".into(),
                variable: Some("RECONCILE_INTERVAL".into()),
                key: Some("reconcileInterval".into()),
                default: Some("30s".into()),
                help: "Resync interval: how often every object is reconciled even without a change".into(),
            }
        );
        assert!(reference.iter().all(|setting| !setting.help.is_empty()));
        assert_eq!(reference.iter().find(|setting| setting.flag == "--config").unwrap().key, None);
    }
}
