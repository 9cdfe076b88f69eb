// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/admissionpolicy"
)

// expect maps a case to a request and to a part of the refusal; an empty text expects that the request is allowed.
type expect map[string]struct {
	request admissionRequest
	want    string
}

func (cases expect) run(t *testing.T) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(tc.request.deny(t), "\n")
			if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("refused with %q, want %q", got, tc.want)
			}
		})
	}
}

// A selector does not match the pods of other users by the labels that Sluice sets on all. Guards invariants 4 and 12 of
// the design.
func TestSelectorsHaveNoLabelsOfSluice(t *testing.T) {
	const want = "sluice-selectors: spec.selector: sluice.dev/project: pods of other users have this label too"
	thief := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: thief}, spec: {replicas: 0, selector: {matchLabels: {sluice.dev/project: lab}}}}`
	own := `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: thief}, spec: {replicas: 0, selector: {matchLabels: {app: own}}}}`
	expect{
		"a ReplicaSet":              {admissionRequest{resource: "replicasets.apps", object: thief}, want},
		"a changed ReplicaSet":      {admissionRequest{resource: "replicasets.apps", old: own, object: thief}, want},
		"an unchanged selector":     {admissionRequest{resource: "replicasets.apps", old: thief, object: thief}, ""},
		"a selector of its own":     {admissionRequest{resource: "replicasets.apps", object: own}, ""},
		"a controller's copy":       {admissionRequest{user: replicaSet, resource: "replicasets.apps", object: thief}, ""},
		"an expression":             {admissionRequest{resource: "deployments.apps", object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: thief}, spec: {selector: {matchExpressions: [{key: sluice.dev/project, operator: Exists}]}}}`}, want},
		"a Job with manualSelector": {admissionRequest{resource: "jobs.batch", object: `{apiVersion: batch/v1, kind: Job, metadata: {name: thief}, spec: {manualSelector: true, selector: {matchLabels: {sluice.dev/project: lab}}}}`}, want},
		"such a Job of a CronJob":   {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: thief}, spec: {jobTemplate: {spec: {manualSelector: true, selector: {matchLabels: {sluice.dev/project: lab}}}}}}`}, want},
		"a Job without a selector":  {admissionRequest{resource: "jobs.batch", object: `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {}}`}, ""},
		"a ReplicationController":   {admissionRequest{resource: "replicationcontrollers", object: `{apiVersion: v1, kind: ReplicationController, metadata: {name: thief}, spec: {selector: {sluice.dev/project: lab}}}`}, want},
		"a Service":                 {admissionRequest{resource: "services", object: `{apiVersion: v1, kind: Service, metadata: {name: thief}, spec: {selector: {sluice.dev/project: lab}}}`}, want},
		"a PodDisruptionBudget":     {admissionRequest{resource: "poddisruptionbudgets.policy", object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: thief}, spec: {maxUnavailable: 0, selector: {matchLabels: {sluice.dev/project: lab}}}}`}, want},
		"a budget for all":          {admissionRequest{resource: "poddisruptionbudgets.policy", object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: all}, spec: {maxUnavailable: 1, selector: {}}}`}, ""},
	}.run(t)
}

// A user withdraws an own request and no other. Guards invariant 4 of the design.
func TestExtensionsAreDeletedByTheirRequester(t *testing.T) {
	const ofAnna = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: more, annotations: {sluice.dev/created-by: anna@example.org}}`
	const ofBen = `{apiVersion: sluice.dev/v1alpha1, kind: Extension, metadata: {name: more, annotations: {sluice.dev/created-by: ben@example.org}}}`
	member := []string{"own-only extensions.sluice.dev"}
	expect{
		"an own request":         {admissionRequest{resource: "extensions.sluice.dev", old: ofAnna + "}", rights: member}, ""},
		"an own decided request": {admissionRequest{resource: "extensions.sluice.dev", old: ofAnna + ", status: {decision: Approved}}", rights: member}, "was decided"},
		"another user's":         {admissionRequest{resource: "extensions.sluice.dev", old: ofBen, rights: member}, "extension more was requested by ben@example.org"},
		"another's, by an owner": {admissionRequest{resource: "extensions.sluice.dev", old: ofBen, rights: append(member, "others extensions.sluice.dev")}, ""},
		"with the namespace":     {admissionRequest{user: "system:serviceaccount:kube-system:namespace-controller", resource: "extensions.sluice.dev", old: ofBen}, ""},
	}.run(t)
}

// The workload type decides the priority in Kueue's queue, and a workload that a user's own controller manages would
// hold the quota without pods. Guards invariants 4 and 12 of the design.
func TestKueueFieldsOfWorkloads(t *testing.T) {
	const (
		plain    = `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {suspend: true}}`
		labeled  = `{apiVersion: batch/v1, kind: Job, metadata: {name: training, labels: {kueue.x-k8s.io/priority-class: high}}, spec: {suspend: true}}`
		class    = "metadata.labels[kueue.x-k8s.io/priority-class]: the priority in the queue follows from the workload type"
		managers = "spec.managedBy: example.org/mine: no known controller would start the workload"
	)
	managedBy := func(manager string) string {
		return `{apiVersion: batch/v1, kind: Job, metadata: {name: training}, spec: {managedBy: ` + manager + `}}`
	}
	expect{
		"a class at creation":           {admissionRequest{resource: "jobs.batch", object: labeled, queued: true}, class},
		"a class without Kueue":         {admissionRequest{resource: "jobs.batch", object: labeled}, ""},
		"a class later":                 {admissionRequest{resource: "jobs.batch", old: plain, object: labeled, queued: true}, class},
		"an older class":                {admissionRequest{resource: "jobs.batch", old: labeled, object: strings.Replace(labeled, "true", "false", 1), queued: true}, ""},
		"an older class is removed":     {admissionRequest{resource: "jobs.batch", old: labeled, object: plain, queued: true}, ""},
		"a class of a CronJob's Jobs":   {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {jobTemplate: {metadata: {labels: {kueue.x-k8s.io/priority-class: high}}}}}`, queued: true}, class},
		"a class of a Deployment":       {admissionRequest{resource: "deployments.apps", object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve, labels: {kueue.x-k8s.io/priority-class: high}}}`, queued: true}, class},
		"Kueue's Workload":              {admissionRequest{user: "system:serviceaccount:kueue-system:kueue-controller-manager", resource: "workloads.kueue.x-k8s.io", object: `{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: w, labels: {kueue.x-k8s.io/priority-class: high}}}`, queued: true}, ""},
		"a controller of the user's":    {admissionRequest{resource: "jobs.batch", object: managedBy("example.org/mine")}, managers},
		"the Job controller":            {admissionRequest{resource: "jobs.batch", object: managedBy("kubernetes.io/job-controller")}, ""},
		"MultiKueue":                    {admissionRequest{resource: "jobs.batch", object: managedBy("kueue.x-k8s.io/multikueue")}, ""},
		"a PyTorchJob's":                {admissionRequest{resource: "pytorchjobs.kubeflow.org", object: `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: training}, spec: {runPolicy: {managedBy: example.org/mine}}}`}, managers},
		"that of a CronJob's Jobs":      {admissionRequest{resource: "cronjobs.batch", object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: nightly}, spec: {jobTemplate: {spec: {managedBy: example.org/mine}}}}`}, managers},
		"that of a Job of a controller": {admissionRequest{user: "system:serviceaccount:kube-system:cronjob-controller", resource: "jobs.batch", object: managedBy("example.org/mine")}, managers},
	}.run(t)
}

// A pod gets no devices by an annotation, neither at its creation nor while it waits for a node. Guards invariant 4 of
// the design.
func TestDeviceAnnotations(t *testing.T) {
	pod := func(annotations string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: notebook, annotations: {sluice.dev/created-by: anna@example.org` + annotations + `}}, spec: {containers: []}}`
	}
	for _, key := range admissionpolicy.NewParameters(v1alpha1.AdmissionParametersSpec{}).Spec.DeviceAnnotations {
		want := "sluice-device-annotations: metadata.annotations: " + key
		expect{
			key + " at creation":   {admissionRequest{resource: "pods", object: pod(", " + key + "/main: x")}, want},
			key + " later":         {admissionRequest{resource: "pods", old: pod(""), object: pod(", " + key + ": x")}, want},
			key + " by the status": {admissionRequest{resource: "pods/status", old: pod(""), object: pod(", " + key + "/a: x")}, want},
			key + " changed":       {admissionRequest{resource: "pods", old: pod(", " + key + "/a: x"), object: pod(", " + key + "/a: y")}, want},
			key + " unchanged":     {admissionRequest{resource: "pods", old: pod(", " + key + ": x"), object: pod(", own: y, " + key + ": x")}, ""},
		}.run(t)
	}
	expect{"another annotation": {admissionRequest{resource: "pods", old: pod(""), object: pod(", example.org/cdi.k8s.io: x")}, ""}}.run(t)
}

// Lifecycle alone writes when a workload ends, and until when it stays stopped. Guards invariant 4 of the design.
func TestAnnotationsOfLifecycle(t *testing.T) {
	workload := func(annotations string) string {
		return `{apiVersion: apps/v1, kind: Deployment, metadata: {name: serve, annotations: {` + annotations + `}}, spec: {}}`
	}
	pod := func(annotations string) string {
		return `{apiVersion: v1, kind: Pod, metadata: {name: serve, annotations: {` + annotations + `}}, spec: {containers: []}}`
	}
	for _, key := range []string{v1alpha1.AnnotationEndsAt, v1alpha1.AnnotationStoppedUntil} {
		early, late := key+": '2020-01-01T00:00:00Z'", key+": '2099-01-01T00:00:00Z'"
		expect{
			key + " at creation":      {admissionRequest{resource: "deployments.apps", object: workload(late)}, "written by Sluice alone"},
			key + " later":            {admissionRequest{resource: "deployments.apps", old: workload(""), object: workload(late)}, "written by Sluice alone"},
			key + " changed":          {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload(early)}, "written by Sluice alone"},
			key + " removed":          {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload("")}, "written by Sluice alone"},
			key + " of a pod":         {admissionRequest{resource: "pods", old: pod(late), object: pod(early)}, "sluice-managed-metadata"},
			key + " by lifecycle":     {admissionRequest{user: lifecycle, resource: "deployments.apps", old: workload(late), object: workload(early)}, ""},
			key + " is left as it is": {admissionRequest{resource: "deployments.apps", old: workload(late), object: workload(late + ", own: x")}, ""},
		}.run(t)
	}
}
