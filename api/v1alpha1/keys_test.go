// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"sluice.dev/api/v1alpha1"
)

func TestResourceGPUMilliFor(t *testing.T) {
	if got := v1alpha1.ResourceGPUMilliFor("dgx-h100"); got != "sluice.dev/gpu-milli.dgx-h100" {
		t.Errorf("GPUMilliFor(dgx-h100) = %s", got)
	}
	longest := strings.Repeat("a", v1alpha1.MaxNodePoolName)
	guaranteed := func(pool string) string { return string(v1alpha1.GuaranteedMilli(v1alpha1.ResourceGPUMilliFor(pool))) }
	if problems := validation.IsQualifiedName(guaranteed(longest)); len(problems) > 0 {
		t.Errorf("the longest name of a pool makes no resource: %v", problems)
	}
	if problems := validation.IsQualifiedName(guaranteed(longest + "a")); len(problems) == 0 {
		t.Errorf("MaxNodePoolName is %d, and a longer name would do", v1alpha1.MaxNodePoolName)
	}
}

// Each resource that begins like a unit is told apart from the unit of a pool.
func TestGPUCharges(t *testing.T) {
	for name, want := range map[corev1.ResourceName]struct {
		limit, guarantee bool
		pool             string
	}{
		"sluice.dev/gpu-milli":            {limit: true},
		"sluice.dev/gpu-milli.dgx":        {limit: true, pool: "dgx"},
		"sluice.dev/guaranteed-milli":     {guarantee: true},
		"sluice.dev/guaranteed-milli.dgx": {guarantee: true, pool: "dgx"},
		"sluice.dev/gpu-millis":           {},
		"sluice.dev/guaranteed-milli-dgx": {},
		"nvidia.com/gpu":                  {},
	} {
		limit, guarantee := v1alpha1.IsGPUMilli(name), v1alpha1.IsGuaranteedMilli(name)
		if limit != want.limit || guarantee != want.guarantee || v1alpha1.IsGPUCharge(name) != (limit || guarantee) {
			t.Errorf("%s: limit %t, guarantee %t, charge %t", name, limit, guarantee, v1alpha1.IsGPUCharge(name))
		}
		if pool := v1alpha1.NodePoolOf(name); (limit || guarantee) && pool != want.pool {
			t.Errorf("%s: pool %q, want %q", name, pool, want.pool)
		}
	}
	for gpu, want := range map[corev1.ResourceName]corev1.ResourceName{
		v1alpha1.ResourceGPUMilli: "sluice.dev/guaranteed-milli", v1alpha1.ResourceGPUMilliFor("dgx"): "sluice.dev/guaranteed-milli.dgx",
	} {
		if got := v1alpha1.GuaranteedMilli(gpu); got != want {
			t.Errorf("beside %s pods are charged %s, want %s", gpu, got, want)
		}
		for counted, limit := range map[bool]corev1.ResourceName{true: gpu, false: v1alpha1.ResourceGPUMilli} {
			if got, ok := v1alpha1.LimitMilli(want, func(corev1.ResourceName) bool { return counted }); got != limit || !ok {
				t.Errorf("the limit beside %s is %s, %t", want, got, ok)
			}
		}
	}
}

func TestResourceMIG(t *testing.T) {
	for profile, resource := range map[v1alpha1.MIGProfile]corev1.ResourceName{
		"3g.40gb":        "nvidia.com/mig-3g.40gb",
		"1g.10gb+me":     "nvidia.com/mig-1g.10gb.me",
		"1g.24gb+me.all": "nvidia.com/mig-1g.24gb.me.all",
		"1g.24gb-me":     "nvidia.com/mig-1g.24gb-me",
	} {
		if got := v1alpha1.ResourceMIG(profile); got != resource {
			t.Errorf("ResourceMIG(%s) = %s, want %s", profile, got, resource)
		}
		if got, ok := v1alpha1.MIGProfileOf(resource); !ok || got != profile {
			t.Errorf("ProfileOfResource(%s) = %s, %v, want %s", resource, got, ok, profile)
		}
	}
	for _, other := range []corev1.ResourceName{"nvidia.com/gpu", "cpu", ""} {
		if got, ok := v1alpha1.MIGProfileOf(other); ok {
			t.Errorf("ProfileOfResource(%s) = %s", other, got)
		}
	}
}

// Keys are read out of the source, so that a new one cannot be forgotten here.
func TestKeysAreQualifiedNames(t *testing.T) {
	valueByName := map[string]string{}
	for name, value := range parseStringConstants(t, "keys.go", "keys_foreign.go") {
		switch {
		case strings.HasPrefix(name, "Env"), strings.HasPrefix(name, "PriorityClass"),
			strings.HasPrefix(name, "FieldManager"), strings.HasSuffix(name, "Prefix"),
			name == "SystemNamespace", name == "AgentNamespace", name == "ManagedBySluice":
			continue
		}
		if problems := validation.IsQualifiedName(value); len(problems) > 0 {
			t.Errorf("%s = %q: %v", name, value, problems)
		}
		space := firstWordPattern.FindString(name)
		if other, twice := valueByName[space+value]; twice {
			t.Errorf("%s and %s are both %q", name, other, value)
		}
		valueByName[space+value] = name
	}
	if len(valueByName) < 30 {
		t.Errorf("only %d keys were found", len(valueByName))
	}
}

// Users must not change a new label or annotation of Sluice either.
func TestManagedKeysAreComplete(t *testing.T) {
	var want []string
	for name, value := range parseStringConstants(t, "keys.go") {
		if space := firstWordPattern.FindString(name); (space == "Label" || space == "Annotation") && strings.HasPrefix(value, "sluice.dev/") {
			want = append(want, value)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, v1alpha1.ManagedKeys()); diff != "" {
		t.Errorf("(-keys.go +ManagedKeys)\n%s", diff)
	}
}

// firstWordPattern distinguishes labels, annotations and other keys: a label and an annotation may
// have the same name.
var firstWordPattern = regexp.MustCompile(`^[A-Z][a-z]+`)

// parseStringConstants are the string constants of files, by name.
func parseStringConstants(t *testing.T, files ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				found[spec.Names[0].Name] = value
			}
			return true
		})
	}
	return found
}
