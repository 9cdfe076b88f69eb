// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package check

import (
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/input"
)

// A conflict with a policy in force is found when a policy is applied, with both names, the path and
// both values. Guards invariant 11 of the design.
func TestConflictsAreFoundOnExamples(t *testing.T) {
	overrides := func(name, object string, change ...func(*engine.Source)) engine.Source {
		source := engine.Source{Name: name, Rego: "package p\n\noverrides := " + object + "\n"}
		for _, c := range change {
			c(&source)
		}
		return source
	}
	const runtimeClass = `{"spec": {"runtimeClassName": "a"}}`
	other := overrides("other", `{"spec": {"runtimeClassName": "b"}}`)
	for name, tt := range map[string]struct {
		source engine.Source
		others []engine.Source
		// builtIn: the built-in policies are in force.
		builtIn bool
		// want is the beginning of the first warning; empty if there is none.
		want string
	}{
		"a built-in policy": {
			builtIn: true,
			source:  overrides("mine", `{"spec": {"schedulerName": "mine"}}`),
			want:    `spec.schedulerName: policy mine sets "mine", policy schedulers.kube-scheduler sets "default-scheduler", for example on whole-gpu in an example project`,
		},
		"a built-in policy of one scheduler only": {
			builtIn: true,
			source:  overrides("mine", `{"metadata": {"labels": {"kai.scheduler/queue": "mine"}}} if input.nodePools[0].scheduler == "kai"`),
			want:    `metadata.labels[kai.scheduler/queue]: policy mine sets "mine", policy schedulers.kai sets`,
		},
		"on fractions only": {
			builtIn: true,
			source:  overrides("mine", `{"spec": {"priorityClassName": "mine"}} if input.workload.form == "Share"`),
			want:    `spec.priorityClassName: policy core.priority sets "sluice-train", policy mine sets "mine", for example on share`,
		},
		"a policy of a team": {
			source: overrides("mine", runtimeClass), others: []engine.Source{other},
			want: `spec.runtimeClassName: policy mine sets "a", policy other sets "b", for example on whole-gpu`,
		},
		"one in DryRun, before it is enforced": {
			source: overrides("mine", runtimeClass, func(s *engine.Source) { s.Enforcement = v1alpha1.EnforcementDryRun }), others: []engine.Source{other},
			want: `spec.runtimeClassName: policy mine sets "a", policy other sets "b"`,
		},
		"Jobs": {
			source: overrides("mine", `{"spec": {"backoffLimit": 1}}`, func(s *engine.Source) { s.Match.Kinds = []string{"Job.batch"} }),
			others: []engine.Source{overrides("other", `{"spec": {"backoffLimit": 2}}`, func(s *engine.Source) { s.Match.Kinds = []string{"Job"} })},
			want:   `spec.backoffLimit: policy mine sets 1, policy other sets 2, for example on Job job`,
		},
		"projects of its match": {
			source: overrides("mine", runtimeClass, func(s *engine.Source) { s.Match.Projects = []string{"thesis", "course"} }),
			others: []engine.Source{overrides("other", `{"spec": {"runtimeClassName": "b"}}`, func(s *engine.Source) { s.Match.Projects = []string{"thesis"} })},
			want:   `spec.runtimeClassName: policy mine sets "a", policy other sets "b", for example on whole-gpu in an example project`,
		},
		"the same value":     {source: overrides("mine", runtimeClass), others: []engine.Source{overrides("other", runtimeClass)}},
		"its own version":    {source: overrides("mine", runtimeClass), others: []engine.Source{overrides("mine", `{"spec": {"runtimeClassName": "b"}}`)}},
		"another project":    {source: overrides("mine", runtimeClass, func(s *engine.Source) { s.Match.Projects = []string{"thesis"} }), others: []engine.Source{overrides("other", `{"spec": {"runtimeClassName": "b"}}`, func(s *engine.Source) { s.Match.Projects = []string{"course"} })}},
		"the other on trial": {source: overrides("mine", runtimeClass), others: []engine.Source{overrides("other", `{"spec": {"runtimeClassName": "b"}}`, func(s *engine.Source) { s.Enforcement = v1alpha1.EnforcementDryRun })}},
		"a broken other":     {source: overrides("mine", runtimeClass), others: []engine.Source{{Name: "other", Rego: "{"}}},
		"others among themselves": {
			source: overrides("mine", `{"metadata": {"labels": {"a": "b"}}}`), others: []engine.Source{other, overrides("third", runtimeClass)},
		},
		"what it replaces": {source: overrides("mine", `{"spec": {"priorityClassName": "mine"}}`, func(s *engine.Source) { s.Replaces = "core.priority" }), builtIn: true},
		"only denials":     {source: engine.Source{Name: "mine", Rego: "package p\n\ndeny contains \"x\"\n"}},
	} {
		t.Run(name, func(t *testing.T) {
			others := tt.others
			if tt.builtIn {
				others = append(policies.BuiltIn(), others...)
			}
			warnings, err := Conflicts(t.Context(), tt.source, Environment{Policies: others})
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case tt.want == "" && len(warnings) > 0:
				t.Errorf("warnings %v", warnings)
			case tt.want != "" && (len(warnings) == 0 || !strings.HasPrefix(warnings[0].Message, tt.want)):
				t.Errorf("warnings %v, want %s", warnings, tt.want)
			case len(warnings) > maxConflicts:
				t.Errorf("%d warnings", len(warnings))
			}
		})
	}
}

// The policies are evaluated in real projects, too, whose documents survive the way to the child.
func TestConflictInARealProject(t *testing.T) {
	tenant, err := NewTenant(
		input.Project{Name: "thesis", Department: "students", Phase: v1alpha1.ProjectActive, Labels: map[string]string{"tier": "gold"}},
		input.Department{Name: "students"}, []input.NodePool{{Name: "dgx", Scheduler: v1alpha1.SchedulerKube, Guaranteed: 500, Limit: 1500}},
	)
	if err != nil {
		t.Fatal(err)
	}
	source := engine.Source{Name: "mine", Rego: "package p\n\noverrides := {\"spec\": {\"schedulerName\": \"mine\"}} if {\n" +
		"\tinput.project.labels.tier == \"gold\"\n\tinput.nodePools[0].limit == 1.5\n}\n"}
	environment := Environment{Policies: policies.BuiltIn()}
	if warnings, err := Conflicts(t.Context(), source, environment); err != nil || len(warnings) > 0 {
		t.Errorf("in no project: warnings %v, error %v", warnings, err)
	}
	environment.Tenants = []Tenant{tenant}
	process, err := NewProcess(DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	result, err := process.Check(t.Context(), source, environment)
	if err != nil || len(result.Problems) > 0 || len(result.Warnings) != 1 || !strings.Contains(result.Warnings[0].Message, "in project thesis") {
		t.Errorf("result %+v, error %v", result, err)
	}
}

// A policy that needs too long on the examples is accepted, without warnings.
func TestConflictsAreFoundWithinTheLimits(t *testing.T) {
	process, err := NewProcess(DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	slow := engine.Source{Name: "slow", Rego: "package p\n\noverrides := {\"spec\": {\"schedulerName\": \"mine\"}} if count([x | " +
		"some a in numbers.range(1, 3000); some b in numbers.range(1, 3000); x := a * b]) > 0\n"}
	large := engine.Source{Name: "large", Rego: "package p\n\noverrides := {\"spec\": {\"schedulerName\": s}} if s := concat(\"\", [x | " +
		"some a in numbers.range(1, 100000); x := sprintf(\"%d %d\", [a, count(numbers.range(1, 100000))])])\n"}
	for _, source := range []engine.Source{slow, large} {
		result, err := process.Check(t.Context(), source, Environment{Policies: policies.BuiltIn()})
		if err != nil || len(result.Problems) > 0 || len(result.Warnings) > 0 {
			t.Errorf("%s: result %+v, error %v", source.Name, result, err)
		}
	}
}

func BenchmarkConflicts(b *testing.B) {
	source := engine.Source{Name: "mine", Rego: "package p\n\noverrides := {\"metadata\": {\"labels\": {\"a\": \"b\"}}}\n"}
	environment := Environment{Policies: policies.BuiltIn()}
	for b.Loop() {
		if _, err := Conflicts(b.Context(), source, environment); err != nil {
			b.Fatal(err)
		}
	}
}
