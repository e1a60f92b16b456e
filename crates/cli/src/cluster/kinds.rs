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
#[snafu(visibility(pub(crate)))]
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
    /// Names and a selection of objects exclude each other.
    #[snafu(display("objects cannot be selected by name and with {flag}: use names, or a kind with {flag}"))]
    MixSelection {
        /// The flag that selects objects.
        flag: &'static str,
    },
    /// A name is not unique in all namespaces.
    #[snafu(display(
        "objects cannot be selected by name in all namespaces: use -n NAMESPACE, or a kind without a name"
    ))]
    NameEverywhere,
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

    /// Returns the kind with this name: kind, plural or short name, also with the group, or the version and the group,
    /// as in `machines.vitistack.io`.
    pub fn find(name: &str) -> Result<Self, NameError> {
        let kinds = Self::all();
        let known = || kinds.iter().map(|kind| kind.resource.kind.clone()).collect::<Vec<_>>();
        kinds
            .iter()
            .find(|kind| kind.is_named(name))
            .cloned()
            .with_context(|| FindKindSnafu { name, known: known() })
    }

    /// Returns the kinds of a list such as `machines,datacenters`; every kind for `all`.
    pub fn find_all(names: &str) -> Result<Vec<Self>, NameError> {
        if names.eq_ignore_ascii_case("all") {
            return Ok(Self::all());
        }
        names.split(',').map(Self::find).collect()
    }

    /// Returns whether this is the kind, the plural or a short name of the kind.
    fn is_named(&self, name: &str) -> bool {
        let (name, suffix) = name.split_once('.').unwrap_or((name, ""));
        let ApiResource { group, version, .. } = &self.resource;
        let is_in_group = suffix.is_empty()
            || suffix.eq_ignore_ascii_case(group)
            || suffix.eq_ignore_ascii_case(&format!("{version}.{group}"));
        if !is_in_group {
            return false;
        }

        [&self.resource.kind, &self.resource.plural]
            .into_iter()
            .chain(&self.short_names)
            .any(|known| known.eq_ignore_ascii_case(name))
    }

    /// Returns an object of this kind as users specify it: `machine/web-1`.
    pub fn title(&self, name: &str) -> String {
        title(&self.resource.kind, name)
    }

    /// Returns an object of this kind as `kubectl get -o name` prints it: `machine.vitistack.io/web-1`. Other groups have
    /// kinds of the same name.
    pub fn full_title_of(&self, object: &Value) -> String {
        let kind = self.resource.kind.to_lowercase();
        format!("{kind}.{}/{}", self.resource.group, text(object, "/metadata/name"))
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
pub const MACHINE: &str = "machine";

/// One object, as a user specifies it: `machine/web-1` or `machine web-1`.
#[derive(Clone, Debug)]
pub struct Target {
    /// The kind.
    pub kind: KnownKind,
    /// The name.
    pub name: String,
    /// The namespace in which it was found, if all were searched; else it is in that of the command.
    pub found_in: Option<String>,
}

/// Kinds or objects, as a user specifies them.
#[derive(Clone, Debug)]
pub enum Named {
    /// All objects of these kinds.
    Kinds(Vec<KnownKind>),
    /// These objects.
    Objects(Vec<Target>),
}

impl Named {
    /// Parses `KIND[,KIND]`, `KIND[,KIND] NAME…` or `KIND/NAME…`. Without arguments it is every kind.
    pub fn read(arguments: &[String]) -> Result<Self, NameError> {
        match arguments {
            [] => Ok(Self::Kinds(KnownKind::all())),
            [kinds] if !kinds.contains('/') => Ok(Self::Kinds(KnownKind::find_all(kinds)?)),
            [kinds, names @ ..] if !kinds.contains('/') => Ok(Self::Objects(Target::read_of(kinds, names)?)),
            objects => {
                let read = |object: &String| {
                    if object.contains('/') {
                        Target::read(std::slice::from_ref(object))
                    } else {
                        ReadTargetSnafu { text: object }.fail()
                    }
                };
                Ok(Self::Objects(objects.iter().map(read).collect::<Result<_, _>>()?))
            }
        }
    }
}

impl Target {
    /// Creates a target in the namespace of the command.
    pub fn new(kind: KnownKind, name: impl Into<String>) -> Self {
        Self { kind, name: name.into(), found_in: None }
    }

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
        Ok(Self::new(KnownKind::find(kind)?, name))
    }

    /// Parses one or more objects, each as KIND/NAME, or all as KIND NAME…. A name without a kind is that of a machine.
    pub fn read_all(arguments: &[String]) -> Result<Vec<Self>, NameError> {
        if let [kinds, names @ ..] = arguments
            && !names.is_empty()
            && KnownKind::find_all(kinds).is_ok()
        {
            return Self::read_of(kinds, names);
        }
        arguments.iter().map(|argument| Self::read(std::slice::from_ref(argument))).collect()
    }

    /// Parses the names of objects of one or more kinds.
    fn read_of(kinds: &str, names: &[String]) -> Result<Vec<Self>, NameError> {
        if let Some(name) = names.iter().find(|name| name.is_empty() || name.contains('/')) {
            return ReadTargetSnafu { text: format!("{kinds} {name}") }.fail();
        }
        let kinds = KnownKind::find_all(kinds)?;
        let of_kind =
            |kind: &KnownKind| names.iter().map(|name| Self::new(kind.clone(), name)).collect::<Vec<_>>();
        Ok(kinds.iter().flat_map(of_kind).collect())
    }

    /// Returns the object as users specify it: `machine/web-1`.
    pub fn title(&self) -> String {
        self.kind.title(&self.name)
    }

    /// Returns the arguments that select the object: `machine/web-1`, or `machine/web-1 -n shop`.
    pub fn arguments(&self) -> String {
        let namespace = self.found_in.as_ref().map(|namespace| format!(" -n {namespace}"));
        format!("{}{}", self.title(), namespace.unwrap_or_default())
    }

    /// Returns the kind, namespace and name.
    pub fn id(&self, cluster: &Cluster) -> ObjectId {
        let namespace = self.namespace(cluster).unwrap_or_default();
        ObjectId::new(&self.kind.resource.kind, ObjectName::new(namespace, &self.name))
    }

    /// Returns the namespace; `None` for a cluster-scoped kind.
    pub fn namespace<'a>(&'a self, cluster: &'a Cluster) -> Option<&'a str> {
        let namespace = self.found_in.as_deref().unwrap_or(&cluster.namespace);
        self.kind.is_namespaced.then_some(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(ToOwned::to_owned).collect()
    }

    fn titles(targets: &[Target]) -> String {
        targets.iter().map(Target::title).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_kind_is_found_with_its_group_and_version() {
        for name in [
            "machine",
            "Machines",
            "vsm",
            "machine.vitistack.io",
            "machines.vitistack.io",
            "vsm.vitistack.io",
            "machine.v1alpha1.vitistack.io",
        ] {
            assert_eq!(KnownKind::find(name).unwrap().resource.kind, "Machine", "{name}");
        }
        for name in
            ["machine.cluster.x-k8s.io", "machine.v1.vitistack.io", "machine.v1alpha1", ".vitistack.io"]
        {
            assert!(KnownKind::find(name).is_err(), "{name}");
        }
    }

    #[test]
    fn several_objects_are_parsed_in_every_form() {
        for (text, expected) in [
            ("a b", "machine/a machine/b"),
            ("machine a b", "machine/a machine/b"),
            ("machine.vitistack.io/a vsm/b", "machine/a machine/b"),
            ("machine/a datacenter/b", "machine/a datacenter/b"),
            ("machines,datacenters a", "machine/a datacenter/a"),
            ("a.example.com", "machine/a.example.com"),
        ] {
            assert_eq!(titles(&Target::read_all(&words(text)).unwrap()), expected, "{text}");
        }
        for text in ["machine machine/a", "machine/", "/a", "machine/a/b", "machine"] {
            assert!(Target::read_all(&words(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn kinds_and_objects_are_distinguished() {
        for (text, expected) in
            [("machines,datacenters", 2), ("machines.vitistack.io", 1), ("all", 5), ("", 5)]
        {
            let Named::Kinds(kinds) = Named::read(&words(text)).unwrap() else { panic!("{text}") };
            assert_eq!(kinds.len(), expected, "{text}");
        }
        for (text, expected) in
            [("machine a b", "machine/a machine/b"), ("machine/a datacenter/b", "machine/a datacenter/b")]
        {
            let Named::Objects(objects) = Named::read(&words(text)).unwrap() else { panic!("{text}") };
            assert_eq!(titles(&objects), expected, "{text}");
        }
        for text in ["machine/a b", "web-1", "machine,pods", "machine a/b"] {
            assert!(Named::read(&words(text)).is_err(), "{text}");
        }
    }
}
