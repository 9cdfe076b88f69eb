// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package render

import (
	"strings"
	"testing"
)

// Of cluster-wide objects a policy may render those under the subject's own name.
func TestNamesOfClusterWideObjects(t *testing.T) {
	var (
		project    = ClusterWide(ForProject, "thesis")
		department = ClusterWide(ForDepartment, "thesis")
		pool       = ClusterWide(ForNodePool, "thesis")
	)
	tests := map[string]struct {
		place   Place
		allowed bool
	}{
		"thesis":              {project, true},
		"thesis.dgx":          {project, true},
		"project.thesis":      {project, true},
		"project.thesis.dgx":  {project, true},
		"department.thesis":   {department, true},
		"nodepool.thesis.a-b": {pool, true},
		"":                    {project, false},
		"other":               {project, false},
		"thesis2":             {project, false},
		"thesis.":             {project, false},
		"thesis.dgx.x":        {project, false},
		"project.thesis.":     {project, false},
		"project.thesis.x.y":  {project, false},
		"project.other":       {project, false},
		"other.thesis":        {project, false},
		"nodepool.thesis":     {department, false},
		"department.thesis.x": {pool, false},
		".thesis":             {project, false},
	}
	for name, tc := range tests {
		if got := tc.place.mayName(name); got != tc.allowed {
			t.Errorf("%s may have an object called %q: %v, want %v", tc.place, name, got, tc.allowed)
		}
	}
}

// Whatever subjects are called, no name is open to two of different kinds but the
// bare one, and its suffixes, where their names are the same.
func TestNamesThatSoundLikeAKind(t *testing.T) {
	for name, place := range map[string]Place{
		"nodepool.dgx":       ClusterWide(ForProject, "nodepool"),
		"department.x":       ClusterWide(ForProject, "department"),
		"project.x":          ClusterWide(ForProject, "project"),
		"project.department": ClusterWide(ForDepartment, "department"),
	} {
		if place.mayName(name) {
			t.Errorf("%s may squat on %s", place, name)
		}
	}
	if place := ClusterWide(ForProject, "nodepool"); !place.mayName("nodepool") || !place.mayName("project.nodepool.x") {
		t.Errorf("%s has no names left", place)
	}
}

func TestCheckByKindOfSubject(t *testing.T) {
	queue := func(kind string, metadata fields) fields {
		return object("kueue.x-k8s.io/v1beta2", kind, metadata, fields{"whatever": "the schema says"})
	}
	tests := map[string]struct {
		place Place
		value fields
		says  string // empty where it is allowed
	}{
		"a project's queue":               {thesis, queue("ClusterQueue", fields{"name": "thesis"}), ""},
		"a project's local queue":         {thesis, queue("LocalQueue", fields{"name": "default"}), ""},
		"a department's cohort":           {ClusterWide(ForDepartment, "cs"), queue("Cohort", fields{"name": "cs"}), ""},
		"a pool's flavor":                 {ClusterWide(ForNodePool, "dgx"), queue("ResourceFlavor", fields{"name": "dgx"}), ""},
		"a pool's KAI queue":              {ClusterWide(ForNodePool, "dgx"), object("scheduling.run.ai/v2", "Queue", fields{"name": "nodepool.dgx"}, fields{}), ""},
		"a department's quota":            {ClusterWide(ForDepartment, "cs"), quotaNamed("q", "1"), "v1 ResourceQuota q is not a kind that policies may render for a Department; allowed are kueue.x-k8s.io/v1beta2 ResourceFlavor"},
		"a pool's local queue":            {ClusterWide(ForNodePool, "dgx"), queue("LocalQueue", fields{"name": "default"}), "for a NodePool"},
		"another version":                 {thesis, object("kueue.x-k8s.io/v1beta1", "ClusterQueue", fields{"name": "thesis"}, nil), "kueue.x-k8s.io/v1beta1 ClusterQueue thesis"},
		"another's name":                  {thesis, queue("ClusterQueue", fields{"name": "other"}), "metadata.name: a cluster-wide object of project thesis has one of the names thesis, thesis.<suffix>, project.thesis, project.thesis.<suffix>"},
		"cluster-wide with a namespace":   {thesis, queue("ClusterQueue", fields{"name": "thesis", "namespace": "thesis-ns"}), "is cluster-wide"},
		"a local queue of another's":      {thesis, queue("LocalQueue", fields{"name": "default", "namespace": "kube-system"}), "kube-system"},
		"a queue with a status":           {thesis, with(queue("ClusterQueue", fields{"name": "thesis"}), "status", fields{}), "status is not"},
		"a queue with an owner":           {thesis, queue("ClusterQueue", fields{"name": "thesis", "ownerReferences": []any{}}), "metadata.ownerReferences"},
		"a queue with labels of no value": {thesis, queue("ClusterQueue", fields{"name": "thesis", "labels": fields{"a": true}}), "labels"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wanted := Check(rendering(by("p", tc.value)), tc.place)
			if tc.says == "" {
				if len(wanted.Faults) > 0 || len(wanted.Objects) != 1 {
					t.Fatalf("wanted = %+v", wanted)
				}
				got := wanted.Objects[0]
				if got.GetLabels()[tc.place.Kind.Label()] != tc.place.Name || got.GetLabels()["app.kubernetes.io/managed-by"] != "sluice" || len(got.GetLabels()) != 2 {
					t.Errorf("labels = %v", got.GetLabels())
				}
				if in := got.GetNamespace(); in != "" && in != tc.place.Namespace || (in == "") == (got.GetKind() == "LocalQueue") {
					t.Errorf("%s is in namespace %q", got.GetKind(), in)
				}
				return
			}
			if len(wanted.Objects) != 0 || len(wanted.Faults) != 1 || !strings.Contains(wanted.Faults[0].String(), tc.says) {
				t.Fatalf("wanted = %+v", wanted)
			}
			if quota := tc.value["kind"] == "ResourceQuota"; wanted.Faults[0].Quota != quota || wanted.Faults[0].Queue == quota {
				t.Errorf("of a quota: %v, of a queue: %v", wanted.Faults[0].Quota, wanted.Faults[0].Queue)
			}
		})
	}
}

// What holds the limit is applied before what lets in.
func TestQuotasComeFirst(t *testing.T) {
	wanted := Check(rendering(
		by("p", object("kueue.x-k8s.io/v1beta2", "LocalQueue", fields{"name": "default"}, fields{})),
		by("p", object("kueue.x-k8s.io/v1beta2", "ClusterQueue", fields{"name": "thesis"}, fields{})),
		by("p", quotaNamed("b", "1")), by("p", quotaNamed("a", "1")),
	), thesis)
	var got []string
	for _, object := range wanted.Objects {
		got = append(got, object.GetKind()+" "+object.GetName())
	}
	if said := strings.Join(got, ", "); said != "ResourceQuota a, ResourceQuota b, ClusterQueue thesis, LocalQueue default" {
		t.Errorf("in this order: %s", said)
	}
}
