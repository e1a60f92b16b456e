//! The kinds that users name on the command line.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube::api::ApiResource;
use serde_json::Value;
use snafu::{OptionExt, Snafu};
use vitistack_types::definitions;

use crate::cluster::Cluster;

/// Indicates that the words of a user name no object.
#[derive(Debug, Snafu)]
pub enum NameError {
    /// Indicates that there is no such kind.
    #[snafu(display("there is no kind {word:?}: choose from {}", known.join(", ")))]
    FindKind {
        /// What the user said.
        word: String,
        /// The kinds there are.
        known: Vec<String>,
    },
    /// Indicates that the name is missing.
    #[snafu(display("{words:?} names no object: write KIND/NAME or KIND NAME, such as machine/web-1"))]
    ReadTarget {
        /// What the user said.
        words: String,
    },
}

/// A kind of ours, as its definition says it.
#[derive(Clone, Debug)]
pub struct KnownKind {
    /// What a request needs to know.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub is_namespaced: bool,
    /// Other words for it.
    pub short_names: Vec<String>,
    /// What a list of it shows beside the name.
    pub columns: Vec<CustomResourceColumnDefinition>,
}

impl KnownKind {
    /// Every kind, in the order in which users meet them.
    pub fn all() -> Vec<Self> {
        definitions().into_iter().map(Self::from).collect()
    }

    /// The kind that a user means by that word: kind, plural or short name.
    pub fn find(word: &str) -> Result<Self, NameError> {
        let kinds = Self::all();
        let known = || kinds.iter().map(|kind| kind.resource.kind.clone()).collect::<Vec<_>>();
        kinds
            .iter()
            .find(|kind| kind.goes_by(word))
            .cloned()
            .with_context(|| FindKindSnafu { word, known: known() })
    }

    /// Whether a user may mean this kind by that word.
    pub fn goes_by(&self, word: &str) -> bool {
        [&self.resource.kind, &self.resource.plural]
            .into_iter()
            .chain(&self.short_names)
            .any(|name| name.eq_ignore_ascii_case(word))
    }

    /// An object of this kind as a user names it: `machine/web-1`.
    pub fn name_of(&self, object: &Value) -> String {
        let name = object.get("metadata").and_then(|metadata| metadata.get("name")?.as_str());
        format!("{}/{}", self.resource.kind.to_lowercase(), name.unwrap_or_default())
    }
}

impl From<CustomResourceDefinition> for KnownKind {
    fn from(definition: CustomResourceDefinition) -> Self {
        let is_namespaced = definition.spec.scope == "Namespaced";
        let spec = definition.spec;
        let version = spec.versions.into_iter().next().unwrap_or_default();
        Self {
            resource: ApiResource {
                api_version: format!("{}/{}", spec.group, version.name),
                group: spec.group,
                version: version.name,
                kind: spec.names.kind,
                plural: spec.names.plural,
            },
            is_namespaced,
            short_names: spec.names.short_names.unwrap_or_default(),
            columns: version.additional_printer_columns.unwrap_or_default(),
        }
    }
}

/// The kind that is meant where only a name is said.
const MACHINE: &str = "machine";

/// One object, as a user names it: `machine/web-1` or `machine web-1`.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its kind.
    pub kind: KnownKind,
    /// Its name.
    pub name: String,
}

impl Target {
    /// Reads the words of a user. A name alone is that of a machine, unless it is the word for a kind.
    pub fn read(words: &[String]) -> Result<Self, NameError> {
        let (kind, name) = match words {
            [both] if both.contains('/') => both.split_once('/').unwrap_or_default(),
            [name] if KnownKind::find(name).is_err() => (MACHINE, name.as_str()),
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => ("", ""),
        };
        if kind.is_empty() || name.is_empty() || name.contains('/') {
            return ReadTargetSnafu { words: words.join(" ") }.fail();
        }
        Ok(Self { kind: KnownKind::find(kind)?, name: name.to_owned() })
    }

    /// Reads the words of a user that name one or several objects, each as KIND/NAME, or all as KIND NAME…. A name alone
    /// is that of a machine.
    pub fn read_all(words: &[String]) -> Result<Vec<Self>, NameError> {
        if let [kind, names @ ..] = words
            && !names.is_empty()
            && KnownKind::find(kind).is_ok()
        {
            return names.iter().map(|name| Self::read(&[kind.clone(), name.clone()])).collect();
        }
        words.iter().map(|word| Self::read(std::slice::from_ref(word))).collect()
    }

    /// The namespace it is in; none for a kind without namespaces.
    pub fn namespace<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        self.kind.is_namespaced.then_some(cluster.namespace.as_str())
    }
}
