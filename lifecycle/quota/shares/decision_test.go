// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sluice.dev/api/v1alpha1"
)

var testNow = time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)

// newFinding returns a finding: "a ShareExceeded GPU-0".
func newFinding(text string, excessMiB int64) v1alpha1.Finding {
	words := strings.Fields(text)
	return v1alpha1.Finding{
		PodUID: types.UID(words[0]), Reason: v1alpha1.FindingReason(words[1]), Device: words[2], ExcessMiB: excessMiB,
		Since: metav1.NewTime(testNow.Add(-time.Minute)),
	}
}

func newObservation(findings ...v1alpha1.Finding) Observation {
	o := Observation{
		Now:    testNow,
		Status: &v1alpha1.GPUNodeStatus{SampledAt: &metav1.Time{Time: testNow.Add(-10 * time.Second)}, Findings: findings},
		Pods:   map[types.UID]Pod{},
	}
	for _, f := range findings {
		o.Pods[f.PodUID] = Pod{Governed: true}
	}
	return o
}

// with changes the state of a pod.
func (o Observation) with(uid types.UID, change func(*Pod)) Observation {
	pod := o.Pods[uid]
	change(&pod)
	o.Pods[uid] = pod
	return o
}

func (o Observation) sampledBefore(age time.Duration) Observation {
	o.Status.SampledAt = &metav1.Time{Time: o.Now.Add(-age)}
	return o
}

func (d Decision) String() string {
	var words []string
	for _, f := range d.Warn {
		words = append(words, "warn "+string(f.PodUID))
	}
	for _, f := range d.Announce {
		words = append(words, "announce "+string(f.PodUID))
	}
	for _, uid := range d.Withdraw {
		words = append(words, "withdraw "+string(uid))
	}
	return strings.Join(words, ", ")
}

func announced(p *Pod)   { p.Governed, p.Announced = true, v1alpha1.EndShareExceeded }
func preempted(p *Pod)   { p.Governed, p.Announced = true, v1alpha1.EndPreempted }
func terminating(p *Pod) { p.Governed, p.Terminating = true, true }
func outside(p *Pod)     { p.Governed = false }
func warnOnly(p *Pod)    { p.WarnOnly = true }

func TestDecide(t *testing.T) {
	a, b := newFinding("a ShareExceeded GPU-0", 900), newFinding("b ShareExceeded GPU-0", 5000)
	c, conflict := newFinding("c ShareExceeded GPU-1", 700), newFinding("d MemoryConflict GPU-0", 9000)
	stranger := newFinding("e NotAllocated GPU-2", 9000)
	unsampled := newObservation(a).with("a", announced)
	unsampled.Status.SampledAt = nil
	gone := newObservation(a)
	delete(gone.Pods, "a")
	onDevice := newObservation(a).with("b", preempted)
	onDevice.Status.Pods = []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "b"}, Devices: []string{"GPU-0"}}}
	elsewhere := newObservation(a).with("b", preempted)
	elsewhere.Status.Pods = []v1alpha1.PodUsage{{PodReference: v1alpha1.PodReference{UID: "b"}, Devices: []string{"GPU-1"}}}
	for name, tt := range map[string]struct {
		observation Observation
		want        string
	}{
		"no findings":                       {newObservation(), ""},
		"one finding":                       {newObservation(a), "warn a, announce a"},
		"the worst on each device":          {newObservation(a, b, c), "warn b, warn a, warn c, announce b, announce c"},
		"one device, another kind":          {newObservation(a, conflict), "warn d, warn a, announce d"},
		"a device of another is no share":   {newObservation(stranger), "warn e"},
		"it is announced already":           {newObservation(a, b).with("b", announced), "warn b, warn a"},
		"the worst terminates":              {newObservation(a, b).with("b", terminating), "warn a"},
		"a neighbor is preempted":           {onDevice, "warn a"},
		"a pod elsewhere is preempted":      {elsewhere, "warn a, announce a"},
		"it is preempted itself":            {newObservation(a).with("a", preempted), "warn a"},
		"back within its share":             {newObservation(a).with("b", announced), "warn a, announce a, withdraw b"},
		"back, but preempted":               {newObservation().with("b", preempted), ""},
		"back, but it terminates":           {newObservation().with("b", announced).with("b", terminating), ""},
		"only a warning remains":            {newObservation(stranger).with("e", announced), "warn e, withdraw e"},
		"a pod outside of projects":         {newObservation(a).with("a", outside), ""},
		"a pod that requests no GPU":        {newObservation(a, stranger).with("a", warnOnly).with("e", warnOnly), "warn e"},
		"a pod that is gone":                {gone, ""},
		"the sample is old":                 {newObservation(a, b).with("b", announced).sampledBefore(91 * time.Second), "withdraw b"},
		"the sample is just new enough":     {newObservation(a).sampledBefore(90 * time.Second), "warn a, announce a"},
		"the sample is of the future":       {newObservation(a).sampledBefore(-2 * time.Minute), ""},
		"no sample":                         {unsampled, "withdraw a"},
		"a finding without a device":        {newObservation(v1alpha1.Finding{PodUID: "a", Reason: v1alpha1.FindingShareExceeded}), "warn a"},
		"a finding of an unknown kind":      {newObservation(newFinding("a Curious GPU-0", 1)), "warn a"},
		"an agent that lists one pod twice": {newObservation(a, a), "warn a, warn a, announce a"},
	} {
		if got := Decide(tt.observation).String(); got != tt.want {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// In random histories no pod within its share is announced or stays announced, no device has two announced
// pods, and the worst of those that can be chosen goes first.
func TestDecideInRandomHistories(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 22))
		pods := map[types.UID]Pod{}
		deviceOf := func(i int) string { return fmt.Sprintf("GPU-%d", i%3) }
		for i := range 9 {
			pods[types.UID(fmt.Sprintf("p%d", i))] = Pod{Governed: random.IntN(8) > 0}
		}
		for step := range 100 {
			status := &v1alpha1.GPUNodeStatus{SampledAt: &metav1.Time{Time: testNow}}
			above := map[types.UID]bool{}
			for i := range 9 {
				uid := types.UID(fmt.Sprintf("p%d", i))
				pod, exists := pods[uid]
				if !exists {
					continue
				}
				status.Pods = append(status.Pods, v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: uid}, Devices: []string{deviceOf(i)}})
				if random.IntN(3) == 0 {
					above[uid] = true
					status.Findings = append(status.Findings, newFinding(fmt.Sprintf("%s ShareExceeded %s", uid, deviceOf(i)), int64(random.IntN(9000))))
				}
				switch random.IntN(20) {
				case 0:
					pod.Terminating = true
					pods[uid] = pod
				case 1:
					if pod.Terminating {
						delete(pods, uid)
					}
				case 2:
					if pod.Announced == "" {
						pod.Announced = v1alpha1.EndPreempted
						pods[uid] = pod
					}
				}
			}
			fresh := random.IntN(10) > 0
			o := Observation{Now: testNow, Status: status, Pods: pods}
			if !fresh {
				o = o.sampledBefore(time.Hour)
			}
			d := Decide(o)
			fail := func(what string) {
				t.Fatalf("seed %d, step %d: %s: %s\n%+v\n%+v", seed, step, what, d, pods, status.Findings)
			}
			count := map[string]int{}
			for i := range 9 {
				uid := types.UID(fmt.Sprintf("p%d", i))
				pod, exists := pods[uid]
				announces := slices.ContainsFunc(d.Announce, func(f v1alpha1.Finding) bool { return f.PodUID == uid })
				withdraws := slices.Contains(d.Withdraw, uid)
				if announces && (!above[uid] || !exists || !pod.Governed || pod.Terminating || pod.Announced != "" || !fresh) {
					fail("announced without reason " + string(uid))
				}
				mustWithdraw := exists && pod.Announced == v1alpha1.EndShareExceeded && !pod.Terminating && (!above[uid] || !fresh)
				if withdraws != mustWithdraw {
					fail("withdrawn or not " + string(uid))
				}
				if announces {
					pod.Announced = v1alpha1.EndShareExceeded
					count[deviceOf(i)]++
				} else if exists && (pod.Terminating || pod.Announced != "" && !withdraws) {
					count[deviceOf(i)] += 100
				}
				if withdraws {
					pod.Announced = ""
				}
				if exists {
					pods[uid] = pod
				}
			}
			for device, n := range count {
				if n%100 > 1 || n > 100 && n%100 > 0 {
					fail("too many on " + device)
				}
			}
			for _, f := range d.Announce {
				for _, other := range d.Warn {
					if other.Device == f.Device && other.ExcessMiB > f.ExcessMiB && pods[other.PodUID].Announced == "" {
						fail("not the worst " + string(f.PodUID))
					}
				}
			}
		}
	}
}
