// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package nodepool

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/rendering/requirements"
	"sluice.dev/policies/engine"
)

func newPool(name string, selector ...string) v1alpha1.NodePool {
	p := v1alpha1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	p.Spec.Scheduler = v1alpha1.SchedulerKube
	p.Spec.NodeSelector = map[string]string{}
	for _, label := range selector {
		p.Spec.NodeSelector[label] = "yes"
	}
	return p
}

func newNode(name, count string, labels ...string) corev1.Node {
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
	pools := []v1alpha1.NodePool{newPool("dgx", "dgx"), newPool("old", "old"), newPool("rack", "dgx", "rack")}
	nodes := []corev1.Node{
		newNode("one", "8", "dgx"), newNode("both", "8", "dgx", "rack"), newNode("bad", "x", "dgx"), newNode("cpu", "0", "dgx"), newNode("other", "4"),
	}
	got := Observe(&pools[0], pools, nodes, nil)
	if got.Nodes != 3 || got.Inventory.GPUs != 8 {
		t.Errorf("nodes %d, GPUs %d; want 3 and 8", got.Nodes, got.Inventory.GPUs)
	}
	if diff := cmp.Diff([]string{"both (also in rack)"}, got.SharedNodes); diff != "" {
		t.Errorf("contested (-want +got)\n%s", diff)
	}
	if len(got.UnknownGPUs) != 1 || !strings.Contains(got.UnknownGPUs[0], "bad") {
		t.Errorf("unusable = %q", got.UnknownGPUs)
	}
	if got := Observe(&pools[2], pools, nodes, nil); got.Nodes != 0 || len(got.SharedNodes) != 1 || got.SharedNodes[0] != "both (also in dgx)" {
		t.Errorf("the other of the two pools sees %+v", got)
	}
}

func TestBuildStatusReportsProblems(t *testing.T) {
	shared := newPool("dgx", "dgx")
	kueue := newPool("queued", "queued")
	kueue.Spec.Scheduler = v1alpha1.SchedulerKueue
	virtual := newPool("virtual", "virtual")
	virtual.Spec.Sharing = v1alpha1.SharingHAMi
	bursting := newPool("bursting", "bursting")
	bursting.Spec.Sharing, bursting.Spec.Burst = v1alpha1.SharingTimeSlicing, v1alpha1.BurstAllow
	tests := map[string]struct {
		pools       []v1alpha1.NodePool
		nodes       []corev1.Node
		condition   string
		status      metav1.ConditionStatus
		reason      string
		wantMessage []string
	}{
		"ready":                  {[]v1alpha1.NodePool{shared}, []corev1.Node{newNode("a", "8", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady, []string{"GPUs: 8, nodes: 1"}},
		"no nodes":               {[]v1alpha1.NodePool{shared}, nil, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNoNodes, []string{"dgx=yes"}},
		"no GPUs":                {[]v1alpha1.NodePool{shared}, []corev1.Node{newNode("a", "0", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, ReasonNoGPUs, []string{"none of them reports a GPU"}},
		"nothing said":           {[]v1alpha1.NodePool{shared}, []corev1.Node{newNode("a", "", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGPUCountUnknown, []string{"GPU feature discovery"}},
		"contested":              {[]v1alpha1.NodePool{shared, newPool("b", "dgx")}, []corev1.Node{newNode("a", "8", "dgx")}, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonNodeSelectorConflict, []string{"a (also in b)", "belongs to neither"}},
		"unknown":                {[]v1alpha1.NodePool{shared}, []corev1.Node{newNode("a", "x", "dgx")}, v1alpha1.ConditionRequirementsMet, metav1.ConditionFalse, v1alpha1.ReasonGPUCountUnknown, []string{"nvidia.com/gpu.count=x"}},
		"unsupported":            {[]v1alpha1.NodePool{kueue}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonSchedulerMissing, []string{"schedulers.kueue", "the policies in force support kube-scheduler"}},
		"a field without effect": {[]v1alpha1.NodePool{virtual}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonFieldsWithoutEffect, []string{"spec.sharing: HAMi"}},
		"gaps of the sharing":    {[]v1alpha1.NodePool{bursting}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionTrue, v1alpha1.ReasonMemoryIsolation, []string{"MemoryIsolation: time slicing", "BurstGuarantee: ", "BurstWaiting: ", "BurstSwapping: "}},
		"supported":              {[]v1alpha1.NodePool{shared}, nil, v1alpha1.ConditionUnsupported, metav1.ConditionFalse, v1alpha1.ReasonSupported, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			p := &tc.pools[0]
			service := SchedulerSupport{Supported: p.Spec.Scheduler == v1alpha1.SchedulerKube, SupportedSchedulers: []string{"kube-scheduler"}}
			status := BuildStatus(p, Observe(p, tc.pools, tc.nodes, nil), service, metav1.Now())
			got := meta.FindStatusCondition(status.Conditions, tc.condition)
			if got == nil || got.Status != tc.status || got.Reason != tc.reason || got.ObservedGeneration != 3 {
				t.Fatalf("condition = %+v, want %s %s %s", got, tc.condition, tc.status, tc.reason)
			}
			for _, want := range tc.wantMessage {
				if !strings.Contains(got.Message, want) {
					t.Errorf("message %q does not say %q", got.Message, want)
				}
			}
		})
	}
}

// An unchanged state has an equal status, so that it is not written.
func TestBuildStatusKeepsTransitionTimes(t *testing.T) {
	p := newPool("dgx", "dgx")
	nodes := []corev1.Node{newNode("a", "8", "dgx")}
	service := SchedulerSupport{
		Supported: true, RequirementCount: 3,
		Findings: requirements.Findings{
			Settings: map[string]string{"queueLabelKey": "team"},
			Missing:  []requirements.Missing{{Policy: "schedulers.kai", Problem: "a is not set", Fix: "make it"}},
		},
		Failures: []engine.Failure{{Policy: "other", Err: engine.ErrDeadline}},
	}
	p.Status = BuildStatus(&p, Observe(&p, []v1alpha1.NodePool{p}, nodes, nil), service, metav1.Now())
	later := metav1.NewTime(time.Now().Add(time.Hour))
	again := BuildStatus(&p, Observe(&p, []v1alpha1.NodePool{p}, nodes, nil), service, later)
	if diff := cmp.Diff(p.Status, again); diff != "" {
		t.Errorf("(-first +second)\n%s", diff)
	}
}

func TestLongListsAreTruncated(t *testing.T) {
	var items []string
	for i := range 12 {
		items = append(items, strconv.Itoa(i))
	}
	if got, want := joinLimited(items), "0; 1; 2; 3; 4; and 7 more"; got != want {
		t.Errorf("list = %q, want %q", got, want)
	}
}

// A static pool offers only the profiles of its layout; with dynamic planning all are possible.
func TestStaticPoolsOfferOnlyProfilesOfTheirLayout(t *testing.T) {
	all := []v1alpha1.MIGProfile{"1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"}
	nodes := []corev1.Node{newNode("one", "1", "dgx")}
	observed := map[string]*v1alpha1.GPUNode{"one": {Status: v1alpha1.GPUNodeStatus{
		GPUs: []v1alpha1.ObservedGPU{{UUID: "GPU-1", Model: "A100", MIGProfiles: all}},
	}}}
	p := newPool("dgx", "dgx")
	p.Spec.Sharing = v1alpha1.SharingMIG
	p.Spec.MIG = &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningStatic, Layout: []v1alpha1.MIGLayout{
		{Devices: []int32{0}, MIGDevices: map[v1alpha1.MIGProfile]int32{"3g.20gb": 2}},
		{MIGDevices: map[v1alpha1.MIGProfile]int32{"1g.5gb": 7}},
	}}
	got := Observe(&p, []v1alpha1.NodePool{p}, nodes, observed).Inventory.GPUModels[0].MIGProfiles
	if diff := cmp.Diff([]v1alpha1.MIGProfile{"1g.5gb", "3g.20gb"}, got); diff != "" {
		t.Errorf("static (-want +got)\n%s", diff)
	}
	p.Spec.MIG = &v1alpha1.MIGSpec{Planning: v1alpha1.MIGPlanningDynamic}
	got = Observe(&p, []v1alpha1.NodePool{p}, nodes, observed).Inventory.GPUModels[0].MIGProfiles
	if diff := cmp.Diff(all, got); diff != "" {
		t.Errorf("dynamic (-want +got)\n%s", diff)
	}
	if len(observed["one"].Status.GPUs[0].MIGProfiles) != len(all) {
		t.Error("the GPUNode was changed")
	}
}

func TestMissingRequirementsTakePrecedence(t *testing.T) {
	lacks := requirements.Findings{
		Missing:  []requirements.Missing{{Policy: "schedulers.kueue", Problem: "fairSharing is not set", Fix: "turn it on"}},
		Settings: map[string]string{"a": "new"},
	}
	advised := requirements.Findings{Missing: []requirements.Missing{{Policy: "schedulers.kai", Problem: "it is not set", Fix: "set it", Advisory: true}}}
	failures := []engine.Failure{{Policy: "schedulers.kueue", Err: engine.ErrDeadline}}
	good, bad := newNode("a", "8", "dgx"), newNode("b", "x", "dgx")
	before := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonRequirementsMissing, Message: "as before"}
	met := metav1.Condition{Type: v1alpha1.ConditionRequirementsMet, Status: metav1.ConditionTrue, Reason: ReasonGPUsKnown, Message: "as before"}
	known := map[string]string{"a": "old", "b": "old"}
	for name, tt := range map[string]struct {
		nodes    []corev1.Node
		service  SchedulerSupport
		before   metav1.Condition
		want     string
		settings map[string]string
	}{
		"nothing is required":          {[]corev1.Node{good}, SchedulerSupport{}, before, "True GPUsKnown the GPUs of every node are known", nil},
		"nothing missing":              {[]corev1.Node{good}, SchedulerSupport{RequirementCount: 2}, before, "True GPUsKnown the GPUs of every node are known, and kube-scheduler meets its requirements", nil},
		"something is missing":         {[]corev1.Node{good}, SchedulerSupport{RequirementCount: 2, Findings: lacks}, met, "False RequirementsMissing fairSharing is not set: turn it on (policy schedulers.kueue)", lacks.Settings},
		"something is advised":         {[]corev1.Node{good}, SchedulerSupport{RequirementCount: 2, Findings: advised}, met, "False RecommendationsMissing the node pool accepts pods; it is not set: set it (policy schedulers.kai)", nil},
		"advised, GPUs are not known":  {[]corev1.Node{bad}, SchedulerSupport{RequirementCount: 2, Findings: advised}, met, "False GPUCountUnknown node b: label nvidia.com/gpu.count=x: want a number of GPUs from 0 to 1024; it is not set: set it (policy schedulers.kai)", nil},
		"and GPUs are not known":       {[]corev1.Node{bad}, SchedulerSupport{RequirementCount: 2, Findings: lacks}, met, "False RequirementsMissing fairSharing is not set: turn it on (policy schedulers.kueue)", lacks.Settings},
		"a policy failed":              {[]corev1.Node{good}, SchedulerSupport{Failures: failures}, met, "Unknown PolicyFailed policy schedulers.kueue could not be evaluated for its requirements: " + engine.ErrDeadline.Error(), known},
		"one failed, one lacks":        {[]corev1.Node{good}, SchedulerSupport{Findings: lacks, Failures: failures}, met, "False RequirementsMissing fairSharing is not set: turn it on (policy schedulers.kueue)", map[string]string{"a": "new", "b": "old"}},
		"one that lacked failed":       {[]corev1.Node{good}, SchedulerSupport{Failures: failures}, before, "False RequirementsMissing as before", known},
		"a failed check":               {[]corev1.Node{good}, SchedulerSupport{Findings: lacks, CheckErr: errors.New("refused")}, before, "False RequirementsMissing as before", known},
		"a failed check before others": {[]corev1.Node{good}, SchedulerSupport{CheckErr: errors.New("refused")}, met, "True GPUsKnown as before", known},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool("dgx", "dgx")
			p.Status.Conditions, p.Status.Settings = []metav1.Condition{tt.before}, known
			status := BuildStatus(&p, Observe(&p, []v1alpha1.NodePool{p}, tt.nodes, nil), tt.service, metav1.Now())
			c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRequirementsMet)
			if got := strings.Join([]string{string(c.Status), c.Reason, c.Message}, " "); got != tt.want {
				t.Errorf("\n got %s\nwant %s", got, tt.want)
			}
			if diff := cmp.Diff(tt.settings, status.Settings); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if status.Nodes != 1 {
				t.Errorf("nodes %d, want 1: they are counted in any case", status.Nodes)
			}
		})
	}
}

func TestLongRequirementsMessageIsTruncated(t *testing.T) {
	service := SchedulerSupport{Supported: true}
	for _, fix := range strings.Fields(strings.Repeat("mend ", 100)) {
		service.Findings.Missing = append(service.Findings.Missing, requirements.Missing{
			Policy: "it", Problem: strings.Repeat("é", 500), Fix: fix + strings.Repeat("x", len(service.Findings.Missing)),
		})
	}
	p := newPool("dgx", "dgx")
	status := BuildStatus(&p, Observation{}, service, metav1.Now())
	if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionRequirementsMet); len(c.Message) > 32768 {
		t.Errorf("the message has %d bytes", len(c.Message))
	}
}
