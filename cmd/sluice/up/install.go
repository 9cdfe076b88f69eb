// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/manifests"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
)

// installBase applies what every installation of Sluice has, and the accounts
// of the simulation. The API server finds the webhook below the URL webhook.
func installBase(ctx context.Context, c client.Client, webhook string) error {
	objects, err := manifests.Build(manifests.Base)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := replaceServiceWithURL(object, webhook); err != nil {
			return err
		}
	}
	simulation, err := simulationObjects()
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, c, append(objects, simulation...)); err != nil {
		return err
	}
	return waitFor(ctx, "Sluice's kinds to be served", func(ctx context.Context) (bool, error) {
		return groupServed(ctx, c, v1alpha1.Group)
	})
}

// groupServed reports whether all kinds of a group are.
func groupServed(ctx context.Context, c client.Client, group string) (bool, error) {
	var crds apiextensionsv1.CustomResourceDefinitionList
	if err := c.List(ctx, &crds); err != nil {
		return false, err
	}
	for i := range crds.Items {
		if crds.Items[i].Spec.Group == group && !crdEstablished(&crds.Items[i]) {
			return false, nil
		}
	}
	return true, nil
}

func crdEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// sampleAppliedAnnotation is on the simulation's namespace once the sample was applied: a
// second start must not undo what a person has changed in it since.
const sampleAppliedAnnotation = "sim.sluice.dev/university"

// waitForAdmissionPolicies waits until the API server keeps the doors shut that lifecycle has
// it keep: the last of them is for pods with a GPU outside of projects.
func waitForAdmissionPolicies(ctx context.Context, c client.Client) error {
	return waitFor(ctx, "the API server to enforce Sluice's admission policies", func(ctx context.Context) (bool, error) {
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
func installSample(ctx context.Context, c client.Client, s sampleSpec) error {
	var namespace corev1.Namespace
	if err := c.Get(ctx, types.NamespacedName{Name: simulationNamespace}, &namespace); err != nil {
		return fmt.Errorf("reading namespace %s: %w", simulationNamespace, err)
	}
	if namespace.Annotations[sampleAppliedAnnotation] != "" {
		return nil
	}
	objects, err := manifests.Build(s.folder)
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, c, objects); err != nil {
		return err
	}
	before := namespace.DeepCopy()
	metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, sampleAppliedAnnotation, "applied")
	if err := c.Patch(ctx, &namespace, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("marking namespace %s: %w", simulationNamespace, err)
	}
	return waitFor(ctx, "the sample ("+s.name+") to be ready", func(ctx context.Context) (bool, error) {
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

// simulationNamespace holds the accounts of what stands in for kubelets.
const simulationNamespace = "sluice-sim"

func simulationObjects() ([]*unstructured.Unstructured, error) {
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + simulationNamespace + "}\n")
	return decodeManifests(namespace, kwok.RBAC, fakekubelet.RBAC)
}

// replaceServiceWithURL replaces the Service in a webhook configuration by a URL below base:
// here the webhook listens on the machine and not in a pod. All else stays as
// the manifests have it; other kinds of objects are left alone.
func replaceServiceWithURL(object *unstructured.Unstructured, base string) error {
	if object.GroupVersionKind().Group != "admissionregistration.k8s.io" {
		return nil
	}
	webhooks, found, err := unstructured.NestedSlice(object.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
	}
	if !found { // a policy that the API server evaluates itself
		return nil
	}
	for i := range webhooks {
		webhook, _ := webhooks[i].(map[string]any)
		path, found, err := unstructured.NestedString(webhook, "clientConfig", "service", "path")
		if err != nil || !found {
			return fmt.Errorf("%s %s: webhooks[%d].clientConfig.service.path is not there", object.GetKind(), object.GetName(), i)
		}
		webhook["clientConfig"] = map[string]any{"url": base + path}
	}
	return unstructured.SetNestedSlice(object.Object, webhooks, "webhooks")
}

// applyObjects is server-side apply, object by object in their order.
func applyObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
			client.FieldOwner(v1alpha1.FieldManagerCLI), client.ForceOwnership)
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// decodeManifests reads the objects of YAML files with one or more documents each.
func decodeManifests(files ...[]byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, file := range files {
		reader := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(file), 4096)
		for {
			object := &unstructured.Unstructured{}
			err := reader.Decode(object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("reading a manifest: %w", err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}
