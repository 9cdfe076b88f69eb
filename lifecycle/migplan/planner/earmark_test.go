// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package planner

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"sluice.dev/api/v1alpha1"
)

// busyNode is a node with eight GPUs whose slices are all small instances. Small pods arrive and end
// at random times, and take 90 % of the instances.
type busyNode struct {
	*simulation
	ends map[*simulatedPod]time.Time
	next time.Time
}

// meanLifetime is the mean lifetime of the small pods.
const meanLifetime = time.Hour

func newBusyNode(t *rapid.T, seed uint64) *busyNode {
	h := &simulation{T: t, now: startTime, calm: true, chance: rand.New(rand.NewPCG(seed, seed))} //nolint:gosec // no secret
	n := &simulatedNode{
		name: "n1", published: deviceCounts{}, real: make([][]*simulatedInstance, 8), off: make([]bool, 8), clients: newSimulatedClients(),
	}
	small, err := modelA100.Profile("1g.5gb")
	if err != nil {
		t.Fatal(err)
	}
	for i := range n.real {
		for _, start := range small.Starts {
			n.real[i] = append(n.real[i], &simulatedInstance{profile: small, start: start})
		}
	}
	n.object = v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: n.name, Generation: 1}}
	n.reportStatus(h.now)
	h.nodes = []*simulatedNode{n}
	return &busyNode{simulation: h, ends: map[*simulatedPod]time.Time{}, next: startTime}
}

// exponential returns a random duration with a mean.
func (b *busyNode) exponential(mean time.Duration) time.Duration {
	return time.Duration(-math.Log(1-b.chance.Float64()) * float64(mean))
}

// advance runs the node for two seconds.
func (b *busyNode) advance() {
	for !b.next.After(b.now) {
		b.pods = append(b.pods, &simulatedPod{name: fmt.Sprintf("p%d", len(b.pods)), profile: "1g.5gb", created: b.now})
		b.next = b.next.Add(b.exponential(meanLifetime * 10 / (9 * 8 * 7)))
	}
	for _, pod := range b.pods {
		if pod.instance == nil || pod.profile != "1g.5gb" {
			continue
		}
		if _, known := b.ends[pod]; !known {
			b.ends[pod] = b.now.Add(b.exponential(meanLifetime))
		}
		if !b.now.Before(b.ends[pod]) {
			pod.over, pod.instance.pod, pod.instance = true, nil, nil
		}
	}
	b.pods = slices.DeleteFunc(b.pods, func(pod *simulatedPod) bool { return pod.over })
	b.simulation.advance()
}

// A large instance does not starve behind small ones: at 90 % load of 1g a 7g starts within three
// mean lifetimes, in most histories. The pods of a GPU end within 2.6 mean lifetimes on average.
func TestLargeInstancesDoNotStarve(t *testing.T) {
	const seeds = 8
	var waits []time.Duration
	rapid.Check(t, func(t *rapid.T) {
		if len(waits) >= seeds {
			return
		}
		b := newBusyNode(t, uint64(len(waits)+1))
		for b.now.Sub(startTime) < 2*meanLifetime {
			b.advance()
		}
		large := &simulatedPod{name: "large", profile: "7g.40gb", created: b.now}
		b.pods = append(b.pods, large)
		for large.instance == nil && b.now.Sub(large.created) < 6*meanLifetime {
			b.advance()
		}
		waits = append(waits, b.now.Sub(large.created))
	})
	slices.Sort(waits)
	t.Logf("waits: %v", waits)
	if median := waits[len(waits)/2]; median > 3*meanLifetime {
		t.Errorf("half of the 7g wait for more than %s, more than three mean lifetimes", median)
	}
}
