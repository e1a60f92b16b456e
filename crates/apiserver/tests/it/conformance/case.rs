//! The case files: their format, and how they are read.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;

/// One file below `tests/conformance`: a sequence of requests on one topic.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Case {
    /// What the case shows, in one sentence.
    pub about: String,
    /// Shared CRDs (file names in `crds/`) that must be served before the case starts.
    #[serde(default)]
    pub needs: Vec<String>,
    /// Whether responses include `managedFields`, which would hide the subject of most cases.
    #[serde(default)]
    pub managed_fields: bool,
    /// The requests, sent in order.
    pub steps: Vec<Step>,
    /// `area/name`, from the file's path.
    #[serde(skip)]
    pub name: String,
}

/// One request and its recorded response.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Step {
    /// Method and path with query, as in `GET /api/v1/namespaces/$NS/configmaps?limit=2`.
    request: String,
    /// Headers besides the standard ones.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body, sent as JSON.
    body: Option<Value>,
    /// The body, sent as exactly this text.
    raw: Option<String>,
    /// The kind of a patch.
    patch: Option<PatchKind>,
    /// Repeats the request until the response matches: for what a controller does asynchronously.
    pub until: Option<Until>,
    /// The request is a watch: stops reading after this number of events; with 0, when the server ends it.
    pub take: Option<usize>,
    /// Requests sent once the watch is open; they must succeed, and their responses are not compared.
    #[serde(default)]
    pub meanwhile: Vec<Call>,
    /// Compares only these parts of the response (JSON pointers), for large responses.
    #[serde(default)]
    pub pick: Vec<String>,
    /// Compares only the names and types of fields, for values that differ between servers.
    #[serde(default)]
    pub shape: bool,
    /// `any` where the exact message of an error does not matter.
    pub message: Option<AnyMessage>,
    /// The response of kube-apiserver. Written by the recorder, never by hand; always the last key.
    pub expect: Option<Expect>,
}

impl Step {
    /// Returns the request of the step.
    pub fn call(&self) -> Call {
        Call {
            request: self.request.clone(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            raw: self.raw.clone(),
            patch: self.patch,
        }
    }
}

/// A request: the same keys as in a step.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// Method and path with query.
    pub request: String,
    /// Headers besides the standard ones.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The body, sent as JSON.
    pub body: Option<Value>,
    /// The body, sent as exactly this text.
    pub raw: Option<String>,
    /// The kind of a patch.
    pub patch: Option<PatchKind>,
}

/// Short names of the content types of patches.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, by the patch strategies of the Go types.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// Returns the content type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json-patch+json",
            Self::Merge => "application/merge-patch+json",
            Self::Strategic => "application/strategic-merge-patch+json",
            Self::Apply => "application/apply-patch+yaml",
        }
    }
}

/// When a repeated request is complete.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Until {
    /// The status code to wait for.
    pub status: Option<u16>,
    /// A text that the response must contain.
    pub contains: Option<String>,
}

/// The only value of `message`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AnyMessage {
    /// Any message is accepted.
    Any,
}

/// A normalized response.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The status code.
    pub status: u16,
    /// The texts of the `Warning` headers.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The content type where it is not JSON.
    #[serde(rename = "type")]
    pub media_type: Option<String>,
    /// The body: JSON, or a string if it is not JSON.
    #[serde(default)]
    pub body: Value,
    /// The events of a watch.
    pub events: Option<Vec<Value>>,
}

/// An accepted difference from kube-apiserver, with its reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// The case's name.
    pub case: String,
    /// The step's number, counted from 1; without it, every step from the first difference on may differ.
    pub step: Option<usize>,
    /// The reason.
    pub reason: String,
}

/// The folder of the cases.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

/// Returns all cases whose name contains `filter`, ordered by name.
pub fn load(filter: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for area in entries(&folder()).into_iter().filter(|path| path.is_dir() && !path.ends_with("crds")) {
        for file in entries(&area) {
            let name = format!("{}/{}", stem(&area), stem(&file));
            if !name.contains(filter) {
                continue;
            }
            let case: Case = read(&file);
            cases.push(Case { name, ..case });
        }
    }
    cases
}

/// Reads a shared CRD.
pub fn crd(name: &str) -> Value {
    read(&folder().join("crds").join(format!("{name}.yaml")))
}

/// Reads the accepted differences.
pub fn differences() -> Vec<Difference> {
    read(&folder().join("differences.yaml"))
}

/// Reads one YAML file.
fn read<T: serde::de::DeserializeOwned>(file: &Path) -> T {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    // YAML 1.2: `y` and `no` are strings.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(&text, options)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Returns the entries of a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Returns the last part of a path without its extension.
fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}
