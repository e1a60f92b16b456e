//! A store in the control plane's own cluster: a world outlives its process and can be had by another replica.
//!
//! ConfigMaps and not Secrets: a world holds user data and Secrets only as digests, and nothing else that the Machines
//! themselves do not show.
//!
//! A *head* names the generation in which the world begins. Each record is an object of its own, numbered within the
//! generation: to create the next number is to write, and of two writers one finds it taken. To replace everything, a new
//! generation is written with one record; then a *seal* takes the next number of the old one, which is the moment at
//! which it counts; then the head is moved, and only then the old generation is deleted. Whoever finds a seal follows it,
//! so that a crash after any of these writes loses nothing.
//!
//! A name can be taken again once its object is deleted. A writer that slept through the end of a generation would not
//! notice, so each write looks at the head afterwards. A generation that no seal leads to may be half written or still
//! being written; it is deleted only by whoever has sealed the generation it was to follow, since then it is too late for it.

mod objects;

use std::io;

use async_trait::async_trait;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use snafu::ensure;
use tokio::sync::Mutex;
use uuid::Uuid;
use vitistack_clients::kubernetes::{explain, fingerprint};

use super::{MeetVersionSnafu, ReadFrameSnafu, StoreError, Stored, WorldStore};
use objects::{Content, Damaged, Found, Head, Objects, Position};

/// Objects in one answer.
const PAGE: u32 = 500;

/// How often a world is read anew when somebody else changes it meanwhile.
const ATTEMPTS: usize = 5;

/// The longest name of a world: its objects are labelled with it.
const NAME_LIMIT: usize = 63;

/// The name of the world of a provider: valid as the beginning of an object's name and as a label, and never that of two
/// providers, also when one took the name of another that is gone.
///
/// The identity is what a user may write. Namespace and name are not, and only one provider has them at a time: so nobody
/// reaches the world of another by writing down its identity.
#[must_use]
pub fn world_name(provider_namespace: &str, provider_name: &str, identity: &str) -> String {
    let print = fingerprint(&json!([provider_namespace, provider_name, identity]));
    let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '-' };
    let limit = NAME_LIMIT.saturating_sub(print.len()).saturating_sub(1);
    let stem: String =
        format!("world-{provider_namespace}-{provider_name}").chars().map(plain).take(limit).collect();
    format!("{}-{print}", stem.trim_end_matches('-'))
}

/// A store in ConfigMaps of one namespace.
///
/// A write costs one create and one look at the head. A write that failed may have been carried out; if it was, it stands
/// before the next one of the same store.
#[derive(Debug)]
pub struct KubernetesStore {
    api: Api<ConfigMap>,
    path: String,
    objects: Objects,
    /// None until the world was read.
    position: Mutex<Option<Position>>,
}

impl KubernetesStore {
    /// The store of the world of this name, as [`world_name`] gives it, in this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let objects = Objects { world: name.to_owned(), writer: Uuid::new_v4().simple().to_string() };
        Self {
            api: Api::namespaced(client, namespace),
            path: format!("configmaps {namespace}/{name}"),
            objects,
            position: Mutex::default(),
        }
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(kube::Error) -> StoreError {
        let path = self.path.clone();
        move |error| StoreError::ReachStore { action, path, source: io::Error::other(explain(&error)) }
    }

    fn damaged(&self) -> impl FnOnce(Damaged) -> StoreError {
        let path = self.path.clone();
        move |Damaged| ReadFrameSnafu { path }.build()
    }

    async fn delete(&self, name: &str) -> Result<(), StoreError> {
        match self.api.delete(name, &DeleteParams::background()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            deleted => deleted.map(|_| ()).map_err(self.failed("delete")),
        }
    }

    async fn delete_selected(&self, generation: Option<&str>) -> Result<(), StoreError> {
        let selected = ListParams::default().labels(&self.objects.selector(generation));
        let deleted = self.api.delete_collection(&DeleteParams::background(), &selected).await;
        deleted.map(|_| ()).map_err(self.failed("delete"))
    }

    /// Creates an object; false if its name is taken.
    async fn create(&self, object: &ConfigMap) -> Result<bool, StoreError> {
        match self.api.create(&PostParams::default(), object).await {
            // A conflict alone may be one over a quota, and the name still free.
            Err(kube::Error::Api(status)) if status.code == 409 && status.reason == "AlreadyExists" => {
                Ok(false)
            }
            created => created.map(|_| true).map_err(self.failed("write")),
        }
    }

    async fn read_head(&self) -> Result<Option<Head>, StoreError> {
        let head = self.api.get_opt(&self.objects.world).await.map_err(self.failed("read"))?;
        head.as_ref().map(Objects::read_head).transpose().map_err(self.damaged())
    }

    /// Every object, as all were at one time.
    async fn list(&self) -> Result<Vec<ConfigMap>, StoreError> {
        let mut page = ListParams::default().labels(&self.objects.selector(None)).limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let list = self.api.list(&page).await.map_err(self.failed("read"))?;
            objects.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(objects),
            }
        }
    }

    async fn read(&self) -> Result<Found, StoreError> {
        for _ in 0..ATTEMPTS {
            let objects = self.list().await?;
            let Some((mut position, records)) = self.objects.read(objects).map_err(self.damaged())? else {
                let nothing = Position {
                    head: None,
                    generation: new_generation(),
                    first: 0,
                    number: 0,
                    passed: [].into(),
                    stale: [].into(),
                };
                return Ok((nothing, Vec::new()));
            };
            // A head that is behind is what a crash left: it is moved now, so that every later write can rely on it.
            if position.is_at_head() || self.confirm(&mut position).await? {
                return Ok((position, records));
            }
        }
        let source = io::Error::other("others change it all the time");
        Err(StoreError::ReachStore { action: "read", path: self.path.clone(), source })
    }

    /// Where to write, if that is what the caller expects; with a head in any case.
    async fn begin(&self, known: &mut Option<Position>, expected: u64) -> Result<Position, StoreError> {
        let position = match known.take() {
            Some(position) => known.insert(position),
            None => known.insert(self.read().await?.0),
        };
        ensure!(position.version() == expected, MeetVersionSnafu { expected });
        if position.head.is_none() {
            let head = Head {
                generation: position.generation.clone(),
                first: position.first,
                resource_version: None,
            };
            self.create(&self.objects.head(&head)).await?;
            // Ours, or that of somebody else who begins too: the first record decides.
            let Some(head) = self.read_head().await? else { return MeetVersionSnafu { expected }.fail() };
            ensure!(head.first == expected, MeetVersionSnafu { expected });
            position.generation.clone_from(&head.generation);
            position.head = Some(head);
        }
        Ok(position.clone())
    }

    /// Writes what has to be there before a record, and says how the record stands in the generation.
    async fn write_parts(&self, generation: &str, record: &[u8]) -> Result<Content, StoreError> {
        let (content, parts) = self.objects.split(generation, record);
        for part in &parts {
            self.create(part).await?;
        }
        Ok(content)
    }

    /// Takes the next number; false if the generation turned out to have ended, and the position is in the next one.
    /// What this store itself wrote without hearing the answer is no hindrance: it is the same, or stands before.
    async fn place(
        &self,
        position: &mut Position,
        content: &Content,
        expected: u64,
    ) -> Result<bool, StoreError> {
        loop {
            let Position { generation, number, .. } = &*position;
            let entry = self.objects.entry(generation, *number, content);
            if self.create(&entry).await? {
                return Ok(true);
            }
            let name = self.objects.entry_name(generation, *number);
            let there = self.api.get_opt(&name).await.map_err(self.failed("read"))?;
            let Some(there) = there else { return MeetVersionSnafu { expected }.fail() };
            let (writer, found) = Objects::read_entry(&there).map_err(self.damaged())?;
            ensure!(writer == self.objects.writer, MeetVersionSnafu { expected });
            match found {
                found if found == *content => return Ok(true),
                Content::Seal(next) => {
                    position.follow(next);
                    return Ok(false);
                }
                Content::Record(_) | Content::Parts(..) => position.number = number.saturating_add(1),
            }
        }
    }

    /// Whether the head names our generation, after it was moved there if it was behind.
    async fn confirm(&self, position: &mut Position) -> Result<bool, StoreError> {
        let mut seen = if position.is_at_head() { self.read_head().await? } else { position.head.clone() };
        while let Some(head) = seen.take() {
            if head.generation == position.generation {
                position.is_confirmed_by(head);
                return Ok(true);
            }
            if !position.passed.contains(&head.generation) {
                return Ok(false);
            }
            let moved = Head {
                generation: position.generation.clone(),
                first: position.first,
                resource_version: head.resource_version,
            };
            let moved = self.objects.head(&moved);
            seen = match self.api.replace(&self.objects.world, &PostParams::default(), &moved).await {
                Ok(head) => Some(Objects::read_head(&head).map_err(self.damaged())?),
                // Somebody else has moved it, or only touched it.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                    self.read_head().await?
                }
                Err(error) => return Err(self.failed("write")(error)),
            };
        }
        Ok(false)
    }

    /// Confirms what was written. If the world went on without it, nobody will ever read it and it is deleted.
    async fn settle(&self, position: &mut Position, expected: u64) -> Result<(), StoreError> {
        if self.confirm(position).await? {
            return Ok(());
        }
        self.delete_selected(Some(&position.generation)).await?;
        MeetVersionSnafu { expected }.fail()
    }
}

impl Position {
    fn is_at_head(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.generation == self.generation)
    }
}

/// A name for a generation that no other attempt has.
fn new_generation() -> String {
    Uuid::new_v4().simple().to_string().chars().take(12).collect()
}

#[async_trait]
impl WorldStore for KubernetesStore {
    async fn load(&self) -> Result<Stored, StoreError> {
        let mut known = self.position.lock().await;
        let (position, records) = self.read().await?;
        let version = position.version();
        *known = Some(position);
        Ok(Stored { version, records })
    }

    async fn append(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        let mut known = self.position.lock().await;
        let mut position = self.begin(&mut known, expected).await?;
        loop {
            let content = self.write_parts(&position.generation, &record).await?;
            if self.place(&mut position, &content, expected).await? {
                break;
            }
        }
        self.settle(&mut position, expected).await?;
        position.number = position.number.saturating_add(1);
        Ok(known.insert(position).version())
    }

    async fn replace(&self, expected: u64, record: Vec<u8>) -> Result<u64, StoreError> {
        let mut known = self.position.lock().await;
        let mut position = self.begin(&mut known, expected).await?;
        let next = new_generation();
        if let Some(known) = known.as_mut() {
            known.stale.insert(next.clone());
        }
        let content = self.write_parts(&next, &record).await?;
        self.create(&self.objects.entry(&next, 0, &content)).await?;
        while !self.place(&mut position, &Content::Seal(next.clone()), expected).await? {}
        position.follow(next);
        self.settle(&mut position, expected).await?;
        let known = known.insert(position);
        for generation in known.stale.clone() {
            // What cannot be deleted now is deleted with the next replacement.
            if self.delete_selected(Some(&generation)).await.is_ok() {
                known.stale.remove(&generation);
            }
        }
        Ok(known.version())
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        let mut position = self.position.lock().await;
        *position = None;
        // The head goes first: whoever writes meanwhile finds it gone and takes its record back.
        self.delete(&self.objects.world).await?;
        self.delete_selected(None).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_name_of_a_world_is_a_label_and_that_of_one_provider_only() {
        let long = "n".repeat(253);
        let names: Vec<String> = [
            ("default", "simulated-a", "uid-1"),
            ("default", "simulated-a", "uid-2"),
            ("default-simulated", "a", "uid-1"),
            ("default", "simulated.a", "uid-1"),
            ("default", &long, "uid-1"),
            (&long, &format!("{long}x"), "uid-1"),
        ]
        .map(|(namespace, name, uid)| world_name(namespace, name, uid))
        .into();
        assert!(names[0].starts_with("world-default-simulated-a-"), "{}", names[0]);
        for name in &names {
            assert!(name.len() <= NAME_LIMIT, "{name}");
            assert!(name.bytes().all(|letter| letter.is_ascii_alphanumeric() || letter == b'-'), "{name}");
            assert!(!name.ends_with('-') && !name.contains("--"), "{name}");
        }
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
