package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/controller"
	"kubevirt.io/kubevirt/pkg/network/vmispec"
	storagetypes "kubevirt.io/kubevirt/pkg/storage/types"
)

const (
	// This annotation on an instance (or on the template of its VirtualMachine) controls what the guest does.
	guestAnnotation = "standin.vitistack.io/guest"
	// It starts, but virt-launcher never reports it as running.
	guestNeverRuns = "never-runs"
	// It crashes: before it runs, or immediately if it is already running.
	guestCrashes = "crashes"
	// It runs and then shuts down.
	guestShutsDown = "shuts-down"

	// The machine type that QEMU resolves the alias q35 to.
	machineType = "pc-q35-rhel9.6.0"
)

func (w *world) instanceInformer() cache.SharedIndexInformer {
	watch := cache.NewListWatchFromClient(w.handler.RestClient(), "virtualmachineinstances", metav1.NamespaceAll, fields.Everything())
	return cache.NewSharedIndexInformer(watch, &virtv1.VirtualMachineInstance{}, 0, cache.Indexers{})
}

// ReconcileInstance simulates virt-handler and the guest.
func (w *world) reconcileInstance(ctx context.Context, key string) error {
	instance := get[virtv1.VirtualMachineInstance](w.instances, key)
	if instance == nil {
		return nil
	}
	pods := w.podsOf(instance)
	// The pod may be waiting for the change of the instance.
	defer func() {
		for _, pod := range pods {
			w.pods.queue.Add(pod.Namespace + "/" + pod.Name)
		}
	}()
	if instance.Status.NodeName != w.node || !instance.IsScheduled() && !instance.IsRunning() {
		return nil
	}
	ends := instance.DeletionTimestamp != nil
	for _, pod := range pods {
		ends = ends || pod.DeletionTimestamp != nil
	}
	guest := instance.Annotations[guestAnnotation]
	changed := instance.DeepCopy()
	switch {
	case guest == guestCrashes && !ends, ends && instance.IsScheduled():
		changed.Status.Phase = virtv1.Failed
	case ends:
		changed.Status.Phase = virtv1.Succeeded
	case instance.IsScheduled() && guest != guestNeverRuns:
		setRunning(changed, pods)
	case instance.IsRunning() && guest == guestShutsDown:
		changed.Status.Phase = virtv1.Succeeded
	default:
		return nil
	}
	controller.SetVMIPhaseTransitionTimestamp(&instance.Status, &changed.Status)
	_, err := w.handler.VirtualMachineInstance(changed.Namespace).Update(ctx, changed, metav1.UpdateOptions{})
	return err
}

func (w *world) podsOf(instance *virtv1.VirtualMachineInstance) []*corev1.Pod {
	objects, err := w.pods.informer.GetIndexer().ByIndex(byOwner, string(instance.UID))
	if err != nil {
		return nil
	}
	var pods []*corev1.Pod
	for _, object := range objects {
		pods = append(pods, object.(*corev1.Pod))
	}
	return pods
}

// SetRunning sets what virt-handler reports for a running domain whose guest has no agent.
func setRunning(instance *virtv1.VirtualMachineInstance, pods []*corev1.Pod) {
	status := &instance.Status
	status.Phase = virtv1.Running
	status.Machine = &virtv1.Machine{Type: machineType}
	if status.Memory != nil {
		status.Memory.GuestCurrent = status.Memory.GuestRequested
	}
	setInterfaces(instance, pods)
	setTargets(instance)
	setMigratable(instance)
}

// SetInterfaces sets only the address of the pod network, because the others are reported by a guest agent.
func setInterfaces(instance *virtv1.VirtualMachineInstance, pods []*corev1.Pod) {
	status := &instance.Status
	network := vmispec.LookUpDefaultNetwork(instance.Spec.Networks)
	var interfaces []virtv1.VirtualMachineInstanceNetworkInterface
	for _, spec := range instance.Spec.Domain.Devices.Interfaces {
		reported := virtv1.VirtualMachineInstanceNetworkInterface{Name: spec.Name}
		if known := vmispec.LookupInterfaceStatusByName(status.Interfaces, spec.Name); known != nil {
			reported = *known
		}
		reported.MAC = spec.MacAddress
		if reported.MAC == "" {
			reported.MAC = hardwareAddress(string(instance.UID), spec.Name)
		}
		reported.InfoSource = vmispec.AddInfoSource(reported.InfoSource, vmispec.InfoSourceDomain)
		reported.QueueCount, reported.LinkState = 1, "up"
		if network != nil && network.Name == spec.Name && len(pods) > 0 {
			reported.IP, reported.IPs = pods[0].Status.PodIP, []string{pods[0].Status.PodIP}
		}
		interfaces = append(interfaces, reported)
	}
	status.Interfaces = interfaces
}

// HardwareAddress derives a stable MAC address for an interface of an instance.
func hardwareAddress(instance, name string) string {
	sum := sha256.Sum256([]byte(instance + name))
	return net.HardwareAddr{0x02, sum[0], sum[1], sum[2], sum[3], sum[4]}.String()
}

// SetTargets sets the device names of the disks in the guest: vda, vdb … on virtio, sda, sdb … on SATA, SCSI and USB.
func setTargets(instance *virtv1.VirtualMachineInstance) {
	used := map[string]int{}
	targets := map[string]string{}
	for _, disk := range instance.Spec.Domain.Devices.Disks {
		prefix := "sd"
		if disk.Disk != nil && disk.Disk.Bus == virtv1.DiskBusVirtio {
			prefix = "vd"
		}
		targets[disk.Name] = fmt.Sprintf("%s%c", prefix, 'a'+used[prefix])
		used[prefix]++
	}
	for i := range instance.Status.VolumeStatus {
		volume := &instance.Status.VolumeStatus[i]
		volume.Target = targets[volume.Name]
	}
}

// SetMigratable decides by network and claims, which usually determine whether a VirtualMachine can migrate.
func setMigratable(instance *virtv1.VirtualMachineInstance) {
	condition := virtv1.VirtualMachineInstanceCondition{
		Type: virtv1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue,
	}
	refuse := func(reason, message string) {
		condition.Status, condition.Reason, condition.Message = corev1.ConditionFalse, reason, message
	}
	instance.Status.MigrationMethod = virtv1.LiveMigration
	for _, volume := range instance.Status.VolumeStatus {
		claim := volume.PersistentVolumeClaimInfo
		if claim != nil && !storagetypes.HasSharedAccessMode(claim.AccessModes) {
			refuse(virtv1.VirtualMachineInstanceReasonDisksNotMigratable, fmt.Sprintf(
				"cannot migrate VMI: PVC %s is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)",
				claim.ClaimName))
			instance.Status.MigrationMethod = virtv1.BlockMigration
		}
	}
	if err := vmispec.VerifyVMIMigratable(instance, nil); err != nil {
		refuse(virtv1.VirtualMachineInstanceReasonInterfaceNotMigratable, err.Error())
	}
	conditions := controller.NewVirtualMachineInstanceConditionManager()
	conditions.UpdateCondition(instance, &condition)
}
