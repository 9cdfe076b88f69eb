// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policies_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
)

// checkInvariants returns an error that names an invariant that a pod violates:
//
//   - the same pod has the same patch, byte for byte;
//   - the policies neither change nor refuse a pod that they changed;
//   - two policies that are applied one after the other have the same result in either order, and
//     the same as both at once; so do all policies, one after the other. A refused pod is refused in
//     any order: no policy removes a field that another would refuse, or adds a field that another
//     refuses.
//
// No pair of policies is exempt; but see evaluatedTogether.
func (c *policyTester) checkInvariants(ctx context.Context, pod map[string]any) error {
	before, err := c.evaluate(ctx, c.set, pod)
	if err != nil {
		return err
	}
	outcome, err := c.checkIdempotent(ctx, before)
	if err != nil {
		return err
	}
	if err := c.checkCommutative(ctx, before); err != nil {
		return err
	}
	names := c.set.Names()
	for range 2 {
		slices.Reverse(names)
		now := before
		for _, name := range names {
			if now, err = c.reevaluate(ctx, now, policiesWith(name)...); err != nil {
				return err
			}
		}
		sequential := deniedOutcome
		if now.rejection == "" {
			sequential = encodePod(now.pod)
		}
		if sequential != outcome {
			return fmt.Errorf("%s: %s %s\nall at once: %s %v", strings.Join(names, ", then "), sequential, now.rejection, outcome, before.denials)
		}
	}
	return nil
}

// checkIdempotent returns the changed pod, which must be the same each time and not change again.
func (c *policyTester) checkIdempotent(ctx context.Context, before *podEvaluation) (string, error) {
	names := c.set.Names()
	outcome, patch, err := before.applied(names...)
	if err != nil {
		return "", err
	}
	for _, set := range []*engine.Set{c.set, c.shuffled} {
		again, err := c.evaluate(ctx, set, before.pod)
		if err != nil {
			return "", err
		}
		_, other, err := again.applied(names...)
		if err != nil {
			return "", err
		}
		if other != patch {
			return "", fmt.Errorf("the same pod has the patch\n%s\nand then\n%s", patch, other)
		}
	}
	if outcome == deniedOutcome {
		return outcome, nil
	}
	settled, err := c.evaluateJSON(ctx, outcome)
	if err != nil {
		return "", err
	}
	second, patch, err := settled.applied(names...)
	if err != nil {
		return "", err
	}
	if second != outcome {
		return "", fmt.Errorf("the changed pod\n%s\nis then changed by %s (refused: %s %v)", outcome, patch, settled.rejection, settled.denials)
	}
	return outcome, nil
}

// evaluatedTogether holds the policies that are not evaluated alone, with their companions. core.gpu
// grants a resource beside the annotation that requests a share. That is valid in an admitted pod and
// two requests in any other; package workload distinguishes them by the label of core.project. So
// core.gpu is compared with every policy together with core.project, which is also compared alone.
var evaluatedTogether = map[string][]string{"core.gpu": {"core.gpu", "core.project"}}

// policiesWith returns the named policy and its companions.
func policiesWith(name string) []string {
	if together := evaluatedTogether[name]; together != nil {
		return together
	}
	return []string{name}
}

// checkCommutative compares every pair of policies in both orders.
func (c *policyTester) checkCommutative(ctx context.Context, before *podEvaluation) error {
	names := c.set.Names()
	after := map[string]*podEvaluation{}
	for _, name := range names {
		var err error
		if after[name], err = c.reevaluate(ctx, before, policiesWith(name)...); err != nil {
			return err
		}
	}
	for i, a := range names {
		for _, b := range names[i+1:] {
			pair := slices.Compact(slices.Sorted(slices.Values(slices.Concat(policiesWith(a), policiesWith(b)))))
			both, _, err := before.applied(pair...)
			if err != nil {
				return err
			}
			for _, order := range [][2]string{{a, b}, {b, a}} {
				first, second := order[0], order[1]
				sequential, _, err := after[first].applied(policiesWith(second)...)
				if err != nil {
					return err
				}
				if sequential != both {
					return fmt.Errorf("%s and then %s: %s %s %v\nboth at once: %s %s %v",
						first, second, sequential, after[first].rejection, after[first].denials, both, before.rejection, before.denials)
				}
			}
		}
	}
	return nil
}

func TestPoliciesCommute(t *testing.T) {
	courts := corpusProjects(compilePolicies(t, nil))
	for _, s := range corpusPods(t) {
		t.Run(s.name, func(t *testing.T) {
			pod := toUnstructured(t, &s.pod)
			for word, c := range courts {
				if err := c.checkInvariants(t.Context(), pod); err != nil {
					t.Errorf("in project %s: %v", word, err)
				}
			}
			// The policies have the same result as in the real API server.
			c := courts[s.project]
			o, err := c.evaluate(t.Context(), c.set, pod)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Contains(s.golden.Refused, `admission webhook "pods.sluice.dev" denied`)
			if refused := o.rejection != "" || len(o.denials) > 0; refused != want {
				t.Errorf("refused: %v (%s %v), in the API server: %v (%s)", refused, o.rejection, o.denials, want, s.golden.Refused)
			}
		})
	}
}

// The policies do not change a pod that a real API server returned, with all defaults.
func TestAdmittedPodsAreUnchanged(t *testing.T) {
	courts, admitted := corpusProjects(compilePolicies(t, nil)), 0
	for _, s := range corpusPods(t) {
		if s.golden.Pod == nil {
			continue
		}
		admitted++
		t.Run(s.name, func(t *testing.T) {
			c, pod := *courts[s.project], toUnstructured(t, s.golden.Pod)
			c.user = s.golden.Pod.Annotations[v1alpha1.AnnotationCreatedBy]
			if err := c.checkInvariants(t.Context(), pod); err != nil {
				t.Error(err)
			}
			o, err := c.evaluate(t.Context(), c.set, pod)
			if err != nil {
				t.Fatal(err)
			}
			if _, patch, err := o.applied(c.set.Names()...); err != nil || patch != "" || len(o.denials) > 0 {
				t.Errorf("it is changed by %s, refused: %v, error: %v", patch, o.denials, err)
			}
		})
	}
	if admitted < 20 {
		t.Errorf("%d admitted pods, want 20 or more", admitted)
	}
}

// checkInvariants detects policies that violate an invariant.
func TestNonCommutingPoliciesAreDetected(t *testing.T) {
	policy := func(name, rego string) engine.Source {
		return engine.Source{Name: name, Rego: "package " + name + "\n" + rego}
	}
	const (
		label  = `overrides.metadata.labels.x := "1"`
		absent = `overrides.metadata.labels.y := "1" if not input.object.metadata.labels.x`
	)
	for _, tc := range []struct {
		name string
		rego []string
		want string // in the fault; empty where there is none
	}{
		{"two that have nothing to do with each other", []string{label, `overrides.metadata.labels.y := "1"`}, ""},
		{"one writes what the other reads", []string{label, absent}, "a and then b: "},
		{"one removes what the other reads", []string{`remove contains ["metadata", "labels", "run"]`, `overrides.metadata.labels.y := input.object.metadata.labels.run`}, "b"},
		{"one removes what the other refuses", []string{`remove contains ["metadata", "labels", "run"]`, `deny contains "run" if input.object.metadata.labels.run`}, "a and then b: "},
		{"one makes what the other refuses", []string{label, `deny contains "x" if input.object.metadata.labels.x`}, "refused"},
		{"both want another value", []string{label, `overrides.metadata.labels.x := "2"`}, "policy b sets"},
		{"one adds to the end of a list what the other counts", []string{
			`append contains {"path": ["spec", "tolerations"], "value": {"key": "a", "operator": "Exists"}}`,
			`overrides.metadata.labels.y := format_int(count(object.get(input.object.spec, "tolerations", [])), 10)`,
		}, "is then changed by"},
		{"one never has enough", []string{`overrides.metadata.labels.x := concat("", [object.get(input.object.metadata, ["labels", "x"], ""), "1"])`}, "is then changed by"},
		{"one changes what a built-in policy reads", []string{`overrides.metadata.annotations["sluice.dev/max-runtime"] := "1h"`}, "is then changed by"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var more []engine.Source
			for i, rego := range tc.rego {
				more = append(more, policy(string(rune('a'+i)), rego))
			}
			c := corpusProjects(compilePolicies(t, nil, more...))["whole"]
			pod, err := decodePod(`{"metadata":{"labels":{"run":"1"}},"spec":{"containers":[{"name":"main","resources":{"limits":{"nvidia.com/gpu":"1"}}}]}}`)
			if err != nil {
				t.Fatal(err)
			}
			err = c.checkInvariants(t.Context(), pod)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("found %v, want %q in it", err, tc.want)
			}
		})
	}
}
