//! The path and the query of a request, parsed as Kubernetes parses them.

use std::collections::HashMap;

use vitistack_schema::{Cause, CauseReason};

use crate::status::Failure;

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/`: the list of paths.
    Root,
    /// `/version`.
    Version,
    /// `/livez`, `/readyz`, `/healthz`.
    Health(String),
    /// `/api`.
    CoreVersions,
    /// `/apis`.
    Groups,
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/VERSION` and `/apis/GROUP/VERSION`.
    GroupVersion(String, String),
    /// `/openapi/v3`.
    OpenApiIndex,
    /// `/openapi/v3/api/v1`, `/openapi/v3/apis/GROUP/VERSION`.
    OpenApi(String, String),
    /// `/openapi/v2`.
    OpenApiV2,
    /// `/backup`: all objects, for a backup.
    Backup,
    /// A resource, an object or a subresource.
    Resource(Target),
    /// More segments than any resource of the group and version has.
    Deeper(String, String),
    /// Not a path of Kubernetes.
    Unknown,
}

/// A resource, an object or a subresource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural.
    pub plural: String,
    /// The namespace in the path.
    pub namespace: Option<String>,
    /// The object's name.
    pub name: Option<String>,
    /// `status`, `scale`, …
    pub subresource: Option<String>,
    /// Whether the path is a legacy watch path.
    pub watching: bool,
}

impl Route {
    /// Parses a path.
    #[must_use]
    pub fn parse(path: &str) -> Self {
        // The path is decoded before it is split, as in Kubernetes: no name contains a slash.
        let path = decode(path);
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        match segments.as_slice() {
            [] => Self::Root,
            ["version"] => Self::Version,
            ["backup"] => Self::Backup,
            ["livez" | "readyz" | "healthz", ..] => Self::Health(segments.join("/")),
            ["openapi", "v2"] => Self::OpenApiV2,
            ["openapi", "v3"] => Self::OpenApiIndex,
            ["openapi", "v3", "api", version] => Self::OpenApi(String::new(), (*version).to_owned()),
            ["openapi", "v3", "apis", group, version] => {
                Self::OpenApi((*group).to_owned(), (*version).to_owned())
            }
            ["api"] => Self::CoreVersions,
            ["apis"] => Self::Groups,
            ["apis", group] => Self::Group((*group).to_owned()),
            ["api", version] => Self::GroupVersion(String::new(), (*version).to_owned()),
            ["apis", group, version] => Self::GroupVersion((*group).to_owned(), (*version).to_owned()),
            ["api", version, rest @ ..] => Self::resource("", version, rest),
            ["apis", group, version, rest @ ..] => Self::resource(group, version, rest),
            _ => Self::Unknown,
        }
    }

    fn resource(group: &str, version: &str, rest: &[&str]) -> Self {
        let owned = |text: &&str| Some((*text).to_owned());
        let mut target = Target { group: group.to_owned(), version: version.to_owned(), ..Target::default() };
        let rest = match rest {
            ["watch", watched @ ..] if !watched.is_empty() => {
                target.watching = true;
                watched
            }
            _ => rest,
        };

        let rest = match rest {
            // The namespace itself, or one of its subresources.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => rest,
            ["namespaces", namespace, inside @ ..] => {
                target.namespace = owned(namespace);
                inside
            }
            _ => rest,
        };

        match rest {
            [plural] => (*plural).clone_into(&mut target.plural),
            [plural, name] => {
                (*plural).clone_into(&mut target.plural);
                target.name = owned(name);
            }
            [plural, name, subresource] => {
                (*plural).clone_into(&mut target.plural);
                target.name = owned(name);
                target.subresource = owned(subresource);
            }
            _ => return Self::Deeper(target.group, target.version),
        }

        Self::Resource(target)
    }
}

/// Percent-decodes a string; a malformed escape is left unchanged.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [high, low, after @ ..]) => {
                hex(*high).zip(hex(*low)).map(|(high, low)| (high << 4 | low, after))
            }
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        decoded.push(byte);
        rest = after;
    }

    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// How unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Dropped silently.
    Ignore,
    /// Dropped, with a `Warning` header for each.
    #[default]
    Warn,
    /// Rejected.
    Strict,
}

/// The query of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    parameters: HashMap<String, String>,
}

impl Options {
    /// Parses a query string. Of several values, the first counts.
    #[must_use]
    pub fn parse(query: Option<&str>) -> Self {
        let mut parameters = HashMap::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(&value.replace('+', " "));
            parameters.entry(decode(name)).or_insert(value);
        }
        Self { parameters }
    }

    /// Returns a parameter that is set and not empty.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns a flag: anything but `false` and `0` sets it, as in Kubernetes.
    #[must_use]
    pub fn flag(&self, name: &str) -> Option<bool> {
        let value = self.parameters.get(name)?;
        Some(!value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// Returns an integer.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let parse = |text: &str| {
            text.parse().map_err(|_| {
                Failure::bad_request(format!("strconv.ParseInt: parsing \"{text}\": invalid syntax"))
            })
        };
        self.text(name).map(parse).transpose()
    }

    /// Whether the request is a dry run. `kind` names the options in errors.
    pub fn dry_run(&self, kind: &str) -> Result<bool, Failure> {
        match self.text("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => Err(unsupported(kind, "dryRun", &format!("[\"{other}\"]"), "\"All\"")),
        }
    }

    /// Returns how unknown and duplicate fields are handled.
    pub fn field_validation(&self, kind: &str) -> Result<FieldValidation, Failure> {
        match self.text("fieldValidation") {
            None | Some("Warn") => Ok(FieldValidation::Warn),
            Some("Ignore") => Ok(FieldValidation::Ignore),
            Some("Strict") => Ok(FieldValidation::Strict),
            Some(other) => {
                let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
                Err(unsupported(kind, "fieldValidation", &format!("\"{other}\""), supported))
            }
        }
    }

    /// Returns the field manager: the parameter, else the name of the client program before the first slash.
    #[must_use]
    pub fn manager<'a>(&'a self, user_agent: &'a str) -> &'a str {
        let program = user_agent.split('/').next().unwrap_or_default();
        let manager = self.text("fieldManager").unwrap_or(program);
        if manager.is_empty() { "unknown" } else { manager }
    }
}

fn unsupported(kind: &str, field: &str, value: &str, supported: &str) -> Failure {
    let cause = Cause {
        field: field.to_owned(),
        reason: CauseReason::FieldValueNotSupported,
        message: format!("Unsupported value: {value}: supported values: {supported}"),
    };
    Failure::invalid_options(kind, &[cause])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(path: &str) -> Option<Target> {
        match Route::parse(path) {
            Route::Resource(target) => Some(target),
            _ => None,
        }
    }

    #[test]
    fn paths_are_parsed_to_resources_objects_and_subresources() {
        let rows = [
            ("/api/v1/namespaces", ("", "namespaces", None, None, None)),
            ("/api/v1/namespaces/a", ("", "namespaces", None, Some("a"), None)),
            ("/api/v1/namespaces/a/status", ("", "namespaces", None, Some("a"), Some("status"))),
            ("/api/v1/namespaces/a/secrets", ("", "secrets", Some("a"), None, None)),
            ("/apis/g/v1/namespaces/a/ws/b/scale", ("g", "ws", Some("a"), Some("b"), Some("scale"))),
            ("/apis/g/v1/ws/b%2Fc", ("g", "ws", None, Some("b"), Some("c"))),
            ("/apis/g/v1/watch/ws/b", ("g", "ws", None, Some("b"), None)),
        ];

        for (path, (group, plural, namespace, name, subresource)) in rows {
            let target = target(path).unwrap();
            assert_eq!(target.group, group, "{path}");
            assert_eq!(target.plural, plural, "{path}");
            assert_eq!(target.namespace.as_deref(), namespace, "{path}");
            assert_eq!(target.name.as_deref(), name, "{path}");
            assert_eq!(target.subresource.as_deref(), subresource, "{path}");
        }

        assert_eq!(Route::parse("/api/v1/a/b/c/d"), Route::Deeper(String::new(), "v1".to_owned()));
        assert_eq!(Route::parse("/nope"), Route::Unknown);
    }

    #[test]
    fn queries_are_decoded() {
        let options = Options::parse(Some("labelSelector=a%3Db,c+in+(d)&watch&limit=x&dryRun=Some"));
        assert_eq!(options.text("labelSelector"), Some("a=b,c in (d)"));
        assert_eq!(options.flag("watch"), Some(true));
        assert!(options.number("limit").is_err());
        assert!(options.dry_run("CreateOptions").is_err());
        assert_eq!(options.manager("kubectl/v1.36 (linux)"), "kubectl");
    }
}
