//! Every field of a machine, with a change for it.

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
    CLAIM, Failure, Harness, Resource, STORAGE_CLASS,
    driver::{Driver, each, ensure, ensure_same},
    fixture::{attached_network, disk, interface, order, parse},
};
use crate::{ErrorKind, Order};

/// The kind of a change, which decides which capability applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Resize,
    GrowDisk,
    Disks,
    Interfaces,
    Hardware,
    /// Only recorded by the provider, effective immediately.
    Policy,
    /// First-boot configuration: recorded immediately, used at the next first boot.
    FirstBoot,
    /// Immutable by the CRD.
    Immutable,
    Power,
}

/// A field of the spec and another value for it.
pub(super) struct Field {
    pub(super) path: &'static str,
    pub(super) change: Change,
    set: fn(&mut Desired, &[String]) -> Result<(), Failure>,
}

impl Field {
    /// Whether the backend lists the field, or a parent of it, as refused.
    pub(super) fn is_refused_by(&self, capabilities: &Capabilities) -> bool {
        capabilities.refused_fields.iter().any(|refused| {
            self.path.strip_prefix(refused).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }

    /// Returns the order with another value for this field.
    pub(super) fn changed(&self, order: &Order, zones: &[String]) -> Result<Order, Failure> {
        let mut order = order.clone();
        (self.set)(&mut order.desired, zones)?;
        Ok(order)
    }
}

/// Stops compiling when a field is added, as a reminder to extend [`all`].
fn ensure_all_fields_are_listed(desired: &Desired) {
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

/// Returns every field.
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
        "zone" Immutable |desired, zones| desired.zone = zones.last().cloned();
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
        "disks.storageClass" Immutable |desired| data(desired).for_each(|disk| disk.storage_class = Some(STORAGE_CLASS.to_owned()));
        "disks.accessMode" Immutable |desired| data(desired).for_each(|disk| disk.access_mode = AccessMode::ReadWriteMany);
        "disks.volumeMode" Immutable |desired| data(desired).for_each(|disk| disk.volume_mode = VolumeMode::Block);
        "disks.source.image" Immutable |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::image("registry.example.com/disk:1")));
        "disks.source.url" Immutable |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::url("https://images.example.com/disk.img")));
        "disks.source.claim" Immutable |desired| data(desired).for_each(|disk| disk.source = Some(DiskSource::claim(CLAIM)));
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

/// Two machines that differ in one field must also differ at the provider.
pub(super) async fn every_field_is_honored(harness: &dyn Harness) -> Result<(), Failure> {
    let plain = order("one")?;
    ensure_all_fields_are_listed(&plain.desired);
    let driver = Driver::start(harness).await?;
    driver.create(&plain).await?;
    let without = configuration(&driver.resources_of(&plain.target).await?);
    // Placement is not part of the configuration at the provider; it has its own rule.
    let fields = all().into_iter().filter(|field| field.path != "zone");
    each(fields, |field| check_honored(harness, field, &plain, &without)).await
}

/// Returns the configuration of the resources.
fn configuration(resources: &[Resource]) -> Vec<Value> {
    resources.iter().map(|resource| resource.given.clone()).collect()
}

async fn check_honored(
    harness: &dyn Harness,
    field: Field,
    plain: &Order,
    without: &[Value],
) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let capabilities = driver.testbed.backend().capabilities();
    let order = field.changed(plain, &driver.testbed.zones())?;
    if field.change == Change::Power {
        if !capabilities.power {
            return Ok(());
        }
        driver.create(&order).await?;
        let power = driver.machine(&order).await?.power;
        return ensure_same("power of a machine created as stopped", &power, &Power::Stopped);
    }

    if field.is_refused_by(&capabilities) {
        let answer = driver.try_create(&order).await;
        let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
        driver.settle().await?;
        let with = configuration(&driver.resources_of(&order.target).await?);
        return ensure(is_refused || with == without, || {
            format!("{} is listed as refused but has an effect", field.path)
        });
    }

    driver.create(&order).await?;
    let with = configuration(&driver.resources_of(&order.target).await?);
    ensure(with != without, || {
        format!("{} is neither passed to the provider nor listed as refused", field.path)
    })?;
    let is_current = driver.machine(&order).await?.is_current;
    ensure(is_current, || format!("a new machine with {} is not current", field.path))
}

pub(super) async fn zones_are_honored(harness: &dyn Harness) -> Result<(), Failure> {
    let driver = Driver::start(harness).await?;
    let capabilities = driver.testbed.backend().capabilities();
    let mut order = order("one")?;
    if !capabilities.zones {
        let is_listed = capabilities.refused_fields.contains(&"zone");
        return ensure(is_listed, || {
            "zones are not supported and `zone` is not listed as refused".to_owned()
        });
    }

    let zones = driver.testbed.zones();
    ensure(zones.len() >= 2, || "the testbed of a backend with zones needs at least two zones".to_owned())?;

    for zone in &zones {
        let driver = Driver::start(harness).await?;
        order.desired.zone = Some(zone.clone());
        driver.create(&order).await?;
        ensure_same("zone", &driver.machine(&order).await?.zone, &Some(zone.clone()))?;
    }

    let before = driver.resources().await?;
    order.desired.zone = Some("conformance-nowhere".to_owned());
    let observed = driver.observe(&order).await?;
    ensure(!observed.problems.is_empty(), || {
        "an unknown zone is not reported as a problem before the machine is created".to_owned()
    })?;
    let answer = driver.try_create(&order).await;
    let is_refused = answer.as_ref().is_err_and(|error| error.kind == ErrorKind::Refused);
    ensure(is_refused, || format!("expected an unknown zone to be refused, found {answer:?}"))?;
    ensure_same("resources afterwards", &driver.resources().await?, &before)
}
