// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// workloadMeta returns the metadata of a workload. Annotations are pairs of keys and values.
func workloadMeta(namespace, name string, annotations ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		meta.Annotations[annotations[i]] = annotations[i+1]
	}
	return meta
}

// podTemplate returns a pod template that the package's selector matches.
func podTemplate(annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{Spec: newPod("", "").Spec}
	t.ObjectMeta = workloadMeta("", "", annotations...)
	t.Labels["app"] = "test"
	return t
}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "test"}}

// suspendedJob returns a suspended Job that requests a GPU, like a Job that a scheduler
// queues.
func suspendedJob(namespace string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: workloadMeta(namespace, "suspended"), Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: podTemplate(v1alpha1.AnnotationMaxRuntime, "6h")}}
	j.Labels["kueue.x-k8s.io/queue-name"] = "course-ml"
	j.Spec.Template.Labels[v1alpha1.LabelWorkloadType] = "train"
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
		"nvidia.com/mig-1g.5gb":                 resource.MustParse("1"),
		v1alpha1.ResourceGPUMilliFor("dgx-mig"): resource.MustParse("1000"),
		corev1.ResourceCPU:                      resource.MustParse("1"),
	}
	return j
}

// A user cannot record another creator of a workload, in its metadata or in its pod
// template, even when the mutating webhook does not run. Users cannot mark a workload as
// stopped either. Guards invariant 4 of the design.
func TestAdmissionPolicyProtectsWorkloadCreator(t *testing.T) {
	disableMutatingWebhook(t, workloadsWebhook)
	const ns = "course-ml"
	const creatorKey, other = v1alpha1.AnnotationCreatedBy, "other@example.org"
	job := func(meta metav1.ObjectMeta, pods corev1.PodTemplateSpec) *batchv1.Job {
		pods.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Suspend: ptr.To(true), Template: pods}}
	}
	cron := func(meta, jobs metav1.ObjectMeta, pods corev1.PodTemplateSpec) *batchv1.CronJob {
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: jobs, Spec: job(jobs, pods).Spec}}}
	}
	deployment := func(meta metav1.ObjectMeta, pods corev1.PodTemplateSpec) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: pods}}
	}
	plain, forged := workloadMeta(ns, "workload"), workloadMeta(ns, "workload", creatorKey, other)
	const itself, inTemplate = "created-by] names the creator, and that is ", "names another creator"
	tests := map[string]struct {
		object  client.Object
		message string
	}{
		"a Job":                          {job(forged, podTemplate()), itself},
		"a CronJob":                      {cron(forged, plain, podTemplate()), itself},
		"a Deployment":                   {deployment(forged, podTemplate()), itself},
		"a StatefulSet":                  {&appsv1.StatefulSet{ObjectMeta: forged, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a ReplicaSet":                   {&appsv1.ReplicaSet{ObjectMeta: forged, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a DaemonSet":                    {&appsv1.DaemonSet{ObjectMeta: forged, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a ReplicationController":        {&corev1.ReplicationController{ObjectMeta: forged, Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels, Template: ptr.To(podTemplate())}}, itself},
		"an empty creator":               {job(workloadMeta(ns, "workload", creatorKey, ""), podTemplate()), itself},
		"a Job's pods":                   {job(plain, podTemplate(creatorKey, other)), inTemplate},
		"a Deployment's pods":            {deployment(plain, podTemplate(creatorKey, other)), inTemplate},
		"a CronJob's Jobs":               {cron(plain, forged, podTemplate()), inTemplate},
		"a CronJob's Jobs' pods":         {cron(plain, plain, podTemplate(creatorKey, other)), inTemplate},
		"stopped from the start":         {job(workloadMeta(ns, "workload", v1alpha1.AnnotationStoppedUntil, "2026-01-01T00:00:00Z"), podTemplate()), "written by Sluice alone"},
		"allowed: a Job":                 {job(plain, podTemplate()), ""},
		"allowed: a CronJob":             {cron(plain, plain, podTemplate()), ""},
		"allowed: a Deployment":          {deployment(workloadMeta(ns, "workload", "mine", "yes"), podTemplate("mine", "yes")), ""},
		"allowed: a time limit for pods": {deployment(plain, podTemplate(v1alpha1.AnnotationMaxRuntime, "1h")), ""},
	}
	for user, c := range map[string]client.Client{
		"ada@example.org": clientFor(t, researcherConfig(t, ns)),
		"eve@example.org": clientFor(t, namespaceAdminConfig(t, ns)),
	} {
		for name, tc := range tests {
			t.Run(user+"/"+name, func(t *testing.T) {
				message := tc.message
				if message == itself {
					message += user // the message names the requesting user
				}
				expectError(t, c.Create(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll), message)
			})
		}
		t.Run(user+"/allowed: the user's own name", func(t *testing.T) {
			own := workloadMeta(ns, "workload", creatorKey, user)
			expectError(t, c.Create(t.Context(), cron(own, own, podTemplate(creatorKey, user)), client.DryRunAll), "")
		})
	}
	t.Run("allowed: a controller copies the annotation", func(t *testing.T) {
		controller := clientFor(t, impersonatedConfig(t, "system:serviceaccount:kube-system:cronjob-controller", ns))
		expectError(t, controller.Create(t.Context(), job(forged, podTemplate()), client.DryRunAll), "")
	})
}

// Users can operate a Deployment as usual: its controller copies annotations to its
// ReplicaSets, users roll out another version with another workload type, and scale it to
// zero. Only the creator of its pods cannot be changed.
func TestAdmissionPoliciesAllowDeployment(t *testing.T) {
	const ns = "course-ml"
	ada := clientFor(t, researcherConfig(t, ns))
	d := &appsv1.Deployment{
		ObjectMeta: workloadMeta(ns, "served", v1alpha1.AnnotationCreatedBy, "ada@example.org"),
		Spec:       appsv1.DeploymentSpec{Selector: selector, Template: podTemplate("version", "1")},
	}
	if err := ada.Create(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, d) })
	available := func(want int32) func() error {
		return func() error {
			if err := refresh(t, d); err != nil {
				return err
			}
			if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != want || d.Status.Replicas != want || d.Status.AvailableReplicas != want {
				return unexpectedState("all replicas are available", d.Status)
			}
			return nil
		}
	}
	eventually(t, available(1))
	expectError(t, ada.Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/created-by":"other@example.org"}}}}}`)), client.DryRunAll),
		"names another creator")
	d.Spec.Template.Labels[v1alpha1.LabelWorkloadType] = "inference"
	d.Spec.Template.Annotations["version"] = "2"
	if err := ada.Update(t.Context(), d); err != nil {
		t.Fatalf("update to another version: %v", err)
	}
	eventually(t, available(1))
	var sets appsv1.ReplicaSetList
	if err := ada.List(t.Context(), &sets, client.InNamespace(ns), client.MatchingLabels(selector.MatchLabels)); err != nil {
		t.Fatal(err)
	}
	if len(sets.Items) != 2 {
		t.Errorf("%d ReplicaSets, want one for each version", len(sets.Items))
	}
	for i := range sets.Items {
		if got := sets.Items[i].Annotations[v1alpha1.AnnotationCreatedBy]; got != "ada@example.org" {
			t.Errorf("ReplicaSet %s has the creator %q", sets.Items[i].Name, got)
		}
	}
	d.Spec.Replicas = ptr.To(int32(0))
	if err := ada.Update(t.Context(), d); err != nil {
		t.Fatalf("scale to zero: %v", err)
	}
	eventually(t, available(0))
}

// The policy protects a custom queued kind as soon as the cluster serves it.
func TestAdmissionPolicyForCustomQueuedKind(t *testing.T) {
	const ns = "course-ml"
	schema := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "jobsets.jobset.x-k8s.io", "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, of a test"}},
		"spec": map[string]any{
			"group": "jobset.x-k8s.io", "scope": "Namespaced",
			"names":    map[string]any{"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
			"versions": []any{map[string]any{"name": "v1alpha2", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": schema}}},
		},
	}})
	jobSet := func(annotations ...string) *unstructured.Unstructured {
		set := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": map[string]any{"suspend": true}}}
		meta := workloadMeta(ns, "set", annotations...)
		set.SetNamespace(meta.Namespace)
		set.SetName(meta.Name)
		set.SetAnnotations(meta.Annotations)
		set.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "course-ml"})
		return set
	}
	disableMutatingWebhook(t, workloadsWebhook)
	eve := clientFor(t, namespaceAdminConfig(t, ns))
	eventually(t, func() error { return eve.Create(t.Context(), jobSet(), client.DryRunAll) })
	expectError(t, eve.Create(t.Context(), jobSet(v1alpha1.AnnotationCreatedBy, "other@example.org"), client.DryRunAll), "that is eve@example.org")
	create(t, jobSet())
	for name, tc := range map[string]struct{ patch, message string }{
		"another queue":    {`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`, "metadata.labels"},
		"a creator":        {`{"metadata":{"annotations":{"sluice.dev/created-by":"other@example.org"}}}`, "does not change afterwards"},
		"allowed: started": {`{"metadata":{"labels":{"mine":"yes"}},"spec":{"suspend":false}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectError(t, eve.Patch(t.Context(), jobSet(), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll), tc.message)
		})
	}
}
