//! Conversion between a world and its objects. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{ResourceExt as _, core::ObjectMeta};
use sha2::{Digest, Sha256};
use vitistack_types::labels;

/// The managed-by label of all objects of a world.
const MANAGER: &str = "simulated-operator";

/// The maximum number of bytes per object: a ConfigMap holds 1 MiB.
pub(super) const PART: usize = 900 << 10;

// The keys of the data of the objects.
const GENERATION: &str = "generation";
const FIRST: &str = "first";
const WRITER: &str = "writer";
const RECORD: &str = "record";
const DIGEST: &str = "digest";
const PARTS: &str = "parts";
const NEXT: &str = "next";

/// The objects are not a complete world.
#[derive(Debug)]
pub(super) struct Damaged;

/// The content of one entry of a generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// A record.
    Record(Vec<u8>),
    /// A record that is too large for one object: the digest in the names of its parts, and their number.
    Parts(String, usize),
    /// The end of the generation: the world continues in this one, whose first record holds everything before it.
    Seal(String),
}

/// The object that refers to the generation in which a world starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) generation: String,
    pub(super) first: u64,
    pub(super) resource_version: Option<String>,
}

/// The position of the next record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Position {
    /// The head as last read; none if the world does not exist.
    pub(super) head: Option<Head>,
    pub(super) generation: String,
    /// The first version of the generation.
    pub(super) first: u64,
    /// The next number in the generation.
    pub(super) number: u64,
    /// Generations between the head as last read and ours: a head that refers to one of them is stale.
    pub(super) passed: BTreeSet<String>,
    /// Generations that are not part of the world: sealed, incomplete, or being written by another process.
    pub(super) stale: BTreeSet<String>,
}

impl Position {
    /// Returns the version for the next write.
    pub(super) fn version(&self) -> u64 {
        self.first.saturating_add(self.number)
    }

    /// Moves to the generation that the seal at this position refers to, after its first record.
    pub(super) fn follow(&mut self, next: String) {
        self.first = self.version();
        self.number = 1;
        self.stale.remove(&next);
        let old = std::mem::replace(&mut self.generation, next);
        self.passed.insert(old.clone());
        self.stale.insert(old);
    }

    /// Records that the head refers to our generation.
    pub(super) fn confirm(&mut self, head: Head) {
        self.head = Some(head);
        self.passed.clear();
    }
}

/// The position of the next record, and the existing records.
pub(super) type Loaded = (Position, Vec<Vec<u8>>);

/// The names and labels of the objects of one world.
#[derive(Clone, Debug)]
pub(super) struct Objects {
    pub(super) world: String,
    pub(super) writer: String,
}

impl Objects {
    /// Returns the label selector for all objects of the world or of one generation.
    pub(super) fn selector(&self, generation: Option<&str>) -> String {
        let world = format!("{}={}", labels::WORLD, self.world);
        match generation {
            Some(generation) => format!("{world},{}={generation}", labels::WORLD_GENERATION),
            None => world,
        }
    }

    pub(super) fn entry_name(&self, generation: &str, number: u64) -> String {
        format!("{}-{generation}-{number}", self.world)
    }

    fn part_name(&self, generation: &str, digest: &str, number: usize) -> String {
        format!("{}-{generation}-{digest}-{number}", self.world)
    }

    fn object(&self, name: String, generation: Option<&str>) -> ConfigMap {
        let mut labels = BTreeMap::from([
            (labels::MANAGED_BY.to_owned(), MANAGER.to_owned()),
            (labels::WORLD.to_owned(), self.world.clone()),
        ]);
        labels.extend(
            generation.map(|generation| (labels::WORLD_GENERATION.to_owned(), generation.to_owned())),
        );
        ConfigMap {
            metadata: ObjectMeta { name: Some(name), labels: Some(labels), ..ObjectMeta::default() },
            // Only the head ever changes.
            immutable: generation.map(|_| true),
            ..ConfigMap::default()
        }
    }

    pub(super) fn head(&self, head: &Head) -> ConfigMap {
        let mut object = self.object(self.world.clone(), None);
        object.metadata.resource_version.clone_from(&head.resource_version);
        let fields = [(GENERATION, head.generation.clone()), (FIRST, head.first.to_string())];
        object.data = Some(fields.map(|(name, value)| (name.to_owned(), value)).into());
        object
    }

    pub(super) fn entry(&self, generation: &str, number: u64, content: &Content) -> ConfigMap {
        let mut object = self.object(self.entry_name(generation, number), Some(generation));
        let mut data = BTreeMap::from([(WRITER.to_owned(), self.writer.clone())]);
        match content {
            Content::Record(record) => object.binary_data = Some(bytes(record)),
            Content::Parts(digest, count) => {
                data.insert(DIGEST.to_owned(), digest.clone());
                data.insert(PARTS.to_owned(), count.to_string());
            }
            Content::Seal(next) => {
                data.insert(NEXT.to_owned(), next.clone());
            }
        }
        object.data = Some(data);
        object
    }

    /// Returns the content of the entry for a record, and the parts that must exist before it.
    pub(super) fn split(&self, generation: &str, record: &[u8]) -> (Content, Vec<ConfigMap>) {
        if record.len() <= PART {
            return (Content::Record(record.to_vec()), Vec::new());
        }
        // Named by digest: an existing part with the same name has the same content, whichever process wrote it.
        let digest: [u8; 32] = Sha256::digest(record).into();
        let digest =
            format!("{:032x}", u128::from_be_bytes(digest.first_chunk().copied().unwrap_or_default()));
        let part = |(number, part): (usize, &[u8])| {
            let mut object = self.object(self.part_name(generation, &digest, number), Some(generation));
            object.binary_data = Some(bytes(part));
            object
        };
        let parts: Vec<ConfigMap> = record.chunks(PART).enumerate().map(part).collect();
        (Content::Parts(digest, parts.len()), parts)
    }

    /// Returns the writer and the content of an entry.
    pub(super) fn read_entry(entry: &ConfigMap) -> Result<(&str, Content), Damaged> {
        let field = |name: &str| entry.data.as_ref().and_then(|data| data.get(name));
        let writer = field(WRITER).ok_or(Damaged)?;
        let content = match (field(NEXT), field(DIGEST)) {
            (Some(next), _) => Content::Seal(next.clone()),
            (None, Some(digest)) => {
                let count = field(PARTS).and_then(|count| count.parse().ok()).ok_or(Damaged)?;
                Content::Parts(digest.clone(), count)
            }
            (None, None) => Content::Record(read_bytes(entry).ok_or(Damaged)?.to_vec()),
        };
        Ok((writer, content))
    }

    pub(super) fn read_head(head: &ConfigMap) -> Result<Head, Damaged> {
        let field = |name: &str| head.data.as_ref().and_then(|data| data.get(name)).ok_or(Damaged);
        Ok(Head {
            generation: field(GENERATION)?.clone(),
            first: field(FIRST)?.parse().map_err(|_| Damaged)?,
            resource_version: head.resource_version(),
        })
    }

    /// Returns the records and the position of the next one; none if the world does not exist.
    pub(super) fn read(&self, objects: Vec<ConfigMap>) -> Result<Option<Loaded>, Damaged> {
        let objects: BTreeMap<String, ConfigMap> =
            objects.into_iter().map(|object| (object.name_any(), object)).collect();
        let Some(head) = objects.get(&self.world) else {
            // Entries exist without a head only while the world is being deleted or restored.
            return if objects.is_empty() { Ok(None) } else { Err(Damaged) };
        };
        let head = Self::read_head(head)?;
        let mut position = Position {
            generation: head.generation.clone(),
            first: head.first,
            number: 0,
            passed: BTreeSet::new(),
            stale: BTreeSet::new(),
            head: Some(head),
        };

        let mut records = Vec::new();
        while let Some(entry) = objects.get(&self.entry_name(&position.generation, position.number)) {
            match Self::read_entry(entry)?.1 {
                Content::Record(record) => records.push(record),
                Content::Parts(digest, count) => {
                    records.push(self.join(&objects, &position.generation, &digest, count)?);
                }
                Content::Seal(next) => {
                    // The next generation was written before its seal, and a seal never refers to an earlier generation.
                    let is_old = next == position.generation || position.stale.contains(&next);
                    if is_old || !objects.contains_key(&self.entry_name(&next, 0)) {
                        return Err(Damaged);
                    }
                    position.follow(next);
                    position.number = 0;
                    records.clear();
                    continue;
                }
            }
            position.number = position.number.saturating_add(1);
        }

        let generation_of = |object: &ConfigMap| object.labels().get(labels::WORLD_GENERATION).cloned();
        position.stale = objects.values().filter_map(generation_of).collect();
        position.stale.remove(&position.generation);
        ensure_no_gap(&objects, &position)?;
        Ok(Some((position, records)))
    }

    fn join(
        &self,
        objects: &BTreeMap<String, ConfigMap>,
        generation: &str,
        digest: &str,
        count: usize,
    ) -> Result<Vec<u8>, Damaged> {
        let mut record = Vec::new();
        for number in 0..count {
            let part = objects.get(&self.part_name(generation, digest, number));
            record.extend(part.and_then(read_bytes).ok_or(Damaged)?);
        }
        Ok(record)
    }
}

/// Fails if an entry of the generation is missing between existing ones: a gap is not the end of the journal.
fn ensure_no_gap(objects: &BTreeMap<String, ConfigMap>, position: &Position) -> Result<(), Damaged> {
    let is_entry = |object: &&ConfigMap| {
        object.labels().get(labels::WORLD_GENERATION) == Some(&position.generation)
            && object.data.as_ref().is_some_and(|data| data.contains_key(WRITER))
    };
    let entries = objects.values().filter(is_entry).count();
    if u64::try_from(entries) == Ok(position.number) { Ok(()) } else { Err(Damaged) }
}

fn bytes(record: &[u8]) -> BTreeMap<String, ByteString> {
    BTreeMap::from([(RECORD.to_owned(), ByteString(record.to_vec()))])
}

fn read_bytes(object: &ConfigMap) -> Option<&[u8]> {
    object.binary_data.as_ref()?.get(RECORD).map(|bytes| bytes.0.as_slice())
}
