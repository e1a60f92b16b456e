//! The built-in classes, and how a class and a Machine's own spec are merged.

use vitistack_types::{
    Size,
    v1alpha1::{AccessMode, Disk, DiskDevice, MachineClass, MachineSpec, ReclaimPolicy, VolumeMode},
};

use super::{CpuShape, DesiredDisk};

/// What a template sets.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Processors; a template always sets them.
    pub cpu: Option<CpuShape>,
    /// Memory; a template always sets it.
    pub memory: Option<Size>,
    /// Disks, each with a size.
    pub disks: Vec<Disk>,
}

impl Template {
    /// Returns the built-in class of that name.
    pub fn built_in(name: &str) -> Option<Self> {
        let (cores, memory, root) = match name {
            "small" => (1, "2Gi", "20Gi"),
            "medium" => (2, "4Gi", "40Gi"),
            "large" => (4, "8Gi", "80Gi"),
            _ => return None,
        };
        let root =
            Disk::builder().name("root").maybe_size(root.parse().ok()).storage_class("default").build();
        Some(Self {
            cpu: Some(CpuShape { cores, threads: 1, sockets: 1 }),
            memory: memory.parse().ok(),
            disks: vec![root],
        })
    }
}

impl From<&MachineClass> for Template {
    fn from(class: &MachineClass) -> Self {
        let cpu = &class.spec.resources.cpu;
        Self {
            cpu: Some(CpuShape {
                cores: cpu.cores,
                threads: cpu.threads.unwrap_or(1),
                sockets: cpu.sockets.unwrap_or(1),
            }),
            memory: Some(class.spec.resources.memory.size.clone()),
            disks: class.spec.disks.clone(),
        }
    }
}

/// Returns the processors: each number comes from the Machine, otherwise from the template, otherwise it is 1.
pub fn cpu(template: &Template, spec: &MachineSpec) -> Option<CpuShape> {
    let own = spec.resources.as_ref().and_then(|resources| resources.cpu.clone()).unwrap_or_default();
    let base = template.cpu;
    Some(CpuShape {
        cores: own.cores.or(base.map(|base| base.cores))?,
        threads: own.threads.or(base.map(|base| base.threads)).unwrap_or(1),
        sockets: own.sockets.or(base.map(|base| base.sockets)).unwrap_or(1),
    })
}

/// Returns the memory: from the Machine, otherwise from the template.
pub fn memory(template: &Template, spec: &MachineSpec) -> Option<Size> {
    let own = spec.resources.as_ref().and_then(|resources| resources.memory.as_ref());
    own.map(|memory| memory.size.clone()).or_else(|| template.memory.clone())
}

/// Returns the disks: those of the template in their order, each overridden field by field by the Machine's disk of the
/// same name, then the Machine's own. The error is the name of a disk without a size.
pub fn disks(template: &Template, spec: &MachineSpec) -> Result<Vec<DesiredDisk>, String> {
    let own = |name: &str| spec.disks.iter().find(|disk| disk.name == name);
    let inherited = template.disks.iter().map(|disk| merged(disk, own(&disk.name)));
    let is_new = |disk: &&Disk| !template.disks.iter().any(|inherited| inherited.name == disk.name);
    let added = spec.disks.iter().filter(is_new).map(|disk| merged(disk, None));
    inherited.chain(added).collect()
}

fn merged(base: &Disk, over: Option<&Disk>) -> Result<DesiredDisk, String> {
    fn pick<T: Clone>(base: &Disk, over: Option<&Disk>, field: impl Fn(&Disk) -> &Option<T>) -> Option<T> {
        over.and_then(|over| field(over).clone()).or_else(|| field(base).clone())
    }
    Ok(DesiredDisk {
        name: base.name.clone(),
        size: pick(base, over, |disk| &disk.size).ok_or_else(|| base.name.clone())?,
        storage_class: pick(base, over, |disk| &disk.storage_class),
        access_mode: pick(base, over, |disk| &disk.access_mode).unwrap_or(AccessMode::ReadWriteOnce),
        volume_mode: pick(base, over, |disk| &disk.volume_mode).unwrap_or(VolumeMode::Filesystem),
        source: pick(base, over, |disk| &disk.source),
        device: pick(base, over, |disk| &disk.device).unwrap_or(DiskDevice::Disk),
        reclaim_policy: pick(base, over, |disk| &disk.reclaim_policy).unwrap_or(ReclaimPolicy::Delete),
    })
}
