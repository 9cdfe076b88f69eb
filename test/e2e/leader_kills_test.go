// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"sluice.dev/api/period"
	"sluice.dev/api/policytime"
	"sluice.dev/api/v1alpha1"
)

const (
	// limitsTimeScale is the speed of policy time.
	limitsTimeScale = 60
	// The limit of the workloads and the lead of their warning are 20 and 10 seconds of machine time.
	shortLimit, shortLead = 20 * time.Minute, 10 * time.Minute
	// limitedWorkloads is the number of workloads at a time. Each follows another one.
	limitedWorkloads = 6
	// leaseTime is the machine time after which a standby replica takes over: the lease, and the interval at which it tries.
	leaseTime = 15*time.Second + 2400*time.Millisecond
	// reactionTime is the machine time from a deadline, or from the takeover, to the stop on a busy machine.
	reactionTime = time.Minute
	// killInterval is the shortest machine time for which a leader leads before it is killed, and half of the longest.
	killInterval = 10 * time.Second
)

// limitsTest is a cluster with fast policy time, whose workloads reach their limits.
type limitsTest struct {
	*policyTimeCluster
	ns string

	mu      sync.Mutex
	stopped []stoppedWorkload
}

// stoppedWorkload is a workload with the clock that it had when it was stopped. A clock forgets its stop after the cooldown.
type stoppedWorkload struct {
	workload
	clock v1alpha1.WorkloadClockStatus
}

// The leader of lifecycle is killed at random times while workloads reach their time limits. No end is later than a lease after
// its deadline, none is earlier than announced, and each mail about an end is delivered, repeated only under the same Message-ID.
// Guards invariants 5, 6 and 8 of the design.
func TestLeaderKilled(t *testing.T) {
	l := newLimitsTest(t, "killed")
	l.editConfiguration(t, "lifecycle", "disabled: true", "disabled: false")
	l.mustKubectl(t, "-n", v1alpha1.SystemNamespace, "scale", "deployment", "lifecycle", "--replicas", "2")
	l.rollOut(t, "lifecycle", "restart")
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	for slot := range limitedWorkloads {
		load.Go(func() { l.runWorkloads(ctx, t, slot, l.remember) })
	}
	t.Cleanup(stop)
	kills, longest := 0, time.Duration(0)
	for begun := time.Now(); time.Since(begun) < max(*disruptionTime, time.Minute); kills++ {
		leader := l.waitForLeader(t)
		pause(t.Context(), killInterval+rand.N(killInterval))
		killProcess(t, l.componentPID(t, leader))
		killed := time.Now()
		l.waitForLeader(t)
		longest = max(longest, time.Since(killed))
	}
	stop()
	load.Wait()
	t.Logf("%d kills; the longest time without a leader: %s", kills, longest.Round(time.Second/10))
	l.checkEnds(t)
	l.checkMails(t)
}

// newLimitsTest starts a cluster with fast policy time, and a project whose workloads have a short limit.
func newLimitsTest(t *testing.T, name string) *limitsTest {
	t.Helper()
	flags := []string{"--nodes", "2", "--time-scale", strconv.Itoa(limitsTimeScale)}
	l := &limitsTest{policyTimeCluster: &policyTimeCluster{sluiceCluster: newUnsharedCluster(t, flags...)}, ns: name}
	var err error
	if l.clockFile, err = policytime.OpenFile(filepath.Join(l.dir, policytime.FileName), nil); err != nil {
		t.Fatal(err)
	}
	limit := period.MustParseDuration(shortLimit.String())
	department := &v1alpha1.Department{}
	department.Name = l.ns
	department.Spec = v1alpha1.DepartmentSpec{
		NodePools: []v1alpha1.PoolQuota{newPoolQuota("dgx", "8", "16")},
		Workloads: map[v1alpha1.WorkloadType]v1alpha1.WorkloadLimits{"*": {MaxRuntime: &limit}},
		Notices:   v1alpha1.NoticeTerms{TimeZone: "Europe/Berlin", WorkloadEnd: []period.Duration{period.MustParseDuration(shortLead.String())}},
	}
	l.createForTest(t, department)
	l.createGovernedProject(t, l.ns, l.ns, newPoolQuota("dgx", "8", "8"))
	return l
}

// waitForLeader waits until a replica of lifecycle is the leader, and returns its process.
func (l *limitsTest) waitForLeader(t *testing.T) (leader string) {
	t.Helper()
	eventuallyLong(t, func() error {
		replicas, err := filepath.Glob(l.podDir("lifecycle*"))
		if err != nil {
			return err
		}
		for _, replica := range replicas {
			name := filepath.Base(replica)
			metrics, err := l.componentMetrics(t, l.componentAddress(t, name, "metrics"))
			if err == nil && parseMetrics(metrics)["sluice_lifecycle_leader"] == 1 {
				leader = name
				return nil
			}
		}
		return errors.New("no replica of lifecycle is the leader")
	})
	return leader
}

// runWorkloads starts a workload when the one before was stopped, until ctx ends and the last one was stopped. It calls stopped with
// each.
func (l *limitsTest) runWorkloads(ctx context.Context, t *testing.T, slot int, stopped func(*testing.T, stoppedWorkload)) {
	for i := 0; ctx.Err() == nil; i++ {
		job := newJobWorkload(l.ns, fmt.Sprintf("job-%d-%d", slot, i), v1alpha1.ResourceNVIDIAGPU)
		if err := l.adminClient.Create(t.Context(), job.Object); err != nil {
			t.Errorf("create Job: %v", err)
			return
		}
		for deadline := time.Now().Add(restartTimeout); ; {
			clock, err := l.getClock(t, job)
			if err == nil && clock.Status.Stopped != nil {
				stopped(t, stoppedWorkload{job, clock.Status})
				break
			}
			if time.Now().After(deadline) || t.Context().Err() != nil {
				t.Errorf("Job %s was not stopped: %v, %+v", job.GetName(), err, clock.Status)
				return
			}
			pause(t.Context(), time.Second/4)
		}
	}
}

func (l *limitsTest) remember(_ *testing.T, w stoppedWorkload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = append(l.stopped, w)
}

// checkEnds compares when the workloads were stopped with their limits, and with the deadlines that were announced.
func (l *limitsTest) checkEnds(t *testing.T) {
	t.Helper()
	announced := map[string]time.Time{}
	for _, n := range l.listNotices(t, l.ns) {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadEnding && n.Spec.Deadline.After(announced[n.Spec.Subject.Name]) {
			announced[n.Spec.Subject.Name] = n.Spec.Deadline.Time
		}
	}
	var latest, overrun time.Duration
	for _, w := range l.stopped {
		s := w.clock
		deadline, found := announced[w.GetName()]
		late := s.Stopped.At.Sub(deadline)
		switch {
		case !found:
			t.Errorf("%s was stopped without an announcement", w.GetName())
		case late < 0:
			t.Errorf("%s was stopped %s before the announced deadline", w.GetName(), -late)
		case late > limitsTimeScale*(leaseTime+reactionTime):
			t.Errorf("%s was stopped %s of machine time after its deadline, more than a lease", w.GetName(), late/limitsTimeScale)
		}
		if s.Stopped.Reason != v1alpha1.EndMaxRuntime {
			t.Errorf("%s was stopped because of %s", w.GetName(), s.Stopped.Reason)
		}
		latest = max(latest, late)
		overrun = max(overrun, s.Stopped.At.Sub(s.StartedAt.Time)-shortLimit)
	}
	t.Logf("%d workloads stopped; the latest %s of machine time after its deadline, %s after its limit", len(l.stopped),
		(latest / limitsTimeScale).Round(time.Second/10), (overrun / limitsTimeScale).Round(time.Second/10))
	if len(l.stopped) < limitedWorkloads {
		t.Errorf("only %d workloads were stopped", len(l.stopped))
	}
}

// checkMails waits until all Notices were delivered, and compares them with the mails.
func (l *limitsTest) checkMails(t *testing.T) {
	t.Helper()
	var notices []v1alpha1.Notice
	l.eventuallyAfterStep(t, func() error {
		notices = l.listNotices(t, l.ns)
		for _, n := range notices {
			if n.Status.Phase != v1alpha1.NoticeSent && n.Status.Phase != v1alpha1.NoticeSuperseded {
				return unexpectedState(n.Name+" is sent", n.Status)
			}
		}
		return nil
	})
	delivered := map[string]int{}
	for _, m := range l.listMails(t) {
		delivered[m.MessageID]++
	}
	repeated, superseded := 0, 0
	about := map[string]map[v1alpha1.NoticeKind]int{}
	for _, n := range notices {
		if about[n.Spec.Subject.Name] == nil {
			about[n.Spec.Subject.Name] = map[v1alpha1.NoticeKind]int{}
		}
		about[n.Spec.Subject.Name][n.Spec.Kind]++
		switch count := delivered[n.Status.MessageID]; {
		case n.Status.Phase == v1alpha1.NoticeSuperseded:
			superseded++
		case count == 0:
			t.Errorf("the mail of Notice %s, %s, was not delivered", n.Name, n.Status.MessageID)
		default:
			repeated += count - 1
		}
	}
	for _, w := range l.stopped {
		if kinds := about[w.GetName()]; kinds[v1alpha1.NoticeWorkloadStopped] != 1 {
			t.Errorf("%s has the Notices %v, want one about its end", w.GetName(), kinds)
		}
	}
	t.Logf("%d Notices, %d of them superseded; %d mails, %d of them repeated", len(notices), superseded, len(delivered), repeated)
}
