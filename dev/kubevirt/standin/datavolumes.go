package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

var dataVolumes = schema.GroupVersionResource{Group: "cdi.kubevirt.io", Version: "v1beta1", Resource: "datavolumes"}

// DataVolumeLoop simulates CDI if its CRDs are installed: every DataVolume gets a claim, and its import succeeds as soon
// as the claim is bound. The source is never read.
func (w *world) dataVolumeLoop(ctx context.Context, config *rest.Config) (*loop, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	_, err = client.Resource(dataVolumes).List(ctx, metav1.ListOptions{Limit: 1})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to look for DataVolumes: %w", err)
	}
	informer := dynamicinformer.NewDynamicSharedInformerFactory(client, 0).ForResource(dataVolumes).Informer()
	var l *loop
	l = newLoop("data volume", informer, func(ctx context.Context, key string) error {
		return w.reconcileDataVolume(ctx, client, get[unstructured.Unstructured](l, key))
	})
	// The claim of a DataVolume has the same name.
	_, err = w.claims.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, object any) {
		if key, err := cache.MetaNamespaceKeyFunc(object); err == nil {
			l.queue.Add(key)
		}
	}})
	return l, err
}

func (w *world) reconcileDataVolume(ctx context.Context, client dynamic.Interface, object *unstructured.Unstructured) error {
	if object == nil || object.GetDeletionTimestamp() != nil {
		return nil
	}
	volume := &cdiv1.DataVolume{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, volume); err != nil {
		return err
	}
	if volume.Status.Phase == cdiv1.Succeeded {
		return nil
	}
	claims := w.kubernetes.CoreV1().PersistentVolumeClaims(volume.Namespace)
	claim, err := claims.Get(ctx, volume.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		claim, err = claims.Create(ctx, claimFor(volume), metav1.CreateOptions{})
	}
	if err != nil {
		return err
	}
	if !metav1.IsControlledBy(claim, volume) {
		return fmt.Errorf("claim %q has another owner", claim.Name)
	}
	status := cdiv1.DataVolumeStatus{ClaimName: claim.Name, Phase: cdiv1.Pending, Progress: "N/A"}
	if claim.Status.Phase == corev1.ClaimBound {
		status.Phase, status.Progress = cdiv1.Succeeded, "100.0%"
	}
	if volume.Status.Phase == status.Phase {
		return nil
	}
	ready := status.Phase == cdiv1.Succeeded
	now := metav1.Now()
	for kind, value := range map[cdiv1.DataVolumeConditionType]bool{
		cdiv1.DataVolumeBound: ready, cdiv1.DataVolumeReady: ready, cdiv1.DataVolumeRunning: false,
	} {
		condition := cdiv1.DataVolumeCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: now, LastHeartbeatTime: now}
		if value {
			condition.Status = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, condition)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return err
	}
	changed := object.DeepCopy()
	changed.Object["status"] = fields
	_, err = client.Resource(dataVolumes).Namespace(volume.Namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	return err
}

// ClaimFor sets what CDI takes from a storage profile, and copies labels and annotations as CDI does.
func claimFor(volume *cdiv1.DataVolume) *corev1.PersistentVolumeClaim {
	var spec corev1.PersistentVolumeClaimSpec
	switch {
	case volume.Spec.PVC != nil:
		spec = *volume.Spec.PVC
	case volume.Spec.Storage != nil:
		storage := volume.Spec.Storage
		spec = corev1.PersistentVolumeClaimSpec{
			AccessModes: storage.AccessModes, Resources: storage.Resources, StorageClassName: storage.StorageClassName,
			VolumeMode: storage.VolumeMode, VolumeName: storage.VolumeName, Selector: storage.Selector,
		}
	}
	if len(spec.AccessModes) == 0 {
		spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: volume.Name, Namespace: volume.Namespace, Labels: volume.Labels, Annotations: volume.Annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(volume, cdiv1.SchemeGroupVersion.WithKind("DataVolume"))},
		},
		Spec: spec,
	}
}
