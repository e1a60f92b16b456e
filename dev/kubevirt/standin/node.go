package main

import (
	"context"
	"fmt"
	"log"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	leaseInterval = 10 * time.Second
	// The controller manager considers a node unhealthy when its lease is 50 s old, virt-controller when its heartbeat is
	// 5 min old.
	heartbeatEvery = 6
	nodeAddress    = "192.0.2.1"
)

// NodeLabels are the labels that the kubelet and the labeler of virt-handler set on an ordinary Intel machine;
// virt-launcher pods select nodes by them.
func nodeLabels(name string) map[string]string {
	labels := map[string]string{
		corev1.LabelHostname:                        name,
		corev1.LabelArchStable:                      "amd64",
		corev1.LabelOSStable:                        "linux",
		virtv1.NodeSchedulable:                      "true",
		virtv1.CPUManager:                           "true",
		virtv1.DeprecatedCPUManager:                 "true",
		virtv1.HostModelCPULabel + "Skylake-Server": "true",
		virtv1.CPUModelVendorLabel + "Intel":        "true",
		virtv1.CPUTimerLabel + "tsc-frequency":      "2400000000",
		virtv1.CPUTimerLabel + "tsc-scalable":       "true",
	}
	for prefix, names := range map[string][]string{
		virtv1.SupportedMachineTypeLabel: {"q35", machineType, "pc-q35-rhel9.4.0", "pc-q35-rhel9.2.0"},
		virtv1.CPUModelLabel:             {"qemu64", "Penryn", "Westmere", "SandyBridge", "IvyBridge", "Haswell", "Broadwell", "Skylake-Client", "Skylake-Server"},
		virtv1.CPUFeatureLabel:           {"aes", "avx", "avx2", "ssse3", "vmx"},
		virtv1.HypervLabel:               {"base", "frequencies", "ipi", "reenlightenment", "reset", "runtime", "synic", "synic2", "synictimer", "time", "tlbflush", "vpindex"},
	} {
		for _, name := range names {
			labels[prefix+name] = "true"
		}
	}
	return labels
}

// Allocatable is enough for thousands of machines, but a test can exceed it on purpose.
func allocatable() corev1.ResourceList {
	list := corev1.ResourceList{}
	for name, quantity := range map[corev1.ResourceName]string{
		corev1.ResourceCPU:              "100k",
		corev1.ResourceMemory:           "100Ti",
		corev1.ResourceEphemeralStorage: "100Ti",
		corev1.ResourcePods:             "100k",
		"hugepages-2Mi":                 "1Ti",
		"hugepages-1Gi":                 "1Ti",
		"devices.kubevirt.io/kvm":       "100k",
		"devices.kubevirt.io/tun":       "100k",
		"devices.kubevirt.io/vhost-net": "100k",
	} {
		list[name] = resource.MustParse(quantity)
	}
	return list
}

// KeepNode creates the node and renews its lease and heartbeat until the context ends.
func (w *world) keepNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.node, Labels: nodeLabels(w.node)}}
	if _, err := w.kubernetes.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("failed to create the node: %w", err)
	}
	ticker := time.NewTicker(leaseInterval)
	defer ticker.Stop()
	for beat := 0; ; beat++ {
		if err := w.renewLease(ctx); err != nil {
			log.Printf("lease: %v", err)
		}
		if beat%heartbeatEvery == 0 {
			// The controller manager also updates a new node, so the first attempt often conflicts.
			err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { return w.sendHeartbeat(ctx) })
			if err != nil {
				log.Printf("heartbeat: %v", err)
				beat-- // due again with the next lease
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (w *world) renewLease(ctx context.Context) error {
	leases := w.kubernetes.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now, seconds := metav1.NowMicro(), int32(40)
	lease, err := leases.Get(ctx, w.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: w.node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &w.node, LeaseDurationSeconds: &seconds, RenewTime: &now},
		}, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// SendHeartbeat updates the status as the kubelet does, and the annotation and label as virt-handler does.
func (w *world) sendHeartbeat(ctx context.Context) error {
	nodes := w.kubernetes.CoreV1().Nodes()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"true"},"annotations":{%q:%q}}}`,
		virtv1.NodeSchedulable, virtv1.VirtHandlerHeartbeat, time.Now().UTC().Format(time.RFC3339))
	node, err := nodes.Patch(ctx, w.node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	node = node.DeepCopy()
	now := metav1.Now()
	node.Status.Capacity, node.Status.Allocatable = allocatable(), allocatable()
	node.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: nodeAddress}, {Type: corev1.NodeHostName, Address: w.node},
	}
	node.Status.NodeInfo.Architecture, node.Status.NodeInfo.OperatingSystem = "amd64", "linux"
	since := now
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			since = condition.LastTransitionTime
		}
	}
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "the stand-in is ready",
		LastHeartbeatTime: now, LastTransitionTime: since,
	}}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}
