//! The kinds and objects that users specify on the command line.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use kube::api::ApiResource;
use serde_json::Value;
use snafu::{OptionExt, Snafu};
use vitistack_types::{ObjectId, ObjectName, definitions};

use super::{Cluster, listing::text};

/// Errors of parsing kinds and objects.
#[derive(Debug, Snafu)]
pub enum NameError {
    /// The kind does not exist.
    #[snafu(display("unknown kind {name:?}: use one of {}", known.join(", ")))]
    FindKind {
        /// The kind that was specified.
        name: String,
        /// The existing kinds.
        known: Vec<String>,
    },
    /// The kind or the name is missing.
    #[snafu(display("invalid object {text:?}: use KIND/NAME or KIND NAME, such as machine/web-1"))]
    ReadTarget {
        /// The object that was specified.
        text: String,
    },
}

/// Returns an object as users specify it: `machine/web-1`.
pub fn title(kind: &str, name: &str) -> String {
    format!("{}/{name}", kind.to_lowercase())
}

/// A kind of this platform, as its CRD defines it.
#[derive(Clone, Debug)]
pub struct KnownKind {
    /// The API resource.
    pub resource: ApiResource,
    /// Whether its objects are namespaced.
    pub is_namespaced: bool,
    /// The short names.
    pub short_names: Vec<String>,
    /// The printer columns.
    pub columns: Vec<CustomResourceColumnDefinition>,
}

impl KnownKind {
    /// Returns every kind, in the order of the CRDs.
    pub fn all() -> Vec<Self> {
        definitions().into_iter().map(Self::from).collect()
    }

    /// Returns the kind with this name: kind, plural or short name.
    pub fn find(name: &str) -> Result<Self, NameError> {
        let kinds = Self::all();
        let known = || kinds.iter().map(|kind| kind.resource.kind.clone()).collect::<Vec<_>>();
        kinds
            .iter()
            .find(|kind| kind.is_named(name))
            .cloned()
            .with_context(|| FindKindSnafu { name, known: known() })
    }

    /// Returns whether this is the kind, the plural or a short name of the kind.
    fn is_named(&self, name: &str) -> bool {
        [&self.resource.kind, &self.resource.plural]
            .into_iter()
            .chain(&self.short_names)
            .any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns an object of this kind as users specify it: `machine/web-1`.
    pub fn title(&self, name: &str) -> String {
        title(&self.resource.kind, name)
    }

    /// Returns the title of an object of this kind.
    pub fn title_of(&self, object: &Value) -> String {
        self.title(text(object, "/metadata/name"))
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

/// The default kind, for a name without a kind.
const MACHINE: &str = "machine";

/// One object, as a user specifies it: `machine/web-1` or `machine web-1`.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kind.
    pub kind: KnownKind,
    /// The name.
    pub name: String,
}

impl Target {
    /// Parses one object. A name without a kind is that of a machine, unless it is the name of a kind.
    pub fn read(arguments: &[String]) -> Result<Self, NameError> {
        let (kind, name) = match arguments {
            [both] if both.contains('/') => both.split_once('/').unwrap_or_default(),
            [name] if KnownKind::find(name).is_err() => (MACHINE, name.as_str()),
            [kind, name] => (kind.as_str(), name.as_str()),
            _ => ("", ""),
        };
        if kind.is_empty() || name.is_empty() || name.contains('/') {
            return ReadTargetSnafu { text: arguments.join(" ") }.fail();
        }
        Ok(Self { kind: KnownKind::find(kind)?, name: name.to_owned() })
    }

    /// Parses one or more objects, each as KIND/NAME, or all as KIND NAME…. A name without a kind is that of a machine.
    pub fn read_all(arguments: &[String]) -> Result<Vec<Self>, NameError> {
        if let [kind, names @ ..] = arguments
            && !names.is_empty()
            && KnownKind::find(kind).is_ok()
        {
            return names.iter().map(|name| Self::read(&[kind.clone(), name.clone()])).collect();
        }
        arguments.iter().map(|argument| Self::read(std::slice::from_ref(argument))).collect()
    }

    /// Returns the object as users specify it: `machine/web-1`.
    pub fn title(&self) -> String {
        self.kind.title(&self.name)
    }

    /// Returns the kind, namespace and name.
    pub fn id(&self, cluster: &Cluster) -> ObjectId {
        let namespace = self.namespace(cluster).unwrap_or_default();
        ObjectId::new(&self.kind.resource.kind, ObjectName::new(namespace, &self.name))
    }

    /// Returns the namespace; `None` for a cluster-scoped kind.
    pub fn namespace<'a>(&self, cluster: &'a Cluster) -> Option<&'a str> {
        self.kind.is_namespaced.then_some(cluster.namespace.as_str())
    }
}
