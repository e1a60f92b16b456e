package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	virtv1 "kubevirt.io/api/core/v1"
)

const (
	// The annotation that Multus reads from a pod, and the one that it writes.
	networksAnnotation      = "k8s.v1.cni.cncf.io/networks"
	networkStatusAnnotation = "k8s.v1.cni.cncf.io/network-status"
	// The retry interval for a pod that could not be scheduled.
	placeAgain = 300 * time.Millisecond
	byOwner    = "owner"
)

var podAddresses atomic.Uint32

// PodInformer watches the pods that KubeVirt creates: virt-launcher pods and those that attach volumes.
func (w *world) podInformer() cache.SharedIndexInformer {
	factory := informers.NewSharedInformerFactoryWithOptions(w.kubernetes, 0,
		informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = virtv1.AppLabel }))
	informer := factory.Core().V1().Pods().Informer()
	// It only fails for a running informer.
	_ = informer.AddIndexers(cache.Indexers{byOwner: func(object any) ([]string, error) {
		if owner := metav1.GetControllerOf(object.(*corev1.Pod)); owner != nil {
			return []string{string(owner.UID)}, nil
		}
		return nil, nil
	}})
	return informer
}

func (w *world) reconcilePod(ctx context.Context, key string) error {
	pod := get[corev1.Pod](w.pods, key)
	if pod == nil {
		return nil
	}
	instance := w.instanceOf(pod)
	if pod.DeletionTimestamp != nil {
		return w.endPod(ctx, pod, instance)
	}
	switch {
	case isFinal(pod):
		return nil
	case pod.Spec.NodeName == "":
		return w.place(ctx, key, pod)
	case pod.Spec.NodeName != w.node:
		return nil
	case instance != nil && instance.IsFinal():
		return w.setEnded(ctx, pod)
	case pod.Status.Phase == corev1.PodPending:
		return w.startPod(ctx, pod)
	default:
		return w.setReady(ctx, pod)
	}
}

// InstanceOf returns the instance of a virt-launcher pod, or nil if it was deleted.
func (w *world) instanceOf(pod *corev1.Pod) *virtv1.VirtualMachineInstance {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != virtv1.VirtualMachineInstanceGroupVersionKind.Kind {
		return nil
	}
	instance := get[virtv1.VirtualMachineInstance](w.instances, pod.Namespace+"/"+owner.Name)
	if instance == nil || instance.UID != owner.UID {
		return nil
	}
	return instance
}

// EndPod waits for the guest, which virt-launcher shuts down first, and then acts as the kubelet: sets the exit status of
// the containers and deletes the pod.
func (w *world) endPod(ctx context.Context, pod *corev1.Pod, instance *virtv1.VirtualMachineInstance) error {
	if instance != nil && (instance.IsScheduled() || instance.IsRunning()) {
		w.instances.queue.Add(instance.Namespace + "/" + instance.Name)
		return nil
	}
	if pod.Spec.NodeName != "" && !isFinal(pod) {
		// The update of the pod triggers the next call.
		return w.setEnded(ctx, pod)
	}
	now := int64(0)
	err := w.kubernetes.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Place simulates the scheduler with one node: it checks selector, resources and volumes.
func (w *world) place(ctx context.Context, key string, pod *corev1.Pod) error {
	reason, err := w.refusal(ctx, pod)
	if err != nil {
		return err
	}
	if reason == "" {
		return w.kubernetes.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID},
			Target:     corev1.ObjectReference{Kind: "Node", Name: w.node},
		}, metav1.CreateOptions{})
	}
	defer w.pods.queue.AddAfter(key, placeAgain)
	changed := pod.DeepCopy()
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
		Message: "0/1 nodes are available: " + reason, LastTransitionTime: metav1.Now(),
	}
	if !setCondition(&changed.Status.Conditions, condition) {
		return nil
	}
	return w.updateStatus(ctx, changed)
}

// Refusal returns the message of the scheduler if the pod cannot run on the node, or an empty string if it can.
func (w *world) refusal(ctx context.Context, pod *corev1.Pod) (string, error) {
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim == nil {
			continue
		}
		claim := get[corev1.PersistentVolumeClaim](w.claims, pod.Namespace+"/"+volume.PersistentVolumeClaim.ClaimName)
		if claim == nil {
			return fmt.Sprintf("persistentvolumeclaim %q not found.", volume.PersistentVolumeClaim.ClaimName), nil
		}
		if claim.Status.Phase == corev1.ClaimBound {
			continue
		}
		class := w.class(claim)
		if class == nil || !waitsForPod(class) {
			return "pod has unbound immediate PersistentVolumeClaims.", nil
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, selectedNode, w.node)
		claims := w.kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace)
		if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return "", err
		}
		return "waiting for a volume to be provisioned.", nil
	}
	node, err := w.kubernetes.CoreV1().Nodes().Get(ctx, w.node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if !labels.SelectorFromSet(pod.Spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return "1 node(s) didn't match Pod's node affinity/selector.", nil
	}
	return insufficient(pod, node.Status.Allocatable), nil
}

// Insufficient returns the resources of which the pod requests more than the whole node has; other pods do not count.
func insufficient(pod *corev1.Pod, has corev1.ResourceList) string {
	requested := corev1.ResourceList{}
	for _, container := range pod.Spec.Containers {
		for name, quantity := range container.Resources.Requests {
			sum := requested[name]
			sum.Add(quantity)
			requested[name] = sum
		}
	}
	var short []string
	for name, quantity := range requested {
		if available, known := has[name]; quantity.Cmp(resource.Quantity{}) > 0 && (!known || quantity.Cmp(available) > 0) {
			short = append(short, fmt.Sprintf("1 Insufficient %s.", name))
		}
	}
	slices.Sort(short)
	return strings.Join(short, " ")
}

// StartPod simulates the kubelet, the container runtime and network plugins.
func (w *world) startPod(ctx context.Context, cached *corev1.Pod) error {
	pod, err := w.attachNetworks(ctx, cached.DeepCopy())
	if err != nil {
		return err
	}
	now := metav1.Now()
	address := podAddress()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.StartTime = &now
	pod.Status.HostIP, pod.Status.HostIPs = nodeAddress, []corev1.HostIP{{IP: nodeAddress}}
	pod.Status.PodIP, pod.Status.PodIPs = address, []corev1.PodIP{{IP: address}}
	pod.Status.InitContainerStatuses = nil
	for _, container := range pod.Spec.InitContainers {
		status := running(container, now)
		if container.RestartPolicy == nil {
			status.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
				Reason: "Completed", StartedAt: now, FinishedAt: now,
			}}
		}
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, status)
	}
	pod.Status.ContainerStatuses = nil
	for _, container := range pod.Spec.Containers {
		pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running(container, now))
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.ContainersReady} {
		setCondition(&pod.Status.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	setCondition(&pod.Status.Conditions, readiness(pod))
	return w.updateStatus(ctx, pod)
}

func running(container corev1.Container, now metav1.Time) corev1.ContainerStatus {
	started := true
	return corev1.ContainerStatus{
		Name: container.Name, Image: container.Image, ImageID: container.Image, Ready: true, Started: &started,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
	}
}

// AttachNetworks simulates Multus: it reports the interface of every requested network.
func (w *world) attachNetworks(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error) {
	requested := pod.Annotations[networksAnnotation]
	if requested == "" || pod.Annotations[networkStatusAnnotation] != "" {
		return pod, nil
	}
	var networks []struct{ Name, Namespace, Interface, Mac string }
	if err := json.Unmarshal([]byte(requested), &networks); err != nil {
		return nil, fmt.Errorf("failed to read annotation %s: %w", networksAnnotation, err)
	}
	statuses := []map[string]any{{"name": "standin", "interface": "eth0", "default": true, "dns": map[string]any{}}}
	for _, network := range networks {
		statuses = append(statuses, map[string]any{
			"name": network.Namespace + "/" + network.Name, "interface": network.Interface, "mac": network.Mac, "dns": map[string]any{},
		})
	}
	text, err := json.Marshal(statuses)
	if err != nil {
		return nil, err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{networkStatusAnnotation: string(text)}}})
	if err != nil {
		return nil, err
	}
	return w.kubernetes.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch, metav1.PatchOptions{})
}

// SetReady evaluates the readiness gates: that of KubeVirt means that the guest is not paused.
func (w *world) setReady(ctx context.Context, cached *corev1.Pod) error {
	pod := cached.DeepCopy()
	if !setCondition(&pod.Status.Conditions, readiness(pod)) {
		return nil
	}
	return w.updateStatus(ctx, pod)
}

func readiness(pod *corev1.Pod) corev1.PodCondition {
	condition := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}
	for _, gate := range pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
			return condition.Type == gate.ConditionType && condition.Status == corev1.ConditionTrue
		})
		if !open {
			condition.Status, condition.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
			condition.Message = fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType)
		}
	}
	return condition
}

// SetEnded reports that all containers succeeded, as virt-launcher does even if its guest failed.
func (w *world) setEnded(ctx context.Context, cached *corev1.Pod) error {
	pod := cached.DeepCopy()
	now := metav1.Now()
	pod.Status.Phase = corev1.PodSucceeded
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		ended := &corev1.ContainerStateTerminated{Reason: "Completed", FinishedAt: now, StartedAt: now}
		if status.State.Running != nil {
			ended.StartedAt = status.State.Running.StartedAt
		}
		stopped := false
		status.Ready, status.Started, status.State = false, &stopped, corev1.ContainerState{Terminated: ended}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodReady, corev1.ContainersReady} {
		setCondition(&pod.Status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: "PodCompleted", LastTransitionTime: now,
		})
	}
	return w.updateStatus(ctx, pod)
}

func (w *world) updateStatus(ctx context.Context, pod *corev1.Pod) error {
	_, err := w.kubernetes.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// SetCondition sets a condition and returns whether that changed anything.
func setCondition(conditions *[]corev1.PodCondition, wanted corev1.PodCondition) bool {
	for i, condition := range *conditions {
		if condition.Type != wanted.Type {
			continue
		}
		if condition.Status == wanted.Status && condition.Reason == wanted.Reason && condition.Message == wanted.Message {
			return false
		}
		(*conditions)[i] = wanted
		return true
	}
	*conditions = append(*conditions, wanted)
	return true
}

func isFinal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// PodAddress assigns the addresses of 10.244.0.0/16 in sequence.
func podAddress() string {
	number := podAddresses.Add(1) + 1
	return netip.AddrFrom4([4]byte{10, 244, byte(number >> 8), byte(number)}).String()
}
