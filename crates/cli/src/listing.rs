//! Reads objects from a cluster, page by page, and keeps of each only what is wanted.
//!
//! Nothing is decoded into our types here: an object that is odd in one field does not hide the others.

use std::{collections::BTreeMap, fmt};

use kube::{
    Resource,
    api::{ApiResource, DynamicObject, ListParams},
    core::Request,
};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use crate::cluster::{Cluster, RequestError};

/// Objects in one answer: few enough to come at once, many enough to need few answers.
const PAGE: u32 = 1000;

/// What of an object is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All of it.
    Whole,
    /// These members, each as far as it says.
    Members(BTreeMap<String, Wanted>),
}

impl Wanted {
    /// What these JSON paths look at, up to the first list: `.status.conditions[?(…)].status` wants the conditions.
    pub fn paths<'a>(paths: impl IntoIterator<Item = &'a str>) -> Self {
        let mut wanted = Self::Members(BTreeMap::new());
        for path in paths {
            let names = path.split('[').next().unwrap_or_default();
            wanted.add(names.split('.').filter(|name| !name.is_empty()));
        }
        wanted
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

/// Keeps some members of an object; whatever else stands there is nothing.
struct MembersVisitor<'a>(&'a BTreeMap<String, Wanted>);

impl<'de> Visitor<'de> for MembersVisitor<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = serde_json::Map::new();
        while let Some(name) = map.next_key::<std::borrow::Cow<'de, str>>()? {
            match self.0.get(name.as_ref()) {
                Some(wanted) => {
                    let value = map.next_value_seed(wanted)?;
                    kept.insert(name.into_owned(), value);
                }
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(Value::Object(kept))
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

/// Reads one page: hands out the items as they come, and returns the metadata of the list.
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

/// Which objects.
#[derive(Clone, Debug)]
pub struct Selection<'a> {
    /// Their kind.
    pub resource: &'a ApiResource,
    /// Their namespace; none for all, or for a kind without namespaces.
    pub namespace: Option<&'a str>,
    /// A label selector.
    pub labels: Option<&'a str>,
    /// A field selector.
    pub fields: Option<&'a str>,
}

impl<'a> Selection<'a> {
    /// All objects of a kind in a namespace, or in all.
    pub fn all(resource: &'a ApiResource, namespace: Option<&'a str>) -> Self {
        Self { resource, namespace, labels: None, fields: None }
    }

    fn doing(&self) -> String {
        let place = self.namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
        format!("list {}{place}", self.resource.plural)
    }
}

/// Why a list is not whole, and how much of it there is.
#[derive(Debug)]
pub struct Incomplete {
    /// Objects that were handed out before.
    pub read: usize,
    /// Objects that are missing at least, where the server said it.
    pub remaining: Option<u64>,
    /// Why.
    pub source: RequestError,
}

/// Hands out the objects in the server's order. Returns the version of the list, from which a watch can go on.
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
            source: cluster.failure(selection.doing(), error),
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

/// One object as the server has it.
pub async fn read(
    cluster: &Cluster,
    resource: &ApiResource,
    namespace: Option<&str>,
    name: &str,
) -> Result<Value, RequestError> {
    let doing = || {
        let place = namespace.map(|name| format!(" in namespace {name}")).unwrap_or_default();
        format!("read {} {name}{place}", resource.kind)
    };
    let path = DynamicObject::url_path(resource, namespace);
    let answer = async {
        let request = Request::new(path).get(name, &kube::api::GetParams::default());
        cluster.client.request::<Value>(request.map_err(kube::Error::BuildRequest)?).await
    };
    answer.await.map_err(|error| cluster.failure(doing(), error))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kept(object: &Value) -> Value {
        let wanted = Wanted::paths([".metadata.name", ".status.conditions[?(@.type==\"Ready\")].status"]);
        (&wanted).deserialize(&mut serde_json::Deserializer::from_str(&object.to_string())).unwrap()
    }

    #[test]
    fn only_what_is_wanted_is_kept() {
        let object = json!({
            "metadata": {"name": "a", "labels": {"b": "c"}},
            "spec": {"disks": [{"size": 1}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready"}]},
        });
        let expected = json!({"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready"}]}});
        assert_eq!(kept(&object), expected);
    }

    #[test]
    fn an_odd_object_is_read_as_far_as_it_makes_sense() {
        assert_eq!(kept(&json!({"metadata": "x", "status": [1]})), json!({"metadata": null, "status": null}));
        assert_eq!(kept(&json!({"metadata": {"name": 7}})), json!({"metadata": {"name": 7}}));
    }

    #[test]
    fn a_page_hands_out_its_items_and_tells_where_to_go_on() {
        let page = r#"{"kind":"List","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"metadata":{"continue":"t"}}"#;
        let wanted = Wanted::Whole;
        let mut names = Vec::new();
        let mut each = |item: Value| names.push(item["metadata"]["name"].clone());
        let metadata = Page(&wanted, &mut each).deserialize(&mut serde_json::Deserializer::from_str(page));
        assert_eq!(metadata.unwrap()["continue"], "t");
        assert_eq!(names, ["a", "b"]);
    }
}
