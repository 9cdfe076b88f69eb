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

// workloadMeta is a workload's, with annotations in pairs.
func workloadMeta(namespace, name string, annotations ...string) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}, Annotations: map[string]string{}}
	for i := 0; i < len(annotations); i += 2 {
		meta.Annotations[annotations[i]] = annotations[i+1]
	}
	return meta
}

// podTemplate is of pods that its workload's selector finds.
func podTemplate(annotations ...string) corev1.PodTemplateSpec {
	t := corev1.PodTemplateSpec{Spec: newPod("", "").Spec}
	t.ObjectMeta = workloadMeta("", "", annotations...)
	t.Labels["app"] = "tried"
	return t
}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "tried"}}

// suspendedJob waits for a GPU, as one that an engine queues.
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

// Nobody names another as the maker of a workload, by its own metadata or by what
// it hands to its pods, even where the webhook does not put it right; nor says that
// it was stopped. Guards invariant 4 of the
// design.
func TestAdmissionPolicyProtectsWorkloadCreator(t *testing.T) {
	disableMutatingWebhook(t, workloadsWebhook)
	const ns = "course-ml"
	const by, other = v1alpha1.AnnotationCreatedBy, "somebody@example.org"
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
	plain, forged := workloadMeta(ns, "tried"), workloadMeta(ns, "tried", by, other)
	const itself, inTemplate = "created-by] must name the user who creates the object, ", "would name another as the creator"
	tests := map[string]struct {
		object client.Object
		says   string
	}{
		"a Job":                    {job(forged, podTemplate()), itself},
		"a CronJob":                {cron(forged, plain, podTemplate()), itself},
		"a Deployment":             {deployment(forged, podTemplate()), itself},
		"a StatefulSet":            {&appsv1.StatefulSet{ObjectMeta: forged, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a ReplicaSet":             {&appsv1.ReplicaSet{ObjectMeta: forged, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a DaemonSet":              {&appsv1.DaemonSet{ObjectMeta: forged, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: podTemplate()}}, itself},
		"a ReplicationController":  {&corev1.ReplicationController{ObjectMeta: forged, Spec: corev1.ReplicationControllerSpec{Selector: selector.MatchLabels, Template: ptr.To(podTemplate())}}, itself},
		"nobody":                   {job(workloadMeta(ns, "tried", by, ""), podTemplate()), itself},
		"a Job's pods":             {job(plain, podTemplate(by, other)), inTemplate},
		"a Deployment's pods":      {deployment(plain, podTemplate(by, other)), inTemplate},
		"a CronJob's Jobs":         {cron(plain, forged, podTemplate()), inTemplate},
		"a CronJob's Jobs' pods":   {cron(plain, plain, podTemplate(by, other)), inTemplate},
		"stopped from the start":   {job(workloadMeta(ns, "tried", v1alpha1.AnnotationStoppedUntil, "2026-01-01T00:00:00Z"), podTemplate()), "written by Sluice alone"},
		"in order: a Job":          {job(plain, podTemplate()), ""},
		"in order: a CronJob":      {cron(plain, plain, podTemplate()), ""},
		"in order: a Deployment":   {deployment(workloadMeta(ns, "tried", "mine", "yes"), podTemplate("mine", "yes")), ""},
		"in order: a share's pods": {deployment(plain, podTemplate(v1alpha1.AnnotationMaxRuntime, "1h")), ""},
	}
	for user, person := range map[string]client.Client{
		"ada@example.org": clientFor(t, researcherConfig(t, ns)),
		"eve@example.org": clientFor(t, namespaceAdminConfig(t, ns)),
	} {
		for name, tc := range tests {
			t.Run(user+"/"+name, func(t *testing.T) {
				says := tc.says
				if says == itself {
					says += user // it names the one who asks
				}
				expectError(t, person.Create(t.Context(), tc.object.DeepCopyObject().(client.Object), client.DryRunAll), says)
			})
		}
		t.Run(user+"/in order: one's own name", func(t *testing.T) {
			own := workloadMeta(ns, "tried", by, user)
			expectError(t, person.Create(t.Context(), cron(own, own, podTemplate(by, user)), client.DryRunAll), "")
		})
	}
	t.Run("in order: a controller hands on", func(t *testing.T) {
		controller := clientFor(t, impersonatedConfig(t, "system:serviceaccount:kube-system:cronjob-controller", ns))
		expectError(t, controller.Create(t.Context(), job(forged, podTemplate()), client.DryRunAll), "")
	})
}

// What was judged of a queued workload when it was made stays as it was, though
// Kubernetes lets a suspended Job's template be edited. Guards invariant 4 of the
// design.
func TestAdmissionPolicyProtectsSuspendedJob(t *testing.T) {
	const ns = "course-ml"
	ada, eve := clientFor(t, researcherConfig(t, ns)), clientFor(t, namespaceAdminConfig(t, ns))
	victim := suspendedJob(ns)
	victim.Annotations[v1alpha1.AnnotationCreatedBy] = "ada@example.org"
	if err := ada.Create(t.Context(), victim); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteAndWait(t, victim) })

	inMain := func(resources string) string {
		return `{"spec":{"template":{"spec":{"containers":[{"name":"main","resources":` + resources + `}]}}}}`
	}
	const count, anew = "how many GPUs a workload asks for", "make it anew"
	tests := map[string]struct{ patch, says string }{
		"more GPUs":                      {inMain(`{"limits":{"nvidia.com/mig-1g.5gb":"8"},"requests":{"nvidia.com/mig-1g.5gb":"8"}}`), count},
		"a GPU of another kind":          {inMain(`{"limits":{"nvidia.com/mig-3g.40gb":"1"},"requests":{"nvidia.com/mig-3g.40gb":"1"}}`), count},
		"the charge taken out":           {inMain(`{"limits":{"sluice.dev/gpu-milli.dgx-mig":null},"requests":{"sluice.dev/gpu-milli.dgx-mig":null}}`), count},
		"a larger share":                 {`{"spec":{"template":{"metadata":{"annotations":{"gpu-fraction":"0.9"}}}}}`, "spec.template.metadata.annotations"},
		"a later end":                    {`{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/max-runtime":"48h"}}}}}`, anew},
		"no end":                         {`{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/max-runtime":null}}}}}`, anew},
		"another type":                   {`{"spec":{"template":{"metadata":{"labels":{"sluice.dev/workload-type":"inference"}}}}}`, "spec.template.metadata.labels"},
		"another queue of the pods":      {`{"spec":{"template":{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}}}`, anew},
		"another queue":                  {`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`, "metadata.labels"},
		"no queue, and started":          {`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}},"spec":{"suspend":false}}`, "metadata.labels"},
		"another project":                {`{"metadata":{"labels":{"sluice.dev/project":"thesis-mueller"}}}`, "metadata.labels"},
		"another creator":                {`{"metadata":{"annotations":{"sluice.dev/created-by":"somebody@example.org"}}}`, "neither changed nor taken off"},
		"no creator":                     {`{"metadata":{"annotations":{"sluice.dev/created-by":null}}}`, "neither changed nor taken off"},
		"stopped":                        {`{"metadata":{"annotations":{"sluice.dev/stopped-until":"2026-01-01T00:00:00Z"}}}`, "written by Sluice alone"},
		"in order: more CPU":             {inMain(`{"limits":{"cpu":"2"},"requests":{"cpu":"2"}}`), ""},
		"in order: the GPUs as they are": {inMain(`{"limits":{"nvidia.com/mig-1g.5gb":1,"sluice.dev/gpu-milli.dgx-mig":"1k"}}`), ""},
		"in order: a node":               {`{"spec":{"template":{"spec":{"nodeSelector":{"zone":"a"}}}}}`, ""},
		"in order: keys of one's own":    {`{"metadata":{"labels":{"mine":"yes"}},"spec":{"template":{"metadata":{"labels":{"mine":"yes"},"annotations":{"mine":"yes"}}}}}`, ""},
		"in order: started":              {`{"spec":{"suspend":false}}`, ""},
	}
	patched := func(t *testing.T, person client.Client, body string) error {
		return person.Patch(t.Context(), suspendedJob(ns), client.RawPatch(types.StrategicMergePatchType, []byte(body)), client.DryRunAll)
	}
	for who, person := range map[string]client.Client{"a researcher": ada, "a namespace administrator": eve} {
		for name, tc := range tests {
			t.Run(who+"/"+name, func(t *testing.T) { expectError(t, patched(t, person, tc.patch), tc.says) })
		}
	}
	for name, tc := range map[string]struct{ patch, says string }{
		"another queue, by the status":   {`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`, "metadata.labels"},
		"another creator, by the status": {`{"metadata":{"annotations":{"sluice.dev/created-by":"somebody@example.org"}}}`, "neither changed nor taken off"},
	} {
		t.Run("a namespace administrator/"+name, func(t *testing.T) {
			patch := client.RawPatch(types.StrategicMergePatchType, []byte(tc.patch))
			expectError(t, eve.Status().Patch(t.Context(), suspendedJob(ns), patch, &client.SubResourcePatchOptions{PatchOptions: client.PatchOptions{DryRun: dryRun}}), tc.says)
		})
	}
}

// Ordinary work with a Deployment goes on: its controller hands its annotations
// to its ReplicaSet, it is given another version of another type, and is stopped.
// Only the maker of its pods is not for its author to say, then as at the start.
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
				return unexpectedState("the Deployment has its replicas", d.Status)
			}
			return nil
		}
	}
	eventually(t, available(1))
	expectError(t, ada.Patch(t.Context(), d.DeepCopy(), client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"template":{"metadata":{"annotations":{"sluice.dev/created-by":"somebody@example.org"}}}}}`)), client.DryRunAll),
		"would name another as the creator")
	d.Spec.Template.Labels[v1alpha1.LabelWorkloadType] = "inference"
	d.Spec.Template.Annotations["version"] = "2"
	if err := ada.Update(t.Context(), d); err != nil {
		t.Fatalf("another version: %v", err)
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
			t.Errorf("ReplicaSet %s is created by %q", sets.Items[i].Name, got)
		}
	}
	d.Spec.Replicas = ptr.To(int32(0))
	if err := ada.Update(t.Context(), d); err != nil {
		t.Fatalf("stopped: %v", err)
	}
	eventually(t, available(0))
}

// A queued kind that is not Kubernetes' own is guarded from when the cluster has
// it.
func TestAdmissionPolicyForCustomQueuedKind(t *testing.T) {
	const ns = "course-ml"
	anything := map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	create(t, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "jobsets.jobset.x-k8s.io", "annotations": map[string]any{"api-approved.kubernetes.io": "unapproved, of a test"}},
		"spec": map[string]any{
			"group": "jobset.x-k8s.io", "scope": "Namespaced",
			"names":    map[string]any{"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
			"versions": []any{map[string]any{"name": "v1alpha2", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": anything}}},
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
	expectError(t, eve.Create(t.Context(), jobSet(v1alpha1.AnnotationCreatedBy, "somebody@example.org"), client.DryRunAll), "that is eve@example.org")
	create(t, jobSet())
	for name, tc := range map[string]struct{ patch, says string }{
		"another queue":     {`{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"other"}}}`, "metadata.labels"},
		"a creator":         {`{"metadata":{"annotations":{"sluice.dev/created-by":"somebody@example.org"}}}`, "neither changed nor taken off"},
		"in order: started": {`{"metadata":{"labels":{"mine":"yes"}},"spec":{"suspend":false}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			expectError(t, eve.Patch(t.Context(), jobSet(), client.RawPatch(types.MergePatchType, []byte(tc.patch)), client.DryRunAll), tc.says)
		})
	}
}
