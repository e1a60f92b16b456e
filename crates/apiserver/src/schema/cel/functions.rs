//! The functions a rule may call, and what they return.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, FunctionContext,
        extractors::This,
        objects::{Value, ValueType},
    },
};

use super::kind::Kind;
use crate::schema::pattern::Pattern;

/// The functions, registered once: the table never changes and making it costs more than a rule.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Value| type_value(value.type_of()));
    context.add_function("matches", matches);
    context
});

/// Compiled patterns: compiling one costs far more than all the rest of a rule, and rules have few of them.
static PATTERNS: LazyLock<Mutex<HashMap<String, Arc<Pattern>>>> = LazyLock::new(Mutex::default);
/// Patterns kept, at most: a rule may put its pattern together from an object.
const PATTERNS_KEPT: usize = 1024;

/// Whether a text matches a pattern, which is read as Go reads it.
#[expect(clippy::needless_pass_by_value, reason = "how the library hands arguments over")]
fn matches(
    context: &FunctionContext,
    This(text): This<Arc<String>>,
    pattern: Arc<String>,
) -> Result<bool, ExecutionError> {
    let patterns = || PATTERNS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = patterns().get(pattern.as_str()).cloned();
    if let Some(known) = known {
        return Ok(known.matches(&text));
    }
    let compiled = Arc::new(Pattern::compile(&pattern).map_err(|error| context.error(error))?);
    let mut patterns = patterns();
    if patterns.len() < PATTERNS_KEPT {
        patterns.insert(pattern.as_str().to_owned(), Arc::clone(&compiled));
    }
    drop(patterns);
    Ok(compiled.matches(&text))
}

/// What stands for a type, which the library cannot hold: a text no rule writes.
pub(super) fn type_value(name: impl std::fmt::Display) -> String {
    format!("type({name})")
}

/// Types a rule can name, each with the library's word for it.
const TYPES: [(&str, ValueType); 9] = [
    ("bool", ValueType::Bool),
    ("bytes", ValueType::Bytes),
    ("double", ValueType::Float),
    ("int", ValueType::Int),
    ("list", ValueType::List),
    ("map", ValueType::Map),
    ("null_type", ValueType::Null),
    ("string", ValueType::String),
    ("uint", ValueType::UInt),
];

/// What stands for the type of a name; none if no type has it.
pub(super) fn named_type(name: &str) -> Option<String> {
    let (_, found) = TYPES.iter().find(|(known, _)| *known == name)?;
    Some(type_value(found))
}

pub(super) fn functions() -> &'static Context<'static> {
    &FUNCTIONS
}

/// What is known of a function.
pub(super) enum Known<'a> {
    /// It can be called and returns this.
    Returns(Kind<'a>),
    /// Kubernetes has it, the CEL library of this server does not.
    Unsupported,
    /// No such function.
    Unknown,
}

/// Functions with a namespace, called like methods of a variable that does not exist.
const NAMESPACES: [&str; 9] =
    ["base64", "format", "ip", "jsonpatch", "lists", "math", "optional", "sets", "strings"];

/// Whether `name.…()` is a function of a namespace rather than a method.
pub(super) fn is_namespace(name: &str) -> bool {
    NAMESPACES.contains(&name)
}

const BOOL: &[&str] = &[
    "contains",
    "containsCIDR",
    "containsIP",
    "endsWith",
    "hasValue",
    "ip.isCanonical",
    "isCIDR",
    "isCIDRv4",
    "isCIDRv6",
    "isGlobalUnicast",
    "isGreaterThan",
    "isIP",
    "isIPv4",
    "isIPv6",
    "isInteger",
    "isLessThan",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isLoopback",
    "isQuantity",
    "isSemver",
    "isSorted",
    "isURL",
    "isUnspecified",
    "matches",
    "math.isFinite",
    "math.isInf",
    "math.isNaN",
    "sets.contains",
    "sets.equivalent",
    "sets.intersects",
    "startsWith",
];
const INT: &[&str] = &[
    "asInteger",
    "compareTo",
    "family",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getFullYear",
    "getHours",
    "getMilliseconds",
    "getMinutes",
    "getMonth",
    "getSeconds",
    "indexOf",
    "int",
    "lastIndexOf",
    "major",
    "minor",
    "patch",
    "prefixLength",
    "size",
];
const TEXT: &[&str] = &[
    "base64.encode",
    "charAt",
    "find",
    "format",
    "getEscapedPath",
    "getHost",
    "getHostname",
    "getPort",
    "getScheme",
    "join",
    "jsonpatch.escapeKey",
    "lowerAscii",
    "replace",
    "string",
    "strings.quote",
    "substring",
    "trim",
    "upperAscii",
];
const OTHER: &[&str] = &[
    "add",
    "cidr",
    "distinct",
    "dyn",
    "first",
    "flatten",
    "format.byte",
    "format.date",
    "format.datetime",
    "format.dns1035Label",
    "format.dns1035LabelPrefix",
    "format.dns1123Label",
    "format.dns1123LabelPrefix",
    "format.dns1123Subdomain",
    "format.dns1123SubdomainPrefix",
    "format.labelValue",
    "format.named",
    "format.qualifiedName",
    "format.uri",
    "format.uuid",
    "getQuery",
    "ip",
    "last",
    "lists.range",
    "masked",
    "math.abs",
    "math.bitAnd",
    "math.bitNot",
    "math.bitOr",
    "math.bitShiftLeft",
    "math.bitShiftRight",
    "math.bitXor",
    "math.ceil",
    "math.floor",
    "math.greatest",
    "math.least",
    "math.round",
    "math.sign",
    "math.sqrt",
    "math.trunc",
    "max",
    "min",
    "optional.none",
    "optional.of",
    "optional.ofNonZeroValue",
    "or",
    "orValue",
    "quantity",
    "reverse",
    "semver",
    "sign",
    "slice",
    "sort",
    "sub",
    "sum",
    "type",
    "url",
    "validate",
    "value",
];
/// Functions and macros of kube-apiserver 1.36 that are missing here.
const UNSUPPORTED: &[&str] = &[
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
    "optMap",
    "optFlatMap",
    "all",
    "exists",
    "exists_one",
    "existsOne",
    "unwrap",
    "unwrapOpt",
    "optional.unwrap",
    "regex.replace",
    "regex.extract",
    "regex.extractAll",
];

/// Looks a function up by its name, with the namespace if it has one.
pub(super) fn find<'a>(name: &str) -> Known<'a> {
    let has = |names: &[&str]| names.contains(&name);
    let kind = match name {
        "double" | "asApproximateFloat" => Kind::Double,
        "uint" => Kind::Uint,
        "bool" => return Known::Unsupported,
        "bytes" | "base64.decode" => Kind::Bytes,
        "timestamp" => Kind::Timestamp,
        "duration" => Kind::Duration,
        "split" | "findAll" => Kind::List(Box::new(Kind::Text)),
        _ if has(BOOL) => Kind::Bool,
        _ if has(INT) => Kind::Int,
        _ if has(TEXT) => Kind::Text,
        "dyn" => return Known::Unsupported,
        _ if has(OTHER) => Kind::Dynamic,
        _ if has(UNSUPPORTED) => return Known::Unsupported,
        _ => return Known::Unknown,
    };
    Known::Returns(kind)
}
