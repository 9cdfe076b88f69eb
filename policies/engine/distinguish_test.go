// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// A policy distinguishes two pods only if it may read where they differ, also if its results are not cached.
func TestDistinguishing(t *testing.T) {
	policy := func(name, rules string) engine.Source {
		return engine.Source{Name: name, Rego: "package " + name + "\n" + rules}
	}
	e := newEngine(t,
		policy("reads_value", `deny contains "a" if input.object.spec.containers[_].env[_].value == "x"`),
		policy("reads_name", `deny contains "a" if { some c in input.object.spec.containers; some v in c.env; v.name == "x" }`),
		policy("reads_value_and_time", `deny contains "a" if { input.now == "x"; input.object.spec.containers[_].env[_].value == "x" }`),
		policy("reads_name_and_time", `deny contains input.now if { some c in input.object.spec.containers; count(c.env) == 1 }`),
		policy("reads_all", `deny contains json.marshal(input.object) if true`),
		policy("reads_review", `warn contains json.marshal(input.review) if true`),
		policy("is_type", `type := "interactive" if input.object.spec.containers[0].env[0].value == "x"`),
		engine.Source{Name: "of_jobs", Rego: "package of_jobs\ndeny contains json.marshal(input.object) if true", Match: v1alpha1.PolicyMatch{Kinds: []string{"Job.batch"}}},
	)
	set, err := e.Current()
	if err != nil {
		t.Fatal(err)
	}
	pod := func(value string) engine.Input {
		return podInput(t, `{"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "`+value+`"}]}]}}`)
	}
	want := []string{"is_type", "reads_all", "reads_review", "reads_value", "reads_value_and_time"}
	if diff := cmp.Diff(want, set.Distinguishing(pod("a"), pod("b"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if names := set.Distinguishing(pod("a"), pod("a")); len(names) > 0 {
		t.Errorf("equal pods are distinguished by %v", names)
	}
}
