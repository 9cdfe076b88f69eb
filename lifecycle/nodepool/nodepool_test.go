// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/requirements"
	"sluice.dev/policies/engine"
)

func pool(name string, selector ...string) v1alpha1.NodePool {
	p := v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	p.Spec.Scheduler = v1alpha1.SchedulerKube
	p.Spec.NodeSelector = map[string]string{}
	for _, label := range selector {
		p.Spec.NodeSelector[label] = "yes"
	}
	return p
}

func node(name, count string, labels ...string) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelGPUProduct: "A100"}}}
	if count != "" {
		n.Labels[v1alpha1.LabelGPUCount] = count
	}
	for _, label := range labels {
		n.Labels[label] = "yes"
	}
	return n
}

func TestObserve(t *testing.T) {
	pools := []v1alpha1.NodePool{pool("dgx", "dgx"), pool("old", "old"), pool("rack", "dgx", "rack")}
	nodes := []corev1.Node{
		node("one", "8", "dgx"), node("both", "8", "dgx", "rack"), node("bad", "x", "dgx"), node("cpu", "0", "dgx"), node("other", "4"),
	}
	got := Observe(&pools[0], pools, nodes, nil)
	if got.Nodes != 3 || got.Machine.GPUs != 8 {
		t.Errorf("nodes %d, GPUs %d; want 3 and 8", got.Nodes, got.Machine.GPUs)
	}
	if diff := cmp.Diff([]string{"both (also in rack)"}, got.Contested); diff != "" {
		t.Errorf("contested (-want +got)\n%s", diff)
	}
	if len(got.Unusable) != 1 || !strings.Contains(got.Unusable[0], "bad") {
		t.Errorf("unusable = %q", got.Unusable)
	}
	if got := Observe(&pools[2], pools, nodes, nil); got.Nodes != 0 || len(got.Contested) != 1 || got.Contested[0] != "both (also in dgx)" {
		t.Errorf("the other of the two pools sees %+v", got)
	}
}

func TestStatusSaysWhatIsWrong(t *testing.T) {
	shared := pool("dgx", "dgx")
	kueue := pool("queued", "queued")
	kueue.Spec.Scheduler = v1alpha1.SchedulerKueue
	tests := map[string]struct {
		pools     []v1alpha1.NodePool
		nodes     []corev1.Node
		condition string
		status    metav1.ConditionStatus
		reason    string
		says      []string
	}{
		"ready":        {[]v1alpha1.NodePool{shared}, []corev1.Node{node("a", "8", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, []string{"GPUs: 8, nodes: 1"}},
		"no nodes":     {[]v1alpha1.NodePool{shared}, nil, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoNodes, []string{"dgx=yes"}},
		"no GPUs":      {[]v1alpha1.NodePool{shared}, []corev1.Node{node("a", "0", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, ReasonNoGPUs, []string{"no GPU"}},
		"nothing said": {[]v1alpha1.NodePool{shared}, []corev1.Node{node("a", "", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGPUsUnknown, []string{"GPU feature discovery"}},
		"contested":    {[]v1alpha1.NodePool{shared, pool("b", "dgx")}, []corev1.Node{node("a", "8", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodesShared, []string{"a (also in b)", "belongs to neither"}},
		"unknown":      {[]v1alpha1.NodePool{shared}, []corev1.Node{node("a", "x", "dgx")}, v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonGPUsUnknown, []string{"nvidia.com/gpu.count=x"}},
		"unsupported":  {[]v1alpha1.NodePool{kueue}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionTrue, ReasonSchedulerMissing, []string{"schedulers.kueue", "those in force are for kube-scheduler"}},
		"supported":    {[]v1alpha1.NodePool{shared}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionFalse, v1alpha1.ReasonSupported, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &tc.pools[0]
			service := Service{Supported: p.Spec.Scheduler == v1alpha1.SchedulerKube, Others: []string{"kube-scheduler"}}
			status := Status(p, Observe(p, tc.pools, tc.nodes, nil), service, metav1.Now())
			got := meta.FindStatusCondition(status.Conditions, tc.condition)
			if got == nil || got.Status != tc.status || got.Reason != tc.reason || got.ObservedGeneration != 3 {
				t.Fatalf("condition = %+v, want %s %s %s", got, tc.condition, tc.status, tc.reason)
			}
			for _, want := range tc.says {
				if !strings.Contains(got.Message, want) {
					t.Errorf("message %q does not say %q", got.Message, want)
				}
			}
		})
	}
}

// A status that says the same is the same, so that nothing is written when
// nothing changes.
func TestStatusIsStable(t *testing.T) {
	p := pool("dgx", "dgx")
	nodes := []corev1.Node{node("a", "8", "dgx")}
	service := Service{
		Supported: true, Required: 3,
		Findings: requirements.Findings{
			Settings: map[string]string{"queueLabelKey": "team"},
			Missing:  []requirements.Missing{{Policy: "schedulers.kai", What: "a is not there", Fix: "make it"}},
		},
		Failures: []engine.Failure{{Policy: "other", Err: engine.ErrDeadline}},
	}
	p.Status = Status(&p, Observe(&p, []v1alpha1.NodePool{p}, nodes, nil), service, metav1.Now())
	later := metav1.NewTime(time.Now().Add(time.Hour))
	again := Status(&p, Observe(&p, []v1alpha1.NodePool{p}, nodes, nil), service, later)
	if diff := cmp.Diff(p.Status, again); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
}

func TestLongListsAreCounted(t *testing.T) {
	var items []string
	for i := range 12 {
		items = append(items, strconv.Itoa(i))
	}
	if got, want := list(items), "0; 1; 2; 3; 4; and 7 more"; got != want {
		t.Errorf("list = %q, want %q", got, want)
	}
}

// What a static layout does not have, no pod is given; from demand all can be cut.
func TestStaticPoolsOfferTheirLayout(t *testing.T) {
	all := []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"}
	nodes := []corev1.Node{node("one", "1", "dgx")}
	observed := map[string]*v1alpha1.GPUNode{"one": {Status: v1alpha1.GPUNodeStatus{
		GPUs: []v1alpha1.ObservedGPU{{UUID: "GPU-1", Model: "A100", MIGProfiles: all}},
	}}}
	p := pool("dgx", "dgx")
	p.Spec.Sharing = v1alpha1.SharingMIG
	p.Spec.MIG = &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningStatic, Layout: []v1alpha1.MIGLayout{
		{Devices: []int32{0}, MIGDevices: map[v1alpha1.MIGProfile]int32{"3g.20gb": 2}},
		{MIGDevices: map[v1alpha1.MIGProfile]int32{"1g.5gb": 7}},
	}}
	got := Observe(&p, []v1alpha1.NodePool{p}, nodes, observed).Machine.Boards[0].MIGProfiles
	if diff := cmp.Diff([]v1alpha1.MIGProfile{"1g.5gb", "3g.20gb"}, got); diff != "" {
		t.Errorf("static (-want +got)\n%s", diff)
	}
	p.Spec.MIG = &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningDynamic}
	got = Observe(&p, []v1alpha1.NodePool{p}, nodes, observed).Machine.Boards[0].MIGProfiles
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("dynamic (-want +got)\n%s", diff)
	}
	if len(observed["one"].Status.GPUs[0].MIGProfiles) != len(all) {
		t.Error("the GPUNode was changed")
	}
}
