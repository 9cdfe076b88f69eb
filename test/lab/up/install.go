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

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/cmd/sluice/installation"
	"sluice.dev/test/lab/cluster/fakekubelet"
	"sluice.dev/test/lab/cluster/kwok"
	"sluice.dev/test/lab/cluster/launcher"
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
	return installation.WaitForGroup(ctx, c, v1alpha1.Group)
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
	return installation.Apply(ctx, c, objects, client.ForceOwnership)
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
	return installation.WaitFor(ctx, "the API server to enforce Sluice's admission policies", func(ctx context.Context) (bool, error) {
		for policy, probe := range probes {
			err := c.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "'"+policy+"'") {
				return false, errors.Join(fmt.Errorf("admission policy %s does not refuse what it should", policy), err)
			}
		}
		return true, nil
	})
}
