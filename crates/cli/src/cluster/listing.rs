//! Lists objects of a cluster page by page and decodes only the requested fields.
//!
//! Objects are not decoded into typed structs: one object with an unexpected field must not hide the others. A table of
//! many thousand objects needs a few fields of each; decoding the rest would take most of the time.

use std::{collections::BTreeMap, fmt};

use kube::{
    Resource,
    api::{ApiResource, DynamicObject, ListParams},
    core::Request,
};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::{Cluster, RequestError, in_namespace};

/// Objects per page: a compromise between the latency of a page and the number of requests.
const PAGE: u32 = 1000;

/// The part of an object to decode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All fields.
    Whole,
    /// Some fields, each with the part of it to decode.
    Members(BTreeMap<String, Wanted>),
}

impl Wanted {
    /// Returns the fields of JSON paths, up to the first list: `.status.conditions[?(…)].status` is `status.conditions`.
    pub fn paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut wanted = Self::Members(BTreeMap::new());
        for path in paths {
            wanted.add_path(path);
        }
        wanted
    }

    /// Adds the field of a JSON path.
    pub fn add_path(&mut self, path: &str) {
        let names = path.split('[').next().unwrap_or_default();
        self.add(names.split('.').filter(|name| !name.is_empty()));
    }

    fn add<'a>(&mut self, mut names: impl Iterator<Item = &'a str>) {
        let Some(name) = names.next() else {
            *self = Self::Whole;
            return;
        };
        if let Self::Members(members) = self {
            members.entry(name.to_owned()).or_insert_with(|| Self::Members(BTreeMap::new())).add(names);
        }
    }
}

impl<'de> DeserializeSeed<'de> for &Wanted {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self {
            Wanted::Whole => serde::Deserialize::deserialize(deserializer),
            Wanted::Members(members) => deserializer.deserialize_any(MembersVisitor(members)),
        }
    }
}

/// Decodes some fields of an object; a value that is not an object becomes null.
struct MembersVisitor<'a>(&'a BTreeMap<String, Wanted>);

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut decoded = serde_json::Map::new();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.get(name.as_ref()) {
                Some(wanted) => {
                    let value = map.next_value_seed(wanted)?;
                    decoded.insert(name.into_owned(), value);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(decoded))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Null)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

/// Decodes one page: passes the items to a function and returns the metadata of the list.
struct Page<'a, F>(&'a Wanted, &'a mut F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for Page<'_, F> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for Page<'_, F> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut metadata = Value::Null;
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match name.as_ref() {
                "metadata" => metadata = map.next_value()?,
                "items" => map.next_value_seed(Items(self.0, &mut *self.1))?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(metadata)
    }
}

struct Items<'a, F>(&'a Wanted, &'a mut F);

impl<'de, F: FnMut(Value)> DeserializeSeed<'de> for Items<'_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: FnMut(Value)> Visitor<'de> for Items<'_, F> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("items, or null")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while let Some(item) = items.next_element_seed(self.0)? {
            (self.1)(item);
        }
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// A selection of objects.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    /// The kind.
    pub resource: &'a ApiResource,
    /// The namespace; `None` for all namespaces and for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
    /// A label selector.
    pub labels: Option<&'a str>,
    /// A field selector.
    pub fields: Option<&'a str>,
}

impl<'a> Selection<'a> {
    /// Selects all objects of a kind in one namespace or in all.
    pub fn all(resource: &'a ApiResource, namespace: Option<&'a str>) -> Self {
        Self { resource, namespace, labels: None, fields: None }
    }

    /// Returns the action for error messages.
    fn action(&self) -> String {
        format!("list {}{}", self.resource.plural, in_namespace(self.namespace))
    }
}

/// A list that could not be read completely.
#[derive(Debug)]
pub struct Incomplete {
    /// The number of objects that were read.
    pub read: usize,
    /// The number of objects that are missing, if the server reported it.
    pub remaining: Option<u64>,
    /// The cause.
    pub source: RequestError,
}

/// Passes the objects to a function, in the order of the server. Returns the resource version of the list.
pub async fn list(
    cluster: &Cluster,
    selection: &Selection<'_>,
    wanted: &Wanted,
    mut each: impl FnMut(Value),
) -> Result<String, Incomplete> {
    let path = DynamicObject::url_path(selection.resource, selection.namespace);
    let mut parameters = ListParams::default().limit(PAGE);
    parameters.label_selector = selection.labels.map(ToOwned::to_owned);
    parameters.field_selector = selection.fields.map(ToOwned::to_owned);

    let (mut read, mut remaining) = (0, None);
    loop {
        let mut counted = |item| {
            read += 1;
            each(item);
        };
        let page = read_page(cluster, &path, &parameters, wanted, &mut counted).await;
        let metadata = page.map_err(|error| Incomplete {
            read,
            remaining,
            source: cluster.failure(selection.action(), error),
        })?;

        let text = |name: &str| metadata.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        remaining = metadata.get("remainingItemCount").and_then(Value::as_u64);
        match text("continue") {
            Some(token) => parameters.continue_token = Some(token.to_owned()),
            None => return Ok(text("resourceVersion").unwrap_or_default().to_owned()),
        }
    }
}

async fn read_page(
    cluster: &Cluster,
    path: &str,
    parameters: &ListParams,
    wanted: &Wanted,
    each: &mut impl FnMut(Value),
) -> Result<Value, kube::Error> {
    let request = Request::new(path).list(parameters).map_err(kube::Error::BuildRequest)?;
    let text = cluster.client.request_text(request).await?;
    let mut document = serde_json::Deserializer::from_str(&text);
    Page(wanted, each).deserialize(&mut document).map_err(kube::Error::SerdeError)
}

/// Returns a text field of an object; empty if it is absent.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns one object as it is stored.
pub async fn read(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, RequestError> {
    let path = DynamicObject::url_path(resource, namespace);
    let answer = async {
        let request = Request::new(path).get(name, &kube::api::GetParams::default());
        cluster.client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await
    };
    answer.await.map_err(|error| {
        let action = format!("read {} {name}{}", resource.kind, in_namespace(namespace));
        cluster.failure(action, error)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decoded(object: &Value) -> Value {
        let wanted = Wanted::paths([".metadata.name", ".status.conditions[?(@.type==\"Ready\")].status"]);
        (&wanted).deserialize(&mut serde_json::Deserializer::from_str(&object.to_string())).unwrap()
    }

    #[test]
    fn only_the_requested_fields_are_decoded() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"disks": [{"size": 1}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        let expected = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready"}]}});
        assert_eq!(decoded(&object), expected);
    }

    #[test]
    fn fields_of_an_unexpected_type_become_null() {
        assert_eq!(
            decoded(&json!({"metadata": "x", "status": [1]})),
            json!({"metadata": null, "status": null})
        );
        assert_eq!(decoded(&json!({"metadata": {"name": 7}})), json!({"metadata": {"name": 7}}));
    }

    #[test]
    fn a_page_passes_on_its_items_and_returns_the_continue_token() {
        let page = r#"{"kind":"List","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"continue":"t"}}"#;
        let wanted = Wanted::Whole;
        let mut names = Vec::new();
        let mut each = |item: Value| names.push(item["metadata"]["name"].clone());
        let metadata = Page(&wanted, &mut each).deserialize(&mut serde_json::Deserializer::from_str(page));
        assert_eq!(metadata.unwrap()["continue"], "t");
        assert_eq!(names, ["a", "b"]);
    }
}
