// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"embed"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// templateFiles are rules as Gatekeeper templates, for both engines.
//
//go:embed testdata/templates/*.rego
var templateFiles embed.FS

type rule struct {
	name, rego string
	// parameters are those of the nth policy of this rule. Some deny what others allow.
	parameters func(nth int) map[string]any
}

func rules(tb testing.TB) []rule {
	tb.Helper()
	all := []rule{
		{name: "1-gpu-limit", parameters: func(nth int) map[string]any {
			return map[string]any{"max": 2 + nth%7}
		}},
		{name: "2-required-labels", parameters: func(nth int) map[string]any {
			labels := []any{"app", "team"}
			if nth%8 == 7 {
				labels = append(labels, "cost-center")
			}
			return map[string]any{"labels": labels}
		}},
		{name: "3-allowed-registries", parameters: func(nth int) map[string]any {
			registries := []any{"nvcr.io/", "registry.example.org/"}
			if nth%2 == 1 {
				registries = append(registries, "docker.io/")
			}
			return map[string]any{"registries": registries}
		}},
		{name: "4-container-limits", parameters: func(nth int) map[string]any {
			return map[string]any{"cpu": strconv.Itoa(8 + nth%5), "memory": fmt.Sprintf("%dGi", 64*(1+nth%3))}
		}},
		{name: "5-privileges", parameters: func(nth int) map[string]any {
			return map[string]any{"exemptImages": []any{fmt.Sprintf("registry.example.org/system-%d/", nth)}}
		}},
		{name: "6-image-tags", parameters: func(nth int) map[string]any {
			return map[string]any{"tags": []any{"latest", "main", fmt.Sprintf("dev-%d", nth)}}
		}},
		{name: "7-host-paths", parameters: func(nth int) map[string]any {
			return map[string]any{"paths": []any{fmt.Sprintf("/mnt/scratch-%d/", nth), "/mnt/datasets/"}}
		}},
		{name: "8-gpu-environment", parameters: func(nth int) map[string]any {
			return map[string]any{"variables": []any{"NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", fmt.Sprintf("SITE_%d", nth)}}
		}},
	}
	for i := range all {
		raw, err := templateFiles.ReadFile("testdata/templates/" + all[i].name + ".rego")
		if err != nil {
			tb.Fatal(err)
		}
		all[i].rego = string(raw)
	}
	return all
}

type policy struct {
	// name is unique; policies of the same Rego share a template.
	name, template, rego string
	parameters           map[string]any
}

// policiesOf returns this many policies, alternating between the rules. With ownTemplates
// each has a template of its own, as policies with different Rego have. Otherwise
// policies of a rule share its template.
func policiesOf(tb testing.TB, count int, ownTemplates bool) []policy {
	tb.Helper()
	rules := rules(tb)
	all := make([]policy, 0, count)
	for i := range count {
		r, nth := rules[i%len(rules)], i/len(rules)
		p := policy{name: fmt.Sprintf("policy-%03d", i), template: fmt.Sprintf("Rule%d", i%len(rules)), rego: r.rego, parameters: r.parameters(nth)}
		if ownTemplates {
			p.template = fmt.Sprintf("Rule%03d", i)
			name, rest, _ := strings.Cut(p.rego, "\n")
			p.rego = fmt.Sprintf("%s_%d\n%s", name, i, rest)
		}
		all = append(all, p)
	}
	return all
}

// parametersJSON returns the parameters for Sluice.
func (p policy) parametersJSON(tb testing.TB) []byte {
	tb.Helper()
	raw, err := json.Marshal(p.parameters)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}
