// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
)

// messages returns the problems as name:line:column: message.
func messages(problems []engine.Problem) []string {
	var all []string
	for _, problem := range problems {
		all = append(all, problem.Error())
	}
	return all
}

// A reference to a field that input does not have is undefined, so that a deny never refuses.
// Guards invariant 4 of the design: a misspelled field must not let pods in.
func TestUnknownFieldsOfInputAreRefused(t *testing.T) {
	for name, tt := range map[string]struct{ rego, problem string }{
		"workload":            {`deny contains "x" if input.workload.gpu > 1`, "p:2:22: input.workload.gpu does not exist; did you mean gpus? input.workload has claims, "},
		"nested":              {`deny contains "x" if input.workload.owner.name == "x"`, "input.workload.owner.name does not exist; input.workload.owner has group, kind"},
		"project":             {`deny contains "x" if input.project.queue == "x"`, "input.project.queue does not exist"},
		"map by type":         {`deny contains "x" if input.project.limits.training.maxRuntimeSeconds > 1`, "input.project.limits.training does not exist; input.project.limits has inference, interactive, train"},
		"department":          {`deny contains "x" if input.department.timezone == "UTC"`, "did you mean timeZone?"},
		"list":                {`deny contains "x" if input.nodePools[0].pool == "x"`, "input.nodePools[0].pool does not exist"},
		"through a variable":  {`deny contains "x" if { some pool in input.nodePools; pool.schedulr == "kai" }`, "pool.schedulr does not exist; did you mean scheduler?"},
		"through a helper":    {"deny contains \"x\" if wide\nwide if input.workload.device > 1", "p:3:9: input.workload.device does not exist; did you mean devices?"},
		"under not":           {`deny contains "x" if not input.workload.migprofile`, "did you mean migProfile?"},
		"render":              {`objects contains {"kind": input.nodePool.nme}`, "input.nodePool.nme does not exist; did you mean name?"},
		"a string as number":  {`deny contains "x" if input.workload.devices == "2"`, "match error"},
		"without any schema":  {`deny contains "x" if input.objekt`, "input.objekt does not exist"},
		"the present use":     {`deny contains "x" if input.use.gpus > 1`, "input.use.gpus does not exist"},
		"a number's fields":   {`deny contains "x" if input.workload.devices.count > 1`, "undefined ref: input.workload.devices.count"},
		"a misspelled method": {`deny contains "x" if startwith(input.project.name, "x")`, "undefined function startwith"},
	} {
		t.Run(name, func(t *testing.T) {
			result := Check(engine.Source{Name: "p", Rego: "package p\n" + tt.rego + "\n"})
			if got := strings.Join(messages(result.Problems), "\n"); !strings.Contains(got, tt.problem) {
				t.Errorf("problems: %s\nwant %s", got, tt.problem)
			}
		})
	}
}

// The type checker does not see these references, as the documentation says.
func TestReferencesThatTheCheckCannotSee(t *testing.T) {
	for name, rego := range map[string]string{
		"a variable as key":     `deny contains "x" if { some key in ["gpu"]; input.workload[key] > 1 }`,
		"object.get":            `deny contains "x" if object.get(input.workload, "gpu", 0) > 1`,
		"an argument":           "deny contains \"x\" if many(input.workload)\nmany(w) if w.gpu > 1",
		"a field of any map":    `deny contains "x" if input.project.labels.tem == "x"`,
		"parameters, no schema": `deny contains "x" if input.parameters.maxGpu > 1`,
		"the admission request": `deny contains "x" if input.review.userInfo.username == "x"`,
	} {
		t.Run(name, func(t *testing.T) {
			if result := Check(engine.Source{Name: "p", Rego: "package p\n" + rego + "\n"}); len(result.Problems) > 0 {
				t.Errorf("problems: %v", messages(result.Problems))
			}
		})
	}
}

// Unknown fields of the object are warnings, since a newer Kubernetes may have them. A field
// that one of the matched kinds has is none.
func TestUnknownFieldsOfObjectAreWarnings(t *testing.T) {
	const podField = `deny contains "x" if { some c in input.object.spec.containers; c.imagePullPolcy == "Always" }`
	const jobField = `deny contains "x" if input.object.spec.parallelism > 1`
	for name, tt := range map[string]struct {
		rego    string
		kinds   []string
		warning string
	}{
		"a pod's":          {podField, nil, "c.imagePullPolcy does not exist; did you mean imagePullPolicy?"},
		"another kind's":   {jobField, []string{"Pod"}, "input.object.spec.parallelism does not exist"},
		"a Job's":          {jobField, []string{"Job.batch"}, ""},
		"one of the kinds": {jobField, []string{"Pod", "Job.batch"}, ""},
		"none of them":     {`deny contains "x" if input.object.spec.nme`, []string{"Pod", "Job"}, "(kind Pod, Job of Kubernetes 1.37)"},
		"Gatekeeper's":     {`violation contains {"msg": "x"} if input.review.object.spec.nodename == "x"`, nil, "did you mean nodeName?"},
		"in Rego v0":       {"violation[{\"msg\": \"x\"}] { input.review.object.spec.nodename == \"x\" }", nil, "did you mean nodeName?"},
		"old":              {`deny contains "x" if input.oldObject.spec.nodename == "x"`, nil, "did you mean nodeName?"},
		"a label":          {`deny contains "x" if input.object.metadata.labels.team == "x"`, nil, ""},
		"a quantity":       {`deny contains "x" if input.object.spec.containers[_].resources.limits["nvidia.com/gpu"] == "2"`, nil, ""},
		"objects":          {`objects contains {"kind": input.object.kind} if input.object.spec.x`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			result := Check(engine.Source{Name: "p", Rego: "package p\n" + tt.rego + "\n", Match: v1alpha1.PolicyMatch{Kinds: tt.kinds}})
			if len(result.Problems) > 0 {
				t.Fatalf("problems: %v", messages(result.Problems))
			}
			got := strings.Join(messages(result.Warnings), "\n")
			if tt.warning == "" && got != "" || !strings.Contains(got, tt.warning) {
				t.Errorf("warnings: %q; want %q", got, tt.warning)
			}
		})
	}
}

// A policy for a kind or operation for which no policy is evaluated would never refuse.
func TestMatchThatIsNeverEvaluatedIsRefused(t *testing.T) {
	source := engine.Source{Name: "p", Rego: "package p\ndeny contains \"x\"\n", Match: v1alpha1.PolicyMatch{
		Kinds: []string{"Pod", "Deployment.apps"}, Operations: []v1alpha1.PolicyOperation{"CREATE", "UPDATE"},
	}}
	want := []string{
		"p: spec.match.kinds[1]: policies are never evaluated for Deployment.apps, only for Pod and Job.batch; " +
			"other workloads are evaluated as the pods that they create: match Pod",
		"p: spec.match.operations[1]: policies are never evaluated for UPDATE, only for CREATE; " +
			"admission policies of the API server guard later changes",
	}
	if diff := cmp.Diff(want, messages(Check(source).Problems)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The built-in policies pass the check that all others must pass.
func TestBuiltInPoliciesPassTheCheck(t *testing.T) {
	for _, source := range policies.BuiltIn() {
		result := Check(source)
		if got := messages(append(result.Problems, result.Warnings...)); len(got) > 0 {
			t.Errorf("%s: %s", source.Name, strings.Join(got, "\n"))
		}
	}
}

// The cost of a check, against that of the compilation alone.
func BenchmarkCheck(b *testing.B) {
	source := policies.BuiltIn()[0]
	for name, check := range map[string]func(engine.Source) Result{
		"compile": func(s engine.Source) Result { return compile(s, nil) }, "check": func(s engine.Source) Result { return Check(s) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if result := check(source); len(result.Problems) > 0 {
					b.Fatal(result.Problems)
				}
			}
		})
	}
}
