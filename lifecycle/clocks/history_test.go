// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package clocks

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

// lived is what came of a history.
type lived struct {
	began time.Time
	// faults are what was wrong on the way.
	faults []string
	stops  []stopped
	// notices are all there are, and recorded is when, by their names.
	notices  []v1alpha1.Notice
	recorded map[string]time.Time
	crashes  int
	// end is what is recorded in the end, for people to compare.
	end []string
}

// stopped is one end.
type stopped struct {
	name   string
	at     time.Time
	reason v1alpha1.EndReason
	// spared is true where nothing may be stopped.
	spared bool
}

// recorder takes what a test says of itself inside a bubble out of it.
type recorder struct {
	testing.TB
	faults []string
}

func (r *recorder) Fatal(args ...any) {
	r.faults = append(r.faults, fmt.Sprint(args...))
	runtime.Goexit()
}

// story is a history that is being lived.
type story struct {
	*lived
	*cluster
	// often has it die now and then while it is away.
	often      bool
	spare      bool
	pod, again int
	idleSince  time.Time
	runs       map[string]*runs
}

// runs are the times in which a Job had pods, as the story knows them.
type runs struct {
	list []struct{ from, to time.Time }
	open *time.Time
}

// live lives a history in a bubble of time, and says what came of it.
func live(t *testing.T, history []happening, often bool) *lived {
	t.Helper()
	out := &lived{recorded: map[string]time.Time{}}
	synctest.Test(t, func(t *testing.T) {
		watch, done := &recorder{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if fault := recover(); fault != nil {
					watch.faults = append(watch.faults, fmt.Sprint("panic: ", fault))
				}
			}()
			first, second := job("train"), job("copy")
			second.Spec.Template = first.Spec.Template
			s := &story{lived: out, cluster: newCluster(watch, first, second), often: often, runs: map[string]*runs{"train": {}, "copy": {}}}
			s.wrote, s.each, s.sample = s.saw, s.track, s.samples
			out.began = wholeSecond()
			for _, e := range history {
				s.happen(e)
			}
			s.live(time.Minute)
			s.settled()
			s.finish()
		}()
		<-done
		out.faults = append(out.faults, watch.faults...)
	})
	return out
}

// fault notes what is wrong.
func (s *story) fault(format string, args ...any) {
	s.faults = append(s.faults, fmt.Sprintf(format, args...))
}

// saw is told of each write.
func (s *story) saw(o client.Object) {
	switch o := o.(type) {
	case *v1alpha1.Notice:
		if _, known := s.recorded[o.Name]; !known {
			s.recorded[o.Name] = time.Now()
		}
	case *v1alpha1.WorkloadClock:
		stop := o.Status.Stopped
		if stop == nil {
			return
		}
		for _, known := range s.stops {
			if known.at.Equal(stop.At.Time) {
				return // or a copy that came in its place
			}
		}
		s.stops = append(s.stops, stopped{o.Spec.Root.Name, stop.At.Time, stop.Reason, s.spare})
	}
}

// happen lets time pass, and then something happen.
func (s *story) happen(e happening) {
	if e.does == "away" {
		s.away(e)
		return
	}
	s.live(e.after)
	s.do(e)
	s.track()
	s.live(0)
	s.settled()
}

// away has lifecycle not be there, or come and die before it wrote anything.
func (s *story) away(e happening) {
	span := e.after + time.Duration(e.amount)*11*time.Hour
	if s.often {
		time.Sleep(span / 2)
		s.restart()
		s.crashAt, s.written = s.calls+1, false
		for _, request := range s.look(s.t.Context()) {
			if _, err := s.r.Reconcile(s.t.Context(), request); err != nil {
				break
			}
		}
		s.crashAt = 0
		span -= span / 2
	}
	time.Sleep(span)
	s.restart()
	s.live(0)
}

func (s *story) do(e happening) {
	limits := func(change func(*v1alpha1.WorkloadLimits)) {
		var d v1alpha1.Department
		s.get("students", &d)
		l := d.Spec.Workloads[v1alpha1.AnyWorkload]
		change(&l)
		d.Spec.Workloads[v1alpha1.AnyWorkload] = l
		s.must(s.raw.Update(s.t.Context(), &d))
	}
	switch e.does {
	case "start":
		s.begin("train")
	case "stop":
		s.drop("train", 1)
	case "replace":
		if s.count("train") > 0 {
			s.begin("train")
			s.drop("train", 1)
		}
	case "make again":
		s.drop("train", -1)
		made := s.job("train")
		s.must(s.raw.Delete(s.t.Context(), made))
		s.again++
		made = job("train")
		made.UID = types.UID(fmt.Sprint("train-uid-", s.again))
		s.must(s.raw.Create(s.t.Context(), made))
	case "copy":
		s.drop("train", -1)
		s.begin("copy")
	case "idle":
		s.idleSince, s.pace = time.Now(), 10*time.Minute
	case "busy":
		s.idleSince, s.pace = time.Time{}, 10*time.Minute
	case "no samples":
		s.pace = longestSleep
	case "extend":
		s.extend(e.amount)
	case "limit":
		limit := period.MustParseDuration(fmt.Sprint(e.amount*10+1, "h"))
		limits(func(l *v1alpha1.WorkloadLimits) {
			if l.MaxRuntime = &limit; e.amount == 8 {
				l.MaxRuntime = nil
			}
		})
	case "idle limit":
		timeout := period.MustParseDuration(fmt.Sprint(e.amount+1, "h"))
		limits(func(l *v1alpha1.WorkloadLimits) {
			if l.IdleTimeout = &timeout; e.amount == 8 {
				l.IdleTimeout = nil
			}
		})
	case "dry run":
		dry := e.amount%2 == 0
		limits(func(l *v1alpha1.WorkloadLimits) { l.DryRun = &dry })
		s.reckonSpared()
	case "exempt":
		var p v1alpha1.Project
		s.get(lab, &p)
		if p.Spec.Exempt = nil; e.amount%2 == 0 {
			p.Spec.Exempt = &v1alpha1.Exception{Reason: "a trial"}
		}
		s.must(s.raw.Update(s.t.Context(), &p))
		s.reckonSpared()
	case "crash":
		s.crashAt, s.written = s.calls+1+e.amount/2, e.amount%2 == 0
		s.crashes++
	case "restart":
		s.restart()
	}
}

func (s *story) extend(amount int) {
	by := period.MustParseDuration(fmt.Sprint(amount+1, "h"))
	s.again++
	e := &v1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: lab, Name: fmt.Sprint("more-", s.again)}}
	e.Spec = v1alpha1.ExtensionSpec{Action: v1alpha1.ActionExtend, By: &by, Target: v1alpha1.ExtensionTarget{APIVersion: "batch/v1", Kind: "Job", Name: "train"}}
	e.Status.Decision = v1alpha1.ExtensionApproved
	s.must(s.raw.Create(s.t.Context(), e))
}

func (s *story) reckonSpared() {
	var d v1alpha1.Department
	var p v1alpha1.Project
	s.get("students", &d)
	s.get(lab, &p)
	dry := d.Spec.Workloads[v1alpha1.AnyWorkload].DryRun
	s.spare = dry != nil && *dry || p.Spec.Exempt != nil
}

// begin has the Job started, and a pod of it run.
func (s *story) begin(name string) {
	j := s.job(name)
	if suspend := j.Spec.Suspend; suspend != nil && *suspend {
		j.Spec.Suspend = nil
		s.must(s.raw.Update(s.t.Context(), j))
	}
	s.pod++
	uid := fmt.Sprint("-", s.pod)
	s.run(name, uid)
	s.pods[types.UID(name+uid)].Controller.UID = j.UID
}

// drop ends the first pods of a Job; all where n is negative.
func (s *story) drop(name string, n int) {
	for pod := range s.pods.ControlledBy(s.job(name).UID) {
		if n == 0 {
			return
		}
		delete(s.pods, pod.UID)
		n--
	}
}

func (s *story) count(name string) (n int) {
	for range s.pods.ControlledBy(s.job(name).UID) {
		n++
	}
	return n
}

// samples writes what an agent would, while there is one.
func (s *story) samples() {
	node := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "dgx-1"}}
	if s.pace == longestSleep || len(s.pods) == 0 {
		return
	}
	if err := s.raw.Create(s.t.Context(), node); err != nil {
		s.get("dgx-1", node)
	}
	now, used := metav1.Now().Rfc3339Copy(), s.idleSince
	if used.IsZero() {
		used = now.Time
	}
	node.Status.SampledAt, node.Status.UtilisationSource, node.Status.Pods = &now, v1alpha1.UtilisationNVML, nil
	for uid, pod := range s.pods {
		node.Status.Pods = append(node.Status.Pods, v1alpha1.PodUse{PodReference: v1alpha1.PodReference{UID: uid, Namespace: lab, Name: pod.Name}, LastActive: &metav1.Time{Time: used}})
	}
	s.must(s.raw.Status().Update(s.t.Context(), node))
}

// track keeps the times in which each Job had pods.
func (s *story) track() {
	now := time.Now()
	for name, r := range s.runs {
		running := s.count(name) > 0
		switch {
		case running && r.open == nil:
			r.open = &now
		case !running && r.open != nil:
			r.list = append(r.list, struct{ from, to time.Time }{*r.open, now})
			r.open = nil
		}
	}
}

// settled checks that nothing is written while nothing changes, and that the time
// that was counted is right.
func (s *story) settled() {
	for range 4 { // an end is followed by that of its pods, and by what came of a crash
		s.live(0)
	}
	if s.crashAt > s.calls {
		return // what is to come is not decided
	}
	before := s.calls
	s.live(0)
	if s.calls != before {
		s.fault("%d writes while nothing changes", s.calls-before)
	}
	now := time.Now()
	for _, one := range s.clocks() {
		if s.runs[one.Spec.Root.Name] != nil {
			s.counted(&one, now)
		}
	}
}

// counted checks the running time of one clock: at most the time since it began,
// and at least that in which the story knows that it ran.
func (s *story) counted(one *v1alpha1.WorkloadClock, now time.Time) {
	status := &one.Status
	ran := time.Duration(status.AccumulatedSeconds) * time.Second
	if status.RunningSince != nil {
		ran += now.Sub(status.RunningSince.Time)
	}
	if status.BeganAt == nil {
		if ran > 0 {
			s.fault("%s ran for %s and never began", one.Name, ran)
		}
		return
	}
	least := -time.Duration(2*s.crashes) * time.Second
	for _, run := range s.runs[one.Spec.Root.Name].list {
		if !run.from.Before(status.BeganAt.Time) {
			least += run.to.Sub(run.from).Truncate(time.Second)
		}
	}
	if most := now.Sub(status.BeganAt.Time); ran > most+time.Second || ran < least {
		s.fault("%s ran for %s; want %s to %s", one.Name, ran, least, most)
	}
}

// finish takes what is recorded out of the bubble.
func (s *story) finish() {
	var list v1alpha1.NoticeList
	s.must(s.raw.List(s.t.Context(), &list))
	s.notices = list.Items
	for _, one := range s.clocks() {
		one.Status.Conditions, one.Status.CreatedBy = nil, ""
		status, err := json.Marshal(&one.Status)
		s.must(err)
		s.end = append(s.end, one.Name+" "+string(status))
	}
	for _, n := range s.notices {
		s.end = append(s.end, fmt.Sprint(n.Name, " ", n.Spec.DueAt, " ", n.Spec.Deadline, " ", n.Status.Phase))
	}
}

func (s *story) get(name string, o client.Object) {
	s.must(s.raw.Get(s.t.Context(), client.ObjectKey{Name: name}, o))
}

func (s *story) must(err error) {
	if err != nil {
		s.t.Fatal(err)
	}
}
