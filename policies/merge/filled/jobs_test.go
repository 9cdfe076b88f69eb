// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package filled

import (
	"bytes"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"sluice.dev/policies/merge/podschema"
	"sluice.dev/policies/merge/value"
)

// jobCorpus are the Jobs of testdata/jobs.yaml.
func jobCorpus(t *testing.T) []map[string]any {
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

// createdJob is what the API server makes of a Job, as webhooks see it: without
// the selector and its labels, which it makes when all webhooks were asked.
func (s server) createdJob(job map[string]any) map[string]any {
	s.t.Helper()
	answer, err := s.client.BatchV1().RESTClient().Post().Namespace(s.namespace).Resource("jobs").
		Param("dryRun", "All").Param("fieldValidation", "Strict").Body([]byte(marshal(s.t, job))).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatalf("%v: %s", err, answer)
	}
	created := decoded(s.t, answer)
	spec := value.Map(created["spec"])
	delete(spec, "selector")
	for _, at := range []map[string]any{created, value.Map(spec["template"])} {
		maps.DeleteFunc(value.Map(value.Map(at["metadata"])["labels"]), func(key string, _ any) bool {
			return strings.HasPrefix(key, "batch.kubernetes.io/") || key == "controller-uid" || key == "job-name"
		})
	}
	return created
}

// authoredJob are the leaves of a Job's labels and spec that its author wrote.
func authoredJob(job map[string]any) map[string]any {
	found := map[string]any{}
	note := func(field *podschema.Field, parent any) {
		at := Place{Object: job, Parent: value.Map(parent)}
		maps.Insert(found, Cluster{}.leaves(field, at, value.Map(parent)[field.Name]))
	}
	note(podschema.Job().Field("metadata").Type.Field("labels"), job["metadata"])
	note(podschema.Job().Field("spec"), job)
	return found
}

func writtenJob(job map[string]any) map[string]any {
	unruled := rules
	rules = nil
	defer func() { rules = unruled }()
	return authoredJob(job)
}

// What the API server fills in on a Job is open, and what the author wrote is not;
// and every row was seen to be filled in.
func TestExactlyWhatTheServerFillsInOnAJobIsOpen(t *testing.T) {
	s := start(t)
	seen := map[string]bool{}
	for field, rule := range rules {
		if jobs[field.ID()] == nil {
			continue
		}
		rules[field] = func(c Cluster, at Place, v any) bool {
			is := rule(c, at, v)
			seen[field.ID()] = seen[field.ID()] || is
			return is
		}
		t.Cleanup(func() { rules[field] = rule })
	}
	for _, job := range jobCorpus(t) {
		t.Run(name(job), func(t *testing.T) {
			s.t = t
			if diff := cmp.Diff(writtenJob(job), authoredJob(s.createdJob(job))); diff != "" {
				t.Errorf("taken for the author's (-submitted +returned):\n%s", diff)
			}
		})
	}
	for id := range jobs {
		if !seen[id] {
			t.Errorf("%s was not seen to be filled in", id)
		}
	}
}

// Other values than the API server's are the author's.
func TestOtherValuesOnAJobAreNotOpen(t *testing.T) {
	s := start(t)
	for _, job := range jobCorpus(t) {
		returned := s.createdJob(job)
		before, own := authoredJob(returned), writtenJob(job)
		for path, v := range writtenJob(returned) {
			if _, ok := own[path]; ok || strings.HasPrefix(path, "labels[") {
				continue
			}
			changed := decoded(t, []byte(marshal(t, returned)))
			if !replace(changed, path, v) {
				t.Fatalf("%s: %s = %v cannot be changed", name(job), path, v)
			}
			if cmp.Equal(before, authoredJob(changed)) {
				t.Errorf("%s: %s is open, whatever it is", name(job), path)
			}
		}
	}
}
