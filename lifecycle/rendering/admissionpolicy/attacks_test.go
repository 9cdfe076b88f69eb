// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package admissionpolicy_test

import (
	"strings"
	"testing"
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
