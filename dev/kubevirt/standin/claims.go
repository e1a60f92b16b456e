package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	provisioner = "standin.vitistack.io"
	// A class without a provisioner, whose claims stay Pending.
	neverBinds        = "never-binds"
	defaultClass      = "standin"
	defaultAnnotation = "storageclass.kubernetes.io/is-default-class"
	provisionedBy     = "pv.kubernetes.io/provisioned-by"
	selectedNode      = "volume.kubernetes.io/selected-node"
)

// CreateStorageClasses creates a default class that binds immediately and one that never does. Tests can create more
// with the same provisioner.
func (w *world) createStorageClasses(ctx context.Context) error {
	grows := true
	for _, class := range []*storagev1.StorageClass{
		{
			ObjectMeta:           metav1.ObjectMeta{Name: defaultClass, Annotations: map[string]string{defaultAnnotation: "true"}},
			Provisioner:          provisioner,
			AllowVolumeExpansion: &grows,
		},
		{ObjectMeta: metav1.ObjectMeta{Name: neverBinds}, Provisioner: provisioner + "/" + neverBinds},
	} {
		_, err := w.kubernetes.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("failed to create StorageClass %q: %w", class.Name, err)
		}
	}
	return nil
}

// ReconcileClaim simulates a CSI provisioner and resizer. The controller manager binds volumes.
func (w *world) reconcileClaim(ctx context.Context, key string) error {
	claim := get[corev1.PersistentVolumeClaim](w.claims, key)
	if claim == nil || claim.DeletionTimestamp != nil {
		return nil
	}
	class := w.class(claim)
	if class == nil || class.Provisioner != provisioner {
		return nil
	}
	if claim.Status.Phase == corev1.ClaimBound {
		return w.grow(ctx, claim)
	}
	if claim.Spec.VolumeName != "" || waitsForPod(class) && claim.Annotations[selectedNode] == "" {
		return nil
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{provisionedBy: provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: provisioner, VolumeHandle: string(claim.UID)},
			},
		},
	}
	_, err := w.kubernetes.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (w *world) class(claim *corev1.PersistentVolumeClaim) *storagev1.StorageClass {
	if claim.Spec.StorageClassName == nil {
		return nil
	}
	object, exists, err := w.classes.GetByKey(*claim.Spec.StorageClassName)
	if err != nil || !exists {
		return nil
	}
	return object.(*storagev1.StorageClass)
}

func waitsForPod(class *storagev1.StorageClass) bool {
	return class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// Grow expands a bound claim to its requested size.
func (w *world) grow(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	requested := claim.Spec.Resources.Requests[corev1.ResourceStorage]
	if has := claim.Status.Capacity[corev1.ResourceStorage]; has.Cmp(requested) >= 0 {
		return nil
	}
	cached := get[corev1.PersistentVolume](w.volumes, claim.Spec.VolumeName)
	if cached == nil {
		return nil
	}
	volume := cached.DeepCopy()
	volume.Spec.Capacity[corev1.ResourceStorage] = requested
	if _, err := w.kubernetes.CoreV1().PersistentVolumes().Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
		return err
	}
	claim = claim.DeepCopy()
	claim.Status.Capacity[corev1.ResourceStorage] = requested
	_, err := w.kubernetes.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	return err
}

// ReconcileVolume deletes a volume whose claim was deleted, as its provisioner would.
func (w *world) reconcileVolume(ctx context.Context, key string) error {
	volume := get[corev1.PersistentVolume](w.volumes, key)
	if volume == nil || volume.Annotations[provisionedBy] != provisioner || volume.Status.Phase != corev1.VolumeReleased ||
		volume.DeletionTimestamp != nil {
		return nil
	}
	return w.kubernetes.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
}
