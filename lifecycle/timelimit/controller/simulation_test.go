// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/period"
	"sluice.dev/api/v1alpha1"
)

// simulationResult is the result of a history.
type simulationResult struct {
	startedAt time.Time
	// faults are the errors found during the simulation.
	faults []string
	stops  []simulatedStop
	// notices are all notices, and recordedAt their times by name.
	notices    []v1alpha1.Notice
	recordedAt map[string]time.Time
	crashes    int
	// finalState is a readable form of the final clocks and notices.
	finalState []string
}

// simulatedStop is a stop.
type simulatedStop struct {
	name   string
	at     time.Time
	reason v1alpha1.EndReason
	// exempt is true if nothing may be stopped.
	exempt bool
}

// faultRecorder records the failures of a test inside a synctest bubble.
type faultRecorder struct {
	testing.TB
	faults []string
}

func (r *faultRecorder) Fatal(args ...any) {
	r.faults = append(r.faults, fmt.Sprint(args...))
	runtime.Goexit()
}

// simulation is the state of a running history.
type simulation struct {
	*simulationResult
	*fakeCluster
	// crashWhileDown starts and crashes lifecycle during downtimes.
	crashWhileDown        bool
	exempt                bool
	podCount, objectCount int
	idleSince             time.Time
	podRuns               map[string]*podRuns
}

// podRuns are the times in which a Job had pods, by the events of the history.
type podRuns struct {
	list []struct{ from, to time.Time }
	open *time.Time
}

// simulate runs a history in a synctest bubble.
func simulate(t *testing.T, history []simulatedEvent, crashWhileDown bool) *simulationResult {
	t.Helper()
	out := &simulationResult{recordedAt: map[string]time.Time{}}
	synctest.Test(t, func(t *testing.T) {
		recorder, done := &faultRecorder{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if fault := recover(); fault != nil {
					recorder.faults = append(recorder.faults, fmt.Sprint("panic: ", fault))
				}
			}()
			first, second := newJob("train"), newJob("copy")
			second.Spec.Template = first.Spec.Template
			s := &simulation{simulationResult: out, fakeCluster: newFakeCluster(recorder, first, second), crashWhileDown: crashWhileDown, podRuns: map[string]*podRuns{"train": {}, "copy": {}}}
			s.onWrite, s.afterReconcile, s.beforeReconcile = s.observeWrite, s.trackPodRuns, s.writeSamples
			out.startedAt = waitForWholeSecond()
			for _, e := range history {
				s.handleEvent(e)
			}
			s.advance(time.Minute)
			s.checkSettled()
			s.collectResult()
		}()
		<-done
		out.faults = append(out.faults, recorder.faults...)
	})
	return out
}

// recordFault records an error.
func (s *simulation) recordFault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// observeWrite records the times of Notices and stops.
func (s *simulation) observeWrite(o client.Object) {
	switch o := o.(type) {
	case *v1alpha1.Notice:
		if _, known := s.recordedAt[o.Name]; !known {
			s.recordedAt[o.Name] = time.Now()
		}
	case *v1alpha1.WorkloadClock:
		stop := o.Status.Stopped
		if stop == nil {
			return
		}
		for _, known := range s.stops {
			if known.at.Equal(stop.At.Time) {
				return // inherited by the copy that replaces it
			}
		}
		s.stops = append(s.stops, simulatedStop{o.Spec.Root.Name, stop.At.Time, stop.Reason, s.exempt})
	}
}

// handleEvent advances time and applies an event.
func (s *simulation) handleEvent(e simulatedEvent) {
	if e.kind == "downtime" {
		s.simulateDowntime(e)
		return
	}
	s.advance(e.after)
	s.applyEvent(e)
	s.trackPodRuns()
	s.advance(0)
	s.checkSettled()
}

// simulateDowntime advances time without lifecycle, or with one that crashes before its first
// write.
func (s *simulation) simulateDowntime(e simulatedEvent) {
	span := e.after + time.Duration(e.amount)*11*time.Hour
	if s.crashWhileDown {
		time.Sleep(span / 2)
		s.restart()
		s.crashAt, s.crashAfterWrite = s.calls+1, false
		for _, request := range s.reconcileRequests(s.t.Context()) {
			if _, err := s.reconciler.Reconcile(s.t.Context(), request); err != nil {
				break
			}
		}
		s.crashAt = 0
		span -= span / 2
	}
	time.Sleep(span)
	s.restart()
	s.advance(0)
}

func (s *simulation) applyEvent(e simulatedEvent) {
	limits := func(change func(*v1alpha1.WorkloadLimits)) {
		var d v1alpha1.Department
		s.get("students", &d)
		l := d.Spec.Workloads[v1alpha1.AnyWorkload]
		change(&l)
		d.Spec.Workloads[v1alpha1.AnyWorkload] = l
		s.must(s.rawClient.Update(s.t.Context(), &d))
	}
	switch e.kind {
	case "start":
		s.startJobPod("train")
	case "stop":
		s.deletePods("train", 1)
	case "replace":
		if s.countPods("train") > 0 {
			s.startJobPod("train")
			s.deletePods("train", 1)
		}
	case "recreate":
		s.deletePods("train", -1)
		job := s.getJob("train")
		s.must(s.rawClient.Delete(s.t.Context(), job))
		s.objectCount++
		job = newJob("train")
		job.UID = types.UID(fmt.Sprint("train-uid-", s.objectCount))
		s.must(s.rawClient.Create(s.t.Context(), job))
	case "copy":
		s.deletePods("train", -1)
		s.startJobPod("copy")
	case "idle":
		s.idleSince, s.maxSleep = time.Now(), 10*time.Minute
	case "busy":
		s.idleSince, s.maxSleep = time.Time{}, 10*time.Minute
	case "no samples":
		s.maxSleep = maxRequeueInterval
	case "extend":
		s.createExtension(e.amount)
	case "limit":
		limit := period.MustParseDuration(fmt.Sprint(e.amount*10+1, "h"))
		limits(func(l *v1alpha1.WorkloadLimits) {
			if l.MaxRuntime = &limit; e.amount == 8 {
				l.MaxRuntime = nil
			}
		})
	case "idle timeout":
		timeout := period.MustParseDuration(fmt.Sprint(e.amount+1, "h"))
		limits(func(l *v1alpha1.WorkloadLimits) {
			if l.IdleTimeout = &timeout; e.amount == 8 {
				l.IdleTimeout = nil
			}
		})
	case "dry run":
		dryRun := e.amount%2 == 0
		limits(func(l *v1alpha1.WorkloadLimits) { l.DryRun = &dryRun })
		s.updateExempt()
	case "exempt":
		var p v1alpha1.Project
		s.get(testNamespace, &p)
		if p.Spec.Exempt = nil; e.amount%2 == 0 {
			p.Spec.Exempt = &v1alpha1.Exception{Reason: "a trial"}
		}
		s.must(s.rawClient.Update(s.t.Context(), &p))
		s.updateExempt()
	case "crash":
		s.crashAt, s.crashAfterWrite = s.calls+1+e.amount/2, e.amount%2 == 0
		s.crashes++
	case "restart":
		s.restart()
	}
}

func (s *simulation) createExtension(amount int) {
	by := period.MustParseDuration(fmt.Sprint(amount+1, "h"))
	s.objectCount++
	e := &v1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: fmt.Sprint("more-", s.objectCount)}}
	e.Spec = v1alpha1.ExtensionSpec{Action: v1alpha1.ActionExtend, By: &by, Target: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: "train"}}
	e.Status.Decision = v1alpha1.ExtensionApproved
	s.must(s.rawClient.Create(s.t.Context(), e))
}

func (s *simulation) updateExempt() {
	var d v1alpha1.Department
	var p v1alpha1.Project
	s.get("students", &d)
	s.get(testNamespace, &p)
	dryRun := d.Spec.Workloads[v1alpha1.AnyWorkload].DryRun
	s.exempt = dryRun != nil && *dryRun || p.Spec.Exempt != nil
}

// startJobPod starts the Job with one more pod.
func (s *simulation) startJobPod(name string) {
	j := s.getJob(name)
	if suspend := j.Spec.Suspend; suspend != nil && *suspend {
		j.Spec.Suspend = nil
		s.must(s.rawClient.Update(s.t.Context(), j))
	}
	s.podCount++
	uid := fmt.Sprint("-", s.podCount)
	s.startPod(name, uid)
	s.pods[types.UID(name+uid)].Controller.UID = j.UID
}

// deletePods deletes the first n pods of a Job, or all if n is negative.
func (s *simulation) deletePods(name string, n int) {
	for pod := range s.pods.ControlledBy(s.getJob(name).UID) {
		if n == 0 {
			return
		}
		delete(s.pods, pod.UID)
		n--
	}
}

func (s *simulation) countPods(name string) (n int) {
	for range s.pods.ControlledBy(s.getJob(name).UID) {
		n++
	}
	return n
}

// writeSamples writes the samples of an agent, unless the history has none.
func (s *simulation) writeSamples() {
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}
	if s.maxSleep == maxRequeueInterval || len(s.pods) == 0 {
		return
	}
	if err := s.rawClient.Create(s.t.Context(), node); err != nil {
		s.get("dgx-1", node)
	}
	now, used := metav1.Now().Rfc3339Copy(), s.idleSince
	if used.IsZero() {
		used = now.Time
	}
	node.Status.SampledAt, node.Status.Pods = &now, nil
	for uid, pod := range s.pods {
		node.Status.Pods = append(node.Status.Pods, v1alpha1.PodUsage{PodReference: v1alpha1.PodReference{UID: uid, Namespace: testNamespace, Name: pod.Name}, LastActive: &metav1.Time{Time: used}})
	}
	s.must(s.rawClient.Status().Update(s.t.Context(), node))
}

// trackPodRuns records when each Job has pods.
func (s *simulation) trackPodRuns() {
	now := time.Now()
	for name, r := range s.podRuns {
		running := s.countPods(name) > 0
		switch {
		case running && r.open == nil:
			r.open = &now
		case !running && r.open != nil:
			r.list = append(r.list, struct{ from, to time.Time }{*r.open, now})
			r.open = nil
		}
	}
}

// checkSettled checks that nothing is written while nothing changes, and the running times.
func (s *simulation) checkSettled() {
	for range 4 { // the end of pods follows a stop, and a retry follows a crash
		s.advance(0)
	}
	if s.crashAt > s.calls {
		return // the planned crash has not happened yet
	}
	before := s.calls
	s.advance(0)
	if s.calls != before {
		s.recordFault("%d writes while nothing changes", s.calls-before)
	}
	now := time.Now()
	for _, one := range s.listClocks() {
		if s.podRuns[one.Spec.Root.Name] != nil {
			s.checkRunningTime(&one, now)
		}
	}
}

// checkRunningTime checks the running time of a clock: at most the time since its start, and
// at least the time in which the history had running pods.
func (s *simulation) checkRunningTime(one *v1alpha1.WorkloadClock, now time.Time) {
	status := &one.Status
	ran := time.Duration(status.AccumulatedSeconds) * time.Second
	if status.RunningSince != nil {
		ran += now.Sub(status.RunningSince.Time)
	}
	if status.StartedAt == nil {
		if ran > 0 {
			s.recordFault("%s ran for %s but never started", one.Name, ran)
		}
		return
	}
	least := -time.Duration(2*s.crashes) * time.Second
	for _, run := range s.podRuns[one.Spec.Root.Name].list {
		if !run.from.Before(status.StartedAt.Time) {
			least += run.to.Sub(run.from).Truncate(time.Second)
		}
	}
	if most := now.Sub(status.StartedAt.Time); ran > most+time.Second || ran < least {
		s.recordFault("%s ran for %s, want %s to %s", one.Name, ran, least, most)
	}
}

// collectResult copies clocks and notices to the result.
func (s *simulation) collectResult() {
	var list v1alpha1.NoticeList
	s.must(s.rawClient.List(s.t.Context(), &list))
	s.notices = list.Items
	for _, one := range s.listClocks() {
		one.Status.Conditions, one.Status.CreatedBy = nil, ""
		status, err := json.Marshal(&one.Status)
		s.must(err)
		s.finalState = append(s.finalState, one.Name+" "+string(status))
	}
	for _, n := range s.notices {
		s.finalState = append(s.finalState, fmt.Sprint(n.Name, " ", n.Spec.DueAt, " ", n.Spec.Deadline, " ", n.Status.Phase))
	}
}

func (s *simulation) get(name string, o client.Object) {
	s.must(s.rawClient.Get(s.t.Context(), client.ObjectKey{Name: name}, o))
}

func (s *simulation) must(err error) {
	if err != nil {
		s.t.Fatal(err)
	}
}
