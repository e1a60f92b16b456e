//! What differs between two desired states of a machine, part by part.

use std::fmt::Display;

use vitistack_types::v1alpha1::{PowerState, ReclaimPolicy};

use crate::machine::{CpuShape, Desired, DesiredDisk, DesiredInterface};

/// A part of a machine, by what a backend has to be able to do to change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Processors and memory.
    Size,
    /// The size of a disk that grows.
    DiskSize,
    /// The list of disks, and how the machine sees them.
    Disks,
    /// The list of interfaces.
    Interfaces,
    /// Everything else that a machine consists of.
    Hardware,
    /// What every backend changes immediately.
    Immediate,
    /// What no backend can change.
    Fixed,
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) part: Part,
    pub(super) what: String,
    /// What follows from it, as the end of the sentence.
    pub(super) consequence: &'static str,
    /// Whether data is deleted with it.
    pub(super) destroys: bool,
}

impl Desired {
    /// Whether it is to be stopped.
    pub(super) fn is_off(&self) -> bool {
        self.power == PowerState::Stopped
    }
}

/// Returns every difference.
pub(super) fn differences(before: &Desired, after: &Desired) -> Vec<Difference> {
    let mut found = removed_disks(&before.disks, &after.disks);
    let mut add =
        |part, what: String| found.push(Difference { part, what, consequence: "", destroys: false });
    if before.cpu != after.cpu {
        let print = |cpu: CpuShape| {
            format!(
                "{} CPU ({} sockets × {} cores × {} threads)",
                cpu.total(),
                cpu.sockets,
                cpu.cores,
                cpu.threads
            )
        };
        let is_same_total = before.cpu.total() == after.cpu.total();
        let (old, new) = if is_same_total {
            (print(before.cpu), print(after.cpu))
        } else {
            (before.cpu.total().to_string(), after.cpu.total().to_string())
        };
        add(Part::Size, arrow("cpu", old, new));
    }
    if before.memory != after.memory {
        add(Part::Size, arrow("memory", &before.memory, &after.memory));
    }
    if before.boot_order != after.boot_order {
        add(Part::Hardware, "the boot order changes".to_owned());
    }
    if before.domain != after.domain {
        add(Part::Hardware, "the virtual hardware (domain) changes".to_owned());
    }
    if before.cloud_init != after.cloud_init {
        add(Part::Hardware, "the first-boot configuration (cloudInit) changes".to_owned());
    }
    if after.zone.is_some() && before.zone != after.zone {
        let none = "none".to_owned();
        add(
            Part::Fixed,
            arrow("zone", before.zone.as_ref().unwrap_or(&none), after.zone.as_ref().unwrap_or(&none)),
        );
    }
    if before.power != after.power {
        let what = if after.is_off() { "it is stopped" } else { "it is started" };
        add(Part::Immediate, what.to_owned());
    }
    disks(&before.disks, &after.disks, &mut add);
    interfaces(&before.interfaces, &after.interfaces, &mut add);
    found
}

fn arrow(what: &str, old: impl Display, new: impl Display) -> String {
    format!("{what}: {old} → {new}")
}

fn removed_disks(before: &[DesiredDisk], after: &[DesiredDisk]) -> Vec<Difference> {
    let is_removed = |old: &&DesiredDisk| !after.iter().any(|new| new.name == old.name);
    let difference = |old: &DesiredDisk| Difference {
        part: Part::Disks,
        what: format!("disk {} of {} is removed", old.name, old.size),
        consequence: match old.reclaim_policy {
            ReclaimPolicy::Delete => "; its volume is deleted with all data (reclaimPolicy Delete)",
            ReclaimPolicy::Retain => "; its volume is retained (reclaimPolicy Retain)",
        },
        destroys: old.reclaim_policy == ReclaimPolicy::Delete,
    };
    before.iter().filter(is_removed).map(difference).collect()
}

fn disks(before: &[DesiredDisk], after: &[DesiredDisk], add: &mut impl FnMut(Part, String)) {
    for new in after {
        let name = &new.name;
        let Some(old) = before.iter().find(|old| old.name == *name) else {
            add(Part::Disks, format!("disk {name} of {} is added", new.size));
            continue;
        };
        if old.size != new.size {
            let part = if new.size > old.size { Part::DiskSize } else { Part::Fixed };
            add(part, arrow(&format!("disk {name}"), &old.size, &new.size));
        }
        let fixed = [
            ("storageClass", old.storage_class != new.storage_class),
            ("accessMode", old.access_mode != new.access_mode),
            ("volumeMode", old.volume_mode != new.volume_mode),
            ("source", old.source != new.source),
        ];
        for (field, _) in fixed.into_iter().filter(|(_, is_changed)| *is_changed) {
            add(Part::Fixed, format!("disk {name} gets another {field}"));
        }
        if old.device != new.device {
            add(Part::Disks, format!("disk {name} is seen as another device"));
        }
        if old.reclaim_policy != new.reclaim_policy {
            let print = |policy| match policy {
                ReclaimPolicy::Delete => "Delete",
                ReclaimPolicy::Retain => "Retain",
            };
            let what = format!("disk {name} reclaimPolicy");
            add(Part::Immediate, arrow(&what, print(old.reclaim_policy), print(new.reclaim_policy)));
        }
    }
}

fn interfaces(before: &[DesiredInterface], after: &[DesiredInterface], add: &mut impl FnMut(Part, String)) {
    for old in before.iter().filter(|old| !after.iter().any(|new| new.name == old.name)) {
        add(Part::Interfaces, format!("interface {} is removed", old.name));
    }
    for new in after {
        match before.iter().find(|old| old.name == new.name) {
            None => {
                let network = &new.network.name;
                add(Part::Interfaces, format!("interface {} on network {network} is added", new.name));
            }
            Some(old) if old.network.name != new.network.name => {
                let what = format!("interface {} network", new.name);
                add(Part::Interfaces, arrow(&what, &old.network.name, &new.network.name));
            }
            Some(old) if old != new => {
                add(Part::Interfaces, format!("interface {} changes", new.name));
            }
            Some(_) => {}
        }
    }
}
