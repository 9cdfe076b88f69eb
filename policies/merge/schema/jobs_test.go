// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package schema

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

// corpusJobs returns the Jobs of testdata/jobs.yaml.
func corpusJobs(t *testing.T) []map[string]any {
	t.Helper()
	file, err := os.ReadFile("testdata/jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var corpus []map[string]any
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		job := map[string]any{"apiVersion": "batch/v1", "kind": "Job"}
		if err := yaml.UnmarshalStrict(document, &job); err != nil {
			t.Fatal(err)
		}
		corpus = append(corpus, job)
	}
	return corpus
}

// createJob returns a Job as webhooks see it: without the selector and its labels, which
// the API server sets after all webhooks.
func (s apiServer) createJob(job map[string]any) map[string]any {
	s.t.Helper()
	answer, err := s.client.BatchV1().RESTClient().Post().Namespace(s.namespace).Resource("jobs").
		Param("dryRun", "All").Param("fieldValidation", "Strict").Body([]byte(marshal(s.t, job))).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	created := decodeObject(s.t, answer)
	spec := AsMap(created["spec"])
	delete(spec, "selector")
	for _, at := range []map[string]any{created, AsMap(spec["template"])} {
		maps.DeleteFunc(AsMap(AsMap(at["metadata"])["labels"]), func(key string, _ any) bool {
			return strings.HasPrefix(key, "batch.kubernetes.io/") || key == "controller-uid" || key == "job-name"
		})
	}
	return created
}

// authoredJobLeaves returns the leaves of a Job's labels and spec that its author wrote.
func authoredJobLeaves(job map[string]any) map[string]any {
	found := map[string]any{}
	note := func(field *Field, parent any) {
		at := Location{Object: job, Parent: AsMap(parent)}
		maps.Insert(found, ClusterDefaults{}.authoredLeaves(field, at, AsMap(parent)[field.Name]))
	}
	note(Job().Field("metadata").Type.Field("labels"), job["metadata"])
	note(Job().Field("spec"), job)
	return found
}

func allJobLeaves(job map[string]any) map[string]any {
	unruled := rulesByField
	rulesByField = nil
	defer func() { rulesByField = unruled }()
	return authoredJobLeaves(job)
}

// Fields of a Job that the API server sets are open, the author's are not, and every row
// of the table occurs.
func TestOnlyDefaultedJobFieldsAreOpen(t *testing.T) {
	s := startAPIServer(t)
	seen := map[string]bool{}
	for field, rule := range rulesByField {
		if jobRules[field.ID()] == nil {
			continue
		}
		rulesByField[field] = func(c ClusterDefaults, at Location, v any) bool {
			is := rule(c, at, v)
			seen[field.ID()] = seen[field.ID()] || is
			return is
		}
		t.Cleanup(func() { rulesByField[field] = rule })
	}
	for _, job := range corpusJobs(t) {
		t.Run(podName(job), func(t *testing.T) {
			s.t = t
			if diff := cmp.Diff(allJobLeaves(job), authoredJobLeaves(s.createJob(job))); diff != "" {
				t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
			}
		})
	}
	for id := range jobRules {
		if !seen[id] {
			t.Errorf("%s was not seen to be filled in", id)
		}
	}
}

// A value that differs from the API server's is the author's.
func TestNonDefaultJobValuesAreAuthored(t *testing.T) {
	s := startAPIServer(t)
	for _, job := range corpusJobs(t) {
		returned := s.createJob(job)
		before, own := authoredJobLeaves(returned), allJobLeaves(job)
		for path, v := range allJobLeaves(returned) {
			if _, ok := own[path]; ok || strings.HasPrefix(path, "labels[") {
				continue
			}
			changed := decodeObject(t, []byte(marshal(t, returned)))
			if !replaceAt(changed, path, v) {
				t.Fatalf("%s: %s = %v cannot be changed", podName(job), path, v)
			}
			if cmp.Equal(before, authoredJobLeaves(changed)) {
				t.Errorf("%s: %s is open, whatever it is", podName(job), path)
			}
		}
	}
}
