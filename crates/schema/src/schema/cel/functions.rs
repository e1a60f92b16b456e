//! The functions that a rule may call, and their return types.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
};

use kube_cel::{
    KubeCelExt as _,
    cel::{
        Context, ExecutionError, FunctionContext, IdedExpr,
        common::ast::{CallExpr, Expr},
        extractors::This,
        objects::{Value, ValueType},
    },
};

use super::kind::Kind;
use crate::schema::pattern::Pattern;

/// The functions, registered once: the table never changes, and creating it costs more than evaluating a
/// rule.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Value| type_value(value.type_of()));
    context.add_function("matches", matches);
    context.add_function("lists.range", range);
    context.add_function("format", format_text);
    context
});

/// The functions of the library, for those that are replaced here and call the original.
static ORIGINALS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// The maximum length of a list from `lists.range`.
pub(super) const MAX_RANGE: u64 = 100_000;

/// The maximum number of digits of a precision in a format (`%.3f`).
const MAX_PRECISION_DIGITS: usize = 2;

/// Returns the list of the integers from 0; the library would allocate any length.
fn range(context: &FunctionContext, length: i64) -> Result<Value, ExecutionError> {
    match u64::try_from(length) {
        Err(_) => Err(context.error("range argument must be non-negative")),
        Ok(long) if long > MAX_RANGE => {
            Err(context.error(format!("range argument must not exceed {MAX_RANGE}")))
        }
        Ok(_) => Ok(Value::List(Arc::new((0..length).map(Value::Int).collect()))),
    }
}

/// Formats a text; a precision is a number of digits, so that a large one would create a very long text.
fn format_text(
    context: &FunctionContext,
    This(text): This<Arc<String>>,
    values: Value,
) -> Result<Value, ExecutionError> {
    let is_long = |part: &str| part.bytes().take_while(u8::is_ascii_digit).count() > MAX_PRECISION_DIGITS;
    if text.split("%.").skip(1).any(is_long) {
        return Err(context.error("the precision of a format must be less than 100"));
    }
    let mut inner = ORIGINALS.new_inner_scope();
    inner.add_variable_from_value("text", Value::String(text));
    inner.add_variable_from_value("values", values);
    Value::resolve(&FORMAT, &inner)
}

/// `text.format(values)`.
static FORMAT: LazyLock<IdedExpr> = LazyLock::new(|| {
    let ident = |name: &str| IdedExpr { id: 1, expr: Expr::Ident(name.to_owned()) };
    let call = CallExpr {
        func_name: "format".to_owned(),
        target: Some(Box::new(ident("text"))),
        args: vec![ident("values")],
    };
    IdedExpr { id: 2, expr: Expr::Call(call) }
});

/// Compiled patterns: compiling one costs far more than the rest of a rule, and rules have few of them.
static PATTERNS: LazyLock<Mutex<HashMap<String, Arc<Pattern>>>> = LazyLock::new(Mutex::default);
/// The maximum number of cached patterns: a rule may build its pattern from an object.
const MAX_CACHED_PATTERNS: usize = 1024;

/// Whether a string matches a pattern in Go's syntax.
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
    if patterns.len() < MAX_CACHED_PATTERNS {
        patterns.insert(pattern.as_str().to_owned(), Arc::clone(&compiled));
    }

    drop(patterns);
    Ok(compiled.matches(&text))
}

/// The placeholder of a type, which the library cannot represent: a string that no rule contains.
pub(super) fn type_value(name: impl std::fmt::Display) -> String {
    format!("type({name})")
}

/// The types that a rule can name, each with the library's name for it.
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

/// Returns the placeholder of the type with this name.
pub(super) fn named_type(name: &str) -> Option<String> {
    let (_, found) = TYPES.iter().find(|(known, _)| *known == name)?;
    Some(type_value(found))
}

pub(super) fn functions() -> &'static Context<'static> {
    &FUNCTIONS
}

/// The support for a function.
pub(super) enum Known<'a> {
    /// It can be called and returns this type.
    Returns(Kind<'a>),
    /// Kubernetes supports it, the CEL library does not.
    Unsupported,
    /// The function does not exist.
    Unknown,
}

/// Namespaces of functions, which are called like methods of a variable that does not exist.
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
/// Functions and macros of kube-apiserver 1.36 that are not supported.
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

/// Looks up a function by its name, including its namespace if it has one.
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
