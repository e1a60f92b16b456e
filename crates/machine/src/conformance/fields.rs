//! Every field of a machine, with a change of it.

use serde_json::Value;
use vitistack_plan::{
    Redacted,
    machine::{Capabilities, Desired, DesiredCloudInit, DesiredDisk, DesiredInterface, Power, SecretPart},
};
use vitistack_types::v1alpha1::{
    AccessMode, BootDevice, Bootloader, DiskDevice, DiskSource, Domain, DomainMachine, Features, Firmware,
    MachineType, NetworkModel, PowerState, ReclaimPolicy, VolumeMode,
};

use super::{
    CLAIM, Failure, Harness, STORAGE_CLASS, Thing,
    fixture::{attached_network, disk, interface, order, parse},
    scene::{Scene, each, ensure, ensure_same},
};
use crate::{ErrorKind, Order};

/// What kind of change it is, which says where the capabilities speak of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Resize,
    GrowDisk,
    Disks,
    Interfaces,
    Hardware,
    /// What the provider only notes: taken at once.
    Policy,
    /// First-boot configuration: noted at once, of use when the machine next boots for the first time.
    FirstBoot,
    /// Set once; the definition of the kind lets nobody change it.
    Once,
    Power,
}

/// One field of the spec and another value for it.
pub(super) struct Field {
    pub(super) path: &'static str,
    pub(super) change: Change,
    set: fn(&mut Desired, &[String]) -> Result<(), Failure>,
}

impl Field {
    /// Whether the backend says that it cannot honour the field, by its path or one above it.
    pub(super) fn is_refused_by(&self, capabilities: &Capabilities) -> bool {
        capabilities.refused_fields.iter().any(|refused| {
            self.path.strip_prefix(refused).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// The order with another value in this field.
    pub(super) fn changed(&self, order: &Order, zones: &[String]) -> Result<Order, Failure> {
        let mut order = order.clone();
        (self.set)(&mut order.desired, zones)?;
        Ok(order)
    }
}

/// A new field does not compile until it stands here, and then somebody remembers [`all`].
fn every_field_stands_in_the_table(desired: &Desired) {
    let Desired {
        name: _,
        namespace: _,
        cpu: _,
        memory: _,
        disks,
        interfaces,
        boot_order: _,
        cloud_init,
        domain: Domain { machine: _, features, firmware },
        zone: _,
        power: _,
    } = desired;
    for DesiredDisk {
        name: _,
        size: _,
        storage_class: _,
        access_mode: _,
        volume_mode: _,
        source: _,
        device: _,
        reclaim_policy: _,
    } in disks
    {}
    for DesiredInterface { name: _, network: _, model: _, mac_address: _ } in interfaces {}
    if let Some(DesiredCloudInit { user_data: _, network_data: _, secret: _ }) = cloud_init {}
    if let Some(Features { acpi: _, apic: _, hyperv: _ }) = features {}
    if let Some(Firmware { bootloader: Some(Bootloader { efi: _, secure_boot: _ }) }) = firmware {}
}

fn data(desired: &mut Desired) -> impl Iterator<Item = &mut DesiredDisk> {
    desired.disks.iter_mut().filter(|disk| disk.name == "data")
}

macro_rules! fields {
    ($($path:literal $change:ident |$desired:ident $(, $zones:ident)?| $set:expr;)*) => {
        vec![$(Field {
            path: $path,
            change: Change::$change,
            set: |$desired, fields!(@zones $($zones)?)| { $set; Ok(()) },
        },)*]
    };
    (@zones $zones:ident) => { $zones };
    (@zones) => { _ };
}

/// Every field there is.
pub(super) fn all() -> Vec<Field> {
    let mut fields = fields! {
        "resources.cpu.cores" Resize |desired| desired.cpu.cores = 2;
        "resources.cpu.threads" Resize |desired| desired.cpu.threads = 2;
        "resources.cpu.sockets" Resize |desired| desired.cpu.sockets = 2;
        "resources.memory.size" Resize |desired| desired.memory = parse("2Gi")?;
        "networks" Interfaces |desired| desired.interfaces.push(interface("eth1", 1));
        "networks" Interfaces |desired| desired.interfaces.clear();
        "networks.networkName" Interfaces |desired| desired.interfaces.iter_mut().for_each(|interface| interface.network = attached_network(1));
        "networks.model" Interfaces |desired| desired.interfaces.iter_mut().for_each(|interface| interface.model = NetworkModel::E1000);
        "networks.macAddress" Interfaces |desired| {
            let mac_address = parse("52:54:00:12:34:56")?;
            desired.interfaces.iter_mut().for_each(|interface| interface.mac_address = Some(mac_address));
        };
        "bootOrder" Hardware |desired| desired.boot_order = vec![BootDevice::Network, BootDevice::Disk];
        "domain.machine.type" Hardware |desired| desired.domain.machine = Some(DomainMachine { type_: MachineType::Q35 });
        "domain.features.acpi" Hardware |desired| desired.domain.features = Some(Features { acpi: Some(false), ..Features::default() });
        "domain.features.apic" Hardware |desired| desired.domain.features = Some(Features { apic: Some(true), ..Features::default() });
        "domain.features.hyperv" Hardware |desired| desired.domain.features = Some(Features { hyperv: Some(true), ..Features::default() });
        "domain.firmware.bootloader.efi" Hardware |desired| desired.domain.firmware = Some(firmware(false));
        "domain.firmware.bootloader.secureBoot" Hardware |desired| desired.domain.firmware = Some(firmware(true));
        "cloudInit.userData" FirstBoot |desired| desired.cloud_init = Some(DesiredCloudInit { user_data: Some("#cloud-config\n".to_owned()), ..no_cloud_init() });
        "cloudInit.networkData" FirstBoot |desired| desired.cloud_init = Some(DesiredCloudInit { network_data: Some("version: 2\n".to_owned()), ..no_cloud_init() });
        "cloudInit.secretRef" FirstBoot |desired| desired.cloud_init = Some(DesiredCloudInit { secret: Some(secret_part()), ..no_cloud_init() });
        "zone" Once |desired, zones| desired.zone = zones.last().cloned();
        "powerState" Power |desired| desired.power = PowerState::Stopped;
    };
    fields.extend(disk_fields());
    fields
}

fn disk_fields() -> Vec<Field> {
    fields! {
        "disks" Disks |desired| desired.disks.push(disk("extra", parse("1Gi")?, ReclaimPolicy::Delete));
        "disks" Disks |desired| desired.disks.retain(|disk| disk.name != "data");
        "disks.device" Disks |desired| data(desired).for_each(|disk| disk.device = DiskDevice::Cdrom);
        "disks.size" GrowDisk |desired| {
            let size = parse::<vitistack_types::Size>("2Gi")?;
            data(desired).for_each(|disk| disk.size = size.clone());
        };
        "disks.reclaimPolicy" Policy |desired| data(desired).for_each(|disk| disk.reclaim_policy = ReclaimPolicy::Delete);
        "disks.storageClass" Once |desired| data(desired).for_each(|disk| disk.storage_class = Some(STORAGE_CLASS.to_owned()));
        "disks.accessMode" Once |desired| data(desired).for_each(|disk| disk.access_mode = AccessMode::ReadWriteMany);
        "disks.volumeMode" Once |desired| data(desired).for_each(|disk| disk.volume_mode = VolumeMode::Block);
        "disks.source.image" Once |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::image("registry.example/disk:1")));
        "disks.source.url" Once |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::url("https://images.example/disk.img")));
        "disks.source.claim" Once |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::claim(CLAIM)));
    }
}

fn firmware(secure_boot: bool) -> Firmware {
    let bootloader = Bootloader { efi: Some(true), secure_boot: secure_boot.then_some(true) };
    Firmware { bootloader: Some(bootloader) }
}

fn no_cloud_init() -> DesiredCloudInit {
    DesiredCloudInit { user_data: None, network_data: None, secret: None }
}

fn secret_part() -> SecretPart {
    SecretPart {
        name: "conformance-secret".to_owned(),
        key: "userdata".to_owned(),
        content: Redacted::new("#cloud-config\nhostname: secret\n".to_owned()),
    }
}

/// Two machines that differ in one field have to differ at the provider too.
pub(super) async fn every_field_is_honoured(harness: &dyn Harness) -> Result<(), Failure> {
    let plain = order("one")?;
    every_field_stands_in_the_table(&plain.desired);
    let scene = Scene::fresh(harness).await?;
    scene.make(&plain).await?;
    let without = told(&scene.things_of(&plain.target).await?);
    // Placement is the provider's own unless asked for, so it is not in what was given: it has its own rule.
    let fields = all().into_iter().filter(|field| field.path != "zone");
    each(fields, |field| is_honoured(harness, field, &plain, &without)).await
}

/// What the things were told to be.
fn told(things: &[Thing]) -> Vec<Value> {
    things.iter().map(|thing| thing.given.clone()).collect()
}

async fn is_honoured(
    harness: &dyn Harness,
    field: Field,
    plain: &Order,
    without: &[Value],
) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let capabilities = scene.bench.backend().capabilities();
    let order = field.changed(plain, &scene.bench.zones())?;
    if field.change == Change::Power {
        if !capabilities.power {
            return Ok(());
        }
        scene.make(&order).await?;
        let power = scene.machine(&order).await?.power;
        return ensure_same("power of a machine made to be off", &power, &Power::Stopped);
    }
    if field.is_refused_by(&capabilities) {
        let answer = scene.try_create(&order).await;
        let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
        scene.settle().await?;
        let with = told(&scene.things_of(&order.target).await?);
        return ensure(is_refused || with == without, || {
            format!("{} is listed as refused and has an effect all the same", field.path)
        });
    }
    scene.make(&order).await?;
    let with = told(&scene.things_of(&order.target).await?);
    ensure(with != without, || {
        format!("{} is neither given to the provider nor listed as refused", field.path)
    })?;
    let is_current = scene.machine(&order).await?.is_current;
    ensure(is_current, || format!("a machine just made with {} is not current", field.path))
}

pub(super) async fn zones_are_honoured(harness: &dyn Harness) -> Result<(), Failure> {
    let scene = Scene::fresh(harness).await?;
    let capabilities = scene.bench.backend().capabilities();
    let mut order = order("one")?;
    if !capabilities.zones {
        let is_told = capabilities.refused_fields.contains(&"zone");
        return ensure(is_told, || "zones are not honoured and `zone` is not listed as refused".to_owned());
    }
    let zones = scene.bench.zones();
    ensure(zones.len() >= 2, || {
        "the bench has to have two zones for a backend that honours them".to_owned()
    })?;
    for zone in &zones {
        let scene = Scene::fresh(harness).await?;
        order.desired.zone = Some(zone.clone());
        scene.make(&order).await?;
        ensure_same("the zone it is in", &scene.machine(&order).await?.zone, &Some(zone.clone()))?;
    }
    let before = scene.things().await?;
    order.desired.zone = Some("conformance-nowhere".to_owned());
    let observed = scene.observe(&order).await?;
    ensure(!observed.problems.is_empty(), || {
        "an unknown zone is not told as a problem before the machine is made".to_owned()
    })?;
    let answer = scene.try_create(&order).await;
    let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
    ensure(is_refused, || format!("an unknown zone has to be refused, found {answer:?}"))?;
    ensure_same("things after it", &scene.things().await?, &before)
}
