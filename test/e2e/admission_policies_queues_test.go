// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// kueueConfig returns a configuration that impersonates Kueue with all rights.
func kueueConfig(t *testing.T, namespace string) *rest.Config {
	t.Helper()
	create(t, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "impersonated-kueue"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kueue-system", Name: "kueue-controller-manager"}},
	})
	return impersonatedConfig(t, "system:serviceaccount:kueue-system:kueue-controller-manager", namespace)
}

// createQueuedProject creates a project and its department with a node pool that Kueue
// schedules. Kueue does not run: the test acts with its identity.
func createQueuedProject(t *testing.T, name string) {
	t.Helper()
	pool := create(t, &v1alpha1.NodePool{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.NodePoolSpec{NodeSelector: map[string]string{v1alpha1.LabelNodePool: name}, Scheduler: v1alpha1.SchedulerKueue},
	})
	quota := []v1alpha1.PoolQuota{{Name: pool.Name, GPU: v1alpha1.GPUQuota{Guaranteed: resource.MustParse("1"), Limit: resource.MustParse("1")}}}
	create(t, &v1alpha1.Department{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.DepartmentSpec{Contacts: []v1alpha1.Contact{{Name: "Contact", Email: "contact@example.org"}}, NodePools: quota},
	})
	create(t, newProject(name, func(p *v1alpha1.Project) { p.Spec.Department, p.Spec.NodePools = name, quota }))
	ns := newNamespace(name)
	eventually(t, func() error {
		if err := refresh(t, ns); err != nil {
			return err
		}
		if ns.Labels[v1alpha1.LabelQueued] != "true" {
			return unexpectedState("the namespace is labeled as queued", ns.Labels)
		}
		return nil
	})
}

// createCRD creates a custom resource definition that accepts any fields.
func createCRD(t *testing.T, group, version, kind, plural string) {
	t.Helper()
	create(t, newCRD(group, version, kind, plural))
}

// newCRD returns a custom resource definition that accepts any fields.
func newCRD(group, version, kind, plural string) *unstructured.Unstructured {
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": plural + "." + group, "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, of a test"}},
		"spec": map[string]any{
			"group": group, "scope": "Namespaced",
			"names":    map[string]any{"kind": kind, "listKind": kind + "List", "plural": plural, "singular": strings.ToLower(kind)},
			"versions": []any{map[string]any{"name": version, "served": true, "storage": true, "subresources": map[string]any{"status": map[string]any{}}, "schema": map[string]any{"openAPIV3Schema": schema}}},
		},
	}}
}

// Only Kueue decides when queued work starts. Users cannot remove scheduling gates, start
// suspended workloads, change queues, or declare a workload part of an admitted one. Guards
// invariant 4 of the design.
func TestAdmissionPoliciesForQueuedWorkloads(t *testing.T) {
	t.Parallel()
	const ns = "queueing"
	createQueuedProject(t, ns)
	eve, kueue := clientFor(t, namespaceAdminConfig(t, ns)), clientFor(t, kueueConfig(t, ns))

	job := suspendedJob(ns)
	job.Labels[v1alpha1.LabelKueueQueue] = "default"
	job.Spec.Template.Spec.Containers[0].Resources.Limits = nil
	if err := eve.Create(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, job) })
	pod := newPod(ns, "gated")
	pod.Labels = map[string]string{v1alpha1.LabelKueueQueue: "default"}
	pod.Annotations = map[string]string{"kueue.x-k8s.io/role-hash": "ab12cd34"}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: v1alpha1.GateKueue}, {Name: "example.org/mine"}}
	if err := eve.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, pod) })

	// The API server applies a policy to a namespace once it has observed its label.
	otherQueue := `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`
	eventually(t, func() error {
		return checkRejected(eve.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(otherQueue)), client.DryRunAll), "queue names are set at creation")
	})
	const started, gate = `{"spec":{"suspend":false}}`, `[{"op":"remove","path":"/spec/schedulingGates/0"}]`
	for name, tc := range map[string]struct {
		as      client.Client
		object  client.Object
		kind    types.PatchType
		patch   string
		message string
	}{
		"a suspended Job started":                  {eve, job, types.MergePatchType, started, "Kueue starts a queued workload"},
		"the scheduling gate removed":              {eve, pod, types.JSONPatchType, gate, "leave the gate as it is"},
		"another role in the pod group":            {eve, pod, types.MergePatchType, `{"metadata":{"annotations":{"kueue.x-k8s.io/role-hash":"other"}}}`, "kueue.x-k8s.io/ do not change"},
		"another queue for the pod":                {eve, pod, types.MergePatchType, otherQueue, "queue names are set at creation"},
		"allowed: another scheduling gate removed": {eve, pod, types.JSONPatchType, `[{"op":"remove","path":"/spec/schedulingGates/1"}]`, ""},
		"allowed: started by Kueue":                {kueue, job, types.MergePatchType, `{"spec":{"suspend":false,"template":{"metadata":{"labels":{"kueue.x-k8s.io/podset":"main"}},"spec":{"nodeSelector":{"zone":"a"}}}}}`, ""},
		"allowed: ungated by Kueue":                {kueue, pod, types.JSONPatchType, `[{"op":"remove","path":"/spec/schedulingGates/0"},{"op":"add","path":"/metadata/labels/kueue.x-k8s.io~1podset","value":"main"},{"op":"add","path":"/spec/nodeSelector","value":{"zone":"a"}}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object := tc.object.DeepCopyObject().(client.Object)
			expectError(t, tc.as.Patch(t.Context(), object, client.RawPatch(tc.kind, []byte(tc.patch)), client.DryRunAll), tc.message)
		})
	}

	another := func(change func(*batchv1.Job)) *batchv1.Job {
		j := suspendedJob(ns)
		j.Name, j.Labels = "another", map[string]string{}
		j.Spec.Template.Spec.Containers[0].Resources.Limits = nil
		change(j)
		return j
	}
	for name, tc := range map[string]struct {
		object  *batchv1.Job
		message string
	}{
		"in another queue": {another(func(j *batchv1.Job) { j.Labels[v1alpha1.LabelKueueQueue] = "other" }), "queue other is not the project's queue"},
		"as part of an admitted Job": {another(func(j *batchv1.Job) {
			j.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: job.Name, UID: job.UID, Controller: ptr.To(true)}}
		}), "only a controller may say that an object of kind Job.batch controls this one"},
		"allowed: in the queue of the project": {another(func(*batchv1.Job) {}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectError(t, eve.Create(t.Context(), tc.object, client.DryRunAll), tc.message)
		})
	}
}

// Kueue owns its queues and workloads. Users may only activate and deactivate workloads.
func TestAdmissionPolicyForKueueObjects(t *testing.T) {
	const ns, group = "course-ml", "kueue.x-k8s.io"
	createCRD(t, group, "v1beta2", "LocalQueue", "localqueues")
	createCRD(t, group, "v1beta2", "Workload", "workloads")
	eve, kueue := clientFor(t, namespaceAdminConfig(t, ns)), clientFor(t, kueueConfig(t, ns))
	object := func(kind, name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group + "/v1beta2", "kind": kind, "metadata": map[string]any{"name": name, "namespace": ns},
			"spec": map[string]any{"active": true, "queueName": "default"},
		}}
	}
	eventually(t, func() error { return kueue.Create(t.Context(), object("Workload", "w"), client.DryRunAll) })
	eventually(t, func() error {
		return checkRejected(eve.Create(t.Context(), object("LocalQueue", "mine"), client.DryRunAll), "Sluice renders the one queue")
	})
	expectError(t, eve.Create(t.Context(), object("Workload", "mine"), client.DryRunAll), "Kueue creates them for Jobs and pods")
	if err := kueue.Create(t.Context(), object("Workload", "w")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, object("Workload", "w")) })
	for name, tc := range map[string]struct{ patch, message string }{
		"another queue":          {`{"spec":{"queueName":"other"}}`, "users change only spec.active"},
		"another Job's workload": {`{"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"u"}}}`, "users change only spec.active"},
		"allowed: deactivated":   {`{"spec":{"active":false}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectError(t, eve.Patch(t.Context(), object("Workload", "w"), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll), tc.message)
		})
	}
	// A queue that is older than the project may be deleted, or marked for adoption.
	former := object("LocalQueue", "former")
	if err := kueue.Create(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, object("LocalQueue", "former")) })
	for name, tc := range map[string]struct{ patch, message string }{
		"another ClusterQueue":         {`{"spec":{"queueName":"other"}}`, "Sluice renders the one queue"},
		"allowed: marked for adoption": {`{"metadata":{"annotations":{"sluice.dev/adopt-by":"course-ml"}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectError(t, eve.Patch(t.Context(), object("LocalQueue", "former"), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll), tc.message)
		})
	}
	t.Run("allowed: deleted", func(t *testing.T) { expectError(t, eve.Delete(t.Context(), former, client.DryRunAll), "") })
	t.Run("the status written", func(t *testing.T) {
		patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[]}}`))
		expectError(t, eve.Status().Patch(t.Context(), object("Workload", "w"), patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}}), "writes their status")
	})
}
