// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package shares

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
	"sluice.dev/lifecycle/timelimit/eviction"
)

// simulation is a node with eight pods on two GPUs, whose memory changes at random, an agent that is silent at
// times, and evictions five minutes after their announcement.
type simulation struct {
	*testEnv
	random    *rand.Rand
	overSince map[types.UID]time.Time // by what the pods really use
	deadlines map[types.UID]time.Time
	evicted   int
	// silentUntil is the end of the agent's absence.
	silentUntil time.Time
}

// Announce implements Announcer as eviction.Announcer does: an announced pod keeps its deadline.
func (s *simulation) Announce(_ context.Context, a eviction.Announcement) error {
	if _, known := s.deadlines[a.UID]; known {
		return nil
	}
	for uid := range s.deadlines {
		if deviceOf(uid) == deviceOf(a.UID) {
			s.Errorf("%s is announced beside %s on one device", a.UID, uid)
		}
	}
	s.deadlines[a.UID] = policytime.MachineNow().Add(5 * time.Minute)
	return nil
}

// Withdraw implements Announcer.
func (s *simulation) Withdraw(_ context.Context, a eviction.Announcement, _ string) error {
	delete(s.deadlines, a.UID)
	return nil
}

// Values returns the announced pods.
func (s *simulation) Values() (list []*eviction.AnnouncedPod) {
	for uid, at := range s.deadlines {
		list = append(list, &eviction.AnnouncedPod{At: at, Node: "dgx-1", Announcement: eviction.Announcement{UID: uid, Reason: v1alpha1.EndShareExceeded}})
	}
	return list
}

func deviceOf(uid types.UID) string { return fmt.Sprintf("GPU-%d", uid[1]%2) }

// In random histories a pod is evicted only after it was above its share, without a pause, for a minute and
// the whole notice period.
func TestNoPodWithinItsShareIsEvicted(t *testing.T) {
	evicted := 0
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			s := &simulation{
				testEnv: newTestEnv(t), random: rand.New(rand.NewPCG(seed, 22)),
				overSince: map[types.UID]time.Time{}, deadlines: map[types.UID]time.Time{},
			}
			s.Announcer = s
			s.Announced = s
			s.initState(s)
			for i := range 8 {
				s.addPod(fmt.Sprintf("p%d", i), "work", "thesis")
			}
			for range 300 {
				time.Sleep(10 * time.Second)
				s.step()
			}
			evicted += s.evicted
		})
	}
	if evicted < 6 {
		t.Errorf("only %d pods were evicted", evicted)
	}
}

// step changes the memory of some pods, and lets the agent, lifecycle and the evictions follow.
func (s *simulation) step() {
	now := policytime.MachineNow()
	for uid, pod := range s.pods {
		switch _, over := s.overSince[uid]; {
		case pod.Deleting:
			delete(s.pods, uid)
		case over && s.random.IntN(60) == 0:
			delete(s.overSince, uid)
		case !over && s.random.IntN(30) == 0:
			s.overSince[uid] = now
		}
	}
	if s.random.IntN(80) == 0 {
		s.silentUntil = now.Add(time.Duration(s.random.IntN(300)) * time.Second)
	}
	if now.After(s.silentUntil) {
		var findings []v1alpha1.Finding
		for uid := range s.pods {
			if since, over := s.overSince[uid]; over && now.Sub(since) >= time.Minute {
				f := newFinding(fmt.Sprintf("%s ShareExceeded %s", uid, deviceOf(uid)), 600+int64(uid[1]))
				f.Since = metav1.NewTime(since)
				findings = append(findings, f)
			}
		}
		s.report(findings...)
	}
	if _, err := s.Reconcile(s.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "dgx-1"}}); err != nil {
		s.Fatal(err)
	}
	for uid, at := range s.deadlines {
		if now.Before(at) {
			continue
		}
		why, err := s.Check(s.Context(), eviction.Announcement{UID: uid})
		if err != nil {
			s.Fatal(err)
		}
		delete(s.deadlines, uid)
		if why != "" {
			continue
		}
		// While the agent is silent, its last sample counts for 90 s.
		if since, over := s.overSince[uid]; (!over || now.Sub(since) < 6*time.Minute) && now.After(s.silentUntil) {
			s.Errorf("%s is evicted, above its share since %s", uid, since)
		}
		s.pods[uid].Deleting = true
		delete(s.overSince, uid)
		s.evicted++
	}
	for len(s.recorder.Events) > 0 {
		<-s.recorder.Events
	}
}
