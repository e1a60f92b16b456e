//! Everything that is not ready or not up to date, grouped by cause, worst first.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use jiff::Timestamp;
use serde::Serialize;
use vitistack_types::ObjectId;

use super::{Cause, Facts, LinkTarget, find, ready};
use crate::{
    Inventory,
    inventory::{InventoryObject, is_ready},
};

/// How bad a cause is; the worst comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// A person has to change something.
    Failing,
    /// Something is in progress, and no person is required.
    Waiting,
    /// The objects are ready, but not as specified.
    Degraded,
}

/// One cause, and all objects that it blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CauseGroup {
    /// How bad it is for the object that it affects most.
    pub severity: Severity,
    /// The cause. Its time is that of the object that was blocked first.
    #[serde(flatten)]
    pub cause: Cause,
    /// The objects: first the one that is the cause, if it is one of them, then by kind and name.
    pub objects: Vec<ObjectId>,
}

/// Everything that is not ready or not up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Overview {
    /// How many objects are not ready or not up to date.
    pub count: usize,
    /// The causes, worst first. An object with several causes is in several groups.
    pub causes: Vec<CauseGroup>,
}

/// What the causes of a group have in common.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    reason: String,
    /// The object that has to change; absent if each Machine is its own cause.
    root: Option<String>,
    /// The message, where each Machine is its own cause and a person has to act.
    message: String,
}

impl GroupKey {
    fn new(subject: InventoryObject<'_>, cause: &Cause) -> Self {
        let is_own =
            matches!(subject, InventoryObject::Machine(_)) && cause.object.object() == Some(&subject.id());
        let root = match &cause.missing {
            Some(missing) => Some(missing.to_string()),
            None => (!is_own).then(|| cause.object.to_string()),
        };
        // What is in progress has messages that differ by the number of a task.
        let is_distinct = root.is_none() && !cause.is_in_progress();
        let message = if is_distinct { cause.message.clone() } else { String::new() };
        Self { reason: cause.reason.clone(), root, message }
    }
}

/// Explains every object of a namespace, or of all, and groups those that something blocks by what that is. Objects without a
/// namespace are always included.
#[must_use]
pub fn overview(inventory: &Inventory, namespace: Option<&str>) -> Overview {
    let facts = Facts::new(inventory);
    let mut groups: BTreeMap<GroupKey, Collected> = BTreeMap::new();
    let mut blocked: BTreeSet<ObjectId> = BTreeSet::new();

    let is_selected = |object: &InventoryObject<'_>| {
        let own = object.metadata().namespace.as_deref();
        own.is_none() || namespace.is_none() || own == namespace
    };
    for object in inventory.objects().filter(is_selected) {
        let finding = find(object, &facts);
        for cause in finding.cause.into_iter().chain(finding.further) {
            blocked.insert(object.id());
            let severity = severity(object, &cause);
            let key = GroupKey::new(object, &cause);
            match groups.get_mut(&key) {
                Some(collected) => collected.add(object.id(), severity, &cause),
                None => {
                    groups.insert(key, Collected::new(object.id(), severity, cause));
                }
            }
        }
    }

    let mut causes: Vec<CauseGroup> = groups.into_values().map(Collected::into_group).collect();
    causes.iter_mut().for_each(CauseGroup::sort);
    causes.sort_by_cached_key(CauseGroup::rank);
    Overview { count: blocked.len(), causes }
}

/// How bad a cause is for an object.
fn severity(object: InventoryObject<'_>, cause: &Cause) -> Severity {
    let is_ready = match object {
        InventoryObject::Machine(machine) => is_ready(machine),
        _ => {
            object.metadata().deletion_timestamp.is_none()
                && ready(object.conditions()).is_some_and(|ready| ready.status == "True")
        }
    };
    if cause.is_in_progress() {
        Severity::Waiting
    } else if is_ready {
        Severity::Degraded
    } else {
        Severity::Failing
    }
}

/// A group while its objects are collected.
struct Collected {
    group: CauseGroup,
    /// Whether the objects have different messages.
    messages_differ: bool,
    /// Whether the objects have different fixes: a command is for one object.
    fixes_differ: bool,
}

impl Collected {
    fn new(object: ObjectId, severity: Severity, cause: Cause) -> Self {
        let group = CauseGroup { severity, cause, objects: vec![object] };
        Self { group, messages_differ: false, fixes_differ: false }
    }

    /// Adds an object that has the same cause.
    fn add(&mut self, object: ObjectId, severity: Severity, cause: &Cause) {
        let group = &mut self.group;
        group.severity = group.severity.min(severity);
        group.cause.since = [group.cause.since, cause.since].into_iter().flatten().min();
        self.messages_differ |= group.cause.message != cause.message;
        self.fixes_differ |= group.cause.fix != cause.fix;
        group.objects.push(object);
    }

    /// Returns the group. The message and the fix of the first object stand for those of the others.
    fn into_group(self) -> CauseGroup {
        let mut group = self.group;
        if self.messages_differ {
            group.cause.message = format!("for example: {}", group.cause.message);
        }
        if let Some(fix) = group.cause.fix.as_mut().filter(|_| self.fixes_differ) {
            fix.push_str(", and the same for the others");
        }
        group
    }
}

impl CauseGroup {
    /// Whether an object is itself the cause.
    fn is_cause(&self, object: &ObjectId) -> bool {
        self.cause.object.object() == Some(object)
    }

    /// Sorts the objects: the cause, then the others.
    fn sort(&mut self) {
        let mut objects = std::mem::take(&mut self.objects);
        objects.sort_by_cached_key(|object| (!self.is_cause(object), object.clone()));
        objects.dedup();
        self.objects = objects;
    }

    /// The order of causes: worse, more objects, older, then by name.
    fn rank(&self) -> (Severity, Reverse<usize>, Timestamp, String) {
        let since = self.cause.since.unwrap_or(Timestamp::MAX);
        let name = format!("{} {}", self.cause.object, self.cause.reason);
        (self.severity, Reverse(self.objects.len()), since, name)
    }

    /// The cause, if it is not one of the objects.
    #[must_use]
    pub fn blocked_by(&self) -> Option<&LinkTarget> {
        let is_listed = self.objects.iter().any(|object| self.is_cause(object));
        (!is_listed).then_some(&self.cause.object)
    }
}
