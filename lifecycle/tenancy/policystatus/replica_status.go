// Copyright The Sluice Authors.
// SPDX-License-Identifier: Apache-2.0

package policystatus

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/api/v1alpha1"
	"sluice.dev/policies/engine"
	"sluice.dev/policies/replica"
)

const (
	// maxEndedReplicas and maxEndedProjects are the limits of v1alpha1.EndedReplicas.
	maxEndedReplicas = 256
	maxEndedProjects = 64
	// maxNamed is the number of replicas or projects that a condition names; it counts the others.
	maxNamed = 5
)

// replicaView is what the replicas report about a policy.
type replicaView struct {
	version engine.Version
	// live is the number of live replicas, current the number of those that have the version.
	live, current int
	// others are the live replicas with another version, or without the policy.
	others []string
	// missing are the live replicas that lack data for it, with what they lack.
	missing []string
	// timedOut are the evaluations of the last hour that took too long, by project.
	timedOut map[string]int64
	// counted are the violations of the version, by Lease.
	counted []countedViolations
	// leases are all that exist.
	leases []string
}

type countedViolations struct {
	lease   string
	expired bool
	replica.Violations
}

func newReplicaView(version engine.Version, states []replica.State, now time.Time, set string) replicaView {
	view := replicaView{version: version, timedOut: map[string]int64{}}
	for i := range states {
		s := &states[i]
		view.leases = append(view.leases, s.Lease)
		if s.IsLive(now) {
			view.live++
			if has, known := s.Has(version, set); has {
				view.current++
			} else {
				view.others = append(view.others, s.Lease+" "+describeOther(s, version.Policy, known))
			}
			for _, missing := range s.Report.Missing {
				if missing.Policy == version.Policy {
					view.missing = append(view.missing, s.Lease+": "+missing.Data)
				}
			}
		}
		for _, v := range s.Report.Violations {
			if engine.Version(v.Version) == version {
				view.counted = append(view.counted, countedViolations{s.Lease, s.IsExpired(now), v})
				for _, timedOut := range v.TimedOut {
					view.timedOut[timedOut.Project] = add(view.timedOut[timedOut.Project], timedOut.Evaluations)
				}
			}
		}
	}
	return view
}

func describeOther(s *replica.State, policy string, known bool) string {
	for _, v := range s.Report.Policies {
		if v.Policy == policy {
			return fmt.Sprintf("(%s) has generation %d", s.Report.Program, v.Generation)
		}
	}
	if !known {
		return "does not report it"
	}
	return "does not have it"
}

// addReplicas adds what the replicas report to a status, whose other fields are set. before is the former status.
func addReplicas(status *v1alpha1.PolicyStatus, before *v1alpha1.PolicyStatus, view replicaView, required bool, now metav1.Time) {
	if before.EnforcedGeneration != status.EnforcedGeneration {
		removeReplicas(status)
	}
	addViolations(status, view)
	enforced := enforcedCondition(view)
	enforced.ObservedGeneration, enforced.LastTransitionTime = status.ObservedGeneration, now
	meta.SetStatusCondition(&status.Conditions, enforced)
	if len(view.timedOut) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionTimedOut)
		return
	}
	timedOut := timedOutCondition(view.timedOut, required)
	timedOut.ObservedGeneration, timedOut.LastTransitionTime = status.ObservedGeneration, now
	meta.SetStatusCondition(&status.Conditions, timedOut)
}

// removeReplicas removes what replicas reported of another version, or of a policy that is no longer in force.
func removeReplicas(status *v1alpha1.PolicyStatus) {
	status.Violations, status.ViolationsByProject, status.Examples, status.EndedReplicas = 0, nil, nil, nil
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionEnforced)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionTimedOut)
}

// addViolations sums what the existing replicas counted, and what those did that ended. It adds the replicas that expired to
// the latter, so that their Leases can be deleted.
func addViolations(status *v1alpha1.PolicyStatus, view replicaView) {
	ended := v1alpha1.EndedReplicas{}
	if status.EndedReplicas != nil {
		ended = *status.EndedReplicas.DeepCopy()
	}
	ended.Replicas = slices.DeleteFunc(ended.Replicas, func(name string) bool { return !slices.Contains(view.leases, name) })
	endedProjects, projects := sumOf(ended.Projects), map[string]int64{}
	total := int64(0)
	examples := [][]v1alpha1.PolicyExample{status.Examples}
	for _, counted := range view.counted {
		examples = append(examples, counted.Examples)
		switch {
		case slices.Contains(ended.Replicas, counted.lease):
		case counted.expired && len(ended.Replicas) < maxEndedReplicas:
			ended.Replicas = append(ended.Replicas, counted.lease)
			ended.Violations = add(ended.Violations, counted.Total)
			addProjects(endedProjects, counted.Projects)
		default:
			total = add(total, counted.Total)
			addProjects(projects, counted.Projects)
		}
	}
	slices.Sort(ended.Replicas)
	ended.Projects = replica.TopProjects(endedProjects, maxEndedProjects)
	addProjects(projects, ended.Projects)
	status.EndedReplicas = nil
	if len(ended.Replicas) > 0 || ended.Violations > 0 {
		status.EndedReplicas = &ended
	}
	status.Violations = add(total, ended.Violations)
	status.ViolationsByProject = replica.TopProjects(projects, replica.MaxProjects)
	status.Examples = replica.MergeExamples(examples...)
}

func sumOf(projects []v1alpha1.ProjectViolations) map[string]int64 {
	sum := map[string]int64{}
	addProjects(sum, projects)
	return sum
}

func addProjects(sum map[string]int64, projects []v1alpha1.ProjectViolations) {
	for _, p := range projects {
		sum[p.Project] = add(sum[p.Project], p.Violations)
	}
}

// add returns the sum of two numbers that are not negative, at most the largest number.
func add(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// enforcedCondition reports whether all replicas have the generation in force.
func enforcedCondition(view replicaView) metav1.Condition {
	condition := metav1.Condition{
		Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonEnforced,
		Message: fmt.Sprintf("%d of %d webhook replicas have generation %d", view.current, view.live, view.version.Generation),
	}
	switch {
	case view.live == 0:
		condition.Status, condition.Reason = metav1.ConditionUnknown, v1alpha1.ReasonNoReplicas
		condition.Message = "no replica of the webhook reports; while none runs, new pods of projects are refused"
	case view.current < view.live:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonReplicasDiffer
		condition.Message += ": " + joinNames(view.others, "; ")
	case len(view.missing) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonDataMissing
		condition.Message += fmt.Sprintf(", and in %d of them the policy fails, because data is missing: ", len(view.missing)) +
			joinNames(view.missing, "; ")
	}
	condition.Message = v1alpha1.TruncateText(condition.Message, v1alpha1.MaxConditionMessageBytes)
	return condition
}

// timedOutCondition says how often the policy took too long, and for which projects. required: what it matches was refused then.
func timedOutCondition(timedOut map[string]int64, required bool) metav1.Condition {
	var sum int64
	var names []string
	for _, project := range slices.SortedFunc(maps.Keys(timedOut), func(a, b string) int {
		return cmp.Or(cmp.Compare(timedOut[b], timedOut[a]), cmp.Compare(a, b))
	}) {
		sum = add(sum, timedOut[project])
		names = append(names, fmt.Sprintf("%s %d", project, timedOut[project]))
	}
	effect := "the policy had no effect on these objects"
	if required {
		effect = "these objects were refused"
	}
	return metav1.Condition{
		Type: v1alpha1.ConditionTimedOut, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonTimedOut,
		Message: v1alpha1.TruncateText(fmt.Sprintf("%d evaluations of the last hour took longer than a policy may; %s. By project: %s",
			sum, effect, joinNames(names, ", ")), v1alpha1.MaxConditionMessageBytes),
	}
}

// joinNames returns the first names and the number of the others.
func joinNames(names []string, separator string) string {
	text := strings.Join(names[:min(len(names), maxNamed)], separator)
	if more := len(names) - maxNamed; more > 0 {
		text += fmt.Sprintf("%sand %d more", separator, more)
	}
	return text
}
