//! A store in the cluster of the control plane: a world outlives its process, and another replica can open it.
//!
//! It uses ConfigMaps instead of Secrets: a world contains user data and Secrets only as digests, and everything else is
//! also visible in the Machines.
//!
//! The *head* refers to the generation in which the world starts. Each record is an object, numbered within its
//! generation. A write creates the object with the next number, so that of two writers only one succeeds. To replace all
//! records, a writer creates a new generation with one record, then a *seal* with the next number of the old generation
//! (the commit point), then updates the head, and finally deletes the old generation. Readers follow seals, so that a
//! crash between any two of these writes loses nothing.
//!
//! A name becomes available again when its object is deleted. A writer that was suspended while its generation ended
//! would not notice, so each write checks the head afterwards. A generation that no seal refers to may be incomplete or
//! still being written. It is deleted only by the writer that sealed the preceding generation, because from then on no
//! seal can refer to it.

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

use super::{MatchVersionSnafu, ReadWorldSnafu, StoreError, Stored, WorldStore};
use objects::{Content, Damaged, Head, Loaded, Objects, Position};

/// The page size of lists.
const PAGE: u32 = 500;

/// The number of attempts to read a world while another process changes it.
const ATTEMPTS: usize = 5;

/// The maximum length of the name of a world, which is also a label value.
const NAME_LIMIT: usize = 63;

/// Returns the name of the world of a provider: a valid object name prefix and label value, unique for each provider,
/// also if a provider has the name of a deleted one.
///
/// A user can set the identity, but not share namespace and name with another provider. So a user cannot access the world
/// of another provider by copying its identity.
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
/// A write costs one create and one get of the head. A failed write may have been carried out; if so, its record precedes
/// that of the next write of the same store.
#[derive(Debug)]
pub struct KubernetesStore {
    api: Api<ConfigMap>,
    path: String,
    objects: Objects,
    /// None until the world has been read.
    position: Mutex<Option<Position>>,
}

impl KubernetesStore {
    /// Returns the store of the world with this name, as returned by [`world_name`], in this namespace.
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
        move |Damaged| ReadWorldSnafu { path }.build()
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

    /// Creates an object; returns false if its name is taken.
    async fn create(&self, object: &ConfigMap) -> Result<bool, StoreError> {
        match self.api.create(&PostParams::default(), object).await {
            // Other conflicts, such as those of a quota, do not mean that the name is taken.
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

    /// Returns all objects of the world, from one consistent list.
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

    async fn read(&self) -> Result<Loaded, StoreError> {
        for _ in 0..ATTEMPTS {
            let objects = self.list().await?;
            let Some((mut position, records)) = self.objects.read(objects).map_err(self.damaged())? else {
                let empty = Position {
                    head: None,
                    generation: new_generation(),
                    first: 0,
                    number: 0,
                    passed: [].into(),
                    stale: [].into(),
                };
                return Ok((empty, Vec::new()));
            };
            // A stale head was left by a crash. It is updated now, so that every later write can rely on it.
            if position.is_at_head() || self.confirm(&mut position).await? {
                return Ok((position, records));
            }
        }
        let source = io::Error::other("other processes keep changing it");
        Err(StoreError::ReachStore { action: "read", path: self.path.clone(), source })
    }

    /// Returns the position of the next write, if it matches the expected version. Creates the head if it does not exist.
    async fn begin(&self, known: &mut Option<Position>, expected: u64) -> Result<Position, StoreError> {
        let position = match known.take() {
            Some(position) => known.insert(position),
            None => known.insert(self.read().await?.0),
        };
        ensure!(position.version() == expected, MatchVersionSnafu { expected });
        if position.head.is_none() {
            let head = Head {
                generation: position.generation.clone(),
                first: position.first,
                resource_version: None,
            };
            self.create(&self.objects.head(&head)).await?;
            // Either our head or that of a concurrent writer: the first record decides.
            let Some(head) = self.read_head().await? else { return MatchVersionSnafu { expected }.fail() };
            ensure!(head.first == expected, MatchVersionSnafu { expected });
            position.generation.clone_from(&head.generation);
            position.head = Some(head);
        }
        Ok(position.clone())
    }

    /// Writes the parts that must exist before a record, and returns the content of its entry.
    async fn write_parts(&self, generation: &str, record: &[u8]) -> Result<Content, StoreError> {
        let (content, parts) = self.objects.split(generation, record);
        for part in &parts {
            self.create(part).await?;
        }
        Ok(content)
    }

    /// Creates the entry with the next number. Returns false if the generation was sealed; then the position is in the
    /// next generation. Entries that this store wrote without receiving a reply are accepted or skipped.
    async fn write_entry(
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
            let existing = self.api.get_opt(&name).await.map_err(self.failed("read"))?;
            let Some(existing) = existing else { return MatchVersionSnafu { expected }.fail() };
            let (writer, found) = Objects::read_entry(&existing).map_err(self.damaged())?;
            ensure!(writer == self.objects.writer, MatchVersionSnafu { expected });
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

    /// Returns whether the head refers to our generation, after updating a stale head.
    async fn confirm(&self, position: &mut Position) -> Result<bool, StoreError> {
        let mut seen = if position.is_at_head() { self.read_head().await? } else { position.head.clone() };
        while let Some(head) = seen.take() {
            if head.generation == position.generation {
                position.confirm(head);
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
                // Another client moved the head, or changed its metadata.
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                    self.read_head().await?
                }
                Err(error) => return Err(self.failed("write")(error)),
            };
        }
        Ok(false)
    }

    /// Confirms a write. If the world continued without it, readers ignore it and it is deleted.
    async fn settle(&self, position: &mut Position, expected: u64) -> Result<(), StoreError> {
        if self.confirm(position).await? {
            return Ok(());
        }
        self.delete_selected(Some(&position.generation)).await?;
        MatchVersionSnafu { expected }.fail()
    }
}

impl Position {
    fn is_at_head(&self) -> bool {
        self.head.as_ref().is_some_and(|head| head.generation == self.generation)
    }
}

/// Returns a unique name for a generation.
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
            if self.write_entry(&mut position, &content, expected).await? {
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
        while !self.write_entry(&mut position, &Content::Seal(next.clone()), expected).await? {}
        position.follow(next);
        self.settle(&mut position, expected).await?;

        let known = known.insert(position);
        for generation in known.stale.clone() {
            // What cannot be deleted now is deleted by the next replacement.
            if self.delete_selected(Some(&generation)).await.is_ok() {
                known.stale.remove(&generation);
            }
        }
        Ok(known.version())
    }

    async fn delete_all(&self) -> Result<(), StoreError> {
        let mut position = self.position.lock().await;
        *position = None;
        // The head is deleted first: a concurrent writer then finds no head and deletes its record again.
        self.delete(&self.objects.world).await?;
        self.delete_selected(None).await
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_world_name_is_a_valid_label_and_unique_per_provider() {
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
