// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/api/v1alpha1"
)

// The limit, the reset time and the shortest lead of the fake cluster's department, and what
// crashes and whole seconds add.
const (
	teamLimit      = 48 * time.Hour
	teamResetAfter = time.Hour
	teamLead       = 30 * time.Minute
	teamTolerance  = 2 * time.Minute
)

// teamEvent is an event in a namespace with several users, after some time.
type teamEvent struct {
	after                time.Duration
	kind                 string
	user, name, template int
}

func (e teamEvent) String() string {
	return fmt.Sprintf("%s later: %s by user %d, name %d, template %d", e.after, e.kind, e.user, e.name, e.template)
}

var teamEvents = []string{
	"create", "create", "create", "delete", "delete", "pause", "pause", "resume", "resume", "complete", "lose node", "downtime", "crash", "restart",
}

func drawTeamEvents(t *rapid.T) []teamEvent {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) teamEvent {
		return teamEvent{
			after:    time.Duration(rapid.SampledFrom([]int{0, 1, 29, 59, 61, 5 * 60, 23 * 60, 40 * 60}).Draw(t, "minutes")) * time.Minute,
			kind:     rapid.SampledFrom(teamEvents).Draw(t, "kind"),
			user:     rapid.IntRange(0, 1).Draw(t, "user"),
			name:     rapid.IntRange(0, 1).Draw(t, "name"),
			template: rapid.IntRange(0, 1).Draw(t, "template"),
		}
	}), 1, 16).Draw(t, "history")
}

// teamRun is a run of a user's Job.
type teamRun struct {
	user, name, template string
	uid                  types.UID
	from, to             time.Time
	open                 bool
	// completed, deleted, paused and stopped say how it ended.
	completed, deleted, paused, stopped bool
	// resumed is true if the Job runs again, in a later run.
	resumed bool
	// away is the time for which lifecycle was away meanwhile.
	away time.Duration
}

func (r *teamRun) length() time.Duration { return r.to.Sub(r.from) }

// teamSimulation applies events to a teamCluster.
type teamSimulation struct {
	*teamCluster
	runs   []*teamRun
	faults []string
	nodes  int
	// oneAtATime is true if a user has one workload at a time.
	oneAtATime bool
	recordedAt map[string]time.Time
}

// simulateTeam runs a history in a synctest bubble and returns the violations.
func simulateTeam(t *testing.T, history []teamEvent, oneAtATime bool) (faults []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		recorder, done := &faultRecorder{TB: t}, make(chan struct{})
		go func() {
			defer close(done)
			defer func() {
				if fault := recover(); fault != nil {
					recorder.faults = append(recorder.faults, fmt.Sprint("panic: ", fault))
				}
			}()
			s := &teamSimulation{teamCluster: newTeamCluster(recorder), oneAtATime: oneAtATime, recordedAt: map[string]time.Time{}}
			s.afterReconcile = s.observeStops
			s.onWrite = func(o client.Object) {
				if n, ok := o.(*v1alpha1.Notice); ok && s.recordedAt[n.Name].IsZero() {
					s.recordedAt[n.Name] = time.Now()
				}
			}
			for _, e := range history {
				s.apply(e)
			}
			s.advance(60 * time.Hour)
			s.checkLengths()
			recorder.faults = append(recorder.faults, s.faults...)
		}()
		<-done
		faults = recorder.faults
	})
	return faults
}

func (s *teamSimulation) apply(e teamEvent) {
	if e.kind == "downtime" {
		for _, r := range s.openRuns() {
			r.away += e.after
		}
		time.Sleep(e.after)
		s.restart()
		s.advance(0)
		return
	}
	s.advance(e.after)
	user := []string{alice, bob}[e.user]
	name, image := fmt.Sprint("work-", e.name), fmt.Sprint("registry.example.org/", e.template)
	switch e.kind {
	case "create":
		s.createRun(user, name, image)
	case "delete":
		if r := s.existing(name); r != nil && r.user == user {
			s.end(r, "deleted")
			s.delete(jobKind, name)
		}
	case "pause":
		if r := s.existing(name); r != nil && r.user == user && r.open {
			s.end(r, "paused")
			s.pause(name)
		}
	case "resume":
		s.resumeRun(user, name)
	case "complete":
		if r := s.existing(name); r != nil && r.open {
			s.end(r, "completed")
			s.complete(jobKind, name)
		}
	case "lose node":
		s.loseNode(name)
	case "crash":
		s.crashAt, s.crashAfterWrite = s.calls+1+e.template, e.name == 0
	case "restart":
		s.restart()
	}
	s.advance(0)
}

// createRun creates a Job unless one of its name exists.
func (s *teamSimulation) createRun(user, name, image string) {
	if s.existing(name) != nil || s.oneAtATime && s.hasOpenRun(user) {
		return
	}
	run := &teamRun{user: user, name: name, template: image, from: time.Now(), open: true}
	s.runs = append(s.runs, run)
	run.uid = types.UID(fmt.Sprint("root-", s.objects+1))
	s.create(jobKind, name, user, func(object *unstructured.Unstructured) {
		template := map[string]any{"spec": map[string]any{"containers": []any{map[string]any{"name": "main", "image": image}}}}
		object.Object["spec"] = map[string]any{"template": template}
	})
}

// resumeRun lets a paused Job run again.
func (s *teamSimulation) resumeRun(user, name string) {
	r := s.existing(name)
	if r == nil || r.user != user || !r.paused || s.oneAtATime && s.hasOpenRun(user) {
		return
	}
	r.resumed = true
	s.runs = append(s.runs, &teamRun{user: user, name: name, template: r.template, uid: r.uid, from: time.Now(), open: true})
	s.resume(name)
}

func (s *teamSimulation) hasOpenRun(user string) bool {
	return slices.ContainsFunc(s.runs, func(r *teamRun) bool { return r.user == user && r.open })
}

// loseNode moves the Job's pod to a node that is lost: it terminates and never ends.
func (s *teamSimulation) loseNode(name string) {
	r := s.existing(name)
	if r == nil || !r.open {
		return
	}
	s.nodes++
	pod := s.pods[r.uid+"-pod"]
	pod.Node = fmt.Sprint("lost-", s.nodes)
	s.setNodeReady(pod.Node, corev1.ConditionUnknown)
	s.terminate(pod.UID)
	s.end(r, "")
}

// existing returns the run whose Job exists, or nil.
func (s *teamSimulation) existing(name string) *teamRun {
	for _, r := range s.runs {
		if r.name == name && !r.deleted && !r.resumed {
			return r
		}
	}
	return nil
}

func (s *teamSimulation) openRuns() (open []*teamRun) {
	for _, r := range s.runs {
		if r.open {
			open = append(open, r)
		}
	}
	return open
}

func (s *teamSimulation) end(r *teamRun, how string) {
	if r.open {
		r.to, r.open = time.Now(), false
	}
	r.completed = r.completed || how == "completed"
	r.deleted, r.paused = how == "deleted", how == "paused"
}

// observeStops records which Jobs were stopped, and checks each stop.
func (s *teamSimulation) observeStops() {
	for _, r := range s.openRuns() {
		if s.pods[r.uid+"-pod"] != nil {
			continue
		}
		s.end(r, "")
		r.stopped = true
		stopped := s.clockStatus(jobKind, r.name).Stopped
		if stopped == nil {
			s.faults = append(s.faults, fmt.Sprintf("%s of %s has no pod and was not stopped", r.name, r.user))
			continue
		}
		if stopped.At.Time.Before(r.from) {
			continue // it continues a stopped workload
		}
		if own := s.ownTime(r); own < teamLimit-teamTolerance {
			s.faults = append(s.faults, fmt.Sprintf("%s of %s was stopped after %s of its creator's time", r.name, r.user, own))
		}
		s.checkAnnounced(r)
	}
}

// ownTime returns the time that the creator of a run has run it and the runs that it may
// continue: those with the same name or template, and those that they continue.
func (s *teamSimulation) ownTime(r *teamRun) time.Duration {
	members := []*teamRun{r}
	for i := 0; i < len(members); i++ {
		for _, other := range s.runs {
			related := other.name == members[i].name || other.template == members[i].template
			if other.user == r.user && related && !other.completed && !slices.Contains(members, other) {
				members = append(members, other)
			}
		}
	}
	var sum time.Duration
	for _, m := range members {
		to := m.to
		if m.open {
			to = time.Now()
		}
		sum += to.Sub(m.from)
		if !m.open && !m.stopped && !m.deleted {
			sum += teamTolerance // of the grace period on a lost node
		}
	}
	return sum
}

// checkAnnounced checks that a warning of the stop was recorded at least the shortest lead
// before, for this Job or one that it continues.
func (s *teamSimulation) checkAnnounced(r *teamRun) {
	var notices v1alpha1.NoticeList
	if err := s.rawClient.List(s.t.Context(), &notices); err != nil {
		s.t.Fatal(err)
	}
	for _, n := range notices.Items {
		if n.Spec.Kind == v1alpha1.NoticeWorkloadEnding && !s.recordedAt[n.Name].Add(teamLead).After(r.to) && !n.Spec.Deadline.After(r.to) {
			return
		}
	}
	s.faults = append(s.faults, fmt.Sprintf("%s of %s was stopped without announcement", r.name, r.user))
}

// checkLengths checks that no run was longer than the limit and one lead, and if users have
// one workload at a time, no sequence of runs with one template was.
func (s *teamSimulation) checkLengths() {
	previous, sums := map[string]*teamRun{}, map[string]time.Duration{}
	for _, r := range s.runs {
		if r.open {
			s.end(r, "")
		}
		if r.length() > teamLimit+teamLead+r.away+teamTolerance {
			s.faults = append(s.faults, fmt.Sprintf("%s of %s ran for %s", r.name, r.user, r.length()))
		}
		if !s.oneAtATime {
			continue
		}
		before := previous[r.user]
		if before == nil || before.completed || before.template != r.template || r.from.Sub(before.to) >= teamResetAfter-teamTolerance || !before.deleted && !before.paused {
			sums[r.user] = 0
		}
		previous[r.user] = r
		if sums[r.user] += r.length() - r.away; sums[r.user] > teamLimit+teamLead+teamTolerance {
			s.faults = append(s.faults, fmt.Sprintf("the runs of %s until %s lasted %s", r.user, r.name, sums[r.user]))
		}
	}
}

// In every history of a team: no workload is stopped before its creator has run it, or what
// it continues, for the limit; every stop is announced; and no workload runs longer than the
// limit and one lead, except while lifecycle is away.
func TestTeamInvariants(t *testing.T) {
	for name, oneAtATime := range map[string]bool{"shared names": false, "one workload for each user at a time": true} {
		t.Run(name, func(t *testing.T) {
			limitChecks(t)
			rapid.Check(t, func(rt *rapid.T) {
				history := drawTeamEvents(rt)
				for _, fault := range simulateTeam(t, history, oneAtATime) {
					rt.Error(fault)
				}
			})
		})
	}
}
