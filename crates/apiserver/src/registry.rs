//! The resources that are served: the built-in ones and those of CRDs.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, OnceLock, PoisonError, RwLock},
};

use serde_json::{Value, json};
use vitistack_schema::Schema;

use crate::{
    kinds::{self, BuiltIn},
    metadata,
    names::NameStyle,
    status::Subject,
    store::document,
    table::Columns,
};

/// The paths of a scale subresource, as field names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// The desired replicas.
    pub spec: String,
    /// The current replicas.
    pub status: String,
    /// The selector of the replicas, as a string.
    pub selector: Option<String>,
}

/// The source of a resource's rules.
#[derive(Clone, Copy, Debug)]
pub enum Rules {
    /// The table of built-in kinds.
    BuiltIn(&'static BuiltIn),
    /// A CRD.
    Custom,
}

/// One version of one resource.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one fact about the resource, independent of the others"
)]
pub struct Resource {
    /// The group, empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural, as used in paths.
    pub plural: String,
    /// The singular.
    pub singular: String,
    /// The kind.
    pub kind: String,
    /// The kind of its lists.
    pub list_kind: String,
    /// Short names that kubectl accepts instead of the plural.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The storage location of its objects: `group/plural`, the same for all versions.
    pub storage: Arc<str>,
    /// The apiVersion in which its objects are stored.
    pub stored_as: String,
    /// Whether it has a status subresource.
    pub status: bool,
    /// Its scale subresource.
    pub scale: Option<ScalePaths>,
    /// The columns of tables.
    pub columns: Columns,
    /// Fields that selectors may use.
    pub selectable: Vec<String>,
    /// Whether stored objects may be older than the schema and must be pruned and defaulted again when read.
    pub reread: bool,
    /// Whether its CRD is being deleted, so that no objects can be created.
    pub terminating: bool,
    /// Its rules.
    pub rules: Rules,
    /// The warning of a deprecated version.
    pub deprecation: Option<String>,
    /// The compiled schema; that of a built-in kind is compiled on first use.
    pub schema: OnceLock<Arc<Schema>>,
    /// The schema of the storage version, if it is a different version.
    pub stored_schema: Option<Arc<Schema>>,
}

impl Resource {
    /// A built-in resource.
    #[must_use]
    pub fn built_in(kind: &'static BuiltIn) -> Self {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mut selectable = texts(kind.fields);
        selectable.push("metadata.name".to_owned());
        if kind.namespaced {
            selectable.push("metadata.namespace".to_owned());
        }

        Self {
            group: kind.group.to_owned(),
            version: kind.version.to_owned(),
            plural: kind.plural.to_owned(),
            singular: kind.kind.to_lowercase(),
            kind: kind.kind.to_owned(),
            list_kind: format!("{}List", kind.kind),
            short_names: texts(kind.short_names),
            categories: texts(kind.categories),
            namespaced: kind.namespaced,
            storage: Arc::from(kind.stored_in),
            stored_as: kind.stored_as.to_owned(),
            status: kind.status,
            scale: None,
            columns: Columns::BuiltIn(kind.columns, kind.cells),
            selectable,
            reread: false,
            terminating: false,
            rules: Rules::BuiltIn(kind),
            deprecation: None,
            schema: OnceLock::new(),
            stored_schema: None,
        }
    }

    /// Returns `group/version`, or only the version for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the resource as errors name it.
    #[must_use]
    pub fn subject(&self) -> Subject<'_> {
        Subject { group: &self.group, name: &self.plural }
    }

    /// Returns the kind as errors name it.
    #[must_use]
    pub fn kind_subject(&self) -> Subject<'_> {
        // A kind that is served in two groups is validated in the group that it is stored in.
        let group = match self.kind_rules() {
            Some(kind) => kind.stored_as.rsplit_once('/').map_or("", |(group, _)| group),
            None => &self.group,
        };
        Subject { group, name: &self.kind }
    }

    /// Returns the rules of a built-in kind.
    #[must_use]
    pub fn kind_rules(&self) -> Option<&'static BuiltIn> {
        match self.rules {
            Rules::BuiltIn(kind) => Some(kind),
            Rules::Custom => None,
        }
    }

    /// Whether it is virtual: it answers requests and stores nothing.
    #[must_use]
    pub fn is_review(&self) -> bool {
        self.kind_rules().is_some_and(|kind| kind.review)
    }

    /// Returns the format of names.
    #[must_use]
    pub fn name_style(&self) -> NameStyle {
        self.kind_rules().map_or(NameStyle::Subdomain, |kind| kind.name_style)
    }

    /// Whether an update of an object that does not exist creates it.
    #[must_use]
    pub fn create_on_update(&self) -> bool {
        self.kind_rules().is_some_and(|kind| kind.create_on_update)
    }

    /// Whether an update may omit the resourceVersion.
    #[must_use]
    pub fn unconditional_update(&self) -> bool {
        self.kind_rules().is_some_and(|kind| kind.unconditional_update)
    }

    /// Whether the server maintains `metadata.generation`.
    #[must_use]
    pub fn counts_generations(&self) -> bool {
        self.kind_rules().is_none_or(|kind| kind.generation)
    }

    /// Returns the schema.
    pub fn schema(&self) -> &Arc<Schema> {
        self.schema.get_or_init(|| {
            let document = self.kind_rules().map_or_else(|| json!({}), |kind| (kind.schema)());
            Arc::new(Schema::native(&document))
        })
    }

    /// Returns the verbs for discovery.
    #[must_use]
    pub fn verbs(&self) -> &'static [&'static str] {
        if self.is_review() {
            return &["create"];
        }
        match self.rules {
            Rules::Custom if self.terminating => &["delete", "deletecollection", "get", "list", "watch"],
            Rules::Custom => {
                &["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
            }
            Rules::BuiltIn(kind) if kind.kind == "Namespace" => {
                &["create", "delete", "get", "list", "patch", "update", "watch"]
            }
            Rules::BuiltIn(_) => {
                &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            }
        }
    }

    /// Whether stored bytes can be returned as they are.
    #[must_use]
    pub fn serves_as_stored(&self, bytes: &[u8]) -> bool {
        !self.reread && document::has_version(bytes, &self.api_version())
    }

    /// Converts a stored object to this version.
    #[must_use]
    pub fn read_stored(&self, bytes: &[u8]) -> Value {
        let mut object = document::parse(bytes);
        if let Some(schema) = &self.stored_schema {
            schema.prune(&mut object);
            schema.default(&mut object);
        }

        if self.stored_as != self.api_version() {
            if let Some(kind) = self.kind_rules() {
                (kind.read_stored)(&mut object);
            }
            if let Some(members) = object.as_object_mut() {
                members.insert("apiVersion".to_owned(), self.api_version().into());
            }
        }

        if self.reread {
            self.schema().prune(&mut object);
            self.schema().default(&mut object);
        }
        object
    }

    /// Converts an object of this version to the storage version.
    #[must_use]
    pub fn to_stored(&self, object: &Value) -> Value {
        let mut object = object.clone();
        if self.stored_as != self.api_version() {
            if let Some(kind) = self.kind_rules() {
                (kind.to_stored)(&mut object);
            }
            if let Some(members) = object.as_object_mut() {
                members.insert("apiVersion".to_owned(), self.stored_as.clone().into());
            }
        }
        object
    }
}

/// The name of a version and its resources.
pub type Version = (String, Vec<Arc<Resource>>);

/// All resources at one point in time.
#[derive(Debug, Default)]
pub struct Served {
    by_path: HashMap<String, Arc<Resource>>,
    by_kind: HashMap<String, Arc<Resource>>,
    /// Groups, each with its versions, best first, and their resources by name.
    pub groups: BTreeMap<String, Vec<Version>>,
    /// The index of the OpenAPI documents, created on first use, because every document is hashed for it.
    pub openapi_index: OnceLock<Value>,
}

impl Served {
    fn new(resources: impl Iterator<Item = Arc<Resource>>) -> Self {
        let mut served = Self::default();
        for resource in resources {
            let path = format!("{}/{}", resource.api_version(), resource.plural);
            served.by_path.insert(path, Arc::clone(&resource));
            let kind = format!("{}/{}", resource.api_version(), resource.kind);
            served.by_kind.insert(kind, Arc::clone(&resource));
            let versions = served.groups.entry(resource.group.clone()).or_default();
            match versions.iter_mut().find(|(version, _)| *version == resource.version) {
                Some((_, resources)) => resources.push(resource),
                None => versions.push((resource.version.clone(), vec![resource])),
            }
        }

        for versions in served.groups.values_mut() {
            versions.sort_by_key(|(version, _)| std::cmp::Reverse(version_rank(version)));
            for (_, resources) in versions {
                resources.sort_by(|one, other| one.plural.cmp(&other.plural));
            }
        }
        served
    }

    /// Returns the resource of a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        let path = if group.is_empty() {
            format!("{version}/{plural}")
        } else {
            format!("{group}/{version}/{plural}")
        };
        self.by_path.get(&path)
    }

    /// Returns the resource of a kind.
    #[must_use]
    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.by_kind.get(&format!("{api_version}/{kind}"))
    }

    /// Returns one version of every resource that stores objects.
    pub fn stored(&self) -> impl Iterator<Item = &Arc<Resource>> {
        let all = self.groups.values().flatten().flat_map(|(_, resources)| resources);
        all.filter(|resource| !resource.is_review() && resource.stored_as == resource.api_version())
    }

    /// Whether a group has a version.
    #[must_use]
    pub fn has(&self, group: &str, version: &str) -> bool {
        self.groups.get(group).is_some_and(|versions| versions.iter().any(|(name, _)| name == version))
    }
}

/// The order of versions: stable ones first, then beta, then alpha, higher numbers first; other names last.
#[must_use]
pub fn version_rank(version: &str) -> (u8, u32, u32, std::cmp::Reverse<String>) {
    let other = (0, 0, 0, std::cmp::Reverse(version.to_owned()));
    let Some(rest) = version.strip_prefix('v') else { return other };
    let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
    let (major, suffix) = rest.split_at(digits);
    let Ok(major) = major.parse() else { return other };
    let (stability, minor) = match suffix {
        "" => (3, "0"),
        _ => match (suffix.strip_prefix("beta"), suffix.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return other,
        },
    };

    match minor.parse() {
        Ok(minor) => (stability, major, minor, std::cmp::Reverse(String::new())),
        Err(_) => other,
    }
}

/// The resources that are served, replaced as a whole when a CRD changes.
#[derive(Debug)]
pub struct Registry {
    built_in: Vec<Arc<Resource>>,
    state: RwLock<State>,
}

#[derive(Debug)]
struct State {
    served: Arc<Served>,
    crds: BTreeMap<String, Vec<Arc<Resource>>>,
}

impl Default for Registry {
    fn default() -> Self {
        let built_in: Vec<Arc<Resource>> =
            kinds::all().map(|kind| Arc::new(Resource::built_in(kind))).collect();
        let served = Arc::new(Served::new(built_in.iter().cloned()));
        Self { built_in, state: RwLock::new(State { served, crds: BTreeMap::new() }) }
    }
}

impl Registry {
    /// Returns the current resources.
    #[must_use]
    pub fn served(&self) -> Arc<Served> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner).served)
    }

    /// Replaces the resources of a CRD; an empty list removes them. `resources` is called under the lock, so
    /// that the last call to take effect has also read the CRD last.
    pub fn define(&self, crd: &str, resources: impl FnOnce() -> Vec<Resource>) {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let resources = resources();
        if resources.is_empty() {
            state.crds.remove(crd);
        } else {
            let resources = resources.into_iter().map(Arc::new).collect();
            state.crds.insert(crd.to_owned(), resources);
        }
        let custom = state.crds.values().flatten();
        state.served = Arc::new(Served::new(self.built_in.iter().chain(custom).cloned()));
    }
}

/// Returns the key of the owner in a reference, if its kind is served here.
#[must_use]
pub fn owner_resource(served: &Served, reference: &Value) -> Option<Arc<Resource>> {
    let member = |name: &str| reference.get(name).and_then(Value::as_str).unwrap_or_default();
    served.find_kind(member("apiVersion"), member("kind")).cloned()
}

/// Returns the storage key of an object.
#[must_use]
pub fn key(resource: &Resource, object: &Value) -> crate::store::Key {
    crate::store::Key {
        resource: Arc::clone(&resource.storage),
        namespace: metadata::text(object, "namespace").to_owned(),
        name: metadata::text(object, "name").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_ordered_as_by_kubernetes() {
        let mut versions = ["v1alpha1", "foo", "v1", "v2beta1", "v10", "v2", "v1beta2", "bar"];
        versions.sort_by_key(|version| std::cmp::Reverse(version_rank(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v2beta1", "v1beta2", "v1alpha1", "bar", "foo"]);
    }

    #[test]
    fn built_in_resources_are_found_by_path_and_kind() {
        let served = Registry::default().served();
        assert_eq!(served.find("", "v1", "secrets").map(|found| found.kind.as_str()), Some("Secret"));
        let lease = served.find_kind("coordination.k8s.io/v1", "Lease");
        assert_eq!(lease.map(|found| found.plural.as_str()), Some("leases"));
        assert!(served.find("", "v1", "nope").is_none());
    }
}
