// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package certificates

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBundlePatch(t *testing.T) {
	bundle := []byte("new")
	tests := map[string]struct {
		list []webhookEntry
		want []string // the names that are patched
	}{
		"none":            {nil, nil},
		"all trust it":    {[]webhookEntry{{"a", bundle}, {"b", bundle}}, nil},
		"fresh":           {[]webhookEntry{{"a", nil}, {"b", nil}}, []string{"a", "b"}},
		"one was changed": {[]webhookEntry{{"a", bundle}, {"b", []byte("old")}}, []string{"b"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var patch struct {
				Webhooks []struct {
					Name         string
					ClientConfig struct{ CABundle []byte }
				}
			}
			raw := bundlePatch("7", tc.list, bundle)
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
