// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"encoding/json"
	"fmt"
	stdslices "slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

func newObservedInstance(profile string, start, size int32, state v1alpha1.InstanceState) v1alpha1.ObservedInstance {
	return v1alpha1.ObservedInstance{Profile: v1alpha1.MIGProfile(profile), Start: start, Size: size, State: state}
}

func TestFormatSlices(t *testing.T) {
	gpus := []v1alpha1.ObservedGPU{
		{UUID: "a", Instances: []v1alpha1.ObservedInstance{
			newObservedInstance("3g.20gb", 0, 4, v1alpha1.InstanceActive),
			newObservedInstance("1g.5gb", 4, 1, v1alpha1.InstanceIdle),
			newObservedInstance("1g.5gb", 5, 1, v1alpha1.InstanceReclaiming),
			newObservedInstance("1g.5gb+me", 6, 1, v1alpha1.InstanceError),
		}},
		{UUID: "b"},
		{UUID: "c", Instances: []v1alpha1.ObservedInstance{
			newObservedInstance("1g.5gb", 0, 1, v1alpha1.InstanceActive),
			newObservedInstance("1g.10gb", 4, 2, v1alpha1.InstanceIdle),
		}},
	}
	if diff := cmp.Diff("1g.5gb 2/3, 1g.5gb+me 0/1, 1g.10gb 0/1, 3g.20gb 1/1", formatSlices(gpus)); diff != "" {
		t.Error(diff)
	}
	if got := formatSlices(nil); got != "" {
		t.Errorf("%q", got)
	}
}

var testNow = time.Unix(1_800_000_000, 0)

const (
	testGPU0 v1alpha1.GPUUUID = "GPU-8f6e2a04-0000-0000-0000-000000000000"
	testGPU1 v1alpha1.GPUUUID = "GPU-8f6e2a04-0000-0000-0000-000000000001"
)

// The API server would reject a whole status with one invalid value, and a lost GPU would stay
// reported as healthy.
func TestValidGPUs(t *testing.T) {
	long := strings.Repeat("x", 2000)
	former := []v1alpha1.ObservedGPU{
		{UUID: testGPU0, Index: 0, Health: v1alpha1.GPUHealthy},
		{UUID: testGPU1, Index: 1, Health: v1alpha1.GPUHealthy},
	}
	got := validGPUs([]v1alpha1.ObservedGPU{
		{
			UUID: testGPU0, Index: 0, Model: long, Health: v1alpha1.GPUHealthy, MIGProfiles: []v1alpha1.MIGProfile{"1g.5gb", "nonsense"},
			Instances: []v1alpha1.ObservedInstance{
				newObservedInstance("1g.5gb", 0, 1, v1alpha1.InstanceIdle),
				newObservedInstance("2g.10gb+unknown17", 2, 2, v1alpha1.InstanceIdle),
				newObservedInstance("1g.5gb", 9, 1, v1alpha1.InstanceIdle),
				newObservedInstance("1g.5gb", 0, 1, v1alpha1.InstanceIdle),
			},
		},
		{Index: 1, Health: v1alpha1.GPULost, Message: "lost"},
		{Index: 2, Health: v1alpha1.GPULost},
	}, former)
	if len(got) != 2 || len([]rune(got[0].Model)) != maxModel || got[1].UUID != testGPU1 || got[1].Health != v1alpha1.GPULost {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff([]v1alpha1.ObservedInstance{newObservedInstance("1g.5gb", 0, 1, v1alpha1.InstanceIdle)},
		got[0].Instances); diff != "" {
		t.Error(diff)
	}
	if got[0].Health != v1alpha1.GPUUnhealthy || !strings.Contains(got[0].Message, "the GPUNode cannot report") ||
		len(got[0].MIGProfiles) != 1 {
		t.Errorf("%+v", got[0])
	}
	many := make([]v1alpha1.PodUsage, 600)
	for i := range many {
		many[i].UID, many[i].Devices = types.UID(fmt.Sprint("u", i)), make([]string, 70)
	}
	list := mergePodUses([]v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u0"}, ShareMiB: 7}}, stdslices.Concat(many, many[:1]))
	if len(list) != maxPods || len(list[0].Devices) != maxDevices || list[0].ShareMiB != 7 {
		t.Errorf("%d pods, the first %+v", len(list), list[0])
	}
	// The API server stores invalid UTF-8 as another text.
	if got := truncateText("a\xffb", 10); got != "a\uFFFDb" {
		t.Errorf("%q", got)
	}
}

// Unknown values stay, and so do those of other writers.
func TestMergeStatus(t *testing.T) {
	long := strings.Repeat("ä", 2000)
	former := v1alpha1.GPUNodeStatus{
		ObservedGeneration: 4, DriverVersion: "550", Slices: "1g.5gb 1/1",
		GPUs: []v1alpha1.ObservedGPU{{
			UUID:      "a",
			Instances: []v1alpha1.ObservedInstance{newObservedInstance("1g.5gb", 0, 1, v1alpha1.InstanceActive)},
		}},
		Pods:      []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "u"}}},
		SampledAt: &metav1.Time{Time: testNow},
	}
	got := new(Writer).mergeStatus(&former, Report{
		Generation: 5,
		Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: "DriverNotLoaded", Message: "load it"}},
	}, testNow)
	want := former.DeepCopy()
	want.Conditions = []metav1.Condition{{
		Type: "Ready", Status: metav1.ConditionFalse, Reason: "DriverNotLoaded", Message: "load it",
		ObservedGeneration: 5, LastTransitionTime: metav1.NewTime(testNow),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	got = new(Writer).mergeStatus(want, Report{
		Generation: 5, Complete: true, DriverVersion: "560",
		GPUs: []v1alpha1.ObservedGPU{{UUID: testGPU0, Message: long}},
	}, testNow.Add(time.Hour))
	if got.ObservedGeneration != 5 || got.DriverVersion != "560" || got.Slices != "" || len([]rune(got.GPUs[0].Message)) != maxMessage ||
		len(got.Pods) != 1 {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(want.Conditions, got.Conditions); diff != "" {
		t.Error(diff)
	}
}

// fakeClient is an API server with one GPUNode, or none.
type fakeClient struct {
	node   *v1alpha1.GPUNode
	writes int
}

func (c *fakeClient) GetGPUNode(context.Context) (*v1alpha1.GPUNode, error) {
	if c.node == nil {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("gpunodes").GroupResource(), "dgx-01")
	}
	return c.node.DeepCopy(), nil
}

func (c *fakeClient) PatchGPUNodeStatus(_ context.Context, patch []byte) error {
	c.writes++
	before, err := json.Marshal(c.node)
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, patch)
	if err != nil {
		return err
	}
	c.node = new(v1alpha1.GPUNode)
	return json.Unmarshal(after, c.node)
}

// newTestWriter returns a writer and its API server with one GPUNode.
func newTestWriter() (*Writer, *fakeClient) {
	c := &fakeClient{node: &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-01", UID: "one", Generation: 1}}}
	return &Writer{Node: "dgx-01", Client: c, Now: func() time.Time { return testNow }}, c
}

func newReport(model string) Report {
	return Report{
		Generation: 1, Complete: true, DriverVersion: "550.54",
		GPUs:       []v1alpha1.ObservedGPU{{UUID: "GPU-8f6e2a04-0000-0000-0000-000000000000", Model: model}},
		Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonReady}},
	}
}

func TestWriterSkipsUnchangedAndLimitsRate(t *testing.T) {
	w, c := newTestWriter()
	node := c.node
	step := func(name string, f Report, wantWrites int, wantAgain time.Duration) {
		t.Helper()
		again, err := w.Write(t.Context(), node, f)
		if err != nil || again != wantAgain || c.writes != wantWrites {
			t.Errorf("%s: %d writes, again in %v, %v; want %d, %v", name, c.writes, again, err, wantWrites, wantAgain)
		}
	}
	start := testNow
	defer func() { testNow = start }()
	step("the first", newReport("A100"), 1, 0)
	testNow = testNow.Add(2 * time.Second)
	step("the same, though the cache is behind", newReport("A100"), 1, 0)
	node = c.node
	step("the same", newReport("A100"), 1, 0)
	step("another", newReport("H100"), 2, 0)
	testNow = testNow.Add(300 * time.Millisecond)
	step("too early", newReport("B200"), 2, 700*time.Millisecond)
	testNow = testNow.Add(700 * time.Millisecond)
	step("a second later", newReport("B200"), 3, 0)
	testNow = testNow.Add(-time.Hour)
	step("a clock that was set back", newReport("A30"), 4, 0)

	node = c.node
	if node.Status.GPUs[0].Model != "A30" || node.Status.ObservedGeneration != 1 {
		t.Errorf("%+v", node.Status)
	}
}

func TestWriterIgnoresReplacedGPUNode(t *testing.T) {
	w, c := newTestWriter()
	node := c.node
	former := node.DeepCopy()
	former.UID = "before"
	if _, err := w.Write(t.Context(), former, newReport("A100")); err != nil || c.writes != 0 {
		t.Errorf("%d writes, %v", c.writes, err)
	}
	c.node = nil
	if _, err := w.Write(t.Context(), node, newReport("A100")); err != nil || c.writes != 0 {
		t.Errorf("deleted: %d writes, %v", c.writes, err)
	}
}
