// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

var soakTime = flag.Duration("soak-time", 0, "how long TestSoak loads a cluster; 0 skips it. It needs about 15m for a result")

const (
	// soakSampleInterval is the time between two samples of each process.
	soakSampleInterval = 5 * time.Second
	// soakAdmissionInterval is the time between two pods that are admitted without effect.
	soakAdmissionInterval = 100 * time.Millisecond
	// soakPolicyInterval and soakProjectInterval are the pauses between two changes of a policy, and between two projects.
	soakPolicyInterval, soakProjectInterval = 15 * time.Second, 10 * time.Second
	// soakMemoryGrowth is by how many MiB the mean resident memory of a process may grow, soakGoroutineGrowth by how many
	// goroutines their number may: garbage and requests in flight differ by less.
	soakMemoryGrowth, soakGoroutineGrowth = 16, 10
)

// soakTest is a cluster with steady work.
type soakTest struct {
	*limitsTest
	pods [outcomes]atomic.Int64
	// The changes that the load made.
	stops, projects, edits atomic.Int64

	samples map[string][]soakSample // by process
}

type soakSample struct {
	at                      time.Time
	residentMiB, goroutines float64
}

// Under steady load the memory of each process stays flat and its goroutines do not multiply: pods are admitted, workloads start and
// are stopped at their limits, projects are made and deleted, and a policy changes.
func TestSoak(t *testing.T) {
	if *soakTime == 0 {
		t.Skip("-soak-time is not set; `make soak` sets it")
	}
	s := &soakTest{limitsTest: newLimitsTest(t, "soak"), samples: map[string][]soakSample{}}
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	var load sync.WaitGroup
	load.Go(func() { s.admitPods(ctx) })
	load.Go(func() { s.editPolicy(ctx, t) })
	load.Go(func() { s.replaceProjects(ctx, t) })
	for slot := range limitedWorkloads {
		load.Go(func() { s.runWorkloads(ctx, t, slot, s.cleanUp) })
	}
	begun := time.Now()
	for time.Since(begun) < *soakTime {
		s.sample(t)
		pause(t.Context(), soakSampleInterval)
	}
	stop()
	load.Wait()
	t.Logf("in %s: %d pods admitted, %d without an answer, %d workloads stopped, %d projects made and deleted, %d changes of a policy",
		soakTime, s.pods[admitted].Load(), s.pods[noWebhook].Load()+s.pods[noServer].Load(), s.stops.Load(), s.projects.Load(), s.edits.Load())
	for _, o := range []outcome{ungoverned, refused} {
		if n := s.pods[o].Load(); n > 0 {
			t.Errorf("%d pods %s", n, outcomeNames[o])
		}
	}
	s.report(t, begun.Add(*soakTime/3))
}

// admitPods creates pods without effect at a steady rate.
func (s *soakTest) admitPods(ctx context.Context) {
	tick := time.NewTicker(soakAdmissionInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if result, _ := createGovernedPod(ctx, s.clientset, s.ns); ctx.Err() == nil {
			s.pods[result].Add(1)
		}
	}
}

// cleanUp deletes what a stopped workload leaves, as lifecycle does after 30 days of policy time: the records of the workloads of a
// quarter of an hour would be more and more memory.
func (s *soakTest) cleanUp(t *testing.T, w stoppedWorkload) {
	s.stops.Add(1)
	clock, err := s.getClock(t, w.workload)
	background := client.PropagationPolicy(metav1.DeletePropagationBackground)
	for _, object := range []client.Object{w.Object, clock} {
		if err == nil {
			err = client.IgnoreNotFound(s.adminClient.Delete(t.Context(), object, background))
		}
	}
	if err != nil {
		t.Errorf("delete %s: %v", w.GetName(), err)
	}
	for _, n := range s.listNotices(t, s.ns) {
		if n.Status.Phase == v1alpha1.NoticeSent || n.Status.Phase == v1alpha1.NoticeSuperseded {
			if err := client.IgnoreNotFound(s.adminClient.Delete(t.Context(), &n)); err != nil {
				t.Errorf("delete Notice: %v", err)
			}
		}
	}
}

// editPolicy changes a policy of the project again and again.
func (s *soakTest) editPolicy(ctx context.Context, t *testing.T) {
	policy := &v1alpha1.Policy{ObjectMeta: metav1.ObjectMeta{Name: "soak"}}
	policy.Spec.Match.Projects, policy.Spec.Enforcement = []string{s.ns}, v1alpha1.EnforcementDeny
	const rego = "package soak\n\ndeny contains \"bad %d\" if input.object.metadata.labels.kind == \"bad\"\n"
	policy.Spec.Rego = fmt.Sprintf(rego, 0)
	if err := s.adminClient.Create(ctx, policy); err != nil {
		t.Errorf("create Policy: %v", err)
	}
	for i := 1; pause(ctx, soakPolicyInterval); i++ {
		change := fmt.Appendf(nil, `{"spec":{"rego":%q}}`, fmt.Sprintf(rego, i))
		if err := s.adminClient.Patch(ctx, policy, client.RawPatch(types.MergePatchType, change)); err == nil {
			s.edits.Add(1)
		} else if ctx.Err() == nil {
			t.Logf("change the policy: %v", err)
		}
	}
}

// replaceProjects makes and deletes projects, one after the other.
func (s *soakTest) replaceProjects(ctx context.Context, t *testing.T) {
	for i := 0; pause(ctx, soakProjectInterval); i++ {
		name := fmt.Sprint("soak-", i)
		p := newProject(name, func(p *v1alpha1.Project) {
			p.Spec.Department, p.Spec.NodePools = s.ns, []v1alpha1.PoolQuota{newPoolQuota("dgx", "0", "1")}
		})
		if err := s.adminClient.Create(ctx, p); err != nil {
			t.Logf("create Project: %v", err)
			continue
		}
		for pause(ctx, time.Second) {
			if s.adminClient.Get(ctx, client.ObjectKeyFromObject(p), p) == nil &&
				checkCondition(p.Status.Conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, "") == nil {
				break
			}
		}
		if err := s.adminClient.Delete(ctx, p); err != nil && ctx.Err() == nil {
			t.Errorf("delete Project: %v", err)
		}
		for pause(ctx, time.Second) {
			if s.projectAndNamespaceDeleted(t, name) == nil {
				s.projects.Add(1)
				break
			}
		}
	}
}

// sample reads the metrics of each process of Sluice.
func (s *soakTest) sample(t *testing.T) {
	t.Helper()
	folders, err := filepath.Glob(s.podDir("*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders {
		process := filepath.Base(folder)
		text, err := s.componentMetrics(t, s.componentAddress(t, process, "metrics"))
		if err != nil {
			t.Logf("%s: %v", process, err) // an API server that is slow to check the token
			continue
		}
		metrics := parseMetrics(text)
		s.samples[process] = append(s.samples[process], soakSample{
			at: time.Now(), residentMiB: metrics["process_resident_memory_bytes"] / (1 << 20), goroutines: metrics["go_goroutines"],
		})
	}
}

// report prints the samples after the warm-up, and fails the test for a process that grows: the mean of the last quarter of the
// time against that of the first.
func (s *soakTest) report(t *testing.T, warm time.Time) {
	t.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "%-16s %8s %28s %28s\n", "process", "samples", "resident MiB (first, last)", "goroutines (first, last)")
	for process, samples := range s.samples {
		samples = slices.DeleteFunc(samples, func(s soakSample) bool { return s.at.Before(warm) })
		if len(samples) < 8 {
			t.Errorf("%s has %d samples after the warm-up", process, len(samples))
			continue
		}
		quarter := len(samples) / 4
		mean := func(list []soakSample, value func(soakSample) float64) (sum float64) {
			for _, sample := range list {
				sum += value(sample) / float64(len(list))
			}
			return sum
		}
		first, last := samples[:quarter], samples[len(samples)-quarter:]
		memory, goroutines := func(s soakSample) float64 { return s.residentMiB }, func(s soakSample) float64 { return s.goroutines }
		fmt.Fprintf(&table, "%-16s %8d %18.1f, %8.1f %18.1f, %8.1f\n", process, len(samples),
			mean(first, memory), mean(last, memory), mean(first, goroutines), mean(last, goroutines))
		if grown := mean(last, memory) - mean(first, memory); grown > soakMemoryGrowth {
			t.Errorf("the memory of %s grows: %.1f MiB in %s", process, grown, *soakTime/2)
		}
		if grown := mean(last, goroutines) - mean(first, goroutines); grown > soakGoroutineGrowth {
			t.Errorf("the goroutines of %s multiply: %.1f more in %s", process, grown, *soakTime/2)
		}
	}
	t.Logf("the first and the last quarter after a warm-up of %s:\n%s", *soakTime/3, table.String())
}
