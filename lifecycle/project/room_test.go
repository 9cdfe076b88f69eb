// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package project

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/api/workload"
)

func TestLess(t *testing.T) {
	type amounts struct{ Guaranteed, Limit workload.Milli }
	tests := map[string]struct {
		strays []Stray
		want   amounts // of pool whole: 1000 guaranteed, 2000 at most
	}{
		"none":                       {nil, amounts{1000, 2000}},
		"of another pool":            {[]Stray{{Pool: "cut", Share: 500}, {Share: 1}}, amounts{1000, 2000}},
		"that nobody may end":        {[]Stray{{Pool: "whole", Share: 500}}, amounts{500, 1500}},
		"that others may end":        {[]Stray{{Pool: "whole", Share: 500, Preemptible: true}}, amounts{1000, 1500}},
		"over the guarantee":         {[]Stray{{Pool: "whole", Share: 1500}}, amounts{0, 500}},
		"never more than the limit":  {[]Stray{{Pool: "whole", Share: 1500, Preemptible: true}}, amounts{500, 500}},
		"together more than all":     {[]Stray{{Pool: "whole", Share: 1500}, {Pool: "whole", Share: 1500}}, amounts{0, 0}},
		"some of each kind together": {[]Stray{{Pool: "whole", Share: 250}, {Pool: "whole", Share: 250, Preemptible: true}}, amounts{750, 1500}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pools := testPools()
			got := Less(pools, tc.strays)[0]
			if diff := cmp.Diff(tc.want, amounts{got.Guaranteed, got.Limit}); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if diff := cmp.Diff(testPools(), pools); diff != "" {
				t.Errorf("the pools that were given changed:\n%s", diff)
			}
		})
	}
}

func TestNoRoom(t *testing.T) {
	if p := noRoom(testPools(), []Stray{{Pool: "whole", Share: 2000}, {Share: 9000}}); p != nil {
		t.Errorf("exactly the limit: %+v", p)
	}
	p := noRoom(testPools(), []Stray{{Pod: "x", Pool: "cut", Share: 1125}})
	if p == nil || p.reason != v1alpha1.ReasonNoRoomForUncounted || !strings.Contains(p.message, "x: they hold 1.125 GPUs of node pool cut, and the project may have 1 GPU there;") {
		t.Errorf("over the limit: %+v", p)
	}
}

func TestUncountedCondition(t *testing.T) {
	none := uncountedCondition(testPools(), nil)
	if none.Status != metav1.ConditionFalse || none.Reason != ReasonAllCounted ||
		none.Message != "every GPU pod is counted, in sluice.dev/gpu-milli.cut, sluice.dev/gpu-milli.whole" {
		t.Errorf("of none: %+v", none)
	}
	var strays []Stray
	for i := range 12 {
		strays = append(strays, Stray{Pod: strconv.Itoa(i), Pool: "cut", Share: 125})
	}
	c := uncountedCondition(testPools(), strays)
	if c.Status != metav1.ConditionTrue || c.Reason != v1alpha1.ReasonPodsUncounted ||
		!strings.Contains(c.Message, "8, 9 and 2 more; until they are gone the project's limit is lower by what they hold, 1.5 GPUs of node pool cut; delete them") {
		t.Errorf("of twelve: %+v", c)
	}
	if c := uncountedCondition(nil, []Stray{{Pod: "x"}}); !strings.Contains(c.Message, "count them: x; delete them") {
		t.Errorf("of one in no pool: %+v", c)
	}
}
