// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
)

func TestPatchOfBundles(t *testing.T) {
	bundle := []byte("new")
	tests := map[string]struct {
		list []webhookEntry
		want []string // the names that are patched
	}{
		"none":            {nil, nil},
		"all trust it":    {[]webhookEntry{{"a", bundle, nil}, {"b", bundle, nil}}, nil},
		"fresh":           {[]webhookEntry{{"a", nil, nil}, {"b", nil, nil}}, []string{"a", "b"}},
		"one was changed": {[]webhookEntry{{"a", bundle, nil}, {"b", []byte("old"), nil}}, []string{"b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var patch struct {
				Webhooks []struct {
					Name         string
					ClientConfig struct{ CABundle []byte }
				}
			}
			raw := entriesPatch("7", tc.list, bundle, nil)
			if raw != nil {
				if err := json.Unmarshal(raw, &patch); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, w := range patch.Webhooks {
				got = append(got, w.Name)
				if string(w.ClientConfig.CABundle) != "new" {
					t.Errorf("%s is given %q", w.Name, w.ClientConfig.CABundle)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

// Only the entries that are named get other rules, and an empty list removes them.
func TestPatchOfRules(t *testing.T) {
	bundle := []byte("present")
	rule := func(resource string) []admissionv1.RuleWithOperations {
		return []admissionv1.RuleWithOperations{{Rule: admissionv1.Rule{APIGroups: []string{"example.org"}, Resources: []string{resource}}}}
	}
	for name, tc := range map[string]struct {
		present []admissionv1.RuleWithOperations
		rules   EntryRules
		want    string
	}{
		"new rules":      {nil, EntryRules{"a": rule("foos")}, `[{"apiGroups":["example.org"],"resources":["foos"]}]`},
		"other rules":    {rule("bars"), EntryRules{"a": rule("foos")}, `[{"apiGroups":["example.org"],"resources":["foos"]}]`},
		"removed rules":  {rule("bars"), EntryRules{"a": {}}, `[]`},
		"the same rules": {rule("foos"), EntryRules{"a": rule("foos")}, ""},
		"none":           {nil, EntryRules{"a": {}}, ""},
		"not its rules":  {rule("bars"), EntryRules{"b": rule("foos")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var patch struct {
				Webhooks []map[string]json.RawMessage
			}
			if raw := entriesPatch("7", []webhookEntry{{"a", bundle, tc.present}, {"other", bundle, rule("pods")}}, bundle, tc.rules); raw != nil {
				if err := json.Unmarshal(raw, &patch); err != nil {
					t.Fatal(err)
				}
			}
			if (len(patch.Webhooks) == 1) != (tc.want != "") || len(patch.Webhooks) > 1 {
				t.Fatalf("%d entries are patched", len(patch.Webhooks))
			}
			if tc.want != "" && (string(patch.Webhooks[0]["rules"]) != tc.want || len(patch.Webhooks[0]) != 2) {
				t.Errorf("got %s", patch.Webhooks)
			}
		})
	}
}

func TestNotReadyBeforeInjection(t *testing.T) {
	k := &Injector{}
	if k.Ready(nil) == nil {
		t.Error("ready before anything was registered")
	}
	k.injected.Store(true)
	if err := k.Ready(nil); err != nil {
		t.Error(err)
	}
}
