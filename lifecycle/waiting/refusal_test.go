// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The messages are those of Kubernetes 1.36.
func TestParseRefusal(t *testing.T) {
	answer := func(quota, requested string) string {
		return `pods "web-5c8d" is forbidden: exceeded quota: ` + quota + `, requested: ` + requested + `, used: x=1, limited: x=1`
	}
	dgx := Refusal{Quota: "sluice-dgx", Currency: "sluice.dev/gpu-milli.dgx", Share: 500}
	tests := map[string]struct {
		message string
		want    *Refusal
	}{
		"of a ReplicaSet": {"Error creating: " + answer("sluice-dgx", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx},
		"of a StatefulSet": {
			"create Pod db-0 in StatefulSet db failed error: " + answer("sluice-dgx", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx,
		},
		"of many alike": {"(combined from similar events): Error creating: " + answer("sluice-dgx", "requests.sluice.dev/gpu-milli.dgx=500"), &dgx},
		"several resources": {
			answer("mixed", "pods=1,requests.cpu=500m,requests.sluice.dev/gpu-milli=1k"),
			&Refusal{Quota: "mixed", Currency: "sluice.dev/gpu-milli", Share: 1000},
		},
		"another resource":   {answer("theirs", "requests.cpu=500m"), nil},
		"one named alike":    {answer("theirs", "requests.sluice.dev/gpu-millions=1"), nil},
		"nothing":            {answer("sluice-dgx", "requests.sluice.dev/gpu-milli.dgx=0"), nil},
		"no number":          {answer("sluice-dgx", "requests.sluice.dev/gpu-milli.dgx=many"), nil},
		"cut off":            {`exceeded quota: sluice-dgx, requested: requests.sluice.dev/gpu-milli.dgx=5`, nil},
		"another refusal":    {`Error creating: pods "a" is forbidden: no`, nil},
		"nothing was said":   {"", nil},
		"only the beginning": {"exceeded quota: ", nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := ParseRefusal(tc.message)
			if ok != (tc.want != nil) {
				t.Fatalf("refusal = %+v, %v", got, ok)
			}
			if ok {
				if diff := cmp.Diff(*tc.want, got); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
}

func TestPoolOfARefusal(t *testing.T) {
	tests := map[string]Refusal{
		"dgx-mig": {Currency: "sluice.dev/gpu-milli.dgx-mig"},
		"":        {Currency: "sluice.dev/gpu-milli"},
	}
	for want, refusal := range tests {
		if got := refusal.Pool(); got != want {
			t.Errorf("%s is of pool %q, want %q", refusal.Currency, got, want)
		}
	}
}
