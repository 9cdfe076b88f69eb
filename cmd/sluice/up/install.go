// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
)

// sampleMark is on the simulation's namespace once the sample was applied: a
// second start must not undo what a person has changed in it since.
const sampleMark = "sim.sluice.dev/university"

// awaitDoors waits until the API server keeps the doors shut that lifecycle has
// it keep: the last of them is for pods with a GPU outside of projects.
func awaitDoors(ctx context.Context, c client.Client) error {
	return await(ctx, "the API server to enforce Sluice's admission policies", func(ctx context.Context) (bool, error) {
		probe := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: metav1.NamespaceDefault, Annotations: map[string]string{v1alpha1.AnnotationGPU: "1"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
		}
		err := c.Create(ctx, probe, client.DryRunAll)
		if apierrors.IsForbidden(err) {
			return true, nil
		}
		return false, err
	})
}

// installSample applies a sample, once in a cluster's life, and waits until
// lifecycle has seen to all of it.
func installSample(ctx context.Context, c client.Client, s sample) error {
	var namespace corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: simulationNamespace}, &namespace); err != nil {
		return fmt.Errorf("reading namespace %s: %w", simulationNamespace, err)
	}
	if namespace.Annotations[sampleMark] != "" {
		return nil
	}
	objects, err := manifests.Build(s.folder)
	if err != nil {
		return err
	}
	if err := apply(ctx, c, objects); err != nil {
		return err
	}
	before := namespace.DeepCopy()
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, sampleMark, "applied")
	if err := c.Patch(ctx, &namespace, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("marking namespace %s: %w", simulationNamespace, err)
	}
	return await(ctx, "the sample ("+s.name+") to be ready", func(ctx context.Context) (bool, error) {
		return sampleReady(ctx, c)
	})
}

func sampleReady(ctx context.Context, c client.Client) (bool, error) {
	var pools v1alpha1.NodePoolList
	var projects v1alpha1.ProjectList
	if err := errors.Join(c.List(ctx, &pools), c.List(ctx, &projects)); err != nil {
		return false, err
	}
	for i := range pools.Items {
		// With a single node there is none for the second pool.
		if status := pools.Items[i].Status; status.ObservedGeneration == 0 {
			return false, fmt.Errorf("node pool %s: %s", pools.Items[i].Name, readyMessage(status.Conditions))
		}
	}
	for i := range projects.Items {
		if status := projects.Items[i].Status; !meta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady) {
			return false, fmt.Errorf("project %s: %s", projects.Items[i].Name, readyMessage(status.Conditions))
		}
	}
	return true, nil
}

func readyMessage(conditions []metav1.Condition) string {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Message
	}
	return "lifecycle has not seen it yet"
}
