// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package audit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/audit"
)

func v1Time(at time.Time) metav1.Time { return metav1.NewTime(at) }

const denyAll = `deny contains "no" if input.object.spec.containers[0].image == "old"`

// pod returns a pod; owner is the kind and name of its controller, or empty.
func pod(t testing.TB, namespace, name, image, owner string) *unstructured.Unstructured {
	t.Helper()
	return parse(t, fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %q, uid: %q%s},
		spec: {containers: [{name: main, image: %s}]}}`, namespace, name, name, ownerText(owner), image))
}

func ownerText(owner string) string {
	if owner == "" {
		return ""
	}
	kind, name, _ := strings.Cut(owner, "/")
	version := map[string]string{"Job": "batch/v1", "CronJob": "batch/v1", "Custom": "example.org/v1"}[kind]
	if version == "" {
		version = "apps/v1"
	}
	return fmt.Sprintf(", ownerReferences: [{apiVersion: %s, kind: %s, name: %s, uid: %s, controller: true}]", version, kind, name, name)
}

func workload(t testing.TB, version, kind, namespace, name, image, owner string) *unstructured.Unstructured {
	t.Helper()
	return parse(t, fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %q, uid: %q%s},
		spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: %s}]}}}}`, version, kind, namespace, name, name, ownerText(owner), image))
}

// newWalk returns a walk over a cluster with a policy that denies the image old.
func newWalk(t testing.TB, reader *clusterReader, projects ...string) *audit.Walk {
	t.Helper()
	all := make([]v1alpha1.Project, 0, len(projects))
	for _, name := range projects {
		all = append(all, newProject(name))
	}
	return &audit.Walk{
		Reader: reader, Mapper: newMapper(kubernetesKinds()...), Tenants: newTenants(all...), Limits: audit.DefaultLimits,
		Auditor: newCluster(t, source("a", "", denyAll)).Auditor(auditTime),
	}
}

// entryLines returns the entries of a report, one a line.
func entryLines(report *audit.Report) []string {
	all := []string{}
	for i := range report.Entries {
		e := &report.Entries[i]
		all = append(all, fmt.Sprintf("%s %s/%s %s %s pods=%d", e.Policy, e.Namespace, e.Kind, e.Name, e.Result, e.Pods))
	}
	return all
}

// Findings name the object that its author can change, once, with the number of its pods.
func TestWalkReportsRoots(t *testing.T) {
	reader := &clusterReader{objects: []*unstructured.Unstructured{
		workload(t, "apps/v1", "Deployment", "thesis", "web", "old", ""),
		workload(t, "apps/v1", "ReplicaSet", "thesis", "web-1", "old", "Deployment/web"),
		pod(t, "thesis", "web-1-a", "old", "ReplicaSet/web-1"), pod(t, "thesis", "web-1-b", "old", "ReplicaSet/web-1"),
		workload(t, "batch/v1", "Job", "thesis", "night-1", "old", "CronJob/night"), pod(t, "thesis", "night-1-a", "old", "Job/night-1"),
		pod(t, "thesis", "custom-a", "old", "Custom/c"), pod(t, "thesis", "custom-b", "new", "Custom/c"),
		pod(t, "thesis", "bare", "old", ""), pod(t, "thesis", "good", "new", ""),
		pod(t, "elsewhere", "not-governed", "old", ""),
		pod(t, "other", "bare", "old", ""),
	}}
	report, err := newWalk(t, reader, "thesis", "other").Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"a other/Pod bare Denied pods=0",
		"a thesis/CronJob night Denied pods=1",
		"a thesis/Custom c Denied pods=1",
		"a thesis/Deployment web Denied pods=2",
		"a thesis/Pod bare Denied pods=0",
	}
	if diff := cmp.Diff(want, entryLines(report)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if total := report.Total(); total.Denied != 5 || total.Enforced != 5 || report.Policies["a"].ByProject["thesis"] != 4 {
		t.Errorf("counts: %+v, %+v", total, report.Policies["a"])
	}
}

// A walk in one namespace, and of some policies, has only their findings.
func TestWalkIsLimited(t *testing.T) {
	reader := &clusterReader{objects: []*unstructured.Unstructured{pod(t, "thesis", "a", "old", ""), pod(t, "other", "b", "old", "")}}
	walk := newWalk(t, reader, "thesis", "other")
	walk.Namespace = "other"
	report, err := walk.Run(t.Context())
	if err != nil || len(report.Entries) != 1 || report.Entries[0].Name != "b" {
		t.Errorf("%v, %v", err, entryLines(report))
	}
	walk.Selected = func(policy string) bool { return policy != "a" }
	if report, err = walk.Run(t.Context()); err != nil || len(report.Entries) != 0 || report.Evaluated != 1 {
		t.Errorf("%v, %v", err, entryLines(report))
	}
}

// A list that expires goes on behind its last object, with the token of the API server or from the start: no object is audited
// twice, and none is lost.
func TestWalkSurvivesExpiredPages(t *testing.T) {
	var objects []*unstructured.Unstructured
	for i := range 350 {
		objects = append(objects, pod(t, "thesis", fmt.Sprintf("p-%03d", i), "old", ""))
	}
	for name, withToken := range map[string]bool{"with a token": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			failures := 0
			reader := &clusterReader{objects: objects}
			reader.fail = func(_, next string) error {
				if next == "" || failures >= 3 || reader.calls%2 == 0 {
					return nil
				}
				failures++
				if withToken {
					return expired(next)
				}
				return expired("")
			}
			report, err := newWalk(t, reader, "thesis").Run(t.Context())
			if err != nil || failures == 0 {
				t.Fatalf("%v, %d failures", err, failures)
			}
			if report.Evaluated != 350 || len(report.Entries) != 350 {
				t.Errorf("evaluated %d objects, %d entries; want 350", report.Evaluated, len(report.Entries))
			}
		})
	}
	always := &clusterReader{objects: objects, fail: func(_, next string) error {
		if next != "" {
			return expired("")
		}
		return nil
	}}
	if _, err := newWalk(t, always, "thesis").Run(t.Context()); err == nil || always.calls > 500 {
		t.Errorf("lists that always expire: %v after %d calls", err, always.calls)
	}
}

// An audit that is interrupted ends with an error, and the next one has the whole result.
func TestWalkIsInterrupted(t *testing.T) {
	var objects []*unstructured.Unstructured
	for i := range 250 {
		objects = append(objects, pod(t, "thesis", fmt.Sprintf("p-%03d", i), "old", ""))
	}
	walk := newWalk(t, &clusterReader{objects: objects}, "thesis")
	ctx, cancel := context.WithCancel(t.Context())
	walk.Pause = func(ctx context.Context, _ time.Duration) error {
		cancel()
		return ctx.Err()
	}
	if _, err := walk.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("interrupted: %v", err)
	}
	walk.Pause = nil
	if report, err := walk.Run(t.Context()); err != nil || len(report.Entries) != 250 {
		t.Errorf("again: %v", err)
	}
}

// A kind without rights is reported and one that is gone is skipped; another error ends the audit.
func TestWalkErrors(t *testing.T) {
	resource := schema.GroupResource{Group: "apps", Resource: "deployments"}
	for name, tc := range map[string]struct {
		err     error
		fails   bool
		missing []string
	}{
		"forbidden": {apierrors.NewForbidden(resource, "", errors.New("not you")), false, []string{"deployments.apps"}},
		"gone":      {apierrors.NewNotFound(resource, ""), false, nil},
		"another":   {apierrors.NewInternalError(errors.New("etcd")), true, nil},
		"expired":   {expired(""), true, nil}, // the first page has no snapshot
	} {
		t.Run(name, func(t *testing.T) {
			reader := &clusterReader{objects: []*unstructured.Unstructured{pod(t, "thesis", "a", "old", "")}, fail: func(kind, _ string) error {
				if kind == "Deployment" {
					return tc.err
				}
				return nil
			}}
			report, err := newWalk(t, reader, "thesis").Run(t.Context())
			if (err != nil) != tc.fails {
				t.Fatalf("error %v", err)
			}
			if err == nil {
				if diff := cmp.Diff(tc.missing, report.MissingRights); diff != "" || report.Evaluated != 1 {
					t.Errorf("%d evaluated, missing -want +got\n%s", report.Evaluated, diff)
				}
			}
		})
	}
}

// References that form a circle, or lead to no object, end.
func TestWalkOfForgedOwners(t *testing.T) {
	reader := &clusterReader{objects: []*unstructured.Unstructured{
		workload(t, "apps/v1", "ReplicaSet", "thesis", "a", "new", "ReplicaSet/b"),
		workload(t, "apps/v1", "ReplicaSet", "thesis", "b", "new", "ReplicaSet/a"),
		pod(t, "thesis", "p", "old", "ReplicaSet/a"),
	}}
	report, err := newWalk(t, reader, "thesis").Run(t.Context())
	if err != nil || len(report.Entries) != 1 || report.Entries[0].Kind != "ReplicaSet" {
		t.Errorf("%v, %v", err, entryLines(report))
	}
}
