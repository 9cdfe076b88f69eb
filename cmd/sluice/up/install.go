// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/test/cluster/fakekubelet"
	"sluice.dev/test/cluster/kwok"
	"sluice.dev/test/cluster/launcher"
)

// installBase applies the shipped objects of Sluice, and the accounts of the simulation.
func installBase(ctx context.Context, c client.Client, s componentContext) error {
	objects, err := s.installation()
	if err != nil {
		return err
	}
	simulation, err := simulationObjects()
	if err != nil {
		return err
	}
	if err := applyObjects(ctx, c, append(objects, simulation...)); err != nil {
		return err
	}
	return waitForGroup(ctx, c, v1alpha1.Group)
}

// simulationNamespace has the accounts of the simulated kubelets.
const simulationNamespace = "sluice-sim"

// runtimeClass is that of NVIDIA's container toolkit, which the agent's DaemonSet names.
const runtimeClass = `apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: nvidia}
handler: nvidia
`

func simulationObjects() ([]*unstructured.Unstructured, error) {
	namespace := []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + simulationNamespace + "}\n")
	return decodeManifests(namespace, []byte(runtimeClass), kwok.RBAC, fakekubelet.RBAC, launcher.RBAC)
}

// decodeManifests decodes YAML files with one or more documents each.
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
				return nil, fmt.Errorf("decode manifest: %w", err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}

// applyObjects applies objects in their order. Fields that another program has set become those of this one.
func applyObjects(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	return applyWith(ctx, c, objects, client.ForceOwnership)
}

func applyWith(ctx context.Context, c client.Client, objects []*unstructured.Unstructured, options ...client.ApplyOption) error {
	options = append(options, client.FieldOwner(v1alpha1.FieldManagerCLI))
	for _, object := range objects {
		err := retry.OnError(applyBackoff, func(err error) bool { return mayPass(err) && ctx.Err() == nil }, func() error {
			return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...)
		})
		if err != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// applyBackoff repeats a request for about two minutes, and for the time that the requests take.
var applyBackoff = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 1.5, Steps: 17}

// mayPass reports whether a request that failed can succeed later: the API server reports a webhook that does not answer in time, as on a
// busy machine, as an internal error.
func mayPass(err error) bool {
	return apierrors.IsInternalError(err) || apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// waitForGroup waits until the API server serves all kinds of a group.
func waitForGroup(ctx context.Context, c client.Client, group string) error {
	return waitFor(ctx, "the API server to serve "+group, func(ctx context.Context) (bool, error) {
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
	})
}

func crdEstablished(crd *apiextensionsv1.CustomResourceDefinition) bool {
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established {
			return condition.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// lastAdmissionPolicy is the policy that lifecycle applies and binds last. The API
// server observes policies and bindings in the order of their changes: once it
// enforces this one, it enforces all.
const lastAdmissionPolicy = "sluice-selectors"

// waitForAdmissionPolicies waits until the API server enforces the admission
// policies that lifecycle binds. It tests those that deny GPU pods and claims of GPUs
// outside of projects, and the last one, which denies a disruption budget of all
// pods in a project.
func waitForAdmissionPolicies(ctx context.Context, c client.Client) error {
	meta := metav1.ObjectMeta{GenerateName: "probe-", Namespace: metav1.NamespaceDefault, Annotations: map[string]string{v1alpha1.AnnotationGPU: "1"}}
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}}
	claim := &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "probe", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.nvidia.com"}}},
	}}}
	probes := map[string]client.Object{"sluice-gpu-pods": pod, "sluice-gpu-claims": claim}
	var projects v1alpha1.ProjectList
	if err := c.List(ctx, &projects); err != nil {
		return fmt.Errorf("list projects: %w", err)
	}
	for i := range projects.Items {
		if namespace := projects.Items[i].Status.Namespace; namespace != nil {
			probes[lastAdmissionPolicy] = &policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: namespace.Name},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
			}
			break
		}
	}
	return waitFor(ctx, "the API server to enforce Sluice's admission policies", func(ctx context.Context) (bool, error) {
		for policy, probe := range probes {
			err := c.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'"+policy+"'") {
				return false, errors.Join(fmt.Errorf("admission policy %s does not refuse what it should", policy), err)
			}
		}
		return true, nil
	})
}
